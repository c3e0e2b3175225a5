/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank has of a port: its queues. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_RAIL_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_RAIL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/device.h"

/* Of rail->nic, which goes with it. */
dicomm_result_t verbs_rail_open(struct tp_device *dev, struct verbs_rail *rail);
void verbs_rail_close(struct verbs_rail *rail);
/* Has its NIC gone, while another has not? It takes no memory any more, and
 * brings none. */
bool verbs_rail_is_removed(const struct tp_device *dev,
			   const struct verbs_rail *rail);
/* For messages: "mlx5_0:1,mlx5_1:1", as far as there is room. */
void verbs_rail_names(const struct tp_device *dev, char *text, size_t len);
/* Room in the completion queue for n more. */
dicomm_result_t verbs_rail_reserve(struct verbs_rail *rail, uint32_t n);
/* Receives for the messages of one more channel; of that queue pair, where none
 * are shared. */
dicomm_result_t verbs_rail_receives(struct verbs_rail *rail, struct ibv_qp *qp,
				    uint32_t n);
/* What has come with a message over iWARP, where receives are not alike: the
 * one that it took is the batch's next. */
uint32_t verbs_rail_take_imm(struct verbs_rail *rail, uint64_t id);
void verbs_rail_post_batch(struct verbs_rail *rail, struct ibv_qp *qp);

/* What has come with a message; then it is received. */
static inline uint32_t verbs_rail_imm(struct verbs_rail *rail,
				      const struct ibv_wc *wc)
{
	return __builtin_expect(rail->imm_words != NULL, 0)
		       ? verbs_rail_take_imm(rail, wc->wr_id)
		       : wc->imm_data;
}

/* Its receive is posted again when there is a batch of them: true. */
static inline bool verbs_rail_received(struct verbs_rail *rail)
{
	return __builtin_expect(--rail->batch_room == 0, 0);
}
/* A byte for what is read to no use. */
struct ibv_sge verbs_rail_scratch(const struct tp_device *dev,
				  const struct verbs_rail *rail);

#endif
