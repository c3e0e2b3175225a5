/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for GPU backends. backend.h includes this.
 *
 * Where the driver can, recording an event makes the stream write the next
 * number to a word of pinned host memory. Then a query is a load, without a
 * call of the driver or one of its locks, and another stream waits for the word
 * by itself. Otherwise the event is one of the driver.
 *
 * At most one write to a word is pending. Two streams write in no order, so a
 * late write could set the word back. If an event is recorded again while its
 * word is still to be written, that record uses the driver's event. A word is
 * used for another event only after all writes to it are done, and is never
 * freed: a stream may write or read it after its event was destroyed.
 *
 * A backend defines, beside what device.h names:
 *   gpu_writes(index)     returns true if streams write to memory; if not, the
 *                         rest is not called
 *   gpu_write_value(index, stream, word, value)
 *                         writes 32 bits after all earlier work of the stream,
 *                         visible to the host. Returns GPU_NOT_SUPPORTED if
 *                         this stream cannot
 *   gpu_word_alloc(at), gpu_wait_value(index, stream, word, value)
 *                         as in stream_wait.h
 */
#ifndef DICOMM_ACCEL_GPU_EVENT_H
#define DICOMM_ACCEL_GPU_EVENT_H

#include <time.h>

#include "src/accel/gpu/device.h"
#include "src/base/clock.h"

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

struct mark {
	/* in pinned memory, one address for host and devices */
	_Atomic uint32_t *word;
	/* the last number that a stream has written or will write */
	uint32_t number;
	struct mark *next;
};

struct accel_event {
	int index;
	gpu_event handle;
	struct mark *mark; /* NULL: this event uses the driver's only */
	bool marked;       /* the last record writes the word */
	uint64_t since_ns; /* clock_ns() of that record */
};

/* Checks whether a device has failed; all events of the device share it. */
static struct watch {
	int users;         /* events that have a word; under the lock */
	gpu_stream stream; /* exists while users > 0 */
	_Atomic uint64_t asked_ns;
} watches[GPU_DEVICES];

/* Marks without an event. Under the lock. */
static struct mark *spare_marks;

/* ---- words ---- */

static bool mark_reached(const struct mark *m)
{
	return atomic_load_explicit(m->word, memory_order_acquire) == m->number;
}

/* Take a spare mark whose last number has been written, or make one. The caller
 * holds the lock and has entered the device. */
static dicomm_result_t mark_get(int index, struct mark **out)
{
	struct mark **at = &spare_marks, *m;
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
		return no_memory(index);
	error = gpu_word_alloc(&word);
	if (error) {
		free(m);
		return failed(error, index, "pinned memory");
	}
	m->word = word;
	m->number = FIRST_NUMBER;
	atomic_store(m->word, m->number);
	*out = m;
	return DICOMM_SUCCESS;
}

/* The caller holds the lock. A write may still be pending. */
static void mark_put(struct mark *m)
{
	m->next = spare_marks;
	spare_marks = m;
}

static int mark_write(int index, gpu_stream stream, struct mark *m)
{
	int error = gpu_write_value(index, stream, m->word, m->number + 1);

	if (!error)
		m->number++;
	return error;
}

/* ---- what a device does ---- */

/* Find out whether a stream of the device writes a word. A driver may have the
 * function and refuse it, or lose the write, so wait for a number to arrive. If
 * it arrives after the time-out, that does no harm. The caller holds the
 * lock. */
static dicomm_result_t event_try(int index, bool *writes)
{
	const struct timespec nap = {.tv_nsec = TRY_NS};
	gpu_stream stream = NULL;
	struct mark *m = NULL;
	uint64_t until;
	int error;

	TRY(mark_get(index, &m));
	error = api.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0);
	if (!error) {
		*writes = !mark_write(index, stream, m);
		until = clock_ns() + ARRIVES_NS;
		while (*writes && !mark_reached(m) && clock_ns() < until)
			nanosleep(&nap, NULL);
		*writes = *writes && mark_reached(m);
		gpu_stream_close(stream, true);
	}
	mark_put(m);
	return error ? failed(error, index, "a stream") : DICOMM_SUCCESS;
}

/* Words are used only if streams can also wait for one: another stream has to
 * be able to follow the event. */
static dicomm_result_t event_probe(int index, bool waits, bool *writes)
{
	*writes = false;
	if (waits && gpu_writes(index))
		TRY(event_try(index, writes));
	log_info(GPU_KIND ":%d: the host sees streams by %s", index,
		 *writes ? "memory" : "events");
	return DICOMM_SUCCESS;
}

/* ---- errors ---- */

