/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists, opens and closes the RDMA ports of this machine. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_PORTS_H
#define DICOMM_TRANSPORTS_VERBS_NIC_PORTS_H

#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"
#include "transports/verbs/nic/nic.h"

struct tp_place;

/* Returns true for the software NICs of Linux, rxe and siw. */
bool verbs_nic_is_software(const struct verbs_nic *nic);
/* Returns true if there is a port that can be used. `why` becomes a description
 * of the ports, or the reason why there is none. */
bool verbs_nic_find(char *why, size_t len);
/* Open the ports that a rank uses: at least one, fastest first. `place` and
 * `turn` choose among more ports than a rank may use; see
 * verbs_choose_take(). */
dicomm_result_t verbs_nics_get(unsigned turn, const struct tp_place *place,
			       struct verbs_nic *out[VERBS_RAILS],
			       unsigned *count);
void verbs_nic_put(struct verbs_nic *nic);
/* Read GIDs, LID, MTU and partition again if the NIC has reported a change.
 * There may be no GID afterwards. */
void verbs_nic_refresh(struct verbs_nic *nic);
/* Returns true if the port still has that GID. */
bool verbs_nic_has_gid(const struct verbs_nic *nic,
		       const struct verbs_gid *gid);
/* Write why the port has no GID. */
void verbs_nic_say_no_gid(char *text, size_t len);

#endif
