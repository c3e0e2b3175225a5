/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device of a rank that is not the host: the library's stream on it, and
 * the staging buffers ("stages") through which messages pass. They are in
 * device memory, or in host memory if no transport reaches device memory.
 *
 * All steps are queued on one stream, in the order in which the schedule starts
 * them. So a step may be queued directly behind the one it depends on. Only
 * work of the host waits for the stream: to put a message, to release a slot,
 * to end the operation. For this, an event (a "mark") is recorded in the stream
 * behind the work. Only device_open(), device_quiesce() and device_finish()
 * block until the device is done.
 *
 * Threads: as the data path. Stream fences have a lock of their own
 * (stream_fence.c), and may outlive the communicator.
 */
#ifndef DICOMM_DEVICE_DEVICE_H
#define DICOMM_DEVICE_DEVICE_H

#include <pthread.h>

#include "src/engine/engine.h"
#include "src/message/memory_ref.h"
#include "src/memory/in_process.h"
#include "src/memory/ipc.h"

/* Most messages between the device and transports at one time, and most of
 * these that are sends of one class. There is a limit for each class, because a
 * peer may have to receive messages of one class before it receives those of
 * another. */
#define DEVICE_STAGES 40
#define DEVICE_SENDS 16
/* Most calls under way on one communicator. A further one waits until one
 * ends. */
#define DEVICE_CALLS 256

enum stage_phase {
	STAGE_FREE,
	STAGE_READING, /* a transport reads bytes into it */
	STAGE_QUEUED,  /* its event is queued in the stream */
	STAGE_REACHED, /* the stream has reached the event: it may be sent */
	STAGE_SENT     /* sent, until it is released */
};

/* Size of a stage that neighbours read in device memory. For a smaller one,
 * starting the copy would take as long as the copy itself. */
#define DEVICE_EXPORTED_BYTES ((uint32_t)256 << 10)
/* An ordered reduction whose inputs are scaled first needs a little more than
 * the scratch of one window. */
#define DEVICE_SCRATCH (2 * PREPARED_SCRATCH)
/* Stand for the end of an operation, and for bytes of a window, in place of a
 * step's number. */
#define STAGE_END UINT32_MAX
#define STAGE_WINDOW (UINT32_MAX - 1)

/* A staging buffer, for one message between a transport and the device. */
struct stage {
	enum stage_phase phase;
	bool sends;
	/* stage_bytes of host memory, at the host's and at the device's
	 * address */
	uint8_t *host, *device;
	uint8_t *exported; /* exported_bytes of device memory, or NULL */
	/* Where the transport reads and writes the bytes of this message, in
	 * host or device memory, and the device's address of the same bytes */
	uint8_t *at, *seen;
	struct accel_event *event;
	/* Sent instead of the bytes, to a peer that reads them in place */
	struct memory_ref mem_ref;
	/* a read of another rank's memory that the stream has not finished */
	struct in_process_read read;
	/* a struct operation, or a transfer or partner of a window */
	const void *op;
	uint32_t step;
	uint64_t slice;
	/* The slot to release when the stream reaches the event, or NULL */
	struct peer *from;
	bool mapped; /* the message refers to memory of rank `from` */
	enum tp_class class;
	uint64_t seq;
	struct stage *next; /* the next stage in the order of the stream */
};

struct device {
	/* frees this struct when no stream is blocked */
	struct deferred deferred;
	const struct accel_work *work;
	int index;
	uint64_t lacks; /* bit t is set: the device cannot reduce type t */
	/* Its memory is the host's: transports access it, and its kernels
	 * read slots. */
	bool shares_host;
	struct accel_stream *beside,
		*stream; /* the user's default stream; the library's */
	struct stage stages[DEVICE_STAGES];
	unsigned sends[TP_CLASSES]; /* [class]: stages that send */
	/* The longest slice. Stages are allocated before it is known which
	 * transports will be used. */
	size_t stage_bytes, exported_bytes;
	struct stage *first, **last;
	bool unmarked; /* work was queued after the last event */
	/* All stages in host memory, at the host's and at the device's
	 * address */
	uint8_t *memory, *mapped;
	/* export of memory, for host ranks that map it */
	struct accel_export where;
	struct mem_handles handles;
	void *scratch;
	/* All stages in device memory; the handle by which devices of the
	 * same kind map them; the lease that keeps them alive. NULL: they
	 * cannot be exported. */
	uint8_t *exported;
	struct accel_handle exported_handle;
	struct lease *lease;
	/* Other memory that this rank exports, or NULL; the lease on scratch;
	 * the number of the offer of scratch, or -1 */
	struct ipc *ipc;
	struct lease *scratch_lease;
	int scratch_offer;
	/* How ranks of this process read this rank's memory. NULL: the memory
	 * is the host's, which all of them can read. */
	struct in_process *in_process;
	struct user_buffers *user_buffers; /* NULL: no peer would use them */
	struct stream_fences *fences;
	/* __builtin_thread_pointer() of the thread in device_quiesce() */
	_Atomic(void *) quiescer;
};

/* Returns true if the device has memory that the host does not share. */
static inline bool device_has_memory(const struct device *dev)
{
	return dev && !dev->shares_host;
}

/* Bytes of all stages in host memory. */
static inline size_t device_stages_bytes(const struct device *dev)
{
	return DEVICE_STAGES * dev->stage_bytes;
}

static inline size_t device_exported_bytes(const struct device *dev)
{
	return DEVICE_STAGES * dev->exported_bytes;
}

/* Open the device of a rank: allocate all that operations on it need, and load
 * the kernels. Does nothing on a host rank. Errors are logged. */
