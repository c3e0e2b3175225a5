/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds up the deliveries of a way, and predicts its time. */
#include "collectives/redistribute/cost.h"

#include <stdlib.h>

#include "collectives/redistribute/owners.h"
#include "collectives/redistribute/strided.h"
#include "src/base/log.h"
#include "src/base/type.h"

#define PS_PER_S UINT64_C(1000000000000)
/* With more ranks than this, messages are not counted by pairs of ranks. */
#define PAIRS_RANKS 8192
/* With fewer bytes for each core, copies are as fast as in its own cache, where
 * estimate_params were measured. */
#define CACHED_BYTES (UINT64_C(768) << 10)

/* Hops of a way: to the owners, and from these to the other ranks; and both
 * together. */
enum { FIRST, SECOND, BOTH, HOPS };

/* Copies and sums before the messages of a rank, and after them */
enum { BEFORE, AFTER, PHASES };

/* What a hop puts on each resource, in bytes */
struct hop {
	uint64_t *out, *in;         /* [rank]: all that it sends and receives */
	uint64_t *far_out, *far_in; /* [rank]: between nodes */
	uint64_t *node_out, *node_in;     /* [node]: across its link */
	uint64_t *node_near;              /* [node]: between its ranks */
	uint64_t *island_out, *island_in; /* [island]: across its link */
	uint64_t *messages;               /* [rank]: number sent and received */
	/* Bit [from * ranks + to]: these ranks exchange messages. */
	uint8_t *met;
	uint64_t bytes;
};

struct sum {
	const struct ways_input *in;
	struct hop hop[HOPS];
	/* Bytes that are copied and added, of a rank and of a node */
	uint64_t *work[PHASES], *node_work[PHASES];
	uint64_t between, pairs;
};

static uint32_t nodes_of(const struct ways_input *in)
{
	return in->links ? in->links->nodes : 1;
}

static uint32_t node_of(const struct ways_input *in, int rank)
{
	return in->links ? in->links->node_of[rank] : 0;
}

static uint32_t ranks_of(const struct ways_input *in, uint32_t node)
{
	return in->links ? in->links->ranks_of[node] : (uint32_t)in->ranks;
}

static void add_work(struct sum *s, int phase, int rank, uint64_t bytes)
{
	s->work[phase][rank] += bytes;
	s->node_work[phase][node_of(s->in, rank)] += bytes;
}

static void load(const struct links *l, struct hop *hop, int from, int to,
		 uint64_t bytes)
{
	uint32_t out = l ? l->node_of[from] : 0, in = l ? l->node_of[to] : 0;

	hop->out[from] += bytes;
	hop->in[to] += bytes;
	hop->bytes += bytes;
	if (out == in) {
		hop->node_near[in] += bytes;
		return;
	}
	hop->far_out[from] += bytes;
	hop->far_in[to] += bytes;
	hop->node_out[out] += bytes;
	hop->node_in[in] += bytes;
	if (l->island_of[out] == l->island_of[in])
		return;
	hop->island_out[l->island_of[out]] += bytes;
	hop->island_in[l->island_of[in]] += bytes;
}

static void send(struct sum *s, int h, int from, int to, uint64_t bytes)
{
	struct hop *hop = &s->hop[h];
	size_t bit = (size_t)from * (size_t)s->in->ranks + (size_t)to;

	load(s->in->links, hop, from, to, bytes);
	load(s->in->links, &s->hop[BOTH], from, to, bytes);
	if (node_of(s->in, from) != node_of(s->in, to))
		s->between += bytes;
	if (!hop->met || hop->met[bit / 8] >> bit % 8 & 1)
		return;
	hop->met[bit / 8] |= (uint8_t)(1 << bit % 8);
	hop->messages[from]++;
	hop->messages[to]++;
	s->hop[BOTH].messages[from]++;
	s->hop[BOTH].messages[to]++;
	s->pairs++;
}

static uint64_t bytes_of(const struct ways_delivery *d)
{
	const dicomm_tensor_t *t = d->overlay->tensor;

	return boxes_elements(d->lo, d->hi, t->axes) * type_bytes(t->type);
}

/* Does a message begin or end in the box itself, without a copy? NULL is
 * staging memory. */
static bool in_place(const struct ways_delivery *d, uint64_t bytes,
		     const dicomm_box_t *box)
{
	struct strided shape;

	if (bytes < REDIST_LARGE)
		return false;
	strided_make(&shape, d->overlay->tensor->axes, d->lo, d->hi, box, NULL);
	return strided_is_run(&shape);
}

