/* SPDX-License-Identifier: BSD-3-Clause */
/* Our declarations of the CUDA driver and of NVRTC against their headers. */
#include <cuda.h>
#include <nvrtc.h>
#include <stdint.h>
#include <stdio.h>

#define CUDA_API_TYPES
typedef CUresult cuda_result;
typedef CUdevice cuda_device;
typedef CUdevice_attribute cuda_device_attribute;
typedef CUpointer_attribute cuda_pointer_attribute;
typedef CUmemRangeHandleType cuda_range_type;
typedef CUmoduleLoadingMode cuda_loading_mode;
typedef CUstreamCaptureStatus cuda_capture;
typedef CUstreamCaptureMode cuda_capture_mode;
typedef CUdeviceptr cuda_pointer;
typedef CUcontext cuda_context;
typedef CUmodule cuda_module;
typedef CUfunction cuda_function;
typedef CUstream cuda_stream;
typedef CUevent cuda_event;
typedef CUipcMemHandle cuda_ipc;
typedef CUhostFn cuda_host_fn;
#define RTC_TYPES
typedef nvrtcResult rtc_result;
typedef nvrtcProgram rtc_program;
#include "src/accel/cuda/api.h"
#include "src/accel/launch/rtc.h"

/* The same types, not only compatible calls. The header calls several
 * functions by other names than the library. */
#define F(name, symbol, needed, parameters)                              \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), \
						    cuda_result(*)       \
							    parameters), \
		       #symbol);
CUDA_FUNCTIONS(F)
#undef F

#define SAME(symbol, parameters)                                               \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol),       \
						    rtc_result(*) parameters), \
		       #symbol);
#define F(name, symbol, parameters) SAME(nvrtc##symbol, parameters)
RTC_FUNCTIONS(F)
#undef F
#define F(name, symbol, parameters) SAME(symbol, parameters)
RTC_CUDA_RESULTS(F)
#undef F

#define SAME_SIZE(ours, theirs) \
	_Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(int, CUresult);
SAME_SIZE(int, CUdevice);
SAME_SIZE(int, CUdevice_attribute);
SAME_SIZE(int, CUpointer_attribute);
SAME_SIZE(int, CUmemRangeHandleType);
SAME_SIZE(int, CUstreamCaptureStatus);
SAME_SIZE(int, CUstreamCaptureMode);
SAME_SIZE(unsigned long long, CUdeviceptr);
SAME_SIZE(char[64], CUipcMemHandle);
SAME_SIZE(int, nvrtcResult);
SAME_SIZE(void *, nvrtcProgram);

#define EQUAL(ours, theirs) \
	_Static_assert((int)(ours) == (int)(theirs), #theirs)
EQUAL(CUDA_SUCCESS_, CUDA_SUCCESS);
EQUAL(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
EQUAL(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
EQUAL(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
EQUAL(CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
EQUAL(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(CUDA_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
EQUAL(CUDA_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
EQUAL(CUDA_NO_PTX_COMPILER, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
EQUAL(CUDA_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
EQUAL(CUDA_JIT_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED);
EQUAL(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
EQUAL(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
EQUAL(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
EQUAL(CUDA_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
EQUAL(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
EQUAL(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
EQUAL(CUDA_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
EQUAL(CUDA_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
EQUAL(CUDA_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
EQUAL(CUDA_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
EQUAL(CUDA_MEM_OPS_V1, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1);
EQUAL(CUDA_RDMA_WRITES_ORDERING,
      CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
EQUAL(CUDA_RDMA_ORDERED_FOR_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
EQUAL(CUDA_LOADING_LAZY, CU_MODULE_LAZY_LOADING);
EQUAL(CUDA_RDMA_ORDERED_FOR_ALL,
      CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES);
EQUAL(CUDA_DMA_BUF_SUPPORTED, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
EQUAL(CUDA_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
EQUAL(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
EQUAL(CUDA_POINTER_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
EQUAL(CUDA_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
EQUAL(CUDA_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
EQUAL(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
EQUAL(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
EQUAL(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
EQUAL(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
EQUAL(CUDA_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ);
EQUAL(CUDA_WRITE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT);
EQUAL(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
EQUAL(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
EQUAL(CUDA_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
EQUAL(CUDA_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
EQUAL(CUDA_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
EQUAL(CUDA_HOST_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
EQUAL(CUDA_RANGE_DMA_BUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
EQUAL(CUDA_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
EQUAL(CUDA_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);

int main(void)
{
	/* All was said when this was compiled. */
	printf("cuda.h of CUDA %d.%d: ours agree\n", CUDA_VERSION / 1000,
	       CUDA_VERSION % 1000 / 10);
	return 0;
}
