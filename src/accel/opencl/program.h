/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of an OpenCL device: one program for each kernel, made when it is
 * first needed. To build all of them would take a runtime half a minute; one
 * takes less than a second. It is built from the source, or read from the
 * folder where an earlier process has kept it (binary_cache.h).
 */
#ifndef DICOMM_ACCEL_OPENCL_PROGRAM_H
#define DICOMM_ACCEL_OPENCL_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "dicomm.h"
#include "src/accel/launch/launch.h"
#include "src/accel/opencl/api.h"

/* A device in a context, which a program is built for. */
struct program_place {
	const struct opencl_api *cl;
	opencl_platform platform;
	opencl_device device;
	opencl_context context;
	int index; /* of the device, for messages */
	bool cpu;
};

/* Makes the program of a kernel. The caller releases it. May take seconds.
 * Returns DICOMM_ERR_DEVICE or DICOMM_ERR_NO_MEMORY, with a log line, if the
 * runtime cannot build it. */
dicomm_result_t program_make(const struct program_place *at,
			     const struct launch *l, opencl_program *program);

#endif
