/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host streams, and who runs what is queued on them: the driver.
 *
 * The driver is one thread at a time. While a communicator has queued
 * operations, only the driver touches its data path; if a blocking call of
 * another thread is under way, it does so whenever that lends it (share.h).
 * `lock` guards the hand-over (inbox, pending counts, results) and who drives.
 * It is not taken during a turn.
 *
 * A thread that waits for an operation drives, so that nobody has to be woken
 * for it. The process has a progress thread, which the first queued call
 * starts, for all that nobody waits for. It is woken for long operations. Who
 * queues a short one drives for one pass, without waiting, and leaves the rest
 * to the one who will wait; in case there is none, the progress thread looks
 * every now and then.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/type.h"
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
/* While short operations come, the progress thread looks so often whether
 * somebody drives them; after so many looks in vain it sleeps. */
#define NAP_NS 200000
#define NAPS 16
/* A short operation, and the most batches that who queues one has a look at */
#define SHORT_BYTES (64u << 10)
#define SHORT_BATCHES 8
/* Looks that a waiter makes while another thread drives, then looks between
 * which it gives its core away, before it sleeps: to be woken takes tens of
 * microseconds. */
#define LOOKS 64
#define YIELDS 200
/* Who waits with a limit drives for so long at most: later, a look for late
 * ranks could take longer than the limit. */
#define DRIVE_NS UINT64_C(50000000)
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
	/* Used by the driver only. */
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
	bool on_device;  /* an item is of the rank of a device */
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
static pthread_cond_t arrived; /* once the progress thread runs */
static struct batch *inbox, **inbox_tail = &inbox;
static _Atomic unsigned inbox_count;
static bool running;
static _Atomic bool driven;
static _Thread_local bool is_driver;
/* Used by the driver only, in the order of the calls. */
static struct batch *batches;
static unsigned nbatches;
/* Guarded by lock. Something is queued that the progress thread is to drive
 * unless another thread does. */
static bool hurry;
static unsigned submitted; /* batches so far */
static enum { AWAKE, NAPPING, ASLEEP } progress_is;
/* Batches of devices: only the progress thread drives these. */
static _Atomic unsigned on_devices;
/* Threads that wait; and those of them that look whether they may drive */
static _Atomic unsigned waiters, candidates;

/* ---- driver ---- */

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
	nbatches--;
	if (w->on_device)
		atomic_fetch_sub(&on_devices, 1);
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

/* Append what has been queued to the batches. With the lock held. */
static void take_inbox(void)
{
	struct batch **tail = &batches;

	while (*tail)
		tail = &(*tail)->next;
	*tail = inbox;
	inbox = NULL;
	inbox_tail = &inbox;
	nbatches +=
		atomic_exchange_explicit(&inbox_count, 0, memory_order_relaxed);
}

/* Send pending credits of all other communicators, so that a rank which waits
 * on one communicator is not also held up by another. */
static void poll_others(const struct dicomm_comm *comm)
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
static void look_at_next(void)
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

/* Give every batch a turn, in order. Returns true if one moved, or another
 * thread is inside one. *idle is the batch that decides how to wait, or
 * NULL. */
static bool turn_all(struct batch **idle)
{
	struct batch **at = &batches;
	static unsigned known; /* fault_count of the last pass */
	unsigned broken = atomic_load(&fault_count);
	bool any = accept_all(batches) || broken != known, all = true;

	*idle = NULL;
	for (struct batch *w = batches; w && any; w = w->next)
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
		else if (w->waiting && (!*idle || is_fresher(w, *idle)))
			*idle = w;
		any |= moved;
		at = &w->next;
	}
	return any && all;
}

/* Take what has been queued, give every batch a turn, and wait if none
 * moved. */
static void pass(void)
{
	/* passes without progress while only streams were waited for */
	static unsigned quiet, round;
	const struct timespec nap = {0, 50000};
	struct batch *idle;

	if (atomic_load_explicit(&inbox_count, memory_order_relaxed)) {
		pthread_mutex_lock(&lock);
		take_inbox();
		pthread_mutex_unlock(&lock);
	}
	if (turn_all(&idle)) {
		quiet = 0;
	} else if (idle) {
		poll_others(idle->waiting->comm);
		if (!wait_for(idle) && !core_yield())
			nanosleep(&nap, NULL);
	} else if (++quiet >= QUIET_YIELDS || !core_yield()) {
		nanosleep(&nap, NULL);
	}
	if (round++ % LOOK_PASSES == 0)
		look_at_next();
}

