/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers for a simulated call, and what must be in them afterwards. */
#include "tests/plans/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0xcafecafecafecafeu

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7fb5d329728ea185u;
	x ^= x >> 27;
	x *= 0x81dadef4bc2dd44du;
	return x ^ (x >> 33);
}

static uint64_t from_double(double d)
{
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	return u;
}

static double to_double(uint64_t u)
{
	double d;

	memcpy(&d, &u, sizeof(d));
	return d;
}

static uint64_t input(const struct world *w, int rank, int block, size_t i)
{
	uint64_t x = mix((uint64_t)rank << 40 ^ (uint64_t)block << 32 ^ i ^
			 0x123456789u);

	/* Of unlike magnitude, so that the order of addition shows. */
	if (w->doubles)
		return from_double((double)(int64_t)x /
				   (double)(1ull << (x % 60)));
	return x;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a + b;
}

static uint64_t add_doubles(uint64_t a, uint64_t b)
{
	return from_double(to_double(a) + to_double(b));
}

static uint64_t triple(uint64_t a)
{
	return 3 * a;
}

/* Uneven, with empty ones. */
static size_t uneven(const struct world *w, int from, int to)
{
	uint64_t x = mix((uint64_t)(from * 31 + to + 1) * 977 + w->count);

	return x % 4 == 0 ? 0 : x % (w->count + 1);
}

static size_t block_len(const struct world *w, int rank, int buffer, int block)
{
	switch (w->algorithm->coll) {
	case COLL_ALLTOALLV:
		return buffer == PLAN_SEND ? uneven(w, rank, block)
					   : uneven(w, block, rank);
	case COLL_ALLGATHERV:
	case COLL_GATHERV:
		return uneven(w, 0, buffer == PLAN_SEND ? rank : block);
	case COLL_REDUCE_SCATTERV:
	case COLL_SCATTERV:
		return uneven(w, 0, buffer == PLAN_SEND ? block : rank);
	default:
		return w->count;
	}
}

static bool varies(const struct world *w)
{
	return coll_has_counts(w->algorithm->coll);
}

struct links *world_links(int ranks, unsigned seed)
{
	static const uint64_t rates[] = {0, 1, 1000, 1000, 2000, 8000, 1000000};
	uint64_t x = mix(seed + 1), y = mix(x), z = mix(y);
	uint32_t n = (uint32_t)ranks;
	uint32_t nodes = (uint32_t)(1 + x % n), islands, classes = 3;
	struct links *l;

	islands = (uint32_t)(1 + x / n % nodes);
	l = links_create(n, nodes, classes, islands);
	if (!l)
		abort();
	for (uint32_t c = 0; c < classes; c++)
		l->class[c].nic = (struct links_pipe){rates[(y >> c) % 7],
						      rates[(y >> 3 * c) % 7]};
	for (uint32_t i = 0; i < islands; i++)
		l->island[i] = (struct links_pipe){rates[(z >> i) % 7],
						   rates[(z >> i) % 7]};
	/* Nobody is empty. */
	for (uint32_t k = 0; k < nodes; k++) {
		l->class_of[k] = (uint32_t)(mix(z + k) % classes);
		l->island_of[k] =
			k < islands ? k : (uint32_t)(mix(y + k) % islands);
	}
	for (uint32_t r = 0; r < n; r++)
		l->node_of[r] = r < nodes ? r : (uint32_t)(mix(x + r) % nodes);
	if (links_finish(l, &l) != DICOMM_SUCCESS)
		abort();
	return l;
}

struct shape world_shape(const struct world *w, int rank)
{
	struct shape s = {
		.coll = w->algorithm->coll,
		.rank = rank,
		.ranks = w->ranks,
		.root = w->root,
		.in_place = (w->in_place >> rank & 1) != 0,
		.prescale = w->prescale,
		.postdivide = w->postdivide,
		.links = w->links,
	};

	return s;
}