/* Pieces of one rank are alike for all that they go to. */
static dicomm_result_t deliver(void *ctx, const struct ways_delivery *d)
{
	struct sum *s = (struct sum *)ctx + d->way;
	const dicomm_tensor_t *t = d->overlay->tensor;
	const dicomm_box_t *owned =
		d->owner.box == OWNERS_NO_BOX ? NULL : &t->target[d->owner.box];
	uint64_t bytes = bytes_of(d);
	bool owned_in_place = in_place(d, bytes, owned);

	for (int i = 0; i < d->terms; i++) {
		const struct overlay_holder *from = &d->from[i];

		if (from->rank == d->owner.rank)
			continue;
		send(s, FIRST, from->rank, d->owner.rank, bytes);
		if (!in_place(d, bytes, &t->source[from->box]))
			add_work(s, BEFORE, from->rank, bytes);
	}
	if (d->adds)
		add_work(s, AFTER, d->owner.rank, bytes * (uint64_t)d->terms);
	else if (!owned_in_place)
		add_work(s, AFTER, d->owner.rank, bytes);
	for (uint32_t i = 0; i < d->nothers; i++) {
		const struct overlay_holder *to = &d->others[i];

		send(s, SECOND, d->owner.rank, to->rank, bytes);
		if (!owned_in_place)
			add_work(s, AFTER, d->owner.rank, bytes);
		if (!in_place(d, bytes, &t->target[to->box]))
			add_work(s, AFTER, to->rank, bytes);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t keep(void *ctx, const struct ways_delivery *d)
{
	struct sum *s = (struct sum *)ctx + d->way;

	add_work(s, AFTER, d->owner.rank, bytes_of(d));
	return DICOMM_SUCCESS;
}

static uint64_t time_of(uint64_t bytes, uint64_t bytes_per_s)
{
	unsigned __int128 ps = (unsigned __int128)bytes * PS_PER_S;

	if (!bytes_per_s)
		return 0;
	ps /= bytes_per_s;
	return ps < COST_UNKNOWN / 16 ? (uint64_t)ps : COST_UNKNOWN / 16;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Returns the number of cores that the ranks of a node have together. */
static uint64_t cores(const struct ways_input *in,
		      const struct estimate_params *p, uint32_t node)
{
	uint64_t ranks = ranks_of(in, node);

	return p->node_cores && p->node_cores < ranks ? p->node_cores : ranks;
}

/* Returns the time in which a pipe carries what leaves, and what enters. */
static uint64_t pipe_ps(uint64_t out, uint64_t in,
			const struct links_pipe *pipe)
{
	return larger(time_of(out, pipe->up), time_of(in, pipe->down));
}

/* Returns the time of the busiest rank or link. */
static uint64_t hop_ps(const struct sum *s, const struct estimate_params *p,
		       int h)
{
	const struct links *l = s->in->links;
	const struct hop *hop = &s->hop[h];
	uint64_t ps = 0, latency = p->latency_ps;

	if (!hop->bytes)
		return 0;
	for (int r = 0; r < s->in->ranks; r++) {
		const struct links_class *c =
			l ? links_node(l, l->node_of[r]) : NULL;
		uint64_t rate = c && c->inside ? c->inside : p->bytes_per_s;

		ps = larger(ps, time_of(larger(hop->out[r], hop->in[r]), rate) +
					hop->messages[r] * p->per_message_ps);
		if (c)
			ps = larger(ps, time_of(larger(hop->far_out[r],
						       hop->far_in[r]),
						c->rank));
	}
	for (uint32_t n = 0; n < nodes_of(s->in); n++)
		ps = larger(ps, time_of(hop->node_near[n],
					p->bytes_per_s * cores(s->in, p, n)));
	for (uint32_t n = 0; l && n < l->nodes; n++) {
		const struct links_class *c = links_node(l, n);

		if (hop->node_out[n] || hop->node_in[n])
			latency = larger(latency, c->latency_ps);
		ps = larger(ps, pipe_ps(hop->node_out[n], hop->node_in[n],
					&c->nic));
	}
	for (uint32_t i = 0; l && i < l->islands; i++)
		ps = larger(ps, pipe_ps(hop->island_out[i], hop->island_in[i],
					&l->island[i]));
	return ps + latency;
}

/* Returns the time of the rank that copies and adds most, or of the cores of a
 * node that do. */
static uint64_t work_ps(const struct sum *s, const struct estimate_params *p,
			int phase)
{
	uint64_t ps = 0;

	for (int r = 0; r < s->in->ranks; r++)
		ps = larger(ps,
			    time_of(s->work[phase][r], p->copy_bytes_per_s));
	for (uint32_t n = 0; n < nodes_of(s->in); n++)
		ps = larger(ps,
			    time_of(s->node_work[phase][n],
				    p->copy_bytes_per_s * cores(s->in, p, n)));
	return ps;
}

static void finish(const struct sum *s, const struct estimate_params *p,
		   uint64_t staging, struct cost *out)
{
	uint64_t first = hop_ps(s, p, FIRST), second = hop_ps(s, p, SECOND);
	uint64_t both = hop_ps(s, p, BOTH), rounds, most;
	const struct hop *all = &s->hop[BOTH];

	*out = (struct cost){.bytes = all->bytes,
			     .between_nodes = s->between,
			     .pairs = s->pairs};
	for (int r = 0; r < s->in->ranks; r++) {
		out->most_sent = larger(out->most_sent, all->out[r]);
		out->most_received = larger(out->most_received, all->in[r]);
	}
	/* From the second round on, both hops run at the same time; what they
	 * have in common then carries the bytes of both. */
	most = larger(out->most_sent, out->most_received);
	rounds = staging ? 1 + most / staging : 1;
	out->ps = first + second;
	if (first + second > both)
		out->ps = both + (first + second - both) / rounds;
	/* A rank receives when its peers have packed, and then unpacks. */
	out->ps += work_ps(s, p, BEFORE) + work_ps(s, p, AFTER);
}

/* Adds up what the boxes of a tensor have on each node. */
static void add_boxes(const struct ways_input *in, const dicomm_tensor_t *t,
		      const dicomm_box_t *boxes, size_t n, uint64_t *node)
{
	for (size_t i = 0; i < n; i++)
		if (!boxes_empty(&boxes[i], t->axes))
			node[node_of(in, boxes[i].rank)] +=
				type_bytes(t->type) *
				boxes_elements(boxes[i].lo, boxes[i].hi,
					       t->axes);
}

/* Sets the rate of copies, and of messages within a node, to what memory has
 * for that many bytes. */
static dicomm_result_t adapt(struct estimate_params *p,
			     const struct ways_input *in,
			     const struct memory_rates *memory)
{
	uint64_t *node = calloc(nodes_of(in), sizeof(*node)), most = 0;
	int span = 0;

	if (!node)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory for %u nodes",
			    nodes_of(in));
	for (size_t i = 0; i < in->n; i++) {
		const dicomm_tensor_t *t = &in->tensors[i];

		add_boxes(in, t, t->source, t->sources, node);
		add_boxes(in, t, t->target, t->targets, node);
	}
	for (uint32_t n = 0; n < nodes_of(in); n++)
		if (node[n] > CACHED_BYTES * cores(in, p, n))
			most = larger(most, node[n]);
	free(node);
	while (span < MEMORY_SPANS - 1 && most > memory->bytes[span])
		span++;
	if (most && memory->bytes_per_s[span])
		p->copy_bytes_per_s = p->bytes_per_s =
			memory->bytes_per_s[span];
	return DICOMM_SUCCESS;
}

static bool make_hop(struct hop *h, const struct ways_input *in, bool pairs)
{
	size_t ranks = (size_t)in->ranks, nodes = nodes_of(in);
	size_t islands = in->links ? in->links->islands : 0;

	h->out = calloc(5 * ranks + 3 * nodes + 2 * islands, sizeof(*h->out));
	if (!h->out)
		return false;
	h->in = h->out + ranks;
	h->far_out = h->in + ranks;
	h->far_in = h->far_out + ranks;
	h->messages = h->far_in + ranks;
	h->node_out = h->messages + ranks;
	h->node_in = h->node_out + nodes;
	h->node_near = h->node_in + nodes;
	h->island_out = h->node_near + nodes;
	h->island_in = h->island_out + islands;
	if (!pairs || ranks > PAIRS_RANKS)
		return true;
	h->met = calloc(ranks * ranks / 8 + 1, 1);
	return h->met;
}

static bool make_sum(struct sum *s, const struct ways_input *in)
{
	size_t all = (size_t)in->ranks + nodes_of(in);
	uint64_t *work = calloc(PHASES * all, sizeof(*work));

	s->in = in;
	for (int i = 0; i < PHASES && work; i++) {
		s->work[i] = work + (size_t)i * all;
		s->node_work[i] = s->work[i] + in->ranks;
	}
	return work && make_hop(&s->hop[FIRST], in, true) &&
	       make_hop(&s->hop[SECOND], in, true) &&
	       make_hop(&s->hop[BOTH], in, false);
}

static void free_sum(struct sum *s)
{
	for (int h = 0; h < HOPS; h++) {
		free(s->hop[h].out);
		free(s->hop[h].met);
	}
	free(s->work[0]);
}

dicomm_result_t cost_of_ways(const struct ways_input *in,
			     const struct estimate_params *params,
			     const struct memory_rates *memory,
			     uint64_t staging, struct cost out[WAYS])
{
	struct estimate_params adapted = *params;
	static const struct ways_fns fns = {deliver, keep};
	struct sum s[WAYS] = {{.in = in}};
	dicomm_result_t status = DICOMM_SUCCESS;

	for (int w = 1; w < WAYS; w++)
		if (!make_sum(&s[w], in))
			status = FAIL(DICOMM_ERR_NO_MEMORY,
				      "redistribute: no memory for what %d "
				      "ranks send",
				      in->ranks);
	if (status == DICOMM_SUCCESS)
		status = adapt(&adapted, in, memory);
	if (status == DICOMM_SUCCESS)
		status = ways_walk(in, (1 << WAYS) - 2, true, &fns, s);
	out[0] = (struct cost){.ps = COST_UNKNOWN};
	for (int w = 1; w < WAYS; w++) {
		if (status == DICOMM_SUCCESS)
			finish(&s[w], &adapted, staging, &out[w]);
		free_sum(&s[w]);
	}
	return status;
}
