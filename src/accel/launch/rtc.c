/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiles the kernels by the compilers of the vendors' runtimes. */
#include "src/accel/launch/rtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/accel/launch/binary_cache.h"
#include "src/accel/launch/image.h"
#include "src/base/clock.h"
#include "src/base/log.h"

#define MOST_OPTIONS 4

/* Newest first */
static const struct {
	int major;
	const char *soname;
} nvrtc[] = {
	{13, "libnvrtc.so.13"},   {12, "libnvrtc.so.12"},
	{11, "libnvrtc.so.11.2"}, {11, "libnvrtc.so.11.1"},
	{11, "libnvrtc.so.11.0"}, {10, "libnvrtc.so.10.2"},
	{10, "libnvrtc.so.10.1"}, {10, "libnvrtc.so.10.0"},
};

/* ---- opening ---- */

static void *symbol(void *lib, const char *prefix, const char *rest)
{
	char name[64];

	snprintf(name, sizeof(name), "%s%s", prefix, rest);
	return dlsym(lib, name);
}

/* Compilers of one soname differ in what they make. */
static void identify(struct rtc *r)
{
	struct stat st;
	Dl_info info;

	if (dladdr((void *)(uintptr_t)r->compile, &info) && info.dli_fname &&
	    !stat(info.dli_fname, &st))
		snprintf(r->build, sizeof(r->build), "%lld %lld.%09ld",
			 (long long)st.st_size, (long long)st.st_mtim.tv_sec,
			 st.st_mtim.tv_nsec);
}

