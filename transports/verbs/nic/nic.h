/* SPDX-License-Identifier: BSD-3-Clause */
/* One open port of a NIC, shared by the communicators of the process. */
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
	struct ibv_cq *siw_filler; /* see fill_siw_offset() in ports.c */
	bool cq_grows;             /* a completion queue can be resized */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	/* GIDs of the port, best first. Guarded by verbs_lock(). */
	struct verbs_gid gid[VERBS_GIDS];
	uint32_t gids;
	uint16_t pkey_index;
	struct sockaddr_in address; /* IPv4 address, if librdmacm is used */
	uint32_t max_inline; /* inline bytes of a request; 0: not known yet */
	/* Registrations; see registration.c. */
	pthread_mutex_t lock;
	struct verbs_mr *mrs;
	uint64_t freed_seen;
	/* number of registrations made so far */
	_Atomic uint64_t registrations;
	/* Written with verbs_lock() held; see events.c. */
	_Atomic bool changed; /* verbs_nic_refresh() is needed */
	/* clock_ms() when the link went down; 0: it is up */
	_Atomic uint64_t link_down_ms;
	const char *_Atomic fatal; /* why the NIC failed; NULL: it works */
	_Atomic bool removed;      /* the device is gone */
};

/* Returns the access flags of the library's own memory that peers write: inbox
 * and credits. Over iWARP a peer also reads it, to find out whether this rank
 * is alive. */
static inline unsigned verbs_own_access(const struct verbs_nic *nic)
{
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (nic->fabric == VERBS_IWARP)
		access |= IBV_ACCESS_REMOTE_READ;
	return access;
}

#endif
