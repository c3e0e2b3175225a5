/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the mock drivers of GPUs have in common: devices that do not exist,
 * whose work is nevertheless done. Memory of a device is not readable at its
 * address, so that a host that touches it dies; streams are threads, with
 * random delays; what waits for a whole device fails where a stream is held by
 * a stream wait, where it would never return, and so does what would spoil a
 * graph that is captured. Each stream has a queue of its own; where
 * MOCK_ONE_QUEUE is in the environment, those of a device share one. Where
 * MOCK_CUT is, an allocation begins within a page. Host memory is pinned if the
 * process may write it; where MOCK_READ_ONLY is, also for loads only. Streams
 * do not write memory where MOCK_WRITES is "refused"; where it is "lost", they
 * only seem to. Numbers of errors are those of CUDA and HIP alike.
 */
#ifndef DICOMM_TESTS_MOCK_DRIVER_H
#define DICOMM_TESTS_MOCK_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRIVER_DEVICES 2
#define DRIVER_RELAXED 2

enum {
	DRIVER_SUCCESS = 0,
	DRIVER_INVALID_VALUE = 1,
	DRIVER_OUT_OF_MEMORY = 2,
	DRIVER_NOT_STARTED = 3,
	DRIVER_NO_DEVICE = 100,
	DRIVER_INVALID_DEVICE = 101,
	DRIVER_INVALID_IMAGE = 200,
	DRIVER_INVALID_CONTEXT = 201,
	DRIVER_INVALID_HANDLE = 400,
	DRIVER_NOT_FOUND = 500,
	DRIVER_NOT_READY = 600,
	DRIVER_ILLEGAL_ADDRESS = 700,
	DRIVER_PEER_ACCESS_ALREADY_ENABLED = 704,
	DRIVER_ALREADY_REGISTERED = 712,
	DRIVER_NOT_REGISTERED = 713,
	DRIVER_NOT_PERMITTED = 800,
	DRIVER_NOT_SUPPORTED = 801,
	DRIVER_SPOILS_CAPTURE = 900,
	DRIVER_CAPTURE_IMPLICIT = 906,
	DRIVER_WOULD_HANG = 999, /* "unknown error" of both */
};

/* ---- for tests, by dlsym() ---- */

#pragma GCC visibility push(default)

/* The n-th call from now on fails, once; 0: none. Calls that take something
 * back do not fail. */
void mock_fail(int nth, int error);
/* Is the failure still to come? */
bool mock_pending(void);
/* Each piece of work on a stream begins up to so much later. */
void mock_delay(unsigned us);
/* Things that exist and were not destroyed: allocations, registrations, streams
 * and events */
int mock_live(void);
/* Calls refused since they would, or could, have waited for a stream that is
 * held, or for the one that they come from */
int mock_hangs(void);
/* Waits of streams for a value in memory that were queued, and writes */
int mock_waits(void);
int mock_writes(void);
/* All calls so far but those that take something back */
unsigned long mock_calls(void);
/* What a device failed with, of which it is of no more use */
void mock_break(int device, int error);
/* Allocations freed while another process had them mapped, of which a real
 * driver says that anything may happen */
int mock_early(void);
/* Does another process have that allocation mapped? */
bool mock_mapped(const void *at);
/* Host memory through which what is at a device address can be seen. */
void *mock_peek(void *at);
/* From now on this memory is managed: the driver moves it, and the host may
 * touch it. */
void mock_manage(void *at);
/* And this is of another context of its device. Of CUDA's */
void mock_set_apart(void *at);
/* Are copies to and from that memory done when they say so? Of CUDA's */
bool mock_synced(const void *at);
/* A stream of a user, as the driver calls it; NULL: out of memory */
void *mock_stream(int device);
void mock_stream_destroy(void *stream);
/* A stream that the default ones wait for is being captured: what is queued on
 * these fails, and counts as what hangs. */
void mock_capture_blocking(bool begins);
/* How strict the calling thread is in captures; 0: as it began */
int mock_capture_mode(void);
#pragma GCC visibility pop

/* ---- for the drivers ---- */

/* To return at once, where it is not 0 */
int driver_call(void);
/* As driver_call(), of a call that may wait for all streams */
int driver_sync_call(void);
/* How strict the calling thread is, for how strict it was; DRIVER_RELAXED */
void driver_capture_mode(int *mode);
/* As mock_capture_blocking() said */
bool driver_captures_blocking(void);
/* Is any stream held by a wait for the host? */
bool driver_is_held(void);

struct driver_memory {
	char *at, *seen;      /* of the kernels, of this file */
	size_t bytes, before; /* what others have of its first page */
	int device, fd;
	uint64_t id;
	bool imported, managed, synced, apart;
	struct driver_memory *next;
};

int driver_alloc(int device, size_t bytes, void **at);
int driver_free(void *at, bool imported);
/* A copy of the entry; false: no memory of a device */
bool driver_find(const void *at, struct driver_memory *m);
/* Its copies are done when they say so. False: no memory of a device */
bool driver_sync(const void *at);
int driver_ipc_get(char handle[64], const void *at);
int driver_ipc_open(int device, const char handle[64], void **at);
/* The same by a descriptor of the memory's file; `path` names one. */
int driver_import(int device, const char *path, void **at);
/* Can kernels and copies on a device reach memory of another? Not where
 * MOCK_NO_PEERS is set. From now on they do. */
bool driver_can_reach(int device, int other);
int driver_reach(int device, int other);
/* A descriptor of whole pages */
int driver_range_fd(int *fd, void *at, size_t bytes);
int driver_host_alloc(void **at, size_t bytes);
int driver_host_register(void *at, size_t bytes, bool read_only);
int driver_host_unregister(void *at);
bool driver_host_known(const void *at, size_t bytes);
/* Does such memory begin there? */
bool driver_host_begins(const void *at);
/* What a kernel reaches at an address; NULL: nothing */
void *driver_translate(uint64_t at, size_t bytes);

/* What failed on a device, which is of no more use since */
int driver_state(int device);

struct driver_stream;
struct driver_event;

int driver_stream_create(int device, struct driver_stream **s);
/* One that stays, and is not counted */
int driver_stream_keep(int device, struct driver_stream **s);
int driver_stream_destroy(struct driver_stream *s);
/* -1: none that exists; NULL is the default one of a device. */
int driver_stream_device(struct driver_stream *s);
int driver_event_create(int device, struct driver_event **e);
int driver_event_destroy(struct driver_event *e);
int driver_event_record(struct driver_event *e, struct driver_stream *s,
			int device);
int driver_event_query(struct driver_event *e);
int driver_event_wait(struct driver_stream *s, int device,
		      struct driver_event *e);
int driver_wait_value(struct driver_stream *s, int device, void *word,
		      uint32_t value);
int driver_write_value(struct driver_stream *s, int device, void *word,
		       uint32_t value);
int driver_copy(struct driver_stream *s, int device, void *dst, const void *src,
		size_t bytes);
/* Calls fn(arg) in its turn; what it returns is the state of the device. */
int driver_push(struct driver_stream *s, int device, int (*fn)(void *arg),
		void *arg);
/* The same with a copy of arg, which fn frees. A captured stream takes this for
 * a node of its graph, and nothing else. */
int driver_push_new(struct driver_stream *s, int device, int (*fn)(void *arg),
		    const void *arg, size_t bytes);
/* For a function that a stream runs: wait until the word has reached the value,
 * or write it. */
void driver_hold(void *word, uint32_t value);
void driver_store(void *word, uint32_t value);
/* Call what must not call the driver. */
void driver_call_back(void (*fn)(void *arg), void *arg);

#endif
