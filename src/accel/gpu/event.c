/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <time.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/event.h"
#include "src/base/clock.h"
#include "src/base/log.h"

/* Intervals of event_try(), in nanoseconds: it looks for a number each TRY_NS,
 * for at most ARRIVES_NS. */
#define TRY_NS 20000
#define ARRIVES_NS UINT64_C(2000000000)
/* How long a word may stay unchanged, in nanoseconds, before the library checks
 * with the driver whether the device has failed. The call takes a thousandth of
 * this time, so it costs little, and errors are still found soon. */
#define SILENT_NS UINT64_C(1000000)
/* Numbers start shortly before they wrap around, so that every test covers
 * that; otherwise it would happen only after 2^32 operations. */
#define FIRST_NUMBER (UINT32_MAX - 3)

struct gpu_mark {
	/* in pinned memory, one address for host and devices */
	_Atomic uint32_t *word;
	/* the last number that a stream has written or will write */
	uint32_t number;
	struct gpu_mark *next;
};

struct accel_event {
	struct gpu_driver *gpu;
	int index;
	void *handle;
	struct gpu_mark *mark; /* NULL: this event uses the driver's only */
	bool marked;           /* the last record writes the word */
	uint64_t since_ns;     /* clock_ns() of that record */
};

/* ---- words ---- */

static bool mark_reached(const struct gpu_mark *m)
{
	return atomic_load_explicit(m->word, memory_order_acquire) == m->number;
}

/* Take a spare mark whose last number has been written, or make one. The caller
 * holds the lock and has entered the device. */
static dicomm_result_t mark_get(struct gpu_driver *gpu, int index,
				struct gpu_mark **out)
{
	struct gpu_mark **at = &gpu->spare_marks, *m;
	void *word = NULL;
	int error;

	while (*at && !mark_reached(*at))
		at = &(*at)->next;
	if ((m = *at)) {
		*at = m->next;
		*out = m;
		return DICOMM_SUCCESS;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return gpu_device_no_memory(gpu, index);
	error = gpu->word_alloc(&word);
	if (error) {
		free(m);
		return gpu_device_failed(gpu, error, index, "pinned memory");
	}
	m->word = word;
	m->number = FIRST_NUMBER;
	atomic_store(m->word, m->number);
	*out = m;
	return DICOMM_SUCCESS;
}

/* The caller holds the lock. A write may still be pending. */
static void mark_put(struct gpu_driver *gpu, struct gpu_mark *m)
{
	m->next = gpu->spare_marks;
	gpu->spare_marks = m;
}

static int mark_write(struct gpu_driver *gpu, int index, void *stream,
		      struct gpu_mark *m)
{
	int error = gpu->write_value(index, stream, m->word, m->number + 1);

	if (!error)
		m->number++;
	return error;
}

/* ---- what a device does ---- */

/* Find out whether a stream of the device writes a word. A driver may have the
 * function and refuse it, or lose the write, so wait for a number to arrive. If
 * it arrives after the time-out, that does no harm. The caller holds the
 * lock. */
static dicomm_result_t event_try(struct gpu_driver *gpu, int index,
				 bool *writes)
{
	const struct timespec nap = {.tv_nsec = TRY_NS};
	void *stream = NULL;
	struct gpu_mark *m = NULL;
	uint64_t until;
	int error;

	TRY(mark_get(gpu, index, &m));
	error = gpu->api.stream_create(&stream, gpu->stream_flags, 0);
	if (!error) {
		*writes = !mark_write(gpu, index, stream, m);
		until = clock_ns() + ARRIVES_NS;
		while (*writes && !mark_reached(m) && clock_ns() < until)
			nanosleep(&nap, NULL);
		*writes = *writes && mark_reached(m);
		gpu->api.stream_destroy(stream);
	}
	mark_put(gpu, m);
	return error ? gpu_device_failed(gpu, error, index, "a stream")
		     : DICOMM_SUCCESS;
}

/* Words are used only if streams can also wait for one: another stream has to
 * be able to follow the event. */
dicomm_result_t gpu_event_probe(struct gpu_driver *gpu, int index, bool waits,
				bool *writes)
{
	*writes = false;
	if (waits && gpu->writes && gpu->writes(index))
		TRY(event_try(gpu, index, writes));
	log_info("%s:%d: the host sees streams by %s", gpu->kind, index,
		 *writes ? "memory" : "events");
	return DICOMM_SUCCESS;
}

/* ---- errors ---- */

/* Count one more event with a word, and make the stream of the watch for the
 * first one. The caller holds the lock and has entered the device. */
static int watch_begin(struct gpu_driver *gpu, int index)
{
	struct gpu_device *d = &gpu->devices[index];
	int error = 0;

	if (!d->watch_users)
		error = gpu->api.stream_create(&d->watch_stream,
					       gpu->stream_flags, 0);
	if (!error)
		d->watch_users++;
	return error;
}

/* Count one event less. `inside`: the device was entered. If the device can no
 * longer be entered, the stream is not destroyed. */
static void watch_end(struct gpu_driver *gpu, int index, bool inside)
{
	struct gpu_device *d = &gpu->devices[index];

	if (!--d->watch_users && inside)
		gpu->api.stream_destroy(d->watch_stream);
}

/*
 * Check with the driver, at most each SILENT_NS, whether the device has failed:
 * a failed context writes no word. A failure affects the whole context. So this
 * queries a stream of the library, because the user's stream may be gone. It
 * uses the driver's event, which is unused while the record is in the word.
 *
 * The driver checks only while work is under way, and recording an event on an
 * idle stream is not work. So the stream first waits for a number that the word
 * has reached long ago. A thread that finds an error restores asked_ns, so that
 * the next thread checks at once.
 */
static dicomm_result_t watch_ask(const struct accel_event *e)
{
	struct gpu_driver *gpu = e->gpu;
	struct gpu_device *w = &gpu->devices[e->index];
	uint64_t asked = atomic_load(&w->asked_ns), now = clock_ns();
	int error;

	if (now - e->since_ns < SILENT_NS || now - asked < SILENT_NS ||
	    !atomic_compare_exchange_strong(&w->asked_ns, &asked, now))
		return DICOMM_AGAIN;
	TRY(gpu_device_enter(gpu, e->index));
	error = gpu->api.event_query(e->handle);
	if (!error)
		error = gpu->wait_value(e->index, w->watch_stream,
					e->mark->word, e->mark->number - 1);
	if (!error)
		error = gpu->api.event_record(e->handle, w->watch_stream);
	gpu_device_leave(gpu);
	if (!error || error == gpu->not_ready)
		return DICOMM_AGAIN;
	atomic_store(&w->asked_ns, asked);
	return gpu_device_failed(gpu, error, e->index, "work of a stream");
}

/* ---- events ---- */

/* Give the event a word, if the device writes one. The device is entered. */
static dicomm_result_t event_mark(struct accel_event *e)
{
	struct gpu_driver *gpu = e->gpu;
	dicomm_result_t status;
	int error;

	if (!gpu->devices[e->index].writes)
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&gpu->lock);
	status = mark_get(gpu, e->index, &e->mark);
	if (status == DICOMM_SUCCESS && (error = watch_begin(gpu, e->index))) {
		mark_put(gpu, e->mark);
		status = gpu_device_failed(gpu, error, e->index, "a stream");
	}
	pthread_mutex_unlock(&gpu->lock);
	return status;
}

