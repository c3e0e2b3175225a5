/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kind of device: what a rank computes on and where its buffers live.
 *
 * Every operation is set; one that a kind lacks returns
 * DICOMM_ERR_UNSUPPORTED (or false). Adding a kind: a file of its own, its
 * line in registry.c, its line in Makefile.am.
 */
#ifndef DICOMM_ACCEL_ACCEL_H
#define DICOMM_ACCEL_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* An allocation that neighbours can import: what they need to know. */
struct accel_export {
	uint64_t id;    /* unique in the exporting process, never reused */
	uint64_t bytes; /* size of the whole allocation */
	int32_t pid, fd;
};

/* A queue of work of a device: one of the user's, or one of ours. */
struct accel_stream;
/* A place in a stream. */
struct accel_event;
/* What streams wait at until the host says so. */
struct accel_stream_wait;

/* What devices of one kind may differ in. */
enum accel_caps {
	/* It loads and stores any memory of this process, as the host does:
	 * device pointers are host pointers. */
	ACCEL_SHARES_HOST = 1 << 0,
	/* mem_export() and mem_import(); map_host(); dmabuf() */
	ACCEL_IPC = 1 << 1,
	ACCEL_MAP_HOST = 1 << 2,
	ACCEL_DMABUF = 1 << 3,
	/* Its kernels see what a NIC has written to it for certain only once
	 * something there has been read through that NIC. */
	ACCEL_FLUSH = 1 << 4,
	/* The same of kernels of other devices that have it mapped. */
	ACCEL_FLUSH_OTHERS = 1 << 5,
};

/* Whose memory something is */
struct accel_owner {
	int index;
	/* The driver moves it between the device and the host; then this is
	 * the device where it is preferred to be. */
	bool managed;
	/* It is of another context of the driver than the one that is used
	 * here: what runs on the device does not reach it. */
	bool apart;
};

/* An allocation of a device. */
struct accel_allocation {
	/* Never that of another one. 0: the driver has none, or moves what is
	 * there between the device and the host; nobody else is told of it. */
	uint64_t id;
	const void *base;
	uint64_t bytes;
};

/* The same for a process that shares its machine. */
struct accel_handle {
	uint64_t id, bytes, offset; /* offset: of the pointer in it */
	uint64_t pid;               /* of the process that exports it */
	unsigned char vendor[64];
};

/*
 * Work on the streams of a device. Everything is queued and none of it waits
 * for the device, unless said otherwise; work on a stream runs in the order in
 * which it was queued. Device pointers, and host memory that the device can
 * reach, need no alignment.
 *
 * Threads: one at a time for a stream, an event and a stream wait; any for the
 * rest, and for event_query() and stream_wait_release().
 */
struct accel_work {
	/* The variable that sets on how many queues of a device its streams
	 * run; NULL: none does. */
	const char *queues;
	unsigned (*caps)(int index); /* of enum accel_caps */
	/* Is ptr memory of a device of this kind, and of which? Quiet. */
	bool (*owner)(const void *ptr, struct accel_owner *owner);

	/* A stream of the user, who keeps it until close(); NULL: the default
	 * one of the device. DICOMM_ERR_INVALID_ARGUMENT: it is none, or of
	 * another device. */
	dicomm_result_t (*open)(int index, void *native,
				struct accel_stream **s);
	/* One of our own, of high priority, that can be used with the other. */
	dicomm_result_t (*open_beside)(struct accel_stream *other,
				       struct accel_stream **s);
	/* What is queued still runs. */
	void (*close)(struct accel_stream *s);

	/* Make ready what the kernels of a type need; may wait for the device.
	 * DICOMM_ERR_UNSUPPORTED, not logged: it cannot compute that type; the
	 * reason is the last error. */
	dicomm_result_t (*prepare)(struct accel_stream *s,
				   dicomm_datatype_t type);
	/* For a type that it cannot compute: from now on let the host reduce
	 * what is queued on this stream, on copies in its own memory. May wait
	 * for the device; DICOMM_ERR_UNSUPPORTED as above. */
	dicomm_result_t (*prepare_host_reduce)(struct accel_stream *s,
					       dicomm_datatype_t type);

	dicomm_result_t (*event_create)(int index, struct accel_event **e);
	void (*event_destroy)(struct accel_event *e);
	/* After what is queued so far; forgets an earlier place. */
	dicomm_result_t (*event_record)(struct accel_event *e,
					struct accel_stream *s);
	/* DICOMM_AGAIN: it has not been reached. Never recorded: success. */
	dicomm_result_t (*event_query)(const struct accel_event *e);
	/* What is queued on s from now on runs after the event. */
	dicomm_result_t (*wait_event)(struct accel_stream *s,
				      const struct accel_event *e);

