/* SPDX-License-Identifier: BSD-3-Clause */
/* Our declarations of Level Zero against its headers. */
#include <level_zero/ze_api.h>
#include <stdio.h>

#define ZE_API_TYPES
typedef ze_result_t ze_result;
typedef ze_driver_handle_t ze_driver;
typedef ze_device_handle_t ze_device;
typedef ze_context_handle_t ze_context;
typedef ze_command_list_handle_t ze_command_list;
typedef ze_event_pool_handle_t ze_pool;
typedef ze_event_handle_t ze_event;
typedef ze_module_handle_t ze_module;
typedef ze_kernel_handle_t ze_kernel;
typedef ze_module_build_log_handle_t ze_log;
typedef ze_ipc_mem_handle_t ze_ipc;
typedef ze_api_version_t ze_api_version;
typedef ze_context_desc_t ze_context_desc;
typedef ze_device_properties_t ze_device_properties;
typedef ze_pci_ext_properties_t ze_pci_properties;
typedef ze_command_queue_group_properties_t ze_group_properties;
typedef ze_device_memory_access_properties_t ze_access_properties;
typedef ze_device_external_memory_properties_t ze_external_properties;
typedef ze_command_queue_desc_t ze_queue_desc;
typedef ze_event_pool_desc_t ze_pool_desc;
typedef ze_event_desc_t ze_event_desc;
typedef ze_device_mem_alloc_desc_t ze_alloc_desc;
typedef ze_host_mem_alloc_desc_t ze_host_desc;
typedef ze_memory_allocation_properties_t ze_alloc_properties;
typedef ze_memory_free_ext_desc_t ze_free_desc;
typedef ze_module_desc_t ze_module_desc;
typedef ze_kernel_desc_t ze_kernel_desc;
typedef ze_group_count_t ze_group_count;
#include "src/accel/ze/api.h"

/* The same types, not only compatible calls */
#define F(name, symbol, parameters)                                           \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol),      \
						    ze_result(*) parameters), \
		       #symbol);
ZE_FUNCTIONS(F)
#undef F

