/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mocks of NVRTC and, with MOCK_HIP, of HIPRTC: the functions of rtc.h. They
 * take the source of our kernels and nothing else, and make an object of which
 * the mock drivers run the twins. With MOCK_COMPILER=broken in the environment
 * nothing compiles; with MOCK_NEW, NVRTC is one that has dropped all devices of
 * the mock driver.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/launch.h"
#include "src/accel/launch/rtc.h"
#include "src/base/type.h"
#include "tests/mock/object.h"
#include "tests/mock/rtc.h"

/* More than there are; launch.h knows which those are */
#define OPS 32

struct program {
	char *source;
	char log[256];
	unsigned flags; /* of the object: for which device */
	bool text;
	unsigned only; /* of modules; 0: all */
	Elf64_Ehdr *object;
};

#define EXPORT __attribute__((visibility("default")))

#define F(name, symbol, parameters) rtc_result PREFIX(symbol) parameters;
#ifdef MOCK_HIP
#define PREFIX(symbol) hiprtc##symbol
#define MACHINE OBJECT_AMDGPU
RTC_FUNCTIONS(F)
#undef F
#define F(name, symbol, parameters) rtc_result symbol parameters;
RTC_HIP_RESULTS(F)
#else
#define PREFIX(symbol) nvrtc##symbol
#define MACHINE OBJECT_CUDA
RTC_FUNCTIONS(F)
#undef F
#define F(name, symbol, parameters) rtc_result symbol parameters;
RTC_CUDA_RESULTS(F)

#ifdef MOCK_NEW
static const int archs[] = {100};
#else
static const int archs[] = {75, 80, 90};
#endif
#define ARCHS ((int)(sizeof(archs) / sizeof(*archs)))
#endif
#undef F

const char *PREFIX(GetErrorString)(rtc_result error);
EXPORT const char *PREFIX(GetErrorString)(rtc_result error)
{
	static _Thread_local char buffer[40];

	snprintf(buffer, sizeof(buffer), "mock compiler error %d", error);
	return buffer;
}

EXPORT rtc_result PREFIX(CreateProgram)(rtc_program *out, const char *source,
					const char *name, int nheaders,
					const char *const *headers,
					const char *const *names)
{
	struct program *p;

	if (!source || !name || nheaders || headers || names)
		return RTC_INPUT;
	p = calloc(1, sizeof(*p));
	if (!p)
		return RTC_OUT_OF_MEMORY;
	p->source = strdup(source);
	*out = p;
	return RTC_SUCCESS;
}

EXPORT rtc_result PREFIX(DestroyProgram)(rtc_program *program)
{
	struct program *p = *program;

	free(p->source);
	free(p->object);
	free(p);
	*program = NULL;
	return RTC_SUCCESS;
}

static bool arch_known(unsigned arch)
{
#ifdef MOCK_HIP
	(void)arch;
	return false;
#else
	for (int i = 0; i < ARCHS; i++)
		if (archs[i] == (int)arch)
			return true;
	return false;
#endif
}

static bool option(struct program *p, const char *text)
{
	unsigned arch;

	if (sscanf(text, "-DREDUCE_ONLY=%u", &p->only) == 1)
		return p->only <= LAUNCH_MODULES;
	if (sscanf(text, "--gpu-architecture=sm_%u", &arch) == 1) {
		p->flags = arch;
		return arch_known(arch);
	}
	if (sscanf(text, "--gpu-architecture=compute_%u", &arch) == 1) {
		p->flags = arch;
		p->text = true;
		return arch_known(arch);
	}
	return false;
}

/* Without this one the bits of results would differ. */
#ifdef MOCK_HIP
#define NEEDED "-ffp-contract=off"
#define ALSO "-O3"
#else
#define NEEDED "--fmad=false"
#define ALSO NEEDED
#endif

static rtc_result options(struct program *p, int n, const char *const *list)
{
	bool exact = false;

	p->flags = OBJECT_GFX90A;
	for (int i = 0; i < n; i++) {
		exact |= !strcmp(list[i], NEEDED);
		if (!strcmp(list[i], NEEDED) || !strcmp(list[i], ALSO) ||
		    option(p, list[i]))
			continue;
		snprintf(p->log, sizeof(p->log), "mock: option %s\nmore",
			 list[i]);
		return RTC_OPTION;
	}
	return exact ? RTC_SUCCESS : RTC_COMPILATION;
}

