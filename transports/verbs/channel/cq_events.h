/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of a completion queue, for a rank that sleeps until a
 * completion arrives. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_CQ_EVENTS_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_CQ_EVENTS_H

#include "dicomm.h"

struct verbs_rail;

/* Open before the completion queue is created, and close after it is destroyed.
 * Acknowledge all events just before it is destroyed: ibv_destroy_cq() waits
 * for that. */
dicomm_result_t verbs_cq_events_open(struct verbs_rail *rail);
void verbs_cq_events_ack(struct verbs_rail *rail);
void verbs_cq_events_close(struct verbs_rail *rail);
/* Take one event from the completion channel. */
void verbs_cq_event_take(struct verbs_rail *rail);

#endif
