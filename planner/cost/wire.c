/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs of messages, by the links of the cluster. */
#include "planner/cost/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "src/base/hash.h"

/* Of a kernel that starts, and of a device that copies and reduces where the
 * description of the cluster does not say: those of a recent GPU, order of
 * magnitude only, as both are small beside the transfers. */
#define HOP_PS UINT64_C(8000000)
#define LOCAL_BYTES_PER_S UINT64_C(1000000000000)
#define SLOT_BYTES (UINT32_C(1) << 20)
#define PLENTY 1e15

bool wire_open(struct wire *w, const struct fleet *f)
{
	*w = (struct wire){.fleet = f, .room = 1 << 12};
	w->memo = calloc(w->room, sizeof(*w->memo));
	if (!w->memo)
		return false;
	pthread_mutex_init(&w->lock, NULL);
	return true;
}

void wire_close(struct wire *w)
{
	if (w->memo)
		pthread_mutex_destroy(&w->lock);
	free(w->memo);
	w->memo = NULL;
}

/* ---- what is remembered ---- */

static struct wire_memo *find(struct wire_memo *memo, size_t room, uint64_t key)
{
	size_t i = key & (room - 1);

	while (memo[i].key && memo[i].key != key)
		i = (i + 1) & (room - 1);
	return &memo[i];
}

static bool recall(struct wire *w, uint64_t key, double *seconds)
{
	struct wire_memo *m;

	pthread_mutex_lock(&w->lock);
	m = find(w->memo, w->room, key);
	if (m->key)
		*seconds = m->seconds;
	pthread_mutex_unlock(&w->lock);
	return m->key;
}

static void grow(struct wire *w)
{
	struct wire_memo *larger = calloc(w->room * 2, sizeof(*larger));

	if (!larger)
		return;
	for (size_t i = 0; i < w->room; i++)
		if (w->memo[i].key)
			*find(larger, w->room * 2, w->memo[i].key) = w->memo[i];
	free(w->memo);
	w->memo = larger;
	w->room *= 2;
}

