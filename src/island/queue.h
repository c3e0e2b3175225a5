/* SPDX-License-Identifier: BSD-3-Clause */
/* What the vendor's library does of a collective inside islands. */
#ifndef DICOMM_ISLAND_QUEUE_H
#define DICOMM_ISLAND_QUEUE_H

#include "src/island/job.h"

island_queue_fn island_queue_reduce_scatter;
island_queue_fn island_queue_allgather;
island_queue_fn island_queue_broadcast;
/* From the owners in the root's island to the root */
island_queue_fn island_queue_to_root;
/* Of the blocks of a reduce-scatter, and of an all-gather */
island_queue_fn island_queue_block_sums;
island_queue_fn island_queue_blocks;

#endif
