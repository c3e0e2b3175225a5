/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/tally.h"

#include <stdlib.h>

#include "src/base/log.h"

#define PS_PER_S UINT64_C(1000000000000)
#define LONGEST (UINT64_MAX / 2)
/* Of the CPU, for a message that leaves the node or enters it. */
#define FAR_MESSAGE_PS 2000000
/* Between nodes of which no latency is known. */
#define LATENCY_PS 20000000

typedef unsigned __int128 wide;

struct bytes {
	uint64_t up, down;
};

struct tally {
	const struct estimate_params *e;
	const struct shape *s;
	const struct links *l;
	uint64_t block_bytes;
	struct bytes *node, *island;
	uint64_t *work_ps; /* [node]: of all its ranks */
	/* Of the rank in hand. */
	uint64_t near_in, near_out, reduced, copied, near, far;
};

static uint64_t length(const struct tally *t, const struct span *s)
{
	return (uint64_t)((wide)t->block_bytes * s->nblocks * (s->hi - s->lo) /
			  s->parts);
}

static void count_send(struct tally *t, const struct step *step)
{
	const struct links *l = t->l;
	uint32_t from = l->node_of[t->s->rank], to = l->node_of[step->peer];
	uint64_t n = length(t, &step->a);

	if (from == to) {
		t->near_out += n;
		t->near++;
		return;
	}
	t->far++;
	t->node[from].up += n;
	t->node[to].down += n;
	if (l->island_of[from] != l->island_of[to]) {
		t->island[l->island_of[from]].up += n;
		t->island[l->island_of[to]].down += n;
	}
}

static void count(void *ctx, const struct step *step)
{
	struct tally *t = ctx;
	bool near = step->peer >= 0 &&
		    t->l->node_of[t->s->rank] == t->l->node_of[step->peer];

	switch ((enum step_kind)step->kind) {
	case STEP_SEND:
		count_send(t, step);
		return;
	case STEP_RECV:
	case STEP_RECV_REDUCE:
		if (near)
			t->near_in += length(t, &step->dst);
		t->near += near;
		t->far += !near;
		if (step->kind == STEP_RECV_REDUCE)
			t->reduced += length(t, &step->dst);
		return;
	case STEP_COPY:
		t->copied += length(t, &step->dst);
		return;
	case STEP_FOLD:
		t->reduced += length(t, &step->dst) * (step->nfold - 1);
		return;
	default:
		t->reduced += length(t, &step->dst);
	}
}

static uint64_t transfer_ps(uint64_t bytes, uint64_t rate)
{
	wide ps;

	if (!bytes)
		return 0;
	if (!rate)
		return LONGEST;
	ps = ((wide)bytes * PS_PER_S + rate - 1) / rate;
	return ps < LONGEST ? (uint64_t)ps : LONGEST;
}

static uint64_t sum_ps(uint64_t a, uint64_t b)
{
	return a + b < LONGEST ? a + b : LONGEST;
}

static void raise_to(uint64_t *most, uint64_t x)
{
	if (x > *most)
		*most = x;
}

/* One rank: its own time, and what it adds to that of its node. */
static uint64_t rank_ps(struct tally *t, uint64_t slices)
{
	const struct links_class *c =
		links_node(t->l, t->l->node_of[t->s->rank]);
	uint64_t inside = c->inside ? c->inside : t->e->bytes_per_s;
	uint64_t reduce = c->reduce ? c->reduce : t->e->reduce_bytes_per_s;
	uint64_t more = t->near_in > t->near_out ? t->near_in : t->near_out;
	wide messages = ((wide)t->near * t->e->per_message_ps +
			 (wide)t->far * FAR_MESSAGE_PS) *
			slices;
	uint64_t ps = transfer_ps(more, inside);

	ps = sum_ps(ps, transfer_ps(t->reduced, reduce));
	ps = sum_ps(ps, transfer_ps(t->copied, t->e->copy_bytes_per_s));
	return sum_ps(ps, messages < LONGEST ? (uint64_t)messages : LONGEST);
}

static void pipe_ps(struct tally_load *load, const struct bytes *n,
		    const struct links_pipe *pipe)
{
	if (pipe->up)
		raise_to(&load->pipe_ps, transfer_ps(n->up, pipe->up));
	if (pipe->down)
		raise_to(&load->pipe_ps, transfer_ps(n->down, pipe->down));
}

static void sum_up(const struct tally *t, struct tally_load *load)
{
	const struct links *l = t->l;

	for (uint32_t n = 0; n < l->nodes; n++) {
		const struct links_class *c = links_node(l, n);
		uint64_t rate = links_slower(c->nic.up, c->nic.down);

		pipe_ps(load, &t->node[n], &c->nic);
		load->slowest = links_slower(load->slowest, rate);
		raise_to(&load->latency_ps, c->latency_ps);
		if (t->e->node_cores && l->ranks_of[n] > t->e->node_cores)
			raise_to(&load->rank_ps,
				 t->work_ps[n] / t->e->node_cores);
	}
	for (uint32_t i = 0; i < l->islands; i++)
		pipe_ps(load, &t->island[i], &l->island[i]);
	if (!load->slowest)
		load->slowest = t->e->bytes_per_s;
	if (!load->latency_ps)
		load->latency_ps = LATENCY_PS;
}

/* Blocks of a buffer that has one for each rank are as long as each other;
 * those of a v-collective on the average. */
static uint64_t block_bytes(const struct shape *s, uint64_t bytes)
{
	uint32_t send, recv;
	bool blocks = false;

	for (int r = 0; r < s->ranks && r < 2; r++) {
		coll_layout(s->coll, r, s->ranks, s->root, &send, &recv);
		blocks |= send > 1 || recv > 1;
	}
	coll_layout(s->coll, s->root, s->ranks, s->root, &send, &recv);
	blocks |= send > 1 || recv > 1;
	return blocks ? bytes / (uint64_t)s->ranks : bytes;
}

dicomm_result_t tally_load(const struct estimate_params *e,
			   const struct algorithm *a, const struct shape *s,
			   uint64_t bytes, uint64_t slices,
			   struct tally_load *load)
{
	const struct links *l = s->links;
	struct shape each = *s;
	struct tally t = {.e = e, .s = &each, .l = l};
	dicomm_result_t status = DICOMM_SUCCESS;
	uint64_t ps;

	*load = (struct tally_load){.pipe_ps = 0};
	t.block_bytes = block_bytes(s, bytes);
	t.node = calloc((size_t)l->nodes + l->islands, sizeof(*t.node));
	t.work_ps = calloc(l->nodes, sizeof(*t.work_ps));
	if (!t.node || !t.work_ps) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "estimate: no memory for %u nodes", l->nodes);
		goto out;
	}
	t.island = t.node + l->nodes;
	/* Neither changes what is sent, and ranks may differ in it. */
	each.in_place = false;
	for (each.rank = 0; each.rank < s->ranks; each.rank++) {
		uint64_t *all = &t.work_ps[l->node_of[each.rank]];

		t.near_in = t.near_out = t.reduced = t.copied = 0;
		t.near = t.far = 0;
		status = algorithm_tell(a, &each, count, &t);
		if (status != DICOMM_SUCCESS)
			goto out;
		ps = rank_ps(&t, slices);
		raise_to(&load->rank_ps, ps);
		*all = sum_ps(*all, ps);
	}
	sum_up(&t, load);
out:
	free(t.node);
	free(t.work_ps);
	return status;
}
