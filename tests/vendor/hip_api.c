/* SPDX-License-Identifier: BSD-3-Clause */
/* Our declarations of HIP's runtime and of HIPRTC, and what their mocks return,
 * against their headers. */
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What these headers lack, as ours is: there is nothing to compare. */
#if HIP_VERSION_MAJOR < 6
hipError_t hipStreamGetDevice(hipStream_t, hipDevice_t *);
#endif
#if HIP_VERSION_MAJOR * 100 + HIP_VERSION_MINOR < 503
typedef struct hipUserObject *hipUserObject_t;
hipError_t hipUserObjectCreate(hipUserObject_t *, void *, hipHostFn_t, unsigned,
			       unsigned);
hipError_t hipUserObjectRelease(hipUserObject_t, unsigned);
hipError_t hipGraphRetainUserObject(hipGraph_t, hipUserObject_t, unsigned,
				    unsigned);
#endif
#if HIP_VERSION_MAJOR < 7
typedef int hipMemRangeHandleType;
enum { hipMemRangeHandleTypeDmaBufFd = 1 };
hipError_t hipMemGetHandleForAddressRange(void *, void *, size_t,
					  hipMemRangeHandleType,
					  unsigned long long);
#endif
#if HIP_VERSION_MAJOR >= 6 && __has_include(<hsa/hsa_ext_amd.h>)
#include <hsa/hsa_ext_amd.h>
#else
typedef int hsa_status_t;
hsa_status_t hsa_amd_portable_export_dmabuf(const void *, size_t, int *,
					    uint64_t *);
#endif

#define HIP_API_TYPES
typedef hipError_t hip_result;
typedef hipDevice_t hip_device;
typedef hipDeviceAttribute_t hip_device_attribute;
typedef hipPointer_attribute hip_pointer_attribute;
typedef hipMemcpyKind hip_copy_kind;
typedef hipStreamCaptureStatus hip_capture;
typedef hipStreamCaptureMode hip_capture_mode;
typedef hipMemRangeHandleType hip_range_type;
typedef hsa_status_t hsa_result;
typedef hipModule_t hip_module;
typedef hipFunction_t hip_function;
typedef hipStream_t hip_stream;
typedef hipEvent_t hip_event;
typedef hipIpcMemHandle_t hip_ipc;
typedef hipHostFn_t hip_host_fn;
typedef hipGraph_t hip_graph;
typedef hipGraphNode_t hip_graph_node;
typedef hipUserObject_t hip_user_object;
typedef hipHostNodeParams hip_host_node;
typedef hipStreamCallback_t hip_callback;
#include "src/accel/hip/api.h"
#include "tests/mock/driver.h"
#include "tests/mock/rtc.h"

/* The same types, not only compatible calls */
#define SAME(symbol, result, parameters)                                   \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol),   \
						    result(*) parameters), \
		       #symbol);
#define F(name, symbol, needed, parameters) SAME(symbol, hip_result, parameters)
HIP_FUNCTIONS(F)
#undef F
#define F(name, symbol, result, parameters) SAME(symbol, result, parameters)
HIP_MORE_FUNCTIONS(F)
#undef F

#if __has_include(<hip/hiprtc.h>)
/* HIP declares less of its text constant than CUDA does; calls are the same. */
#define const
#include <hip/hiprtc.h>
#define RTC_TYPES
typedef hiprtcResult rtc_result;
typedef hiprtcProgram rtc_program;
#include "src/accel/launch/rtc.h"
#define F(name, symbol, parameters) SAME(hiprtc##symbol, rtc_result, parameters)
RTC_FUNCTIONS(F)
#undef F
#define F(name, symbol, parameters) SAME(symbol, rtc_result, parameters)
RTC_HIP_RESULTS(F)
#undef F
#undef const
#endif

#define SAME_SIZE(ours, theirs) \
	_Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(int, hipError_t);
SAME_SIZE(int, hipDevice_t);
SAME_SIZE(int, hipDeviceAttribute_t);
SAME_SIZE(int, hipPointer_attribute);
SAME_SIZE(int, hipMemcpyKind);
SAME_SIZE(int, hipStreamCaptureStatus);
SAME_SIZE(int, hipStreamCaptureMode);
SAME_SIZE(int, hipMemRangeHandleType);
SAME_SIZE(int, hsa_status_t);
SAME_SIZE(char[64], hipIpcMemHandle_t);