dicomm_result_t device_open(struct dicomm_comm *comm);
/* Register the staging buffers with the transports, once these are open. */
dicomm_result_t device_register(struct dicomm_comm *comm);
/* Close the device in two steps. device_stop() waits until the stream is empty.
 * device_close() frees the rest, after user_buffer_close() and
 * neighbour_close_all(). Both do nothing on
 * a host rank. */
void device_stop(struct dicomm_comm *comm);
void device_close(struct dicomm_comm *comm);

/* Wait until no stream is blocked, and keep it so until
 * streams_unblocked_end(). Setup makes driver calls that could wait for a
 * stream which an operation of another communicator blocks. Those operations
 * end without this communicator's help. */
dicomm_result_t device_streams_unblocked(struct dicomm_comm *comm);

/* Returns true if there is a pair of ranks whose devices cannot map each
 * other's memory. */
bool peer_access_wants_transports(const struct dicomm_comm *comm);
/* Find out which pairs need staging. Fails if one of them refuses it. All ranks
 * call it. */
dicomm_result_t peer_access_agree(struct dicomm_comm *comm);
/* Write how each pair of ranks is reached, and why not by a better path. Writes
 * nothing if all ranks have host memory. */
dicomm_result_t peer_access_explain(const struct dicomm_comm *comm, char *text,
				    size_t len);

/* Check whether operations of this rank can use the memory at `at`. If not,
 * the reason is logged. f and name are the function and the argument for
 * the message. */
dicomm_result_t device_check(const struct dicomm_comm *comm, const char *f,
			     const char *name, const void *at);

/* Copy on the user's stream (unless dst is NULL), and wait until the stream is
 * empty. The library's operations on it are bounded in time; the user's own
 * work may not be. */
dicomm_result_t device_finish(struct dicomm_comm *comm, dicomm_stream_t stream,
			      void *dst, const void *src, size_t bytes);

/* Get a free stage for a slice of a step. Returns NULL if none is free, or if
 * the class has as many sends as it may. */
struct stage *device_stage(struct device *dev, const struct operation *op,
			   uint32_t step, uint64_t slice, bool sends);
/* The same for bytes from or to a window; `of` is their transfer or partner. */
struct stage *device_window_stage(struct device *dev, const void *of,
				  uint64_t number, bool sends);
/* Returns the stage of a slice, or NULL. */
struct stage *device_stage_of(struct device *dev, const void *op, uint32_t step,
			      uint64_t slice);
/* Choose host or device memory of the stage, as a message to or from that
 * peer needs. */
void device_stage_place(const struct device *dev, const struct peer *peer,
			struct stage *st);
void device_stage_free(struct device *dev, struct stage *st);

/* Record an event behind all work queued so far. The stage becomes
 * STAGE_QUEUED. */
dicomm_result_t device_mark(struct device *dev, struct stage *st);
/* Returns true if the stream is known to have finished everything. */
static inline bool device_is_idle(const struct device *dev)
{
	return !dev->first && !dev->unmarked;
}
/* Check how far the stream has come. Sets *moved if it has reached an event. */
dicomm_result_t device_progress(struct dicomm_comm *comm, bool *moved);
/* Wait until the stream is empty, and give up the messages in stages. For a
 * communicator that is broken or ends. The stream waits for nobody, so this
 * is short, unless it shares a hardware queue with a stream that waits for
 * the library. Any thread may call it when no other thread is in the data path
 * nor will be: one waits for the other. */
void device_quiesce(struct dicomm_comm *comm);
/* Wait until the stream is empty, at most ns nanoseconds. Returns false if it
 * is not empty by then. */
bool device_settles(struct dicomm_comm *comm, uint64_t ns);

/* Returns SCHEDULE_DONE when the device has finished the operation. All of its
 * steps are done or queued when this is called. */
enum schedule_result device_end(struct operation *op);

/* The steps of a rank on a device, for comm->device_ops. */
extern const struct step_ops device_ops;

/*
 * A stream fence orders the user's stream with the operations that are queued
 * on it. Operations begin after the work that precedes the fence on the stream;
 * work that follows the fence begins after the operations. While an operation
 * runs, the fence blocks the stream.
 */
struct stream_fence {
	struct stream_fences *of;
	dicomm_stream_t stream;
	struct accel_stream
		*open; /* the stream, while the fence is being queued */
	struct accel_event *event;
	struct accel_stream_wait *stream_wait;
	bool blocked, reached;
	/* Instead of the stream wait, for one that was not taken; or NULL */
	void (*let_go)(struct stream_fence *t);
	struct stream_fence *next;
};

/* Get a fence for one stream. If too many calls are under way, it waits until
 * one ends. Returns ERR_TIMEOUT if that takes too long. */
dicomm_result_t stream_fence_take(struct dicomm_comm *comm,
				  dicomm_stream_t stream,
				  struct stream_fence **out);
/* Block the streams of a list of fences. Fails, with a reason, if one is not a
 * stream of its device. */
dicomm_result_t stream_fence_block(struct stream_fence *list);
/* Returns true if the fence is for this stream of the rank's device. */
bool stream_fence_is_of(const struct stream_fence *t,
			const struct dicomm_comm *comm, dicomm_stream_t stream);
/* Returns success if the work before the fence is done, AGAIN if it is not
 * yet. */
dicomm_result_t stream_fence_query(struct stream_fence *t);
/* Let the stream continue. Called once for each fence, by any thread. */
void stream_fence_release(struct stream_fence *t);
/* Create all fences of a device, DEVICE_CALLS of them. */
dicomm_result_t stream_fence_make(struct device *dev);
/* Free the fences. Those under way are freed when they are released. */
void stream_fence_free_all(struct device *dev);

#endif
