/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds up the deliveries of a way, and predicts its time. */
#include "collectives/redistribute/cost.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/base/type.h"

#define PS_PER_S UINT64_C(1000000000000)
/* With more ranks than this, messages are not counted by pairs of ranks. */
#define PAIRS_RANKS 8192

/* One of the two hops of a way: to the owners, and from these to the other
 * ranks. */
struct hop {
	uint64_t *out, *in;           /* [rank]: bytes */
	uint64_t *node_out, *node_in; /* [node]: bytes across its link */
	/* Bit [from * ranks + to]: these ranks exchange messages. */
	uint8_t *met;
	uint64_t *messages; /* [rank]: number sent and received */
	uint64_t bytes;
};

struct sum {
	const struct ways_input *in;
	struct hop hop[2];
	uint64_t *work; /* [rank]: bytes copied and added */
	uint64_t work_bytes, between, pairs;
};

static uint32_t nodes_of(const struct ways_input *in)
{
	return in->links ? in->links->nodes : 1;
}

static void send(struct sum *s, int h, int from, int to, uint64_t bytes)
{
	struct hop *hop = &s->hop[h];
	const struct links *l = s->in->links;
	size_t bit = (size_t)from * (size_t)s->in->ranks + (size_t)to;

	hop->out[from] += bytes;
	hop->in[to] += bytes;
	hop->bytes += bytes;
	s->work[from] += bytes;
	s->work[to] += bytes;
	s->work_bytes += 2 * bytes;
	if (l && l->node_of[from] != l->node_of[to]) {
		hop->node_out[l->node_of[from]] += bytes;
		hop->node_in[l->node_of[to]] += bytes;
		s->between += bytes;
	}
	if (!hop->met || hop->met[bit / 8] >> bit % 8 & 1)
		return;
	hop->met[bit / 8] |= (uint8_t)(1 << bit % 8);
	hop->messages[from]++;
	hop->messages[to]++;
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
			send(s, 0, d->from[t].rank, d->owner.rank, bytes);
	if (d->adds) {
		s->work[d->owner.rank] += bytes * (uint64_t)d->terms;
		s->work_bytes += bytes * (uint64_t)d->terms;
	}
	for (uint32_t i = 0; i < d->nothers; i++)
		send(s, 1, d->owner.rank, d->others[i].rank, bytes);
	return DICOMM_SUCCESS;
}

static dicomm_result_t keep(void *ctx, const struct ways_delivery *d)
{
	struct sum *s = (struct sum *)ctx + d->way;

	s->work[d->owner.rank] += bytes_of(d);
	s->work_bytes += bytes_of(d);
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
		      const struct estimate_params *p)
{
	uint64_t ranks = p->node_ranks ? p->node_ranks : (uint64_t)in->ranks;

	return p->node_cores && p->node_cores < ranks ? p->node_cores : ranks;
}

static uint64_t hop_ps(const struct sum *s, const struct estimate_params *p,
		       int h)
{
	const struct links *l = s->in->links;
	const struct hop *hop = &s->hop[h];
	uint64_t ps = 0, latency = p->latency_ps;

	if (!hop->bytes)
		return 0;
	for (int r = 0; r < s->in->ranks; r++) {
		uint64_t rate = p->bytes_per_s;

		if (l && links_node(l, l->node_of[r])->inside)
			rate = links_node(l, l->node_of[r])->inside;
		ps = larger(ps, time_of(larger(hop->out[r], hop->in[r]), rate) +
					hop->messages[r] * p->per_message_ps);
	}
	if (!links_matter(l))
		ps = larger(ps, time_of(hop->bytes,
					p->bytes_per_s * cores(s->in, p)));
	for (uint32_t n = 0; l && n < l->nodes; n++) {
		const struct links_class *c = links_node(l, n);

		if (hop->node_out[n] || hop->node_in[n])
			latency = larger(latency, c->latency_ps);
		ps = larger(ps, time_of(hop->node_out[n], c->nic.up));
		ps = larger(ps, time_of(hop->node_in[n], c->nic.down));
	}
	return ps + latency;
}

static void finish(const struct sum *s, const struct estimate_params *p,
		   uint64_t staging, struct cost *out)
{
	uint64_t first = hop_ps(s, p, 0), second = hop_ps(s, p, 1), work = 0;
	uint64_t rounds, most = 0;

	*out = (struct cost){.bytes = s->hop[0].bytes + s->hop[1].bytes,
			     .between_nodes = s->between,
			     .pairs = s->pairs};
	for (int r = 0; r < s->in->ranks; r++) {
		out->most_sent = larger(out->most_sent,
					s->hop[0].out[r] + s->hop[1].out[r]);
		out->most_received = larger(out->most_received,
					    s->hop[0].in[r] + s->hop[1].in[r]);
		work = larger(work, time_of(s->work[r], p->copy_bytes_per_s));
	}
	if (!links_matter(s->in->links))
		work = larger(work,
			      time_of(s->work_bytes,
				      p->copy_bytes_per_s * cores(s->in, p)));
	/* From the second round on, both hops run at the same time. */
	most = larger(out->most_sent, out->most_received);
	rounds = staging ? 1 + most / staging : 1;
	out->ps = larger(first, second) +
		  (first < second ? first : second) / rounds + work;
}

static bool make_hop(struct hop *h, const struct ways_input *in)
{
	size_t ranks = (size_t)in->ranks, nodes = nodes_of(in);

	h->out = calloc(3 * ranks + 2 * nodes, sizeof(*h->out));
	if (!h->out)
		return false;
	h->in = h->out + ranks;
	h->messages = h->in + ranks;
	h->node_out = h->messages + ranks;
	h->node_in = h->node_out + nodes;
	if (ranks > PAIRS_RANKS)
		return true;
	h->met = calloc(ranks * ranks / 8 + 1, 1);
	return h->met;
}

static bool make_sum(struct sum *s, const struct ways_input *in)
{
	s->in = in;
	s->work = calloc((size_t)in->ranks, sizeof(*s->work));
	return s->work && make_hop(&s->hop[0], in) && make_hop(&s->hop[1], in);
}

static void free_sum(struct sum *s)
{
	for (int h = 0; h < 2; h++) {
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
