/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream waits for drivers whose streams wait for a value in memory. backend.h
 * includes this.
 *
 * A stream wait has a word of pinned host memory, which counts releases. Wait
 * number k holds the stream until the word has reached k. The device itself
 * waits where the driver can do that. Otherwise a host function waits, and
 * holds up the driver's other host functions meanwhile. Words are reused and
 * never freed: a stream may still read one after its stream wait was destroyed,
 * and must find it released.
 *
 * A backend defines, beside what device.h names:
 *   gpu_word_alloc(at)    allocates 8 bytes that host and devices see
 *   gpu_wait_value(index, stream, word, value)
 *                         makes the stream wait until the word has reached the
 *                         value
 */
#ifndef DICOMM_ACCEL_GPU_STREAM_WAIT_H
#define DICOMM_ACCEL_GPU_STREAM_WAIT_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "src/accel/gpu/device.h"
#include "src/base/clock.h"

/* The probe looks at a stream each LOOK_NS. A stream that can run reaches its
 * end within PROBE_NS. A stream that was held reaches it within FOLLOWS_NS
 * after the release. */
#define LOOK_NS 20000
#define PROBE_NS UINT64_C(2000000000)
#define FOLLOWS_NS UINT64_C(200000000)

struct word {
	/* releases so far; one address for host and devices */
	_Atomic uint64_t *released;
	_Atomic uint64_t queued;
	struct word *next;
};

struct accel_stream_wait {
	int index;
	struct word *word;
};

struct queued_wait {
	struct word *word;
	uint64_t ticket;
};

/* Words without a stream wait. Under the lock. */
static struct word *spare_words;
/* queued and not released, of all devices */
static _Atomic int pending_stream_waits;

/* ---- words ---- */

/* The caller holds the lock and has entered the device. */
static dicomm_result_t word_get(int index, struct word **out)
{
	struct word *w = spare_words;
	void *at = NULL;
	int error;

	if (w) {
		spare_words = w->next;
		*out = w;
		return DICOMM_SUCCESS;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return no_memory(index);
	error = gpu_word_alloc(&at);
	if (error) {
		free(w);
		return failed(error, index, "pinned memory");
	}
	w->released = at;
	atomic_store(w->released, 0);
	*out = w;
	return DICOMM_SUCCESS;
}

/* The caller holds the lock. */
static void word_put(struct word *w)
{
	w->next = spare_words;
	spare_words = w;
}

/* A futex has 32 bits. Each release changes the lower half of the word, so
 * threads sleep on that half (on a little-endian host). */
static uint32_t *word_half(const struct word *w)
{
	return (uint32_t *)w->released;
}

static void word_add(struct word *w, uint64_t times)
{
	atomic_fetch_add_explicit(w->released, times, memory_order_release);
	syscall(SYS_futex, word_half(w), FUTEX_WAKE_PRIVATE, INT32_MAX, NULL,
		NULL, 0);
}

/* Runs as a host function: block until the word has reached the ticket.
 * Destroying a stream wait releases it, so this ends. */
static void word_wait(void *ctx)
{
	const struct timespec second = {.tv_sec = 1};
	struct queued_wait *c = ctx;
	uint64_t released;

	while (released = atomic_load_explicit(c->word->released,
					       memory_order_acquire),
	       released < c->ticket)
		syscall(SYS_futex, word_half(c->word), FUTEX_WAIT_PRIVATE,
			(uint32_t)released, &second, NULL, 0);
	free(c);
}

/* Make what is queued on a stream from now on wait for one more release of the
 * word. The device waits by itself if `waits`, otherwise a host function
 * does. */
static int word_hold(int index, gpu_stream stream, struct word *w, bool waits)
{
	uint64_t ticket = w->queued + 1;
	struct queued_wait *c;
	int error;

	if (waits) {
		error = gpu_wait_value(index, stream, w->released, ticket);
	} else {
		c = malloc(sizeof(*c));
		if (!c)
			return GPU_OUT_OF_MEMORY;
		*c = (struct queued_wait){.word = w, .ticket = ticket};
		error = gpu_host_function(stream, word_wait, c);
		if (error)
			free(c);
	}
	if (!error) {
		w->queued++;
		atomic_fetch_add(&pending_stream_waits, 1);
	}
	return error;
}

static void word_release(struct word *w, uint64_t times)
{
	word_add(w, times);
	atomic_fetch_sub(&pending_stream_waits, (int)times);
}

/* ---- what a device does ---- */

/* A stream of the library, for the probe. */
struct ours {
	int index;
	gpu_stream stream;
	gpu_event event;
	/* a word that is released; NULL: the device cannot wait for a word */
	const struct word *open;
};

/* Find out whether the stream reaches its end within that time. An event on an
 * idle stream is reached at once, whatever happens in the hardware queue. So
 * the stream first waits for a value that is already there, which counts as
 * work. */
static int reaches_end(const struct ours *o, uint64_t within_ns, bool *does)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};
	uint64_t until = clock_ns() + within_ns;
	int error = 0;

	if (o->open)
		error = gpu_wait_value(o->index, o->stream, o->open->released,
				       atomic_load(o->open->released));
	if (!error)
		error = api.event_record(o->event, o->stream);
	if (error)
		return error;
	while ((error = api.event_query(o->event)) == GPU_NOT_READY &&
	       clock_ns() < until)
		nanosleep(&nap, NULL);
	*does = !error;
	return error == GPU_NOT_READY ? GPU_SUCCESS : error;
}

