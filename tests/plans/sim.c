/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated ranks: pair rings, random delivery, random turns. */
#include "tests/plans/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON 0xdeadbeefdeadbeefu

enum state { FREE, IN_FLIGHT, ARRIVED };

struct sim_message {
	enum state state;
	uint64_t number;
	size_t n;
	const uint64_t *at; /* own, or the sender's memory */
	uint64_t *own;
	size_t room; /* elements of it */
	uint64_t arrives_ps;
	bool consumed; /* but an older one is not */
};

static bool wrong(struct sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool wrong(struct sim *sim, const char *format, ...)
{
	va_list ap;

	if (sim->why[0])
		return false;
	va_start(ap, format);
	vsnprintf(sim->why, sizeof(sim->why), format, ap);
	va_end(ap);
	return false;
}

static unsigned random_below(struct sim *sim, unsigned n)
{
	sim->seed = sim->seed * 1103515245u + 12345u;
	return (sim->seed >> 8) % n;
}

static size_t slice_elements(const struct sim *sim, const struct plan *p)
{
	return p->whole || sim->slice > sim->longest ? sim->longest
						     : sim->slice;
}

struct resolved {
	uint64_t *at;
	size_t n;
};

static bool resolve_scratch(struct sim_rank *r, struct span s, uint64_t slice,
			    struct resolved *out)
{
	struct sim *sim = r->sim;
	size_t e = slice_elements(sim, &r->plan);
	size_t len = sim->like_len ? sim->like_len[s.like] : sim->longest;
	size_t begin = slice * e < len ? slice * e : len;
	size_t first, n;

	if (s.block + s.nblocks > r->plan.scratch_blocks)
		return wrong(sim, "rank %d: scratch block %u of %u", r->number,
			     s.block + s.nblocks - 1, r->plan.scratch_blocks);
	len = len - begin < e ? len - begin : e;
	plan_split(len, s.lo, s.hi, s.parts, sim->align, &first, &n);
	out->at = r->scratch +
		  (slice % sim->window * r->plan.scratch_blocks + s.block) * e +
		  first;
	out->n = s.nblocks == 1 ? n : s.nblocks * e;
	return true;
}

static bool resolve(struct sim_rank *r, struct span s, uint64_t slice,
		    struct resolved *out)
{
	struct sim *sim = r->sim;
	size_t e = slice_elements(sim, &r->plan);
	const struct sim_buffer *b;
	size_t begin, len, first, n;

	if (s.nblocks != 1 && (!r->plan.whole || s.parts != 1))
		return wrong(sim, "rank %d: %u blocks in a sliced plan",
			     r->number, s.nblocks);
	if (s.lo >= s.hi || s.hi > s.parts)
		return wrong(sim, "rank %d: parts [%u, %u) of %u", r->number,
			     s.lo, s.hi, s.parts);
	if (s.buffer == PLAN_SCRATCH)
		return resolve_scratch(r, s, slice, out);
	b = &r->buffer[s.buffer];
	if (!b->base || s.block + s.nblocks > b->blocks)
		return wrong(sim,
			     "rank %d: block %u of the %u in its %s buffer",
			     r->number, s.block + s.nblocks - 1, b->blocks,
			     s.buffer == PLAN_SEND ? "send" : "receive");
	if (s.nblocks > 1) {
		out->at = b->base + b->off[s.block];
		out->n = s.nblocks * sim->longest;
		return true;
	}
	len = b->len[s.block];
	begin = slice * e < len ? slice * e : len;
	len = len - begin < e ? len - begin : e;
	plan_split(len, s.lo, s.hi, s.parts, sim->align, &first, &n);
	out->at = b->base + b->off[s.block] + begin + first;
	out->n = n;
	return true;
}

static struct sim_message *message(struct sim *sim, int from, int to,
				   uint64_t number)
{
	size_t pair = (size_t)from * (size_t)sim->ranks + (size_t)to;

	return &sim->messages[pair * sim->credits + number % sim->credits];
}

static uint64_t *released(struct sim *sim, int from, int to)
{
	return &sim->released[from * sim->ranks + to];
}

/* A message of no elements is not sent, but its number passes. */
static void consume(struct sim *sim, int from, int to, uint64_t number)
{
	struct sim_message *m = message(sim, from, to, number);

	m->consumed = true;
	m->number = number;
	while ((m = message(sim, from, to, *released(sim, from, to)))
		       ->consumed &&
	       m->number == *released(sim, from, to)) {
		m->consumed = false;
		m->state = FREE;
		++*released(sim, from, to);
	}
}

static enum schedule_result send_slice(struct sim_rank *r,
				       const struct step *step,
				       struct resolved a, uint64_t number,
				       bool may_refer)
{
	struct sim *sim = r->sim;
	struct sim_message *m = message(sim, r->number, step->peer, number);

	if (a.n == 0)
		return SCHEDULE_DONE;
	if (number >= *released(sim, r->number, step->peer) + sim->credits)
		return SCHEDULE_AGAIN;
	if (m->state != FREE) {
		wrong(sim, "rank %d to %d: two messages in a slot", r->number,
		      step->peer);
		return SCHEDULE_FAILED;
	}
	m->state = IN_FLIGHT;
	if (sim->cost) {
		r->clock_ps += sim->cost->per_message_ps;
		m->arrives_ps = r->clock_ps + sim->cost->latency_ps;
	}
	m->number = number;
	m->n = a.n;
	m->at = a.at;
	if (may_refer && random_below(sim, 100) < sim->references)
		return SCHEDULE_POSTED;
	if (m->room < a.n) {
		free(m->own);
		m->own = malloc(a.n * sizeof(*m->own));
		m->room = a.n;
	}
	memcpy(m->own, a.at, a.n * sizeof(*m->own));
	m->at = m->own;
	return SCHEDULE_DONE;
}

static uint64_t ps_of(size_t elements, uint64_t bytes_per_s)
{
	return elements * sizeof(uint64_t) * 1000000 / (bytes_per_s / 1000000);
}

static void spend_on_message(struct sim_rank *r, const struct step *step,
			     size_t n)
{
	const struct estimate_params *cost = r->sim->cost;
	struct sim_rank *from = &r->sim->rank[step->peer];

	if (!cost)
		return;
	if (r->clock_ps < from->out_free_ps)
		r->clock_ps = from->out_free_ps;
	r->clock_ps += ps_of(n, cost->bytes_per_s);
	from->out_free_ps = r->clock_ps;
	r->clock_ps += cost->per_message_ps;
	if (step->kind == STEP_RECV_REDUCE)
		r->clock_ps += ps_of(n, cost->reduce_bytes_per_s);
}

static void spend_on_step(struct sim_rank *r, const struct step *step, size_t n)
{
	const struct estimate_params *cost = r->sim->cost;

	if (!cost)
		return;
	if (step->kind == STEP_FOLD)
		r->clock_ps +=
			(step->nfold - 1) * ps_of(n, cost->reduce_bytes_per_s);
	else
		r->clock_ps += ps_of(n, cost->copy_bytes_per_s);
}

static enum schedule_result recv_slice(struct sim_rank *r,
				       const struct step *step,
				       struct resolved dst, struct resolved a,
				       uint64_t number)
{
	struct sim *sim = r->sim;
	struct sim_message *m = message(sim, step->peer, r->number, number);

	if (dst.n == 0) {
		if (number >=
		    *released(sim, step->peer, r->number) + sim->credits)
			return SCHEDULE_AGAIN;
		if (m->state != FREE) {
			wrong(sim, "rank %d: stray message from %d", r->number,
			      step->peer);
			return SCHEDULE_FAILED;
		}
		consume(sim, step->peer, r->number, number);
		return SCHEDULE_DONE;
	}
	if (sim->cost && m->state == IN_FLIGHT && m->arrives_ps <= r->clock_ps)
		m->state = ARRIVED;
	if (m->state != ARRIVED || m->number != number || m->consumed)
		return SCHEDULE_AGAIN;
	if (m->n != dst.n) {
		wrong(sim, "rank %d sent %zu elements, %d expects %zu",
		      step->peer, m->n, r->number, dst.n);
		return SCHEDULE_FAILED;
	}
	spend_on_message(r, step, dst.n);
	for (size_t i = 0; i < dst.n; i++)
		dst.at[i] = step->kind == STEP_RECV
				    ? m->at[i]
				    : sim->op(a.at[i], m->at[i]);
	consume(sim, step->peer, r->number, number);
	return SCHEDULE_DONE;
}

static bool fold_slice(struct sim_rank *r, const struct step *step,
		       struct resolved dst, uint64_t slice)
{
	struct resolved in[64];
	struct span s;

	for (uint32_t k = 0; k < step->nfold; k++) {
		s = step->b;
		s.block += k;
		if (!resolve(r, (int)k == r->number ? step->a : s, slice,
			     &in[k]))
			return false;
		if (in[k].n != dst.n)
			return wrong(r->sim, "rank %d: fold of unequal spans",
				     r->number);
	}
	for (size_t i = 0; i < dst.n; i++) {
		uint64_t sum = in[0].at[i];

		for (uint32_t k = 1; k < step->nfold; k++)
			sum = r->sim->op(sum, in[k].at[i]);
		dst.at[i] = sum;
	}
	return true;
}

static bool local_slice(struct sim_rank *r, const struct step *step,
			struct resolved dst, struct resolved a,
			struct resolved b, uint64_t slice)
{
	spend_on_step(r, step, dst.n);
	if (step->kind == STEP_FOLD)
		return fold_slice(r, step, dst, slice);
	if (a.n != dst.n || (step->kind == STEP_REDUCE && b.n != dst.n))
		return wrong(r->sim, "rank %d: a step of unequal spans",
			     r->number);
	if (step->kind == STEP_COPY) {
		memmove(dst.at, a.at, dst.n * sizeof(*dst.at));
		return true;
	}
	for (size_t i = 0; i < dst.n; i++)
		dst.at[i] = step->kind == STEP_REDUCE
				    ? r->sim->op(a.at[i], b.at[i])
			    : step->kind == STEP_SCALE
				    ? r->sim->scale(a.at[i])
				    : a.at[i] / (uint64_t)r->sim->ranks;
	return true;
}

static bool uses_a(const struct step *s)
{
	return s->kind != STEP_RECV;
}

static enum schedule_result do_slice(struct sim_rank *r,
				     const struct step *step, uint64_t slice,
				     uint64_t number, bool may_refer)
{
	struct resolved dst = {0}, a = {0}, b = {0};

	if ((step->kind != STEP_SEND && !resolve(r, step->dst, slice, &dst)) ||
	    (uses_a(step) && !resolve(r, step->a, slice, &a)) ||
	    (step->kind == STEP_REDUCE && !resolve(r, step->b, slice, &b)))
		return SCHEDULE_FAILED;
	if (step->kind == STEP_SEND)
		return send_slice(r, step, a, number, may_refer);
	if (step->kind == STEP_RECV_REDUCE && a.n != dst.n) {
		wrong(r->sim, "rank %d: a step of unequal spans", r->number);
		return SCHEDULE_FAILED;
	}
	if (step->peer >= 0)
		return recv_slice(r, step, dst, a, number);
	return local_slice(r, step, dst, a, b, slice) ? SCHEDULE_DONE
						      : SCHEDULE_FAILED;
}

static enum schedule_result io_start(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	struct sim_rank *r = ctx;

	(void)s;
	return do_slice(r, step, slice, number, true);
}

/* Even a send that was copied counts as unfinished until it is consumed, if
 * an older one is: that is the latest that the contract allows. */
static enum schedule_result io_finished(void *ctx, const struct step *step,
					uint32_t s, uint64_t slice,
					uint64_t number)
{
	struct sim_rank *r = ctx;
	struct resolved a;

	(void)s;
	if (!resolve(r, step->a, slice, &a))
		return SCHEDULE_FAILED;
	return a.n == 0 || number < *released(r->sim, r->number, step->peer)
		       ? SCHEDULE_DONE
		       : SCHEDULE_AGAIN;
}

static const struct schedule_io io = {.start = io_start,
				      .finished = io_finished};

static bool deliver(struct sim *sim, unsigned percent)
{
	size_t n = (size_t)sim->ranks * (size_t)sim->ranks * sim->credits;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		if (sim->messages[i].state == IN_FLIGHT &&
		    random_below(sim, 100) < percent) {
			sim->messages[i].state = ARRIVED;
			any = true;
		}
	}
	return any;
}

