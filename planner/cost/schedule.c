/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates pipelines, event by event. */
#include "planner/cost/schedule.h"

#include <math.h>
#include <stdlib.h>

#include "planner/cost/order.h"

enum what { FORWARD, BACKWARD, WEIGHT, TAKE, GIVE, TAKE_BACK, GIVE_BACK };

/* What a team of devices does next, and for which of its stages. */
struct op {
	int stage, micro_batch;
	enum what what;
};

/* A team: it does one thing at a time. */
struct actor {
	struct op *op; /* [ops] */
	int ops, at;
	double now;
	bool waits; /* for the other side of a message */
	bool gives; /* the result of the pass before `at`, when its time comes
		     */
	int pipeline;
	int stage, teams; /* it has stages `stage`, stage + teams, ... */
	/* [chunk * micro-batches + micro-batch] */
	double *came;      /* activation; INFINITY: not yet */
	double *came_back; /* gradient */
};

struct simulation {
	struct schedule_pipeline *pipeline;
	bool splits;         /* backward passes: ZB-H1 */
	struct actor *actor; /* of pipeline p from first[p] on */
	int *first;
	int actors;
	int *heap, heaped; /* actors that may go on, earliest first */
	double *up, *down; /* [node]: when the way is free */
	double *out, *in;  /* [island]: likewise */
	bool blocking;
	bool eager; /* who gives is held, who takes is not */
	schedule_tell *tell;
	void *ctx;
};

/* ---- the order of a stage's work ---- */

static void push_op(struct actor *a, enum what what, int micro_batch)
{
	a->op[a->ops++] = (struct op){a->stage, micro_batch, what};
}

/*
 * 1F1B: in step i of 2 (m + n - 1), stages take forward and backward passes in
 * turn, neighbours the opposite ones. Between two passes a stage gives away the
 * result of the one and takes the input of the next; both neighbours name their
 * messages in the same order, so that blocking ones meet.
 */
static void order_1f1b(struct actor *a, int n, int m)
{
	int s = a->stage, before = -1;

	for (int i = 0; i < 2 * (m + n - 1); i++) {
		bool forward = (i + s) % 2 == 0;
		/* Of stage s, forward passes begin in step s, and backward ones
		 * in step 2 n - 1 - s. */
		int k = forward ? (i - s) / 2 : (i - (2 * n - 1 - s)) / 2;
		bool good =
			forward ? i >= s && k < m : i >= 2 * n - 1 - s && k < m;

		if (forward && before >= 0 && s > 0)
			push_op(a, GIVE_BACK, before);
		if (forward && good && s > 0)
			push_op(a, TAKE, k);
		if (!forward && good && s < n - 1)
			push_op(a, TAKE_BACK, k);
		if (!forward && before >= 0 && s < n - 1)
			push_op(a, GIVE, before);
		if (good)
			push_op(a, forward ? FORWARD : BACKWARD, k);
		before = good ? k : -1;
	}
	if (before >= 0 && s > 0)
		push_op(a, GIVE_BACK, before);
}

/* More passes forward before the first one back. Messages hold nobody, so that
 * what a stage gives needs no place in the order. */
static void order_ahead(struct actor *a, int n, int m, int ahead)
{
	int depth = 1 + (n - 1 - a->stage) * (1 + ahead);

	for (int k = 0; k < m + depth; k++) {
		if (k >= depth) {
			if (a->stage < n - 1)
				push_op(a, TAKE_BACK, k - depth);
			push_op(a, BACKWARD, k - depth);
		}
		if (k >= m)
			continue;
		if (a->stage > 0)
			push_op(a, TAKE, k);
		push_op(a, FORWARD, k);
	}
}

static void order_gpipe(struct actor *a, int n, int m)
{
	int s = a->stage;

	for (int k = 0; k < m; k++) {
		if (s > 0)
			push_op(a, TAKE, k);
		push_op(a, FORWARD, k);
		if (s < n - 1)
			push_op(a, GIVE, k);
	}
	for (int k = m - 1; k >= 0; k--) {
		if (s < n - 1)
			push_op(a, TAKE_BACK, k);
		push_op(a, BACKWARD, k);
		if (s > 0)
			push_op(a, GIVE_BACK, k);
	}
}