/* Element 0 and the last one are canaries, as are gaps between the blocks of
 * a v-collective. */
static void create_buffer(struct world *w, int rank, int buffer,
			  uint32_t blocks)
{
	size_t at = 1, *len, *off;
	uint64_t *memory;

	len = calloc(blocks + 1, sizeof(*len));
	off = calloc(blocks + 1, sizeof(*off));
	for (uint32_t b = 0; b < blocks; b++) {
		len[b] = block_len(w, rank, buffer, (int)b);
		off[b] = at;
		at += len[b] + varies(w);
		if (w->sim.longest < len[b])
			w->sim.longest = len[b];
	}
	memory = malloc((at + 1) * sizeof(*memory));
	for (size_t i = 0; i <= at; i++)
		memory[i] = CANARY;
	w->memory[rank][buffer] = memory;
	w->len[rank][buffer] = len;
	w->off[rank][buffer] = off;
	w->total[rank][buffer] = at + 1;
	w->rank[rank].buffer[buffer] = (struct sim_buffer){
		.base = memory, .blocks = blocks, .len = len, .off = off};
}

/* Where block b of the send buffer lies. */
static uint64_t *send_block(const struct world *w, int rank, int b)
{
	const struct plan *p = &w->rank[rank].plan;

	if (p->in_place && p->in_place_send_in_recv)
		return w->memory[rank][PLAN_RECV] +
		       w->off[rank][PLAN_RECV][p->in_place_block + (uint32_t)b];
	return w->memory[rank][PLAN_SEND] + w->off[rank][PLAN_SEND][b];
}

static const uint64_t *recv_block(const struct world *w, int rank, int b)
{
	const struct plan *p = &w->rank[rank].plan;

	if (p->in_place && !p->in_place_send_in_recv)
		return w->memory[rank][PLAN_SEND] +
		       w->off[rank][PLAN_SEND][p->in_place_block];
	return w->memory[rank][PLAN_RECV] + w->off[rank][PLAN_RECV][b];
}

void world_create(struct world *w)
{
	w->sim.ranks = w->ranks;
	w->sim.rank = w->rank;
	w->sim.op = w->doubles ? add_doubles : add;
	w->sim.scale = triple;
	w->sim.longest = w->algorithm->coll == COLL_BARRIER;
	for (int r = 0; r < w->ranks; r++) {
		struct sim_rank *sr = &w->rank[r];
		struct shape s = world_shape(w, r);
		uint32_t blocks[2];

		if (algorithm_plan(w->algorithm, &s, &sr->plan) !=
		    DICOMM_SUCCESS)
			abort();
		coll_layout(s.coll, r, s.ranks, s.root, &blocks[PLAN_SEND],
			    &blocks[PLAN_RECV]);
		for (int b = 0; b < 2; b++)
			create_buffer(w, r, b, blocks[b]);
		for (uint32_t b = 0; b < blocks[PLAN_SEND]; b++)
			for (size_t i = 0; i < w->len[r][PLAN_SEND][b]; i++)
				send_block(w, r, (int)b)[i] =
					input(w, r, (int)b, i);
		if (sr->plan.in_place)
			sr->buffer[sr->plan.in_place_send_in_recv ? PLAN_SEND
								  : PLAN_RECV]
				.base = NULL;
		w->like_len[r] = uneven(w, 0, r);
	}
	w->sim.like_len =
		w->algorithm->coll == COLL_REDUCE_SCATTERV ? w->like_len : NULL;
}

void world_destroy(struct world *w)
{
	for (int r = 0; r < w->ranks; r++) {
		for (int b = 0; b < 2; b++) {
			free(w->memory[r][b]);
			free(w->len[r][b]);
			free(w->off[r][b]);
		}
		plan_free(&w->rank[r].plan);
	}
}

uint64_t world_folded(const struct world *w, int block, size_t i)
{
	uint64_t sum = 0;

	for (int r = 0; r < w->ranks; r++) {
		uint64_t x = input(w, r, block, i);

		if (w->prescale)
			x = triple(x);
		sum = r == 0 ? x : w->sim.op(sum, x);
	}
	return w->postdivide ? sum / (uint64_t)w->ranks : sum;
}

