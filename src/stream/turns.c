/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of the queued operations get a turn: those that may move. */
#include "src/stream/turns.h"

#include <stddef.h>
#include <stdint.h>

#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/core/data_path.h"
#include "src/engine/engine.h"
#include "src/engine/order.h"
#include "src/stream/batch.h"

/* Operations that are hot at most; turns of cold ones in a pass */
#define HOT 16
#define COLD 8

struct turn_list {
	struct operation *first, *last;
	unsigned n;
};

_Atomic unsigned turns_on_devices;

static struct turn_list hot, cold;
static struct operation *picked[HOT + COLD]; /* for the latest pass */
static unsigned npicked;
/* Batches: not accepted yet, in order; all that are accepted; those of them
 * that wait for their fences; those to be completed */
static struct batch *fresh, **fresh_end = &fresh;
static struct batch *accepted, *fenced, *ended;
static unsigned known; /* fault_count when the latest ones were dropped */

/* ---- the lists of operations ---- */

static void unlink_op(struct operation *op)
{
	struct turn_list *list = op->turn_list;

	if (!list)
		return;
	*(op->turn_before ? &op->turn_before->turn_after : &list->first) =
		op->turn_after;
	*(op->turn_after ? &op->turn_after->turn_before : &list->last) =
		op->turn_before;
	list->n--;
	op->turn_list = NULL;
}

static void append_cold(struct operation *op)
{
	unlink_op(op);
	op->turn_before = cold.last;
	op->turn_after = NULL;
	*(cold.last ? &cold.last->turn_after : &cold.first) = op;
	cold.last = op;
	cold.n++;
	op->turn_list = &cold;
}

static void make_hot(struct operation *op)
{
	unlink_op(op);
	op->turn_before = NULL;
	op->turn_after = hot.first;
	*(hot.first ? &hot.first->turn_before : &hot.last) = op;
	hot.first = op;
	hot.n++;
	op->turn_list = &hot;
	if (hot.n > HOT)
		append_cold(hot.last);
}

static void take_woken(void)
{
	for (struct operation *op = order_take_woken(), *next; op; op = next) {
		struct item *item = op->owner;

		next = op->woken_next;
		order_woken_taken(op);
		item->parked = false;
		if (item->batch->begun)
			make_hot(op);
	}
}

/* It gets no more turns, and is about to be released. Needs the data path. */
static void forget(struct operation *op)
{
	if (atomic_load_explicit(&op->woken, memory_order_relaxed))
		take_woken();
	unlink_op(op);
	for (unsigned i = 0; i < npicked; i++)
		if (picked[i] == op)
			picked[i] = NULL;
}

/* ---- batches ---- */

static void begin(struct batch *w)
{
	if (!w->reached) {
		w->next = fenced;
		fenced = w;
		return;
	}
	w->begun = true;
	batch_begin(w);
	/* The last one added is the first one to get a turn. */
	for (size_t i = w->nitems; i--;)
		if (w->items[i].op && !w->items[i].parked)
			make_hot(w->items[i].op);
}

