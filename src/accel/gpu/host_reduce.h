/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reductions of accel.h: by kernels of the device, or by the host
 * (src/accel/reduce/host_reduce.h) for a type that the device has no kernel
 * for. Then copies and host functions are queued on the stream, in order, and
 * no call waits for them.
 *
 * The device must be able to wait for a value in memory by itself. If host
 * functions did the stream waits, one would block the very reduction that has
 * to run before it is released.
 */
#ifndef DICOMM_ACCEL_GPU_HOST_REDUCE_H
#define DICOMM_ACCEL_GPU_HOST_REDUCE_H

#include "src/accel/gpu/stream.h"

/* As prepare_host_reduce() of accel.h */
dicomm_result_t gpu_host_reduce_prepare(struct accel_stream *s,
					dicomm_datatype_t type);
dicomm_result_t gpu_host_reduce_reduce(struct accel_stream *s,
				       dicomm_datatype_t type,
				       dicomm_redop_t op, void *dst,
				       const void *a, const void *b, size_t n);
dicomm_result_t gpu_host_reduce_fold(struct accel_stream *s,
				     dicomm_datatype_t type, dicomm_redop_t op,
				     void *dst, const void *const *src,
				     int nsrc, size_t n);
dicomm_result_t gpu_host_reduce_scale(struct accel_stream *s,
				      dicomm_datatype_t type, void *dst,
				      const void *a, const void *scalar_at,
				      uint64_t scalar, size_t n);
dicomm_result_t gpu_host_reduce_divide(struct accel_stream *s,
				       dicomm_datatype_t type, void *dst,
				       const void *a, long divisor, size_t n);

#endif
