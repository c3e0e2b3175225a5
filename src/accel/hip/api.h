/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of HIP's runtime, of ROCm 5 and later, that the library uses. The
 * build needs no header of HIP; the library is opened at run time. Structures
 * and attribute numbers that have changed since ROCm 5 are not used.
 * tests/vendor/headers.sh compares these declarations with the headers.
 */
#ifndef DICOMM_ACCEL_HIP_API_H
#define DICOMM_ACCEL_HIP_API_H

#include <stddef.h>
#include <stdint.h>

#define HIP_EVENT_RELEASE_TO_SYSTEM 0x80000000u

/* The comparing test defines these types from the headers. */
#ifndef HIP_API_TYPES
typedef int hip_result;
typedef int hip_device;
typedef int hip_device_attribute;
typedef int hip_pointer_attribute;
typedef int hip_copy_kind;
typedef int hip_capture;
typedef int hip_capture_mode;
typedef int hip_range_type;
typedef int hsa_result;
typedef struct ihipModule_t *hip_module;
typedef struct ihipModuleSymbol_t *hip_function;
typedef struct ihipStream_t *hip_stream;
typedef struct ihipEvent_t *hip_event;
typedef struct hip_ipc {
	char reserved[64];
} hip_ipc;
typedef void (*hip_host_fn)(void *);
typedef void (*hip_callback)(hip_stream, hip_result, void *);
typedef struct ihipGraph *hip_graph;
typedef struct hipGraphNode *hip_graph_node;
typedef struct hipUserObject *hip_user_object;
typedef struct hip_host_node {
	hip_host_fn fn;
	void *userData;
} hip_host_node;
#endif

enum {
	HIP_SUCCESS_ = 0,
	HIP_OUT_OF_MEMORY = 2,
	HIP_NO_DEVICE = 100,
	HIP_INVALID_DEVICE = 101,
	HIP_INVALID_IMAGE = 200,
	HIP_NO_BINARY_FOR_GPU = 209,
	HIP_OBJECT_INIT_FAILED = 303,
	HIP_NOT_READY = 600,
	HIP_PEER_ACCESS_ALREADY_ENABLED = 704,
	HIP_NOT_SUPPORTED = 801,
	HIP_CAPTURE_IMPLICIT = 906,

	HIP_MULTIPROCESSOR_COUNT = 63,

	HIP_POINTER_MEMORY_TYPE = 2,
	HIP_POINTER_BUFFER_ID = 7,
	HIP_POINTER_IS_MANAGED = 8,
	HIP_POINTER_DEVICE_ORDINAL = 9,
	HIP_MEMORY_DEVICE_5 = 1, /* in ROCm 5 */
	HIP_MEMORY_DEVICE = 2,   /* from ROCm 6 on */

	HIP_STREAM_NON_BLOCKING = 1,
	HIP_EVENT_DISABLE_TIMING = 2,
	HIP_WAIT_GTE = 0,
	HIP_HOST_PORTABLE = 1,
	HIP_HOST_MAPPED = 2,
	HIP_HOST_COHERENT = 0x40000000,
	HIP_SIGNAL_MEMORY = 2,
	HIP_COPY_DEFAULT = 4,
	HIP_RANGE_DMA_BUF_FD = 1,
	HIP_CAPTURE_NONE = 0,
	HIP_CAPTURE_ACTIVE = 1,
	HIP_CAPTURE_RELAXED = 2,
};

/* F(our name, symbol, is it needed, parameters) for each function. Functions
 * that are not needed are missing in some versions of ROCm 5. */
