/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The seam for kinds of device. A rank is bound to one device: it computes
 * there, and its buffers lie there.
 *
 * A kind sets every operation, unless its comment says what NULL means. For one
 * that it lacks, the operation returns DICOMM_ERR_UNSUPPORTED or false.
 * README.md says how to add a kind.
 */
#ifndef DICOMM_ACCEL_ACCEL_H
#define DICOMM_ACCEL_ACCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* What a neighbour needs to know to import an allocation of this process. */
struct accel_export {
	uint64_t id;    /* unique in the exporting process, never reused */
	uint64_t bytes; /* size of the whole allocation */
	/* The exporting process, and its descriptor of the memory. */
	int32_t pid, fd;
};

/* A queue of work of a device. The user or the library created it. */
struct accel_stream;
/* Marks a position in a stream. */
struct accel_event;
/* Holds streams until the host releases them. */
struct accel_stream_wait;
/* A place in a graph where each replay waits for the host. */
struct accel_stop;

/* Capabilities in which devices differ, also those of one kind. */
enum accel_caps {
	/* The device loads and stores any memory of this process, as the host
	 * does. Device pointers are host pointers. */
	ACCEL_SHARES_HOST = 1 << 0,
	/* In this order: the device has mem_export() and mem_import();
	 * map_host(); dmabuf(). */
	ACCEL_IPC = 1 << 1,
	ACCEL_MAP_HOST = 1 << 2,
	ACCEL_DMABUF = 1 << 3,
	/* A kernel of this device is certain to see what a NIC wrote to the
	 * device's memory only after somebody has read a word of it through
	 * that NIC. */
	ACCEL_FLUSH = 1 << 4,
	/* As ACCEL_FLUSH, for kernels of other devices that map this memory. */
	ACCEL_FLUSH_OTHERS = 1 << 5,
};

/* The device that a pointer's memory belongs to. */
struct accel_owner {
	int index; /* of the device */
	/* The driver migrates this memory between device and host. Then index
	 * is the device where the memory prefers to be. */
	bool managed;
	/* The memory belongs to another driver context than the one the library
	 * uses. Kernels and copies of the library cannot access it. */
	bool apart;
};

/* The allocation of a device that a pointer lies in. */
struct accel_allocation {
	/* Never reused for another allocation. 0 if the driver gives no number,
	 * or if the driver migrates the memory; then the library never offers
	 * it to other ranks. */
	uint64_t id;
	const void *base; /* its first byte, and its size */
	uint64_t bytes;
};

/* An allocation as another process on this machine imports it. */
struct accel_handle {
	uint64_t id, bytes, offset; /* offset of the exported pointer */
	uint64_t pid;               /* the process that exports it */
	unsigned char vendor[64];   /* the driver's own handle */
};

/*
 * Operations on the streams of a device. Unless its comment says otherwise, an
 * operation is queued and does not wait for the device. Work on a stream runs
 * in the order in which it was queued. Device pointers, and host memory that
 * the device can reach, need no alignment.
 *
 * Threads: one at a time for each stream, event and stream wait. Any thread may
 * call the rest, and event_query() and stream_wait_release().
 */
struct accel_work {
	/* Name of the environment variable that sets on how many hardware
	 * queues the driver runs the streams of a device. NULL if the driver
	 * has none. */
	const char *queues;
	unsigned (*caps)(int index); /* bits of enum accel_caps */
	/* Returns true if ptr is memory of a device of this kind, and stores
	 * which one in *owner. Logs nothing. */
	bool (*owner)(const void *ptr, struct accel_owner *owner);

	/* Open a stream that the user created and keeps until close(); native
	 * NULL is the device's default stream. Returns
	 * DICOMM_ERR_INVALID_ARGUMENT if native is no stream, or one of
	 * another device. */
	dicomm_result_t (*open)(int index, void *native,
				struct accel_stream **s);
	/* Create a stream of the library with high priority, on the device of
	 * `other`, so that both can run side by side. */
	dicomm_result_t (*open_beside)(struct accel_stream *other,
				       struct accel_stream **s);
	/* Work that is already queued still runs. */
	void (*close)(struct accel_stream *s);

