/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream waits for drivers whose streams wait for a value in memory: the
 * operations of accel.h with these names.
 *
 * A stream wait has a word of pinned host memory, which counts releases. Wait
 * number k holds the stream until the word has reached k. The device itself
 * waits where the driver can do that. Otherwise a host function waits, and
 * holds up the driver's other host functions meanwhile. A word that is put back
 * is released, for a stream that still reads it.
 */
#ifndef DICOMM_ACCEL_GPU_STREAM_WAIT_H
#define DICOMM_ACCEL_GPU_STREAM_WAIT_H

#include "src/accel/gpu/stream.h"

/* As waits_probe() of a driver */
dicomm_result_t gpu_stream_wait_probe(struct gpu_driver *gpu, int index,
				      bool *waits);

dicomm_result_t gpu_stream_wait_create(struct gpu_driver *gpu, int index,
				       struct accel_stream_wait **out);
void gpu_stream_wait_destroy(struct accel_stream_wait *g);
dicomm_result_t gpu_stream_wait_queue(struct accel_stream_wait *g,
				      struct accel_stream *s);
void gpu_stream_wait_release(struct accel_stream_wait *g);
/* Returns true if a stream wait is pending. */
bool gpu_stream_wait_held(struct gpu_driver *gpu);

#endif
