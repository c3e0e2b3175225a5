/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Graphs of the mock drivers of CUDA and HIP: streams are captured, and branch
 * and join by events; graphs are replayed, updated and destroyed. What a real
 * driver refuses during a capture is refused here, and spoils the capture as it
 * does there. Nodes run one at a time, in an order that is chosen at random
 * among those that their dependencies allow.
 */
#ifndef DICOMM_TESTS_MOCK_GRAPH_H
#define DICOMM_TESTS_MOCK_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAPH_MARKS 32

enum {
	DRIVER_GLOBAL = 0,
	DRIVER_THREAD_LOCAL = 1,

	GRAPH_NONE = 0,
	GRAPH_ACTIVE = 1,
	GRAPH_INVALID = 2,

	DRIVER_CAPTURE_INVALID = 901,
	DRIVER_CAPTURE_MERGE = 902,
	DRIVER_CAPTURE_UNMATCHED = 903,
	DRIVER_CAPTURE_UNJOINED = 904,
	DRIVER_CAPTURE_ISOLATION = 905,
	DRIVER_CAPTURED_EVENT = 907,
	DRIVER_CAPTURE_THREAD = 908,
	DRIVER_UPDATE_FAILED = 910,
};

struct driver_stream;
struct graph;
struct graph_node;
struct graph_exec;
struct graph_object;

/* Where an event of a captured stream is */
struct graph_mark {
	uint64_t capture; /* 0: none */
	struct graph_node *nodes[GRAPH_MARKS];
	size_t n;
};

/* ---- for the drivers ---- */

int graph_begin(struct driver_stream *s, int mode);
int graph_end(struct driver_stream *s, struct graph **out);
/* All but state may be NULL. */
int graph_info(struct driver_stream *s, int *state, uint64_t *capture,
	       struct graph **graph, struct graph_node *const **nodes,
	       size_t *n);
/* Those that the next node depends on; `only`: on no others */
int graph_follow(struct driver_stream *s, struct graph_node *const *nodes,
		 size_t n, bool only);
/* Copies arg, which each run gets a copy of, to free. */
int graph_add(struct graph *graph, struct graph_node **out,
	      struct graph_node *const *after, size_t n, int device,
	      int (*fn)(void *arg), const void *arg, size_t bytes);
int graph_destroy(struct graph *graph);
int graph_instantiate(struct graph *graph, struct graph_exec **out);
int graph_update(struct graph_exec *exec, struct graph *graph);
int graph_launch(struct graph_exec *exec, struct driver_stream *s, int device);
int graph_exec_destroy(struct graph_exec *exec);
int graph_object_create(struct graph_object **out, void *ptr,
			void (*destroy)(void *), unsigned refs);
int graph_object_release(struct graph_object *object, unsigned refs);
/* The references become the graph's; or, unless `moves`, it gets more. */
int graph_keep(struct graph *graph, struct graph_object *object, unsigned refs,
	       bool moves);

/* ---- for driver.c ---- */

/* GRAPH_NONE: it is not captured. */
int graph_state(struct driver_stream *s);
/* Of a captured stream: the work becomes a node. */
int graph_take(struct driver_stream *s, int device, int (*fn)(void *arg),
	       const void *arg, size_t bytes);
/* Something happens to it that cannot be captured. */
int graph_spoil(struct driver_stream *s);
int graph_record(struct driver_stream *s, struct graph_mark *mark);
/* The stream, captured or not, waits for an event that is so marked. */
int graph_join(struct driver_stream *s, const struct graph_mark *mark);
/* The thread does what may be unsafe while others capture. How strict it is
 * itself is `mode`. Spoils what it must not do that beside. */
int graph_unsafe(int mode);
/* For mock_capture(): that stream is being captured, by this thread, in the
 * global mode; NULL: no more. */
void graph_test(struct driver_stream *stream);
/* Graphs that were not destroyed */
int graph_live(void);

#endif
