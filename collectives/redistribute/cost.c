/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds up the deliveries of a way, and predicts its time. */
#include "collectives/redistribute/cost.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/base/type.h"

#define PS_PER_S UINT64_C(1000000000000)
/* With more ranks than this, messages are not counted by pairs of ranks. */
#define PAIRS_RANKS 8192

/* Hops of a way: to the owners, and from these to the other ranks; and both
 * together. */
enum { FIRST, SECOND, BOTH, HOPS };

/* What a hop puts on each resource, in bytes */
struct hop {
	uint64_t *out, *in;         /* [rank]: all that it sends and receives */
	uint64_t *far_out, *far_in; /* [rank]: between nodes */
	uint64_t *node_out, *node_in;     /* [node]: across its link */
	uint64_t *island_out, *island_in; /* [island]: across its link */
	uint64_t *messages;               /* [rank]: number sent and received */
	/* Bit [from * ranks + to]: these ranks exchange messages. */
	uint8_t *met;
	uint64_t bytes;
};

struct sum {
	const struct ways_input *in;
	struct hop hop[HOPS];
	uint64_t *work; /* [rank]: bytes copied and added */
	uint64_t *node_work;
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

static void add_work(struct sum *s, int rank, uint64_t bytes)
{
	s->work[rank] += bytes;
	s->node_work[node_of(s->in, rank)] += bytes;
}

static void load(const struct links *l, struct hop *hop, int from, int to,
		 uint64_t bytes)
{
	uint32_t out = l ? l->node_of[from] : 0, in = l ? l->node_of[to] : 0;

	hop->out[from] += bytes;
	hop->in[to] += bytes;
	hop->bytes += bytes;
	if (out == in)
		return;
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
	add_work(s, from, bytes);
	add_work(s, to, bytes);
	if (node_of(s->in, from) != node_of(s->in, to))
		s->between += bytes;
	if (!hop->met || hop->met[bit / 8] >> bit % 8 & 1)
		return;
	hop->met[bit / 8] |= (uint8_t)(1 << bit % 8);
	for (int i = 0; i < 2; i++) {
		hop->messages[i ? from : to]++;
		s->hop[BOTH].messages[i ? from : to]++;
	}
	s->pairs++;
}

static uint64_t bytes_of(const struct ways_delivery *d)
{
	const dicomm_tensor_t *t = d->overlay->tensor;

	return boxes_elements(d->lo, d->hi, t->axes) * type_bytes(t->type);
}

static dicomm_result_t deliver(void *ctx, const struct ways_delivery *d)
{
	struct sum *s = (struct sum *)ctx + d->way;
	uint64_t bytes = bytes_of(d);

	for (int t = 0; t < d->terms; t++)
		if (d->from[t].rank != d->owner.rank)
			send(s, FIRST, d->from[t].rank, d->owner.rank, bytes);
	if (d->adds)
		add_work(s, d->owner.rank, bytes * (uint64_t)d->terms);
	for (uint32_t i = 0; i < d->nothers; i++)
		send(s, SECOND, d->owner.rank, d->others[i].rank, bytes);
	return DICOMM_SUCCESS;
}

static dicomm_result_t keep(void *ctx, const struct ways_delivery *d)
{
	struct sum *s = (struct sum *)ctx + d->way;

	add_work(s, d->owner.rank, bytes_of(d));
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
	if (!links_matter(l))
		ps = larger(ps, time_of(hop->bytes,
					p->bytes_per_s * cores(s->in, p, 0)));
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

static void finish(const struct sum *s, const struct estimate_params *p,
		   uint64_t staging, struct cost *out)
{
	uint64_t first = hop_ps(s, p, FIRST), second = hop_ps(s, p, SECOND);
	uint64_t both = hop_ps(s, p, BOTH), work = 0, rounds, most = 0;
	const struct hop *all = &s->hop[BOTH];

	*out = (struct cost){.bytes = all->bytes,
			     .between_nodes = s->between,
			     .pairs = s->pairs};
	for (int r = 0; r < s->in->ranks; r++) {
		out->most_sent = larger(out->most_sent, all->out[r]);
		out->most_received = larger(out->most_received, all->in[r]);
		work = larger(work, time_of(s->work[r], p->copy_bytes_per_s));
	}
	for (uint32_t n = 0; n < nodes_of(s->in); n++)
		work = larger(work, time_of(s->node_work[n],
					    p->copy_bytes_per_s *
						    cores(s->in, p, n)));
	/* From the second round on, both hops run at the same time; what they
	 * have in common then carries the bytes of both. */
	most = larger(out->most_sent, out->most_received);
	rounds = staging ? 1 + most / staging : 1;
	out->ps = first + second + work;
	if (first + second > both)
		out->ps = both + (first + second - both) / rounds + work;
}

static bool make_hop(struct hop *h, const struct ways_input *in, bool pairs)
{
	size_t ranks = (size_t)in->ranks, nodes = nodes_of(in);
	size_t islands = in->links ? in->links->islands : 0;

	h->out = calloc(5 * ranks + 2 * nodes + 2 * islands, sizeof(*h->out));
	if (!h->out)
		return false;
	h->in = h->out + ranks;
	h->far_out = h->in + ranks;
	h->far_in = h->far_out + ranks;
	h->messages = h->far_in + ranks;
	h->node_out = h->messages + ranks;
	h->node_in = h->node_out + nodes;
	h->island_out = h->node_in + nodes;
	h->island_in = h->island_out + islands;
	if (!pairs || ranks > PAIRS_RANKS)
		return true;
	h->met = calloc(ranks * ranks / 8 + 1, 1);
	return h->met;
}

static bool make_sum(struct sum *s, const struct ways_input *in)
{
	s->in = in;
	s->work = calloc((size_t)in->ranks + nodes_of(in), sizeof(*s->work));
	s->node_work = s->work + in->ranks;
	return s->work && make_hop(&s->hop[FIRST], in, true) &&
	       make_hop(&s->hop[SECOND], in, true) &&
	       make_hop(&s->hop[BOTH], in, false);
}

static void free_sum(struct sum *s)
{
	for (int h = 0; h < HOPS; h++) {
		free(s->hop[h].out);
		free(s->hop[h].met);
	}
	free(s->work);
}

dicomm_result_t cost_of_ways(const struct ways_input *in,
			     const struct estimate_params *params,
			     uint64_t staging, struct cost out[WAYS])
{
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
		status = ways_walk(in, (1 << WAYS) - 2, true, &fns, s);
	out[0] = (struct cost){.ps = COST_UNKNOWN};
	for (int w = 1; w < WAYS; w++) {
		if (status == DICOMM_SUCCESS)
			finish(&s[w], params, staging, &out[w]);
		free_sum(&s[w]);
	}
	return status;
}
