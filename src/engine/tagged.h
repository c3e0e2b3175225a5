/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives with a tag other than 0, between host ranks.
 *
 * They have separate channels (TP_TAGGED). Each message there begins with a
 * head that has its kind. So messages of many operations may follow each other
 * in any order, and the receiver finds the operation of each:
 *
 *  - EAGER: a short message with its bytes. If no receive waits for it, it is
 *    unexpected, and the receiver keeps a copy until one does.
 *  - OFFER: announces a long message, whose bytes stay with the sender.
 *  - READY: the receiver has found a receive for an offer. Only then the bytes
 *    follow, as messages with the number of the offer, or as one reference.
 *  - TAKEN: has only the credit that every head contains: how many bytes of
 *    EAGER messages receives have taken so far.
 *
 * A sender may have at most TAGGED_LENT bytes of EAGER messages that are not
 * taken; it offers everything beyond. So the memory for unexpected messages is
 * bounded, and a receiver can take every message from a channel at once: no
 * message is stuck behind one for which there is no receive.
 *
 * The thread of the data path calls these functions.
 */
#ifndef DICOMM_ENGINE_TAGGED_H
#define DICOMM_ENGINE_TAGGED_H

#include "src/core/comm.h"
#include "src/core/operation.h"

/* Most bytes of unexpected messages from one rank. */
#define TAGGED_LENT (UINT64_C(1) << 20)

void tagged_free(struct dicomm_comm *comm);

#endif
