/* SPDX-License-Identifier: BSD-3-Clause */
/* A unit of calls that is queued on streams: from its place in the order of
 * calls to its end. */
#include "src/stream/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/data_path.h"
#include "src/engine/prepare.h"
#include "src/stream/request.h"

/* In nanoseconds; longer than anything takes that the library queues on
 * a device. */
#define BLOCKED_NS UINT64_C(5000000000)

/* Batches of so many calls at most are kept for the next ones, so many of each
 * length. */
#define KEPT_CALLS 4
#define KEPT 64

pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct batch *first;
	unsigned n;
} kept[KEPT_CALLS + 1]; /* by the number of calls; guarded by stream_lock */

static void record_status(struct batch *w, dicomm_result_t status)
{
	if (status == DICOMM_SUCCESS || w->status != DICOMM_SUCCESS)
		return;
	w->status = status;
	w->text = strdup(log_last_error());
}

/* Needs the data path. */
static void release(struct item *item)
{
	engine_release(item->op);
	item->op = NULL;
	prepare_trim(item->comm);
}

static void finish_item(struct item *item)
{
	struct dicomm_comm *comm = item->comm;

	item->comm = NULL;
	data_path_dequeue(&comm->path);
}

/* Returns true if a call of the batch still needs this stream blocked. Calls of
 * `broken` do not count (NULL: all count). */
static bool is_wanted(const struct batch *w, const struct stream_fence *t,
		      const struct dicomm_comm *broken)
{
	for (size_t i = 0; i < w->nitems; i++)
		if (w->items[i].op && w->items[i].comm != broken &&
		    stream_fence_is_of(t, w->items[i].comm, w->items[i].native))
			return true;
	return false;
}

