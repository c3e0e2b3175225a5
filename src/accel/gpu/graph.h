/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stops in graphs, for GPU backends. backend.h includes this.
 *
 * A stop is one node of a graph, with a word of pinned host memory. The node
 * sets the word to 0 and waits until it is 1 again. The host looks at the word,
 * and sets it to 1. Replays of a graph do not overlap, so the two states are
 * enough. Where the device cannot do that by itself, the node is a host
 * function, which holds up the driver's other host functions meanwhile.
 *
 * An object of the user, which the graph and everything that is made of it
 * hold, tells when the last of these is gone. Words are reused and never freed.
 *
 * A backend defines, beside what device.h names:
 *   gpu_graph, gpu_node, gpu_object
 *                         the driver's handles
 *   GPU_CAPTURE_ACTIVE    the state of a stream that is being captured
 *   gpu_capture_info(stream, state, capture, graph, nodes, n)
 *                         tells about the capture of a stream, and which nodes
 *                         it has reached
 *   gpu_stop_node(index, waits, node, graph, after, n, word, fn, arg)
 *                         adds a node that does what is said above by itself,
 *                         or by calling fn(arg), which does it. waits: the
 *                         device can wait for a word
 *   api.capture_follow(stream, node, n, GPU_FOLLOW_ONLY)
 *                         the stream goes on behind these nodes only
 *   api.object_create(object, ctx, gone, 1, GPU_NO_SYNC),
 *   api.object_release(object, 1), api.graph_keep(graph, object, 1, GPU_MOVE)
 *                         make, release and hand over an object of the user
 */
#ifndef DICOMM_ACCEL_GPU_GRAPH_H
#define DICOMM_ACCEL_GPU_GRAPH_H

#include "src/accel/gpu/stream_wait.h"

#define GPU_FOLLOW_ONLY 1
#define GPU_NO_SYNC 1
#define GPU_MOVE 1
/* Nodes that a stream has reached: where branches of a capture have met, it is
 * more than one. */
#define FEW_NODES 32

enum { STOP_REACHED = 0, STOP_OPEN = 1 };

struct accel_stop {
	int index;
	struct word *word; /* holds one of the above */
	struct accel_stop *next;
};

/* Of all devices; a lock of its own, because the other one may be held while
 * its owner waits for a stream. */
static pthread_mutex_t stops_lock = PTHREAD_MUTEX_INITIALIZER;
static struct accel_stop *stops;
static struct word *spare_stop_words; /* guarded by it */

/* All that came with CUDA 11.3 and ROCm 5.3, under the same names of `api` */
static bool gpu_has_graphs(void)
{
	return api.capture_info && api.capture_follow && api.graph_host_node &&
	       api.graph_keep && api.object_create && api.object_release;
}

static bool gpu_stop_reached(const struct accel_stop *stop)
{
	return atomic_load_explicit(stop->word->released,
				    memory_order_acquire) == STOP_REACHED;
}

static void gpu_stop_release(struct accel_stop *stop)
{
	uint64_t reached = STOP_REACHED;

	if (atomic_compare_exchange_strong(stop->word->released, &reached,
					   STOP_OPEN))
		syscall(SYS_futex, word_half(stop->word), FUTEX_WAKE_PRIVATE,
			INT32_MAX, NULL, NULL, 0);
}

/* Runs as a host function where the device cannot do it. The stop is released
 * before it is freed, so this ends. */
static void stop_and_wait(void *ctx)
{
	const struct timespec second = {.tv_sec = 1};
	struct word *w = ctx;

	atomic_store_explicit(w->released, STOP_REACHED, memory_order_release);
	while (atomic_load_explicit(w->released, memory_order_acquire) ==
	       STOP_REACHED)
		syscall(SYS_futex, word_half(w), FUTEX_WAIT_PRIVATE,
			STOP_REACHED, &second, NULL, 0);
}

static bool gpu_stops_hold(void)
{
	bool any = false;

	pthread_mutex_lock(&stops_lock);
	for (const struct accel_stop *s = stops; s && !any; s = s->next)
		any = gpu_stop_reached(s);
	pthread_mutex_unlock(&stops_lock);
	return any;
}

/* Returns true if a stream wait is pending, or a replay waits at a stop. */
static bool gpu_held_or_stopped(int index)
{
	return gpu_held(index) || gpu_stops_hold();
}

static void gpu_stop_free(struct accel_stop *stop)
{
	struct accel_stop **at = &stops;

	if (!stop)
		return;
	pthread_mutex_lock(&stops_lock);
	while (*at && *at != stop)
		at = &(*at)->next;
	if (*at)
		*at = stop->next;
	stop->word->next = spare_stop_words;
	spare_stop_words = stop->word;
	pthread_mutex_unlock(&stops_lock);
	free(stop);
}

/* The caller has entered the device. */
static dicomm_result_t stop_new(int index, struct accel_stop **out)
{
	struct accel_stop *stop = calloc(1, sizeof(*stop));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!stop)
		return no_memory(index);
	stop->index = index;
	pthread_mutex_lock(&stops_lock);
	stop->word = spare_stop_words;
	if (stop->word)
		spare_stop_words = stop->word->next;
	pthread_mutex_unlock(&stops_lock);
	if (!stop->word) {
		pthread_mutex_lock(&lock);
		status = word_get(index, &stop->word);
		pthread_mutex_unlock(&lock);
	}
	if (status != DICOMM_SUCCESS) {
		free(stop);
		return status;
	}
	atomic_store(stop->word->released, STOP_OPEN);
	pthread_mutex_lock(&stops_lock);
	stop->next = stops;
	stops = stop;
	pthread_mutex_unlock(&stops_lock);
	*out = stop;
	return DICOMM_SUCCESS;
}

