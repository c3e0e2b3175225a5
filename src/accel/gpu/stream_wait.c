/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/stream_wait.h"
#include "src/accel/gpu/word.h"
#include "src/base/clock.h"
#include "src/base/log.h"

/* The probe looks at a stream each LOOK_NS. A stream that can run reaches its
 * end within PROBE_NS. A stream that was held reaches it within FOLLOWS_NS
 * after the release. */
#define LOOK_NS 20000
#define PROBE_NS UINT64_C(2000000000)
#define FOLLOWS_NS UINT64_C(200000000)

struct accel_stream_wait {
	struct gpu_driver *gpu;
	struct gpu_word *word; /* its value: releases so far */
};

struct queued_wait {
	struct gpu_word *word;
	uint64_t ticket;
};

/* ---- words ---- */

static void word_add(struct gpu_word *w, uint64_t times)
{
	atomic_fetch_add_explicit(w->value, times, memory_order_release);
	gpu_word_wake(w);
}

/* Runs as a host function: block until the word has reached the ticket.
 * Destroying a stream wait releases it, so this ends. */
static void word_wait(void *ctx)
{
	struct queued_wait *c = ctx;
	uint64_t released;

	while (released = atomic_load_explicit(c->word->value,
					       memory_order_acquire),
	       released < c->ticket)
		gpu_word_sleep(c->word, released);
	free(c);
}

/* Make what is queued on a stream from now on wait for one more release of the
 * word. The device waits by itself if `waits`, otherwise a host function
 * does. */
static int word_hold(struct gpu_driver *gpu, int index, void *stream,
		     struct gpu_word *w, bool waits)
{
	uint64_t ticket = w->queued + 1;
	struct queued_wait *c;
	int error;

	if (waits) {
		error = gpu->wait_value(index, stream, w->value, ticket);
	} else {
		c = malloc(sizeof(*c));
		if (!c)
			return gpu->out_of_memory;
		*c = (struct queued_wait){.word = w, .ticket = ticket};
		error = gpu->api.host_function(stream, word_wait, c);
		if (error)
			free(c);
	}
	if (!error) {
		w->queued++;
		atomic_fetch_add(&gpu->pending_waits, 1);
	}
	return error;
}

static void word_release(struct gpu_driver *gpu, struct gpu_word *w,
			 uint64_t times)
{
	word_add(w, times);
	atomic_fetch_sub(&gpu->pending_waits, (int)times);
}

/* ---- what a device does ---- */

/* A stream of the library, for the probe. */
struct ours {
	struct gpu_driver *gpu;
	int index;
	void *stream;
	void *event;
	/* a word that is released; NULL: the device cannot wait for a word */
	const struct gpu_word *open;
};

/* Find out whether the stream reaches its end within that time. An event on an
 * idle stream is reached at once, whatever happens in the hardware queue. So
 * the stream first waits for a value that is already there, which counts as
 * work. */
static int reaches_end(const struct ours *o, uint64_t within_ns, bool *does)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};
	uint64_t until = clock_ns() + within_ns;
	struct gpu_driver *gpu = o->gpu;
	int error = 0;

	if (o->open)
		error = gpu->wait_value(o->index, o->stream, o->open->value,
					atomic_load(o->open->value));
	if (!error)
		error = gpu->api.event_record(o->event, o->stream);
	if (error)
		return error;
	while ((error = gpu->api.event_query(o->event)) == gpu->not_ready &&
	       clock_ns() < until)
		nanosleep(&nap, NULL);
	*does = !error;
	return error == gpu->not_ready ? 0 : error;
}

/* Find out whether a held stream `users` holds up the library's stream. Other
 * work on the device could have the same effect. So the library's stream has to
 * reach its end before the hold begins, and again right after the hold has
 * ended. */
static bool holds_up(struct gpu_word *w, void *users, const struct ours *o)
{
	bool before = false, meanwhile = true, after = false;

	if (reaches_end(o, PROBE_NS, &before) || !before ||
	    word_hold(o->gpu, o->index, users, w, o->open))
		return false;
	if (reaches_end(o, PROBE_NS, &meanwhile))
		meanwhile = true;
	word_release(o->gpu, w, 1);
	return !meanwhile && !reaches_end(o, FOLLOWS_NS, &after) && after;
}

