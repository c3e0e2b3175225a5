/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of Level Zero that the library uses. The build needs no header of
 * Level Zero; its loader is opened at run time. tests/unit/test_ze_api.c
 * compares these declarations with the headers where they are installed.
 */
#ifndef DICOMM_ACCEL_ZE_API_H
#define DICOMM_ACCEL_ZE_API_H

#include <stddef.h>
#include <stdint.h>

struct ze_context_desc {
	uint32_t type;
	const void *next;
	uint32_t flags;
};

struct ze_device_properties {
	uint32_t type;
	void *next;
	uint32_t kind, vendor, device, flags, subdevice, clock;
	uint64_t most_bytes;
	uint32_t contexts, priorities, threads_per_eu, lanes, eus_per_subslice,
		subslices_per_slice, slices;
	uint64_t resolution;
	uint32_t timestamp_bits, kernel_timestamp_bits;
	uint8_t uuid[16];
	char name[256];
};

struct ze_pci_properties {
	uint32_t type;
	void *next;
	uint32_t domain, bus, device, function;
	int32_t generation, width;
	int64_t bandwidth;
};

struct ze_group_properties {
	uint32_t type;
	void *next;
	uint32_t flags;
	size_t fill_bytes;
	uint32_t queues;
};

struct ze_access_properties {
	uint32_t type;
	void *next;
	uint32_t host, device, shared, shared_across, system;
};

struct ze_external_properties {
	uint32_t type;
	void *next;
	uint32_t imports, exports, image_imports, image_exports;
};

struct ze_queue_desc {
	uint32_t type;
	const void *next;
	uint32_t ordinal, index, flags, mode, priority;
};

struct ze_pool_desc {
	uint32_t type;
	const void *next;
	uint32_t flags, count;
};

struct ze_event_desc {
	uint32_t type;
	const void *next;
	uint32_t index, signal, wait;
};

struct ze_alloc_desc {
	uint32_t type;
	const void *next;
	uint32_t flags, ordinal;
};

struct ze_host_desc {
	uint32_t type;
	const void *next;
	uint32_t flags;
};

struct ze_export_desc {
	uint32_t type;
	const void *next;
	uint32_t flags;
};

struct ze_export_fd {
	uint32_t type;
	const void *next;
	uint32_t flags;
	int fd;
};

struct ze_alloc_properties {
	uint32_t type;
	void *next;
	uint32_t kind;
	uint64_t id, page_bytes;
};

struct ze_free_desc {
	uint32_t type;
	const void *next;
	uint32_t policy;
};

struct ze_module_desc {
	uint32_t type;
	const void *next;
	uint32_t format;
	size_t bytes;
	const uint8_t *code;
	const char *flags;
	const void *constants;
};

struct ze_kernel_desc {
	uint32_t type;
	const void *next;
	uint32_t flags;
	const char *name;
};

struct ze_group_count {
	uint32_t x, y, z;
};

struct ze_ipc {
	char data[64];
};

/* The comparing test defines these types from the headers. */
#ifndef ZE_API_TYPES
typedef uint32_t ze_result;
typedef struct ze_driver_ *ze_driver;
typedef struct ze_device_ *ze_device;
typedef struct ze_context_ *ze_context;
typedef struct ze_list_ *ze_command_list;
typedef struct ze_pool_ *ze_pool;
typedef struct ze_event_ *ze_event;
typedef struct ze_module_ *ze_module;
typedef struct ze_kernel_ *ze_kernel;
typedef struct ze_log_ *ze_log;
typedef struct ze_ipc ze_ipc;
typedef uint32_t ze_api_version;
typedef struct ze_context_desc ze_context_desc;
typedef struct ze_device_properties ze_device_properties;
typedef struct ze_pci_properties ze_pci_properties;
typedef struct ze_group_properties ze_group_properties;
typedef struct ze_access_properties ze_access_properties;
typedef struct ze_external_properties ze_external_properties;
typedef struct ze_queue_desc ze_queue_desc;
typedef struct ze_pool_desc ze_pool_desc;
typedef struct ze_event_desc ze_event_desc;
typedef struct ze_alloc_desc ze_alloc_desc;
typedef struct ze_host_desc ze_host_desc;
typedef struct ze_alloc_properties ze_alloc_properties;
typedef struct ze_free_desc ze_free_desc;
typedef struct ze_module_desc ze_module_desc;
typedef struct ze_kernel_desc ze_kernel_desc;
typedef struct ze_group_count ze_group_count;
#endif

