/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host streams, and the progress thread that runs what is queued on them.
 *
 * The process has one progress thread, which the first queued call starts.
 * While a communicator has queued operations, only this thread touches its data
 * path; if a blocking call of another thread is under way, it does so whenever
 * that lends it (share.h). `lock` guards the hand-over (inbox, pending counts,
 * results). It is not taken during a turn.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/yield.h"
#include "src/engine/prepare.h"
#include "src/stream/request.h"
#include "src/stream/submit.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/core/share.h"

#define STREAM_MAGIC UINT64_C(0xd1c05712ea3d0001)

/* Passes without progress before the progress thread begins to sleep
 * between passes. */
#define QUIET_YIELDS 1000
/* Looks at the inbox before the progress thread sleeps: whoever has just waited
 * for an operation often queues the next one. */
#define IDLE_YIELDS 100
/* Passes between two checks for late ranks: a few short sleeps. */
#define LOOK_PASSES 8
/* In nanoseconds; longer than anything takes that the library queues on
 * a device. */
#define BLOCKED_NS UINT64_C(5000000000)

struct batch;

/* The place of a batch in one of its streams. */
struct place {
	struct host_stream *stream;
	struct batch *work;
	struct place *next; /* the next batch of the same stream */
};

struct host_stream {
	uint64_t magic;
	int generation; /* of the process that created it */
	/* Guarded by lock. */
	size_t pending;
	struct batch *last;     /* queued last, while there are pending ones */
	dicomm_result_t status; /* first failure since the last synchronise */
	char text[512];
	dicomm_result_t last_status; /* of the batch that ended last */
	char last_text[512];
	/* Used by the progress thread only. */
	struct place *head, *tail;
};

static struct handle_pool pool = HANDLE_POOL(struct host_stream);

