/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL takes the device that cudaSetDevice() has chosen. Nothing is opened for
 * that: a process that has not loaded CUDA's driver or HIP's runtime has chosen
 * none. Threads that have no context yet, since they have called nothing of
 * CUDA's driver, are asked by CUDA's runtime, if that is there.
 */
#include "compat/nccl/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As librccl.so.1, this looks for HIP first. */
static bool prefers_hip(void)
{
	Dl_info info;
	const char *base;

	if (!dladdr((void *)(uintptr_t)prefers_hip, &info) || !info.dli_fname)
		return false;
	base = strrchr(info.dli_fname, '/');
	base = base ? base + 1 : info.dli_fname;
	return !strncmp(base, "librccl", 7);
}

static void *loaded(const char *const *names)
{
	void *handle = NULL;

	for (; *names && !handle; names++)
		handle = dlopen(*names, RTLD_NOLOAD | RTLD_LAZY);
	return handle;
}

static const char *const cuda_driver[] = {"libcuda.so.1", NULL};
static const char *const cuda_runtime[] = {"libcudart.so.13", "libcudart.so.12",
					   "libcudart.so.11.0", NULL};
static const char *const hip_runtime[] = {
	"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", NULL};

/* A function of a library that is loaded; it stays so: its count is ours. */
static void *function(const char *const *library, const char *name)
{
	void *handle = loaded(library);

	return handle ? dlsym(handle, name) : NULL;
}

typedef int (*get_device_fn)(int *device);

#define CUDA_INVALID_CONTEXT 201

static bool ask(const char *const *library, const char *name, int *index)
{
	get_device_fn get = (get_device_fn)(uintptr_t)function(library, name);

	return get && !get(index) && *index >= 0;
}

/* HIP gives device 0 where there is none, too. */
static bool has_devices(const char *const *library, const char *name)
{
	int n = 0;

	return ask(library, name, &n) && n > 0;
}

static bool cuda_index(int *index)
{
	if (ask(cuda_driver, "cuCtxGetDevice", index))
		return true;
	return has_devices(cuda_runtime, "cudaGetDeviceCount") &&
	       ask(cuda_runtime, "cudaGetDevice", index);
}

static bool hip_index(int *index)
{
	return has_devices(hip_runtime, "hipGetDeviceCount") &&
	       ask(hip_runtime, "hipGetDevice", index);
}

static void set(struct nccl_device *device, enum nccl_kind kind, int index)
{
	static const char *const kinds[] = {"host", "cuda", "hip"};

	device->kind = kind;
	device->index = index;
	if (kind == NCCL_HOST)
		strcpy(device->name, "host");
	else
		snprintf(device->name, sizeof(device->name), "%s:%d",
			 kinds[kind], index);
}

/* Who names a device by hand is believed. */
static bool is_named(struct nccl_device *device)
{
	const char *name = getenv("DICOMM_DEVICE");
	int index = 0;

	if (!name || !*name)
		return false;
	memset(device, 0, sizeof(*device));
	device->index = -1;
	if (sscanf(name, "cuda:%d", &index) == 1 || !strcmp(name, "cuda"))
		device->kind = NCCL_CUDA;
	else if (sscanf(name, "hip:%d", &index) == 1 || !strcmp(name, "hip"))
		device->kind = NCCL_HIP;
	if (device->kind != NCCL_HOST)
		device->index = index;
	return true;
}

/* A thread of a program of CUDA's that has not called anything of it yet */
static void warn_of_no_context(void)
{
	get_device_fn get = (get_device_fn)(uintptr_t)function(
		cuda_driver, "cuCtxGetDevice");
	int index;

	if (get && get(&index) == CUDA_INVALID_CONTEXT)
		nccl_warn("this thread has no current device of CUDA: its "
			  "rank is one of the host; call cudaSetDevice() "
			  "before, or set DICOMM_DEVICE");
}

void nccl_device_current(struct nccl_device *device)
{
	int index = -1;

	if (is_named(device))
		return;
	if (prefers_hip() && hip_index(&index))
		set(device, NCCL_HIP, index);
	else if (cuda_index(&index))
		set(device, NCCL_CUDA, index);
	else if (hip_index(&index))
		set(device, NCCL_HIP, index);
	else
		set(device, NCCL_HOST, -1);
	if (device->kind == NCCL_HOST)
		warn_of_no_context();
}

void nccl_device_nth(int i, struct nccl_device *device)
{
	bool hip = has_devices(hip_runtime, "hipGetDeviceCount");

	if (is_named(device))
		return;
	if (hip && prefers_hip())
		set(device, NCCL_HIP, i);
	else if (has_devices(cuda_driver, "cuDeviceGetCount"))
		set(device, NCCL_CUDA, i);
	else if (hip)
		set(device, NCCL_HIP, i);
	else
		set(device, NCCL_HOST, -1);
}

int nccl_device_alloc(enum nccl_kind kind, void **ptr, size_t size)
{
	int (*cuda)(uintptr_t *, size_t);
	int (*hip)(void **, size_t);
	uintptr_t at = 0;
	int error;

	if (kind == NCCL_HIP) {
		hip = (int (*)(void **, size_t))(uintptr_t)function(
			hip_runtime, "hipMalloc");
		return hip ? hip(ptr, size) : -1;
	}
	cuda = (int (*)(uintptr_t *, size_t))(uintptr_t)function(
		cuda_driver, "cuMemAlloc_v2");
	error = cuda ? cuda(&at, size) : -1;
	*ptr = (void *)at;
	return error;
}

int nccl_device_free(enum nccl_kind kind, void *ptr)
{
	int (*cuda)(uintptr_t);
	int (*hip)(void *);

	if (kind == NCCL_HIP) {
		hip = (int (*)(void *))(uintptr_t)function(hip_runtime,
							   "hipFree");
		return hip ? hip(ptr) : -1;
	}
	cuda = (int (*)(uintptr_t))(uintptr_t)function(cuda_driver,
						       "cuMemFree_v2");
	return cuda ? cuda((uintptr_t)ptr) : -1;
}

/* The runtime may have been linked into the program, under whatever name. One
 * that has no driver gives memory of the host, whose free() is not to be asked
 * for what was freed already. */
static bool free_by_runtime(const char *const *library, const char *name,
			    void *ptr)
{
	void *at = function(library, name);
	int (*release)(void *);

	if (!at && (loaded(cuda_driver) || nccl_is_mapped(ptr)))
		at = dlsym(RTLD_DEFAULT, name);
	release = (int (*)(void *))(uintptr_t)at;
	return release && !release(ptr);
}

static bool free_by_cuda(void *ptr)
{
	return free_by_runtime(cuda_runtime, "cudaFree", ptr) ||
	       !nccl_device_free(NCCL_CUDA, ptr);
}

bool nccl_device_free_any(void *ptr)
{
	bool hip_first = prefers_hip();

	return (hip_first && free_by_runtime(hip_runtime, "hipFree", ptr)) ||
	       free_by_cuda(ptr) ||
	       (!hip_first && free_by_runtime(hip_runtime, "hipFree", ptr));
}