/* The two sides of each pair count the same messages. */
static bool check_counts(struct sim *sim)
{
	for (int i = 0; i < sim->ranks; i++) {
		const struct plan *p = &sim->rank[i].plan;

		for (int j = 0; j < sim->ranks; j++)
			if (p->sends_to[j] != sim->rank[j].plan.recvs_from[i])
				return wrong(sim,
					     "rank %d sends %u, %d expects %u",
					     i, p->sends_to[j], j,
					     sim->rank[j].plan.recvs_from[i]);
	}
	return true;
}

static bool begin(struct sim *sim)
{
	size_t pairs = (size_t)sim->ranks * (size_t)sim->ranks;

	sim->why[0] = '\0';
	sim->messages = calloc(pairs * sim->credits, sizeof(*sim->messages));
	sim->released = calloc(pairs, sizeof(*sim->released));
	for (int i = 0; i < sim->ranks; i++) {
		struct sim_rank *r = &sim->rank[i];
		size_t e = slice_elements(sim, &r->plan);
		size_t n = sim->window * r->plan.scratch_blocks * e;

		r->sim = sim;
		r->number = i;
		r->next = 0;
		r->slices = e > 0 ? (sim->longest + e - 1) / e : 0;
		r->scratch = malloc(n * sizeof(*r->scratch) + 1);
		for (size_t k = 0; k < n; k++)
			r->scratch[k] = POISON;
	}
	return check_counts(sim);
}