	/* Load the kernels for a type now, or at their first use if loading
	 * them then waits for no stream. May wait for the device. Returns
	 * DICOMM_ERR_UNSUPPORTED, without a log line, if the device cannot
	 * compute that type; the last error says why. */
	dicomm_result_t (*prepare)(struct accel_stream *s,
				   dicomm_datatype_t type);
	/* For a type that the device cannot compute: from now on the host
	 * reduces what is queued on this stream, on copies in its own memory.
	 * May wait for the device. Returns DICOMM_ERR_UNSUPPORTED as
	 * prepare() does. */
	dicomm_result_t (*prepare_host_reduce)(struct accel_stream *s,
					       dicomm_datatype_t type);

	dicomm_result_t (*event_create)(int index, struct accel_event **e);
	void (*event_destroy)(struct accel_event *e);
	/* Move the event to behind all work queued on s so far. Its earlier
	 * position is forgotten. */
	dicomm_result_t (*event_record)(struct accel_event *e,
					struct accel_stream *s);
	/* Returns DICOMM_AGAIN if the stream has not reached the event yet, and
	 * success if the event was never recorded. */
	dicomm_result_t (*event_query)(const struct accel_event *e);
	/* Work that is queued on s from now on runs after the event. */
	dicomm_result_t (*wait_event)(struct accel_stream *s,
				      const struct accel_event *e);

	/* Create a stream wait, which holds a stream of a device until the host
	 * releases it. */
	dicomm_result_t (*stream_wait_create)(int index,
					      struct accel_stream_wait **g);
	/* Releases the waits that are still pending. */
	void (*stream_wait_destroy)(struct accel_stream_wait *g);
	/* Queue a wait: work that is queued on s from now on runs after a
	 * stream_wait_release(). Each release ends one wait, in the order in
	 * which the waits were queued. */
	dicomm_result_t (*stream_wait_queue)(struct accel_stream_wait *g,
					     struct accel_stream *s);
	void (*stream_wait_release)(struct accel_stream_wait *g);
	/* Returns true if a stream wait of this process is pending, or a replay
	 * of a graph waits at a stop. Then a call that allocates, frees, maps,
	 * unmaps or prepares may block until its release. */
	bool (*held)(int index);
	const struct accel_graphs *graphs; /* NULL: there are no graphs */

	/* Copy between any two of: memory of the device, host memory. */
	dicomm_result_t (*copy)(struct accel_stream *s, void *dst,
				const void *src, size_t bytes);
	/* The operators of reduce.h. The caller has called prepare() or
	 * prepare_host_reduce() for the type with success. */
	dicomm_result_t (*reduce)(struct accel_stream *s,
				  dicomm_datatype_t type, dicomm_redop_t op,
				  void *dst, const void *a, const void *b,
				  size_t n);
	/* As reduce_fold(). With more than 8 sources, each further one lies at
	 * one fixed distance behind the source 8 places before it: src[i] -
	 * src[i - 8] is the same multiple of 16 for all i >= 8. */
	dicomm_result_t (*fold)(struct accel_stream *s, dicomm_datatype_t type,
				dicomm_redop_t op, void *dst,
				const void *const *src, int nsrc, size_t n);
	/* Multiply n elements by a scalar, which is one element of the type.
	 * The device reads it at scalar_at, in its memory, when the work runs.
	 * If scalar_at is NULL, scalar holds its bits. */
	dicomm_result_t (*scale)(struct accel_stream *s, dicomm_datatype_t type,
				 void *dst, const void *a,
				 const void *scalar_at, uint64_t scalar,
				 size_t n);
	/* dst[i] = a[i] / divisor, as divide_fn of reduce.h. The divisor is
	 * above 0 and below 2^31. */
	dicomm_result_t (*divide)(struct accel_stream *s,
				  dicomm_datatype_t type, void *dst,
				  const void *a, long divisor, size_t n);

	/* Let device `index` read the memory of device `other`, both used by
	 * this process, at the same addresses. That covers what mem_export()
	 * accepts, and cannot be undone. Returns DICOMM_ERR_UNSUPPORTED if
	 * index cannot read it. */
	dicomm_result_t (*reach)(int index, int other);

