/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports a rank uses, and by which GID. Pure functions, except that they
 * read the configuration. */
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

/* What is known of a port without keeping it open. */
struct verbs_port {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t number;
	bool active;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	char gid[INET6_ADDRSTRLEN];
	char pci[16];   /* of the NIC; "": none */
	uint32_t steps; /* distance from the rank's device or cores */
	char unfit[64]; /* why it cannot be used; "": it can */
};

/* Does DICOMM_IB_HCA select that port? NCCL's syntax: names with an optional
 * ":PORT"; they are prefixes, unless "=" comes first; "^" first: all ports but
 * these. */
bool verbs_choose_matches(const char *spec, const char *name, unsigned port);
/* Why no port of a NIC with that kernel driver can be used; NULL: it can. */
const char *verbs_choose_objection(enum ibv_transport_type type,
				   const char *driver,
				   const struct ibv_device_attr *attr);
/* Can its completion queues be resized while they are in use? */
bool verbs_choose_grows(enum verbs_fabric fabric, const char *driver);
/* The index of the partition key for its queue pairs: the one that
 * DICOMM_IB_PKEY names, or the best. */
uint16_t verbs_choose_pkey(const uint16_t *keys, unsigned n);
/* The GIDs by which peers can reach a port, best first; or only the one that
 * DICOMM_IB_GID_INDEX names. prefix: for each entry the length of its subnet's
 * prefix. Returns their number. */
uint32_t verbs_choose_gids(const struct ibv_gid_entry *e, const uint8_t *prefix,
			   ssize_t n, uint8_t port, enum verbs_fabric fabric,
			   struct verbs_gid out[VERBS_GIDS]);
/* Which of my GIDs reaches which of theirs: in the same subnet, or at least of
 * the same address family. Both lists are best first. */
void verbs_choose_pair(const struct verbs_gid *mine, uint32_t n,
		       const uint8_t (*theirs)[16], uint32_t their_n,
		       uint32_t *my_gid, uint32_t *their_gid);
/* Keep the ports that can be used and have a link; returns their number. `why`
 * becomes their description, or why there are none. */
int verbs_choose_usable(struct verbs_port *ports, int n, char *why, size_t len);
/* The ports that one rank uses: all of one fabric, which is the same for all
 * ranks; no port if another is nearer and as fast; then the fastest. If there
 * are more equal ports than a rank may use, `turn` decides. Ranks pair the
 * ports at equal places of their lists, so the order is: fastest first, then by
 * name. Returns their number. */
unsigned verbs_choose_take(struct verbs_port *ports, unsigned n, unsigned turn);

#endif
