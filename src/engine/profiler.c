/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/engine/profiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"
#include "src/base/log.h"

/* Of nvToolsExt.h, version 2 of its structure, which NVTX 3 takes too. */
#define NVTX_VERSION 2
#define NVTX_PAYLOAD_UINT64 1
#define NVTX_MESSAGE_ASCII 1
struct nvtx_attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const char *message;
};

static struct {
	void *domain;
	void *(*create)(const char *domain);
	uint64_t (*begin)(void *domain, const struct nvtx_attributes *a);
	void (*end)(void *domain, uint64_t range);
} nvtx;

static struct {
	uint64_t (*begin)(const char *name);
	void (*end)(uint64_t range);
} roctx;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;

static void *open_first(const char *const *names)
{
	void *library = NULL;

	for (; *names && !library; names++)
		library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
	return library;
}

static bool open_nvtx(void)
{
	static const char *const names[] = {"libnvtx3interop.so.1",
					    "libnvToolsExt.so.1", NULL};
	void *library = open_first(names);

	if (!library)
		return false;
	*(void **)&nvtx.create = dlsym(library, "nvtxDomainCreateA");
	*(void **)&nvtx.begin = dlsym(library, "nvtxDomainRangeStartEx");
	*(void **)&nvtx.end = dlsym(library, "nvtxDomainRangeEnd");
	if (!nvtx.create || !nvtx.begin || !nvtx.end) {
		dlclose(library);
		return false;
	}
	nvtx.domain = nvtx.create("dicomm");
	return true;
}

static bool open_roctx(void)
{
	static const char *const names[] = {"librocprofiler-sdk-roctx.so.1",
					    "librocprofiler-sdk-roctx.so.0",
					    "libroctx64.so.4", NULL};
	void *library = open_first(names);

	if (!library)
		return false;
	*(void **)&roctx.begin = dlsym(library, "roctxRangeStartA");
	*(void **)&roctx.end = dlsym(library, "roctxRangeStop");
	if (roctx.begin && roctx.end)
		return true;
	dlclose(library);
	roctx.begin = NULL;
	return false;
}

static void open_once(void)
{
	const char *which = config_string(CONFIG_RANGES);
	bool named = strcmp(which, "auto");

	if (!strcmp(which, "off"))
		return;
	/* Nsight Systems sets it in what it starts. */
	if (!named && !getenv("NVTX_INJECTION64_PATH"))
		return;
	there = !strcmp(which, "roctx") ? open_roctx() : open_nvtx();
	if (!named && !there)
		log_info("NVTX_INJECTION64_PATH is set, but neither "
			 "libnvtx3interop.so.1 nor libnvToolsExt.so.1 can be "
			 "opened; a profiler sees no operations");
	if (named && !there)
		log_warn("DICOMM_RANGES: %s: its library cannot be opened; "
			 "there are no ranges",
			 which);
}

bool profiler_open(void)
{
	pthread_once(&once, open_once);
	return there;
}

uint64_t profiler_range_begin(const char *name, uint64_t bytes)
{
	struct nvtx_attributes a = {
		.version = NVTX_VERSION,
		.size = sizeof(a),
		.payload_type = NVTX_PAYLOAD_UINT64,
		.payload = bytes,
		.message_type = NVTX_MESSAGE_ASCII,
		.message = name,
	};

	return roctx.begin ? roctx.begin(name) : nvtx.begin(nvtx.domain, &a);
}

void profiler_range_end(uint64_t range)
{
	if (roctx.end)
		roctx.end(range);
	else
		nvtx.end(nvtx.domain, range);
}