struct batch {
	struct item *items;
	size_t nitems, left;
	struct place *places;
	/* blocked: number of streams in which the batch is not first */
	size_t nplaces, blocked;
	struct stream_fence *fences; /* fences of device streams */
	/* the device streams have reached all fences */
	bool reached;
	size_t accepted; /* items that have their place in the order of calls */
	struct operation
		*waiting; /* first operation that did not end in this pass */
	struct waiter waiter;
	/* Guarded by lock; the last is on the stack of its waiter */
	struct dicomm_request *requests;
	dicomm_result_t status;
	char text[512];
	struct batch *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct batch *inbox, **inbox_tail = &inbox;
static _Atomic unsigned inbox_count;
static bool running;

/* ---- progress thread ---- */

static void record_status(struct batch *w, dicomm_result_t status)
{
	if (status == DICOMM_SUCCESS || w->status != DICOMM_SUCCESS)
		return;
	w->status = status;
	snprintf(w->text, sizeof(w->text), "%s", log_last_error());
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
	atomic_fetch_sub_explicit(&comm->queued, 1, memory_order_release);
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

static void drop_operation(struct batch *w, struct item *item)
{
	if (!item->op->done) {
		record_status(w, fault_report(item->comm));
		let_streams_go(w, item->comm);
		engine_drop(item->op);
		w->left--;
	}
	release(item);
}

/* Drop the items of broken communicators, whatever else the batch waits for.
 * The thread that broke one waits until the progress thread has left it, and
 * may then free it. So nothing of it is used after that, including the fences
 * of its streams. Returns false if another thread is inside one. */
static bool drop_broken(struct batch *w)
{
	bool any = false, all = true;

	for (size_t i = 0; i < w->nitems; i++) {
		struct item *item = &w->items[i];

		if (!item->comm || !fault_is(item->comm))
			continue;
		if (item->op && !share_take(item->comm)) {
			all = false;
			continue;
		}
		if (item->op) {
			drop_operation(w, item);
			share_return(item->comm);
		}
		any = true;
	}
	if (!any)
		return all;
	release_lost_fences(w, NULL);
	wait_moved(&w->waiter);
	for (size_t i = 0; i < w->nitems; i++) {
		struct item *item = &w->items[i];

		if (item->comm && !item->op && fault_is(item->comm))
			finish_item(item);
	}
	return all;
}

/* Prepare the operations of a batch, in call order. That gives them their
 * message numbers on each communicator. Returns false if another thread is
 * inside one of these; then call it again, before any later batch. */
static bool accept_work(struct batch *w)
{
	for (; w->accepted < w->nitems; w->accepted++) {
		struct item *item = &w->items[w->accepted];
		dicomm_result_t s;

		if (!comm_may_begin(item->comm)) {
			s = fault_report(item->comm);
		} else if (share_take(item->comm)) {
			s = engine_prepare(item->comm, &item->call, &item->op);
			share_return(item->comm);
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
	}
	return true;
}

/* Accept all batches in order, as far as possible. Returns true if some were
 * not accepted before. */
static bool accept_all(struct batch *w)
{
	bool any = false;

	for (; w; w = w->next) {
		if (w->accepted == w->nitems)
			continue;
		if (!accept_work(w))
			break;
		any = true;
	}
	return any;
}

static void free_work(struct batch *w)
{
	for (size_t i = 0; i < w->nitems; i++)
		free(w->items[i].counts);
	free(w->items);
	free(w->places);
	free(w);
}

/* Release all fences of the batch; their streams continue. */
static void release_fences(struct batch *w)
{
	struct stream_fence *t;

	while ((t = w->fences)) {
		w->fences = t->next;
		stream_fence_release(t);
	}
}

static void complete(struct batch *w)
{
	struct dicomm_request *r, *next;

	release_fences(w);
	for (size_t i = 0; i < w->nitems; i++)
		if (w->items[i].comm)
			finish_item(&w->items[i]);
	for (size_t i = 0; i < w->nplaces; i++) {
		struct host_stream *st = w->places[i].stream;

		st->head = w->places[i].next;
		if (st->head)
			st->head->work->blocked--;
		else
			st->tail = NULL;
	}
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < w->nplaces; i++) {
		struct host_stream *st = w->places[i].stream;

		if (w->status != DICOMM_SUCCESS &&
		    st->status == DICOMM_SUCCESS) {
			st->status = w->status;
			snprintf(st->text, sizeof(st->text), "%s", w->text);
		}
		st->last_status = w->status;
		if (w->status != DICOMM_SUCCESS)
			snprintf(st->last_text, sizeof(st->last_text), "%s",
				 w->text);
		st->pending--;
	}
	r = w->requests;
	pthread_mutex_unlock(&lock);
	/* From here on, the streams may be gone. */
	for (; r; r = next) {
		next = r->next;
		request_complete(r, w->status, w->text);
	}
	free_work(w);
}

/* Give each operation a turn whose communicator is free. Returns the first one
 * that did not end, or NULL. *moved is set if any made progress. */
static struct operation *turn(struct batch *w, bool *moved)
{
	struct operation *waiting = NULL;

	for (size_t i = 0; i < w->nitems; i++) {
		struct operation *op = w->items[i].op;

		/* The next pass drops items of broken communicators. */
		if (!op || op->done || op->before || fault_is(op->comm) ||
		    !share_take(op->comm))
			continue;
		if (engine_turn(op, moved) == SCHEDULE_DONE) {
			release(&w->items[i]);
			w->left--;
			*moved = true;
		} else if (!waiting) {
			waiting = op;
		}
		share_return(w->items[i].comm);
	}
	return waiting;
}

/* Check whether the device streams have reached the fences of the batch. */
static void look_at_fences(struct batch *w, bool *moved)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	for (struct stream_fence *t = w->fences; t && status == DICOMM_SUCCESS;
	     t = t->next)
		status = stream_fence_query(t);
	if (status == DICOMM_SUCCESS)
		w->reached = *moved = true;
	if (status == DICOMM_SUCCESS || status == DICOMM_AGAIN)
		return;
	for (size_t i = 0; i < w->nitems; i++) {
		struct operation *op = w->items[i].op;

		if (op && !op->done)
			fault_own(op->comm, status, -1);
	}
}

static struct batch *take_inbox(bool wait)
{
	struct batch *w;