dicomm_result_t gpu_event_create(struct gpu_driver *gpu, int index,
				 struct accel_event **out)
{
	dicomm_result_t status;
	struct accel_event *e;
	int error;

	TRY(gpu_device_enter(gpu, index));
	e = calloc(1, sizeof(*e));
	if (!e) {
		gpu_device_leave(gpu);
		return gpu_device_no_memory(gpu, index);
	}
	e->gpu = gpu;
	e->index = index;
	error = gpu->api.event_create(&e->handle, gpu->event_flags);
	status = error ? gpu_device_failed(gpu, error, index, "an event")
		       : event_mark(e);
	if (!error && status != DICOMM_SUCCESS)
		gpu->api.event_destroy(e->handle);
	gpu_device_leave(gpu);
	if (status == DICOMM_SUCCESS)
		*out = e;
	else
		free(e);
	return status;
}

void gpu_event_destroy(struct accel_event *e)
{
	struct gpu_driver *gpu;
	bool inside;

	if (!e)
		return;
	gpu = e->gpu;
	inside = gpu_device_enter(gpu, e->index) == DICOMM_SUCCESS;
	if (e->mark) {
		pthread_mutex_lock(&gpu->lock);
		mark_put(gpu, e->mark);
		watch_end(gpu, e->index, inside);
		pthread_mutex_unlock(&gpu->lock);
	}
	if (inside) {
		gpu->api.event_destroy(e->handle);
		gpu_device_leave(gpu);
	}
	free(e);
}

dicomm_result_t gpu_event_record(struct accel_event *e, struct accel_stream *s)
{
	struct gpu_driver *gpu = s->gpu;
	int error = gpu->not_supported;

	TRY(gpu_stream_refuse_capture(s));
	TRY(gpu_device_enter(gpu, s->index));
	if (e->mark && mark_reached(e->mark))
		error = mark_write(gpu, s->index, s->handle, e->mark);
	if (!error) {
		e->marked = true;
		e->since_ns = clock_ns();
	} else if (error == gpu->not_supported) {
		error = gpu->api.event_record(e->handle, s->handle);
		e->marked = e->marked && error;
	}
	return gpu_device_done(gpu, error, s->index, "an event");
}

dicomm_result_t gpu_event_query(const struct accel_event *e)
{
	struct gpu_driver *gpu = e->gpu;
	int error;

	if (e->marked)
		return mark_reached(e->mark) ? DICOMM_SUCCESS : watch_ask(e);
	gpu_device_relax(gpu);
	error = gpu->api.event_query(e->handle);
	gpu_device_restore(gpu);
	if (error == gpu->not_ready)
		return DICOMM_AGAIN;
	return error ? gpu_device_failed(gpu, error, e->index,
					 "work of a stream")
		     : DICOMM_SUCCESS;
}

dicomm_result_t gpu_event_wait(struct accel_stream *s,
			       const struct accel_event *e)
{
	struct gpu_driver *gpu = s->gpu;
	int error;

	TRY(gpu_device_enter(gpu, s->index));
	error = e->marked ? gpu->wait_value(s->index, s->handle, e->mark->word,
					    e->mark->number)
			  : gpu->api.wait_event(s->handle, e->handle, 0);
	return gpu_device_done(gpu, error, s->index, "to wait for an event");
}
