/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A unit of calls that is queued on streams: those of a group, or one. The
 * driver (driver.h) calls these functions, unless noted otherwise.
 */
#ifndef DICOMM_STREAM_BATCH_H
#define DICOMM_STREAM_BATCH_H

#include <pthread.h>

#include "src/core/wait.h"
#include "src/stream/item.h"

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
	dicomm_result_t last_status; /* status of the batch that ended last */
	char last_text[512];
	/* Used by the driver only. others: number of batches in the stream that
	 * are not only_sends. */
	struct place *head, *tail;
	size_t others;
};

struct batch {
	struct item *items;
	size_t nitems, left;
	struct place *places;
	/* blocked: number of streams in which the batch is not first */
	size_t nplaces, blocked;
	/* Runs before its operations, in no stream; NULL: nothing */
	const struct local_work *before_all;
	struct stream_fence *fences; /* fences of device streams */
	/* the device streams have reached all fences */
	bool reached;
	bool on_device;  /* an item is of the rank of a device */
	size_t accepted; /* items that have their place in the order of calls */
	/* All its calls are sends with a tag. These only read their buffers, so
	 * successive ones on a stream run at the same time. */
	bool only_sends;
	/* Of turns.c. begun: its operations may get turns; ended: it is about
	 * to be completed. */
	bool begun, ended;
	bool warned;    /* the warning that a rank is late was logged */
	unsigned moves; /* how often one of its operations has made progress */
	/* Guarded by stream_lock; the last is on the stack of its waiter */
	struct dicomm_request *requests;
	dicomm_result_t status;
	char *text;         /* text of the failure; may be NULL */
	struct batch *next; /* in the inbox, or in another list */
	struct batch *before,
		*after; /* in the list of all that were accepted */
};

/* Guards what threads hand over to each other (inbox, pending counts, results),
 * and which thread is the driver. It is not taken during a turn. */
extern pthread_mutex_t stream_lock;

/* Called by the thread that queues it, with stream_lock held. Copies the items.
 * Returns NULL if there is no memory. */
struct batch *batch_make(const struct item *items, size_t n);
/* Returns the memory of this many queued calls with a batch each */
size_t batch_bytes(size_t calls);
/* With stream_lock held. Also frees the counts of its items. */
void batch_free(struct batch *w);
/* Forgets the memory that is kept for reuse, in the child of a fork. */
void batch_forget(void);
/* Release all fences; their streams continue. */
void batch_release_fences(struct batch *w);

/* Prepare the operations, in call order. That gives them their message numbers
 * on each communicator. Returns false if another thread is inside one of these;
 * then call it again, before any later batch. */
bool batch_accept(struct batch *w);
/* Returns true if its operations may begin, as far as its host streams go. */
bool batch_may_begin(const struct batch *w);
/* Runs before_all; called once the batch is first in its streams. */
void batch_begin(struct batch *w);
/* Drop the items of broken communicators, whatever else the batch waits for.
 * Calls forget() before an operation is released, in the data path. Returns
 * false if another thread is inside one. */
bool batch_drop_broken(struct batch *w, void (*forget)(struct operation *op));
/* Check whether the device streams have reached the fences. Returns true once
 * they have. */
bool batch_look_at_fences(struct batch *w);
/* Releases an operation that has ended. Needs the data path of its
 * communicator. */
void batch_end_item(struct batch *w, struct item *item);
/* Completes the requests of a batch whose operations have all ended, and frees
 * it. Calls begin() for each batch that may begin now, and for a batch that has
 * begun already when it becomes first in all of its streams. */
void batch_complete(struct batch *w, void (*begin)(struct batch *w));

#endif