#define EQUAL(ours, theirs) \
	_Static_assert((int)(ours) == (int)(theirs), #theirs)
EQUAL(HIP_SUCCESS_, hipSuccess);
EQUAL(HIP_OUT_OF_MEMORY, hipErrorOutOfMemory);
EQUAL(HIP_NO_DEVICE, hipErrorNoDevice);
EQUAL(HIP_INVALID_DEVICE, hipErrorInvalidDevice);
EQUAL(HIP_INVALID_IMAGE, hipErrorInvalidImage);
EQUAL(HIP_NO_BINARY_FOR_GPU, hipErrorNoBinaryForGpu);
EQUAL(HIP_OBJECT_INIT_FAILED, hipErrorSharedObjectInitFailed);
EQUAL(HIP_NOT_READY, hipErrorNotReady);
EQUAL(HIP_NOT_SUPPORTED, hipErrorNotSupported);
EQUAL(HIP_CAPTURE_IMPLICIT, hipErrorStreamCaptureImplicit);
EQUAL(HIP_PEER_ACCESS_ALREADY_ENABLED, hipErrorPeerAccessAlreadyEnabled);
EQUAL(HIP_MULTIPROCESSOR_COUNT, hipDeviceAttributeMultiprocessorCount);
EQUAL(HIP_POINTER_MEMORY_TYPE, HIP_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(HIP_POINTER_BUFFER_ID, HIP_POINTER_ATTRIBUTE_BUFFER_ID);
EQUAL(HIP_POINTER_IS_MANAGED, HIP_POINTER_ATTRIBUTE_IS_MANAGED);
EQUAL(HIP_POINTER_DEVICE_ORDINAL, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(HIP_VERSION_MAJOR < 6 ? HIP_MEMORY_DEVICE_5 : HIP_MEMORY_DEVICE,
      hipMemoryTypeDevice);
EQUAL(HIP_STREAM_NON_BLOCKING, hipStreamNonBlocking);
EQUAL(HIP_EVENT_DISABLE_TIMING, hipEventDisableTiming);
EQUAL(HIP_EVENT_RELEASE_TO_SYSTEM, hipEventReleaseToSystem);
EQUAL(HIP_WAIT_GTE, hipStreamWaitValueGte);
EQUAL(HIP_HOST_PORTABLE, hipHostMallocPortable);
EQUAL(HIP_HOST_PORTABLE, hipHostRegisterPortable);
EQUAL(HIP_HOST_MAPPED, hipHostMallocMapped);
EQUAL(HIP_HOST_MAPPED, hipHostRegisterMapped);
EQUAL(HIP_HOST_COHERENT, hipHostMallocCoherent);
EQUAL(HIP_SIGNAL_MEMORY, hipMallocSignalMemory);
EQUAL(HIP_COPY_DEFAULT, hipMemcpyDefault);
EQUAL(HIP_CAPTURE_NONE, hipStreamCaptureStatusNone);
EQUAL(HIP_CAPTURE_ACTIVE, hipStreamCaptureStatusActive);
EQUAL(HIP_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed);
EQUAL(HIP_RANGE_DMA_BUF_FD, hipMemRangeHandleTypeDmaBufFd);

/* Of the mock. HIP has nothing like DRIVER_NOT_PERMITTED. */
EQUAL(DRIVER_RELAXED, hipStreamCaptureModeRelaxed);
EQUAL(DRIVER_SUCCESS, hipSuccess);
EQUAL(DRIVER_INVALID_VALUE, hipErrorInvalidValue);
EQUAL(DRIVER_OUT_OF_MEMORY, hipErrorOutOfMemory);
EQUAL(DRIVER_NOT_STARTED, hipErrorNotInitialized);
EQUAL(DRIVER_NO_DEVICE, hipErrorNoDevice);
EQUAL(DRIVER_INVALID_DEVICE, hipErrorInvalidDevice);
EQUAL(DRIVER_INVALID_IMAGE, hipErrorInvalidImage);
EQUAL(DRIVER_INVALID_CONTEXT, hipErrorInvalidContext);
EQUAL(DRIVER_INVALID_HANDLE, hipErrorInvalidHandle);
EQUAL(DRIVER_NOT_FOUND, hipErrorNotFound);
EQUAL(DRIVER_NOT_READY, hipErrorNotReady);
EQUAL(DRIVER_ILLEGAL_ADDRESS, hipErrorIllegalAddress);
EQUAL(DRIVER_PEER_ACCESS_ALREADY_ENABLED, hipErrorPeerAccessAlreadyEnabled);
EQUAL(DRIVER_ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered);
EQUAL(DRIVER_NOT_REGISTERED, hipErrorHostMemoryNotRegistered);
EQUAL(DRIVER_NOT_SUPPORTED, hipErrorNotSupported);
EQUAL(DRIVER_SPOILS_CAPTURE, hipErrorStreamCaptureUnsupported);
EQUAL(DRIVER_CAPTURE_IMPLICIT, hipErrorStreamCaptureImplicit);
EQUAL(DRIVER_WOULD_HANG, hipErrorUnknown);
#if __has_include(<hip/hiprtc.h>)
EQUAL(RTC_SUCCESS, HIPRTC_SUCCESS);
EQUAL(RTC_OUT_OF_MEMORY, HIPRTC_ERROR_OUT_OF_MEMORY);
EQUAL(RTC_INPUT, HIPRTC_ERROR_INVALID_INPUT);
EQUAL(RTC_PROGRAM, HIPRTC_ERROR_INVALID_PROGRAM);
EQUAL(RTC_OPTION, HIPRTC_ERROR_INVALID_OPTION);
EQUAL(RTC_COMPILATION, HIPRTC_ERROR_COMPILATION);
#endif

int main(void)
{
	/* All was said when this was compiled. */
	printf("HIP %d.%d", HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
#if __has_include(<hip/hiprtc.h>)
	printf(", HIPRTC");
#endif
#if HIP_VERSION_MAJOR >= 6 && __has_include(<hsa/hsa_ext_amd.h>)
	printf(", HSA");
#endif
	printf(": ours agree\n");
	return 0;
}