/* Gradients of weights are put off by as many passes as memory has room for. */
static void order_zb_h1(struct actor *a, int n, int m)
{
	int s = a->stage, ahead = n - s < m ? n - s : m;

	for (int k = 0; k < m + ahead; k++) {
		if (k >= ahead) {
			if (s < n - 1)
				push_op(a, TAKE_BACK, k - ahead);
			push_op(a, BACKWARD, k - ahead);
			if (s > 0)
				push_op(a, GIVE_BACK, k - ahead);
			if (k - ahead >= s)
				push_op(a, WEIGHT, k - ahead - s);
		}
		if (k >= m)
			continue;
		if (s > 0)
			push_op(a, TAKE, k);
		push_op(a, FORWARD, k);
		if (s < n - 1)
			push_op(a, GIVE, k);
	}
	for (int k = m > s ? m - s : 0; k < m; k++)
		push_op(a, WEIGHT, k);
}

/* Of n stages. */
static void order_chunks(struct actor *a, int n, int m)
{
	int chunks = n / a->teams;

	for (int k = 0; k < 2 * chunks * m; k++) {
		struct order_pass x =
			order_interleaved(a->stage, a->teams, chunks, m, k);
		int s = x.chunk * a->teams + a->stage;
		struct op op = {s, x.micro_batch, FORWARD};

		if (x.forward ? s > 0 : s < n - 1) {
			op.what = x.forward ? TAKE : TAKE_BACK;
			a->op[a->ops++] = op;
		}
		op.what = x.forward ? FORWARD : BACKWARD;
		a->op[a->ops++] = op;
		if (x.forward ? s < n - 1 : s > 0) {
			op.what = x.forward ? GIVE : GIVE_BACK;
			a->op[a->ops++] = op;
		}
	}
}

/* ---- the earliest actor ---- */

static bool before(const struct simulation *s, int a, int b)
{
	double x = s->actor[a].now, y = s->actor[b].now;

	return x < y || (x == y && a < b);
}

