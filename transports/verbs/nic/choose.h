/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports a rank uses, and by which GID. */
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

/* One port, as far as can be told without keeping it open. */
struct verbs_port {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t number;
	bool active;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	char gid[INET6_ADDRSTRLEN];
	char pci[16];   /* "": of none */
	uint32_t steps; /* from who would use it */
	char unfit[64]; /* why it is of no use; "": it may be */
};

/* Does DICOMM_IB_HCA let that port through? NCCL's grammar: names with an
 * optional ":PORT", prefixes unless "=" comes first, "^": all but these. */
bool verbs_choose_matches(const char *spec, const char *name, unsigned port);
/* Why no port of such a NIC, by its kernel driver's name, is of use; NULL: they
 * may be. */
const char *verbs_choose_objection(enum ibv_transport_type type,
				   const char *driver,
				   const struct ibv_device_attr *attr);
/* Can its completion queues be made longer while they are in use? */
bool verbs_choose_grows(enum verbs_fabric fabric, const char *driver);
/* Which of a port's partitions its queue pairs are in, or what DICOMM_IB_PKEY
 * says. */
uint16_t verbs_choose_pkey(const uint16_t *keys, unsigned n);
/* Of the entries of a NIC, each with the bits of its subnet, the GIDs of one
 * type that others can reach that port by, best first, or that which
 * DICOMM_IB_GID_INDEX names. Returns their number. */
uint32_t verbs_choose_gids(const struct ibv_gid_entry *e, const uint8_t *prefix,
			   ssize_t n, uint8_t port, enum verbs_fabric fabric,
			   struct verbs_gid out[VERBS_GIDS]);
/* Of mine and theirs, each best first, those that reach each other: of one
 * subnet, or of one kind at least. */
void verbs_choose_pair(const struct verbs_gid *mine, uint32_t n,
		       const uint8_t (*theirs)[16], uint32_t their_n,
		       uint32_t *my_gid, uint32_t *their_gid);
/* Keep those that may be used and have a link, described in `why`; why, if
 * there are none. Returns their number. */
int verbs_choose_usable(struct verbs_port *ports, int n, char *why, size_t len);
/* Those that one rank uses: of one fabric, the same for all ranks; none that a
 * nearer one equals; the fastest, of these in its turn. Ports are paired with
 * those at the same place in another rank's list, so that like ones meet: the
 * fastest first, then by name. Returns their number. */
unsigned verbs_choose_take(struct verbs_port *ports, unsigned n, unsigned turn);

#endif
