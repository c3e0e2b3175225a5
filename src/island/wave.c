/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that run together, step by step. */
#include "src/island/wave.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/fault.h"
#include "src/core/member.h"
#include "src/island/exchange.h"
#include "src/island/piece.h"
#include "src/island/steps.h"
#include "src/stream/batch.h"
#include "src/stream/driver.h"
#include "src/stream/request.h"
#include "src/stream/submit.h"

struct run {
	struct job whole;
	/* What is between islands is queued, or waited for, where it is made;
	 * otherwise a part of it begins and ends. */
	bool waits;
	size_t parts, count; /* elements of a block in each but the last */
	size_t scratch;      /* bytes for a part */
	struct island_part *part[ISLAND_LEAD + 1];
	struct exchange *exchange; /* of an all-to-all, or NULL */
	struct job now;            /* of the part that is worked on */
	/* What the vendor's library gets next for this call, and for which
	 * job; NULL: nothing */
	island_queue_fn *queue;
	struct job *queued;
	bool grouped; /* it was in the last group of these */
	int result;   /* of that: what the vendor's library said last */
	dicomm_result_t status;
};

struct wave {
	struct run *runs; /* in the order of by_name() */
	size_t n;
};

static void note(struct run *r, dicomm_result_t status)
{
	if (r->status == DICOMM_SUCCESS)
		r->status = status;
}

static bool is_good(const struct run *r)
{
	return r->status == DICOMM_SUCCESS;
}

/* ---- inside islands ---- */

static void take_vendor(struct run *r)
{
	struct island *is = r->whole.is;

	/* On the host its functions block, until the thread of the island
	 * aborts. */
	if (is->comm->dev)
		pthread_mutex_lock(&is->lock);
	r->queued->vendor = is->vendor;
	if (!r->queued->vendor || fault_is(is->comm))
		note(r, fault_report(is->comm));
}

/* Returns the communicator that has broken of those that the vendor's library
 * had in one group, or NULL. */
static struct dicomm_comm *broken_one(const struct wave *w)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].grouped && fault_is(w->runs[i].whole.is->comm))
			return w->runs[i].whole.is->comm;
	return NULL;
}

/* Why a group may wait for ever */
#define SAME_GROUPS                                                     \
	"; ranks that share communicators of a group have to draw the " \
	"same groups"

/* Functions of a group fail together. So this waits for the news of which one
 * did, and names that. */
static dicomm_result_t fail(const struct wave *w, struct island *is,
			    dicomm_result_t status)
{
	struct dicomm_comm *comm = is->comm;
	struct dicomm_comm *cause = NULL;
	uint64_t begin = clock_ms();
	long nap = ISLAND_NAP_NS;
	char text[512];

	while (w->n > 1 && !(cause = broken_one(w)) &&
	       clock_ms() - begin < FAULT_NEWS_MS)
		island_settle_nap(&nap);
	if (cause && !fault_is(comm)) {
		fault_text(cause, text, sizeof(text));
		status = (dicomm_result_t)atomic_load(&cause->fault.status);
		log_error("%s was in one group with %s, which broke: %.300s%s",
			  comm->name, cause->name, text,
			  status == DICOMM_ERR_TIMEOUT ? SAME_GROUPS : "");
	}
	if (status == DICOMM_ERR_TIMEOUT && !cause && !fault_is(comm))
		return island_settle_late(is, w->n > 1 ? SAME_GROUPS : "");
	return fault_own(comm, status, -1);
}

static void end_queued(const struct wave *w, struct run *r,
		       dicomm_result_t status)
{
	struct island *is = r->whole.is;

	if (is->comm->dev)
		pthread_mutex_unlock(&is->lock);
	if (fault_is(is->comm))
		status = fault_report(is->comm);
	else if (status != DICOMM_SUCCESS)
		status = fail(w, is, status);
	note(r, status);
	r->queue = NULL;
}

/* Ends those that are ready. Returns true if there are others. */
static bool look_at_all(struct wave *w, const struct vendor_functions *f,
			uint64_t begin, bool late)
{
	bool any = false;

	for (size_t i = 0; i < w->n; i++) {
		struct run *r = &w->runs[i];
		struct island *is = r->whole.is;
		dicomm_result_t status;

		if (!r->queue || r->whole.f != f)
			continue;
		status = island_settle_look(is, r->queued->vendor, &r->result,
					    r->queued->what, begin,
					    is->comm->timeout_ms);
		if (status == DICOMM_IN_PROGRESS && late)
			status = DICOMM_ERR_REMOTE;
		if (status == DICOMM_IN_PROGRESS)
			any = true;
		else
			end_queued(w, r, status);
	}
	return any;
}