	pthread_mutex_lock(&lock);
	while (wait && !inbox)
		pthread_cond_wait(&arrived, &lock);
	w = inbox;
	inbox = NULL;
	inbox_tail = &inbox;
	atomic_store_explicit(&inbox_count, 0, memory_order_relaxed);
	pthread_mutex_unlock(&lock);
	return w;
}

/* Send pending credits of all other communicators, so that a rank which waits
 * on one communicator is not also held up by another. */
static void poll_others(const struct batch *batches,
			const struct dicomm_comm *comm)
{
	for (const struct batch *w = batches; w; w = w->next)
		for (size_t i = 0; i < w->nitems && !w->blocked && w->reached;
		     i++)
			if (w->items[i].op && !w->items[i].op->done &&
			    w->items[i].op->comm != comm &&
			    share_take(w->items[i].comm)) {
				comm_poll(w->items[i].comm);
				share_return(w->items[i].comm);
			}
}

/* Check for late ranks in the other operations of a batch, after the first
 * that waits. */
static void watch_others(struct batch *w)
{
	bool more = true;

	for (size_t i = 0; i < w->nitems && more; i++) {
		struct operation *op = w->items[i].op;

		if (!op || op == w->waiting || op->done || op->before ||
		    !share_take(op->comm))
			continue;
		more = engine_watch(&w->waiter, op);
		share_return(op->comm);
	}
}

/* Returns true if a has waited for less time than b. The batch that has waited
 * for the shortest time decides how the thread waits, since its peer may answer
 * soon and the thread must be awake then. */
static bool is_fresher(const struct batch *a, const struct batch *b)
{
	if (!a->waiter.since_ns || !b->waiter.since_ns)
		return !a->waiter.since_ns;
	return a->waiter.since_ns >= b->waiter.since_ns;
}

/* Check for late ranks in one batch. Each call takes the next one. */
static void look_at_next(struct batch *batches)
{
	static unsigned next;
	struct batch *w = batches;
	bool look = false;

	for (unsigned i = 0; w && i < next; i++)
		w = w->next;
	next = w ? next + 1 : 0;
	if (w && w->waiting && share_take(w->waiting->comm)) {
		look = engine_look(&w->waiter, w->waiting);
		share_return(w->waiting->comm);
	}
	if (look)
		watch_others(w);
}

/* Returns false if another thread is inside. */
static bool wait_for(struct batch *w)
{
	struct dicomm_comm *comm = w->waiting->comm;
	bool checked;

	if (!share_take(comm))
		return false;
	checked = engine_wait(&w->waiter, w->waiting, false);
	share_return(comm);
	if (checked)
		watch_others(w);
	return true;
}

/* Give every batch a turn, in order, and wait if none moved. */
static void pass(struct batch **batches, unsigned round)
{
	struct batch **at = batches, *idle = NULL;
	/* passes without progress while only streams were waited for */
	static unsigned quiet;
	static unsigned known; /* fault_count of the last pass */
	unsigned broken = atomic_load(&fault_count);
	const struct timespec nap = {0, 50000};
	bool any = accept_all(*batches) || broken != known, all = true;

	for (struct batch *w = *batches; w && any; w = w->next)
		if (w->accepted == w->nitems)
			all &= drop_broken(w);
	if (all)
		known = broken;
	while (*at) {
		struct batch *w = *at;
		bool moved = false;

		w->waiting = NULL;
		if (w->accepted < w->nitems) {
			at = &w->next;
			continue;
		}
		if (!w->blocked && !w->reached)
			look_at_fences(w, &moved);
		if (!w->blocked && w->reached)
			w->waiting = turn(w, &moved);
		if (!w->blocked && !w->left) {
			*at = w->next;
			complete(w);
			any = true;
			continue;
		}
		if (moved)
			wait_moved(&w->waiter);
		else if (w->waiting && (!idle || is_fresher(w, idle)))
			idle = w;
		any |= moved;
		at = &w->next;
	}
	if (any && all) {
		quiet = 0;
	} else if (idle) {
		poll_others(*batches, idle->waiting->comm);
		if (!wait_for(idle) && !core_yield())
			nanosleep(&nap, NULL);
	} else if (++quiet >= QUIET_YIELDS || !core_yield()) {
		nanosleep(&nap, NULL);
	}
	if (round % LOOK_PASSES == 0)
		look_at_next(*batches);
}

static void *progress(void *arg)
{
	struct batch *batches = NULL, **tail = &batches;
	unsigned round = 0;

	(void)arg;
	for (;;) {
		for (int i = 0; i < IDLE_YIELDS && !batches; i++) {
			if (atomic_load_explicit(&inbox_count,
						 memory_order_relaxed) ||
			    !core_yield())
				break;
		}
		if (!batches ||
		    atomic_load_explicit(&inbox_count, memory_order_relaxed)) {
			for (tail = &batches; *tail; tail = &(*tail)->next)
				;
			*tail = take_inbox(!batches);
		}
		pass(&batches, round++);
	}
	return NULL;
}

/* The child of a fork has no progress thread and nothing queued. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&arrived, NULL);
	inbox = NULL;
	inbox_tail = &inbox;
	running = false;
}

static dicomm_result_t start_progress(void)
{
	static bool registered;
	int error;

	if (running)
		return DICOMM_SUCCESS;
	if (!registered)
		pthread_atfork(NULL, NULL, forget);
	registered = true;
	error = thread_start(NULL, "dicomm-progress", progress, NULL);
	if (error) {
		errno = error;
		return FAIL(DICOMM_ERR_SYSTEM, "progress thread: create: %m");
	}
	running = true;
	return DICOMM_SUCCESS;
}

/* ---- callers ---- */

static struct batch *make_work(const struct item *items, size_t n)
{
	struct batch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->items = malloc(n * sizeof(*w->items));
	w->places = calloc(n, sizeof(*w->places));
	if (!w->items || !w->places) {
		free(w->items);
		free(w->places);
		free(w);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		bool known = !items[i].stream;

		w->items[i] = items[i];
		for (size_t j = 0; j < w->nplaces && !known; j++)
			known = w->places[j].stream == items[i].stream;
		if (!known)
			w->places[w->nplaces++] = (struct place){
				.stream = items[i].stream, .work = w};
	}
	w->nitems = w->left = n;
	return w;
}

dicomm_result_t stream_submit(const struct item *items, size_t n,
			      struct stream_fence *fences, bool wait)
{
	struct batch *w = make_work(items, n);
	struct batch lost = {.fences = fences};
	struct dicomm_request done;
	dicomm_result_t status;

