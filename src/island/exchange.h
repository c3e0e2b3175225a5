/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all, with one count or one for each rank. */
#ifndef DICOMM_ISLAND_EXCHANGE_H
#define DICOMM_ISLAND_EXCHANGE_H

#include "src/island/job.h"

/* A side of it: the blocks that are sent, or those that are received */
struct exchange_side {
	size_t *counts, *displs; /* in bytes both; [ranks] */
	size_t longest;          /* that goes by the vendor's library */
};

struct exchange {
	struct job job;     /* first: queue functions get it */
	struct item others; /* the call for blocks that go by this library */
	size_t *inside;     /* the memory of both sides */
	struct exchange_side out, in;
	bool in_place;
	size_t from, most; /* where the part of each block begins; its length */
	struct island_part *part;
};

/* Copies the arrays of counts of the call. */
dicomm_result_t island_exchange_make(const struct job *j,
				     const struct call *call,
				     struct exchange **out);
void island_exchange_free(struct exchange *x);

/* Of the vendor's library there is one group of sends in each turn, and after
 * it perhaps one of copies: what they queue, or NULL */
size_t island_exchange_turns(const struct exchange *x);
island_queue_fn *island_exchange_send(struct exchange *x, size_t turn);
island_queue_fn *island_exchange_copy(struct exchange *x, size_t turn);

/* Begins what goes by this library, and waits for its end. The first waits
 * itself, as group_call() does, if island_exchange_waits(). */
bool island_exchange_waits(const struct exchange *x);
dicomm_result_t island_exchange_begin(struct exchange *x);
dicomm_result_t island_exchange_end(struct exchange *x);

#endif