/* If a communicator breaks, the others of the group get a moment to end, with
 * or without it: whoever aborts it waits for this. */
static void settle_all(struct wave *w, const struct vendor_functions *f,
		       int result)
{
	uint64_t begin = clock_ms(), broke = 0;
	long nap = ISLAND_NAP_NS;

	for (size_t i = 0; i < w->n; i++)
		w->runs[i].result = result;
	while (look_at_all(w, f, begin,
			   broke && clock_ms() - broke >= FAULT_NEWS_MS)) {
		if (!broke && broken_one(w))
			broke = clock_ms();
		island_settle_nap(&nap);
	}
}

/* One group of functions of one vendor's library */
static void queue_all(struct wave *w, const struct vendor_functions *f)
{
	int result = VENDOR_SUCCESS, ended = VENDOR_SUCCESS;
	bool any = false;

	for (size_t i = 0; i < w->n; i++) {
		struct run *r = &w->runs[i];

		r->grouped = false;
		if (!r->queue || r->whole.f != f)
			continue;
		take_vendor(r);
		r->grouped = is_good(r);
		any |= is_good(r);
		if (is_good(r))
			island_settle_note(r->whole.is, true);
		if (!is_good(r))
			end_queued(w, r, r->status);
	}
	if (any)
		result = f->group_start();
	any &= result == VENDOR_SUCCESS;
	for (size_t i = 0; i < w->n && result == VENDOR_SUCCESS; i++) {
		struct run *r = &w->runs[i];

		if (r->queue && r->whole.f == f)
			result = r->queue(r->queued);
	}
	if (any)
		ended = f->group_end();
	if (result == VENDOR_SUCCESS)
		result = ended;
	settle_all(w, f, result);
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].grouped)
			island_settle_note(w->runs[i].whole.is, false);
}

static void work_inside(struct wave *w)
{
	for (size_t i = 0; i < w->n; i++) {
		struct run *r = &w->runs[i];

		if (!is_good(r) || island_job_is_alone(&r->whole))
			r->queue = NULL;
	}
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].queue)
			queue_all(w, w->runs[i].whole.f);
}

/* ---- parts ---- */

static struct job part_of(const struct run *r, size_t nth)
{
	struct job j = r->whole;

	if (j.send)
		j.send += nth * r->count * j.elem;
	if (j.recv)
		j.recv += nth * r->count * j.elem;
	if (j.scratch)
		j.scratch += nth % (ISLAND_LEAD + 1) * r->scratch;
	j.count = nth + 1 < r->parts ? r->count : j.count - nth * r->count;
	return j;
}

static struct island_part **place_of(struct run *r, size_t nth)
{
	return &r->part[nth % (ISLAND_LEAD + 1)];
}

/* The part that ends in a turn; `parts`: none does */
static size_t ending(const struct run *r, size_t turn)
{
	size_t lead = r->waits ? 0 : ISLAND_LEAD;

	return turn >= lead && turn - lead < r->parts ? turn - lead : r->parts;
}

static size_t turns_of(const struct run *r)
{
	if (r->exchange)
		return island_exchange_turns(r->exchange);
	return r->parts + (r->waits ? 0 : ISLAND_LEAD);
}

static void choose_before(struct run *r, size_t turn)
{
	if (r->exchange) {
		r->queued = &r->exchange->job;
		r->queue = island_exchange_send(r->exchange, turn);
	} else if (turn < r->parts) {
		r->now = part_of(r, turn);
		r->queued = &r->now;
		r->queue = island_steps_before(&r->now);
	}
}

static void choose_after(struct run *r, size_t turn)
{
	if (r->exchange) {
		r->queue = island_exchange_copy(r->exchange, turn);
	} else if (ending(r, turn) < r->parts) {
		r->now = part_of(r, ending(r, turn));
		r->queued = &r->now;
		r->queue = island_steps_after(&r->now);
	}
}

static void begin_part(struct run *r, size_t turn)
{
	struct job j;

	if (r->exchange || r->waits || turn >= r->parts || !is_good(r))
		return;
	j = part_of(r, turn);
	note(r, island_steps_begin(&j, place_of(r, turn)));
}

/* After a failure, only waits for the end of what has begun. */
static void end_part(struct run *r, size_t turn)
{
	size_t nth = ending(r, turn);
	struct island_part **part = place_of(r, nth);

	if (r->exchange || nth == r->parts || !*part)
		return;
	note(r, island_job_missed(&r->whole, island_part_end(*part)));
	*part = NULL;
}

