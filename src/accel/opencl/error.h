/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of OpenCL, in words and as a status. */
#ifndef DICOMM_ACCEL_OPENCL_ERROR_H
#define DICOMM_ACCEL_OPENCL_ERROR_H

#include <stdint.h>

#include "src/base/log.h"

const char *error_text(int32_t error);
dicomm_result_t error_status(int32_t error);

#define FAIL_CL(error, index, what)                                      \
	FAIL(error_status(error), "opencl:%d: %s: %s (%d)", index, what, \
	     error_text(error), error)

#endif
