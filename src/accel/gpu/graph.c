/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/graph.h"
#include "src/accel/gpu/stream_wait.h"
#include "src/accel/gpu/word.h"
#include "src/base/log.h"

/* Arguments of capture_follow(), object_create() and graph_keep() */
#define FOLLOW_TOO 0
#define FOLLOW_ONLY 1
#define NO_SYNC 1
#define MOVE 1
/* Nodes that a stream has reached: where branches of a capture have met, it is
 * more than one. */
#define FEW_NODES 32

enum { STOP_REACHED = 0, STOP_OPEN = 1 };

struct accel_stop {
	struct gpu_driver *gpu;
	struct gpu_word *word; /* holds one of the above */
	struct accel_stop *next;
};

/* Has the driver all that came with CUDA 11.3 and ROCm 5.3? */
static bool has_graphs(const struct gpu_driver *gpu)
{
	const struct gpu_calls *api = &gpu->api;

	return api->capture_info && api->capture_follow &&
	       api->graph_host_node && api->graph_keep && api->object_create &&
	       api->object_release;
}

bool gpu_graph_stop_reached(const struct accel_stop *stop)
{
	return atomic_load_explicit(stop->word->value, memory_order_acquire) ==
	       STOP_REACHED;
}

void gpu_graph_stop_release(struct accel_stop *stop)
{
	uint64_t reached = STOP_REACHED;

	if (atomic_compare_exchange_strong(stop->word->value, &reached,
					   STOP_OPEN))
		gpu_word_wake(stop->word);
}

/* Runs as a host function where the device cannot do it. The stop is released
 * before it is freed, so this ends. */
static void stop_and_wait(void *ctx)
{
	struct gpu_word *w = ctx;

	atomic_store_explicit(w->value, STOP_REACHED, memory_order_release);
	while (atomic_load_explicit(w->value, memory_order_acquire) ==
	       STOP_REACHED)
		gpu_word_sleep(w, STOP_REACHED);
}

static bool stops_hold(struct gpu_driver *gpu)
{
	bool any = false;

	pthread_mutex_lock(&gpu->stops_lock);
	for (const struct accel_stop *s = gpu->stops; s && !any; s = s->next)
		any = gpu_graph_stop_reached(s);
	pthread_mutex_unlock(&gpu->stops_lock);
	return any;
}

bool gpu_graph_held(struct gpu_driver *gpu)
{
	return gpu_stream_wait_held(gpu) || stops_hold(gpu);
}

void gpu_graph_stop_free(struct accel_stop *stop)
{
	struct gpu_driver *gpu;
	struct accel_stop **at;

	if (!stop)
		return;
	gpu = stop->gpu;
	at = &gpu->stops;
	pthread_mutex_lock(&gpu->stops_lock);
	while (*at && *at != stop)
		at = &(*at)->next;
	if (*at)
		*at = stop->next;
	stop->word->next = gpu->spare_stop_words;
	gpu->spare_stop_words = stop->word;
	pthread_mutex_unlock(&gpu->stops_lock);
	free(stop);
}

/* The caller has entered the device. */
static dicomm_result_t stop_new(struct gpu_driver *gpu, int index,
				struct accel_stop **out)
{
	struct accel_stop *stop = calloc(1, sizeof(*stop));
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!stop)
		return gpu_device_no_memory(gpu, index);
	stop->gpu = gpu;
	pthread_mutex_lock(&gpu->stops_lock);
	stop->word = gpu->spare_stop_words;
	if (stop->word)
		gpu->spare_stop_words = stop->word->next;
	pthread_mutex_unlock(&gpu->stops_lock);
	if (!stop->word) {
		pthread_mutex_lock(&gpu->lock);
		status = gpu_word_get(gpu, index, &stop->word);
		pthread_mutex_unlock(&gpu->lock);
	}
	if (status != DICOMM_SUCCESS) {
		free(stop);
		return status;
	}
	atomic_store(stop->word->value, STOP_OPEN);
	pthread_mutex_lock(&gpu->stops_lock);
	stop->next = gpu->stops;
	gpu->stops = stop;
	pthread_mutex_unlock(&gpu->stops_lock);
	*out = stop;
	return DICOMM_SUCCESS;
}

/* ---- captures ---- */

/* The caller has entered the device. */
static dicomm_result_t capture_state(struct gpu_driver *gpu, int index,
				     void *native, void **stream, int *state)
{
	bool fits = true;
	int error;

	*state = gpu->capture_none;
	error = gpu->stream_open(index, native, stream, &fits);
	if (!fits)
		return gpu_stream_misfit(gpu, index, native);
	if (!error)
		error = gpu->api.capturing(*stream, state);
	return error ? gpu_device_failed(gpu, error, index,
					 "the state of a stream")
		     : DICOMM_SUCCESS;
}

/* The default stream cannot be captured; who uses it finds out whether it can
 * be used. */
dicomm_result_t gpu_graph_captured(struct gpu_driver *gpu, int index,
				   void *native, uint64_t *capture)
{
	dicomm_result_t status;
	uint64_t number = 0;
	int state, error = 0;
	void *stream;

	*capture = 0;
	if (!native)
		return DICOMM_SUCCESS;
	TRY(gpu_device_enter(gpu, index));
	status = capture_state(gpu, index, native, &stream, &state);
	if (status == DICOMM_SUCCESS && state == gpu->capture_active &&
	    has_graphs(gpu))
		error = gpu->api.capture_info(stream, &state, &number, NULL,
					      NULL, NULL);
	gpu_device_leave(gpu);
	if (error)
		return gpu_device_failed(gpu, error, index,
					 "the capture of a stream");
	if (status != DICOMM_SUCCESS || state == gpu->capture_none)
		return status;
	if (state != gpu->capture_active)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: the capture of stream %p into a graph has "
			    "failed",
			    gpu->kind, index, native);
	if (!has_graphs(gpu))
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: stream %p is being captured into a graph, "
			    "which the library needs a newer driver for",
			    gpu->kind, index, native);
	*capture = number;
	return DICOMM_SUCCESS;
}

