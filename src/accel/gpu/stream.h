/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of a driver's devices: the operations of accel.h with these names. */
#ifndef DICOMM_ACCEL_GPU_STREAM_H
#define DICOMM_ACCEL_GPU_STREAM_H

#include "src/accel/gpu/driver.h"

struct accel_stream {
	struct gpu_driver *gpu;
	int index;
	bool own;     /* the library created it */
	void *native; /* the user's handle; NULL: the default stream */
	void *handle;
	/* Set if the host reduces on this stream: its pinned memory, what to
	 * call with it as a host function after the last work of the stream,
	 * and the types that the host reduces, one bit each. */
	struct gpu_pinned *pinned;
	gpu_host_fn pinned_put;
	uint64_t host_reduced;
};

dicomm_result_t gpu_stream_open(struct gpu_driver *gpu, int index, void *native,
				struct accel_stream **out);
dicomm_result_t gpu_stream_open_beside(struct accel_stream *other,
				       struct accel_stream **out);
void gpu_stream_close(struct accel_stream *s);
dicomm_result_t gpu_stream_copy(struct accel_stream *s, void *dst,
				const void *src, size_t bytes);

/* Refuse a stream of the user that is being captured into a graph. Work on the
 * default stream fails, and spoils the graph, while a stream that waits for the
 * default stream is captured. */
dicomm_result_t gpu_stream_refuse_capture(const struct accel_stream *s);
/* The stream is of another device. */
dicomm_result_t gpu_stream_misfit(const struct gpu_driver *gpu, int index,
				  void *native);

#endif
