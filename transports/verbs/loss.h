/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs that are lost. */
#ifndef DICOMM_TRANSPORTS_VERBS_LOSS_H
#define DICOMM_TRANSPORTS_VERBS_LOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"

struct ibv_wc;
struct tp_device;
struct verbs_card;
struct verbs_lane;
struct verbs_strand;

/* One line about a completion that failed. Either the strand is lost, and its
 * lane goes on without it; or that sets lane->why and text. */
void verbs_strand_broken(struct verbs_strand *s, const struct ibv_wc *wc,
			 const char *operation, uint64_t bytes);
/* The same without a completion. */
void verbs_strand_give_up(struct verbs_strand *s, dicomm_result_t why,
			  const char *what, const char *hint);
/* One that is good; NULL: none is. */
struct verbs_strand *verbs_strand_good(struct verbs_lane *lane);
/* A notice, with the lock. */
void verbs_loss_noticed(struct verbs_lane *lane, const struct verbs_card *card);
/* Go on without the strands that are lost. */
void verbs_loss_repair(struct tp_device *dev);
/* Is there anything left of that to be done? */
bool verbs_loss_pending(const struct verbs_lane *lane);

#endif
