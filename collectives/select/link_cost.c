/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/select/link_cost.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/log.h"

#define PS_PER_S UINT64_C(1000000000000)
#define LONGEST (UINT64_MAX / 2)
#define COUNTED (UINT64_C(1) << LINK_COST_SHIFT)
/*
 * Flows that share a link slow each other down: the bytes of all flows but the
 * largest one count 1/CROWD more. Measured: three equal flows take 1.07 times
 * as long as one, seven take 1.11 times as long.
 *
 * A flow that is alone on its own link loses as much if it shares the link at
 * the other end: a flow to a slow host beside two flows to fast ones takes 1.03
 * to 1.15 times as long. This holds only for operations with a root. Where each
 * rank needs something from each other rank, fast ranks keep to the pace of
 * slow ones (docs/uneven-links.md).
 */
#define CROWD 8
/* CPU time for a message that leaves or enters the node. */
#define FAR_MESSAGE_PS 2000000
/* The latency between nodes where it is not known. */
#define LATENCY_PS 20000000

typedef unsigned __int128 wide;

/* The flows that cross a link in one direction. A flow is what one rank sends
 * to one other. */
struct load {
	uint64_t bytes, largest; /* of all flows; of the largest flow */
	uint32_t node;           /* at the other end of the largest flow */
};

struct crossing {
	struct load up, down;
};

struct count {
	const struct estimate_params *e;
	const struct shape *s;
	const struct links *l;
	uint64_t block_bytes;
	struct crossing *node, *island;
	/* [node]: the sum over all its ranks */
	uint64_t *bytes_ps, *message_ps;
	/* The last span that was measured, and its length in bytes. */
	uint32_t taken, parts, nblocks;
	uint64_t length;
	/* Counters of the current rank, in bytes. near: within its node; far:
	 * to and from other nodes. */
	uint32_t node_of_rank;
	uint64_t near_in, near_out, far_in, far_out, reduced, copied;
	uint64_t near, far; /* number of messages */
	uint64_t *flow;     /* [rank]: bytes that it gets */
	uint32_t *met;      /* the ranks on other nodes that get something */
	uint32_t nmet;
};

static uint64_t divided(uint64_t all, uint32_t taken, uint32_t parts)
{
	uint64_t product;

	if (taken == parts)
		return all;
	if (!__builtin_mul_overflow(all, (uint64_t)taken, &product))
		return product / parts;
	return (uint64_t)((wide)all * taken / parts);
}

/* Returns the length of a span in bytes. This is called millions of times,
 * mostly for a span that is as long as the one before; it divides only where it
 * must. */
static uint64_t length(struct count *t, uint32_t nblocks, uint32_t taken,
		       uint32_t parts)
{
	if (taken != t->taken || parts != t->parts || nblocks != t->nblocks) {
		t->taken = taken;
		t->parts = parts;
		t->nblocks = nblocks;
		t->length = divided(t->block_bytes * nblocks, taken, parts);
	}
	return t->length;
}

static void count_send(struct count *t, int peer, uint64_t n)
{
	const struct links *l = t->l;

	if (l->node_of[peer] == t->node_of_rank) {
		t->near_out += n;
		t->near++;
		return;
	}
	t->far++;
	t->far_out += n;
	if (!n)
		return;
	if (!t->flow[peer])
		t->met[t->nmet++] = (uint32_t)peer;
	t->flow[peer] += n;
}

static void count_recv(struct count *t, int peer, uint64_t n)
{
	if (t->l->node_of[peer] == t->node_of_rank) {
		t->near_in += n;
		t->near++;
	} else {
		t->far_in += n;
		t->far++;
	}
}