	for (size_t i = 0; i < n; i++)
		share_claim(items[i].comm);
	if (!w) {
		release_fences(&lost);
		for (size_t i = 0; i < n; i++)
			free(items[i].counts);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "stream: no memory to queue %zu calls", n);
	}
	if (wait) {
		request_init(&done);
		w->requests = &done;
	}
	w->fences = fences;
	w->reached = !fences;
	pthread_mutex_lock(&lock);
	status = start_progress();
	if (status != DICOMM_SUCCESS) {
		pthread_mutex_unlock(&lock);
		release_fences(w);
		free_work(w);
		return status;
	}
	for (size_t i = 0; i < n; i++)
		atomic_fetch_add(&items[i].comm->queued, 1);
	for (size_t i = 0; i < w->nplaces; i++) {
		w->places[i].stream->pending++;
		w->places[i].stream->last = w;
	}
	*inbox_tail = w;
	inbox_tail = &w->next;
	atomic_fetch_add_explicit(&inbox_count, 1, memory_order_relaxed);
	pthread_cond_signal(&arrived);
	pthread_mutex_unlock(&lock);
	if (!wait)
		return DICOMM_SUCCESS;
	/* Each operation is bounded, so this wait is bounded. */
	request_await(&done, 0);
	if (done.status != DICOMM_SUCCESS)
		log_set_last_error(done.text);
	return done.status;
}

void host_stream_forget(void)
{
	handle_pool_forget(&pool);
	request_forget();
}

bool stream_valid(dicomm_stream_t stream)
{
	const struct host_stream *st = stream;

	return st && st->magic == STREAM_MAGIC &&
	       st->generation == atomic_load_explicit(&comm_generation,
						      memory_order_relaxed);
}

dicomm_result_t stream_refuse(dicomm_stream_t stream, const char *function)
{
	const struct host_stream *st = stream;

	if (st && st->magic == STREAM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: stream %p belongs to the parent of this "
			    "process",
			    function, stream);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s: stream %p is not a host stream", function, stream);
}

dicomm_result_t dicomm_host_stream_create(dicomm_stream_t *stream)
{
	struct host_stream *st;

	if (!stream)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host_stream_create: stream is NULL");
	st = handle_alloc(&pool);
	if (!st)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "host_stream_create: out of memory");
	st->magic = STREAM_MAGIC;
	st->generation = atomic_load(&comm_generation);
	*stream = st;
	return DICOMM_SUCCESS;
}

void stream_attach(dicomm_stream_t stream, struct dicomm_request *r)
{
	struct host_stream *st = stream;
	dicomm_result_t status;
	char text[sizeof(st->last_text)];

	pthread_mutex_lock(&lock);
	if (st->pending) {
		r->next = st->last->requests;
		st->last->requests = r;
		pthread_mutex_unlock(&lock);
		return;
	}
	status = st->last_status;
	snprintf(text, sizeof(text), "%s", st->last_text);
	pthread_mutex_unlock(&lock);
	request_complete(r, status, text);
}

static dicomm_result_t wait_for_all(struct host_stream *st)
{
	struct dicomm_request done;
	dicomm_result_t status;

	request_init(&done);
	stream_attach(st, &done);
	request_await(&done, 0);
	pthread_mutex_lock(&lock);
	status = st->status;
	if (status != DICOMM_SUCCESS)
		log_set_last_error(st->text);
	st->status = DICOMM_SUCCESS;
	pthread_mutex_unlock(&lock);
	return status;
}

dicomm_result_t dicomm_host_stream_synchronize(dicomm_stream_t stream)
{
	if (!stream_valid(stream))
		return stream_refuse(stream, "host_stream_synchronize");
	return wait_for_all(stream);
}

dicomm_result_t dicomm_host_stream_destroy(dicomm_stream_t stream)
{
	struct host_stream *st = stream;
	dicomm_result_t status;

	if (!stream)
		return DICOMM_SUCCESS;
	if (!stream_valid(stream))
		return stream_refuse(stream, "host_stream_destroy");
	TRY(group_check_end(st, "host_stream_destroy"));
	status = wait_for_all(st);
	handle_free(&pool, st);
	return status;
}
