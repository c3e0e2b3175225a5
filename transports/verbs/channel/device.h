/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RDMA state of a rank: its device, a rail for each port that it uses, and
 * the tables of its channels. README.md shows how they work together.
 *
 * A rail is a port with this rank's queues. A channel has several queue pairs,
 * each between a rail here and a rail of the peer. A message, and a read, goes
 * over one queue pair as a whole, so it is complete when that queue pair
 * reports it. The next one may take another queue pair. All credits of a
 * channel go over the same queue pair.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_DEVICE_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_DEVICE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/fork.h"
#include "transports/transport.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/nic/nic.h"

/* Most completions that one poll takes from a queue. */
#define VERBS_COMPLETIONS 16

/* Receives that are posted together. */
#define VERBS_RECV_BATCH 32

struct rdma_cm_id;
struct tp_mem;
struct verbs_conn;
struct verbs_channel;
struct verbs_qp;
struct verbs_credit_words;

struct verbs_rail {
	struct verbs_nic *nic;
	struct ibv_comp_channel *comp_channel; /* delivers events of cq */
	/* events taken from it and not acknowledged yet */
	uint32_t unacknowledged;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: each queue pair has its own receives */
	/* receives in the shared queue, and most that it holds */
	uint32_t shared, shared_max;
	int cqe;
	/* Entries of cq that the queue pairs may use at a time. */
	uint32_t cqe_reserved;
	uint32_t batch_room; /* receives until a batch is complete */
	struct ibv_recv_wr batch[VERBS_RECV_BATCH];
	struct ibv_sge batch_sge[VERBS_RECV_BATCH];
	/* iWARP: the immediates of messages arrive here, by SENDs. */
	uint32_t *imm_words;
	struct ibv_mr *imm_words_mr;
	uint32_t imm_words_count, imm_words_max;
	/* Registrations of the device's credit words and bounce buffers. */
	struct ibv_mr *words_mr, *pool_mr;
	/* A queue pair from the NIC to itself, for flushes. NULL: not
	 * needed yet. */
	struct verbs_channel *loopback;
	uint32_t flushes; /* flushes in flight */
	/* Used by the connection thread; see connection/server.c. */
	struct verbs_conn *events;
	/* listens for peers; NULL: librdmacm is not used */
	struct rdma_cm_id *cm;
};

/* Bounce buffers. A message that is too long to go inline is sent from one. */
struct verbs_pool {
	uint8_t *memory;
	uint32_t count, bytes; /* bytes of one buffer */
	uint16_t *spare;
	uint32_t nspare;
	/* [buffer]: queue pair that sends from it; NULL: it is spare */
	const struct verbs_qp **user;
};

struct tp_device {
	struct tp_config config;
	/* Most data bytes of an eager message; bytes of a slot of an inbox. */
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t watched_ms; /* when watchdog.c looked last */
	/* completions of the current poll() */
	struct ibv_wc wc[VERBS_COMPLETIONS];
	/* While quick_polls > 0, a poll looks only at the first completion
	 * queue. While credit_checks > 0, a poll whose quick_polls are used up
	 * looks for credits, too. When both are used up, a poll does
	 * everything. Both are 0 if something rare has to be done. What another
	 * thread has set is seen when they are used up. */
	int quick_polls, credit_checks;
	_Atomic uint32_t reads; /* in flight */
	_Atomic bool failover;  /* failover.c has something to do */
	uint64_t max_read;      /* longest read, in bytes */
	uint32_t rails;
	struct verbs_rail rail[VERBS_RAILS];
	unsigned idle; /* consecutive polls that found nothing */
	struct verbs_pool pool;
	/* [id of the channel]; see channel.h */
	struct verbs_channel *_Atomic *in, *_Atomic *out;
	uint32_t channels; /* number of entries of both tables */
	/* [id]: credit words, which peers write, and one more element, which
	 * nobody reads. */
	struct verbs_credit_words *words;
	/* The sending channel that was last checked for credits. */
	struct verbs_channel *credit_cursor;
	/* How many more consecutive polls may find something before one does
	 * everything else, too. */
	int busy;
	struct verbs_channel *credits_due;
	struct tp_peer *peers;
	/* Channels that are closed, but that the kernel still connects. */
	struct verbs_channel *closing;
	atomic_flag mems_busy; /* guards mems, for a few instructions */
	struct tp_mem *mems;

	/* Used by the connection thread; see connection/server.c. */
	struct tp_device *next;
	uint8_t nonce[VERBS_NONCE];
	char listen[VERBS_TEXT];
	struct verbs_conn *listener;
	bool served; /* counted by server.c, in `served` there */
	char host[40];
};

/* One lock for the process, for the list of devices, and for making and closing
 * channels. */
static inline void verbs_lock(void)
{
	fork_lock(FORK_VERBS);
}

static inline void verbs_unlock(void)
{
	fork_unlock(FORK_VERBS);
}

/* Make the next poll do everything. */
static inline void verbs_poll_all(struct tp_device *dev)
{
	dev->quick_polls = dev->credit_checks = 0;
}

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	/* &verbs_no_channel: not connected */
	struct verbs_channel *out[TP_CLASSES];
	struct verbs_channel *in[TP_CLASSES]; /* NULL: not connected */
	struct tp_peer *next;
};

#endif
