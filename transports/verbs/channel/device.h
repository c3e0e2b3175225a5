/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank has of RDMA: its device, a rail for each port that it uses, and
 * the tables of its channels. README.md shows how they work together.
 *
 * A rail is a port with this rank's queues. A channel has several queue pairs,
 * each between a rail here and a rail of the peer. Each message, and each read,
 * goes over one queue pair as a whole, so it is complete when that queue pair
 * reports it; the next one may take another. All credits of a channel go over
 * the same queue pair.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_DEVICE_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_DEVICE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/nic/nic.h"

/* completions that one poll takes from a queue */
#define VERBS_COMPLETIONS 16

/* receives that are posted at once */
#define VERBS_RECV_BATCH 32

struct rdma_cm_id;
struct tp_mem;
struct verbs_conn;
struct verbs_channel;
struct verbs_qp;
struct verbs_credit_words;

struct verbs_rail {
	struct verbs_nic *nic;
	struct ibv_comp_channel *comp_channel; /* events of cq */
	uint32_t unacknowledged;               /* events not acknowledged yet */
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: each queue pair has its own receives */
	uint32_t shared, shared_max; /* receives in the shared queue */
	int cqe;
	/* Entries that the queue pairs may use at a time. */
	uint32_t cqe_reserved;
	uint32_t batch_room; /* receives until a batch is complete */
	struct ibv_recv_wr batch[VERBS_RECV_BATCH];
	struct ibv_sge batch_sge[VERBS_RECV_BATCH];
	/* iWARP: the immediate of a message arrives here, by a SEND. */
	uint32_t *imm_words;
	struct ibv_mr *imm_words_mr;
	uint32_t imm_words_count, imm_words_max;
	/* Of the device's credit words and bounce buffers. */
	struct ibv_mr *words_mr, *pool_mr;
	/* The NIC connected to itself; NULL: not needed yet. */
	struct verbs_channel *loopback;
	uint32_t flushes; /* in flight */
	/* the connection thread's: connection/server.c */
	struct verbs_conn *events;
	struct rdma_cm_id *cm; /* also listens; NULL: librdmacm is not used */
};

/* Bounce buffers: a message too long to go inline is sent from one. */
struct verbs_pool {
	uint8_t *memory;
	uint32_t count, bytes; /* bytes of one */
	uint16_t *spare;
	uint32_t nspare;
	const struct verbs_qp **user; /* [buffer]; NULL: it is spare */
};

struct tp_device {
	struct tp_config config;
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t watched_ms;                 /* when watchdog.c looked last */
	struct ibv_wc wc[VERBS_COMPLETIONS]; /* of poll() */
	/* quick_polls: how many polls may look at the first completion queue
	 * only. Then credit_checks: how many polls may look for credits, too,
	 * before one does everything. Both are 0 if something rare is to be
	 * done; work that another thread has set is seen when they run out. */
	int quick_polls, credit_checks;
	_Atomic uint32_t reads; /* in flight */
	_Atomic bool failover;  /* failover.c has something to do */
	uint64_t max_read;      /* longest read, in bytes */
	uint32_t rails;
	struct verbs_rail rail[VERBS_RAILS];
	unsigned idle; /* polls in a row that found nothing */
	struct verbs_pool pool;
	/* [id], see channel.h. */
	struct verbs_channel *_Atomic *in, *_Atomic *out;
	uint32_t channels; /* length of both tables */
	/* [id]: credit words, written by peers; and one more, which nobody
	 * reads */
	struct verbs_credit_words *words;
	/* the channel out that was last checked for credits */
	struct verbs_channel *credit_cursor;
	/* Polls in a row that found something, until one checks the rest. */
	int busy;
	struct verbs_channel *credits_due;
	struct tp_peer *peers;
	/* Closed, but the kernel still connects them. */
	struct verbs_channel *closing;
	atomic_flag mems_busy; /* guards mems, for a few instructions */
	struct tp_mem *mems;

	/* the connection thread's: connection/server.c */
	struct tp_device *next;
	uint8_t nonce[VERBS_NONCE];
	char listen[VERBS_TEXT];
	struct verbs_conn *listener;
	bool served; /* counted by server.c */
	char host[40];
};

/* Let the next poll do everything. */
static inline void verbs_poll_all(struct tp_device *dev)
{
	dev->quick_polls = dev->credit_checks = 0;
}

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	struct verbs_channel *out[TP_CLASSES]; /* or &verbs_no_channel */
	struct verbs_channel *in[TP_CLASSES];  /* NULL: not connected */
	struct tp_peer *next;
};

#endif
