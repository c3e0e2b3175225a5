/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways in which the cells of an overlay get to the ranks that want them.
 *
 * In each way, a piece is read on one rank for each term, goes to an owner,
 * which adds up, and from there to others that want it. Ways differ in who owns
 * what: everybody for himself (direct), each a share (scatter), or one for all
 * (leader). Everything here follows from the description and the links, so all
 * ranks find the same.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_WAYS_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_WAYS_H

#include "collectives/redistribute/overlay.h"
#include "src/base/links.h"

#define WAYS 4 /* entries of an array by dicomm_way_t */

struct ways_input {
	const dicomm_tensor_t *tensors; /* that boxes_check() has accepted */
	size_t n;
	int ranks;
	const struct links *links; /* NULL: one node */
	bool unwanted;             /* elements that no target wants are fine */
};

struct ways_delivery {
	dicomm_way_t way;
	size_t tensor;
	const struct overlay *overlay;
	int64_t lo[DICOMM_AXES], hi[DICOMM_AXES];
	/* Read where: [terms] */
	const struct overlay_holder *from;
	int terms;
	bool adds; /* there are several terms, or a weight */
	struct overlay_holder owner;
	const struct overlay_holder *others;
	uint32_t nothers;
	/* Second boxes of one rank with the same elements: copied there from
	 * the first one of that rank, on arrival */
	const struct overlay_holder *more;
	uint32_t nmore;
};

struct ways_fns {
	dicomm_result_t (*deliver)(void *ctx, const struct ways_delivery *d);
	/* A rank wants what it holds: from source to target. */
	dicomm_result_t (*keep)(void *ctx, const struct ways_delivery *d);
};

/* All deliveries of some ways (bit w: way w), in an order that is the same on
 * all ranks, and does not depend on the other ways. check: first say whether
 * layouts fit. ERR_INVALID_ARGUMENT, ERR_NO_MEMORY. */
dicomm_result_t ways_walk(const struct ways_input *in, unsigned ways,
			  bool check, const struct ways_fns *fns, void *ctx);

#endif