	/* A stream wait holds a stream of a device until the host lets it go
	 * on. */
	dicomm_result_t (*stream_wait_create)(int index,
					      struct accel_stream_wait **g);
	/* Ends the waits that are pending. */
	void (*stream_wait_destroy)(struct accel_stream_wait *g);
	/* Queue a wait: what is queued on s from now on runs after
	 * stream_wait_release(). Each release ends one wait, in the order in
	 * which they were queued. */
	dicomm_result_t (*stream_wait_queue)(struct accel_stream_wait *g,
					     struct accel_stream *s);
	void (*stream_wait_release)(struct accel_stream_wait *g);
	/* Is a stream wait of this process pending? Then a call that
	 * allocates, frees, maps, unmaps or prepares may block behind it. */
	bool (*held)(int index);

	/* From and to memory of the device or of the host. */
	dicomm_result_t (*copy)(struct accel_stream *s, void *dst,
				const void *src, size_t bytes);
	/* As in reduce.h; prepare() or prepare_host_reduce() has succeeded for
	 * the type. */
	dicomm_result_t (*reduce)(struct accel_stream *s,
				  dicomm_datatype_t type, dicomm_redop_t op,
				  void *dst, const void *a, const void *b,
				  size_t n);
	/* As reduce_fold(). Of more than 8 sources, those beyond follow the
	 * first 8 at one distance, a multiple of 16: src[i] - src[i - 8]. */
	dicomm_result_t (*fold)(struct accel_stream *s, dicomm_datatype_t type,
				dicomm_redop_t op, void *dst,
				const void *const *src, int nsrc, size_t n);
	/* One element in memory of the device, read when it runs; or, if that
	 * is NULL, its bits. */
	dicomm_result_t (*scale)(struct accel_stream *s, dicomm_datatype_t type,
				 void *dst, const void *a,
				 const void *scalar_at, uint64_t scalar,
				 size_t n);
	/* 0 < divisor < 2^31 */
	dicomm_result_t (*divide)(struct accel_stream *s,
				  dicomm_datatype_t type, void *dst,
				  const void *a, long divisor, size_t n);

	/* Let a device read memory of another one, both of this process: what
	 * mem_export() takes, at the same addresses. It stays so.
	 * DICOMM_ERR_UNSUPPORTED: it cannot. */
	dicomm_result_t (*reach)(int index, int other);

	/* The allocation that ptr lies in, whoever made it */
	dicomm_result_t (*allocation)(const void *ptr,
				      struct accel_allocation *a);
	/* The same for a process on this machine. It is mapped as a whole, once
	 * for each handle, never by its owner. */
	dicomm_result_t (*mem_export)(const void *ptr, struct accel_handle *h);
	dicomm_result_t (*mem_import)(int index, const struct accel_handle *h,
				      void **base);
	void (*mem_unimport)(int index, void *base);
	/* Let the device reach host memory that the library allocated, or with
	 * `loads`, a neighbour's that nobody writes here: pages that are mapped
	 * for loads, which may become writable. */
	dicomm_result_t (*map_host)(int index, void *host, size_t bytes,
				    bool loads, void **device);
	void (*unmap_host)(int index, void *host);
	/* A descriptor, which the caller closes, of the allocation that a range
	 * lies in, and the offset of the range. */
	dicomm_result_t (*dmabuf)(const void *ptr, size_t bytes, int *fd,
				  uint64_t *offset);
};

struct accel {
	const char *name; /* "host"; "cuda" of "cuda:0" */

	/* Devices of this kind; 0 with the reason in why when it has none. */
	int (*count)(char *why, size_t len);
	/* Has this process loaded their runtime, whoever asked for it? Loads
	 * nothing. */
	bool (*loaded)(void);
	dicomm_result_t (*describe)(int index, dicomm_device_info_t *info);

	/* Memory that neighbour processes can map. Any thread. */
	dicomm_result_t (*alloc)(int index, size_t bytes, void **ptr);
	/* DICOMM_ERR_INVALID_ARGUMENT if ptr is not from alloc. */
	dicomm_result_t (*free)(void *ptr);

	/* Does [addr, addr + len) lie in one allocation of alloc()? Then also
	 * its export and the offset in it. Any thread, no lock, no system
	 * call: it is asked for each large message. */
	bool (*find)(const void *addr, size_t len, struct accel_export *where,
		     size_t *offset);
	/* Map a neighbour's allocation (never one of this process). */
	dicomm_result_t (*import)(const struct accel_export *e, void **base);
	void (*unimport)(const struct accel_export *e, void *base);
	/* Allocations freed so far by this process are listed for neighbours:
	 * the count, and id number i (0 for one that has left the list). */
	uint64_t (*freed)(uint64_t i, uint64_t *id);

	/* NULL: there are no streams, the caller computes by itself (host). */
	const struct accel_work *work;
};

/* All kinds of this build, NULL ends the list; host is first. */
extern const struct accel *const accels[];

/* Has this process loaded the library of that name? Loads nothing. */
bool accel_has_loaded(const char *library);

/* The kind and index of a device name ("host", "cuda:1"); NULL if there is no
 * such kind or device, with the reason in why. */
const struct accel *accel_find(const char *device, int *index, char *why,
			       size_t len);

#endif