/* Count one more event with a word, and make the stream of the watch for the
 * first one. The caller holds the lock and has entered the device. */
static int watch_begin(int index)
{
	struct watch *w = &watches[index];
	int error = GPU_SUCCESS;

	if (!w->users)
		error = api.stream_create(&w->stream, GPU_STREAM_NON_BLOCKING,
					  0);
	if (!error)
		w->users++;
	return error;
}

/* Count one event less. `inside`: the device was entered. If the device can no
 * longer be entered, the stream is not destroyed. */
static void watch_end(int index, bool inside)
{
	if (!--watches[index].users && inside)
		gpu_stream_close(watches[index].stream, true);
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
	struct watch *w = &watches[e->index];
	uint64_t asked = atomic_load(&w->asked_ns), now = clock_ns();
	int error;

	if (now - e->since_ns < SILENT_NS || now - asked < SILENT_NS ||
	    !atomic_compare_exchange_strong(&w->asked_ns, &asked, now))
		return DICOMM_AGAIN;
	TRY(enter(e->index));
	error = api.event_query(e->handle);
	if (!error)
		error = gpu_wait_value(e->index, w->stream, e->mark->word,
				       e->mark->number - 1);
	if (!error)
		error = api.event_record(e->handle, w->stream);
	gpu_leave();
	if (!error || error == GPU_NOT_READY)
		return DICOMM_AGAIN;
	atomic_store(&w->asked_ns, asked);
	return failed(error, e->index, "work of a stream");
}

/* ---- events ---- */

/* Give the event a word, if the device writes one. The device is entered. */
static dicomm_result_t event_mark(struct accel_event *e)
{
	dicomm_result_t status;
	int error;

	if (!devices[e->index].writes)
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&lock);
	status = mark_get(e->index, &e->mark);
	if (status == DICOMM_SUCCESS && (error = watch_begin(e->index))) {
		mark_put(e->mark);
		status = failed(error, e->index, "a stream");
	}
	pthread_mutex_unlock(&lock);
	return status;
}

static dicomm_result_t gpu_event_create(int index, struct accel_event **out)
{
	dicomm_result_t status;
	struct accel_event *e;
	int error;

	TRY(enter(index));
	e = calloc(1, sizeof(*e));
	if (!e) {
		gpu_leave();
		return no_memory(index);
	}
	e->index = index;
	error = api.event_create(&e->handle, GPU_EVENT_DISABLE_TIMING);
	status = error ? failed(error, index, "an event") : event_mark(e);
	if (!error && status != DICOMM_SUCCESS)
		api.event_destroy(e->handle);
	gpu_leave();
	if (status == DICOMM_SUCCESS)
		*out = e;
	else
		free(e);
	return status;
}

static void gpu_event_destroy(struct accel_event *e)
{
	bool inside;

	if (!e)
		return;
	inside = enter(e->index) == DICOMM_SUCCESS;
	if (e->mark) {
		pthread_mutex_lock(&lock);
		mark_put(e->mark);
		watch_end(e->index, inside);
		pthread_mutex_unlock(&lock);
	}
	if (inside) {
		api.event_destroy(e->handle);
		gpu_leave();
	}
	free(e);
}

static dicomm_result_t gpu_event_record(struct accel_event *e,
					struct accel_stream *s)
{
	int error = GPU_NOT_SUPPORTED;

	TRY(refuse_capture(s));
	TRY(enter(s->index));
	if (e->mark && mark_reached(e->mark))
		error = mark_write(s->index, s->handle, e->mark);
	if (!error) {
		e->marked = true;
		e->since_ns = clock_ns();
	} else if (error == GPU_NOT_SUPPORTED) {
		error = api.event_record(e->handle, s->handle);
		e->marked = e->marked && error;
	}
	return leave(error, s->index, "an event");
}

static dicomm_result_t gpu_event_query(const struct accel_event *e)
{
	int error;

	if (e->marked)
		return mark_reached(e->mark) ? DICOMM_SUCCESS : watch_ask(e);
	gpu_relax();
	error = api.event_query(e->handle);
	gpu_restore();
	if (error == GPU_NOT_READY)
		return DICOMM_AGAIN;
	return error ? failed(error, e->index, "work of a stream")
		     : DICOMM_SUCCESS;
}

static dicomm_result_t gpu_wait_event(struct accel_stream *s,
				      const struct accel_event *e)
{
	int error;

	TRY(enter(s->index));
	error = e->marked ? gpu_wait_value(s->index, s->handle, e->mark->word,
					   e->mark->number)
			  : api.wait_event(s->handle, e->handle, 0);
	return leave(error, s->index, "to wait for an event");
}

#endif