static bool end(struct sim *sim)
{
	size_t n = (size_t)sim->ranks * (size_t)sim->ranks * sim->credits;

	for (size_t i = 0; i < n; i++) {
		if (sim->messages[i].state != FREE)
			wrong(sim, "a message was not received");
		free(sim->messages[i].own);
	}
	free(sim->messages);
	free(sim->released);
	for (int i = 0; i < sim->ranks; i++)
		free(sim->rank[i].scratch);
	return !sim->why[0];
}

/* All ranks, in random order; *all is set if every one has finished. */
static bool turn_all(struct sim *sim, unsigned budget, bool *all)
{
	int offset = (int)random_below(sim, (unsigned)sim->ranks);
	int step = random_below(sim, 2) ? 1 : sim->ranks - 1;
	bool progressed = false;

	*all = true;
	for (int i = 0; i < sim->ranks; i++) {
		struct sim_rank *r =
			&sim->rank[(offset + i * step) % sim->ranks];
		enum schedule_result result;

		if (budget < 100 && random_below(sim, 3) == 0) {
			*all = false;
			continue;
		}
		result = schedule_turn(&r->schedule, &io, r, budget,
				       &progressed);
		if (result == SCHEDULE_FAILED) {
			wrong(sim, "rank %d failed", r->number);
			return false;
		}
		if (result != SCHEDULE_DONE)
			*all = false;
	}
	return progressed;
}

