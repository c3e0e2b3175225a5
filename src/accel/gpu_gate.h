/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gates of gpu.h, which includes this, for drivers whose streams wait for
 * memory.
 *
 * A gate is a word of pinned host memory that counts how often it was opened.
 * Closing number k makes the stream wait until the word has reached k: by the
 * device where the driver offers that, else in a host function, which holds the
 * driver's other host functions as well. Words are used again and never freed:
 * a stream may look at one after its gate was destroyed, and must find it open.
 *
 * Needed, beside what gpu.h names:
 *   gpu_word_alloc(at)           8 bytes that host and devices see
 *   gpu_wait_value(index, stream, word, value)  until a word has a value
 */
#ifndef DICOMM_ACCEL_GPU_GATE_H
#define DICOMM_ACCEL_GPU_GATE_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

struct word {
	_Atomic uint64_t *opened; /* where the device sees it */
	_Atomic uint64_t closed;
	struct word *next;
};

struct accel_gate {
	int index;
	struct word *word;
};

struct closing {
	struct word *word;
	uint64_t ticket;
};

/* Under the lock. */
static struct word *spare_words;
static _Atomic int closed_gates; /* closings that no opening has followed */

/* ---- words ---- */

/* Under the lock, with a device entered. */
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
	w->opened = at;
	atomic_store(w->opened, 0);
	*out = w;
	return DICOMM_SUCCESS;
}

static void word_put(struct word *w)
{
	pthread_mutex_lock(&lock);
	w->next = spare_words;
	spare_words = w;
	pthread_mutex_unlock(&lock);
}

/* The lower half changes whenever the word does: who sleeps looks at that. */
static uint32_t *word_half(const struct word *w)
{
	return (uint32_t *)w->opened;
}

static void word_open(struct word *w, uint64_t times)
{
	atomic_fetch_add_explicit(w->opened, times, memory_order_release);
	syscall(SYS_futex, word_half(w), FUTEX_WAKE_PRIVATE, INT32_MAX, NULL,
		NULL, 0);
}

/* In a thread of the driver: until the gate was opened often enough. A gate
 * that is destroyed is opened, so this ends. */
static void word_wait(void *ctx)
{
	const struct timespec second = {.tv_sec = 1};
	struct closing *c = ctx;
	uint64_t opened;

	while (opened = atomic_load_explicit(c->word->opened,
					     memory_order_acquire),
	       opened < c->ticket)
		syscall(SYS_futex, word_half(c->word), FUTEX_WAIT_PRIVATE,
			(uint32_t)opened, &second, NULL, 0);
	free(c);
}

/* Can the device wait for a word? Drivers tell in ways that differ with their
 * age: see whether it takes one that is there already. */
static dicomm_result_t gate_probe(int index, bool *waits)
{
	gpu_stream stream = NULL;
	struct word *w = NULL;
	int error;

	TRY(word_get(index, &w));
	error = api.stream_create(&stream, GPU_STREAM_NON_BLOCKING, 0);
	if (!error) {
		*waits = !gpu_wait_value(index, stream, w->opened,
					 atomic_load(w->opened));
		api.stream_destroy(stream);
	}
	w->next = spare_words;
	spare_words = w;
	if (error)
		return failed(error, index, "a stream");
	log_info(GPU_KIND ":%d: streams wait for the host by %s", index,
		 *waits ? "memory" : "host functions");
	return DICOMM_SUCCESS;
}

/* ---- gates ---- */

static dicomm_result_t gpu_gate_create(int index, struct accel_gate **out)
{
	struct accel_gate *g;
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

static void gpu_gate_destroy(struct accel_gate *g)
{
	uint64_t left;

	if (!g)
		return;
	left = g->word->closed - atomic_load(g->word->opened);
	word_open(g->word, left);
	atomic_fetch_sub(&closed_gates, (int)left);
	word_put(g->word);
	free(g);
}

static void gpu_gate_open(struct accel_gate *g)
{
	assert(atomic_load(g->word->opened) != atomic_load(&g->word->closed));
	word_open(g->word, 1);
	atomic_fetch_sub(&closed_gates, 1);
}

static bool gpu_held(int index)
{
	(void)index;
	return atomic_load(&closed_gates) > 0;
}

/* A closing of which the driver's host function waits */
static dicomm_result_t close_by_host(struct accel_gate *g,
				     struct accel_stream *s, int *error)
{
	struct closing *c = malloc(sizeof(*c));

	if (!c)
		return no_memory(g->index);
	c->word = g->word;
	c->ticket = g->word->closed + 1;
	*error = gpu_host_function(s->handle, word_wait, c);
	if (*error)
		free(c);
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_gate_close(struct accel_gate *g,
				      struct accel_stream *s)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	int error = GPU_SUCCESS;

	TRY(refuse_capture(s));
	TRY(enter(s->index));
	if (devices[s->index].waits)
		error = gpu_wait_value(s->index, s->handle, g->word->opened,
				       g->word->closed + 1);
	else
		status = close_by_host(g, s, &error);
	gpu_leave();
	TRY(status);
	if (error)
		return failed(error, s->index, "to wait for the host");
	g->word->closed++;
	atomic_fetch_add(&closed_gates, 1);
	return DICOMM_SUCCESS;
}

#endif
