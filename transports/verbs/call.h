/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is said on connections: calls, answers, and notices of strands lost.
 * With the lock of connect.c, but for the first.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_CALL_H
#define DICOMM_TRANSPORTS_VERBS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "transports/transport.h"

struct tp_device;
struct verbs_address;
struct verbs_conn;
struct verbs_lane;
struct verbs_strand;

/* Begin to make a lane to a peer. */
dicomm_result_t verbs_call_begin(struct tp_device *dev,
				 const struct verbs_address *to,
				 enum tp_class c, struct verbs_lane **out);

/* Tell the other side that this one has stopped a strand, and which messages
 * have come; false: it has left. */
bool verbs_call_tell(struct verbs_lane *lane, uint32_t strand, uint64_t come_to,
		     uint64_t come_mask);

/* News from cm.c. */
void verbs_call_joined(struct verbs_strand *s);
void verbs_call_failed(struct verbs_strand *s, const char *what,
		       const char *why);

/* News from connect.c. A genuine call has come; false: the connection is of no
 * use. */
bool verbs_call_answer(struct tp_device *dev, struct verbs_conn *c);
/* The connection that calls is there, or is not. */
void verbs_call_connected(struct verbs_conn *c);
/* A card has come on it. */
void verbs_call_answered(struct verbs_conn *c);
/* The other side has stopped a strand; false: that is none of its words. */
bool verbs_call_notice(struct verbs_conn *c);
/* Nothing more comes; or not in time. */
void verbs_call_ended(struct verbs_conn *c);
void verbs_call_expired(struct verbs_conn *c);

#endif
