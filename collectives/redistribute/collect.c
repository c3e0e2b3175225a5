/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks over all deliveries, finds their rounds, and keeps the pieces that this
 * rank moves. */
#include "collectives/redistribute/collect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/redistribute/owners.h"
#include "collectives/redistribute/rounds.h"
#include "src/base/log.h"
#include "src/base/type.h"

/* Pieces that all ranks move; beyond this, a plan takes too long. */
#define PIECES_MOST (UINT64_C(1) << 26)

struct state {
	struct collect *c;
	uint64_t pieces; /* of all ranks, so far */
	struct rounds rounds;
	int rank;
};

static void *append(struct collect_list *l, size_t bytes, size_t n)
{
	if (l->n + n > l->room) {
		size_t room = l->room ? 2 * l->room : 256;
		void *more;

		if (room < l->n + n)
			room = l->n + n;
		more = realloc(l->at, room * bytes);
		if (!more)
			return NULL;
		l->at = more;
		l->room = room;
	}
	l->n += n;
	return (char *)l->at + (l->n - n) * bytes;
}

static dicomm_result_t no_memory(void)
{
	return FAIL(DICOMM_ERR_NO_MEMORY, "redistribute: no memory for pieces");
}

/* Stores the axes of a copy. *shape is their position in the list. */
static dicomm_result_t add_shape(struct collect *c, const struct strided *s,
				 uint32_t *shape)
{
	size_t n = 1 + 3 * (size_t)s->naxes;
	int64_t *at;

	if (c->axes.n + n > UINT32_MAX)
		return no_memory();
	*shape = (uint32_t)c->axes.n;
	at = append(&c->axes, sizeof(*at), n);
	if (!at)
		return no_memory();
	*at++ = s->naxes;
	for (int i = 0; i < s->naxes; i++) {
		*at++ = s->axis[i].n;
		*at++ = s->axis[i].from;
		*at++ = s->axis[i].to;
	}
	return DICOMM_SUCCESS;
}

/* `from` and `to` are boxes of this rank; NULL means staging memory. */
static dicomm_result_t add_piece(struct state *s, const struct ways_delivery *d,
				 enum collect_kind kind, uint32_t round,
				 int peer, const dicomm_box_t *from,
				 const dicomm_box_t *to)
{
	const dicomm_tensor_t *t = d->overlay->tensor;
	struct collect_list *l = &s->c->pieces;
	struct collect_piece p = {.round = round,
				  .kind = (uint8_t)kind,
				  .peer = peer,
				  .tensor = (uint32_t)d->tensor,
				  .elem = (uint32_t)type_bytes(t->type)};
	struct collect_piece *at;
	struct strided shape;

	strided_make(&shape, t->axes, d->lo, d->hi, from, to);
	p.is_run = strided_is_run(&shape);
	p.from_at = (uint64_t)shape.from;
	p.to_at = (uint64_t)shape.to;
	p.bytes = shape.n * p.elem;
	p.from = !from                    ? REDIST_STAGED
		 : kind == COLLECT_SPREAD ? REDIST_TARGET
					  : REDIST_SOURCE;
	p.to = to ? REDIST_TARGET : REDIST_STAGED;
	TRY(add_shape(s->c, &shape, &p.shape));
	at = l->n < COLLECT_NONE ? append(l, sizeof(*at), 1) : NULL;
	if (!at)
		return no_memory();
	*at = p;
	return DICOMM_SUCCESS;
}

static dicomm_result_t add_send(struct state *s, const struct ways_delivery *d,
				uint32_t round, int peer,
				const dicomm_box_t *from)
{
	return add_piece(s, d, COLLECT_SEND, round, peer, from, NULL);
}

/* Sends what has arrived in a target box of this rank, or, if it is NULL, the
 * sum that was added last. */
static dicomm_result_t pass_on(struct state *s, const struct ways_delivery *d,
			       uint32_t round, int peer,
			       const dicomm_box_t *from)
{
	struct collect_piece *p;

	TRY(add_send(s, d, round, peer, from));
	p = (struct collect_piece *)s->c->pieces.at + s->c->pieces.n - 1;
	if (from)
		p->from = REDIST_TARGET;
	else
		p->from_at = s->c->sums.n - 1;
	return DICOMM_SUCCESS;
}

/* The owner keeps a sum that it does not want until it has sent it. */
static bool is_kept(const struct ways_delivery *d)
{
	return d->owner.box == OWNERS_NO_BOX;
}