/* ---- what is waited for ---- */

/* Begins what an all-to-all has between islands, or has it done. */
static void call_exchange(struct run *r, size_t turn)
{
	(void)turn;
	if (is_good(r))
		note(r, island_exchange_begin(r->exchange));
}

static void call_between(struct run *r, size_t turn)
{
	struct job j = part_of(r, turn);

	note(r, island_steps_between(&j));
}

static bool waits_for_exchange(const struct run *r, size_t turn)
{
	(void)turn;
	return r->exchange && is_good(r) && island_exchange_waits(r->exchange);
}

static bool waits_for_part(const struct run *r, size_t turn)
{
	return !r->exchange && is_good(r) && r->waits && turn < r->parts;
}

/* The calls of several are a group: one could wait for another. */
static void call_all(struct wave *w, size_t turn,
		     bool (*wants)(const struct run *r, size_t turn),
		     void (*call)(struct run *r, size_t turn))
{
	bool called[w->n], any = false, known;
	dicomm_result_t status;

	for (size_t i = 0; i < w->n; i++)
		any |= called[i] = wants(&w->runs[i], turn);
	if (!any)
		return;
	if (w->n > 1)
		dicomm_group_start();
	for (size_t i = 0; i < w->n; i++)
		if (called[i])
			call(&w->runs[i], turn);
	if (w->n == 1)
		return;
	status = dicomm_group_end();
	known = status == DICOMM_SUCCESS;
	for (size_t i = 0; i < w->n; i++)
		known |= called[i] && fault_is(w->runs[i].whole.is->comm);
	/* Which one failed is known by its fault, if any of them has one. */
	for (size_t i = 0; i < w->n; i++)
		if (called[i] && fault_is(w->runs[i].whole.is->comm))
			note(&w->runs[i],
			     fault_report(w->runs[i].whole.is->comm));
		else if (called[i] && !known)
			note(&w->runs[i],
			     island_job_missed(&w->runs[i].whole, status));
}

/* ---- one call ---- */

/* Elements of a block of this many are a part. */
static size_t part_count(const struct job *j)
{
	bool blocks =
		j->coll == COLL_REDUCE_SCATTER || j->coll == COLL_ALLGATHER;
	uint64_t bytes = j->count * j->elem *
			 (blocks ? (uint64_t)j->is->comm->ranks : 1);
	uint64_t part = island_part_bytes(j->is, j->coll, bytes);
	uint64_t least = bytes / ISLAND_CALL_PARTS + 1;
	size_t unit = (size_t)j->is->pieces * 64, count;

	/* So that the vendor's library has as much of each share for each rank
	 */
	if (!blocks)
		unit *= island_piece_shares(j);
	/* Stops of parts in a graph would wait for each other. */
	if (!part || part >= bytes || j->captured)
		return j->count;
	if (part < least)
		part = least;
	count = j->count / ((bytes + part - 1) / part) + 1;
	count = (count + unit - 1) / unit * unit;
	return count < j->count ? count : j->count;
}

static dicomm_result_t cut_up(struct run *r)
{
	struct job *j = &r->whole, longest = *j;
	size_t copies = 1;

	r->count = part_count(j);
	/* A part has as many elements as an island has pieces, also the last
	 * one. */
	r->parts = j->count / r->count + (j->count % r->count >= j->is->pieces);
	/* A stream of the host does nothing inside an island. */
	r->waits = r->parts == 1 || (j->stream && !j->is->comm->dev);
	if (r->parts > 1) {
		longest.count = r->count + j->is->pieces;
		copies = ISLAND_LEAD + 1;
	}
	r->scratch = island_steps_scratch(&longest);
	return r->scratch ? island_job_scratch(j, r->scratch * copies)
			  : DICOMM_SUCCESS;
}

/* The vendor's library has no host streams. */
static void await_stream(struct job *j)
{
	struct dicomm_request done;

	if (!j->stream || j->is->comm->dev || island_job_is_alone(j))
		return;
	request_init(&done);
	stream_attach(j->stream, &done);
	pthread_mutex_lock(&stream_lock);
	driver_await(&done, 0);
	pthread_mutex_unlock(&stream_lock);
	j->stream = NULL;
}

