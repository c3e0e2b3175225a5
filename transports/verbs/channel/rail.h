/* SPDX-License-Identifier: BSD-3-Clause */
/* A rail: the queues of a rank on one port. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_RAIL_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_RAIL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/device.h"

/* Open the queues on rail->nic. verbs_rail_close() also puts the NIC. */
dicomm_result_t verbs_rail_open(struct tp_device *dev, struct verbs_rail *rail);
void verbs_rail_close(struct verbs_rail *rail);
/* Returns true if the rail's NIC was removed, and the rank has another one.
 * Then it registers no memory, and no traffic goes by it. */
bool verbs_rail_is_removed(const struct tp_device *dev,
			   const struct verbs_rail *rail);
/* Write "mlx5_0:1,mlx5_1:1" for log messages, as far as it fits. */
void verbs_rail_names(const struct tp_device *dev, char *text, size_t len);
/* Reserve n more entries of the completion queue. It is resized if needed. */
dicomm_result_t verbs_rail_reserve(struct verbs_rail *rail, uint32_t n);
/* Post n receives: to the shared queue if the rail has one, otherwise to that
 * queue pair. */
dicomm_result_t verbs_rail_receives(struct verbs_rail *rail, struct ibv_qp *qp,
				    uint32_t n);
/* iWARP: returns the immediate of a message. Its receive becomes the next one
 * of the batch. */
uint32_t verbs_rail_take_imm(struct verbs_rail *rail, uint64_t id);
void verbs_rail_post_batch(struct verbs_rail *rail, struct ibv_qp *qp);

/* Returns the immediate of a message. */
static inline uint32_t verbs_rail_imm(struct verbs_rail *rail,
				      const struct ibv_wc *wc)
{
	return __builtin_expect(rail->imm_words != NULL, 0)
		       ? verbs_rail_take_imm(rail, wc->wr_id)
		       : wc->imm_data;
}

/* Count a receive that a message has used. Returns true if a batch is complete;
 * then the caller posts it. */
static inline bool verbs_rail_received(struct verbs_rail *rail)
{
	return __builtin_expect(--rail->batch_room == 0, 0);
}

/* A rank that sleeps takes events of the completion queue. All are acknowledged
 * before the queue is destroyed: ibv_destroy_cq() waits for that. */
void verbs_rail_take_event(struct verbs_rail *rail);
void verbs_rail_ack_events(struct verbs_rail *rail);
/* Returns a byte of memory for reads whose data nobody needs. */
struct ibv_sge verbs_rail_scratch(const struct tp_device *dev,
				  const struct verbs_rail *rail);

#endif