/* The piece has arrived in the first box of this rank; adds the copies to its
 * other boxes. */
static dicomm_result_t spread(struct state *s, const struct ways_delivery *d,
			      uint32_t round, const dicomm_box_t *first)
{
	for (uint32_t i = 0; i < d->nmore; i++)
		if (d->more[i].rank == s->rank)
			TRY(add_piece(
				s, d, COLLECT_SPREAD, round, -1, first,
				&d->overlay->tensor->target[d->more[i].box]));
	return DICOMM_SUCCESS;
}

static dicomm_result_t add_sum(struct state *s, const struct ways_delivery *d,
			       uint32_t round, const dicomm_box_t *to)
{
	const dicomm_tensor_t *t = d->overlay->tensor;
	struct collect *c = s->c;
	struct collect_sum sum = {.round = round,
				  .tensor = (uint32_t)d->tensor,
				  .elem = (uint32_t)type_bytes(t->type),
				  .first = (uint32_t)c->inputs.n,
				  .terms = (uint32_t)d->terms,
				  .kept = !to};
	struct collect_sum *at;
	struct strided shape;

	strided_make(&shape, t->axes, d->lo, d->hi, NULL, to);
	sum.n = shape.n;
	sum.is_run = strided_is_run(&shape);
	sum.to_at = (uint64_t)shape.to;
	TRY(add_shape(c, &shape, &sum.shape));
	for (int i = 0; i < d->terms; i++) {
		uint32_t *input = append(&c->inputs, sizeof(*input), 1);
		int from = d->from[i].rank;

		if (!input)
			return no_memory();
		*input = (uint32_t)c->pieces.n;
		if (from == s->rank)
			TRY(add_piece(s, d, COLLECT_LOCAL, round, -1,
				      &t->source[d->from[i].box], NULL));
		else
			TRY(add_piece(s, d, COLLECT_RECEIVE, round, from, NULL,
				      NULL));
	}
	at = append(&c->sums, sizeof(*at), 1);
	if (!at)
		return no_memory();
	*at = sum;
	return DICOMM_SUCCESS;
}

static dicomm_result_t own(struct state *s, const struct ways_delivery *d,
			   uint32_t round)
{
	const dicomm_box_t *to =
		is_kept(d) ? NULL : &d->overlay->tensor->target[d->owner.box];

	if (d->adds)
		TRY(add_sum(s, d, round, to));
	else
		TRY(add_piece(s, d, COLLECT_RECEIVE, round, d->from[0].rank,
			      NULL, to));
	for (uint32_t i = 0; i < d->nothers; i++)
		TRY(pass_on(s, d, round + 1, d->others[i].rank, to));
	return spread(s, d, round, to);
}

/* Finds the round of a piece, and adds what this rank has to do with it. */
static dicomm_result_t take(struct state *s, const struct ways_delivery *d)
{
	const dicomm_tensor_t *t = d->overlay->tensor;
	uint64_t bytes =
		boxes_elements(d->lo, d->hi, t->axes) * type_bytes(t->type) +
		ROUNDS_PIECE;
	uint32_t round;

	/* The owner of a sum also stages its own terms and the result. */
	for (int i = 0; i < d->terms; i++) {
		if (d->from[i].rank != d->owner.rank)
			rounds_add(&s->rounds, d->from[i].rank, bytes, 0);
		rounds_add(&s->rounds, d->owner.rank, bytes, 0);
	}
	rounds_add(&s->rounds, d->owner.rank, d->adds ? bytes : 0,
		   bytes * (d->nothers + is_kept(d)));
	for (uint32_t i = 0; i < d->nothers; i++)
		rounds_add(&s->rounds, d->others[i].rank, 0, bytes);
	round = rounds_place(&s->rounds);
	if (d->owner.rank == s->rank)
		return own(s, d, round);
	for (int i = 0; i < d->terms; i++)
		if (d->from[i].rank == s->rank)
			TRY(add_send(s, d, round, d->owner.rank,
				     &t->source[d->from[i].box]));
	for (uint32_t i = 0; i < d->nothers; i++) {
		const dicomm_box_t *to = &t->target[d->others[i].box];

		if (d->others[i].rank != s->rank)
			continue;
		TRY(add_piece(s, d, COLLECT_RECEIVE, round + 1, d->owner.rank,
			      NULL, to));
		TRY(spread(s, d, round + 1, to));
	}
	return DICOMM_SUCCESS;
}

