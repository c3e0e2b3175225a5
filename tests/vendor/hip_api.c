/* SPDX-License-Identifier: BSD-3-Clause */
/* Our declarations of HIP's runtime against its headers. */
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <stdint.h>
#include <stdio.h>

#define HIP_API_TYPES
typedef hipError_t hip_result;
typedef hipDevice_t hip_device;
typedef hipDeviceAttribute_t hip_device_attribute;
typedef hipPointer_attribute hip_pointer_attribute;
typedef hipMemcpyKind hip_copy_kind;
typedef hipStreamCaptureStatus hip_capture;
typedef hipModule_t hip_module;
typedef hipFunction_t hip_function;
typedef hipStream_t hip_stream;
typedef hipEvent_t hip_event;
typedef hipIpcMemHandle_t hip_ipc;
typedef hipHostFn_t hip_host_fn;
typedef hipStreamCallback_t hip_callback;
#include "src/accel/hip/api.h"

/* The same types, not only compatible calls */
#define F(name, symbol, needed, parameters)                                    \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol),       \
						    hip_result(*) parameters), \
		       #symbol);
HIP_FUNCTIONS(F)
#undef F

#define SAME_SIZE(ours, theirs) \
	_Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(int, hipError_t);
SAME_SIZE(int, hipDevice_t);
SAME_SIZE(int, hipDeviceAttribute_t);
SAME_SIZE(int, hipPointer_attribute);
SAME_SIZE(int, hipMemcpyKind);
SAME_SIZE(int, hipStreamCaptureStatus);
SAME_SIZE(char[64], hipIpcMemHandle_t);

#define EQUAL(ours, theirs) \
	_Static_assert((int)(ours) == (int)(theirs), #theirs)
EQUAL(HIP_SUCCESS_, hipSuccess);
EQUAL(HIP_OUT_OF_MEMORY, hipErrorOutOfMemory);
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
EQUAL(HIP_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed);

int main(void)
{
	/* All was said when this was compiled. */
	printf("headers of HIP %d.%d: ours agree\n", HIP_VERSION_MAJOR,
	       HIP_VERSION_MINOR);
	return 0;
}
