/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A unit of calls that is queued on streams: those of a group, or one. Its
 * driver (driver.h) calls these functions, unless another thread is said to.
 */
#ifndef DICOMM_STREAM_BATCH_H
#define DICOMM_STREAM_BATCH_H

#include <pthread.h>

#include "src/core/wait.h"
#include "src/stream/submit.h"

struct batch;
struct dicomm_request;

/* The place of a batch in one of its streams. */
struct place {
	struct host_stream *stream;
	struct batch *work;
	struct place *next; /* the next batch of the same stream */
};

struct host_stream {
	uint64_t magic;
	int generation; /* of the process that created it */
	/* Guarded by stream_lock. */
	size_t pending;
	struct batch *last;     /* queued last, while there are pending ones */
	dicomm_result_t status; /* first failure since the last synchronise */
	char text[512];
	dicomm_result_t last_status; /* of the batch that ended last */
	char last_text[512];
	/* Used by the driver only. */
	struct place *head, *tail;
};

struct batch {
	struct item *items;
	size_t nitems, left;
	struct place *places;
	/* blocked: number of streams in which the batch is not first */
	size_t nplaces, blocked;
	struct stream_fence *fences; /* fences of device streams */
	/* the device streams have reached all fences */
	bool reached;
	bool on_device;  /* an item is of the rank of a device */
	size_t accepted; /* items that have their place in the order of calls */
	struct operation
		*waiting; /* first operation that did not end in this pass */
	struct waiter waiter;
	/* Guarded by stream_lock; the last is on the stack of its waiter */
	struct dicomm_request *requests;
	dicomm_result_t status;
	char text[512];
	struct batch *next;
};

/* Guards what is handed over between threads (inbox, pending counts, results),
 * and who drives. It is not taken during a turn. */
extern pthread_mutex_t stream_lock;

/* For who queues it. Copies the items. Returns NULL if there is no memory. */
struct batch *batch_make(const struct item *items, size_t n);
/* Also frees the counts of its items. */
void batch_free(struct batch *w);
/* Release all fences; their streams continue. */
void batch_release_fences(struct batch *w);

/* Prepare the operations, in call order. That gives them their message numbers
 * on each communicator. Returns false if another thread is inside one of these;
 * then call it again, before any later batch. */
bool batch_accept(struct batch *w);
/* Drop the items of broken communicators, whatever else the batch waits for.
 * Returns false if another thread is inside one. */
bool batch_drop_broken(struct batch *w);
/* Check whether the device streams have reached the fences. */
void batch_look_at_fences(struct batch *w, bool *moved);
/* Give each operation a turn whose communicator is free. Returns the first one
 * that did not end, or NULL. *moved is set if any made progress. */
struct operation *batch_turn(struct batch *w, bool *moved);
/* Check for late ranks in the other operations, after the first that waits. */
void batch_watch_others(struct batch *w);
/* All have ended: tell those who wait, and free it. */
void batch_complete(struct batch *w);

#endif
