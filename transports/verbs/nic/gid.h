/* SPDX-License-Identifier: BSD-3-Clause */
/* GIDs: the addresses by which other NICs reach a port. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_GID_H
#define DICOMM_TRANSPORTS_VERBS_NIC_GID_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>

#define VERBS_RAILS 4 /* most ports that a rank uses */
#define VERBS_GIDS 8  /* most GIDs of one port */
#define VERBS_GID_LEFT \
	"that GID is not the port's any more: was its address removed?"

enum verbs_fabric { VERBS_INFINIBAND, VERBS_ROCE, VERBS_IWARP };

/* A GID by which peers can reach a port. */
struct verbs_gid {
	union ibv_gid gid;
	uint8_t index; /* in the port's GID table */
	/* Bits of the subnet's prefix. 0: unknown, or no subnet. */
	uint8_t prefix;
};

const char *verbs_fabric_name(enum verbs_fabric fabric);
void verbs_gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);

#endif