enum {
	ZE_SUCCESS = 0,
	ZE_NOT_READY = 1,
	ZE_DEVICE_LOST = 0x70000001,
	ZE_OUT_OF_HOST_MEMORY = 0x70000002,
	ZE_OUT_OF_DEVICE_MEMORY = 0x70000003,
	ZE_BUILD_FAILURE = 0x70000004,
	ZE_LINK_FAILURE = 0x70000005,
	ZE_UNINITIALIZED = 0x78000001,
	ZE_UNSUPPORTED_VERSION = 0x78000002,
	ZE_UNSUPPORTED_FEATURE = 0x78000003,
	ZE_INVALID_ARGUMENT = 0x78000004,
	ZE_INVALID_NULL_HANDLE = 0x78000005,
	ZE_INVALID_NULL_POINTER = 0x78000007,
	ZE_INVALID_SIZE = 0x78000008,
	ZE_UNSUPPORTED_SIZE = 0x78000009,
	ZE_INVALID_SYNCHRONIZATION = 0x7800000b,
	ZE_INVALID_ENUMERATION = 0x7800000c,
	ZE_UNSUPPORTED_ENUMERATION = 0x7800000d,
	ZE_INVALID_NATIVE_BINARY = 0x7800000f,
	ZE_INVALID_KERNEL_NAME = 0x78000011,
	ZE_OVERLAPPING_REGIONS = 0x7800001a,
	ZE_UNKNOWN = 0x7ffffffe,

	ZE_DEVICE_PROPERTIES = 0x3,
	ZE_GROUP_PROPERTIES = 0x6,
	ZE_ACCESS_PROPERTIES = 0x8,
	ZE_EXTERNAL_PROPERTIES = 0xc,
	ZE_CONTEXT_DESC = 0xd,
	ZE_QUEUE_DESC = 0xe,
	ZE_POOL_DESC = 0x10,
	ZE_EVENT_DESC = 0x11,
	ZE_ALLOC_DESC = 0x15,
	ZE_HOST_DESC = 0x16,
	ZE_ALLOC_PROPERTIES = 0x17,
	ZE_EXPORT_DESC = 0x18,
	ZE_EXPORT_FD = 0x1a,
	ZE_MODULE_DESC = 0x1b,
	ZE_KERNEL_DESC = 0x1d,
	ZE_PCI_PROPERTIES = 0x10008,
	ZE_FREE_DESC = 0x1000a,

	ZE_GPU_ONLY = 1,
	ZE_KIND_GPU = 1,
	ZE_GROUP_COMPUTE = 1,
	ZE_ACCESS_RW = 1,
	ZE_MODE_ASYNCHRONOUS = 2,
	ZE_PRIORITY_NORMAL = 0,
	ZE_PRIORITY_HIGH = 2,
	ZE_POOL_HOST_VISIBLE = 1,
	ZE_SCOPE_HOST = 4,
	ZE_MEMORY_DEVICE = 2,
	ZE_MEMORY_SHARED = 3,
	ZE_DMA_BUF = 2,
	ZE_FREE_BLOCKING = 1,
	ZE_FORMAT_SPIRV = 0,
	ZE_INDIRECT_ALL = 7, /* host, device and shared */
};

