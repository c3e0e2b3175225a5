/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The compilers that come with the vendors' runtimes: NVIDIA's NVRTC and AMD's
 * HIPRTC. They compile reduce.cl where no image in the library fits a device.
 * Their functions differ in little but their names. The build needs none of
 * their headers; the libraries are opened at run time.
 * tests/vendor/headers.sh compares these declarations with nvrtc.h and
 * hiprtc.h.
 */
#ifndef DICOMM_ACCEL_LAUNCH_RTC_H
#define DICOMM_ACCEL_LAUNCH_RTC_H

#include <stdbool.h>
#include <stddef.h>

#include "src/accel/launch/launch.h"

/* The comparing test defines these types from the vendor's header. */
#ifndef RTC_TYPES
typedef int rtc_result;
typedef void *rtc_program;
#endif

/* F(our name, end of the symbol, parameters) for each function. A symbol begins
 * with "nvrtc" or "hiprtc". */
#define RTC_FUNCTIONS(F)                                                    \
	F(create, CreateProgram,                                            \
	  (rtc_program *, const char *, const char *, int,                  \
	   const char *const *, const char *const *))                       \
	F(destroy, DestroyProgram, (rtc_program *))                         \
	F(compile, CompileProgram, (rtc_program, int, const char *const *)) \
	F(log_size, GetProgramLogSize, (rtc_program, size_t *))             \
	F(log, GetProgramLog, (rtc_program, char *))

/* Functions that fetch the result of a compilation and its size, or the
 * architectures (80 for sm_80) that the compiler knows: F(our name, symbol,
 * parameters). Older compilers lack some of them. */
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
	char name[32];  /* soname of the library */
	char build[64]; /* build id of its file; "" if unknown */
	const char *(*error_text)(rtc_result);
#define F(name, symbol, parameters) rtc_result(*name) parameters;
	RTC_FUNCTIONS(F)
	RTC_CUDA_RESULTS(F)
	RTC_HIP_RESULTS(F)
#undef F
};

/* Open the newest NVRTC of CUDA `major` or older. The caller sets *next to 0
 * before the first call; each further call opens an older one. Returns false if
 * there is no more. why is written only if none was opened. */
bool rtc_open_nvrtc(struct rtc *r, int major, size_t *next, char *why,
		    size_t len);
/* Open HIPRTC for the open runtime libamdhip64.so.`major`. Without a libhiprtc
 * of that version, HIPRTC is looked for in the runtime itself. */
bool rtc_open_hiprtc(struct rtc *r, void *runtime, int major, char *why,
		     size_t len);

/*
 * Compile kernels for a device. rtc_cuda() compiles one module for compute
 * capability arch / 10, to PTX if `text`, otherwise to a binary. rtc_hip()
 * compiles all modules to one object for HIP's current device. Each returns
 * memory that the caller frees, or NULL with the reason in why. The results of
 * rtc_cuda() are kept on disk (binary_cache.h).
 */
void *rtc_cuda(const struct rtc *r, enum launch_module module, int arch,
	       bool text, char *why, size_t len);
void *rtc_hip(const struct rtc *r, char *why, size_t len);
/* Returns the newest architecture, at most arch, that NVRTC compiles for. 0 if
 * there is none or NVRTC cannot tell. */
int rtc_newest(const struct rtc *r, int arch);

#endif
