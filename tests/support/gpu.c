/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of a real GPU, as a user of CUDA makes them. */
#include "tests/support/gpu.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/cuda/api.h"

static struct {
#define F(name, symbol, needed, parameters) cuda_result(*name) parameters;
	CUDA_FUNCTIONS(F)
#undef F
} api;

bool gpu_is_wanted(const char *device)
{
	const char *wanted = getenv("DICOMM_TEST_GPU");

	return wanted && *wanted && !strncmp(device, "cuda", 4);
}

static bool load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		return false;
#define F(name, symbol, needed, parameters) \
	*(void **)&api.name = dlsym(lib, #symbol);
	CUDA_FUNCTIONS(F)
#undef F
	return api.init && !api.init(0);
}

/* In the primary context, which is the one of CUDA's runtime */
void *gpu_stream(int index)
{
	cuda_stream stream = NULL;
	cuda_context context;
	cuda_device device;

	if (!load() || api.device_get(&device, index) ||
	    api.context_retain(&context, device) || api.context_push(context))
		return NULL;
	if (api.stream_create(&stream, CUDA_STREAM_NON_BLOCKING, 0))
		stream = NULL;
	api.context_pop(&context);
	return stream;
}

void gpu_stream_destroy(void *stream)
{
	api.stream_destroy(stream);
}
