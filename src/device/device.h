/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device of a rank, where that is not the host: our stream on it, what is
 * queued there, and the stages by which messages come and go: in the memory of
 * the device, or of the host where no wire reaches that.
 *
 * All that steps do on the device is queued on one stream, in the order in
 * which the schedule starts them: what depends on a step may be queued right
 * behind it. Only what the host does itself (putting a message, giving a slot
 * back, the end of the operation) waits until the stream has come to a mark.
 * Nothing waits for the device but device_open(), _quiesce() and _finish().
 *
 * Threads: as the data path; tickets have a lock of their own (ticket.c), and
 * may be under way when the communicator is freed.
 */
#ifndef DICOMM_DEVICE_DEVICE_H
#define DICOMM_DEVICE_DEVICE_H

#include <pthread.h>

#include "src/engine/engine.h"
#include "src/engine/memory_ref.h"
#include "src/memory/in_process.h"
#include "src/memory/ipc.h"

/* Most messages between the device and the wires at the same time; of these,
 * so many of each class may be on their way out: a peer may receive none of one
 * before it has those of the other. */
#define DEVICE_STAGES 40
#define DEVICE_SENDS 16
/* Calls under way on one communicator; one more waits for one of them. */
#define DEVICE_CALLS 256

enum stage_phase {
	STAGE_FREE,
	STAGE_READING, /* the wire brings its bytes */
	STAGE_QUEUED,  /* its mark is in the stream */
	STAGE_REACHED, /* the stream has come there: it may be sent */
	STAGE_SENT     /* from here; until it is released */
};

/* Of a stage that neighbours read in the memory of a device: to start the copy
 * of less costs as much as the copy. */
#define DEVICE_EXPORTED_BYTES ((uint32_t)256 << 10)
/* Of an ordered reduction with inputs that are scaled first there is a little
 * more than the budget of one window. */
#define DEVICE_SCRATCH (2 * PREPARED_SCRATCH)
/* Stands for a step: the end of the operation */
#define STAGE_END UINT32_MAX

/* A message between a wire and the device. */
struct stage {
	enum stage_phase phase;
	bool sends;
	uint8_t *host, *device; /* stage_bytes; as each of the two sees them */
	uint8_t *exported; /* exported_bytes in the memory of the device; or
			      NULL */
	/* Where the wire brings and takes them this time: to and from the host
	 * or the device; and as the latter sees it. */
	uint8_t *at, *seen;
	struct accel_event *event;
	struct memory_ref mem_ref; /* for who reads the bytes where they are */
	/* Of another rank, which its stream has not come past yet */
	struct in_process_read read;
	const struct operation *op;
	uint32_t step;
	uint64_t slice;
	/* A slot that is given back when the stream has come there; or NULL */
	struct peer *from;
	bool mapped; /* what it refers to is memory of that rank */
	enum tp_class class;
	uint64_t seq;
	struct stage *next; /* in the order of the stream */
};

struct device {
	struct deferred deferred; /* the end of it */
	const struct accel_work *work;
	int index;
	uint64_t lacks; /* bit t: it reduces no elements of type t */
	/* Its memory is the host's: the wires reach it, and it reaches what
	 * they bring. */
	bool shares_host;
	struct accel_stream *beside, *stream; /* a user's default one; ours */
	struct stage stages[DEVICE_STAGES];
	unsigned sends[TP_CLASSES]; /* of the stages */
	/* The longest slice there may be: which wires are used is not known
	 * when stages are allocated. */
	size_t stage_bytes, exported_bytes;
	struct stage *first, **last;
	bool unmarked;            /* something was queued since the last mark */
	uint8_t *memory, *mapped; /* of all stages; as the device sees it */
	struct accel_export where; /* for host ranks that map it */
	struct mem_handles handles;
	void *scratch;
	/* Of all stages; and what devices of that kind need to map it, and
	 * until when it stays, where they can. NULL: they cannot. */
	uint8_t *exported;
	struct accel_handle exported_handle;
	struct lease *lease;
	/* What others map besides; NULL: they cannot. Of scratch: the number of
	 * the offer, or -1. */
	struct ipc *ipc;
	struct lease *scratch_lease;
	int scratch_offer;
	/* For ranks of the same process; NULL: the host's memory is read by
	 * all.
	 */
	struct in_process *in_process;
	struct user_buffers *user_buffers; /* NULL: nobody would use them */
	struct stream_fences *fences;
};

/* Unlike host ranks, and devices that work in the host's memory. */
static inline bool device_has_memory(const struct device *dev)
{
	return dev && !dev->shares_host;
}

/* All stages together. */
static inline size_t device_stages_bytes(const struct device *dev)
{
	return DEVICE_STAGES * dev->stage_bytes;
}

static inline size_t device_exported_bytes(const struct device *dev)
{
	return DEVICE_STAGES * dev->exported_bytes;
}

