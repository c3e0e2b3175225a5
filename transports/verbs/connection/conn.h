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

enum verbs_conn_stage {
	CONN_LISTENING,
	CONN_EVENTS, /* no connection, but the asynchronous events of a NIC */
	/* The peer has connected; its request has not arrived completely. */
	CONN_AWAITING_REQUEST,
	CONN_CONNECTING, /* connecting to the peer, then sending the request */
	CONN_AWAITING_REPLY, /* the reply has not arrived */
	/* Request and reply are exchanged; librdmacm connects. */
	CONN_AWAITING_RDMA_CM,
	CONN_OPEN /* the channel is ready; notices may arrive */
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