static void stuck(struct sim *sim)
{
	for (int i = 0; i < sim->ranks; i++) {
		struct schedule *sc = &sim->rank[i].schedule;

		if (sc->first < sc->plan->nsteps)
			wrong(sim, "deadlock: rank %d at step %u of %u", i,
			      sc->first, sc->plan->nsteps);
	}
}

bool sim_run(struct sim *sim)
{
	bool all = false;

	if (!begin(sim))
		return end(sim);
	for (int i = 0; i < sim->ranks; i++) {
		struct sim_rank *r = &sim->rank[i];

		memset(&r->schedule, 0, sizeof(r->schedule));
		if (schedule_begin(&r->schedule, &r->plan, r->slices,
				   sim->window) != DICOMM_SUCCESS)
			wrong(sim, "no memory");
	}
	while (!all && !sim->why[0]) {
		deliver(sim, 40);
		if (turn_all(sim, 1 + random_below(sim, 8), &all))
			continue;
		/* Chance, or for good? */
		if (!deliver(sim, 100) && !turn_all(sim, 1000, &all) && !all) {
			stuck(sim);
			break;
		}
	}
	for (int i = 0; i < sim->ranks; i++)
		schedule_free(&sim->rank[i].schedule);
	return end(sim);
}

static bool advance(struct sim_rank *r)
{
	const struct plan *p = &r->plan;
	bool moved = false;

	while (r->next < p->nsteps) {
		const struct step *s = &p->steps[r->next];

		if (do_slice(r, s, 0, s->pair_index, false) != SCHEDULE_DONE)
			break;
		r->next++;
		moved = true;
	}
	return moved;
}

