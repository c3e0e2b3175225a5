/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a driver's devices, and host memory that they reach: the operations
 * of accel.h with these names. Threads: any. */
#ifndef DICOMM_ACCEL_GPU_MEMORY_H
#define DICOMM_ACCEL_GPU_MEMORY_H

#include "src/accel/gpu/driver.h"

dicomm_result_t gpu_memory_alloc(struct gpu_driver *gpu, int index,
				 size_t bytes, void **ptr);
dicomm_result_t gpu_memory_free(struct gpu_driver *gpu, void *ptr);
bool gpu_memory_owner(struct gpu_driver *gpu, const void *ptr,
		      struct accel_owner *owner);
dicomm_result_t gpu_memory_reach(struct gpu_driver *gpu, int index, int other);
dicomm_result_t gpu_memory_allocation(struct gpu_driver *gpu, const void *ptr,
				      struct accel_allocation *a);
dicomm_result_t gpu_memory_export(struct gpu_driver *gpu, const void *ptr,
				  struct accel_handle *h);
dicomm_result_t gpu_memory_import(struct gpu_driver *gpu, int index,
				  const struct accel_handle *h, void **base);
void gpu_memory_unimport(struct gpu_driver *gpu, int index, void *base);
dicomm_result_t gpu_memory_map_host(struct gpu_driver *gpu, int index,
				    void *host, size_t bytes, bool loads,
				    void **device);
void gpu_memory_unmap_host(struct gpu_driver *gpu, int index, void *host);
dicomm_result_t gpu_memory_dmabuf(struct gpu_driver *gpu, const void *ptr,
				  size_t bytes, int *fd, uint64_t *offset);

#endif
