/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU driver of the shape of CUDA's. cuda.c, hip.c and ze.c each fill in one:
 * its constants, the functions in which drivers differ, and the driver's own
 * functions that are alike but for the types of their handles, all pointers.
 * The files of this folder do the rest, and keep here what belongs to one
 * driver.
 *
 * Functions return the driver's error, 0 for success. Unless a comment says
 * otherwise, the device is current for the thread (gpu_device_enter()).
 */
#ifndef DICOMM_ACCEL_GPU_DRIVER_H
#define DICOMM_ACCEL_GPU_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/accel/accel.h"
#include "src/accel/launch/image.h"
#include "src/accel/launch/launch.h"

#define GPU_DEVICES 64

typedef void (*gpu_host_fn)(void *arg);

/* A host function as a node of a graph, as all drivers describe it. */
struct gpu_host_node {
	gpu_host_fn fn;
	void *arg;
};

/* F(name, parameters) for each function of a driver. What a driver lacks is
 * NULL: capture_mode and the rest of those for captures, from there on. */
#define GPU_CALLS(F)                                                         \
	F(alloc, (void **, size_t))                                          \
	F(free, (void *))                                                    \
	F(range, (void **base, size_t *, void *))                            \
	F(host_alloc, (void **, size_t, unsigned flags))                     \
	F(host_register, (void *, size_t, unsigned flags))                   \
	F(host_unregister, (void *))                                         \
	F(host_pointer, (void **device, void *host, unsigned))               \
	F(ipc_get, (void *handle, void *))                                   \
	F(ipc_close, (void *))                                               \
	F(priorities, (int *least, int *greatest))                           \
	F(stream_create, (void **, unsigned flags, int priority))            \
	F(stream_destroy, (void *))                                          \
	F(event_create, (void **, unsigned flags))                           \
	F(event_destroy, (void *))                                           \
	F(event_record, (void *, void *stream))                              \
	F(event_query, (void *))                                             \
	F(wait_event, (void *stream, void *event, unsigned))                 \
	F(host_function, (void *stream, gpu_host_fn, void *arg))             \
	F(module_load, (void **, const void *))                              \
	F(module_function, (void **, void *module, const char *))            \
	F(launch,                                                            \
	  (void *function, unsigned, unsigned, unsigned, unsigned, unsigned, \
	   unsigned, unsigned, void *stream, void **, void **))              \
	F(capturing, (void *stream, int *state))                             \
	F(capture_mode, (int *))                                             \
	F(capture_info, (void *stream, int *state, uint64_t *capture,        \
			 void **graph, void *const **nodes, size_t *))       \
	F(capture_follow, (void *stream, void **nodes, size_t, unsigned))    \
	F(graph_host_node, (void **node, void *graph, void *const *after,    \
			    size_t, const struct gpu_host_node *))           \
	F(graph_keep, (void *graph, void *object, unsigned, unsigned))       \
	F(object_create, (void **, void *, gpu_host_fn, unsigned, unsigned)) \
	F(object_release, (void *, unsigned))

struct gpu_calls {
#define F(name, parameters) int(*name) parameters;
	GPU_CALLS(F)
#undef F
};

/* Take the functions over from a vendor's table `api`, where they have the
 * vendor's types: pointers, or integers that a call passes alike. */
#define GPU_CALL_TAKE(name, parameters) \
	gpu_calls_to->name = (int(*) parameters)(void (*)(void))api.name;
#define GPU_CALLS_TAKE(calls)                             \
	do {                                              \
		struct gpu_calls *gpu_calls_to = (calls); \
                                                          \
		GPU_CALLS(GPU_CALL_TAKE)                  \
	} while (0)

struct gpu_device {
	_Atomic bool ready;
	bool waits;  /* it can wait for a word of memory by itself */
	bool writes; /* its streams can write a word of memory */
	uint32_t units;
	bool loaded[LAUNCH_MODULES];
	void *modules[LAUNCH_MODULES];
	/* why the device cannot have this module; NULL: not known to fail */
	char *unfit[LAUNCH_MODULES];
	/* Kernels of each module. Entries are only added, at the head, so
	 * readers need no lock. */
	struct gpu_kernel *_Atomic kernels[LAUNCH_MODULES];
	/* event.c checks whether the device has failed */
	int watch_users;    /* events that have a word; under the lock */
	void *watch_stream; /* exists while watch_users > 0 */
	_Atomic uint64_t asked_ns;
};

/* Numbers for what a thread has of each driver */
enum gpu_which { GPU_CUDA, GPU_HIP, GPU_ZE, GPU_DRIVERS };

