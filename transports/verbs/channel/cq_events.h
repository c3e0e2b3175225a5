/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of a completion queue, for a rank that sleeps until one comes. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_CQ_EVENTS_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_CQ_EVENTS_H

#include "dicomm.h"

struct verbs_rail;

/* Before its completion queue, and after it. Acknowledge just before that is
 * destroyed, which waits until all events are. */
dicomm_result_t verbs_cq_events_open(struct verbs_rail *rail);
void verbs_cq_events_ack(struct verbs_rail *rail);
void verbs_cq_events_close(struct verbs_rail *rail);
/* One has come. */
void verbs_cq_event_take(struct verbs_rail *rail);

#endif