static void count_step(void *ctx, enum step_kind kind, int peer,
		       uint32_t nblocks, uint32_t taken, uint32_t parts)
{
	struct count *t = ctx;
	uint64_t n = length(t, nblocks, taken, parts);

	switch (kind) {
	case STEP_SEND:
		count_send(t, peer, n);
		return;
	case STEP_RECV:
		count_recv(t, peer, n);
		return;
	case STEP_RECV_REDUCE:
		count_recv(t, peer, n);
		t->reduced += n;
		return;
	case STEP_COPY:
		t->copied += n;
		return;
	default:
		t->reduced += n;
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

static void add_flow(struct load *w, uint32_t node, uint64_t n)
{
	w->bytes += n;
	if (n > w->largest) {
		w->largest = n;
		w->node = node;
	}
}

/* Adds what the current rank sends to other nodes to the links on the way. */
static void add_flows(struct count *t)
{
	const struct links *l = t->l;
	uint32_t from = l->node_of[t->s->rank];

	for (uint32_t i = 0; i < t->nmet; i++) {
		uint32_t to = l->node_of[t->met[i]];
		uint64_t *n = &t->flow[t->met[i]];

		add_flow(&t->node[from].up, to, *n);
		add_flow(&t->node[to].down, from, *n);
		if (l->island_of[from] != l->island_of[to]) {
			add_flow(&t->island[l->island_of[from]].up, to, *n);
			add_flow(&t->island[l->island_of[to]].down, from, *n);
		}
		*n = 0;
	}
	t->nmet = 0;
}

static struct estimate_params params_of(const struct count *t, uint32_t node)
{
	struct estimate_params e = *t->e;

	estimate_params_of_node(&e, links_node(t->l, node));
	return e;
}

/* The time in which the current rank moves its bytes within its node. */
static uint64_t bytes_ps(const struct count *t)
{
	struct estimate_params e = params_of(t, t->node_of_rank);
	uint64_t more = t->near_in > t->near_out ? t->near_in : t->near_out;
	uint64_t ps = transfer_ps(more, e.bytes_per_s);

	ps = sum_ps(ps, transfer_ps(t->reduced, e.reduce_bytes_per_s));
	return sum_ps(ps, transfer_ps(t->copied, e.copy_bytes_per_s));
}

/* The time in which the current rank exchanges its bytes with other nodes at
 * its own share of the node's link. */
static uint64_t part_ps(const struct count *t)
{
	uint64_t more = t->far_in > t->far_out ? t->far_in : t->far_out;
	uint64_t rate = links_node(t->l, t->node_of_rank)->rank;

	return rate ? transfer_ps(more, rate) : 0;
}

static uint64_t message_ps(const struct count *t)
{
	return t->near * t->e->per_message_ps + t->far * FAR_MESSAGE_PS;
}

/* The time that a flow loses to `others` bytes of other flows that share a link
 * with it. */
static uint64_t lost_ps(uint64_t others, uint64_t rate)
{
	return rate ? transfer_ps(others / CROWD, rate) : 0;
}

/* Raises *most to the time of one direction of a link. `there` is the link at
 * the other end of the largest flow. */
static void raise_by_way(const struct count *t, uint64_t *most,
			 const struct load *w, uint64_t rate,
			 const struct load *there, uint64_t rate_there)
{
	uint64_t lost;

	if (!rate || !w->bytes)
		return;
	lost = lost_ps(w->bytes - w->largest, rate);
	if (coll_rooted(t->s->coll))
		raise_to(&lost, lost_ps(there->bytes - w->largest, rate_there));
	raise_to(most, sum_ps(transfer_ps(w->bytes, rate), lost));
}

static void raise_by_pipe(const struct count *t, uint64_t *most,
			  const struct crossing *c,
			  const struct links_pipe *pipe)
{
	uint32_t to = c->up.node, from = c->down.node;

	raise_by_way(t, most, &c->up, pipe->up, &t->node[to].down,
		     links_node(t->l, to)->nic.down);
	raise_by_way(t, most, &c->down, pipe->down, &t->node[from].up,
		     links_node(t->l, from)->nic.up);
}

static void sum_up(const struct count *t, struct link_cost *out)
{
	const struct links *l = t->l;
	uint32_t cores = t->e->node_cores;
	uint64_t all_ps = 0, near_ps = 0;

	for (uint32_t n = 0; n < l->nodes; n++) {
		const struct links_class *c = links_node(l, n);
		uint64_t rate = links_slower(
			links_slower(c->nic.up, c->nic.down), c->rank);

		if (!rate)
			rate = t->e->bytes_per_s;
		all_ps = sum_ps(all_ps, transfer_ps(COUNTED, rate));
		near_ps = sum_ps(
			near_ps,
			transfer_ps(COUNTED, params_of(t, n).bytes_per_s));
		raise_by_pipe(t, &out->pipe_ps, &t->node[n], &c->nic);
		raise_to(&out->latency_ps, c->latency_ps);
		if (!cores || l->ranks_of[n] <= cores)
			continue;
		raise_to(&out->rank_ps, t->bytes_ps[n] / cores);
		raise_to(&out->message_ps, t->message_ps[n] / cores);
	}
	for (uint32_t i = 0; i < l->islands; i++)
		raise_by_pipe(t, &out->pipe_ps, &t->island[i], &l->island[i]);
	out->hop_ps = all_ps / l->nodes;
	out->near_hop_ps = near_ps / l->nodes;
	if (!out->latency_ps)
		out->latency_ps = LATENCY_PS;
}

static dicomm_result_t count_rank(struct count *t, const struct algorithm *a,
				  struct link_cost *out)
{
	uint32_t node = t->l->node_of[t->s->rank];

	t->node_of_rank = node;
	t->near_in = t->near_out = t->far_in = t->far_out = 0;
	t->reduced = t->copied = t->near = t->far = 0;
	TRY(algorithm_tell(a, t->s, count_step, t));
	add_flows(t);
	raise_to(&out->pipe_ps, part_ps(t));
	raise_to(&out->rank_ps, bytes_ps(t));
	raise_to(&out->message_ps, message_ps(t));
	t->bytes_ps[node] = sum_ps(t->bytes_ps[node], bytes_ps(t));
	t->message_ps[node] += message_ps(t);
	return DICOMM_SUCCESS;
}

static dicomm_result_t count_all(const struct estimate_params *e,
				 const struct algorithm *a,
				 const struct shape *s, struct link_cost *out)
{
	const struct links *l = s->links;
	struct shape each = *s;
	struct count t = {.e = e, .s = &each, .l = l};
	dicomm_result_t status = DICOMM_SUCCESS;

	*out = (struct link_cost){.pipe_ps = 0};
	/* In a v-collective, this is the average. */
	t.block_bytes = coll_has_blocks(s->coll) ? COUNTED / (uint64_t)s->ranks
						 : COUNTED;
	t.node = calloc((size_t)l->nodes + l->islands, sizeof(*t.node));
	t.bytes_ps =
		calloc(2 * (size_t)l->nodes + l->ranks, sizeof(*t.bytes_ps));
	t.met = malloc(l->ranks * sizeof(*t.met));
	if (!t.node || !t.bytes_ps || !t.met) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "estimate: no memory for %u nodes", l->nodes);
		goto out;
	}
	t.island = t.node + l->nodes;
	t.message_ps = t.bytes_ps + l->nodes;
	t.flow = t.message_ps + l->nodes;
	/* These properties do not change what is sent. The memo does not tell
	 * them apart, so the result must not depend on them. */
	each.in_place = each.prescale = each.postdivide = false;
	for (each.rank = 0; each.rank < s->ranks; each.rank++) {
		status = count_rank(&t, a, out);
		if (status != DICOMM_SUCCESS)
			goto out;
	}
	sum_up(&t, out);
out:
	free(t.node);
	free(t.bytes_ps);
	free(t.met);
	return status;
}

