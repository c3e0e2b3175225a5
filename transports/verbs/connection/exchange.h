/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a channel between two ranks: requests, replies, and notices of
 * queue pairs that were stopped. The caller holds verbs_lock(), except
 * for verbs_connect_begin(). */
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

/* Begin to make a channel to a peer. The connection thread later sets *out to
 * CHANNEL_READY or CHANNEL_FAILED. */
dicomm_result_t verbs_connect_begin(struct tp_device *dev,
				    const struct verbs_address *to,
				    enum tp_class c,
				    struct verbs_channel **out);

/* Send a notice to the peer: this side has stopped a queue pair, and which
 * messages have arrived. Returns false if the peer has closed the channel. */
bool verbs_send_notice(struct verbs_channel *channel, uint32_t qp,
		       uint64_t received_to, uint64_t received_mask);

/* Serve a request that has arrived: create this side of the channel, and reply.
 * Returns false if the connection has to be closed. */
bool verbs_serve_request(struct tp_device *dev, struct verbs_conn *c);
/* The TCP connection is established, or has failed: send the request, or fail
 * the channel. */
void verbs_tcp_connected(struct verbs_conn *c);
/* Handle a reply that has arrived. */
void verbs_reply_received(struct verbs_conn *c);
/* Handle a notice that has arrived. Returns false if it is not authentic. */
bool verbs_notice_received(struct verbs_conn *c);
/* Store the content of a notice for the thread that uses the device. */
void verbs_store_notice(struct verbs_channel *channel,
			const struct verbs_connect_msg *msg);
/* The connection has ended, or its deadline has passed. */
void verbs_conn_ended(struct verbs_conn *c);
void verbs_conn_expired(struct verbs_conn *c);

#endif