/* ---- captures ---- */

/* The caller has entered the device. */
static dicomm_result_t capture_state(int index, void *native,
				     gpu_stream *stream, gpu_capture *state)
{
	bool fits = true;
	int error;

	*state = GPU_CAPTURE_NONE;
	error = gpu_stream_open(index, native, stream, &fits);
	if (!fits)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    GPU_KIND ":%d: stream %p is of another device or "
				     "context",
			    index, native);
	if (!error)
		error = api.capturing(*stream, state);
	return error ? failed(error, index, "the state of a stream")
		     : DICOMM_SUCCESS;
}

/* The default stream cannot be captured; who uses it finds out whether it can
 * be used. */
static dicomm_result_t gpu_captured(int index, void *native, uint64_t *capture)
{
	gpu_capture state;
	gpu_stream stream;
	dicomm_result_t status;
	unsigned long long number = 0;
	int error = GPU_SUCCESS;

	*capture = 0;
	if (!native)
		return DICOMM_SUCCESS;
	TRY(enter(index));
	status = capture_state(index, native, &stream, &state);
	if (status == DICOMM_SUCCESS && state == GPU_CAPTURE_ACTIVE &&
	    gpu_has_graphs())
		error = gpu_capture_info(stream, &state, &number, NULL, NULL,
					 NULL);
	gpu_leave();
	if (error)
		return failed(error, index, "the capture of a stream");
	if (status != DICOMM_SUCCESS || state == GPU_CAPTURE_NONE)
		return status;
	if (state != GPU_CAPTURE_ACTIVE)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: the capture of stream %p into a "
				     "graph has failed",
			    index, native);
	if (!gpu_has_graphs())
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    GPU_KIND ":%d: stream %p is being captured into a "
				     "graph, which the library needs a newer "
				     "driver for",
			    index, native);
	*capture = number;
	return DICOMM_SUCCESS;
}

/* Add the node, and let the stream go on behind it. The driver's array of nodes
 * is valid until the next call. */
static int stop_insert(int index, gpu_stream stream, struct accel_order *order,
		       struct accel_stop *stop)
{
	gpu_node after[FEW_NODES + 1], node = NULL;
	const gpu_node *reached = NULL;
	unsigned long long number = 0;
	gpu_graph graph = NULL;
	gpu_capture state;
	size_t n = 0;
	bool follows;
	int error;

	error = gpu_capture_info(stream, &state, &number, &graph, &reached, &n);
	if (error || state != GPU_CAPTURE_ACTIVE)
		return error ? error : GPU_NOT_SUPPORTED;
	if (n > FEW_NODES)
		return GPU_NOT_SUPPORTED;
	follows = order->capture == number;
	for (size_t i = 0; i < n; i++) {
		after[i] = reached[i];
		follows = follows && after[i] != (gpu_node)order->last;
	}
	if (follows)
		after[n++] = order->last;
	error = gpu_stop_node(index, devices[index].waits, &node, graph, after,
			      n, stop->word->released, stop_and_wait,
			      stop->word);
	if (!error)
		error = api.capture_follow(stream, &node, 1, GPU_FOLLOW_ONLY);
	if (error)
		return error;
	order->capture = number;
	order->last = node;
	return GPU_SUCCESS;
}

/* The graph gets the object before it gets the node: so there is no node that
 * nobody hears the end of. */
static int stop_capture(int index, gpu_stream stream, struct accel_order *order,
			void (*gone)(void *ctx), void *ctx,
			struct accel_stop *stop, bool *kept)
{
	unsigned long long number = 0;
	gpu_object object = NULL;
	gpu_graph graph = NULL;
	gpu_capture state;
	size_t n = 0;
	const gpu_node *reached = NULL;
	int error;

	error = gpu_capture_info(stream, &state, &number, &graph, &reached, &n);
	if (!error && state != GPU_CAPTURE_ACTIVE)
		error = GPU_NOT_SUPPORTED;
	if (!error)
		error = api.object_create(&object, ctx, gone, 1, GPU_NO_SYNC);
	if (error)
		return error;
	*kept = true;
	error = api.graph_keep(graph, object, 1, GPU_MOVE);
	if (error) {
		api.object_release(object, 1);
		return error;
	}
	return stop_insert(index, stream, order, stop);
}

static dicomm_result_t gpu_stop_add(int index, void *native,
				    struct accel_order *order,
				    void (*gone)(void *ctx), void *ctx,
				    struct accel_stop **out)
{
	struct accel_stop *stop = NULL;
	gpu_stream stream = NULL;
	dicomm_result_t status;
	bool fits, kept = false;
	int error;

	*out = NULL;
	TRY(enter(index));
	status = stop_new(index, &stop);
	if (status != DICOMM_SUCCESS) {
		gpu_leave();
		return status;
	}
	error = gpu_stream_open(index, native, &stream, &fits);
	if (!error)
		error = stop_capture(index, stream, order, gone, ctx, stop,
				     &kept);
	status = leave(error, index, "a node of a graph");
	if (kept)
		*out = stop;
	else
		gpu_stop_free(stop);
	return status;
}

static const struct accel_graphs gpu_graphs = {
	.captured = gpu_captured,
	.stop_add = gpu_stop_add,
	.stop_free = gpu_stop_free,
	.stop_reached = gpu_stop_reached,
	.stop_release = gpu_stop_release,
};

#endif