	/* Find the allocation that ptr lies in, of the library or of the
	 * user. */
	dicomm_result_t (*allocation)(const void *ptr,
				      struct accel_allocation *a);
	/* Export and import the allocation that ptr lies in, for another
	 * process on this machine. An importer maps the whole allocation, once
	 * for each handle. The exporting process never imports its own. */
	dicomm_result_t (*mem_export)(const void *ptr, struct accel_handle *h);
	dicomm_result_t (*mem_import)(int index, const struct accel_handle *h,
				      void **base);
	void (*mem_unimport)(int index, void *base);
	/* Let the device reach host memory: memory of the library, or with
	 * `loads` a neighbour's memory that this process maps read-only. Most
	 * drivers pin only writable pages, so a backend may make those pages
	 * writable. Nobody in this process writes them. */
	dicomm_result_t (*map_host)(int index, void *host, size_t bytes,
				    bool loads, void **device);
	void (*unmap_host)(int index, void *host);
	/* Get a dma-buf descriptor, which the caller closes, of the allocation
	 * that [ptr, ptr + bytes) lies in, and the offset of ptr in it. */
	dicomm_result_t (*dmabuf)(const void *ptr, size_t bytes, int *fd,
				  uint64_t *offset);
};

/* What has been captured so far of those whose order counts. Zeroed by who has
 * it. */
struct accel_order {
	uint64_t capture; /* the latest one; see captured() */
	void *last;       /* the node of its latest stop */
};

/*
 * Stops in graphs that users capture. A replay that comes to a stop tells the
 * host, and goes on when the host lets it. The driver of the device is called
 * for the capture only.
 */
struct accel_graphs {
	/* Sets *capture to the number of the capture that records this stream
	 * of the user, or to 0 if none does. */
	dicomm_result_t (*captured)(int index, void *native, uint64_t *capture);
	/* Add a stop to the graph that is captured: behind what the stream has
	 * captured so far, and behind the stop that was added last with the
	 * same order. gone(ctx) is called once, by any thread, when the graph
	 * and all that was made of it are gone; it must not call the driver.
	 * If this fails, *out is NULL unless gone() will be called
	 * nevertheless. */
	dicomm_result_t (*stop_add)(int index, void *native,
				    struct accel_order *order,
				    void (*gone)(void *ctx), void *ctx,
				    struct accel_stop **out);
	/* What `to` captures from now on comes behind what `from` has captured,
	 * as after an event. One capture records both. `only`: what `from` has
	 * captured comes behind all that `to` has already. */
	dicomm_result_t (*follow)(int index, void *to, void *from, bool only);
	/* Free a stop whose graph is gone. */
	void (*stop_free)(struct accel_stop *stop);
	/* Returns true while a replay waits there. */
	bool (*stop_reached)(const struct accel_stop *stop);
	void (*stop_release)(struct accel_stop *stop);
};

struct accel {
	const char *name; /* "host"; "cuda" of "cuda:0" */

	/* Returns the number of devices of this kind, or 0 with the reason
	 * in why. */
	int (*count)(char *why, size_t len);
	/* Returns true if this process has loaded the kind's runtime, for
	 * whatever reason. Loads nothing itself. */
	bool (*loaded)(void);
	dicomm_result_t (*describe)(int index, dicomm_device_info_t *info);

	/* Allocate memory that neighbour processes can map (host/memory.h, or
	 * mem_export()). Any thread. */
	dicomm_result_t (*alloc)(int index, size_t bytes, void **ptr);
	/* Returns DICOMM_ERR_INVALID_ARGUMENT if ptr is not from alloc(). */
	dicomm_result_t (*free)(void *ptr);

	/* NULL if the kind has no streams: the caller computes by itself, on
	 * memory that it reads (host). Then loaded() returns false. */
	const struct accel_work *work;
};

/* All kinds of this build. The host is first, NULL ends the list. */
extern const struct accel *const accels[];

/* Returns true if this process has loaded the library of that name.
 * Loads nothing. */
bool accel_has_loaded(const char *library);
/* Returns true if this process may have loaded it: a loaded library has the
 * same name up to the dot. Opens no file, whereas the loader searches all its
 * folders for a library that is not loaded. */
bool accel_may_have_loaded(const char *library);

/* Find the kind and index of a device name ("host", "cuda:1"). Returns NULL,
 * with the reason in why, if there is no such kind or device. */
const struct accel *accel_find(const char *device, int *index, char *why,
			       size_t len);

#endif