struct gpu_driver {
	enum gpu_which which;
	const char *kind, *vendor; /* "cuda", "NVIDIA" */
	const char *queues;        /* as queues of accel.h */
	/* why a stream is refused that capturing() reports as captured; NULL:
	 * because it is */
	const char *captured;
	/* Images of kernels begin with this name: one for each type, "ptx_f32",
	 * or one for each model of device, of all types (one_module). */
	const char *images;
	bool one_module;
	/* Errors. capture_implicit is that of capturing() for the default
	 * stream while using that would spoil a capture; 0: never happens. */
	int out_of_memory, out_of_host_memory, not_supported, not_ready;
	int capture_implicit;
	/* states of capturing(), and the relaxed mode of a thread */
	int capture_none, capture_active, capture_relaxed;
	/* flags of streams that do not wait for the default stream, of events
	 * without times, of pinned memory for all devices, and for loads only
	 * (0: the driver lacks that) */
	unsigned stream_flags, event_flags, host_flags, host_read_only;

	/* Opens the library; returns the number of devices. Called once. */
	int (*load)(char *why, size_t len);
	const char *(*error_text)(int error);
	/* Prepares a device for its first use; NULL: nothing to do. */
	int (*device_init)(int index);
	/* Makes a device current for the thread; undoes that (NULL: nothing to
	 * do). */
	int (*enter)(int index);
	void (*leave)(void);
	uint32_t (*units)(int index); /* its number of multiprocessors */
	/* Fills in the PCI address and the description. Device not current. */
	dicomm_result_t (*details)(int index, dicomm_device_info_t *info);
	/* Device not current for these four. */
	bool (*owner)(const void *ptr, struct accel_owner *owner);
	bool (*has_dmabuf)(int index);
	/* Of enum accel_caps; NULL: no query says that no flush is needed. */
	unsigned (*flushes)(int index);
	int (*buffer_id)(uintptr_t base, uint64_t *id);
	/* Lets a device reach the memory of another. */
	int (*peer)(int index, int other);
	int (*ipc_open)(void **p, const void *handle, pid_t owner);
	/* Gives a dma-buf of whole pages from base on, for the allocation that
	 * `at` lies in; *skip is the offset of base in the dma-buf. */
	int (*range_fd)(int *fd, const void *at, void *base, size_t bytes,
			uint64_t *skip);
	/* Gives the user's stream, or the default one if native is NULL; *fits:
	 * is it a stream of that device? */
	int (*stream_open)(int index, void *native, void **s, bool *fits);
	/* Closes a stream of the user; NULL: nothing to do. */
	int (*stream_close)(void *s);
	int (*copy)(void *dst, const void *src, size_t bytes, void *stream);
	/* Returns true if an image does not fit the device. */
	bool (*wrong_image)(int error);
	/* Compiles the source to an image, in memory that the caller owns.
	 * Returns DICOMM_ERR_UNSUPPORTED, without a log line but with the
	 * reason in why, if it cannot. */
	dicomm_result_t (*compile)(int index, int module, void **code,
				   char *why, size_t len);
	/* Loads an image; bytes is 0 for a compiled one. NULL: module_load() of
	 * api does. */
	int (*module_load)(void **m, const void *code, size_t bytes);

	/* At the start of a device, under the lock: find out whether it waits
	 * for a word of memory by itself (gpu_stream_wait_probe() or its like),
	 * and whether its streams write one (gpu_event_probe()). */
	dicomm_result_t (*waits_probe)(struct gpu_driver *gpu, int index,
				       bool *waits);
	dicomm_result_t (*writes_probe)(struct gpu_driver *gpu, int index,
					bool waits, bool *writes);
	/* Only for drivers with gpu_stream_wait_probe(): allocates 8 bytes that
	 * host and devices see; makes a stream wait until a word has reached
	 * the value. */
	int (*word_alloc)(void **at);
	int (*wait_value)(int index, void *stream, void *word, uint64_t value);
	/* Writes 32 bits after all earlier work of the stream, visible to the
	 * host. Returns not_supported if this stream cannot. writes: does the
	 * device? NULL: none does. */
	bool (*writes)(int index);
	int (*write_value)(int index, void *stream, void *word, uint32_t value);
	/* Adds a node that sets a word to 0 and waits until it is 1, to a
	 * device that waits; NULL: it has none. */
	int (*stop_node)(int index, void **node, void *graph,
			 void *const *after, size_t n, void *word);
	struct gpu_calls api;

	/* What this folder keeps. The lock guards the start of a device,
	 * loading of kernels, and the lists. */
	pthread_mutex_t lock;
	pthread_once_t loaded; /* load() has been called */
	int ndevices;
	char none_why[256];
	struct gpu_device devices[GPU_DEVICES];
	struct gpu_memory *allocated, *mapped;
	struct gpu_word *spare_words; /* words without a stream wait */
	struct gpu_mark *spare_marks; /* marks without an event */
	struct gpu_pinned *pinned;    /* all that were made */
	/* stream waits that are queued and not released, of all devices */
	_Atomic int pending_waits;
	/* The lock of the stops: the other one may be held while its owner
	 * waits for a stream. */
	pthread_mutex_t stops_lock;
	struct accel_stop *stops; /* of all devices */
	struct gpu_word *spare_stop_words;
};

#define GPU_LOCKS                                                       \
	.loaded = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, \
	.stops_lock = PTHREAD_MUTEX_INITIALIZER

#endif