/* Add the node, and let the stream go on behind it. The driver's array of nodes
 * is valid until the next call. */
static int stop_insert(struct gpu_driver *gpu, int index, void *stream,
		       struct accel_order *order, struct accel_stop *stop)
{
	const struct gpu_host_node host = {.fn = stop_and_wait,
					   .arg = stop->word};
	void *after[FEW_NODES + 1], *node = NULL, *graph = NULL;
	void *const *reached = NULL;
	uint64_t number = 0;
	int state, error;
	size_t n = 0;
	bool follows;

	error = gpu->api.capture_info(stream, &state, &number, &graph, &reached,
				      &n);
	if (error || state != gpu->capture_active)
		return error ? error : gpu->not_supported;
	if (n > FEW_NODES)
		return gpu->not_supported;
	follows = order->capture == number;
	for (size_t i = 0; i < n; i++) {
		after[i] = reached[i];
		follows = follows && after[i] != order->last;
	}
	if (follows)
		after[n++] = order->last;
	error = gpu->devices[index].waits && gpu->stop_node
			? gpu->stop_node(index, &node, graph, after, n,
					 stop->word->value)
			: gpu->api.graph_host_node(&node, graph, after, n,
						   &host);
	if (!error)
		error = gpu->api.capture_follow(stream, &node, 1, FOLLOW_ONLY);
	if (error)
		return error;
	order->capture = number;
	order->last = node;
	return 0;
}

/* The graph gets the object before it gets the node: so there is no node that
 * nobody hears the end of. */
static int stop_capture(struct gpu_driver *gpu, int index, void *stream,
			struct accel_order *order, void (*gone)(void *ctx),
			void *ctx, struct accel_stop *stop, bool *kept)
{
	void *object = NULL, *graph = NULL;
	void *const *reached = NULL;
	uint64_t number = 0;
	int state, error;
	size_t n = 0;

	error = gpu->api.capture_info(stream, &state, &number, &graph, &reached,
				      &n);
	if (!error && state != gpu->capture_active)
		error = gpu->not_supported;
	if (!error)
		error = gpu->api.object_create(&object, ctx, gone, 1, NO_SYNC);
	if (error)
		return error;
	*kept = true;
	error = gpu->api.graph_keep(graph, object, 1, MOVE);
	if (error) {
		gpu->api.object_release(object, 1);
		return error;
	}
	return stop_insert(gpu, index, stream, order, stop);
}

dicomm_result_t gpu_graph_stop_add(struct gpu_driver *gpu, int index,
				   void *native, struct accel_order *order,
				   void (*gone)(void *ctx), void *ctx,
				   struct accel_stop **out)
{
	struct accel_stop *stop = NULL;
	void *stream = NULL;
	dicomm_result_t status;
	bool fits, kept = false;
	int error;

	*out = NULL;
	TRY(gpu_device_enter(gpu, index));
	status = stop_new(gpu, index, &stop);
	if (status != DICOMM_SUCCESS) {
		gpu_device_leave(gpu);
		return status;
	}
	error = gpu->stream_open(index, native, &stream, &fits);
	if (!error)
		error = stop_capture(gpu, index, stream, order, gone, ctx, stop,
				     &kept);
	status = gpu_device_done(gpu, error, index, "a node of a graph");
	if (kept)
		*out = stop;
	else
		gpu_graph_stop_free(stop);
	return status;
}

/* Nodes that a stream has reached, copied: the driver's array is valid until
 * the next call. */
static int reached_nodes(struct gpu_driver *gpu, void *stream, void **nodes,
			 size_t *n)
{
	void *graph = NULL, *const *reached = NULL;
	uint64_t number = 0;
	int state, error;

	*n = 0;
	error = gpu->api.capture_info(stream, &state, &number, &graph, &reached,
				      n);
	if (error || state != gpu->capture_active || *n > FEW_NODES)
		return error ? error : gpu->not_supported;
	for (size_t i = 0; i < *n; i++)
		nodes[i] = reached[i];
	return 0;
}

static int follow(struct gpu_driver *gpu, void *to, void *from, bool only)
{
	void *old[FEW_NODES], *nodes[FEW_NODES];
	size_t nold, n, more = 0;
	int error = reached_nodes(gpu, from, nodes, &n);

	if (!error && only)
		return gpu->api.capture_follow(to, nodes, n, FOLLOW_ONLY);
	if (!error)
		error = reached_nodes(gpu, to, old, &nold);
	for (size_t i = 0; !error && i < n; i++) {
		bool again = false;

		for (size_t k = 0; k < nold; k++)
			again |= old[k] == nodes[i];
		if (!again)
			nodes[more++] = nodes[i];
	}
	return error || !more
		       ? error
		       : gpu->api.capture_follow(to, nodes, more, FOLLOW_TOO);
}

dicomm_result_t gpu_graph_follow(struct gpu_driver *gpu, int index, void *to,
				 void *from, bool only)
{
	void *behind = NULL, *before = NULL;
	bool fits;
	int error;

	TRY(gpu_device_enter(gpu, index));
	error = gpu->stream_open(index, to, &behind, &fits);
	if (!error)
		error = gpu->stream_open(index, from, &before, &fits);
	if (!error)
		error = follow(gpu, behind, before, only);
	return gpu_device_done(gpu, error, index, "an edge of a graph");
}
