/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who runs what is queued on streams: the driver.
 *
 * The driver is one thread at a time. While a communicator has queued
 * operations, only the driver touches its data path; if a blocking call of
 * another thread is under way, it does so whenever that lends it (data_path.h).
 * `stream_lock` guards the hand-over (inbox, pending counts, results) and who
 * drives. It is not taken during a turn.
 *
 * A thread that waits for an operation drives, so that nobody has to be woken
 * for it. The process has a progress thread, which the first queued call
 * starts, for all that nobody waits for. It is woken for long operations. Who
 * queues a short one drives for one pass, without waiting, and leaves the rest
 * to the one who will wait; in case there is none, the progress thread looks
 * every now and then.
 */
#include "src/stream/driver.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/base/type.h"
#include "src/base/yield.h"
#include "src/stream/batch.h"
#include "src/stream/request.h"
#include "src/stream/turns.h"
#include "src/core/data_path.h"

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
/* Most bytes of a short operation, and most batches that the thread which
 * queues one takes from the inbox */
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

static pthread_cond_t arrived; /* once the progress thread runs */
static struct batch *inbox, **inbox_tail = &inbox;
static _Atomic unsigned inbox_count;
static bool running;
/* Changed with stream_lock held; read without it as a hint */
static _Atomic bool driven;
static _Thread_local bool is_driver;
/* Guarded by stream_lock. Something is queued that the progress thread is to
 * drive unless another thread does. */
static bool progress_wanted;
static unsigned submitted; /* batches so far */
static unsigned drives;    /* how often a waiter began to drive */
/* It is to drive after whoever does, and sleeps meanwhile. */
static struct dicomm_request *heir;
static enum { AWAKE, NAPPING, ASLEEP } progress_is;
/* Threads that wait; and those of them that look whether they may drive, or
 * are to drive next */
static _Atomic unsigned waiters, candidates;

/* With stream_lock held: take what has been queued. */
static void take_inbox(void)
{
	if (!inbox)
		return;
	turns_append(inbox, inbox_tail);
	atomic_store_explicit(&inbox_count, 0, memory_order_relaxed);
	inbox = NULL;
	inbox_tail = &inbox;
}

/* Returns false if another thread is inside. */
static bool wait_for(struct operation *op)
{
	if (!data_path_take(&op->comm->path))
		return false;
	turns_wait(op);
	data_path_return(&op->comm->path);
	return true;
}

/* Take what has been queued, give turns, and wait if nothing moved. */
static void pass(void)
{
	/* passes without progress while only streams were waited for */
	static unsigned quiet, round;
	const struct timespec nap = {0, 50000};
	struct operation *idle;

	if (atomic_load_explicit(&inbox_count, memory_order_relaxed)) {
		pthread_mutex_lock(&stream_lock);
		take_inbox();
		pthread_mutex_unlock(&stream_lock);
	}
	if (turns_give(&idle)) {
		quiet = 0;
	} else if (idle) {
		if (!wait_for(idle) && !core_yield())
			nanosleep(&nap, NULL);
	} else if (++quiet >= QUIET_YIELDS || !core_yield()) {
		nanosleep(&nap, NULL);
	}
	if (round++ % LOOK_PASSES == 0)
		turns_look();
}

/* ---- who drives ---- */

/* With stream_lock held: is there anything to drive, and nobody who does? */
static bool is_left_alone(void)
{
	return !atomic_load(&driven) && (turns_left() || inbox);
}

/* What a driver finds about other operations than its own is not the last error
 * of that thread. Nor must the thread be cancelled meanwhile: callers hold
 * that. */
struct saved_error {
	char text[512];
};

static void save_error(struct saved_error *e)
{
	const char *text = log_last_error();
	size_t len = strnlen(text, sizeof(e->text) - 1);

	memcpy(e->text, text, len);
	e->text[len] = '\0';
}

static void restore_error(const struct saved_error *e)
{
	if (strcmp(e->text, log_last_error()))
		log_set_last_error(e->text);
}

/* With stream_lock held */
static void begin_driving(void)
{
	atomic_store_explicit(&driven, true, memory_order_relaxed);
	is_driver = true;
	take_inbox();
}

/* With stream_lock held. Before it has woken, nobody need wake it again. */
static void wake_progress(void)
{
	if (progress_is == ASLEEP)
		progress_is = NAPPING;
	pthread_cond_signal(&arrived);
}

/* With stream_lock held. What is left is driven by the waiter that is to do so,
 * or by the progress thread, which is woken if somebody waits for it. */
