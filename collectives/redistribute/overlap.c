/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds two elements in one place, by a search that divides out what the
 * smaller strides cannot make. */
#include "collectives/redistribute/overlap.h"

#include <stdbool.h>

#include "collectives/redistribute/boxes.h"

#define TERMS (2 * DICOMM_AXES)

/* Is there an x[i] in 0 .. most for each term, such that the sum of stride *
 * x[i] is the wanted one? Terms are sorted, the largest stride first. */
struct equation {
	struct {
		uint64_t stride, most;
	} term[TERMS];
	int n;
	/* Of the terms from i on: the largest sum, and what divides all. */
	uint64_t reach[TERMS + 1], divisor[TERMS + 1];
	long *steps;
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Returns x such that a * x % n is 1; a and n have no divisor in common. */
static uint64_t inverse(uint64_t a, uint64_t n)
{
	__int128 x = 0, next = 1, r = n, s = a % n;

	while (s) {
		__int128 q = r / s, was = x;

		x = next;
		next = was - q * next;
		was = r;
		r = s;
		s = was - q * s;
	}
	return (uint64_t)(x < 0 ? x + n : x);
}

static void add_term(struct equation *e, uint64_t stride, uint64_t most)
{
	int at = e->n;

	for (int i = 0; i < e->n; i++)
		if (e->term[i].stride == stride) {
			e->term[i].most += most;
			return;
		}
	if (!stride || !most)
		return;
	for (; at && e->term[at - 1].stride < stride; at--)
		e->term[at] = e->term[at - 1];
	e->term[at].stride = stride;
	e->term[at].most = most;
	e->n++;
}

static bool search(struct equation *e, int i, uint64_t wanted)
{
	uint64_t stride = e->term[i].stride, least = 0, most = e->term[i].most;
	uint64_t divisor = e->divisor[i], step, x;

	if (!wanted)
		return true;
	if (wanted > e->reach[i] || wanted % divisor)
		return false;
	if (i + 1 == e->n)
		return true; /* divisor is the stride */
	if (wanted > e->reach[i + 1])
		least = (wanted - e->reach[i + 1] - 1) / stride + 1;
	if (most > wanted / stride)
		most = wanted / stride;
	/* The smaller strides make up for the rest only if it is a multiple of
	 * their divisor, which each step-th x makes it. */
	step = e->divisor[i + 1] / divisor;
	x = (uint64_t)((unsigned __int128)(wanted / divisor % step) *
		       inverse(stride / divisor, step) % step);
	if (least > x)
		x += ((least - x - 1) / step + 1) * step;
	for (; x <= most; x += step) {
		if ((*e->steps)-- <= 0)
			return false;
		if (search(e, i + 1, wanted - x * stride))
			return true;
	}
	return false;
}

static enum overlap solve(struct equation *e, uint64_t wanted)
{
	bool found;

	e->reach[e->n] = e->divisor[e->n] = 0;
	for (int i = e->n - 1; i >= 0; i--) {
		e->reach[i] =
			e->reach[i + 1] + e->term[i].stride * e->term[i].most;
		e->divisor[i] =
			common_divisor(e->term[i].stride, e->divisor[i + 1]);
	}
	found = e->n ? search(e, 0, wanted) : !wanted;
	return found           ? OVERLAP_SOME
	       : *e->steps < 0 ? OVERLAP_UNKNOWN
			       : OVERLAP_NONE;
}

/* Axes of more than one element, the largest stride first. Returns how many. */
static int sort_axes(const dicomm_box_t *box, int axes, uint64_t *stride,
		     uint64_t *last)
{
	int64_t strides[DICOMM_AXES];
	int n = 0;

	boxes_strides(box, axes, strides);
	for (int a = 0; a < axes; a++) {
		int at = n;

		if (box->hi[a] - box->lo[a] < 2)
			continue;
		for (; at && stride[at - 1] < (uint64_t)strides[a]; at--) {
			stride[at] = stride[at - 1];
			last[at] = last[at - 1];
		}
		stride[at] = (uint64_t)strides[a];
		last[at] = (uint64_t)(box->hi[a] - box->lo[a] - 1);
		n++;
	}
	return n;
}

/* Two elements are in one place if a sum of stride * distance is 0. Let k be
 * the first axis on which they differ; of the two, the one that comes later on
 * that axis is meant. On the axes after it, the distance can have either sign.
 */
enum overlap overlap_within(const dicomm_box_t *box, int axes, long *steps)
{
	uint64_t stride[DICOMM_AXES], last[DICOMM_AXES];
	int n = sort_axes(box, axes, stride, last);

	for (int k = 0; k < n; k++) {
		struct equation e = {.steps = steps};
		uint64_t rest = 0;
		enum overlap found;

		for (int a = k + 1; a < n; a++) {
			add_term(&e, stride[a], 2 * last[a]);
			rest += stride[a] * last[a];
		}
		if (!stride[k])
			return OVERLAP_SOME;
		if (rest < stride[k])
			continue;
		add_term(&e, stride[k], last[k] - 1);
		found = solve(&e, rest - stride[k]);
		if (found != OVERLAP_NONE)
			return found;
	}
	return OVERLAP_NONE;
}

/* Counting the indices of b from its end makes all terms positive. */
enum overlap overlap_between(const dicomm_box_t *a, const dicomm_box_t *b,
			     int axes, long *steps)
{
	uint64_t stride[DICOMM_AXES], last[DICOMM_AXES];
	struct equation e = {.steps = steps};
	uint64_t wanted = (uint64_t)b->offset;
	int n = sort_axes(a, axes, stride, last);

	for (int i = 0; i < n; i++)
		add_term(&e, stride[i], last[i]);
	n = sort_axes(b, axes, stride, last);
	for (int i = 0; i < n; i++) {
		add_term(&e, stride[i], last[i]);
		wanted += stride[i] * last[i];
	}
	if (wanted < (uint64_t)a->offset)
		return OVERLAP_NONE;
	return solve(&e, wanted - (uint64_t)a->offset);
}
