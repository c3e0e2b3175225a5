/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides which ports a rank uses, and by which GID. These functions are pure,
 * except that they read the configuration. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_CHOOSE_H
#define DICOMM_TRANSPORTS_VERBS_NIC_CHOOSE_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "transports/verbs/nic/gid.h"

#define VERBS_PORTS_MAX 64

/* Properties of a port that is not kept open. */
struct verbs_port {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t number;
	bool active;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	char gid[INET6_ADDRSTRLEN];
	char pci[16];   /* PCI address of the NIC; "": unknown */
	uint32_t steps; /* distance from the rank's device or cores */
	char unfit[64]; /* why it cannot be used; "": it can be */
};

/* Returns true if DICOMM_IB_HCA selects that port. The syntax is NCCL's: names
 * with an optional ":PORT". They are prefixes, unless the list begins with "=".
 * If it begins with "^", it selects all ports but these. */
bool verbs_choose_matches(const char *spec, const char *name, unsigned port);
/* Returns why no port of a NIC with that kernel driver can be used, or NULL. */
const char *verbs_choose_objection(enum ibv_transport_type type,
				   const char *driver,
				   const struct ibv_device_attr *attr);
/* Returns true if its completion queues can be resized while in use. */
bool verbs_choose_grows(enum verbs_fabric fabric, const char *driver);
/* Returns the index of the partition key for its queue pairs: the one that
 * DICOMM_IB_PKEY names, otherwise the best. */
uint16_t verbs_choose_pkey(const uint16_t *keys, unsigned n);
/* Find the GIDs by which peers can reach a port, best first, or only the one
 * that DICOMM_IB_GID_INDEX names. prefix[i] is the length of the subnet's
 * prefix of entry i. Returns the number of GIDs. */
uint32_t verbs_choose_gids(const struct ibv_gid_entry *e, const uint8_t *prefix,
			   ssize_t n, uint8_t port, enum verbs_fabric fabric,
			   struct verbs_gid out[VERBS_GIDS]);
/* Find out which of my GIDs reaches which of theirs: in the same subnet, or at
 * least in the same address family. Both lists are best first. */
void verbs_choose_pair(const struct verbs_gid *mine, uint32_t n,
		       const uint8_t (*theirs)[16], uint32_t their_n,
		       uint32_t *my_gid, uint32_t *their_gid);
/* Keep the ports that can be used and have a link, and return their number.
 * `why` becomes their description, or the reason why there are none. */
int verbs_choose_usable(struct verbs_port *ports, int n, char *why, size_t len);
/* Choose the ports that one rank uses, and return their number. All are of one
 * fabric, which is the same for all ranks. A port is left out if another one is
 * nearer and at least as fast. Of the rest, the fastest are taken. If there are
 * more equal ports than a rank may use, `turn` decides. Ranks pair the ports at
 * equal places of their lists, so the order is: fastest first, then by name. */
unsigned verbs_choose_take(struct verbs_port *ports, unsigned n, unsigned turn);

#endif