bool sim_run_in_order(struct sim *sim)
{
	bool moved = true;

	if (!begin(sim))
		return end(sim);
	while (moved && !sim->why[0]) {
		moved = deliver(sim, 60);
		for (int i = 0; i < sim->ranks; i++)
			if (sim->rank[i].slices > 0)
				moved |= advance(&sim->rank[i]);
		if (!moved)
			moved = deliver(sim, 100);
	}
	for (int i = 0; i < sim->ranks; i++)
		if (sim->rank[i].slices > 0 &&
		    sim->rank[i].next < sim->rank[i].plan.nsteps)
			wrong(sim,
			      "deadlock in order: rank %d at step %u of %u", i,
			      sim->rank[i].next, sim->rank[i].plan.nsteps);
	return end(sim);
}

static bool finished(const struct sim_rank *r)
{
	return r->schedule.first == r->plan.nsteps;
}

static uint64_t turn_ps(const struct sim_rank *r)
{
	return r->waiting ? r->wakes_ps : r->clock_ps;
}

/* The rank whose turn it is; NULL when all have finished. */
static struct sim_rank *earliest(struct sim *sim)
{
	struct sim_rank *best = NULL;

	for (int i = 0; i < sim->ranks; i++) {
		struct sim_rank *r = &sim->rank[i];

		if (!finished(r) && (!best || turn_ps(r) < turn_ps(best)))
			best = r;
	}
	return best;
}

/* Nothing to do until a message arrives. */
static void fall_asleep(struct sim_rank *r)
{
	struct sim *sim = r->sim;

	r->waiting = true;
	r->wakes_ps = UINT64_MAX;
	for (int i = 0; i < sim->ranks; i++) {
		for (uint32_t k = 0; k < sim->credits; k++) {
			const struct sim_message *m =
				message(sim, i, r->number, k);

			if (m->state == IN_FLIGHT &&
			    m->arrives_ps > r->clock_ps &&
			    m->arrives_ps < r->wakes_ps)
				r->wakes_ps = m->arrives_ps;
		}
	}
}

/* A rank has done something, which others may have waited for. */
static void wake_others(struct sim_rank *r)
{
	for (int i = 0; i < r->sim->ranks; i++) {
		struct sim_rank *other = &r->sim->rank[i];

		if (other->waiting && r->clock_ps < other->wakes_ps)
			other->wakes_ps = r->clock_ps;
	}
}

static void timed_turn(struct sim_rank *r)
{
	bool progressed = false;

	if (r->waiting && r->clock_ps < r->wakes_ps)
		r->clock_ps = r->wakes_ps;
	r->waiting = false;
	if (schedule_turn(&r->schedule, &io, r, 1, &progressed) ==
	    SCHEDULE_FAILED)
		wrong(r->sim, "rank %d failed", r->number);
	if (progressed)
		wake_others(r);
	else
		fall_asleep(r);
}

bool sim_run_timed(struct sim *sim, const struct estimate_params *cost,
		   uint64_t *ps)
{
	struct sim_rank *r;

	sim->cost = cost;
	if (!begin(sim))
		return end(sim);
	for (int i = 0; i < sim->ranks; i++) {
		r = &sim->rank[i];
		memset(&r->schedule, 0, sizeof(r->schedule));
		r->clock_ps = r->out_free_ps = 0;
		r->waiting = false;
		if (schedule_begin(&r->schedule, &r->plan, r->slices,
				   sim->window) != DICOMM_SUCCESS)
			wrong(sim, "no memory");
	}
	while ((r = earliest(sim)) && !sim->why[0]) {
		if (turn_ps(r) == UINT64_MAX)
			stuck(sim);
		else
			timed_turn(r);
	}
	*ps = 0;
	for (int i = 0; i < sim->ranks; i++) {
		if (*ps < sim->rank[i].clock_ps)
			*ps = sim->rank[i].clock_ps;
		schedule_free(&sim->rank[i].schedule);
	}
	sim->cost = NULL;
	return end(sim);
}