static void end_driving(void)
{
	is_driver = false;
	atomic_store_explicit(&driven, false, memory_order_relaxed);
	if (!turns_left() && !inbox)
		progress_wanted = false;
	else if (heir && !atomic_load(&turns_on_devices))
		request_rouse(heir);
	else if (progress_wanted || atomic_load(&waiters)
			 ? progress_is != AWAKE
			 : progress_is == ASLEEP)
		wake_progress();
}

/* With stream_lock held, which is given up meanwhile: drive for one pass,
 * without waiting, if nobody drives and there is not much. */
static void drive_once(void)
{
	struct operation *idle;
	struct saved_error saved;

	if (atomic_load(&driven) || atomic_load(&turns_on_devices) ||
	    atomic_load(&inbox_count) > SHORT_BATCHES)
		return;
	begin_driving();
	pthread_mutex_unlock(&stream_lock);
	save_error(&saved);
	turns_give(&idle);
	restore_error(&saved);
	pthread_mutex_lock(&stream_lock);
	end_driving();
}

/* With stream_lock held: a waiter drives if nobody does. */
static bool begin_as_waiter(void)
{
	if (!is_left_alone() || atomic_load(&turns_on_devices))
		return false;
	begin_driving();
	drives++;
	return true;
}

static bool try_driving(void)
{
	bool begun;

	if (atomic_load(&driven) || atomic_load(&turns_on_devices))
		return false;
	pthread_mutex_lock(&stream_lock);
	begun = begin_as_waiter();
	pthread_mutex_unlock(&stream_lock);
	return begun;
}

/* With stream_lock held, which is given up meanwhile: sleep until the request
 * is done, or whoever drives has ended. Returns true if this thread drives
 * now. */
static bool inherit(struct dicomm_request *r)
{
	bool begun;

	if (!request_lie_down(r))
		return false;
	heir = r;
	atomic_fetch_add(&candidates, 1);
	pthread_mutex_unlock(&stream_lock);
	request_doze(r, 0);
	pthread_mutex_lock(&stream_lock);
	heir = NULL;
	atomic_fetch_sub(&candidates, 1);
	begun = !request_is_done(r) && begin_as_waiter();
	/* It may have been handed over to this thread. */
	if (!begun && is_left_alone() && progress_is != AWAKE)
		wake_progress();
	return begun;
}

/* Sleep while another thread drives. One that makes one blocking call after the
 * other drives from the next hand-over on: if the progress thread went on, it
 * would have to be woken by that in each call. Returns true if this thread
 * drives now. */
