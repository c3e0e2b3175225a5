/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA through libibverbs.
 *
 * A channel carries the messages of one class from one rank to another. The
 * sender writes line and data into the receiver's inbox (RDMA WRITE WITH
 * IMMEDIATE; the receiver's poll() then sets line->seq); large messages are
 * read by the receiver (RDMA READ) from where they lie. Credits are written
 * into words of the sender's memory.
 *
 * A rank has a rail for each port that it uses. A channel is made of queue
 * pairs, reliable queue pairs between a rail here and one there, which nothing
 * else uses. Each message, and each read, goes whole over one queue pair, so
 * that its data has landed when that queue pair says that it has; the next may
 * take another. Credits all go over the same one, for what lands late by
 * another would undo them (credits.c).
 *
 * Channels are made at the first message: the sender calls the receiver by TCP,
 * a thread of the library answers (connect.c), and the connection stays open so
 * that each side learns at once when the other has gone. Some queue pairs are
 * then connected by librdmacm (cm.c).
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

/* That a poll takes of a queue. */
#define VERBS_COMPLETIONS 16

/* Receives that are posted in one go. */
#define VERBS_RECV_BATCH 32

struct rdma_cm_id;
struct tp_mem;
struct verbs_conn;
struct verbs_channel;
struct verbs_qp;
struct verbs_credit_words;

struct verbs_rail {
	struct verbs_nic *nic;
	struct ibv_comp_channel *comp_channel; /* of the queue's events */
	uint32_t unacknowledged;               /* events */
	struct ibv_cq *cq;
	struct ibv_srq *srq;         /* or NULL: each queue pair has its own */
	uint32_t shared, shared_max; /* receives there */
	int cqe;
	uint32_t cqe_reserved; /* what queue pairs may put there at a time */
	uint32_t batch_room;   /* for receives to be posted again */
	struct ibv_recv_wr batch[VERBS_RECV_BATCH];
	struct ibv_sge batch_sge[VERBS_RECV_BATCH];
	uint32_t *imm_words; /* iWARP: bodies of the SENDs */
	struct ibv_mr *imm_words_mr;
	uint32_t imm_words_count, imm_words_max;
	struct ibv_mr *words_mr, *pool_mr; /* of the device's memory */
	struct verbs_channel *loopback;    /* of the NIC to itself; or NULL */
	uint32_t flushes;                  /* under way */
	/* connect.c */
	struct verbs_conn *events;
	struct rdma_cm_id *cm; /* listens, too; or NULL */
};

/* Messages too long to go inline are sent from here. */
struct verbs_pool {
	uint8_t *memory;
	uint32_t count, bytes; /* of one */
	uint16_t *spare;
	uint32_t nspare;
	const struct verbs_qp **user; /* [buffer]; NULL: spare */
};

struct tp_device {
	struct tp_config config;
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t watched_ms;                 /* when watch.c did */
	struct ibv_wc wc[VERBS_COMPLETIONS]; /* of poll() */
	/* Polls that may look at the first queue alone; and, before one that
	 * does everything, how often they may look for credits only. None
	 * where there is something rare to do; of what another thread has,
	 * they hear that late. */
	int quick_polls, credit_checks;
	_Atomic uint32_t reads; /* in flight */
	_Atomic bool failover;  /* there is work for loss.c */
	uint64_t max_read;      /* bytes of one */
	uint32_t rails;
	struct verbs_rail rail[VERBS_RAILS];
	unsigned idle; /* polls that found nothing */
	struct verbs_pool pool;
	struct verbs_channel *_Atomic *in, *_Atomic *out; /* [id] */
	uint32_t channels;                                /* length of both */
	/* [id]: credits, written by receivers; and one that nobody reads. */
	struct verbs_credit_words *words;
	/* The one whose credits were looked for last, of those to send on. */
	struct verbs_channel *credit_cursor;
	int busy; /* polls that find something, to one that looks around */
	struct verbs_channel *credits_due;
	struct tp_peer *peers;
	struct verbs_channel
		*closing;      /* closed, but for what the kernel holds up */
	atomic_flag mems_busy; /* guards holds, for a few instructions */
	struct tp_mem *mems;

	/* connect.c */
	struct tp_device *next;
	uint8_t nonce[VERBS_NONCE];
	char listen[VERBS_TEXT];
	struct verbs_conn *listener;
	bool served; /* by the thread that connects */
	char host[40];
};

/* The next poll leaves nothing out. */
static inline void verbs_poll_all(struct tp_device *dev)
{
	dev->quick_polls = dev->credit_checks = 0;
}

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	struct verbs_channel *out[TP_CLASSES]; /* &verbs_no_lane: not yet */
	struct verbs_channel *in[TP_CLASSES];  /* NULL: not yet */
	struct tp_peer *next;
};

#endif
