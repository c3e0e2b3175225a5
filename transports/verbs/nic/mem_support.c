/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out whether the NICs of a rank can register memory of a device,
 * by trying. */
#include "transports/verbs/nic/mem_support.h"

#include <stdio.h>

#include "transports/transport.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"
#include "transports/verbs/nic/registration.h"

bool verbs_mem_support(unsigned n, const struct tp_region *region,
		       const struct tp_place *place, struct tp_mem_support *out)
{
	struct verbs_nic *nics[VERBS_RAILS];
	struct verbs_mr *mr = NULL;
	unsigned count = 0;
	char why[256];

	if (!verbs_nic_find(why, sizeof(why)) ||
	    verbs_nics_get(0, place, nics, &count) != DICOMM_SUCCESS)
		return false;
	if (n < count) {
		snprintf(out->name, sizeof(out->name), "%s:%u", nics[n]->name,
			 nics[n]->port);
		out->supported =
			verbs_mr_get_device(nics[n], region, &mr, out->how,
					    sizeof(out->how)) == DICOMM_SUCCESS;
	}
	if (mr)
		verbs_mr_put(nics[n], mr);
	for (unsigned i = 0; i < count; i++)
		verbs_nic_put(nics[i]);
	return n < count;
}
