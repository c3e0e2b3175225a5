/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real GPU in the place of the mock of CUDA, where DICOMM_TEST_GPU is set:
 * then tests see the driver of this machine.
 */
#ifndef DICOMM_TESTS_SUPPORT_GPU_H
#define DICOMM_TESTS_SUPPORT_GPU_H

#include <stdbool.h>

/* Is a device of that name to be had from the driver of this machine? */
bool gpu_is_wanted(const char *device);
/* A stream of a user, as the driver calls it; NULL: it makes none. */
void *gpu_stream(int index);
void gpu_stream_destroy(void *stream);

#endif
