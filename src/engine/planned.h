/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations with a plan, which a schedule runs slice by slice: the collectives
 * and the reductions of one rank. All of a communicator run in call order.
 */
#ifndef DICOMM_ENGINE_PLANNED_H
#define DICOMM_ENGINE_PLANNED_H

#include "src/core/operation.h"

/* The functions of planned_kind, for other kinds that have a plan */
dicomm_result_t planned_post(struct operation *op);
enum schedule_result planned_turn(struct operation *op, bool *progressed);
/* The peer of the first message that is not finished */
void planned_awaits(const struct operation *op, struct wait_for *f);

#endif