static bool load(struct rtc *r, void *lib, const char *prefix, const char *name,
		 char *why, size_t len)
{
	*r = (struct rtc){.error_text = NULL};
	snprintf(r->name, sizeof(r->name), "%s", name);
	*(void **)&r->error_text = symbol(lib, prefix, "GetErrorString");
	if (!r->error_text) {
		snprintf(why, len, "%s has no %sGetErrorString", name, prefix);
		return false;
	}
#define F(function, rest, parameters)                                      \
	*(void **)&r->function = symbol(lib, prefix, #rest);               \
	if (!r->function) {                                                \
		snprintf(why, len, "%s has no %s%s", name, prefix, #rest); \
		return false;                                              \
	}
	RTC_FUNCTIONS(F)
#undef F
	identify(r);
#define F(function, whole, parameters) \
	*(void **)&r->function = dlsym(lib, #whole);
	RTC_CUDA_RESULTS(F)
	RTC_HIP_RESULTS(F)
#undef F
	return true;
}

bool rtc_open_nvrtc(struct rtc *r, int major, size_t *next, char *why,
		    size_t len)
{
	if (!*next)
		snprintf(why, len, "no NVRTC of CUDA %d or older", major);
	while (*next < sizeof(nvrtc) / sizeof(*nvrtc)) {
		size_t i = (*next)++;
		void *lib = nvrtc[i].major > major
				    ? NULL
				    : dlopen(nvrtc[i].soname,
					     RTLD_NOW | RTLD_LOCAL);

		if (lib && load(r, lib, "nvrtc", nvrtc[i].soname, why, len))
			return true;
	}
	return false;
}

bool rtc_open_hiprtc(struct rtc *r, void *runtime, int major, char *why,
		     size_t len)
{
	char name[32];
	void *lib;

	snprintf(name, sizeof(name), "libhiprtc.so.%d", major);
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (lib)
		return load(r, lib, "hiprtc", name, why, len);
	snprintf(name, sizeof(name), "libamdhip64.so.%d", major);
	return load(r, runtime, "hiprtc", name, why, len);
}

/* ---- compiling ---- */

/* Write the compiler's error, and the first line of its log. */
static void explain(const struct rtc *r, rtc_program program, rtc_result error,
		    char *why, size_t len)
{
	char *text = NULL;
	size_t bytes = 0;

	if (!r->log_size(program, &bytes) && bytes)
		text = calloc(1, bytes + 1);
	if (text && r->log(program, text))
		*text = '\0';
	if (text)
		text[strcspn(text, "\n")] = '\0';
	snprintf(why, len, "%s: %s (%d)%s%s", r->name,
		 error ? r->error_text(error) : "out of memory", (int)error,
		 text && *text ? ": " : "", text ? text : "");
	free(text);
}

/* Compile the source. options ends with NULL; size() and get() fetch the kind
 * of result that the caller wants, of *bytes. Returns memory that the caller
 * frees, or NULL with the reason in why. */
static void *compile(const struct rtc *r, const char *const *options,
		     rtc_result (*size)(rtc_program, size_t *),
		     rtc_result (*get)(rtc_program, char *), size_t *bytes,
		     char *why, size_t len)
{
	const struct image *source = image_find("source");
	rtc_program program = NULL;
	char *code = NULL;
	rtc_result error;
	int n = 0;

	if (!size || !get) {
		snprintf(why, len, "%s is too old", r->name);
		return NULL;
	}
	while (options[n])
		n++;
	error = r->create(&program, (const char *)source->data, "reduce.cl", 0,
			  NULL, NULL);
	if (error) {
		snprintf(why, len, "%s: %s (%d)", r->name, r->error_text(error),
			 (int)error);
		return NULL;
	}
	error = r->compile(program, n, options);
	if (!error)
		error = size(program, bytes);
	if (!error)
		code = malloc(*bytes + 1);
	if (code)
		error = get(program, code);
	if (error || !code) {
		explain(r, program, error, why, len);
		free(code);
		code = NULL;
	}
	r->destroy(&program);
	return code;
}

/* As compile(), but what an earlier process has made with the same options is
 * taken from disk. They must name the architecture. */
static void *compile_once(const struct rtc *r, const char *const *options,
			  rtc_result (*size)(rtc_program, size_t *),
			  rtc_result (*get)(rtc_program, char *), char *why,
			  size_t len)
{
	const char *parts[MOST_OPTIONS + 3] = {
		r->name, r->build, (const char *)image_find("source")->data};
	uint64_t began = clock_ms();
	struct binary_key key;
	size_t bytes = 0;
	int n = 3;
	void *code;

	for (int i = 0; options[i]; i++)
		parts[n++] = options[i];
	binary_cache_key(&key, parts, (size_t)n);
	code = r->build[0] ? binary_cache_load(&key, &bytes) : NULL;
	if (code)
		return code;
	code = compile(r, options, size, get, &bytes, why, len);
	if (code && r->build[0])
		binary_cache_keep(&key, code, bytes);
	if (clock_ms() - began > BINARY_SLOW_MS)
		log_info("%s: compiled kernels (%s) in %.1f s", r->name,
			 options[1], (double)(clock_ms() - began) / 1e3);
	return code;
}

/* --fmad=false: a contracted multiply-add would round once, and give other bits
 * than the rest of the kernels. */
void *rtc_cuda(const struct rtc *r, enum launch_module module, int arch,
	       bool text, char *why, size_t len)
{
	char for_arch[40], only[40];
	const char *const options[] = {for_arch, only, "--fmad=false", NULL};

	snprintf(for_arch, sizeof(for_arch), "--gpu-architecture=%s_%d",
		 text ? "compute" : "sm", arch);
	snprintf(only, sizeof(only), "-DREDUCE_ONLY=%d", (int)module + 1);
	return text ? compile_once(r, options, r->text_size, r->text, why, len)
		    : compile_once(r, options, r->binary_size, r->binary, why,
				   len);
}

void *rtc_hip(const struct rtc *r, char *why, size_t len)
{
	const char *const options[] = {"-O3", "-ffp-contract=off", NULL};
	size_t bytes = 0;

	/* Not kept: the options do not say what HIP's current device is. */
	return compile(r, options, r->object_size, r->object, &bytes, why, len);
}

int rtc_newest(const struct rtc *r, int arch)
{
	int n = 0, newest = 0;
	int *known;

	if (!r->archs_size || !r->archs || r->archs_size(&n) || n < 1)
		return 0;
	known = calloc((size_t)n, sizeof(*known));
	if (known && !r->archs(known))
		for (int i = 0; i < n; i++)
			if (known[i] <= arch && known[i] > newest)
				newest = known[i];
	free(known);
	return newest;
}
