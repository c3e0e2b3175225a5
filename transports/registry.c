/* SPDX-License-Identifier: BSD-3-Clause */
/* The wires of this build. */
#include "transports/transport.h"

#include <string.h>

extern const struct transport transport_shm;
#ifdef HAVE_VERBS
extern const struct transport transport_verbs;
#endif
#ifdef HAVE_UCX
extern const struct transport transport_ucx;
#endif

const struct transport *const transports[] = {
	&transport_shm,
#ifdef HAVE_VERBS
	&transport_verbs,
#endif
#ifdef HAVE_UCX
	&transport_ucx,
#endif
	NULL,
};

const struct transport *transport_find(const char *name)
{
	for (int i = 0; transports[i]; i++)
		if (!strcmp(transports[i]->name, name))
			return transports[i];
	return NULL;
}
