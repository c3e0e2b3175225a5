/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/accel/opencl/program.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/accel/launch/binary_cache.h"
#include "src/accel/launch/image.h"
#include "src/accel/opencl/error.h"
#include "src/base/clock.h"
#include "src/base/cpuinfo.h"

#define TEXT_BYTES 512 /* for a text that a runtime gives about itself */

/* How a kernel is built, and a key to all that its binary depends on. */
struct recipe {
	char options[64];
	char choice[80];
	const char *source;
	bool has_key;
	struct binary_key key;
};

/* ---- what a binary depends on ---- */

/* Returns false if the runtime does not say all that a key needs. */
static bool key_make(const struct program_place *at, struct recipe *r)
{
	char vendor[TEXT_BYTES] = "", name[TEXT_BYTES] = "";
	char version[TEXT_BYTES] = "", driver[TEXT_BYTES] = "";
	char platform[TEXT_BYTES] = "", compiler[TEXT_BYTES] = "";
	char processor[4096] = "";
	const char *const parts[] = {vendor,    name,     version,   driver,
				     platform,  compiler, processor, r->options,
				     r->choice, r->source};
	const struct {
		uint32_t what;
		char *text;
	} of_device[] = {
		{OPENCL_DEVICE_VENDOR, vendor},
		{OPENCL_DEVICE_NAME, name},
		{OPENCL_DEVICE_VERSION, version},
		{OPENCL_DRIVER_VERSION, driver},
	};

	for (size_t i = 0; i < sizeof(of_device) / sizeof(*of_device); i++)
		if (at->cl->clGetDeviceInfo(at->device, of_device[i].what,
					    TEXT_BYTES, of_device[i].text,
					    NULL))
			return false;
	if (at->cl->clGetPlatformInfo(at->platform, OPENCL_PLATFORM_NAME,
				      TEXT_BYTES, platform, NULL) ||
	    at->cl->clGetPlatformInfo(at->platform, OPENCL_PLATFORM_VERSION,
				      TEXT_BYTES, compiler, NULL))
		return false;
	/* A binary may use instructions that another processor of the same
	 * name lacks, as one of a virtual machine. */
	if (at->cpu) {
		cpuinfo_value("flags", processor, sizeof(processor));
		cpuinfo_value("Features", processor, sizeof(processor));
	}
	binary_cache_key(&r->key, parts, sizeof(parts) / sizeof(*parts));
	return true;
}

static void recipe_make(const struct program_place *at, const struct launch *l,
			struct recipe *r)
{
	/* A NUL follows it. */
	r->source = (const char *)image_find("source")->data;
	snprintf(r->options, sizeof(r->options),
		 "-cl-std=CL1.2 -DREDUCE_ONLY=%d%s", l->module + 1,
		 at->cpu ? " -DREDUCE_BLOCKED" : "");
	snprintf(r->choice, sizeof(r->choice),
		 "#define REDUCE_ONE\n#define ONE_%s , KERNEL\n", l->kernel);
	r->has_key = key_make(at, r);
}

/* ---- binaries ---- */

/* Returns NULL if none is kept, or if the runtime does not take it. */
static opencl_program load(const struct program_place *at,
			   const struct recipe *r)
{
	const struct opencl_api *cl = at->cl;
	int32_t error = OPENCL_SUCCESS, of_device = OPENCL_SUCCESS;
	opencl_program program;
	const unsigned char *data;
	unsigned char *binary;
	size_t len;

	binary = binary_cache_load(&r->key, &len);
	if (!binary)
		return NULL;
	data = binary;
	program = cl->clCreateProgramWithBinary(
		at->context, 1, &at->device, &len, &data, &of_device, &error);
	free(binary);
	if (!error)
		error = of_device;
	if (program && !error)
		error = cl->clBuildProgram(program, 1, &at->device, r->options,
					   NULL, NULL);
	if (program && !error)
		return program;
	if (program)
		cl->clReleaseProgram(program);
	log_debug("opencl:%d: a kept kernel is not used: %s (%d)", at->index,
		  error_text(error), error);
	return NULL;
}

static void keep(const struct program_place *at, const struct recipe *r,
		 opencl_program program)
{
	const struct opencl_api *cl = at->cl;
	unsigned char *binary = NULL;
	uint32_t devices = 0;
	size_t len = 0;

	/* In a context of several devices there are as many binaries. */
	if (!cl->clGetProgramInfo(program, OPENCL_PROGRAM_NUM_DEVICES,
				  sizeof(devices), &devices, NULL) &&
	    devices == 1 &&
	    !cl->clGetProgramInfo(program, OPENCL_PROGRAM_BINARY_SIZES,
				  sizeof(len), &len, NULL) &&
	    len)
		binary = malloc(len);
	if (binary && !cl->clGetProgramInfo(program, OPENCL_PROGRAM_BINARIES,
					    sizeof(binary), &binary, NULL))
		binary_cache_keep(&r->key, binary, len);
	free(binary);
}

/* ---- from the source ---- */

static dicomm_result_t build_failed(const struct program_place *at,
				    opencl_program program,
				    const struct launch *l, int32_t error)
{
	char log[1024] = "";

	at->cl->clGetProgramBuildInfo(program, at->device,
				      OPENCL_PROGRAM_BUILD_LOG, sizeof(log) - 1,
				      log, NULL);
	at->cl->clReleaseProgram(program);
	return FAIL(DICOMM_ERR_DEVICE, "opencl:%d: kernel %s: %s (%d): %s",
		    at->index, l->kernel, error_text(error), error, log);
}

static dicomm_result_t build(const struct program_place *at,
			     const struct recipe *r, const struct launch *l,
			     opencl_program *out)
{
	const char *texts[] = {r->choice, r->source};
	opencl_program program;
	int32_t error;

	program = at->cl->clCreateProgramWithSource(at->context, 2, texts, NULL,
						    &error);
	if (!program)
		return FAIL_CL(error, at->index, "clCreateProgramWithSource");
	error = at->cl->clBuildProgram(program, 1, &at->device, r->options,
				       NULL, NULL);
	if (error)
		return build_failed(at, program, l, error);
	*out = program;
	return DICOMM_SUCCESS;
}

dicomm_result_t program_make(const struct program_place *at,
			     const struct launch *l, opencl_program *program)
{
	uint64_t began = clock_ms(), ms;
	struct recipe r;

	recipe_make(at, l, &r);
	*program = r.has_key ? load(at, &r) : NULL;
	if (*program) {
		log_debug("opencl:%d: read kernel %s", at->index, l->kernel);
		return DICOMM_SUCCESS;
	}
	TRY(build(at, &r, l, program));
	/* Some runtimes compile again to give it. */
	if (r.has_key && binary_cache_works())
		keep(at, &r, *program);
	ms = clock_ms() - began;
	log_at(ms > BINARY_SLOW_MS ? LOG_INFO : LOG_DEBUG,
	       "opencl:%d: built kernel %s in %.1f s", at->index, l->kernel,
	       (double)ms / 1e3);
	return DICOMM_SUCCESS;
}
