/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of NICs, shared by the communicators of a process. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_H
#define DICOMM_TRANSPORTS_VERBS_NIC_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

#define VERBS_RAILS 4 /* most of a rank */
#define VERBS_GIDS 8  /* most that a port is known by */
#define VERBS_GID_LEFT \
	"that GID is not the port's any more: was its address removed?"

enum verbs_fabric { VERBS_INFINIBAND, VERBS_ROCE, VERBS_IWARP };

/* One that others may know a port by. */
struct verbs_gid {
	union ibv_gid gid;
	uint8_t index;  /* in the port's table */
	uint8_t prefix; /* bits of its subnet; 0: not known, or no subnet */
};

struct tp_place;
struct verbs_mr;

struct verbs_nic {
	struct verbs_nic *next;
	int refs;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	enum verbs_fabric fabric;
	uint64_t bytes_per_s;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *filler; /* siw */
	bool grows;            /* a completion queue can */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	/* what it is known by, with the lock of connect.c; best first */
	struct verbs_gid gid[VERBS_GIDS];
	uint32_t gids;
	uint16_t pkey_index;
	struct sockaddr_in address; /* cm.c */
	uint32_t max_inline;        /* of a queue pair; 0: not known yet */
	/* registrations; memory.c */
	pthread_mutex_t lock;
	struct verbs_mr *mrs;
	uint64_t freed_seen;
	_Atomic uint64_t registrations; /* ever made */
	/* by the thread of connect.c; see watch.c */
	_Atomic bool changed;      /* what verbs_nic_renew() looks at */
	_Atomic uint64_t lost_ms;  /* since when it has no link; 0: it has */
	const char *_Atomic fatal; /* why it is of no use any more */
	_Atomic bool gone;         /* all of it, not just a queue */
};

const char *verbs_fabric_name(enum verbs_fabric fabric);
void verbs_gid_text(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN]);
/* rxe or siw. */
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
void verbs_nic_renew(struct verbs_nic *nic);
/* Is that one still the port's? */
bool verbs_nic_has_gid(const struct verbs_nic *nic,
		       const struct verbs_gid *gid);
/* Why it has none. */
void verbs_nic_say_no_gid(char *text, size_t len);

/* To memory of the library's own that the other side writes: over iWARP it asks
 * by a read whether this one is there. */
static inline unsigned verbs_own_access(const struct verbs_nic *nic)
{
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (nic->fabric == VERBS_IWARP)
		access |= IBV_ACCESS_REMOTE_READ;
	return access;
}

#endif
