/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compilers of the kernels that come with the runtimes of vendors: NVIDIA's
 * NVRTC and AMD's HIPRTC, whose functions differ in little but their names. No
 * header of theirs is needed to build, and the libraries are opened at run
 * time. tests/unit/test_cuda_api.c compares this with nvrtc.h where that is
 * installed.
 */
#ifndef DICOMM_ACCEL_LAUNCH_RTC_H
#define DICOMM_ACCEL_LAUNCH_RTC_H

#include <stdbool.h>
#include <stddef.h>

#include "src/accel/launch/launch.h"

/* The comparison brings the types of a header under these names. */
#ifndef RTC_TYPES
typedef int rtc_result;
typedef void *rtc_program;
#endif

/* F(our name, the end of a symbol, parameters) for each function; a symbol
 * begins with "nvrtc" or "hiprtc". */
#define RTC_FUNCTIONS(F)                                                    \
	F(create, CreateProgram,                                            \
	  (rtc_program *, const char *, const char *, int,                  \
	   const char *const *, const char *const *))                       \
	F(destroy, DestroyProgram, (rtc_program *))                         \
	F(compile, CompileProgram, (rtc_program, int, const char *const *)) \
	F(log_size, GetProgramLogSize, (rtc_program, size_t *))             \
	F(log, GetProgramLog, (rtc_program, char *))

/* What they make of a program, its size and itself, and for which devices, 80
 * for sm_80: F(our name, symbol, parameters). Older ones have not all. */
#define RTC_CUDA_RESULTS(F)                                        \
	F(binary_size, nvrtcGetCUBINSize, (rtc_program, size_t *)) \
	F(binary, nvrtcGetCUBIN, (rtc_program, char *))            \
	F(text_size, nvrtcGetPTXSize, (rtc_program, size_t *))     \
	F(text, nvrtcGetPTX, (rtc_program, char *))                \
	F(archs_size, nvrtcGetNumSupportedArchs, (int *))          \
	F(archs, nvrtcGetSupportedArchs, (int *))
#define RTC_HIP_RESULTS(F)                                         \
	F(object_size, hiprtcGetCodeSize, (rtc_program, size_t *)) \
	F(object, hiprtcGetCode, (rtc_program, char *))

struct rtc {
	char name[32]; /* of the library */
	const char *(*error_text)(rtc_result);
#define F(name, symbol, parameters) rtc_result(*name) parameters;
	RTC_FUNCTIONS(F)
	RTC_CUDA_RESULTS(F)
	RTC_HIP_RESULTS(F)
#undef F
};

/* The newest NVRTC of a version of CUDA that is no newer than `major`; in the
 * next call, an older one: *next is 0 at first. False: there is none; why, only
 * if there was none before. */
bool rtc_open_nvrtc(struct rtc *r, int major, size_t *next, char *why,
		    size_t len);
/* HIPRTC for a runtime, libamdhip64.so.`major`, that is open: it has been part
 * of that. */
bool rtc_open_hiprtc(struct rtc *r, void *runtime, int major, char *why,
		     size_t len);

/*
 * Kernels for a device: a binary or, as `text`, PTX of those of one module,
 * for a device of compute capability `arch` / 10; an object of all of them for
 * the current device of HIP. What comes of it is the caller's to free; NULL:
 * nothing, and why.
 */
void *rtc_cuda(const struct rtc *r, enum launch_module module, int arch,
	       bool text, char *why, size_t len);
void *rtc_hip(const struct rtc *r, char *why, size_t len);
/* The newest device for which NVRTC compiles that is no newer than arch; 0:
 * none, or it does not tell. */
int rtc_newest(const struct rtc *r, int arch);

#endif