/* Release the fences that only calls of this broken communicator needed. */
static void release_lost_fences(struct batch *w,
				const struct dicomm_comm *broken)
{
	struct stream_fence **at = &w->fences, *t;

	while ((t = *at)) {
		if (is_wanted(w, t, broken)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		stream_fence_release(t);
	}
}

/*
 * A call of the communicator is given up. The user's stream may continue when
 * no work of the call runs on the device any more, so wait for that. If streams
 * share a hardware queue, the library's work may be behind that very stream. So
 * the wait is bounded, and then the stream continues anyway.
 */
static void let_streams_go(struct batch *w, struct dicomm_comm *comm)
{
	/* If several operations are given up, the first one has waited for
	 * all. */
	if (!w->fences)
		return;
	fault_stop_transports(comm);
	if (comm->dev && !device_settles(comm, BLOCKED_NS))
		release_lost_fences(w, comm);
}

static void drop_operation(struct batch *w, struct item *item,
			   void (*forget)(struct operation *op))
{
	if (!item->op->done) {
		record_status(w, fault_report(item->comm));
		let_streams_go(w, item->comm);
		engine_drop(item->op);
		w->left--;
	}
	forget(item->op);
	release(item);
}

/* Drop the items of broken communicators, whatever else the batch waits for.
 * The thread that broke one waits until the driver has left it, and
 * may then free it. So nothing of it is used after that, including the fences
 * of its streams. Returns false if another thread is inside one. */
bool batch_drop_broken(struct batch *w, void (*forget)(struct operation *op))
{
	bool any = false, all = true;

	for (size_t i = 0; i < w->nitems; i++) {
		struct item *item = &w->items[i];

		if (!item->comm || !fault_is(item->comm))
			continue;
		if (item->op && !data_path_take(&item->comm->path)) {
			all = false;
			continue;
		}
		if (item->op) {
			drop_operation(w, item, forget);
			data_path_return(&item->comm->path);
		}
		any = true;
	}
	if (!any)
		return all;
	release_lost_fences(w, NULL);
	w->moves++;
	for (size_t i = 0; i < w->nitems; i++) {
		struct item *item = &w->items[i];

		if (item->comm && !item->op && fault_is(item->comm))
			finish_item(item);
	}
	return all;
}

static dicomm_result_t prepare(struct item *item)
{
	TRY(engine_prepare(item->comm, &item->call, &item->op));
	item->op->owner = item;
	item->parked = engine_is_parked(item->op);
	return DICOMM_SUCCESS;
}

bool batch_accept(struct batch *w)
{
	for (; w->accepted < w->nitems; w->accepted++) {
		struct item *item = &w->items[w->accepted];
		dicomm_result_t s;

		if (!fault_lets_begin(item->comm)) {
			s = fault_report(item->comm);
		} else if (data_path_take(&item->comm->path)) {
			s = prepare(item);
			data_path_return(&item->comm->path);
		} else {
			return false;
		}
		/* On a host rank, all ranks refuse the same call, and nothing
		 * else follows. But if the call was queued on a device stream,
		 * the other ranks would not hear of the failure, so it breaks
		 * the communicator. */
		if (s != DICOMM_SUCCESS && item->comm->dev)
			s = fault_own(item->comm, s, -1);
		if (s != DICOMM_SUCCESS) {
			item->op = NULL;
			record_status(w, s);
			w->left--;
		}
	}
	for (size_t i = 0; i < w->nplaces; i++) {
		struct place *p = &w->places[i];
		struct host_stream *st = p->stream;

		if (st->head) {
			st->tail->next = p;
			w->blocked++;
		} else {
			st->head = p;
		}
		st->tail = p;
		st->others += !w->only_sends;
	}
	return true;
}

bool batch_may_begin(const struct batch *w)
{
	if (!w->blocked)
		return true;
	for (size_t i = 0; i < w->nplaces; i++)
		if (w->places[i].stream->others)
			return false;
	return true;
}

void batch_begin(struct batch *w)
{
	struct dicomm_comm *comm = w->items[0].comm;
	dicomm_result_t status;

	if (!w->before_all || fault_is(comm))
		return;
	status = w->before_all->run(w->before_all, NULL);
	if (status != DICOMM_SUCCESS)
		fault_own(comm, status, -1);
}

static struct batch *take_memory(size_t n)
{
	struct batch *w = n <= KEPT_CALLS ? kept[n].first : NULL;

	if (!w)
		return malloc(sizeof(*w) +
			      n * (sizeof(*w->items) + sizeof(*w->places)));
	kept[n].first = w->next;
	kept[n].n--;
	return w;
}

struct batch *batch_make(const struct item *items, size_t n)
{
	struct batch *w = take_memory(n);

	if (!w)
		return NULL;
	*w = (struct batch){.items = (struct item *)(w + 1)};
	w->places = (struct place *)(w->items + n);
	for (size_t i = 0; i < n; i++) {
		bool known = !items[i].stream;

		w->items[i] = items[i];
		w->items[i].batch = w;
		for (size_t j = 0; j < w->nplaces && !known; j++)
			known = w->places[j].stream == items[i].stream;
		if (!known)
			w->places[w->nplaces++] = (struct place){
				.stream = items[i].stream, .work = w};
	}
	w->nitems = w->left = n;
	w->only_sends = true;
	for (size_t i = 0; i < n; i++) {
		w->on_device |= items[i].comm->dev != NULL;
		w->only_sends &= items[i].call.function == CALL_SEND &&
				 items[i].call.tag && !items[i].native;
	}
	return w;
}

void batch_free(struct batch *w)
{
	size_t n = w->nitems;

	for (size_t i = 0; i < n; i++)
		free(w->items[i].counts);
	if (n > KEPT_CALLS || kept[n].n == KEPT) {
		free(w);
		return;
	}
	w->next = kept[n].first;
	kept[n].first = w;
	kept[n].n++;
}

void batch_forget(void)
{
	memset(kept, 0, sizeof(kept));
}

size_t batch_bytes(size_t calls)
{
	return calls * (sizeof(struct batch) + sizeof(struct item) +
			sizeof(struct place));
}

void batch_release_fences(struct batch *w)
{
	struct stream_fence *t;

	while ((t = w->fences)) {
		w->fences = t->next;
		stream_fence_release(t);
	}
}

void batch_end_item(struct batch *w, struct item *item)
{
	release(item);
	w->left--;
}

void batch_complete(struct batch *w, void (*begin)(struct batch *w))
{
	struct dicomm_request *r, *next;
	_Atomic bool *replay_runs = w->items[0].replay_runs;
	dicomm_result_t status = w->status;
	char *text = w->text;

	batch_release_fences(w);
	for (size_t i = 0; i < w->nitems; i++)
		if (w->items[i].comm)
			finish_item(&w->items[i]);
	for (size_t i = 0; i < w->nplaces; i++) {
		struct host_stream *st = w->places[i].stream;

		st->head = w->places[i].next;
		st->others -= !w->only_sends;
		if (!st->head)
			st->tail = NULL;
		else if (!--st->head->work->blocked)
			begin(st->head->work);
		for (const struct place *p = st->head;
		     p && !w->only_sends && p->work->only_sends; p = p->next)
			if (p->work->blocked && batch_may_begin(p->work))
				begin(p->work);
	}
	pthread_mutex_lock(&stream_lock);
	for (size_t i = 0; i < w->nplaces; i++) {
		struct host_stream *st = w->places[i].stream;

		if (status != DICOMM_SUCCESS && st->status == DICOMM_SUCCESS) {
			st->status = status;
			snprintf(st->text, sizeof(st->text), "%s",
				 text ? text : "");
		}
		st->last_status = status;
		if (status != DICOMM_SUCCESS)
			snprintf(st->last_text, sizeof(st->last_text), "%s",
				 text ? text : "");
		st->pending--;
	}
	r = w->requests;
	batch_free(w);
	pthread_mutex_unlock(&stream_lock);
	/* From here on, the streams may be gone. */
	for (; r; r = next) {
		next = r->next;
		callbacks_complete(r, status, text ? text : "");
	}
	free(text);
	if (replay_runs)
		atomic_store(replay_runs, false);
}

bool batch_look_at_fences(struct batch *w)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (struct stream_fence *t = w->fences; t && status == DICOMM_SUCCESS;
	     t = t->next)
		status = stream_fence_query(t);
	w->reached = status == DICOMM_SUCCESS;
	if (status == DICOMM_SUCCESS || status == DICOMM_AGAIN)
		return w->reached;
	for (size_t i = 0; i < w->nitems; i++) {
		struct operation *op = w->items[i].op;

		if (op && !op->done)
			fault_own(op->comm, status, -1);
	}
	return false;
}
