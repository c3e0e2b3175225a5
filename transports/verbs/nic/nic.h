/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of NICs, shared by the communicators of a process. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_NIC_H
#define DICOMM_TRANSPORTS_VERBS_NIC_NIC_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

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
	struct ibv_cq *siw_filler; /* siw */
	bool cq_grows;             /* a completion queue can */
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
	_Atomic bool changed; /* what verbs_nic_renew() looks at */
	_Atomic uint64_t
		link_down_ms;      /* since when it has no link; 0: it has */
	const char *_Atomic fatal; /* why it is of no use any more */
	_Atomic bool removed;      /* all of it, not just a queue */
};

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
