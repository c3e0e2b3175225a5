/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of the CUDA driver that the library uses. The build needs no header
 * of CUDA; the driver is opened at run time. tests/vendor/headers.sh compares
 * these declarations with cuda.h.
 */
#ifndef DICOMM_ACCEL_CUDA_API_H
#define DICOMM_ACCEL_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* The comparing test defines these types from cuda.h. */
#ifndef CUDA_API_TYPES
typedef int cuda_result;
typedef int cuda_device;
typedef int cuda_device_attribute;
typedef int cuda_pointer_attribute;
typedef int cuda_range_type;
typedef int cuda_loading_mode;
typedef int cuda_capture;
typedef int cuda_capture_mode;
typedef int cuda_mem_op_type;
typedef unsigned long long cuda_pointer;
typedef struct CUctx_st *cuda_context;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct cuda_ipc {
	char reserved[64];
} cuda_ipc;
typedef void (*cuda_host_fn)(void *);
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphNode_st *cuda_graph_node;
typedef struct CUuserObject_st *cuda_user_object;
/* A wait for a word, or a write to one: these have the same members. */
typedef union cuda_mem_op {
	cuda_mem_op_type operation;
	struct {
		cuda_mem_op_type operation;
		cuda_pointer address;
		union {
			uint32_t value;
			uint64_t value64;
		};
		unsigned flags;
		cuda_pointer alias;
	} waitValue, writeValue;
	uint64_t pad[6];
} cuda_mem_op;
typedef struct cuda_mem_node {
	cuda_context ctx;
	unsigned count;
	cuda_mem_op *paramArray;
	unsigned flags;
} cuda_mem_node;
typedef struct cuda_host_node {
	cuda_host_fn fn;
	void *userData;
} cuda_host_node;
#endif

enum {
	CUDA_SUCCESS_ = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_IMAGE = 200,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_NO_BINARY_FOR_GPU = 209,
	CUDA_INVALID_PTX = 218,
	CUDA_NO_PTX_COMPILER = 221,
	CUDA_UNSUPPORTED_PTX = 222,
	CUDA_JIT_DISABLED = 223,
	CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500,
	CUDA_NOT_READY = 600,
	CUDA_ILLEGAL_ADDRESS = 700,
	CUDA_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_CAPTURE_IMPLICIT = 906,

	CUDA_MULTIPROCESSOR_COUNT = 16,
	CUDA_COMPUTE_MAJOR = 75,
	CUDA_COMPUTE_MINOR = 76,
	CUDA_MEM_OPS_V1 = 92,
	CUDA_RDMA_WRITES_ORDERING = 118,
	CUDA_DMA_BUF_SUPPORTED = 124,

	CUDA_POINTER_CONTEXT = 1,
	CUDA_POINTER_MEMORY_TYPE = 2,
	CUDA_POINTER_SYNC_MEMOPS = 6,
	CUDA_POINTER_BUFFER_ID = 7,
	CUDA_POINTER_IS_MANAGED = 8,
	CUDA_POINTER_DEVICE_ORDINAL = 9,
	CUDA_MEMORY_DEVICE = 2,

	CUDA_RDMA_ORDERED_FOR_OWNER = 100,
	CUDA_RDMA_ORDERED_FOR_ALL = 200,

	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_WAIT_GEQ = 0,
	CUDA_WRITE_DEFAULT = 0,
	CUDA_STREAM_LEGACY = 1, /* handle of the legacy default stream */
	CUDA_IPC_LAZY_PEER_ACCESS = 1,
	CUDA_HOST_PORTABLE = 1,
	CUDA_HOST_DEVICEMAP = 2,
	CUDA_HOST_READ_ONLY = 8,
	CUDA_RANGE_DMA_BUF_FD = 1,
	CUDA_LOADING_LAZY = 2,
	CUDA_CAPTURE_NONE = 0,
	CUDA_CAPTURE_ACTIVE = 1,
	CUDA_CAPTURE_RELAXED = 2,
	CUDA_MEM_OP_WAIT_VALUE = 1,
	CUDA_MEM_OP_WRITE_VALUE = 2,
};

/* F(our name, symbol, is it needed, parameters) for each function. Functions
 * that are not needed came after CUDA 10.0. */