static bool sleep_or_drive(struct dicomm_request *r, uint64_t end_ns)
{
	bool begun = false;

	if (!request_is_on_stack(r) || atomic_load(&turns_on_devices)) {
		request_sleep(r, end_ns);
		return false;
	}
	pthread_mutex_lock(&stream_lock);
	if (!heir && atomic_load(&driven)) {
		begun = inherit(r);
		pthread_mutex_unlock(&stream_lock);
		return begun;
	}
	begun = begin_as_waiter();
	pthread_mutex_unlock(&stream_lock);
	if (!begun)
		request_sleep(r, end_ns);
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

/* Drive until the request is done, or that time; 0: for ever. Returns true with
 * stream_lock held if it is done. */
static bool drive_for(struct dicomm_request *r, uint64_t end_ns)
{
	struct saved_error saved;
	bool done;

	save_error(&saved);
	while (!request_is_done(r) && !atomic_load(&turns_on_devices) &&
	       !(end_ns && clock_ns() >= end_ns))
		pass();
	restore_error(&saved);
	pthread_mutex_lock(&stream_lock);
	done = request_is_done(r);
	/* Nobody is to be woken for this thread. */
	if (done)
		atomic_fetch_sub(&waiters, 1);
	end_driving();
	if (!done)
		pthread_mutex_unlock(&stream_lock);
	return done;
}

void driver_await(struct dicomm_request *r, uint64_t end_ns)
{
	uint64_t most = end_ns ? clock_ns() + DRIVE_NS : 0;
	bool begun = begin_as_waiter();

	if (most > end_ns)
		most = end_ns;
	atomic_fetch_add(&waiters, 1);
	pthread_mutex_unlock(&stream_lock);
	while (begun ||
	       (!request_is_done(r) && !(end_ns && clock_ns() >= end_ns))) {
		if (begun && drive_for(r, most))
			return;
		begun = false;
		if (most && clock_ns() >= most)
			request_sleep(r, end_ns);
		else
			begun = become_driver(r) || sleep_or_drive(r, end_ns);
	}
	atomic_fetch_sub(&waiters, 1);
	pthread_mutex_lock(&stream_lock);
}

void driver_poll(void)
{
	pthread_mutex_lock(&stream_lock);
	drive_once();
	pthread_mutex_unlock(&stream_lock);
}

void driver_wake(void)
{
	pthread_mutex_lock(&stream_lock);
	progress_wanted = atomic_load(&driven) || turns_left() || inbox;
	if (is_left_alone() && progress_is != AWAKE)
		wake_progress();
	pthread_mutex_unlock(&stream_lock);
}

bool driver_has(const struct dicomm_comm *comm)
{
	return is_driver && data_path_queued(&comm->path);
}

/* ---- progress thread ---- */

/* With stream_lock held. Sleep until there is something that nobody drives, and
 * nobody is about to. */
static void await_work(void)
{
	unsigned seen = submitted, naps = 0, seen_drives;
	bool napped = false;

	while (!is_left_alone() ||
	       !(progress_wanted || napped || atomic_load(&waiters)) ||
	       (atomic_load(&candidates) && !atomic_load(&turns_on_devices))) {
		struct timespec end;

		if (seen != submitted)
			naps = 0;
		seen = submitted;
		if (naps++ >= NAPS && !is_left_alone()) {
			progress_is = ASLEEP;
			pthread_cond_wait(&arrived, &stream_lock);
			naps = 0;
			napped = false;
			continue;
		}
		progress_is = NAPPING;
		seen_drives = drives;
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_nsec += NAP_NS;
		if (end.tv_nsec >= 1000000000) {
			end.tv_nsec -= 1000000000;
			end.tv_sec++;
		}
		/* Waiters that drive every now and then need no help. */
		napped = pthread_cond_timedwait(&arrived, &stream_lock, &end) ==
				 ETIMEDOUT &&
			 drives == seen_drives;
	}
	progress_is = AWAKE;
}

/* Whoever has just waited for an operation often queues the next one. */
static void await_more(void)
{
	for (int i = 0; i < IDLE_YIELDS; i++)
		if (atomic_load_explicit(&inbox_count, memory_order_relaxed) ||
		    !core_yield())
			return;
}

static void *progress(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&stream_lock);
	for (;;) {
		bool awaits_more;

		await_work();
		awaits_more = progress_wanted;
		begin_driving();
		pthread_mutex_unlock(&stream_lock);
		while ((turns_left() || atomic_load(&inbox_count)) &&
		       (!atomic_load(&candidates) ||
			atomic_load(&turns_on_devices)))
			pass();
		pthread_mutex_lock(&stream_lock);
		end_driving();
		if (!awaits_more || turns_left() || inbox)
			continue;
		pthread_mutex_unlock(&stream_lock);
		await_more();
		pthread_mutex_lock(&stream_lock);
	}
	return NULL;
}

/* The child of a fork has no progress thread and nothing queued. */
void driver_forget(void)
{
	pthread_mutex_init(&stream_lock, NULL);
	batch_forget();
	turns_forget();
	inbox = NULL;
	inbox_tail = &inbox;
	atomic_store(&inbox_count, 0);
	atomic_store(&driven, false);
	atomic_store(&waiters, 0);
	atomic_store(&candidates, 0);
	is_driver = progress_wanted = running = false;
	heir = NULL;
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

dicomm_result_t driver_start(void)
{
	int error;

	if (running)
		return DICOMM_SUCCESS;
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

/* Are the calls short enough to be begun by who queues them? */
static bool is_short(const struct batch *w)
{
	size_t bytes = 0;

	for (size_t i = 0; i < w->nitems; i++) {
		const struct call *call = &w->items[i].call;

		if (call->window || w->items[i].counts)
			return false;
		bytes += call->function == COLL_BARRIER
				 ? 1
				 : call->count * type_bytes(call->type);
	}
	return bytes <= SHORT_BYTES;
}

/* With stream_lock held: somebody has to run what was queued. If `wait`, the
 * caller is about to wait, which does it. */
static void set_off(const struct batch *w, bool wait)
{
	bool brief = !w->on_device && (wait || is_short(w));

	if (!brief)
		progress_wanted = true;
	else if (!wait)
		drive_once();
	if (is_left_alone() && !wait &&
	    (progress_wanted ? progress_is != AWAKE : progress_is == ASLEEP))
		wake_progress();
}

void driver_add(struct batch *w, bool wait)
{
	*inbox_tail = w;
	inbox_tail = &w->next;
	atomic_fetch_add_explicit(&inbox_count, 1, memory_order_relaxed);
	submitted++;
	if (w->on_device)
		atomic_fetch_add(&turns_on_devices, 1);
	set_off(w, wait);
}