static void open_run(struct run *r, const struct wave_call *c)
{
	const struct call *call = c->call;
	struct island *is = c->comm->island;
	dicomm_result_t status;

	*r = (struct run){.whole = {.is = is,
				    .f = is->library ? &is->library->f : NULL,
				    .stream = c->stream,
				    .captured = c->captured,
				    .what = "ncclGroupStart",
				    .coll = (enum coll)call->function,
				    .type = call->type,
				    .op = call->op,
				    .root = call->root,
				    .count = call->count,
				    .elem = type_bytes(call->type),
				    .send = call->send,
				    .recv = call->recv,
				    .me = is->index[c->comm->rank],
				    .size = is->size[is->mine]}};
	/* What is only moved is bytes. */
	if (!call_reduces(call->function)) {
		r->whole.count *= r->whole.elem;
		r->whole.elem = 1;
		r->whole.type = DICOMM_UINT8;
	}
	r->whole.stride = r->whole.count;
	await_stream(&r->whole);
	if (call->function == COLL_ALLTOALL || call->function == COLL_ALLTOALLV)
		status = island_exchange_make(&r->whole, call, &r->exchange);
	else
		status = cut_up(r);
	note(r, island_job_missed(&r->whole, status));
}

static void enter(struct island *is)
{
	atomic_fetch_add(&is->comm->in_island, 1);
	pthread_mutex_lock(&is->calls);
	atomic_store(&is->caller, __builtin_thread_pointer());
}

static void leave(struct island *is)
{
	atomic_store(&is->caller, NULL);
	pthread_mutex_unlock(&is->calls);
	atomic_fetch_sub(&is->comm->in_island, 1);
}

/* ---- all of them ---- */

static void take_turn(struct wave *w, size_t turn)
{
	for (size_t i = 0; i < w->n; i++)
		if (is_good(&w->runs[i]))
			choose_before(&w->runs[i], turn);
	work_inside(w);
	for (size_t i = 0; i < w->n; i++)
		begin_part(&w->runs[i], turn);
	call_all(w, turn, waits_for_part, call_between);
	for (size_t i = 0; i < w->n; i++)
		end_part(&w->runs[i], turn);
	for (size_t i = 0; i < w->n; i++)
		if (is_good(&w->runs[i]))
			choose_after(&w->runs[i], turn);
	work_inside(w);
}

static void run_all(struct wave *w)
{
	size_t turns = 0;

	for (size_t i = 0; i < w->n; i++) {
		struct run *r = &w->runs[i];

		if (turns_of(r) > turns)
			turns = turns_of(r);
		if (r->exchange && !island_exchange_waits(r->exchange))
			call_exchange(r, 0);
	}
	call_all(w, 0, waits_for_exchange, call_exchange);
	for (size_t turn = 0; turn < turns; turn++)
		take_turn(w, turn);
	for (size_t i = 0; i < w->n; i++)
		if (w->runs[i].exchange)
			note(&w->runs[i],
			     island_exchange_end(w->runs[i].exchange));
}

/* The same on all ranks: the vendor's library may want the calls of several
 * communicators in one order everywhere. */
static int by_name(const void *a, const void *b)
{
	const struct dicomm_comm *x = ((const struct wave_call *)a)->comm;
	const struct dicomm_comm *y = ((const struct wave_call *)b)->comm;
	uint64_t p = x->members[0].fresh, q = y->members[0].fresh;

	return p != q ? (p > q) - (p < q)
		      : (x->rank > y->rank) - (x->rank < y->rank);
}

static dicomm_result_t run_sorted(const struct wave_call *calls,
				  struct run *runs, size_t n)
{
	struct wave w = {runs, n};
	dicomm_result_t status = DICOMM_SUCCESS;

	for (size_t i = 0; i < n; i++)
		enter(calls[i].comm->island);
	for (size_t i = 0; i < n; i++)
		open_run(&runs[i], &calls[i]);
	run_all(&w);
	for (size_t i = 0; i < n; i++) {
		island_exchange_free(runs[i].exchange);
		if (status == DICOMM_SUCCESS)
			status = runs[i].status;
	}
	for (size_t i = 0; i < n; i++)
		leave(calls[i].comm->island);
	return status;
}

dicomm_result_t island_wave_run(struct wave_call *calls, size_t n)
{
	struct run few[4], *runs = few;
	dicomm_result_t status;

	if (n > sizeof(few) / sizeof(*few))
		runs = calloc(n, sizeof(*runs));
	if (!runs) {
		status = FAIL(DICOMM_ERR_NO_MEMORY, "island: out of memory");
		for (size_t i = 0; i < n; i++)
			if (!fault_is(calls[i].comm))
				fault_own(calls[i].comm, status, -1);
		return status;
	}
	/* Threads that take several locks take them in one order. */
	qsort(calls, n, sizeof(*calls), by_name);
	status = run_sorted(calls, runs, n);
	if (runs != few)
		free(runs);
	return status;
}
