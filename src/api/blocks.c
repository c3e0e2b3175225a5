/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of any length: where they lie, and whether they overlap. */
#include "src/api/blocks.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)

void blocks_argument(const struct blocks *b, int i, char *text, size_t len)
{
	if (b->list)
		snprintf(text, len, "%s[%d]", b->name, i);
	else
		snprintf(text, len, "%s", b->name);
}

/* Checks block i. `from`: its displacement in elements. Sets the bytes from the
 * address to the end of the block. */
static dicomm_result_t check_block(const char *f, const struct blocks *b, int i,
				   size_t from, size_t elem, size_t *bytes)
{
	char name[64];
	size_t end;

	if (__builtin_add_overflow(b->counts[i], from, &end) ||
	    __builtin_mul_overflow(end, elem, bytes) || *bytes > PTRDIFF_MAX)
		return BAD("%s: %s of rank %d: count %zu at %zu: more than can "
			   "be addressed",
			   f, b->name, i, b->counts[i], from);
	if (b->list ? b->list[i] != NULL : b->at != NULL)
		return DICOMM_SUCCESS;
	blocks_argument(b, i, name, sizeof(name));
	return BAD("%s: %s is NULL, count is %zu", f, name, b->counts[i]);
}

static void widen(struct blocks *b, size_t first, size_t end)
{
	if (!b->end || first < b->first)
		b->first = first;
	if (end > b->end)
		b->end = end;
}

/* Blocks without elements may have any address. */
static const uint8_t *lowest(const struct blocks *b)
{
	uintptr_t low = 0;

	for (int i = 0; i < b->n; i++) {
		uintptr_t at = (uintptr_t)b->list[i];

		if (b->counts[i] && at && (!low || at < low))
			low = at;
	}
	return (const uint8_t *)low;
}

dicomm_result_t blocks_place(const char *f, struct blocks *b, size_t elem,
			     size_t *room)
{
	size_t *counts = room, *offsets = room + b->n, next = 0;

	b->base = b->list ? lowest(b) : b->at;
	b->first = b->end = 0;
	for (int i = 0; i < b->n; i++) {
		size_t from = b->displs ? b->displs[i] : next, bytes;

		counts[i] = b->counts[i];
		offsets[i] = 0;
		if (!counts[i])
			continue;
		if (b->list)
			from = 0;
		TRY(check_block(f, b, i, from, elem, &bytes));
		next = from + counts[i];
		offsets[i] =
			b->list ? (uintptr_t)b->list[i] - (uintptr_t)b->base
				: from * elem;
		widen(b, offsets[i], offsets[i] + counts[i] * elem);
	}
	b->placed_counts = counts;
	b->offsets = offsets;
	return DICOMM_SUCCESS;
}

/* ---- overlaps ---- */

struct range {
	uintptr_t at, end;
	const struct blocks *of;
	int i;
	bool received;
};

static int by_address(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

/* Returns true if the blocks lie in rising order, which most callers keep. */
static bool is_rising(const struct blocks *b, size_t elem)
{
	size_t end = 0;

	for (int i = 0; i < b->n; i++) {
		if (!b->placed_counts[i])
			continue;
		if (b->offsets[i] < end)
			return false;
		end = b->offsets[i] + b->placed_counts[i] * elem;
	}
	return true;
}

static bool are_apart(const struct blocks *a, const struct blocks *b)
{
	return !a->end || !b->end || a->base + a->end <= b->base + b->first ||
	       b->base + b->end <= a->base + a->first;
}

static size_t add_ranges(struct range *to, size_t n, const struct blocks *b,
			 size_t elem, bool received, int but)
{
	for (int i = 0; i < b->n; i++) {
		uintptr_t at = (uintptr_t)b->base + b->offsets[i];

		if (b->placed_counts[i] && i != but)
			to[n++] = (struct range){
				at, at + b->placed_counts[i] * elem, b, i,
				received};
	}
	return n;
}

static dicomm_result_t overlap(const char *f, const struct range *a,
			       const struct range *b)
{
	char one[64], other[64];

	blocks_argument(a->of, a->i, one, sizeof(one));
	blocks_argument(b->of, b->i, other, sizeof(other));
	return BAD("%s: %s %p (block %d, %zu bytes) and %s %p (block %d, %zu "
		   "bytes) overlap",
		   f, one, (void *)a->at, a->i, (size_t)(a->end - a->at), other,
		   (void *)b->at, b->i, (size_t)(b->end - b->at));
}

/* Looks for the first range that begins before the end of an earlier one. */
static dicomm_result_t sweep(const char *f, const struct range *r, size_t n)
{
	const struct range *sent = NULL, *received = NULL;

	for (size_t i = 0; i < n; i++) {
		if (received && r[i].at < received->end)
			return overlap(f, received, &r[i]);
		if (r[i].received && sent && r[i].at < sent->end)
			return overlap(f, sent, &r[i]);
		if (r[i].received)
			received = &r[i];
		else if (!sent || r[i].end > sent->end)
			sent = &r[i];
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t blocks_check_apart(const char *f, const struct blocks *sent,
				   const struct blocks *received, size_t elem,
				   int own)
{
	size_t most = (size_t)sent->n + (size_t)received->n, n;
	struct range *ranges;
	dicomm_result_t status;

	if (is_rising(received, elem) &&
	    (are_apart(sent, received) || (own >= 0 && sent->n == 1)))
		return DICOMM_SUCCESS;
	ranges = calloc(most, sizeof(*ranges));
	if (!ranges)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "%s: no memory for %zu blocks", f, most);
	n = add_ranges(ranges, 0, sent, elem, false, own);
	n = add_ranges(ranges, n, received, elem, true, -1);
	qsort(ranges, n, sizeof(*ranges), by_address);
	status = sweep(f, ranges, n);
	free(ranges);
	return status;
}
