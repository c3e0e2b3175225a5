/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices for ranks of tests: PoCL's, and those of the mock drivers, which do
 * not exist; or where it is asked for, a real GPU (gpu/device.h). The memory of
 * a mock device cannot be touched by the host: who does so dies. Where
 * MOCK_DRIVERS is "between" or "old" in the environment, drivers are mocked
 * that offer less.
 */
#ifndef DICOMM_TESTS_SUPPORT_GADGET_H
#define DICOMM_TESTS_SUPPORT_GADGET_H

#include <stdbool.h>
#include <stddef.h>

#include "src/accel/accel.h"

struct gadget {
	const char *name; /* "cuda:0"; "host": there is nothing to it */
	const struct accel *accel;
	int index;
	void *native; /* a stream as its driver calls it; NULL: its default */
	struct accel_stream *stream; /* the same */
	struct accel_event *event;
	uint8_t *load; /* with which a real GPU is kept busy; or NULL */
};

/* Can there be such a device? Makes this process see the mocks, for good; else
 * the reason. */
bool gadget_exists(const char *name, char *why, size_t len);
/* For a rank; the job fails if it cannot be had. */
void gadget_open(struct gadget *g, const char *name);
void gadget_close(struct gadget *g);

void *gadget_alloc(const struct gadget *g, size_t bytes);
/* Once other processes have let go of it, or after 10 s; mocks only. */
void gadget_free(const struct gadget *g, void *at);
/* Host memory, from and to which copies run when it is their turn. Of other
 * memory of the host GPUs read at once, and to it they copy only when all that
 * is before has run, which the caller then waits for. */
void *gadget_host(const struct gadget *g, size_t bytes);
void gadget_host_free(const struct gadget *g, void *at);
/* Queue a copy on the stream. */
void gadget_copy(const struct gadget *g, void *dst, const void *src,
		 size_t bytes);
/* Wait for all that is queued on it. */
void gadget_wait(const struct gadget *g);
/* Work on streams begins up to so much later from now on; of a real GPU, once
 * what it is given to do now has taken about so long. */
void gadget_delay(const struct gadget *g, unsigned us);
/* What was asked of the driver that would have waited for a held stream. Mocks
 * only. */
int gadget_hangs(const struct gadget *g);
/* Memory that was freed while other processes had it mapped. Mocks only. */
int gadget_early(const struct gadget *g);
/* Memory, streams and events that were not given back. Mocks only. */
int gadget_live(const struct gadget *g);
/* Waits of its driver's streams for memory. Mocks only. */
int gadget_waits(const struct gadget *g);
/* The n-th call of the driver from now on fails, once; mocks only. */
void gadget_fail(const struct gadget *g, int nth, int error);
/* Has it? None will any more. */
bool gadget_has_failed(const struct gadget *g);

#endif
