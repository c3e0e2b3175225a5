/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP connections between ranks, one for each channel. The caller
 * holds verbs_lock(). */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_CONN_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/strangers.h"
#include "transports/verbs/channel/address.h"

struct verbs_channel;
struct verbs_nic;
struct verbs_qp;

/* How long a request, or a connection by librdmacm, may take. */
#define VERBS_MSG_MS 10000

/*
 * The states of a descriptor that the connection thread watches. The rank that
 * sends messages connects: CONNECTING, AWAITING_REPLY, OPEN. The one that
 * receives them: AWAITING_REQUEST, OPEN. Both pass AWAITING_RDMA_CM where
 * librdmacm connects the queue pairs. What a put() returns meanwhile,
 * enum verbs_channel_state says.
 */
enum verbs_conn_stage {
	/* The listener of a rank; without a descriptor it pauses. */
	CONN_LISTENING,
	/* No connection, but the asynchronous events of a NIC. */
	CONN_EVENTS,
	/* The listener has accepted it; it belongs to no channel. Left for
	 * CONN_OPEN when a right request has come, the inbox and the queue
	 * pairs are made, and a reply is sent. It is closed at a request that
	 * proves nothing or is refused, after 10 s, and when there are too many
	 * of its kind. */
	CONN_AWAITING_REQUEST,
	/* connect_out() has begun to connect; no deadline, since a sender waits
	 * as for a message. Left for CONN_AWAITING_REPLY when the kernel has
	 * connected and the request is sent; else the channel fails. */
	CONN_CONNECTING,
	/* Left for CONN_OPEN when the right reply has come, and the queue pairs
	 * are connected to those of the peer. At a refusal, a wrong reply or an
	 * end, the channel fails. */
	CONN_AWAITING_REPLY,
	/* Request and reply are exchanged; librdmacm connects. Left for
	 * CONN_OPEN when it has connected the last queue pair. If it cannot, or
	 * not within 10 s, the channel fails. */
	CONN_AWAITING_RDMA_CM,
	/* The channel is ready. Notices of failed queue pairs come and go. Its
	 * end tells that the peer has closed the channel. */
	CONN_OPEN
};

struct verbs_conn {
	struct verbs_conn *next;
	struct stranger stranger;
	uint64_t id;
	int fd;
	enum verbs_conn_stage stage;
	struct verbs_nic *nic; /* CONN_EVENTS: the NIC */
	/* Set from CONN_CONNECTING on, or on the receiving side from
	 * CONN_OPEN on. */
	struct verbs_channel *channel;
	/* clock_ms() at which it is given up; 0: never */
	uint64_t deadline_ms;
	/* the message to send, or the one that is being received */
	struct verbs_connect_msg msg;
	size_t have;           /* bytes of it that have arrived */
	char from[VERBS_TEXT]; /* "HOST:PORT" of the peer, for log messages */
};

struct verbs_conn *verbs_conn_add(int fd, enum verbs_conn_stage stage,
				  uint32_t events);
void verbs_conn_watch(struct verbs_conn *c, uint32_t events);
void verbs_conn_drop(struct verbs_conn *c);
bool verbs_conn_write(struct verbs_conn *c,
		      const struct verbs_connect_msg *msg);
/* All connections of the process, and the epoll set of their thread. */
struct verbs_conns {
	struct verbs_conn *first; /* newest first */
	/* id 0 belongs to the event that stops the thread */
	uint64_t last_id;
	struct strangers unproved; /* in CONN_AWAITING_REQUEST */
	int epoll_fd;              /* -1: the thread is not running */
};
extern struct verbs_conns verbs_conns;

struct verbs_conn *verbs_conn_find(uint64_t id);
/* Read more of a message. Returns true if it is complete. *ended is set if the
 * connection has ended. */
bool verbs_conn_read(struct verbs_conn *c, bool *ended);
/* Returns true if the device knows the channel. One that it does not know is
 * closed together with its connection. */
bool verbs_channel_is_known(const struct verbs_channel *channel);
/* Close the connection of a channel. The peer takes that as the end of
 * the channel. */
void verbs_conn_forget(struct verbs_channel *channel);
/* Find the queue pair of that channel that waits for librdmacm to connect it.
 * From now on the device knows the channel, so that it can receive messages.
 * Returns NULL if no such queue pair waits. */
struct verbs_qp *verbs_conn_awaiting(const uint8_t challenge[VERBS_NONCE],
				     unsigned index);

#endif
