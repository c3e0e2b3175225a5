/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices of a driver: their start, and the calls of the driver between
 * gpu_device_enter() and gpu_device_leave(). Threads: any. */
#ifndef DICOMM_ACCEL_GPU_DEVICE_H
#define DICOMM_ACCEL_GPU_DEVICE_H

#include "src/accel/gpu/driver.h"

/* As count(), describe() and caps() of accel.h */
int gpu_device_count(struct gpu_driver *gpu, char *why, size_t len);
dicomm_result_t gpu_device_describe(struct gpu_driver *gpu, int index,
				    dicomm_device_info_t *info);
unsigned gpu_device_caps(struct gpu_driver *gpu, int index);

dicomm_result_t gpu_device_check(struct gpu_driver *gpu, int index);
/* Make a device current for this thread, until gpu_device_leave(). Once the
 * device is ready this takes no lock. Another thread may hold the lock while it
 * waits for a stream that only this thread can release. */
dicomm_result_t gpu_device_enter(struct gpu_driver *gpu, int index);
void gpu_device_leave(struct gpu_driver *gpu);
/* Leave, and turn the error of a call on the device into a status. */
dicomm_result_t gpu_device_done(struct gpu_driver *gpu, int error, int index,
				const char *what);

/* Keep graph captures of other threads intact. While one thread captures a
 * stream into a graph, queries of events, allocations and other calls of any
 * strict thread invalidate that graph. So the library makes its thread relaxed
 * during a call (enter() does), and restores the mode afterwards. */
void gpu_device_relax(const struct gpu_driver *gpu);
void gpu_device_restore(const struct gpu_driver *gpu);

dicomm_result_t gpu_device_status(const struct gpu_driver *gpu, int error);
/* Log the error, as a status. */
dicomm_result_t gpu_device_failed(const struct gpu_driver *gpu, int error,
				  int index, const char *what);
dicomm_result_t gpu_device_no_memory(const struct gpu_driver *gpu, int index);

#endif