/* Drivers run many streams on few hardware queues, where one that waits holds
 * up those behind it. The library's streams have another priority, and so
 * perhaps other queues: find out whether they advance while a user's stream is
 * held, and warn if not. A failure of the probe has no other effect. Copies
 * have queues of their own, which are not probed. */
static void warn_of_queues(struct gpu_driver *gpu, int index,
			   struct gpu_word *w, bool waits, void *users)
{
	struct ours ours = {.gpu = gpu, .index = index};
	int least = 0, greatest = 0;
	struct gpu_word *open = NULL;

	if (gpu->api.priorities(&least, &greatest) ||
	    (waits && gpu_word_get(gpu, index, &open) != DICOMM_SUCCESS))
		return;
	ours.open = open;
	if (!gpu->api.stream_create(&ours.stream, gpu->stream_flags,
				    greatest) &&
	    !gpu->api.event_create(&ours.event, gpu->event_flags)) {
		if (holds_up(w, users, &ours))
			log_warn("%s:%d: a stream that waits for the host "
				 "holds up those of the library: operations "
				 "may never end (does %s leave the device too "
				 "few queues?)",
				 gpu->kind, index, gpu->queues);
		gpu->api.event_destroy(ours.event);
	}
	if (ours.stream)
		gpu->api.stream_destroy(ours.stream);
	if (open)
		gpu_word_put(gpu, open);
}

/* Find out whether the device can wait for a word. How drivers report that
 * depends on their version. So queue a wait for a value that is already there,
 * and check whether the driver accepts it. */
dicomm_result_t gpu_stream_wait_probe(struct gpu_driver *gpu, int index,
				      bool *waits)
{
	void *stream = NULL;
	struct gpu_word *w = NULL;
	int error;

	TRY(gpu_word_get(gpu, index, &w));
	error = gpu->api.stream_create(&stream, gpu->stream_flags, 0);
	if (!error) {
		*waits = !gpu->wait_value(index, stream, w->value,
					  atomic_load(w->value));
		warn_of_queues(gpu, index, w, *waits, stream);
		gpu->api.stream_destroy(stream);
	}
	gpu_word_put(gpu, w);
	if (error)
		return gpu_device_failed(gpu, error, index, "a stream");
	log_info("%s:%d: streams wait for the host by %s", gpu->kind, index,
		 *waits ? "memory" : "host functions");
	return DICOMM_SUCCESS;
}

/* ---- stream waits ---- */

dicomm_result_t gpu_stream_wait_create(struct gpu_driver *gpu, int index,
				       struct accel_stream_wait **out)
{
	struct accel_stream_wait *g;
	dicomm_result_t status;

	TRY(gpu_device_enter(gpu, index));
	g = calloc(1, sizeof(*g));
	if (!g) {
		gpu_device_leave(gpu);
		return gpu_device_no_memory(gpu, index);
	}
	g->gpu = gpu;
	pthread_mutex_lock(&gpu->lock);
	status = gpu_word_get(gpu, index, &g->word);
	pthread_mutex_unlock(&gpu->lock);
	gpu_device_leave(gpu);
	if (status == DICOMM_SUCCESS)
		*out = g;
	else
		free(g);
	return status;
}

void gpu_stream_wait_destroy(struct accel_stream_wait *g)
{
	uint64_t left;

	if (!g)
		return;
	left = g->word->queued - atomic_load(g->word->value);
	word_release(g->gpu, g->word, left);
	pthread_mutex_lock(&g->gpu->lock);
	gpu_word_put(g->gpu, g->word);
	pthread_mutex_unlock(&g->gpu->lock);
	free(g);
}

void gpu_stream_wait_release(struct accel_stream_wait *g)
{
	assert(atomic_load(g->word->value) != atomic_load(&g->word->queued));
	word_release(g->gpu, g->word, 1);
}

bool gpu_stream_wait_held(struct gpu_driver *gpu)
{
	return atomic_load(&gpu->pending_waits) > 0;
}

dicomm_result_t gpu_stream_wait_queue(struct accel_stream_wait *g,
				      struct accel_stream *s)
{
	struct gpu_driver *gpu = s->gpu;
	int error;

	TRY(gpu_stream_refuse_capture(s));
	TRY(gpu_device_enter(gpu, s->index));
	error = word_hold(gpu, s->index, s->handle, g->word,
			  gpu->devices[s->index].waits);
	return gpu_device_done(gpu, error, s->index, "to wait for the host");
}