/* Find out whether a held stream `users` holds up the library's stream. Other
 * work on the device could have the same effect. So the library's stream has to
 * reach its end before the hold begins, and again right after the hold has
 * ended. */
static bool holds_up(struct word *w, gpu_stream users, const struct ours *o)
{
	bool before = false, meanwhile = true, after = false;

	if (reaches_end(o, PROBE_NS, &before) || !before ||
	    word_hold(o->index, users, w, o->open))
		return false;
	if (reaches_end(o, PROBE_NS, &meanwhile))
		meanwhile = true;
	word_release(w, 1);
	return !meanwhile && !reaches_end(o, FOLLOWS_NS, &after) && after;
}

/* Drivers run many streams on few hardware queues, where one that waits holds
 * up those behind it. The library's streams have another priority, and so
 * perhaps other queues: find out whether they advance while a user's stream is
 * held, and warn if not. A failure of the probe has no other effect. Copies
 * have queues of their own, which are not probed. */
static void warn_of_queues(int index, struct word *w, bool waits,
			   gpu_stream users)
{
	struct ours ours = {.index = index};
	int least = 0, greatest = 0;
	struct word *open = NULL;

	if (api.priorities(&least, &greatest) ||
	    (waits && word_get(index, &open) != DICOMM_SUCCESS))
		return;
	ours.open = open;
	if (!api.stream_create(&ours.stream, GPU_STREAM_NON_BLOCKING,
			       greatest) &&
	    !api.event_create(&ours.event, GPU_EVENT_DISABLE_TIMING)) {
		if (holds_up(w, users, &ours))
			log_warn(GPU_KIND
				 ":%d: a stream that waits for the host holds "
				 "up those of the library: operations may "
				 "never end (does " GPU_QUEUES
				 " leave the device too few queues?)",
				 index);
		api.event_destroy(ours.event);
	}
	if (ours.stream)
		api.stream_destroy(ours.stream);
	if (open)
		word_put(open);
}

/* Find out whether the device can wait for a word. How drivers report that
 * depends on their version. So queue a wait for a value that is already there,
 * and check whether the driver accepts it. */
static dicomm_result_t stream_wait_probe(int index, bool *waits)
{
	gpu_stream stream = NULL;
	struct word *w = NULL;
	int error;

	TRY(word_get(index, &w));
	error = api.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0);
	if (!error) {
		*waits = !gpu_wait_value(index, stream, w->released,
					 atomic_load(w->released));
		warn_of_queues(index, w, *waits, stream);
		api.stream_destroy(stream);
	}
	word_put(w);
	if (error)
		return failed(error, index, "a stream");
	log_info(GPU_KIND ":%d: streams wait for the host by %s", index,
		 *waits ? "memory" : "host functions");
	return DICOMM_SUCCESS;
}

/* ---- stream waits ---- */

static dicomm_result_t gpu_stream_wait_create(int index,
					      struct accel_stream_wait **out)
{
	struct accel_stream_wait *g;
	dicomm_result_t status;

	TRY(enter(index));
	g = calloc(1, sizeof(*g));
	if (!g) {
		gpu_leave();
		return no_memory(index);
	}
	g->index = index;
	pthread_mutex_lock(&lock);
	status = word_get(index, &g->word);
	pthread_mutex_unlock(&lock);
	gpu_leave();
	if (status == DICOMM_SUCCESS)
		*out = g;
	else
		free(g);
	return status;
}

static void gpu_stream_wait_destroy(struct accel_stream_wait *g)
{
	uint64_t left;

	if (!g)
		return;
	left = g->word->queued - atomic_load(g->word->released);
	word_release(g->word, left);
	pthread_mutex_lock(&lock);
	word_put(g->word);
	pthread_mutex_unlock(&lock);
	free(g);
}

static void gpu_stream_wait_release(struct accel_stream_wait *g)
{
	assert(atomic_load(g->word->released) != atomic_load(&g->word->queued));
	word_release(g->word, 1);
}

static bool gpu_held(int index)
{
	(void)index;
	return atomic_load(&pending_stream_waits) > 0;
}

static dicomm_result_t gpu_stream_wait_queue(struct accel_stream_wait *g,
					     struct accel_stream *s)
{
	int error;

	TRY(refuse_capture(s));
	TRY(enter(s->index));
	error = word_hold(s->index, s->handle, g->word,
			  devices[s->index].waits);
	return leave(error, s->index, "to wait for the host");
}

#endif