/* Computes how many elements a piece may have such that the staging memory of
 * each rank can hold it twice. Fails if that is less than one. */
static dicomm_result_t largest(const struct state *s,
			       const struct ways_delivery *d, uint64_t *n)
{
	uint64_t elem = type_bytes(d->overlay->tensor->type);
	uint64_t first = (uint64_t)d->terms + d->adds;
	uint64_t times = (uint64_t)d->nothers + is_kept(d);
	uint64_t bytes;

	if (first > times)
		times = first;
	bytes = s->c->staging / times / 2;
	if (bytes < ROUNDS_PIECE + elem)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "redistribute: staging_bytes %" PRIu64
			    ": too few for a piece of %" PRIu64 " terms, "
			    "passed on to %u ranks",
			    s->c->staging, first, d->nothers);
	*n = (bytes - ROUNDS_PIECE) / elem;
	return DICOMM_SUCCESS;
}

/* Cuts a delivery into pieces of at most `most` elements. */
static dicomm_result_t cut(struct state *s, const struct ways_delivery *d,
			   uint64_t most)
{
	int axes = d->overlay->tensor->axes, axis = axes - 1;
	struct ways_delivery part = *d;
	uint64_t inside = 1;
	int64_t step;

	if (boxes_elements(d->lo, d->hi, axes) <= most)
		return take(s, d);
	/* Finds the outermost axis along which one index has at most `most`
	 * elements. */
	while (axis > 0 &&
	       inside * (uint64_t)(d->hi[axis] - d->lo[axis]) <= most) {
		inside *= (uint64_t)(d->hi[axis] - d->lo[axis]);
		axis--;
	}
	step = (int64_t)(most / inside);
	for (int a = 0; a < axis; a++)
		part.hi[a] = part.lo[a] + 1;
	for (;;) {
		int a = axis - 1;

		for (int64_t i = d->lo[axis]; i < d->hi[axis]; i += step) {
			part.lo[axis] = i;
			part.hi[axis] =
				i + step < d->hi[axis] ? i + step : d->hi[axis];
			TRY(take(s, &part));
		}
		while (a >= 0 && part.hi[a] == d->hi[a]) {
			part.lo[a] = d->lo[a];
			part.hi[a] = part.lo[a] + 1;
			a--;
		}
		if (a < 0)
			return DICOMM_SUCCESS;
		part.lo[a]++;
		part.hi[a]++;
	}
}

static dicomm_result_t deliver(void *ctx, const struct ways_delivery *d)
{
	struct state *s = ctx;
	uint64_t most, n;

	TRY(largest(s, d, &most));
	n = boxes_elements(d->lo, d->hi, d->overlay->tensor->axes);
	s->pieces += 1 + n / most;
	if (s->pieces > PIECES_MOST)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "redistribute: staging_bytes %" PRIu64
			    ": tensor %zu, with %" PRIu64
			    " elements for rank %d: more than %" PRIu64
			    " pieces",
			    s->c->staging, d->tensor, n, d->owner.rank,
			    PIECES_MOST);
	return cut(s, d, most);
}

static dicomm_result_t keep(void *ctx, const struct ways_delivery *d)
{
	struct state *s = ctx;
	const dicomm_tensor_t *t = d->overlay->tensor;
	uint32_t round = s->rounds.rank[s->rank].round;

	if (d->owner.rank != s->rank)
		return DICOMM_SUCCESS;
	TRY(add_piece(s, d, COLLECT_LOCAL, round, -1,
		      &t->source[d->from[0].box], &t->target[d->owner.box]));
	return spread(s, d, round, &t->target[d->owner.box]);
}

dicomm_result_t collect_pieces(struct collect *c, const struct ways_input *in,
			       dicomm_way_t way)
{
	static const struct ways_fns fns = {deliver, keep};
	struct state s = {.c = c, .rank = c->request->rank};
	dicomm_result_t status;

	TRY(rounds_make(&s.rounds, in->ranks, c->staging));
	status = ways_walk(in, 1u << way, false, &fns, &s);
	rounds_free(&s.rounds);
	return status;
}

void collect_free(struct collect *c)
{
	free(c->pieces.at);
	free(c->sums.at);
	free(c->inputs.at);
	free(c->axes.at);
}