/* Open the device of a rank, allocate all that operations on it will need, and
 * load the kernels. Does nothing on a host rank. */
dicomm_result_t device_open(struct dicomm_comm *comm);
/* Let the wires reach its memory, once they are open. */
dicomm_result_t device_register(struct dicomm_comm *comm);
/* The two steps of the end. device_stop() waits until the stream has run dry.
 * device_close() frees the rest; user_buffer_close() comes before it. Both do
 * nothing on a host rank. */
void device_stop(struct dicomm_comm *comm);
void device_close(struct dicomm_comm *comm);

/* No stream is held from now on, until streams_unblocked_end(): for what could
 * wait for one, which operations of other communicators of this process hold.
 * Those end without this one, which begins. */
dicomm_result_t device_streams_unblocked(struct dicomm_comm *comm);

/* Is there a pair whose devices cannot map each other's memory? */
bool peer_access_wants_transports(const struct dicomm_comm *comm);
/* See which ranks need staging, and whether all of them may. */
dicomm_result_t peer_access_agree(struct dicomm_comm *comm);
/* Say how each pair of ranks is reached, and why not in a better way; nothing
 * where all ranks have host memory. */
dicomm_result_t peer_access_explain(const struct dicomm_comm *comm, char *text,
				    size_t len);
/* Let go of what was mapped for that. */
void peer_access_unmap(struct dicomm_comm *comm);

/* Is it memory that operations of this rank take? The reason is logged. */
dicomm_result_t device_check(const struct dicomm_comm *comm, const char *f,
			     const char *name, const void *at);

/* Copy on a user's stream, unless dst is NULL, and wait for all that is on it:
 * operations on it are bounded, the rest is the user's. */
dicomm_result_t device_finish(struct dicomm_comm *comm, dicomm_stream_t stream,
			      void *dst, const void *src, size_t bytes);

/* A stage that is free, for a slice of a step; NULL: none is, or its class has
 * had all that it may send from. */
struct stage *device_stage(struct device *dev, const struct operation *op,
			   uint32_t step, uint64_t slice, bool sends);
/* The one that a slice has; NULL: none. */
struct stage *device_stage_of(struct device *dev, const struct operation *op,
			      uint32_t step, uint64_t slice);
/* For a message to or from that peer. */
void device_stage_place(const struct device *dev, const struct peer *peer,
			struct stage *st);
void device_stage_free(struct device *dev, struct stage *st);

/* QUEUED from now on: a mark behind all that is queued so far. */
dicomm_result_t device_mark(struct device *dev, struct stage *st);
/* Has the stream run dry, as far as is known? */
static inline bool device_is_idle(const struct device *dev)
{
	return !dev->first && !dev->unmarked;
}
/* See how far the stream has come. */
dicomm_result_t device_progress(struct dicomm_comm *comm, bool *moved);
/* Wait until the stream has run dry, and give up the messages in stages: of a
 * communicator that is broken, or ends. The stream waits for nobody, so this is
 * short, unless it shares a queue with one that waits for the library. */
void device_quiesce(struct dicomm_comm *comm);
/* Has it run dry within that time? */
bool device_settles(struct dicomm_comm *comm, uint64_t ns);

/* All steps of an operation are done or queued: has the device done them? */
enum schedule_result device_end(struct operation *op);

/* How the steps of an operation are done on a device: comm->device_ops. */
extern const struct step_ops device_ops;

/*
 * A user's stream and the operations queued on it wait for each other. A ticket
 * is one such place: what is before it on the stream comes before the
 * operations, what is after it comes after them.
 */
struct stream_fence {
	struct stream_fences *of;
	dicomm_stream_t stream;
	struct accel_stream *open; /* the same, while it is being held */
	struct accel_event *event;
	struct accel_stream_wait *stream_wait;
	bool blocked, reached;
	struct stream_fence *next;
};

/* One for a stream; waits where too many calls are under way. */
dicomm_result_t stream_fence_take(struct dicomm_comm *comm,
				  dicomm_stream_t stream,
				  struct stream_fence **out);
/* Hold the streams of a list from here on. Refused with the reason where one is
 * none of its device. */
dicomm_result_t stream_fence_block(struct stream_fence *list);
/* Does it hold this stream of the rank's device? */
bool stream_fence_is_of(const struct stream_fence *t,
			const struct dicomm_comm *comm, dicomm_stream_t stream);
/* SUCCESS: what was before it on the stream is done. AGAIN: not yet. */
dicomm_result_t stream_fence_query(struct stream_fence *t);
/* Let the stream go on. Any thread, once. */
void stream_fence_release(struct stream_fence *t);
/* All that there will be for a device: for DEVICE_CALLS. */
dicomm_result_t stream_fence_make(struct device *dev);
/* What is under way is freed when it is given. */
void stream_fence_free_all(struct device *dev);

#endif
