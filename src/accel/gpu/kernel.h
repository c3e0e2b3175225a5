/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of a driver's devices: from images of this build, or compiled. */
#ifndef DICOMM_ACCEL_GPU_KERNEL_H
#define DICOMM_ACCEL_GPU_KERNEL_H

#include "src/accel/gpu/stream.h"

/* As prepare() of accel.h */
dicomm_result_t gpu_kernel_prepare(struct accel_stream *s,
				   dicomm_datatype_t type);
/* Queue a kernel that was prepared; does nothing for 0 elements. */
dicomm_result_t gpu_kernel_start(struct accel_stream *s, struct launch *l);

#endif
