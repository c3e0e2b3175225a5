/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of OpenCL that the library uses. The build needs no header of
 * OpenCL; the library is opened at run time. tests/unit/test_opencl_api.c
 * compares these declarations with the headers of Khronos where they are
 * installed.
 */
#ifndef DICOMM_ACCEL_OPENCL_API_H
#define DICOMM_ACCEL_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *opencl_platform;
typedef struct _cl_device_id *opencl_device;
typedef struct _cl_context *opencl_context;
typedef struct _cl_command_queue *opencl_queue;
typedef struct _cl_program *opencl_program;
typedef struct _cl_kernel *opencl_kernel;
typedef struct _cl_event *opencl_event;

enum {
	OPENCL_SUCCESS = 0,
	OPENCL_DEVICE_NOT_FOUND = -1,
	OPENCL_OUT_OF_RESOURCES = -5,
	OPENCL_OUT_OF_HOST_MEMORY = -6,
	OPENCL_INVALID_KERNEL_NAME = -46,
	OPENCL_PLATFORM_NOT_FOUND = -1001, /* cl_khr_icd */

	OPENCL_PLATFORM_VERSION = 0x0901,
	OPENCL_PLATFORM_NAME = 0x0902,
	OPENCL_PLATFORM_VENDOR = 0x0903,
	OPENCL_DEVICE_TYPE = 0x1000,
	OPENCL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
	OPENCL_DEVICE_SINGLE_FP_CONFIG = 0x101b,
	OPENCL_DEVICE_COMPILER_AVAILABLE = 0x1028,
	OPENCL_DEVICE_NAME = 0x102b,
	OPENCL_DEVICE_VENDOR = 0x102c,
	OPENCL_DRIVER_VERSION = 0x102d,
	OPENCL_DEVICE_VERSION = 0x102f,
	OPENCL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
	OPENCL_DEVICE_SVM_CAPABILITIES = 0x1053,
	OPENCL_QUEUE_CONTEXT = 0x1090,
	OPENCL_QUEUE_DEVICE = 0x1091,
	OPENCL_QUEUE_PROPERTIES = 0x1093,
	OPENCL_CONTEXT_PLATFORM = 0x1084,
	OPENCL_PROGRAM_NUM_DEVICES = 0x1162,
	OPENCL_PROGRAM_BINARY_SIZES = 0x1165,
	OPENCL_PROGRAM_BINARIES = 0x1166,
	OPENCL_PROGRAM_BUILD_LOG = 0x1183,
	OPENCL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3,
	OPENCL_COMPLETE = 0,

	/* Bits of masks */
	OPENCL_DEVICE_TYPE_CPU = 1 << 1,
	OPENCL_FP_DENORM = 1 << 0,
	OPENCL_FP_INF_NAN = 1 << 1,
	OPENCL_FP_ROUND_TO_NEAREST = 1 << 2,
	OPENCL_SVM_FINE_GRAIN_SYSTEM = 1 << 2,
	OPENCL_QUEUE_OUT_OF_ORDER = 1 << 0,
};

#define OPENCL_DEVICE_TYPE_ALL 0xffffffffu

/* F(name, result, parameters) for each function. All are part of OpenCL 2.0. */
#define OPENCL_FUNCTIONS(F)                                                    \
	F(clGetPlatformIDs, int32_t,                                           \
	  (uint32_t, opencl_platform *, uint32_t *))                           \
	F(clGetPlatformInfo, int32_t,                                          \
	  (opencl_platform, uint32_t, size_t, void *, size_t *))               \
	F(clGetDeviceIDs, int32_t,                                             \
	  (opencl_platform, uint64_t, uint32_t, opencl_device *, uint32_t *))  \
	F(clGetDeviceInfo, int32_t,                                            \
	  (opencl_device, uint32_t, size_t, void *, size_t *))                 \
	F(clCreateContext, opencl_context,                                     \
	  (const intptr_t *, uint32_t, const opencl_device *,                  \
	   void (*)(const char *, const void *, size_t, void *), void *,       \
	   int32_t *))                                                         \
	F(clRetainContext, int32_t, (opencl_context))                          \
	F(clReleaseContext, int32_t, (opencl_context))                         \
	F(clCreateCommandQueueWithProperties, opencl_queue,                    \
	  (opencl_context, opencl_device, const uint64_t *, int32_t *))        \
	F(clRetainCommandQueue, int32_t, (opencl_queue))                       \
	F(clReleaseCommandQueue, int32_t, (opencl_queue))                      \
	F(clGetCommandQueueInfo, int32_t,                                      \
	  (opencl_queue, uint32_t, size_t, void *, size_t *))                  \
	F(clCreateProgramWithSource, opencl_program,                           \
	  (opencl_context, uint32_t, const char **, const size_t *,            \
	   int32_t *))                                                         \
	F(clCreateProgramWithBinary, opencl_program,                           \
	  (opencl_context, uint32_t, const opencl_device *, const size_t *,    \
	   const unsigned char **, int32_t *, int32_t *))                      \
	F(clBuildProgram, int32_t,                                             \
	  (opencl_program, uint32_t, const opencl_device *, const char *,      \
	   void (*)(opencl_program, void *), void *))                          \
	F(clGetProgramInfo, int32_t,                                           \
	  (opencl_program, uint32_t, size_t, void *, size_t *))                \
	F(clGetProgramBuildInfo, int32_t,                                      \
	  (opencl_program, opencl_device, uint32_t, size_t, void *, size_t *)) \
	F(clReleaseProgram, int32_t, (opencl_program))                         \
	F(clCreateKernel, opencl_kernel,                                       \
	  (opencl_program, const char *, int32_t *))                           \
	F(clReleaseKernel, int32_t, (opencl_kernel))                           \
	F(clSetKernelArg, int32_t,                                             \
	  (opencl_kernel, uint32_t, size_t, const void *))                     \
	F(clSetKernelArgSVMPointer, int32_t,                                   \
	  (opencl_kernel, uint32_t, const void *))                             \
	F(clEnqueueNDRangeKernel, int32_t,                                     \
	  (opencl_queue, opencl_kernel, uint32_t, const size_t *,              \
	   const size_t *, const size_t *, uint32_t, const opencl_event *,     \
	   opencl_event *))                                                    \
	F(clEnqueueSVMMemcpy, int32_t,                                         \
	  (opencl_queue, uint32_t, void *, const void *, size_t, uint32_t,     \
	   const opencl_event *, opencl_event *))                              \
	F(clEnqueueMarkerWithWaitList, int32_t,                                \
	  (opencl_queue, uint32_t, const opencl_event *, opencl_event *))      \
	F(clEnqueueBarrierWithWaitList, int32_t,                               \
	  (opencl_queue, uint32_t, const opencl_event *, opencl_event *))      \
	F(clCreateUserEvent, opencl_event, (opencl_context, int32_t *))        \
	F(clSetUserEventStatus, int32_t, (opencl_event, int32_t))              \
	F(clGetEventInfo, int32_t,                                             \
	  (opencl_event, uint32_t, size_t, void *, size_t *))                  \
	F(clReleaseEvent, int32_t, (opencl_event))                             \
	F(clFlush, int32_t, (opencl_queue))

struct opencl_api {
#define F(name, result, parameters) result(*name) parameters;
	OPENCL_FUNCTIONS(F)
#undef F
};

#endif