static uint64_t expected(const struct world *w, int rank, int block, size_t i)
{
	switch (w->algorithm->coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
		return world_folded(w, 0, i);
	case COLL_REDUCE_SCATTER:
	case COLL_REDUCE_SCATTERV:
		return world_folded(w, rank, i);
	case COLL_BROADCAST:
		return input(w, w->root, 0, i);
	case COLL_SCATTER:
	case COLL_SCATTERV:
		return input(w, w->root, rank, i);
	case COLL_ALLGATHER:
	case COLL_ALLGATHERV:
	case COLL_GATHER:
	case COLL_GATHERV:
		return input(w, block, 0, i);
	default:
		return input(w, block, rank, i);
	}
}

uint64_t world_result(const struct world *w, int rank, size_t i)
{
	return recv_block(w, rank, 0)[i];
}

static bool differs(struct world *w, int rank, const char *what, int block,
		    size_t i)
{
	snprintf(w->sim.why, sizeof(w->sim.why),
		 "rank %d: %s block %d, element %zu", rank, what, block, i);
	return false;
}

static bool check_results(struct world *w, int rank)
{
	uint32_t blocks = w->rank[rank].buffer[PLAN_RECV].blocks;

	/* Sums of doubles are compared by who knows their order. */
	if (w->doubles && coll_reduces(w->algorithm->coll))
		return true;
	for (uint32_t b = 0; b < blocks; b++)
		for (size_t i = 0; i < w->len[rank][PLAN_RECV][b]; i++)
			if (recv_block(w, rank, (int)b)[i] !=
			    expected(w, rank, (int)b, i))
				return differs(w, rank, "wrong result in",
					       (int)b, i);
	return true;
}

/* Inputs stay as they were, but for what is in place. */
static bool check_inputs(struct world *w, int rank)
{
	const struct plan *p = &w->rank[rank].plan;

	for (uint32_t b = 0; b < w->rank[rank].buffer[PLAN_SEND].blocks; b++) {
		if (p->in_place &&
		    (p->in_place_send_in_recv || b == p->in_place_block))
			continue;
		for (size_t i = 0; i < w->len[rank][PLAN_SEND][b]; i++)
			if (send_block(w, rank, (int)b)[i] !=
			    input(w, rank, (int)b, i))
				return differs(w, rank, "changed input in",
					       (int)b, i);
	}
	return true;
}

static bool check_canaries(struct world *w, int rank, int buffer)
{
	const size_t *len = w->len[rank][buffer], *off = w->off[rank][buffer];
	uint32_t blocks = w->rank[rank].buffer[buffer].blocks;
	size_t end = 1;

	for (uint32_t b = 0; b <= blocks; b++) {
		size_t begin = b < blocks ? off[b] : w->total[rank][buffer];

		for (size_t i = b == 0 ? 0 : end; i < begin; i++)
			if (w->memory[rank][buffer][i] != CANARY)
				return differs(w, rank, "canary before", (int)b,
					       i);
		end = b < blocks ? off[b] + len[b] : begin;
	}
	return true;
}

static bool check(struct world *w)
{
	for (int r = 0; r < w->ranks; r++)
		if (!check_results(w, r) || !check_inputs(w, r) ||
		    !check_canaries(w, r, PLAN_SEND) ||
		    !check_canaries(w, r, PLAN_RECV))
			return false;
	return true;
}

bool world_run(struct world *w)
{
	return sim_run(&w->sim) && check(w);
}

bool world_run_in_order(struct world *w)
{
	return sim_run_in_order(&w->sim) && check(w);
}

bool world_run_timed(struct world *w, const struct estimate_params *cost,
		     uint64_t *ps)
{
	return sim_run_timed(&w->sim, cost, ps) && check(w);
}
