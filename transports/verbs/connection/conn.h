/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP connections between ranks: one for each channel. With the lock. */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_CONN_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/verbs/channel/address.h"

struct verbs_channel;
struct verbs_nic;
struct verbs_qp;

/* For a message to come, from the moment of the connection. */
#define VERBS_MSG_MS 10000

enum verbs_conn_stage {
	CONN_LISTENING,
	CONN_EVENTS,           /* no connection: the events of a NIC */
	CONN_AWAITING_REQUEST, /* a message is awaited */
	CONN_CONNECTING,       /* connecting, then sending a message */
	CONN_AWAITING_REPLY,   /* the answer is awaited */
	CONN_AWAITING_RDMA_CM, /* messages have gone both ways; cm.c connects */
	CONN_OPEN              /* notices, and its end */
};

struct verbs_conn {
	struct verbs_conn *next;
	uint64_t id;
	int fd;
	enum verbs_conn_stage stage;
	struct verbs_nic *nic;         /* of events */
	struct verbs_channel *channel; /* from CALLING, or OPEN on */
	uint64_t deadline_ms;          /* 0: none */
	struct verbs_connect_msg msg;  /* sent or received */
	size_t have;
	char from[VERBS_TEXT];
};

struct verbs_conn *verbs_conn_add(int fd, enum verbs_conn_stage stage,
				  uint32_t events);
void verbs_conn_watch(struct verbs_conn *c, uint32_t events);
void verbs_conn_drop(struct verbs_conn *c);
bool verbs_conn_write(struct verbs_conn *c,
		      const struct verbs_connect_msg *msg);
/* All of the process, and what its thread waits on. */
struct verbs_conns {
	struct verbs_conn *first; /* new ones come first */
	uint64_t last_id;         /* 0 is the event that stops the thread */
	unsigned unproven;        /* in CONN_AWAITING_REQUEST */
	int epoll_fd;             /* -1: there is no thread */
};
extern struct verbs_conns verbs_conns;

struct verbs_conn *verbs_conn_find(uint64_t id);
/* Not enough of a message yet: false. *ended: nothing more will come. */
bool verbs_conn_read(struct verbs_conn *c, bool *ended);
/* Does its device know the channel? If not, only its connection does. */
bool verbs_is_known(const struct verbs_channel *channel);
/* No news of it any more; the other side is told. */
void verbs_conn_forget(struct verbs_channel *channel);
/* The queue pair that waits for librdmacm to connect it; its channel takes
 * messages from then on. NULL: there is none. */
struct verbs_qp *verbs_conn_awaiting(const uint8_t challenge[VERBS_NONCE],
				     unsigned index);

#endif