/* ---- who drives ---- */

/* With the lock held: is there anything to drive, and nobody who does? */
static bool is_left_alone(void)
{
	return !atomic_load(&driven) && (batches || inbox);
}

/* What a driver finds about other operations than its own is not the last error
 * of that thread; nor must the thread be cancelled meanwhile. */
struct guest {
	int cancellable;
	char text[512];
};

static void begin_as_guest(struct guest *g)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancellable);
	snprintf(g->text, sizeof(g->text), "%s", log_last_error());
}

static void end_as_guest(const struct guest *g)
{
	if (strcmp(g->text, log_last_error()))
		log_set_last_error(g->text);
	pthread_setcancelstate(g->cancellable, NULL);
}

/* With the lock held */
static void begin_driving(void)
{
	atomic_store(&driven, true);
	is_driver = true;
	take_inbox();
}

/* With the lock held. What is left is driven by the progress thread, which is
 * woken if somebody waits for it. */
static void end_driving(void)
{
	is_driver = false;
	atomic_store(&driven, false);
	if (!batches && !inbox)
		hurry = false;
	else if (hurry || atomic_load(&waiters) ? progress_is != AWAKE
						: progress_is == ASLEEP)
		pthread_cond_signal(&arrived);
}

/* With the lock held, which is given up meanwhile: drive for one pass, without
 * waiting, if nobody drives and there is not much. */
static void drive_once(void)
{
	struct batch *idle;
	struct guest guest;

	if (atomic_load(&driven) || atomic_load(&on_devices) ||
	    nbatches + atomic_load(&inbox_count) > SHORT_BATCHES)
		return;
	begin_driving();
	pthread_mutex_unlock(&lock);
	begin_as_guest(&guest);
	turn_all(&idle);
	end_as_guest(&guest);
	pthread_mutex_lock(&lock);
	end_driving();
}

/* Drive if nobody does. */
static bool try_driving(void)
{
	bool begun;

	if (atomic_load(&driven) || atomic_load(&on_devices))
		return false;
	pthread_mutex_lock(&lock);
	begun = is_left_alone() && !atomic_load(&on_devices);
	if (begun)
		begin_driving();
	pthread_mutex_unlock(&lock);
	return begun;
}

/* Look a while whether this thread can drive. */
static bool become_driver(struct dicomm_request *r)
{
	bool begun = false;

	atomic_fetch_add(&candidates, 1);
	for (int i = 0; i < LOOKS + YIELDS && !begun && !request_is_done(r);
	     i++) {
		begun = try_driving();
		if (i < LOOKS)
			cpu_relax();
		else if (!begun && !core_yield())
			break;
	}
	atomic_fetch_sub(&candidates, 1);
	/* The progress thread may have made way just now. */
	return begun || (!request_is_done(r) && try_driving());
}

void stream_await(struct dicomm_request *r, uint64_t end_ns)
{
	uint64_t most = end_ns ? clock_ns() + DRIVE_NS : 0;
	struct guest guest;

	if (most > end_ns)
		most = end_ns;
	atomic_fetch_add(&waiters, 1);
	while (!request_is_done(r) && !(end_ns && clock_ns() >= end_ns)) {
		if ((most && clock_ns() >= most) || !become_driver(r)) {
			request_sleep(r, end_ns);
			continue;
		}
		begin_as_guest(&guest);
		while (!request_is_done(r) && !atomic_load(&on_devices) &&
		       !(most && clock_ns() >= most))
			pass();
		end_as_guest(&guest);
		pthread_mutex_lock(&lock);
		end_driving();
		pthread_mutex_unlock(&lock);
	}
	atomic_fetch_sub(&waiters, 1);
}

void stream_poll(void)
{
	pthread_mutex_lock(&lock);
	drive_once();
	pthread_mutex_unlock(&lock);
}

