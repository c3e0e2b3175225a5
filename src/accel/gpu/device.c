/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "src/accel/gpu/device.h"
#include "src/base/log.h"

/* ---- errors ---- */

dicomm_result_t gpu_device_status(const struct gpu_driver *gpu, int error)
{
	if (!error)
		return DICOMM_SUCCESS;
	if (error == gpu->out_of_memory || error == gpu->out_of_host_memory)
		return DICOMM_ERR_NO_MEMORY;
	if (error == gpu->not_supported)
		return DICOMM_ERR_UNSUPPORTED;
	return DICOMM_ERR_DEVICE;
}

dicomm_result_t gpu_device_failed(const struct gpu_driver *gpu, int error,
				  int index, const char *what)
{
	return FAIL(gpu_device_status(gpu, error), "%s:%d: %s: %s (%d)",
		    gpu->kind, index, what, gpu->error_text(error), error);
}

dicomm_result_t gpu_device_no_memory(const struct gpu_driver *gpu, int index)
{
	return FAIL(DICOMM_ERR_NO_MEMORY, "%s:%d: out of memory", gpu->kind,
		    index);
}

/* ---- what there is ---- */

/* The driver that this thread loads */
static _Thread_local struct gpu_driver *loading;

static void load(void)
{
	struct gpu_driver *gpu = loading;

	gpu->ndevices = gpu->load(gpu->none_why, sizeof(gpu->none_why));
	if (gpu->ndevices > GPU_DEVICES)
		gpu->ndevices = GPU_DEVICES;
}

/* No lock: if another thread loads when the process forks, the child does it
 * again. */
int gpu_device_count(struct gpu_driver *gpu, char *why, size_t len)
{
	loading = gpu;
	pthread_once(&gpu->loaded, load);
	if (!gpu->ndevices)
		snprintf(why, len, "%s", gpu->none_why);
	return gpu->ndevices;
}

dicomm_result_t gpu_device_check(struct gpu_driver *gpu, int index)
{
	char why[sizeof(gpu->none_why)];
	int n = gpu_device_count(gpu, why, sizeof(why));

	if (index >= 0 && index < n)
		return DICOMM_SUCCESS;
	if (!n)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s device %d: %s",
			    gpu->kind, index, why);
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s device %d: there are %d",
		    gpu->kind, index, n);
}

dicomm_result_t gpu_device_describe(struct gpu_driver *gpu, int index,
				    dicomm_device_info_t *info)
{
	TRY(gpu_device_check(gpu, index));
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s:%d", gpu->kind, index);
	snprintf(info->vendor, sizeof(info->vendor), "%s", gpu->vendor);
	return gpu->details(index, info);
}

unsigned gpu_device_caps(struct gpu_driver *gpu, int index)
{
	char why[sizeof(gpu->none_why)];

	if (index < 0 || index >= gpu_device_count(gpu, why, sizeof(why)))
		return 0;
	return ACCEL_IPC | ACCEL_MAP_HOST |
	       (gpu->has_dmabuf(index) ? ACCEL_DMABUF : 0) |
	       (gpu->flushes ? gpu->flushes(index)
			     : ACCEL_FLUSH | ACCEL_FLUSH_OTHERS);
}

/* ---- the current device ---- */

/* The mode of the thread before gpu_device_relax(), of each driver */
static _Thread_local int strict[GPU_DRIVERS];

void gpu_device_relax(const struct gpu_driver *gpu)
{
	strict[gpu->which] = gpu->capture_relaxed;
	gpu_device_restore(gpu);
}

void gpu_device_restore(const struct gpu_driver *gpu)
{
	if (gpu->api.capture_mode)
		(void)gpu->api.capture_mode(&strict[gpu->which]);
}

static int make_current(struct gpu_driver *gpu, int index)
{
	int error = gpu->enter(index);

	if (!error)
		gpu_device_relax(gpu);
	return error;
}

void gpu_device_leave(struct gpu_driver *gpu)
{
	gpu_device_restore(gpu);
	if (gpu->leave)
		gpu->leave();
}

/* Start a device at its first use. The caller holds the lock. */
static dicomm_result_t device_start(struct gpu_driver *gpu, int index)
{
	struct gpu_device *d = &gpu->devices[index];
	dicomm_result_t status;
	int error;

	if (d->ready)
		return DICOMM_SUCCESS;
	error = gpu->device_init ? gpu->device_init(index) : 0;
	if (!error)
		error = make_current(gpu, index);
	if (error)
		return gpu_device_failed(gpu, error, index, "cannot be used");
	status = gpu->waits_probe(gpu, index, &d->waits);
	if (status == DICOMM_SUCCESS)
		status = gpu->writes_probe(gpu, index, d->waits, &d->writes);
	d->units = gpu->units(index);
	atomic_store_explicit(&d->ready, status == DICOMM_SUCCESS,
			      memory_order_release);
	gpu_device_leave(gpu);
	return status;
}

dicomm_result_t gpu_device_enter(struct gpu_driver *gpu, int index)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	int error;

	TRY(gpu_device_check(gpu, index));
	if (!atomic_load_explicit(&gpu->devices[index].ready,
				  memory_order_acquire)) {
		pthread_mutex_lock(&gpu->lock);
		status = device_start(gpu, index);
		pthread_mutex_unlock(&gpu->lock);
	}
	TRY(status);
	error = make_current(gpu, index);
	return error ? gpu_device_failed(gpu, error, index, "cannot be used")
		     : DICOMM_SUCCESS;
}

dicomm_result_t gpu_device_done(struct gpu_driver *gpu, int error, int index,
				const char *what)
{
	gpu_device_leave(gpu);
	return error ? gpu_device_failed(gpu, error, index, what)
		     : DICOMM_SUCCESS;
}
