/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA through libibverbs.
 *
 * A lane carries the messages of one class from one rank to another. The sender
 * writes line and data into the receiver's inbox (RDMA WRITE WITH IMMEDIATE;
 * the receiver's poll() then sets line->seq); large messages are read by the
 * receiver (RDMA READ) from where they lie. Credits are written into words of
 * the sender's memory.
 *
 * A rank has a rail for each port that it uses. A lane is made of strands,
 * reliable queue pairs between a rail here and one there, which nothing else
 * uses. Each message, and each read, goes whole over one strand, so that its
 * data has landed when that strand says that it has; the next may take another.
 * Credits all go over the same one, for what lands late by another would undo
 * them (credits.c).
 *
 * Lanes are made at the first message: the sender calls the receiver by TCP,
 * a thread of the library answers (connect.c), and the connection stays open so
 * that each side learns at once when the other has gone. Some queue pairs are
 * then connected by librdmacm (cm.c).
 */
#ifndef DICOMM_TRANSPORTS_VERBS_VERBS_H
#define DICOMM_TRANSPORTS_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/verbs/address.h"
#include "transports/verbs/nic.h"
#include "transports/verbs/rail.h"

/* That a poll takes of a queue. */
#define VERBS_COMPLETIONS 16

struct tp_hold;
struct verbs_conn;
struct verbs_lane;
struct verbs_strand;
struct verbs_words;

/* Messages too long to go inline are sent from here. */
struct verbs_pool {
	uint8_t *memory;
	uint32_t count, bytes; /* of one */
	uint16_t *spare;
	uint32_t nspare;
	const struct verbs_strand **user; /* [buffer]; NULL: spare */
};

struct tp_device {
	struct tp_config config;
	uint32_t eager_bytes, stride;
	_Atomic bool aborted;
	uint64_t looked_ms;                  /* when watch.c did */
	struct ibv_wc wc[VERBS_COMPLETIONS]; /* of poll() */
	/* Polls that may look at the first queue alone; and, before one that
	 * does everything, how often they may look for credits only. None
	 * where there is something rare to do; of what another thread has,
	 * they hear that late. */
	int plain, looks;
	_Atomic uint32_t reads; /* in flight */
	_Atomic bool repair;    /* there is work for loss.c */
	uint64_t max_read;      /* bytes of one */
	uint32_t rails;
	struct verbs_rail rail[VERBS_RAILS];
	unsigned idle; /* polls that found nothing */
	struct verbs_pool pool;
	struct verbs_lane *_Atomic *in, *_Atomic *out; /* [id] */
	uint32_t lanes;                                /* length of both */
	/* [id]: credits, written by receivers; and one that nobody reads. */
	struct verbs_words *words;
	/* The one whose credits were looked for last, of those to send on. */
	struct verbs_lane *looked_at;
	int busy; /* polls that find something, to one that looks around */
	struct verbs_lane *untold;
	struct tp_peer *peers;
	struct verbs_lane *late; /* closed, but for what the kernel holds up */
	atomic_flag holding;     /* guards holds, for a few instructions */
	struct tp_hold *holds;

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
	dev->plain = dev->looks = 0;
}

struct tp_peer {
	struct tp_device *dev;
	int rank;
	struct verbs_address address;
	struct verbs_lane *out[TP_CLASSES]; /* &verbs_no_lane: not yet */
	struct verbs_lane *in[TP_CLASSES];  /* NULL: not yet */
	struct tp_peer *next;
};

#endif