void stream_hurry(void)
{
	pthread_mutex_lock(&lock);
	hurry = atomic_load(&driven) || batches || inbox;
	if (is_left_alone() && progress_is != AWAKE)
		pthread_cond_signal(&arrived);
	pthread_mutex_unlock(&lock);
}

bool stream_drives(const struct dicomm_comm *comm)
{
	return is_driver && atomic_load(&comm->queued);
}

/* ---- progress thread ---- */

/* With the lock held. Sleep until there is something that nobody drives, and
 * nobody is about to. */
static void await_work(void)
{
	unsigned seen = submitted, naps = 0;
	bool napped = false;

	while (!is_left_alone() ||
	       !(hurry || napped || atomic_load(&waiters)) ||
	       (atomic_load(&candidates) && !atomic_load(&on_devices))) {
		struct timespec end;

		if (seen != submitted)
			naps = 0;
		seen = submitted;
		if (naps++ >= NAPS && !is_left_alone()) {
			progress_is = ASLEEP;
			pthread_cond_wait(&arrived, &lock);
			naps = 0;
			napped = false;
			continue;
		}
		progress_is = NAPPING;
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_nsec += NAP_NS;
		if (end.tv_nsec >= 1000000000) {
			end.tv_nsec -= 1000000000;
			end.tv_sec++;
		}
		napped = pthread_cond_timedwait(&arrived, &lock, &end) ==
			 ETIMEDOUT;
	}
	progress_is = AWAKE;
}

/* Whoever has just waited for an operation often queues the next one. */
static void linger(void)
{
	for (int i = 0; i < IDLE_YIELDS; i++)
		if (atomic_load_explicit(&inbox_count, memory_order_relaxed) ||
		    !core_yield())
			return;
}

static void *progress(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		bool lingers;

		await_work();
		lingers = hurry;
		begin_driving();
		pthread_mutex_unlock(&lock);
		while ((batches || atomic_load(&inbox_count)) &&
		       (!atomic_load(&candidates) || atomic_load(&on_devices)))
			pass();
		pthread_mutex_lock(&lock);
		end_driving();
		if (!lingers || batches || inbox)
			continue;
		pthread_mutex_unlock(&lock);
		linger();
		pthread_mutex_lock(&lock);
	}
	return NULL;
}

/* The child of a fork has no progress thread and nothing queued. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	inbox = batches = NULL;
	inbox_tail = &inbox;
	nbatches = 0;
	atomic_store(&inbox_count, 0);
	atomic_store(&driven, false);
	atomic_store(&on_devices, 0);
	atomic_store(&waiters, 0);
	atomic_store(&candidates, 0);
	is_driver = hurry = running = false;
	progress_is = AWAKE;
}

/* Naps end in time when somebody sets the clock. */
static int make_condition(void)
{
	pthread_condattr_t monotonic;
	int error = pthread_condattr_init(&monotonic);

	if (error)
		return error;
	error = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	if (!error)
		error = pthread_cond_init(&arrived, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return error;
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
	error = make_condition();
	if (!error)
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
	for (size_t i = 0; i < n; i++)
		w->on_device |= items[i].comm->dev != NULL;
	return w;
}

/* Are the calls short enough to be begun by who queues them? */
static bool is_short(const struct batch *w)
{
	size_t bytes = 0;

	for (size_t i = 0; i < w->nitems; i++) {
		const struct call *call = &w->items[i].call;

		if (call->own || w->items[i].counts)
			return false;
		bytes += call->coll == COLL_BARRIER
				 ? 1
				 : call->count * type_bytes(call->type);
	}
	return bytes <= SHORT_BYTES;
}

/* With the lock held: somebody has to run what was queued. If `wait`, the
 * caller is about to wait, which does it. */
static void set_off(const struct batch *w, bool wait)
{
	bool brief = !w->on_device && (wait || is_short(w));

	if (!brief)
		hurry = true;
	else if (!wait)
		drive_once();
	if (is_left_alone() && !wait &&
	    (hurry ? progress_is != AWAKE : progress_is == ASLEEP))
		pthread_cond_signal(&arrived);
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
	submitted++;
	if (w->on_device)
		atomic_fetch_add(&on_devices, 1);
	set_off(w, wait);
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
