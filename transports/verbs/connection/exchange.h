/* SPDX-License-Identifier: BSD-3-Clause */
/* How two ranks make a channel: requests, replies, and notices of queue pairs
 * that were stopped. The caller holds verbs_lock(), except for
 * verbs_connect_begin(). */
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

/* Begin to make a channel to a peer. *out becomes CHANNEL_READY or
 * CHANNEL_FAILED later, by the connection thread. */
dicomm_result_t verbs_connect_begin(struct tp_device *dev,
				    const struct verbs_address *to,
				    enum tp_class c,
				    struct verbs_channel **out);

/* Tell the peer that this side has stopped a queue pair, and which messages
 * have arrived. False: the peer has closed the channel. */
bool verbs_send_notice(struct verbs_channel *channel, uint32_t qp,
		       uint64_t received_to, uint64_t received_mask);

/* A request has arrived: make this side, and reply. False: close the
 * connection. */
bool verbs_serve_request(struct tp_device *dev, struct verbs_conn *c);
/* The TCP connection is established, or has failed. */
void verbs_tcp_connected(struct verbs_conn *c);
/* A reply has arrived. */
void verbs_reply_received(struct verbs_conn *c);
/* A notice has arrived. False: it is not authentic. */
bool verbs_notice_received(struct verbs_conn *c);
/* Store what a notice says, for the thread that uses the device. */
void verbs_store_notice(struct verbs_channel *channel,
			const struct verbs_connect_msg *msg);
/* The connection has ended; or its deadline has passed. */
void verbs_conn_ended(struct verbs_conn *c);
void verbs_conn_expired(struct verbs_conn *c);

#endif
