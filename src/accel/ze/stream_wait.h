/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream waits on Level Zero, in the place of src/accel/gpu/stream_wait.h. Each
 * queued wait is an event that only the host signals.
 *
 * Drivers run many command lists on few queues, and a list that waits may hold
 * up the other lists of its queue. So the library's lists have to be on another
 * queue than the users' lists. Two lists of users need two queues if one
 * depends on the other through the library.
 */
#ifndef DICOMM_ACCEL_ZE_STREAM_WAIT_H
#define DICOMM_ACCEL_ZE_STREAM_WAIT_H

#include "src/accel/gpu/stream.h"

dicomm_result_t ze_stream_wait_probe(struct gpu_driver *gpu, int index,
				     bool *waits);
dicomm_result_t ze_stream_wait_create(struct gpu_driver *gpu, int index,
				      struct accel_stream_wait **out);
void ze_stream_wait_destroy(struct accel_stream_wait *g);
dicomm_result_t ze_stream_wait_queue(struct accel_stream_wait *g,
				     struct accel_stream *s);
void ze_stream_wait_release(struct accel_stream_wait *g);
bool ze_stream_wait_held(const struct gpu_driver *gpu);

#endif