static void remember(struct wire *w, uint64_t key, double seconds)
{
	struct wire_memo *m;

	pthread_mutex_lock(&w->lock);
	if (w->used * 2 > w->room)
		grow(w);
	m = find(w->memo, w->room, key);
	if (!m->key && w->used * 2 <= w->room) {
		*m = (struct wire_memo){key, seconds};
		w->used++;
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- collectives ---- */

/* Each node is as wide as the ranks that one stands for, and its way as narrow
 * as those are that share it: once, as how many of its ranks take part is what
 * the estimator counts itself. */
static void adjust(struct links *l, const int *width, const int *others)
{
	for (uint32_t i = 0; i < l->nodes; i++) {
		uint32_t begin = l->node_begin[i], end = l->node_begin[i + 1];
		uint32_t node = l->node_of[l->path[begin]];
		struct links_class *c = &l->class[l->class_of[node]];
		int wide = width ? width[l->path[begin]] : 1, most = 1;
		uint64_t n;

		for (uint32_t k = begin; k < end; k++) {
			uint32_t r = l->path[k];

			if (width && width[r] < wide)
				wide = width[r];
			if (others && others[r] > most)
				most = others[r];
		}
		c->rank *= (uint64_t)wide;
		c->inside *= (uint64_t)wide;
		c->reduce *= (uint64_t)wide;
		n = (uint64_t)most;
		c->nic.up = (c->nic.up + n - 1) / n;
		c->nic.down = (c->nic.down + n - 1) / n;
	}
}

static double least_seconds(struct links *l, enum coll coll, bool ring,
			    double bytes)
{
	struct select_table table = {
		.params = {.latency_ps = HOP_PS,
			   .bytes_per_s = LOCAL_BYTES_PER_S,
			   .reduce_bytes_per_s = LOCAL_BYTES_PER_S,
			   .copy_bytes_per_s = LOCAL_BYTES_PER_S,
			   .slot_bytes = SLOT_BYTES}};
	struct shape shape = {.coll = coll,
			      .ranks = (int)l->ranks,
			      .root = coll_rooted(coll) ? 0 : -1,
			      .links = l};
	uint64_t least = SELECT_NEVER, ps;

	if (l->nodes == 1)
		estimate_params_of_node(&table.params,
					&l->class[l->class_of[0]]);
	for (int i = 0; algorithms[i]; i++) {
		if (algorithms[i]->coll != coll ||
		    (ring && strcmp(algorithms[i]->name, "ring")))
			continue;
		if (select_predict(&table, &shape, (uint64_t)bytes,
				   algorithms[i], &ps) != DICOMM_SUCCESS)
			return NAN;
		if (ps < least)
			least = ps;
	}
	return least == SELECT_NEVER ? NAN : (double)least * 1e-12;
}

double wire_collective(struct wire *w, int op, const uint32_t *rank,
		       const int *width, const int *others, int n, double bytes)
{
	static const enum coll colls[] = {COLL_ALLREDUCE, COLL_REDUCE_SCATTER,
					  COLL_ALLGATHER, COLL_ALLTOALL};
	uint64_t asked = (uint64_t)bytes, key;
	enum coll coll = colls[op & ~WIRE_RING];
	struct links *l;
	double seconds = 0;

	if (n < 2 || asked == 0)
		return 0;
	if (links_part(w->fleet->links, (uint32_t)n, rank, &l) !=
	    DICOMM_SUCCESS)
		return NAN;
	/* links_part() gives each node a class of its own. */
	adjust(l, width, others);
	key = links_hash(l);
	key = hash_bytes(key, &op, sizeof(op));
	key = hash_bytes(key, &asked, sizeof(asked));
	key += !key;
	if (!recall(w, key, &seconds)) {
		seconds = least_seconds(l, coll, op & WIRE_RING, bytes);
		remember(w, key, seconds);
	}
	links_free(l);
	return seconds;
}

/* ---- from stage to stage ---- */

static double or_plenty(uint64_t rate)
{
	return rate ? (double)rate : PLENTY;
}

/* Of the ways that all flows from one node to another share. */
static double way_rate(const struct links *l, uint32_t from, uint32_t to)
{
	double rate = fmin(or_plenty(links_node(l, from)->nic.up),
			   or_plenty(links_node(l, to)->nic.down));

	if (l->island_of[from] == l->island_of[to])
		return rate;
	rate = fmin(rate, or_plenty(l->island[l->island_of[from]].up));
	return fmin(rate, or_plenty(l->island[l->island_of[to]].down));
}

/* Of messages between islands. */
static void take_islands(const struct links *l, uint32_t from, uint32_t to,
			 double bytes, struct wire_transfer *t)
{
	const struct links_pipe *a = &l->island[l->island_of[from]];
	const struct links_pipe *b = &l->island[l->island_of[to]];

	if (a == b)
		return;
	t->out = a->up ? bytes / (double)a->up : 0;
	t->in = b->down ? bytes / (double)b->down : 0;
}

static double pair_rate(const struct links *l, uint32_t from, uint32_t to,
			int pairs)
{
	const struct links_class *a = links_node(l, from);
	const struct links_class *b = links_node(l, to);

	if (from == to)
		return pairs * or_plenty(a->inside);
	return fmin(way_rate(l, from, to),
		    pairs * fmin(or_plenty(a->rank), or_plenty(b->rank)));
}

double wire_rate(const struct wire *w, uint32_t from, uint32_t to)
{
	const struct links *l = w->fleet->links;

	return pair_rate(l, l->node_of[from], l->node_of[to], 1);
}

struct wire_transfer wire_boundary(const struct wire *w, const uint32_t *from,
				   int senders, const uint32_t *to,
				   int receivers, double bytes)
{
	const struct links *l = w->fleet->links;
	uint32_t a = l->node_of[from[0]], b = l->node_of[to[0]];
	int pairs = senders < receivers ? senders : receivers;
	double inside = or_plenty(links_node(l, b)->inside);
	double hop = a == b ? HOP_PS * 1e-12
			    : fmax((double)links_node(l, a)->latency_ps,
				   (double)links_node(l, b)->latency_ps) *
				      1e-12;
	/* Each receiver gets its part, then all gather; or the leader gets all,
	 * and passes it on while it comes in. */
	double gather = receivers > 1
				? HOP_PS * 1e-12 + bytes * (receivers - 1) /
							   receivers / inside
				: 0;
	double spread = hop + bytes / pair_rate(l, a, b, pairs) + gather;
	double leader = hop + bytes / pair_rate(l, a, b, 1) +
			(receivers > 1 ? HOP_PS * 1e-12 : 0);

	struct wire_transfer t = {.seconds = fmin(spread, leader),
				  .way = a == b ? 0 : bytes / way_rate(l, a, b),
				  .spread = spread < leader};

	take_islands(l, a, b, bytes, &t);
	return t;
}