#define HIP_FUNCTIONS(F)                                                       \
	F(init, hipInit, 1, (unsigned))                                        \
	F(version, hipRuntimeGetVersion, 1, (int *))                           \
	F(last_error, hipGetLastError, 1, (void))                              \
	F(peek_error, hipPeekAtLastError, 1, (void))                           \
	F(device_count, hipGetDeviceCount, 1, (int *))                         \
	F(device_name, hipDeviceGetName, 1, (char *, int, hip_device))         \
	F(device_pci, hipDeviceGetPCIBusId, 1, (char *, int, int))             \
	F(device_attribute, hipDeviceGetAttribute, 1,                          \
	  (int *, hip_device_attribute, int))                                  \
	F(device_set, hipSetDevice, 1, (int))                                  \
	F(device_current, hipGetDevice, 1, (int *))                            \
	F(priorities, hipDeviceGetStreamPriorityRange, 1, (int *, int *))      \
	F(alloc, hipMalloc, 1, (void **, size_t))                              \
	F(free, hipFree, 1, (void *))                                          \
	F(range, hipMemGetAddressRange, 1, (void **, size_t *, void *))        \
	F(pointer_attribute, hipPointerGetAttribute, 1,                        \
	  (void *, hip_pointer_attribute, void *))                             \
	F(host_alloc, hipHostMalloc, 1, (void **, size_t, unsigned))           \
	F(signal_alloc, hipExtMallocWithFlags, 1, (void **, size_t, unsigned)) \
	F(host_register, hipHostRegister, 1, (void *, size_t, unsigned))       \
	F(host_unregister, hipHostUnregister, 1, (void *))                     \
	F(host_pointer, hipHostGetDevicePointer, 1,                            \
	  (void **, void *, unsigned))                                         \
	F(reaches, hipDeviceCanAccessPeer, 1, (int *, hip_device, hip_device)) \
	F(reach, hipDeviceEnablePeerAccess, 1, (hip_device, unsigned))         \
	F(ipc_get, hipIpcGetMemHandle, 1, (hip_ipc *, void *))                 \
	F(ipc_open, hipIpcOpenMemHandle, 1, (void **, hip_ipc, unsigned))      \
	F(ipc_close, hipIpcCloseMemHandle, 1, (void *))                        \
	F(copy, hipMemcpyAsync, 1,                                             \
	  (void *, const void *, size_t, hip_copy_kind, hip_stream))           \
	F(stream_create, hipStreamCreateWithPriority, 1,                       \
	  (hip_stream *, unsigned, int))                                       \
	F(stream_destroy, hipStreamDestroy, 1, (hip_stream))                   \
	F(capturing, hipStreamIsCapturing, 1, (hip_stream, hip_capture *))     \
	F(callback, hipStreamAddCallback, 1,                                   \
	  (hip_stream, hip_callback, void *, unsigned))                        \
	F(event_create, hipEventCreateWithFlags, 1, (hip_event *, unsigned))   \
	F(event_destroy, hipEventDestroy, 1, (hip_event))                      \
	F(event_record, hipEventRecord, 1, (hip_event, hip_stream))            \
	F(event_query, hipEventQuery, 1, (hip_event))                          \
	F(wait_event, hipStreamWaitEvent, 1,                                   \
	  (hip_stream, hip_event, unsigned))                                   \
	F(wait_value, hipStreamWaitValue64, 1,                                 \
	  (hip_stream, void *, uint64_t, unsigned, uint64_t))                  \
	F(module_load, hipModuleLoadData, 1, (hip_module *, const void *))     \
	F(module_function, hipModuleGetFunction, 1,                            \
	  (hip_function *, hip_module, const char *))                          \
	F(launch, hipModuleLaunchKernel, 1,                                    \
	  (hip_function, unsigned, unsigned, unsigned, unsigned, unsigned,     \
	   unsigned, unsigned, hip_stream, void **, void **))

/* Functions that have another result, or are missing in some versions: F(our
 * name, symbol, result, parameters). None is needed. The last one belongs to
 * ROCm's HSA runtime, from 5.6 on; dlsym() finds it through HIP if HIP is
 * linked to HSA. */
#define HIP_MORE_FUNCTIONS(F)                                             \
	F(error_string, hipGetErrorString, const char *, (hip_result))    \
	F(stream_device_5, hipGetStreamDeviceId, int, (hip_stream))       \
	F(stream_device, hipStreamGetDevice, hip_result,                  \
	  (hip_stream, hip_device *))                                     \
	F(capture_mode, hipThreadExchangeStreamCaptureMode, hip_result,   \
	  (hip_capture_mode *))                                           \
	F(capture_info, hipStreamGetCaptureInfo_v2, hip_result,           \
	  (hip_stream, hip_capture *, unsigned long long *, hip_graph *,  \
	   const hip_graph_node **, size_t *))                            \
	F(capture_follow, hipStreamUpdateCaptureDependencies, hip_result, \
	  (hip_stream, hip_graph_node *, size_t, unsigned))               \
	F(graph_host_node, hipGraphAddHostNode, hip_result,               \
	  (hip_graph_node *, hip_graph, const hip_graph_node *, size_t,   \
	   const hip_host_node *))                                        \
	F(graph_keep, hipGraphRetainUserObject, hip_result,               \
	  (hip_graph, hip_user_object, unsigned, unsigned))               \
	F(object_create, hipUserObjectCreate, hip_result,                 \
	  (hip_user_object *, void *, hip_host_fn, unsigned, unsigned))   \
	F(object_release, hipUserObjectRelease, hip_result,               \
	  (hip_user_object, unsigned))                                    \
	F(host_function, hipLaunchHostFunc, hip_result,                   \
	  (hip_stream, hip_host_fn, void *))                              \
	F(range_handle, hipMemGetHandleForAddressRange, hip_result,       \
	  (void *, void *, size_t, hip_range_type, unsigned long long))   \
	F(export_dmabuf, hsa_amd_portable_export_dmabuf, hsa_result,      \
	  (const void *, size_t, int *, uint64_t *))

#endif
