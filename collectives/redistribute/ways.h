/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ways in which the cells of an overlay get to the ranks that want them.
 *
 * In each way, one rank reads the piece for each term and sends it to an owner.
 * The owner adds up the terms and passes the result on to other ranks that want
 * it. The owner of a sum need not want the result itself. Ways differ in the
 * owners: each rank owns what it wants (direct), each rank owns a share
 * (scatter), or one rank owns everything (leader). All of this follows from the
 * description and the links, so all ranks find the same.
 */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_WAYS_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_WAYS_H

#include "collectives/redistribute/overlay.h"
#include "src/base/links.h"

#define WAYS 4 /* for arrays that are indexed by dicomm_way_t */

struct ways_input {
	const dicomm_tensor_t *tensors; /* check_tensor() has accepted them */
	size_t n;
	int ranks;
	const struct links *links; /* NULL: all ranks are on one node */
	bool unwanted;             /* allow elements that no target wants */
	uint64_t staging;          /* bytes that a rank can move in one round */
};

struct ways_delivery {
	dicomm_way_t way;
	size_t tensor;
	const struct overlay *overlay;
	int64_t lo[DICOMM_AXES], hi[DICOMM_AXES];
	/* [terms]: the rank and box from which each term is read. */
	const struct overlay_holder *from;
	int terms;
	bool adds; /* there are several terms, or a weight */
	/* its box may be OWNERS_NO_BOX if it is the owner of a sum */
	struct overlay_holder owner;
	const struct overlay_holder *others;
	uint32_t nothers;
	/* Further boxes of a rank with the same elements. When the piece has
	 * arrived in the first box of that rank, it is copied there. */
	const struct overlay_holder *more;
	uint32_t nmore;
};

struct ways_fns {
	dicomm_result_t (*deliver)(void *ctx, const struct ways_delivery *d);
	/* Called for a rank that wants elements that it holds itself, to copy
	 * them from source to target. */
	dicomm_result_t (*keep)(void *ctx, const struct ways_delivery *d);
};

/* Reports all deliveries of some ways (bit w: way w), in the same order on all
 * ranks; the order of one way does not depend on the others. With `check`,
 * first checks that the layouts fit each other. Returns
 * DICOMM_ERR_INVALID_ARGUMENT or DICOMM_ERR_NO_MEMORY on failure. */
dicomm_result_t ways_walk(const struct ways_input *in, unsigned ways,
			  bool check, const struct ways_fns *fns, void *ctx);

#endif
