/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives without a tag, until their source is known.
 *
 * A receive from any source has no number, and so no place among the receives
 * from a peer, until a message is there that no earlier receive takes. Until
 * then, later receives have no number either, because the next message of their
 * peer may be for this one. All of them wait in one queue, in call order. When
 * the source is known, the receive becomes a point-to-point operation.
 */
#ifndef DICOMM_ENGINE_ANY_SOURCE_H
#define DICOMM_ENGINE_ANY_SOURCE_H

#include "src/core/operation.h"

extern const struct operation_kind any_source_kind;

#endif
