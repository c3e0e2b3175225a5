/* SPDX-License-Identifier: BSD-3-Clause */
/* What all algorithms share: from a shape to a finished plan. */
#include "collectives/plan/algorithm.h"

#include <assert.h>

bool shape_any(const struct shape *s)
{
	(void)s;
	return true;
}

int shape_rank_far(const struct shape *s, int i)
{
	int r = i % s->ranks;

	return r < 0 ? r + s->ranks : r;
}

int shape_from_root(const struct shape *s, int rank)
{
	return shape_rank(s, rank - s->root);
}

int shape_to_rank(const struct shape *s, int from_root)
{
	return shape_rank(s, from_root + s->root);
}

int shape_blocks(const struct shape *s, enum plan_buffer buffer, int first,
		 int n, struct span out[2])
{
	int begin = shape_rank(s, first);
	int head = shape_count(s, begin, n);

	out[0] = plan_blocks(buffer, (uint32_t)begin, (uint32_t)head);
	if (head == n)
		return 1;
	out[1] = plan_blocks(buffer, 0, (uint32_t)(n - head));
	return 2;
}

int shape_subtree(const struct shape *s, enum plan_buffer buffer, int first,
		  int d, struct span out[2])
{
	int me = shape_from_root(s, s->rank);
	int n = shape_blocks(s, buffer, shape_to_rank(s, first),
			     shape_count(s, first, d), out);
	uint32_t at = (uint32_t)(first - me);

	for (int i = 0; me && i < n; at += out[i++].nblocks)
		out[i] = plan_blocks(PLAN_SCRATCH, at, out[i].nblocks);
	return n;
}

static int place_of(const struct shape *s, int rank)
{
	return s->links ? (int)s->links->place[rank] : rank;
}

static int at_place(const struct shape *s, int place)
{
	place = shape_rank(s, place);
	return s->links ? (int)s->links->path[place] : place;
}

int shape_place(const struct shape *s)
{
	return place_of(s, s->rank);
}

int shape_on_path(const struct shape *s, int i)
{
	return at_place(s, place_of(s, s->rank) + i);
}

int shape_distance(const struct shape *s, int rank)
{
	const struct links *l = s->links;
	uint32_t a, b;

	if (!l)
		return 0;
	a = l->node_of[s->rank];
	b = l->node_of[rank];
	return (a != b) + (l->island_of[a] != l->island_of[b]);
}

int shape_farthest(const struct shape *s)
{
	if (!s->links)
		return 0;
	return (s->links->nodes > 1) + (s->links->islands > 1);
}

/* The node and the island of the root, as ranges of places on the path: [node,
 * node_end) and [island, island_end). `root` is the root's place. */
struct home {
	int root, node, node_end, island, island_end;
};

static struct home home_of(const struct shape *s)
{
	const struct links *l = s->links;
	int at = place_of(s, s->root);
	uint32_t n, i;

	if (!l)
		return (struct home){at, 0, s->ranks, 0, s->ranks};
	n = links_find(l->node_begin, l->nodes, (uint32_t)at);
	i = links_find(l->island_begin, l->islands, n);
	return (struct home){at, (int)l->node_begin[n],
			     (int)l->node_begin[n + 1],
			     (int)l->node_begin[l->island_begin[i]],
			     (int)l->node_begin[l->island_begin[i + 1]]};
}

int shape_chain_place(const struct shape *s)
{
	struct home h = home_of(s);
	int at = place_of(s, s->rank), in_node = h.node_end - h.node;

	if (at >= h.node && at < h.node_end)
		return (at - h.root + in_node) % in_node;
	if (at >= h.island && at < h.node)
		return at - h.island + in_node;
	if (at >= h.node_end && at < h.island_end)
		return at - h.island;
	return shape_rank(s, at - h.island);
}

int shape_chain_rank(const struct shape *s, int place)
{
	struct home h = home_of(s);
	int in_node = h.node_end - h.node;

	if (place < in_node)
		return at_place(s,
				h.node + (h.root - h.node + place) % in_node);
	if (place < h.node - h.island + in_node)
		return at_place(s, h.island + place - in_node);
	return at_place(s, h.island + place);
}

uint32_t shape_near_of_chain(const struct shape *s)
{
	return s->links ? s->links->ranks - s->links->nodes : 0;
}

/* The way round may leave each node once. On the way to the rank before the
 * first, one of the hops within a node is left out. */
uint32_t shape_near_of_ring(const struct shape *s)
{
	uint32_t near = shape_near_of_chain(s);

	return near ? near - 1 : 0;
}

int shape_power_of_two(const struct shape *s)
{
	int p = 1;

	while (p <= s->ranks / 2)
		p *= 2;
	return p;
}

bool shape_is_power_of_two(const struct shape *s)
{
	return shape_power_of_two(s) == s->ranks;
}

uint32_t shape_log2_of(uint32_t n)
{
	uint32_t k = 0;

	while (UINT64_C(1) << k < n)
		k++;
	return k;
}

uint32_t shape_log2(const struct shape *s)
{
	return shape_log2_of((uint32_t)s->ranks);
}

struct span shape_input(struct plan *p, const struct shape *s, struct span span,
			struct span to)
{
	if (!s->prescale)
		return span;
	plan_scale(p, to, span);
	return to;
}

void shape_extra(struct plan *p, const struct shape *s, int partner)
{
	struct span recv = plan_block(PLAN_RECV, 0);

	plan_send(p, partner,
		  shape_input(p, s, plan_block(PLAN_SEND, 0), recv));
	plan_recv(p, partner, recv);
}

void shape_result(struct plan *p, const struct shape *s, struct span span)
{
	if (s->postdivide)
		plan_divide(p, span, span);
}

/* Does nothing on a rank that has only one of the two buffers. */
static void set_in_place(struct plan *p, const struct shape *s)
{
	uint32_t send, recv;

	if (!s->in_place)
		return;
	coll_layout(s->coll, s->rank, s->ranks, s->root, &send, &recv);
	if (send == 0 || recv == 0)
		return;
	if (send == recv)
		plan_set_in_place(p, true, 0);
	else
		plan_set_in_place(p, recv > send, (uint32_t)s->rank);
}

/* The plan of a communicator of one rank: the result is the input, copied. */
static void build_alone(struct plan *p, const struct shape *s)
{
	struct span recv = plan_block(PLAN_RECV, 0);
	uint32_t send_blocks, recv_blocks;

	coll_layout(s->coll, 0, 1, 0, &send_blocks, &recv_blocks);
	if (recv_blocks == 0)
		return;
	plan_copy(p, recv, shape_input(p, s, plan_block(PLAN_SEND, 0), recv));
	/* It may be one of several ranks, with a result of its own. */
	shape_result(p, s, recv);
}

dicomm_result_t algorithm_plan(const struct algorithm *a, const struct shape *s,
			       struct plan *p)
{
	assert(a->coll == s->coll);
	plan_init(p, s->ranks);
	p->whole = a->whole;
	set_in_place(p, s);
	if (s->ranks == 1)
		build_alone(p, s);
	else
		a->build(p, s);
	return plan_finish(p);
}

dicomm_result_t algorithm_tell(const struct algorithm *a, const struct shape *s,
			       plan_tell *tell, void *ctx)
{
	struct plan p;

	plan_init(&p, s->ranks);
	p.whole = a->whole;
	p.tell = tell;
	p.tell_ctx = ctx;
	a->build(&p, s);
	return p.status;
}
