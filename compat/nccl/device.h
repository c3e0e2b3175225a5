/* SPDX-License-Identifier: BSD-3-Clause */
/* The device that a thread has chosen, by what its process has loaded. */
#ifndef DICOMM_COMPAT_NCCL_DEVICE_H
#define DICOMM_COMPAT_NCCL_DEVICE_H

#include "compat/nccl/say.h"

enum nccl_kind { NCCL_HOST, NCCL_CUDA, NCCL_HIP };

struct nccl_device {
	enum nccl_kind kind;
	int index;
	char name[32]; /* as the library has it; "": as DICOMM_DEVICE says */
};

/* Without a driver in the process, or a device that is chosen, the host. */
void nccl_device_current(struct nccl_device *device);
/* Device i of the kind that the process has loaded; else the host. */
void nccl_device_nth(int i, struct nccl_device *device);
/* Memory of the current device, from its driver; an error of that, or 0. */
int nccl_device_alloc(enum nccl_kind kind, void **ptr, size_t size);
int nccl_device_free(enum nccl_kind kind, void *ptr);
/* Memory that the program has from the runtime or the driver of its devices;
 * false: none of those that the process has loaded knows it. */
bool nccl_device_free_any(void *ptr);

#endif