static void add(struct program *p, bool there, const struct launch *l)
{
	char *at = (char *)p->object + p->object->e_shoff;
	int len = (int)strlen(l->kernel) + 4;

	if (!there || (p->only && l->module + 1 != p->only))
		return;
	memcpy(at, l->kernel, (size_t)len - 4);
	memcpy(at + len - 4, ".kd", 4);
	p->object->e_shoff += (unsigned)len;
}

static void add_all(struct program *p)
{
	const void *const src[2] = {NULL, NULL};
	struct launch l;

	for (int i = 0; i < TYPE_LIMIT; i++) {
		dicomm_datatype_t t = (dicomm_datatype_t)i;

		for (int o = 0; o < OPS; o++) {
			dicomm_redop_t op = (dicomm_redop_t)o;

			add(p, launch_reduce(&l, t, op, NULL, NULL, NULL, 1),
			    &l);
			add(p, launch_fold(&l, t, op, NULL, src, 2, 1), &l);
		}
		add(p, launch_scale(&l, t, NULL, NULL, NULL, 0, 1), &l);
		add(p, launch_divide(&l, t, NULL, NULL, 1, 1), &l);
	}
}

EXPORT rtc_result PREFIX(CompileProgram)(rtc_program program, int n,
					 const char *const *list)
{
	const char *state = getenv("MOCK_COMPILER");
	struct program *p = program;
	rtc_result error = options(p, n, list);

	if (error)
		return error;
	if (!strstr(p->source, "REDUCE_ONLY") ||
	    (state && !strcmp(state, "broken"))) {
		snprintf(p->log, sizeof(p->log), "mock: cannot compile\nmore");
		return RTC_COMPILATION;
	}
	p->object = calloc(1, 1 << 16);
	if (!p->object)
		return RTC_OUT_OF_MEMORY;
	memcpy(p->object->e_ident, ELFMAG, SELFMAG);
	p->object->e_machine = MACHINE;
	p->object->e_flags = p->flags;
	p->object->e_shoff = sizeof(*p->object);
	add_all(p);
	return RTC_SUCCESS;
}

EXPORT rtc_result PREFIX(GetProgramLogSize)(rtc_program program, size_t *bytes)
{
	*bytes = strlen(((struct program *)program)->log) + 1;
	return RTC_SUCCESS;
}

EXPORT rtc_result PREFIX(GetProgramLog)(rtc_program program, char *log)
{
	strcpy(log, ((struct program *)program)->log);
	return RTC_SUCCESS;
}

/* ---- what comes of it ---- */

static rtc_result size_of(struct program *p, bool text, size_t *bytes)
{
	if (!p->object || p->text != text)
		return RTC_PROGRAM;
	*bytes = object_bytes(p->object);
	return RTC_SUCCESS;
}

static rtc_result copy_of(struct program *p, bool text, char *to)
{
	size_t bytes;
	rtc_result error = size_of(p, text, &bytes);

	if (!error)
		memcpy(to, p->object, bytes);
	return error;
}

#ifdef MOCK_HIP
EXPORT rtc_result hiprtcGetCodeSize(rtc_program program, size_t *bytes)
{
	return size_of(program, false, bytes);
}

EXPORT rtc_result hiprtcGetCode(rtc_program program, char *code)
{
	return copy_of(program, false, code);
}
#else
EXPORT rtc_result nvrtcGetCUBINSize(rtc_program program, size_t *bytes)
{
	return size_of(program, false, bytes);
}

EXPORT rtc_result nvrtcGetCUBIN(rtc_program program, char *code)
{
	return copy_of(program, false, code);
}

/* In the same format: nobody but the mock driver reads it. */
EXPORT rtc_result nvrtcGetPTXSize(rtc_program program, size_t *bytes)
{
	return size_of(program, true, bytes);
}

EXPORT rtc_result nvrtcGetPTX(rtc_program program, char *code)
{
	return copy_of(program, true, code);
}

EXPORT rtc_result nvrtcGetNumSupportedArchs(int *n)
{
	*n = ARCHS;
	return RTC_SUCCESS;
}

EXPORT rtc_result nvrtcGetSupportedArchs(int *list)
{
	memcpy(list, archs, sizeof(archs));
	return RTC_SUCCESS;
}
#endif