/* About as many algorithms as a collective with a root has in the registry. */
#define ROOTED 4

/* Returns where the link cost of an algorithm is kept. Several costs may share
 * a place, but those of one collective for a few roots next to each other do
 * not. */
static struct links_memo *memo_of(const struct estimate_params *e,
				  const struct algorithm *a,
				  const struct shape *s, uint64_t *key)
{
	const struct algorithm *const *at = algorithms;

	*key = hash_bytes(HASH_START, e, sizeof(*e));
	*key = hash_bytes(*key, &s->root, sizeof(s->root));
	while (*at && *at != a)
		at++;
	return &s->links->memos
			->memo[(uint64_t)(at - algorithms + ROOTED * s->root) %
			       LINKS_MEMOS];
}

dicomm_result_t link_cost_of(const struct estimate_params *e,
			     const struct algorithm *a, const struct shape *s,
			     struct link_cost *out)
{
	/* One thread may explain a choice while another one chooses. */
	pthread_mutex_t *lock = &s->links->memos->lock;
	struct links_memo *memo;
	uint64_t key;
	bool known;

	_Static_assert(sizeof(*out) <= sizeof(memo->value), "too large");
	memo = memo_of(e, a, s, &key);
	pthread_mutex_lock(lock);
	known = memo->what == a && memo->key == key;
	if (known)
		memcpy(out, memo->value, sizeof(*out));
	pthread_mutex_unlock(lock);
	if (known)
		return DICOMM_SUCCESS;
	TRY(count_all(e, a, s, out));
	pthread_mutex_lock(lock);
	memo->what = a;
	memo->key = key;
	memcpy(memo->value, out, sizeof(*out));
	pthread_mutex_unlock(lock);
	return DICOMM_SUCCESS;
}

uint64_t link_cost_scaled(uint64_t ps, uint64_t bytes)
{
	wide scaled = ((wide)ps * bytes + COUNTED - 1) >> LINK_COST_SHIFT;

	/* A rate of 0 takes forever, however few bytes there are. */
	if (ps == LONGEST && bytes)
		return LONGEST;
	return scaled < LONGEST ? (uint64_t)scaled : LONGEST;
}
