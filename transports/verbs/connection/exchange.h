/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is said on connections: calls, answers, and notices of queue pairs lost.
 * With the lock of connect.c, but for the first.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_EXCHANGE_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"

struct tp_device;
struct verbs_address;
struct verbs_conn;
struct verbs_connect_msg;
struct verbs_channel;

/* Begin to make a channel to a peer. */
dicomm_result_t verbs_connect_begin(struct tp_device *dev,
				    const struct verbs_address *to,
				    enum tp_class c,
				    struct verbs_channel **out);

/* Tell the other side that this one has stopped a queue pair, and which
 * messages have come; false: it has left. */
bool verbs_send_notice(struct verbs_channel *channel, uint32_t qp,
		       uint64_t received_to, uint64_t received_mask);

/* News from connect.c. A genuine call has come; false: the connection is of no
 * use. */
bool verbs_serve_request(struct tp_device *dev, struct verbs_conn *c);
/* The connection that calls is there, or is not. */
void verbs_tcp_connected(struct verbs_conn *c);
/* A message has come on it. */
void verbs_reply_received(struct verbs_conn *c);
/* The other side has stopped a queue pair; false: that is none of its words. */
bool verbs_notice_received(struct verbs_conn *c);
/* What the notice says, for the thread that uses the device. */
void verbs_store_notice(struct verbs_channel *channel,
			const struct verbs_connect_msg *msg);
/* Nothing more comes; or not in time. */
void verbs_conn_ended(struct verbs_conn *c);
void verbs_conn_expired(struct verbs_conn *c);

#endif
