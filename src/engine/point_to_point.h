/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives without a tag between two ranks that know each other: a
 * plan of one step. Those to one peer run in call order, and so do those from
 * one peer.
 */
#ifndef DICOMM_ENGINE_POINT_TO_POINT_H
#define DICOMM_ENGINE_POINT_TO_POINT_H

#include "src/core/operation.h"

/* Of a send. A receive is of any_source_kind, which finds out whether it may
 * be of this kind yet. */
extern const struct operation_kind point_to_point_kind;

#endif
