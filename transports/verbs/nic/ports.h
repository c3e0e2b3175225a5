/* SPDX-License-Identifier: BSD-3-Clause */
/* The RDMA ports of this machine: which there are; open and close them. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_PORTS_H
#define DICOMM_TRANSPORTS_VERBS_NIC_PORTS_H

#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"
#include "transports/verbs/nic/nic.h"

struct tp_place;

/* The software RDMA of Linux: rxe or siw. */
bool verbs_nic_is_software(const struct verbs_nic *nic);
/* Ports that can be used, in words; false and why, if there are none. */
bool verbs_nic_find(char *why, size_t len);
/* Open as many of them as a rank may use, one at least, fastest first; which of
 * more, is up to its place and, where that makes no difference, its turn. */
dicomm_result_t verbs_nics_get(unsigned turn, const struct tp_place *place,
			       struct verbs_nic *out[VERBS_RAILS],
			       unsigned *count);
void verbs_nic_put(struct verbs_nic *nic);
/* What others know the port by, and the network has it do, may change while it
 * is in use: look again if the NIC has said so. There may be no GID then. */
void verbs_nic_refresh(struct verbs_nic *nic);
/* Is that one still the port's? */
bool verbs_nic_has_gid(const struct verbs_nic *nic,
		       const struct verbs_gid *gid);
/* Why it has none. */
void verbs_nic_say_no_gid(char *text, size_t len);

#endif