static void leave_fenced(const struct batch *w)
{
	struct batch **at = &fenced;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

/* Is nothing of it left? Then it is completed at the end of the pass. */
static void check_end(struct batch *w)
{
	if (w->left || w->blocked || w->ended)
		return;
	w->ended = true;
	leave_fenced(w);
	w->next = ended;
	ended = w;
}

static void may_begin(struct batch *w)
{
	if (w->left && !w->begun)
		begin(w);
	check_end(w);
}

static void complete(struct batch *w)
{
	*(w->before ? &w->before->after : &accepted) = w->after;
	if (w->after)
		w->after->before = w->before;
	if (w->on_device)
		atomic_fetch_sub(&turns_on_devices, 1);
	batch_complete(w, may_begin);
}

static bool complete_all(void)
{
	bool any = ended;
	struct batch *w;

	while ((w = ended)) {
		ended = w->next;
		complete(w);
	}
	return any;
}

void turns_append(struct batch *first, struct batch **end)
{
	*fresh_end = first;
	fresh_end = end;
}

bool turns_left(void)
{
	return fresh || accepted;
}

/* Returns false if another thread is inside one of its broken communicators. */
static bool drop_broken(struct batch *w)
{
	bool all = batch_drop_broken(w, forget);

	check_end(w);
	return all;
}

/* Accept batches in order, as far as possible. Returns true if some were. *all
 * as of drop_broken(). */
static bool accept_fresh(bool *all)
{
	bool any = false;
	struct batch *w;

	while ((w = fresh) && batch_accept(w)) {
		fresh = w->next;
		if (!fresh)
			fresh_end = &fresh;
		w->after = accepted;
		if (accepted)
			accepted->before = w;
		accepted = w;
		if (batch_may_begin(w))
			begin(w);
		*all &= drop_broken(w);
		any = true;
	}
	return any;
}

/* Drop what broken communicators have queued, in all batches. */
static bool drop_all_broken(void)
{
	bool all = true;

	for (struct batch *w = accepted; w; w = w->after)
		all &= drop_broken(w);
	return all;
}

static bool look_at_fences(void)
{
	bool any = false;

	for (struct batch *w = fenced, *next; w; w = next) {
		next = w->next;
		if (!batch_look_at_fences(w))
			continue;
		leave_fenced(w);
		begin(w);
		any = true;
	}
	return any;
}

/* ---- a pass ---- */

static void pick(void)
{
	unsigned n = cold.n < COLD ? cold.n : COLD;

	npicked = 0;
	for (struct operation *op = hot.first; op; op = op->turn_after)
		picked[npicked++] = op;
	for (; n--; npicked++) {
		picked[npicked] = cold.first;
		append_cold(cold.first);
	}
}

/* Give the operation a turn. Returns true if it moved. */
static bool give(struct operation *op)
{
	struct item *item = op->owner;
	struct batch *w = item->batch;
	struct dicomm_comm *comm = op->comm;
	bool moved = false, done;

	/* The next pass drops those of broken communicators. */
	if (fault_is(comm) || !data_path_take(&comm->path))
		return false;
	done = engine_turn(op, &moved) == SCHEDULE_DONE;
	if (done) {
		forget(op);
		batch_end_item(w, item);
	} else if (engine_is_parked(op)) {
		item->parked = true;
	}
	data_path_return(&comm->path);
	if (!done && !moved && !item->parked)
		return false;
	w->moves++;
	if (done)
		check_end(w);
	else if (item->parked)
		unlink_op(op);
	else
		make_hot(op);
	return done || moved;
}

/* The wait of an operation begins again when another one of its batch moves. */
static struct waiter *waiter_of(struct operation *op)
{
	struct item *item = op->owner;

	if (item->moves != item->batch->moves)
		wait_moved(&op->watch);
	item->moves = item->batch->moves;
	return &op->watch;
}

static bool is_fresher(const struct waiter *a, const struct waiter *b)
{
	if (!a->since_ns || !b->since_ns)
		return !a->since_ns;
	return a->since_ns >= b->since_ns;
}

/* Those that have had a turn in vain: the one that has waited for the shortest
 * time */
static struct operation *find_idle(void)
{
	struct operation *idle = NULL;

	for (unsigned i = 0; i < npicked; i++) {
		struct operation *op = picked[i];

		if (op && op->turn_list && !fault_is(op->comm) &&
		    (!idle || is_fresher(waiter_of(op), waiter_of(idle))))
			idle = op;
	}
	return idle;
}

/* Send pending credits of other communicators, so that a rank which waits on
 * one communicator is not also held up by another. */
static void poll_others(const struct operation *idle)
{
	const struct dicomm_comm *last = idle->comm;

	for (unsigned i = 0; i < npicked; i++) {
		struct operation *op = picked[i];

		if (!op || op->comm == idle->comm || op->comm == last ||
		    !data_path_take(&op->comm->path))
			continue;
		last = op->comm;
		comm_poll(op->comm);
		data_path_return(&op->comm->path);
	}
}

bool turns_give(struct operation **idle)
{
	unsigned broken = atomic_load(&fault_count);
	bool all = true, any = accept_fresh(&all);

	*idle = NULL;
	take_woken();
	if (broken != known) {
		any = true;
		all &= drop_all_broken();
	}
	known = all ? broken : broken - 1;
	any |= fenced && look_at_fences();
	pick();
	for (unsigned i = 0; i < npicked; i++)
		if (picked[i])
			any |= give(picked[i]);
	any |= complete_all();
	if (any)
		return all;
	*idle = find_idle();
	if (*idle)
		poll_others(*idle);
	return false;
}

/* ---- late ranks ---- */

/* One warning serves for all operations of a batch. */
static struct waiter *begin_check(struct operation *op)
{
	struct waiter *waiter = waiter_of(op);
	const struct item *item = op->owner;

	waiter->warned |= item->batch->warned;
	return waiter;
}

static void end_check(struct operation *op)
{
	struct item *item = op->owner;

	item->batch->warned |= op->watch.warned;
}

void turns_wait(struct operation *op)
{
	engine_wait(begin_check(op), op, false, false);
	end_check(op);
}

void turns_look(void)
{
	static uint32_t random;
	struct operation *op;

	if (!npicked)
		return;
	/* Cold ones come round regularly; a regular choice would miss some. */
	random = random * 1664525 + 1013904223;
	op = picked[(random >> 16) % npicked];
	if (!op || !op->turn_list || fault_is(op->comm) ||
	    !data_path_take(&op->comm->path))
		return;
	engine_look(begin_check(op), op);
	data_path_return(&op->comm->path);
	end_check(op);
}

void turns_forget(void)
{
	hot = cold = (struct turn_list){0};
	npicked = 0;
	fresh = accepted = fenced = ended = NULL;
	fresh_end = &fresh;
	atomic_store(&turns_on_devices, 0);
	order_forget_woken();
}