#define SIZE(ours, theirs)                                              \
	_Static_assert(sizeof(struct ours) == sizeof(theirs), #theirs); \
	_Static_assert(_Alignof(struct ours) == _Alignof(theirs), #theirs)
#define PLACE(ours, field, theirs, name)                                       \
	_Static_assert(offsetof(struct ours, field) == offsetof(theirs, name), \
		       #theirs "." #name);                                     \
	_Static_assert(sizeof(((struct ours *)0)->field) ==                    \
			       sizeof(((theirs *)0)->name),                    \
		       #theirs "." #name)
_Static_assert(sizeof(uint32_t) == sizeof(ze_result_t), "results");
_Static_assert(sizeof(uint32_t) == sizeof(ze_api_version_t), "versions");
SIZE(ze_ipc, ze_ipc_mem_handle_t);
SIZE(ze_context_desc, ze_context_desc_t);
PLACE(ze_context_desc, flags, ze_context_desc_t, flags);
SIZE(ze_device_properties, ze_device_properties_t);
PLACE(ze_device_properties, next, ze_device_properties_t, pNext);
PLACE(ze_device_properties, kind, ze_device_properties_t, type);
PLACE(ze_device_properties, subslices_per_slice, ze_device_properties_t,
      numSubslicesPerSlice);
PLACE(ze_device_properties, slices, ze_device_properties_t, numSlices);
PLACE(ze_device_properties, name, ze_device_properties_t, name);
SIZE(ze_pci_properties, ze_pci_ext_properties_t);
PLACE(ze_pci_properties, domain, ze_pci_ext_properties_t, address.domain);
PLACE(ze_pci_properties, bus, ze_pci_ext_properties_t, address.bus);
PLACE(ze_pci_properties, device, ze_pci_ext_properties_t, address.device);
PLACE(ze_pci_properties, function, ze_pci_ext_properties_t, address.function);
SIZE(ze_group_properties, ze_command_queue_group_properties_t);
PLACE(ze_group_properties, flags, ze_command_queue_group_properties_t, flags);
SIZE(ze_access_properties, ze_device_memory_access_properties_t);
PLACE(ze_access_properties, system, ze_device_memory_access_properties_t,
      sharedSystemAllocCapabilities);
SIZE(ze_external_properties, ze_device_external_memory_properties_t);
PLACE(ze_external_properties, exports, ze_device_external_memory_properties_t,
      memoryAllocationExportTypes);
SIZE(ze_queue_desc, ze_command_queue_desc_t);
PLACE(ze_queue_desc, ordinal, ze_command_queue_desc_t, ordinal);
PLACE(ze_queue_desc, index, ze_command_queue_desc_t, index);
PLACE(ze_queue_desc, flags, ze_command_queue_desc_t, flags);
PLACE(ze_queue_desc, mode, ze_command_queue_desc_t, mode);
PLACE(ze_queue_desc, priority, ze_command_queue_desc_t, priority);
SIZE(ze_pool_desc, ze_event_pool_desc_t);
PLACE(ze_pool_desc, flags, ze_event_pool_desc_t, flags);
PLACE(ze_pool_desc, count, ze_event_pool_desc_t, count);
SIZE(ze_event_desc, ze_event_desc_t);
PLACE(ze_event_desc, index, ze_event_desc_t, index);
PLACE(ze_event_desc, signal, ze_event_desc_t, signal);
PLACE(ze_event_desc, wait, ze_event_desc_t, wait);
SIZE(ze_alloc_desc, ze_device_mem_alloc_desc_t);
PLACE(ze_alloc_desc, flags, ze_device_mem_alloc_desc_t, flags);
PLACE(ze_alloc_desc, ordinal, ze_device_mem_alloc_desc_t, ordinal);
SIZE(ze_host_desc, ze_host_mem_alloc_desc_t);
PLACE(ze_host_desc, flags, ze_host_mem_alloc_desc_t, flags);
SIZE(ze_export_desc, ze_external_memory_export_desc_t);
PLACE(ze_export_desc, flags, ze_external_memory_export_desc_t, flags);
SIZE(ze_export_fd, ze_external_memory_export_fd_t);
PLACE(ze_export_fd, flags, ze_external_memory_export_fd_t, flags);
PLACE(ze_export_fd, fd, ze_external_memory_export_fd_t, fd);
SIZE(ze_alloc_properties, ze_memory_allocation_properties_t);
PLACE(ze_alloc_properties, kind, ze_memory_allocation_properties_t, type);
PLACE(ze_alloc_properties, id, ze_memory_allocation_properties_t, id);
SIZE(ze_free_desc, ze_memory_free_ext_desc_t);
PLACE(ze_free_desc, policy, ze_memory_free_ext_desc_t, freePolicy);
SIZE(ze_module_desc, ze_module_desc_t);
PLACE(ze_module_desc, format, ze_module_desc_t, format);
PLACE(ze_module_desc, bytes, ze_module_desc_t, inputSize);
PLACE(ze_module_desc, code, ze_module_desc_t, pInputModule);
PLACE(ze_module_desc, flags, ze_module_desc_t, pBuildFlags);
PLACE(ze_module_desc, constants, ze_module_desc_t, pConstants);
SIZE(ze_kernel_desc, ze_kernel_desc_t);
PLACE(ze_kernel_desc, flags, ze_kernel_desc_t, flags);
PLACE(ze_kernel_desc, name, ze_kernel_desc_t, pKernelName);
SIZE(ze_group_count, ze_group_count_t);
PLACE(ze_group_count, x, ze_group_count_t, groupCountX);
PLACE(ze_group_count, z, ze_group_count_t, groupCountZ);

#define EQUAL(ours, theirs) \
	_Static_assert((int)(ours) == (int)(theirs), #theirs)
#define RESULT(ours, theirs) EQUAL(ours, ZE_RESULT_##theirs)
#define TYPE(ours, theirs) EQUAL(ours, ZE_STRUCTURE_TYPE_##theirs)
RESULT(ZE_SUCCESS, SUCCESS);
RESULT(ZE_NOT_READY, NOT_READY);
RESULT(ZE_DEVICE_LOST, ERROR_DEVICE_LOST);
RESULT(ZE_OUT_OF_HOST_MEMORY, ERROR_OUT_OF_HOST_MEMORY);
RESULT(ZE_OUT_OF_DEVICE_MEMORY, ERROR_OUT_OF_DEVICE_MEMORY);
RESULT(ZE_BUILD_FAILURE, ERROR_MODULE_BUILD_FAILURE);
RESULT(ZE_LINK_FAILURE, ERROR_MODULE_LINK_FAILURE);
RESULT(ZE_UNINITIALIZED, ERROR_UNINITIALIZED);
RESULT(ZE_UNSUPPORTED_VERSION, ERROR_UNSUPPORTED_VERSION);
RESULT(ZE_UNSUPPORTED_FEATURE, ERROR_UNSUPPORTED_FEATURE);
RESULT(ZE_INVALID_ARGUMENT, ERROR_INVALID_ARGUMENT);
RESULT(ZE_INVALID_NULL_HANDLE, ERROR_INVALID_NULL_HANDLE);
RESULT(ZE_INVALID_NULL_POINTER, ERROR_INVALID_NULL_POINTER);
RESULT(ZE_INVALID_SIZE, ERROR_INVALID_SIZE);
RESULT(ZE_UNSUPPORTED_SIZE, ERROR_UNSUPPORTED_SIZE);
RESULT(ZE_INVALID_SYNCHRONIZATION, ERROR_INVALID_SYNCHRONIZATION_OBJECT);
RESULT(ZE_INVALID_ENUMERATION, ERROR_INVALID_ENUMERATION);
RESULT(ZE_UNSUPPORTED_ENUMERATION, ERROR_UNSUPPORTED_ENUMERATION);
RESULT(ZE_INVALID_NATIVE_BINARY, ERROR_INVALID_NATIVE_BINARY);
RESULT(ZE_INVALID_KERNEL_NAME, ERROR_INVALID_KERNEL_NAME);
RESULT(ZE_OVERLAPPING_REGIONS, ERROR_OVERLAPPING_REGIONS);
RESULT(ZE_UNKNOWN, ERROR_UNKNOWN);
TYPE(ZE_DEVICE_PROPERTIES, DEVICE_PROPERTIES);
TYPE(ZE_GROUP_PROPERTIES, COMMAND_QUEUE_GROUP_PROPERTIES);
TYPE(ZE_ACCESS_PROPERTIES, DEVICE_MEMORY_ACCESS_PROPERTIES);
TYPE(ZE_EXTERNAL_PROPERTIES, DEVICE_EXTERNAL_MEMORY_PROPERTIES);
TYPE(ZE_CONTEXT_DESC, CONTEXT_DESC);
TYPE(ZE_QUEUE_DESC, COMMAND_QUEUE_DESC);
TYPE(ZE_POOL_DESC, EVENT_POOL_DESC);
TYPE(ZE_EVENT_DESC, EVENT_DESC);
TYPE(ZE_ALLOC_DESC, DEVICE_MEM_ALLOC_DESC);
TYPE(ZE_HOST_DESC, HOST_MEM_ALLOC_DESC);
TYPE(ZE_ALLOC_PROPERTIES, MEMORY_ALLOCATION_PROPERTIES);
TYPE(ZE_EXPORT_DESC, EXTERNAL_MEMORY_EXPORT_DESC);
TYPE(ZE_EXPORT_FD, EXTERNAL_MEMORY_EXPORT_FD);
TYPE(ZE_MODULE_DESC, MODULE_DESC);
TYPE(ZE_KERNEL_DESC, KERNEL_DESC);
TYPE(ZE_PCI_PROPERTIES, PCI_EXT_PROPERTIES);
TYPE(ZE_FREE_DESC, MEMORY_FREE_EXT_DESC);
EQUAL(ZE_GPU_ONLY, ZE_INIT_FLAG_GPU_ONLY);
EQUAL(ZE_KIND_GPU, ZE_DEVICE_TYPE_GPU);
EQUAL(ZE_GROUP_COMPUTE, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
EQUAL(ZE_ACCESS_RW, ZE_MEMORY_ACCESS_CAP_FLAG_RW);
EQUAL(ZE_MODE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
EQUAL(ZE_PRIORITY_NORMAL, ZE_COMMAND_QUEUE_PRIORITY_NORMAL);
EQUAL(ZE_PRIORITY_HIGH, ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH);
EQUAL(ZE_POOL_HOST_VISIBLE, ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
EQUAL(ZE_SCOPE_HOST, ZE_EVENT_SCOPE_FLAG_HOST);
EQUAL(ZE_MEMORY_DEVICE, ZE_MEMORY_TYPE_DEVICE);
EQUAL(ZE_MEMORY_SHARED, ZE_MEMORY_TYPE_SHARED);
EQUAL(ZE_DMA_BUF, ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF);
EQUAL(ZE_FREE_BLOCKING, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE);
EQUAL(ZE_FORMAT_SPIRV, ZE_MODULE_FORMAT_IL_SPIRV);
EQUAL(ZE_INDIRECT_ALL, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST |
			       ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
			       ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED);

int main(void)
{
	/* All was said when this was compiled. */
	printf("headers of Level Zero %d.%d: ours agree\n",
	       ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT),
	       ZE_MINOR_VERSION(ZE_API_VERSION_CURRENT));
	return 0;
}
