/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The events of device.h, which includes this.
 *
 * A record lets the stream write the next number to a word of pinned host
 * memory, where the driver has that: then a query is a load, with no call of
 * the driver and none of its locks, and a stream waits for the word by itself.
 * Else, and for what a word cannot tell, it is an event of the driver.
 *
 * A word has one write under way at most: two streams write in no order, and
 * the one that comes late would take the word back. So an event whose word is
 * still to be written, and is recorded again, is the driver's that time. Words
 * are used again, when all is written, and never freed: a stream may write one,
 * or look at it, after its event was destroyed.
 *
 * Needed, beside what device.h names:
 *   gpu_writes(index)            do streams write to memory? Else what follows
 *                                is not called
 *   gpu_write_value(index, stream, word, value)  32 bits, when all that is on
 *                                the stream is done and can be seen;
 *                                GPU_NOT_SUPPORTED: not on this stream
 *   gpu_word_alloc(at), gpu_wait_value(index, stream, word, value)
 */
#ifndef DICOMM_ACCEL_GPU_EVENT_H
#define DICOMM_ACCEL_GPU_EVENT_H

#include <time.h>

#include "src/accel/gpu/device.h"
#include "src/base/clock.h"

/* Between two looks at a stream that is tried, and how long at most */
#define TRY_NS 20000
#define ARRIVES_NS UINT64_C(2000000000)
/* How long a word may be silent before the driver is asked: its call costs a
 * thousandth of that, and an error is known soon enough. */
#define SILENT_NS UINT64_C(1000000)
/* So that numbers wrap in each test, rather than after four thousand million
 * operations */
#define FIRST_NUMBER (UINT32_MAX - 3)

struct mark {
	_Atomic uint32_t *word; /* where devices see it */
	uint32_t number;        /* the last one that is written, or will be */
	struct mark *next;
};

struct accel_event {
	int index;
	gpu_event handle;
	struct mark *mark; /* NULL: the driver's events only */
	bool marked;       /* the last record is in the word */
	uint64_t since_ns; /* and was made then */
};

/* Of each device, which all of its events share */
static struct watch {
	int users;         /* events with a word; under the lock */
	gpu_stream stream; /* while there are any */
	_Atomic uint64_t asked_ns;
} watches[GPU_DEVICES];

/* Under the lock. */
static struct mark *spare_marks;

/* ---- words ---- */

static bool mark_reached(const struct mark *m)
{
	return atomic_load_explicit(m->word, memory_order_acquire) == m->number;
}

/* Under the lock, with a device entered. What still is to be written stays. */
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

/* Under the lock. */
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

/* Under the lock. A driver may have the function and refuse it, or worse: see
 * whether a number arrives. One that does later harms nothing. */
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

/* A stream that cannot wait for a word could not follow one that writes it. */
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

/* Under the lock, with the device entered: an event more, or less, of which the
 * driver may be asked. */
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

/* Where the driver lets nobody in any more, the stream stays. */
static void watch_end(int index, bool inside)
{
	if (!--watches[index].users && inside)
		gpu_stream_close(watches[index].stream, true);
}

/* A context that has failed writes no word. What fails is all of it, so a
 * stream of ours tells as well as the user's, which may be gone; by the event
 * that is not used else. Something has to be under way for the driver to look,
 * and an event of an idle stream is nothing: a wait for what is long there is.
 * Who hears of an error leaves the next one to ask at once. */
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

/* With the device entered */
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