#define CUDA_FUNCTIONS(F)                                                     \
	F(init, cuInit, 1, (unsigned))                                        \
	F(version, cuDriverGetVersion, 1, (int *))                            \
	F(error_string, cuGetErrorString, 1, (cuda_result, const char **))    \
	F(device_count, cuDeviceGetCount, 1, (int *))                         \
	F(device_get, cuDeviceGet, 1, (cuda_device *, int))                   \
	F(device_name, cuDeviceGetName, 1, (char *, int, cuda_device))        \
	F(device_pci, cuDeviceGetPCIBusId, 1, (char *, int, cuda_device))     \
	F(device_attribute, cuDeviceGetAttribute, 1,                          \
	  (int *, cuda_device_attribute, cuda_device))                        \
	F(context_retain, cuDevicePrimaryCtxRetain, 1,                        \
	  (cuda_context *, cuda_device))                                      \
	F(context_push, cuCtxPushCurrent_v2, 1, (cuda_context))               \
	F(context_pop, cuCtxPopCurrent_v2, 1, (cuda_context *))               \
	F(priorities, cuCtxGetStreamPriorityRange, 1, (int *, int *))         \
	F(alloc, cuMemAlloc_v2, 1, (cuda_pointer *, size_t))                  \
	F(free, cuMemFree_v2, 1, (cuda_pointer))                              \
	F(range, cuMemGetAddressRange_v2, 1,                                  \
	  (cuda_pointer *, size_t *, cuda_pointer))                           \
	F(pointer_attribute, cuPointerGetAttribute, 1,                        \
	  (void *, cuda_pointer_attribute, cuda_pointer))                     \
	F(pointer_attributes, cuPointerGetAttributes, 1,                      \
	  (unsigned, cuda_pointer_attribute *, void **, cuda_pointer))        \
	F(pointer_set, cuPointerSetAttribute, 1,                              \
	  (const void *, cuda_pointer_attribute, cuda_pointer))               \
	F(host_alloc, cuMemHostAlloc, 1, (void **, size_t, unsigned))         \
	F(host_register, cuMemHostRegister_v2, 1, (void *, size_t, unsigned)) \
	F(host_unregister, cuMemHostUnregister, 1, (void *))                  \
	F(host_pointer, cuMemHostGetDevicePointer_v2, 1,                      \
	  (cuda_pointer *, void *, unsigned))                                 \
	F(reaches, cuDeviceCanAccessPeer, 1,                                  \
	  (int *, cuda_device, cuda_device))                                  \
	F(reach, cuCtxEnablePeerAccess, 1, (cuda_context, unsigned))          \
	F(ipc_get, cuIpcGetMemHandle, 1, (cuda_ipc *, cuda_pointer))          \
	F(ipc_open_v1, cuIpcOpenMemHandle, 1,                                 \
	  (cuda_pointer *, cuda_ipc, unsigned))                               \
	F(ipc_open, cuIpcOpenMemHandle_v2, 0,                                 \
	  (cuda_pointer *, cuda_ipc, unsigned))                               \
	F(ipc_close, cuIpcCloseMemHandle, 1, (cuda_pointer))                  \
	F(copy, cuMemcpyAsync, 1,                                             \
	  (cuda_pointer, cuda_pointer, size_t, cuda_stream))                  \
	F(stream_create, cuStreamCreateWithPriority, 1,                       \
	  (cuda_stream *, unsigned, int))                                     \
	F(stream_destroy, cuStreamDestroy_v2, 1, (cuda_stream))               \
	F(stream_context, cuStreamGetCtx, 1, (cuda_stream, cuda_context *))   \
	F(event_create, cuEventCreate, 1, (cuda_event *, unsigned))           \
	F(event_destroy, cuEventDestroy_v2, 1, (cuda_event))                  \
	F(event_record, cuEventRecord, 1, (cuda_event, cuda_stream))          \
	F(event_query, cuEventQuery, 1, (cuda_event))                         \
	F(wait_event, cuStreamWaitEvent, 1,                                   \
	  (cuda_stream, cuda_event, unsigned))                                \
	F(module_load, cuModuleLoadData, 1, (cuda_module *, const void *))    \
	F(module_function, cuModuleGetFunction, 1,                            \
	  (cuda_function *, cuda_module, const char *))                       \
	F(launch, cuLaunchKernel, 1,                                          \
	  (cuda_function, unsigned, unsigned, unsigned, unsigned, unsigned,   \
	   unsigned, unsigned, cuda_stream, void **, void **))                \
	F(capturing, cuStreamIsCapturing, 1, (cuda_stream, cuda_capture *))   \
	F(capture_mode, cuThreadExchangeStreamCaptureMode, 0,                 \
	  (cuda_capture_mode *))                                              \
	F(capture_info, cuStreamGetCaptureInfo_v2, 0,                         \
	  (cuda_stream, cuda_capture *, uint64_t *, cuda_graph *,             \
	   const cuda_graph_node **, size_t *))                               \
	F(capture_follow, cuStreamUpdateCaptureDependencies, 0,               \
	  (cuda_stream, cuda_graph_node *, size_t, unsigned))                 \
	F(graph_mem_node, cuGraphAddBatchMemOpNode, 0,                        \
	  (cuda_graph_node *, cuda_graph, const cuda_graph_node *, size_t,    \
	   const cuda_mem_node *))                                            \
	F(graph_host_node, cuGraphAddHostNode, 0,                             \
	  (cuda_graph_node *, cuda_graph, const cuda_graph_node *, size_t,    \
	   const cuda_host_node *))                                           \
	F(graph_keep, cuGraphRetainUserObject, 0,                             \
	  (cuda_graph, cuda_user_object, unsigned, unsigned))                 \
	F(object_create, cuUserObjectCreate, 0,                               \
	  (cuda_user_object *, void *, cuda_host_fn, unsigned, unsigned))     \
	F(object_release, cuUserObjectRelease, 0,                             \
	  (cuda_user_object, unsigned))                                       \
	F(host_function, cuLaunchHostFunc, 1,                                 \
	  (cuda_stream, cuda_host_fn, void *))                                \
	F(wait_value, cuStreamWaitValue32_v2, 0,                              \
	  (cuda_stream, cuda_pointer, uint32_t, unsigned))                    \
	F(wait_value_v1, cuStreamWaitValue32, 0,                              \
	  (cuda_stream, cuda_pointer, uint32_t, unsigned))                    \
	F(write_value, cuStreamWriteValue32_v2, 0,                            \
	  (cuda_stream, cuda_pointer, uint32_t, unsigned))                    \
	F(write_value_v1, cuStreamWriteValue32, 0,                            \
	  (cuda_stream, cuda_pointer, uint32_t, unsigned))                    \
	F(loading_mode, cuModuleGetLoadingMode, 0, (cuda_loading_mode *))     \
	F(range_handle, cuMemGetHandleForAddressRange, 0,                     \
	  (void *, cuda_pointer, size_t, cuda_range_type, unsigned long long))

#endif