static void heap_push(struct simulation *s, int a)
{
	int i = s->heaped++;

	while (i > 0 && before(s, a, s->heap[(i - 1) / 2])) {
		s->heap[i] = s->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	s->heap[i] = a;
}

static int heap_pop(struct simulation *s)
{
	int top = s->heap[0], last = s->heap[--s->heaped], i = 0;

	for (;;) {
		int child = 2 * i + 1;

		if (child >= s->heaped)
			break;
		if (child + 1 < s->heaped &&
		    before(s, s->heap[child + 1], s->heap[child]))
			child++;
		if (!before(s, s->heap[child], last))
			break;
		s->heap[i] = s->heap[child];
		i = child;
	}
	if (s->heaped > 0)
		s->heap[i] = last;
	return top;
}

/* ---- what happens ---- */

static void show(const struct simulation *s, const struct actor *a, char what,
		 struct op op, double begin, double end)
{
	struct schedule_event e = {a->pipeline, op.stage, op.micro_batch,
				   what,        begin,    end};

	if (s->tell)
		s->tell(&e, s->ctx);
}

static struct schedule_stage *stage_of(const struct simulation *s,
				       const struct actor *a, struct op op)
{
	return &s->pipeline[a->pipeline].stage[op.stage];
}

/* Who has the stage after that of op, or the one before it. */
static struct actor *neighbour(const struct simulation *s,
			       const struct actor *a, struct op op, bool after)
{
	int stage = after ? op.stage + 1 : op.stage - 1;

	return &s->actor[s->first[a->pipeline] + stage % a->teams];
}

/* Where such a message is waited for: its activation or gradient. */
static double *came_to(const struct simulation *s, struct actor *a, int stage,
		       int micro_batch, bool forward)
{
	int at = stage / a->teams * s->pipeline[a->pipeline].micro_batches +
		 micro_batch;

	return forward ? &a->came[at] : &a->came_back[at];
}

/* When a message may begin that is ready at `ready`; takes the ways. The
 * boundary's cost is with the stage before it. */
static double book(struct simulation *s, const struct schedule_stage *from,
		   const struct schedule_stage *to, bool forward, double ready)
{
	const struct schedule_stage *lower = forward ? from : to;
	double way = forward ? lower->send_way : lower->back_way;
	double out = forward ? lower->send_out : lower->back_out;
	double in = forward ? lower->send_in : lower->back_in;
	double begin = ready;

	if (from->node == to->node || way <= 0)
		return begin;
	begin = fmax(begin, fmax(s->up[from->node], s->down[to->node]));
	if (from->island == to->island) {
		s->up[from->node] = s->down[to->node] = begin + way;
		return begin;
	}
	if (out > 0)
		begin = fmax(begin, s->out[from->island]);
	if (in > 0)
		begin = fmax(begin, s->in[to->island]);
	s->up[from->node] = s->down[to->node] = begin + way;
	s->out[from->island] = fmax(s->out[from->island], begin + out);
	s->in[to->island] = fmax(s->in[to->island], begin + in);
	return begin;
}

/* An activation goes from the stage of op on, or a gradient back. */
static double send(struct simulation *s, const struct actor *a, bool forward,
		   struct op op, double ready)
{
	struct schedule_stage *st = stage_of(s, a, op);
	struct schedule_stage *to = forward ? st + 1 : st - 1;
	double begin = book(s, st, to, forward, ready);
	double end = begin + (forward ? st->send : to->back);

	show(s, a, forward ? 's' : 'g', op, begin, end);
	return end;
}

static double seconds_of(const struct simulation *s,
			 const struct schedule_stage *st, struct op op)
{
	if (op.what == FORWARD)
		return st->forward;
	if (op.what == WEIGHT)
		return st->weight;
	return s->splits ? st->backward - st->weight : st->backward;
}

static void compute(struct simulation *s, struct actor *a, struct op op)
{
	struct schedule_stage *st = stage_of(s, a, op);
	bool forward = op.what == FORWARD;
	double seconds = seconds_of(s, st, op);
	double begin = a->now;

	a->now += seconds;
	st->busy += seconds;
	if (!forward)
		st->end = a->now;
	show(s, a,
	     forward               ? 'F'
	     : op.what == BACKWARD ? 'B'
				   : 'W',
	     op, begin, a->now);
	a->gives = op.what != WEIGHT && !s->blocking && !s->eager;
}

static void wake(struct simulation *s, struct actor *a)
{
	if (!a->waits)
		return;
	a->waits = false;
	heap_push(s, (int)(a - s->actor));
}

/* Not before the pass is over, so that messages queue in the order of time. */
static void give(struct simulation *s, struct actor *a, struct op op)
{
	bool forward = op.what == FORWARD;

	int to = forward ? op.stage + 1 : op.stage - 1;
	struct actor *b;

	a->gives = false;
	if (to < 0 || to >= s->pipeline[a->pipeline].stages)
		return;
	b = neighbour(s, a, op, forward);
	*came_to(s, b, to, op.micro_batch, forward) =
		send(s, a, forward, op, a->now);
	wake(s, b);
}

/* Both are there: they go on together when it is through. */
static bool meet(struct simulation *s, struct actor *a, struct op op)
{
	static const enum what other[] = {
		[TAKE] = GIVE,
		[GIVE] = TAKE,
		[TAKE_BACK] = GIVE_BACK,
		[GIVE_BACK] = TAKE_BACK,
	};
	bool later = op.what == GIVE || op.what == TAKE_BACK;
	struct actor *b = later ? a + 1 : a - 1, *sender;
	bool forward = op.what == GIVE || op.what == TAKE;
	struct op theirs;
	double end, ready;

	if (b->at >= b->ops)
		return false;
	theirs = b->op[b->at];
	if (theirs.what != other[op.what] ||
	    theirs.micro_batch != op.micro_batch || !b->waits)
		return false;
	sender = op.what == GIVE || op.what == GIVE_BACK ? a : b;
	ready = fmax(a->now + stage_of(s, a, op)->side,
		     b->now + stage_of(s, b, theirs)->side);
	end = send(s, sender, forward, sender == a ? op : theirs, ready);
	stage_of(s, a, op)->moving += end - a->now;
	stage_of(s, b, theirs)->moving += end - b->now;
	a->now = b->now = end;
	a->at++;
	b->at++;
	wake(s, b);
	return true;
}

/* The way out is taken by who gives, whatever the other side does. What has
 * room on this side holds nobody. */
static void push(struct simulation *s, struct actor *a, struct op op)
{
	bool forward = op.what == GIVE;
	struct actor *b = neighbour(s, a, op, forward);
	struct schedule_stage *st = stage_of(s, a, op);
	double seconds = forward ? st->send : st[-1].back;
	double room = forward ? st->send_room : st[-1].back_room;
	double end = send(s, a, forward, op, a->now + st->side);
	double gone = end - seconds * room;

	st->moving += gone - a->now;
	a->now = gone;
	*came_to(s, b, forward ? op.stage + 1 : op.stage - 1, op.micro_batch,
		 forward) = end;
	wake(s, b);
}

/* False: it waits for another one. */
static bool step(struct simulation *s, struct actor *a)
{
	struct op op;
	double came;

	if (a->gives)
		give(s, a, a->op[a->at - 1]);
	if (a->at >= a->ops)
		return true;
	op = a->op[a->at];
	if (op.what == FORWARD || op.what == BACKWARD || op.what == WEIGHT) {
		compute(s, a, op);
		a->at++;
		return true;
	}
	if (s->blocking)
		return meet(s, a, op);
	if (op.what == TAKE || op.what == TAKE_BACK) {
		came = *came_to(s, a, op.stage, op.micro_batch,
				op.what == TAKE);
		if (isinf(came))
			return false;
		a->now = fmax(a->now, came);
		if (s->eager) {
			a->now += stage_of(s, a, op)->side;
			stage_of(s, a, op)->moving += stage_of(s, a, op)->side;
		}
	} else if (s->eager) {
		push(s, a, op);
	}
	a->at++; /* what it gives has begun when the pass was over */
	return true;
}

static void run(struct simulation *s)
{
	for (int i = 0; i < s->actors; i++)
		heap_push(s, i);
	while (s->heaped > 0) {
		struct actor *a = &s->actor[heap_pop(s)];

		if (a->at >= a->ops && !a->gives)
			continue;
		if (step(s, a))
			heap_push(s, (int)(a - s->actor));
		else
			a->waits = true;
	}
}

/* ---- from beginning to end ---- */

static int teams_of(const struct schedule_pipeline *l)
{
	return l->stages / (l->interleave > 1 ? l->interleave : 1);
}

static void order(const struct simulation *s, struct actor *a,
		  enum plan_schedule schedule)
{
	const struct schedule_pipeline *l = &s->pipeline[a->pipeline];

	if (schedule == PLAN_GPIPE)
		order_gpipe(a, l->stages, l->micro_batches);
	else if (schedule == PLAN_ZB_H1)
		order_zb_h1(a, l->stages, l->micro_batches);
	else if (a->teams < l->stages)
		order_chunks(a, l->stages, l->micro_batches);
	else if (l->ahead && !s->blocking && !s->eager)
		order_ahead(a, l->stages, l->micro_batches, l->ahead);
	else
		order_1f1b(a, l->stages, l->micro_batches);
}

static bool prepare(struct simulation *s, int pipelines, uint32_t places,
		    enum plan_schedule schedule)
{
	int n = 0;

	for (int p = 0; p < pipelines; p++) {
		s->first[p] = n;
		n += teams_of(&s->pipeline[p]);
	}
	s->actors = n;
	s->actor = calloc((size_t)n, sizeof(*s->actor));
	s->heap = calloc((size_t)n + 1, sizeof(*s->heap));
	s->up = calloc(places, 4 * sizeof(*s->up));
	if (s->up) {
		s->down = s->up + places;
		s->out = s->down + places;
		s->in = s->out + places;
	}
	if (!s->actor || !s->heap || !s->up)
		return false;
	for (int p = 0; p < pipelines; p++) {
		struct schedule_pipeline *l = &s->pipeline[p];
		int teams = teams_of(l);
		size_t m = (size_t)(l->micro_batches * (l->stages / teams));

		for (int i = 0; i < l->stages; i++)
			l->stage[i].end = l->stage[i].busy =
				l->stage[i].moving = 0;
		for (int i = 0; i < teams; i++) {
			struct actor *a = &s->actor[s->first[p] + i];

			a->pipeline = p;
			a->stage = i;
			a->teams = teams;
			a->op = malloc(7 * m * sizeof(*a->op));
			a->came = malloc(2 * m * sizeof(*a->came));
			if (!a->op || !a->came)
				return false;
			a->came_back = a->came + m;
			for (size_t k = 0; k < 2 * m; k++)
				a->came[k] = INFINITY;
			order(s, a, schedule);
		}
	}
	return true;
}

double schedule_run(struct schedule_pipeline *pipeline, int pipelines,
		    uint32_t places, enum plan_schedule schedule,
		    enum plan_overlap overlap, schedule_tell *tell, void *ctx)
{
	struct simulation s = {.pipeline = pipeline,
			       .blocking = overlap == PLAN_BLOCKING,
			       .eager = overlap == PLAN_EAGER,
			       .splits = schedule == PLAN_ZB_H1,
			       .tell = tell,
			       .ctx = ctx};
	double end = NAN;

	s.first = calloc((size_t)pipelines, sizeof(*s.first));
	if (s.first && prepare(&s, pipelines, places, schedule)) {
		run(&s);
		end = 0;
		for (int i = 0; i < s.actors; i++) {
			end = fmax(end, s.actor[i].now);
			if (s.actor[i].at < s.actor[i].ops)
				end = NAN; /* never: they wait in a circle */
		}
	}
	for (int i = 0; s.actor && i < s.actors; i++) {
		free(s.actor[i].op);
		free(s.actor[i].came);
	}
	free(s.first);
	free(s.actor);
	free(s.heap);
	free(s.up);
	return end;
}
