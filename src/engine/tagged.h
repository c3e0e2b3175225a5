/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives with a tag other than 0, between host ranks.
 *
 * They have channels of their own (TP_TAGGED). Each message there begins with
 * a head that tells what it is, so messages of many operations may follow each
 * other in any order, and the receiver finds the operation of each:
 *
 * - EAGER: a short message with its bytes. If no receive waits for it, it is
 *   unexpected, and the receiver keeps a copy until one does.
 * - OFFER: a long message, which stays with the sender. READY: the receiver has
 *   found a receive for it. Only then the bytes follow, as messages that carry
 *   the number of the offer, or as one reference.
 * - TAKEN: nothing but the count that every head has, of the bytes of EAGER
 *   messages that receives have taken.
 *
 * A sender lends a receiver TAGGED_LENT bytes at most, less what was taken; it
 * offers what is more. So copies of unexpected messages are bounded, and a
 * receiver can take every message from a channel at once: none is stuck behind
 * one that nobody asked for.
 *
 * Threads: the data path of the communicator.
 */
#ifndef DICOMM_ENGINE_TAGGED_H
#define DICOMM_ENGINE_TAGGED_H

#include "src/core/comm.h"
#include "src/core/operation.h"

/* Bytes of unexpected messages from one rank, at most */
#define TAGGED_LENT (UINT64_C(1) << 20)
/* Bytes of an eager message, at most */
#define TAGGED_EAGER 4096

/* Begin the operation: a send, or a receive that may have a message already. */
dicomm_result_t tagged_post(struct operation *op);
enum schedule_result tagged_turn(struct operation *op, bool *progressed);
/* Forget an operation of a broken communicator. */
void tagged_drop(struct operation *op);
void tagged_free(struct dicomm_comm *comm);

#endif
