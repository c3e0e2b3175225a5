/* SPDX-License-Identifier: BSD-3-Clause */
/* The transports, those that are preferred first. One that this build lacks is
 * listed, but never usable: ranks exchange the numbers of transports, so these
 * must be the same in every build. */
#include "transports/transport.h"

#include <stdio.h>
#include <string.h>

#include "transports/defaults.h"

#if !defined(HAVE_VERBS) || !defined(HAVE_UCX)
static bool absent_usable(char *why, size_t len)
{
	snprintf(why, len, "this build is without it");
	return false;
}
#endif
#define ABSENT(text)                                                          \
	{                                                                     \
		.name = text, .device_memory = true, .usable = absent_usable, \
		.mem_support = defaults_mem_support                           \
	}

extern const struct transport transport_shm;
extern const struct transport transport_tcp;
#ifdef HAVE_VERBS
extern const struct transport transport_verbs;
#else
static const struct transport transport_verbs = ABSENT("verbs");
#endif
#ifdef HAVE_UCX
extern const struct transport transport_ucx;
#else
static const struct transport transport_ucx = ABSENT("ucx");
#endif

const struct transport *const transports[] = {
	&transport_shm, &transport_verbs, &transport_ucx, &transport_tcp, NULL};

const struct transport *transport_find(const char *name)
{
	for (int i = 0; transports[i]; i++)
		if (!strcmp(transports[i]->name, name))
			return transports[i];
	return NULL;
}

_Static_assert(sizeof(transports) / sizeof(*transports) <= TP_TRANSPORTS + 1,
	       "more transports than masks of them have bits: TP_TRANSPORTS");