/* F(our name, symbol, parameters) for each function. All are needed. */
#define ZE_FUNCTIONS(F)                                                       \
	F(init, zeInit, (uint32_t))                                           \
	F(drivers, zeDriverGet, (uint32_t *, ze_driver *))                    \
	F(version, zeDriverGetApiVersion, (ze_driver, ze_api_version *))      \
	F(extension, zeDriverGetExtensionFunctionAddress,                     \
	  (ze_driver, const char *, void **))                                 \
	F(devices, zeDeviceGet, (ze_driver, uint32_t *, ze_device *))         \
	F(subdevices, zeDeviceGetSubDevices,                                  \
	  (ze_device, uint32_t *, ze_device *))                               \
	F(device_properties, zeDeviceGetProperties,                           \
	  (ze_device, ze_device_properties *))                                \
	F(groups, zeDeviceGetCommandQueueGroupProperties,                     \
	  (ze_device, uint32_t *, ze_group_properties *))                     \
	F(access, zeDeviceGetMemoryAccessProperties,                          \
	  (ze_device, ze_access_properties *))                                \
	F(reaches, zeDeviceCanAccessPeer, (ze_device, ze_device, uint8_t *))  \
	F(external, zeDeviceGetExternalMemoryProperties,                      \
	  (ze_device, ze_external_properties *))                              \
	F(pci, zeDevicePciGetPropertiesExt, (ze_device, ze_pci_properties *)) \
	F(context_create, zeContextCreate,                                    \
	  (ze_driver, const ze_context_desc *, ze_context *))                 \
	F(list_create, zeCommandListCreateImmediate,                          \
	  (ze_context, ze_device, const ze_queue_desc *, ze_command_list *))  \
	F(barrier, zeCommandListAppendBarrier,                                \
	  (ze_command_list, ze_event, uint32_t, ze_event *))                  \
	F(copy, zeCommandListAppendMemoryCopy,                                \
	  (ze_command_list, void *, const void *, size_t, ze_event, uint32_t, \
	   ze_event *))                                                       \
	F(launch, zeCommandListAppendLaunchKernel,                            \
	  (ze_command_list, ze_kernel, const ze_group_count *, ze_event,      \
	   uint32_t, ze_event *))                                             \
	F(pool_create, zeEventPoolCreate,                                     \
	  (ze_context, const ze_pool_desc *, uint32_t, ze_device *,           \
	   ze_pool *))                                                        \
	F(event_create, zeEventCreate,                                        \
	  (ze_pool, const ze_event_desc *, ze_event *))                       \
	F(event_signal, zeEventHostSignal, (ze_event))                        \
	F(event_reset, zeEventHostReset, (ze_event))                          \
	F(event_query, zeEventQueryStatus, (ze_event))                        \
	F(alloc, zeMemAllocDevice,                                            \
	  (ze_context, const ze_alloc_desc *, size_t, size_t, ze_device,      \
	   void **))                                                          \
	F(host_alloc, zeMemAllocHost,                                         \
	  (ze_context, const ze_host_desc *, size_t, size_t, void **))        \
	F(free, zeMemFreeExt, (ze_context, const ze_free_desc *, void *))     \
	F(alloc_properties, zeMemGetAllocProperties,                          \
	  (ze_context, const void *, ze_alloc_properties *, ze_device *))     \
	F(range, zeMemGetAddressRange,                                        \
	  (ze_context, const void *, void **, size_t *))                      \
	F(ipc_get, zeMemGetIpcHandle, (ze_context, const void *, ze_ipc *))   \
	F(ipc_open, zeMemOpenIpcHandle,                                       \
	  (ze_context, ze_device, ze_ipc, uint32_t, void **))                 \
	F(ipc_close, zeMemCloseIpcHandle, (ze_context, const void *))         \
	F(module_create, zeModuleCreate,                                      \
	  (ze_context, ze_device, const ze_module_desc *, ze_module *,        \
	   ze_log *))                                                         \
	F(log_text, zeModuleBuildLogGetString, (ze_log, size_t *, char *))    \
	F(log_destroy, zeModuleBuildLogDestroy, (ze_log))                     \
	F(kernel_create, zeKernelCreate,                                      \
	  (ze_module, const ze_kernel_desc *, ze_kernel *))                   \
	F(group_size, zeKernelSetGroupSize,                                   \
	  (ze_kernel, uint32_t, uint32_t, uint32_t))                          \
	F(argument, zeKernelSetArgumentValue,                                 \
	  (ze_kernel, uint32_t, size_t, const void *))                        \
	F(indirect, zeKernelSetIndirectAccess, (ze_kernel, uint32_t))

/* Functions that Debian's headers lack. None is needed. */
#define ZE_MORE_FUNCTIONS(F)                           \
	F(list_device, zeCommandListGetDeviceHandle,   \
	  (ze_command_list, ze_device *))              \
	F(list_is_immediate, zeCommandListIsImmediate, \
	  (ze_command_list, uint8_t *))                \
	F(list_ordinal, zeCommandListGetOrdinal,       \
	  (ze_command_list, uint32_t *))               \
	F(list_index, zeCommandListImmediateGetIndex,  \
	  (ze_command_list, uint32_t *))

/* Functions of the driver itself, which gives their addresses. None is
 * needed. They make host pages accessible to kernels, at the same address,
 * and undo that. */
#define ZE_DRIVER_FUNCTIONS(F)                         \
	F(host_import, zexDriverImportExternalPointer, \
	  (ze_driver, void *, size_t))                 \
	F(host_release, zexDriverReleaseImportedPointer, (ze_driver, void *))

#endif
