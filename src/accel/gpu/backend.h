/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of a GPU backend (accel.h) by its driver. Those of accel.h
 * that get no object of this folder do not say of which driver they are, so
 * each backend has its own of these, which name it.
 */
#ifndef DICOMM_ACCEL_GPU_BACKEND_H
#define DICOMM_ACCEL_GPU_BACKEND_H

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/event.h"
#include "src/accel/gpu/graph.h"
#include "src/accel/gpu/host_reduce.h"
#include "src/accel/gpu/kernel.h"
#include "src/accel/gpu/memory.h"
#include "src/accel/gpu/stream.h"
#include "src/accel/gpu/stream_wait.h"

/* kind_accel_name parameters { return to(the driver, arguments); } */
#define GPU_BY(kind, type, name, parameters, to, ...)  \
	static type kind##_accel_##name parameters     \
	{                                              \
		return to(&(kind##_gpu), __VA_ARGS__); \
	}

/* Defines kind_graphs. */
#define GPU_GRAPHS(kind)                                                       \
	GPU_BY(kind, dicomm_result_t, captured,                                \
	       (int index, void *native, uint64_t *capture),                   \
	       gpu_graph_captured, index, native, capture)                     \
	GPU_BY(kind, dicomm_result_t, stop_add,                                \
	       (int index, void *native, struct accel_order *order,            \
		void (*gone)(void *ctx), void *ctx, struct accel_stop **out),  \
	       gpu_graph_stop_add, index, native, order, gone, ctx, out)       \
	GPU_BY(kind, dicomm_result_t, follow,                                  \
	       (int index, void *to, void *from, bool only), gpu_graph_follow, \
	       index, to, from, only)                                          \
	static const struct accel_graphs kind##_graphs = {                     \
		.captured = kind##_accel_captured,                             \
		.stop_add = kind##_accel_stop_add,                             \
		.follow = kind##_accel_follow,                                 \
		.stop_free = gpu_graph_stop_free,                              \
		.stop_reached = gpu_graph_stop_reached,                        \
		.stop_release = gpu_graph_stop_release,                        \
	};

/* Defines accel_kind, for the driver kind_gpu. Its stream waits are those of
 * waits_stream_wait_create() and its like; is_held(driver) and `with` are held
 * and graphs of accel.h; by_name is the name of the environment variable. */
#define GPU_ACCEL(kind, by_name, waits, is_held, with)                         \
	GPU_BY(kind, int, count, (char *why, size_t len), gpu_device_count,    \
	       why, len)                                                       \
	GPU_BY(kind, dicomm_result_t, describe,                                \
	       (int index, dicomm_device_info_t *info), gpu_device_describe,   \
	       index, info)                                                    \
	GPU_BY(kind, dicomm_result_t, alloc,                                   \
	       (int index, size_t bytes, void **ptr), gpu_memory_alloc, index, \
	       bytes, ptr)                                                     \
	GPU_BY(kind, dicomm_result_t, free, (void *ptr), gpu_memory_free, ptr) \
	GPU_BY(kind, unsigned, caps, (int index), gpu_device_caps, index)      \
	GPU_BY(kind, bool, owner,                                              \
	       (const void *ptr, struct accel_owner *owner), gpu_memory_owner, \
	       ptr, owner)                                                     \
	GPU_BY(kind, dicomm_result_t, open,                                    \
	       (int index, void *native, struct accel_stream **s),             \
	       gpu_stream_open, index, native, s)                              \
	GPU_BY(kind, dicomm_result_t, event_create,                            \
	       (int index, struct accel_event **e), gpu_event_create, index,   \
	       e)                                                              \
	GPU_BY(kind, dicomm_result_t, stream_wait_create,                      \
	       (int index, struct accel_stream_wait **g),                      \
	       waits##_stream_wait_create, index, g)                           \
	static bool kind##_accel_held(int index)                               \
	{                                                                      \
		(void)index;                                                   \
		return is_held(&kind##_gpu);                                   \
	}                                                                      \
	GPU_BY(kind, dicomm_result_t, reach, (int index, int other),           \
	       gpu_memory_reach, index, other)                                 \
	GPU_BY(kind, dicomm_result_t, allocation,                              \
	       (const void *ptr, struct accel_allocation *a),                  \
	       gpu_memory_allocation, ptr, a)                                  \
	GPU_BY(kind, dicomm_result_t, mem_export,                              \
	       (const void *ptr, struct accel_handle *h), gpu_memory_export,   \
	       ptr, h)                                                         \
	GPU_BY(kind, dicomm_result_t, mem_import,                              \
	       (int index, const struct accel_handle *h, void **base),         \
	       gpu_memory_import, index, h, base)                              \
	GPU_BY(kind, void, mem_unimport, (int index, void *base),              \
	       gpu_memory_unimport, index, base)                               \
	GPU_BY(kind, dicomm_result_t, map_host,                                \
	       (int index, void *host, size_t bytes, bool loads,               \
		void **device),                                                \
	       gpu_memory_map_host, index, host, bytes, loads, device)         \
	GPU_BY(kind, void, unmap_host, (int index, void *host),                \
	       gpu_memory_unmap_host, index, host)                             \
	GPU_BY(kind, dicomm_result_t, dmabuf,                                  \
	       (const void *ptr, size_t bytes, int *fd, uint64_t *offset),     \
	       gpu_memory_dmabuf, ptr, bytes, fd, offset)                      \
	static const struct accel_work kind##_work = {                         \
		.queues = by_name,                                             \
		.caps = kind##_accel_caps,                                     \
		.owner = kind##_accel_owner,                                   \
		.open = kind##_accel_open,                                     \
		.open_beside = gpu_stream_open_beside,                         \
		.close = gpu_stream_close,                                     \
		.prepare = gpu_kernel_prepare,                                 \
		.prepare_host_reduce = gpu_host_reduce_prepare,                \
		.event_create = kind##_accel_event_create,                     \
		.event_destroy = gpu_event_destroy,                            \
		.event_record = gpu_event_record,                              \
		.event_query = gpu_event_query,                                \
		.wait_event = gpu_event_wait,                                  \
		.stream_wait_create = kind##_accel_stream_wait_create,         \
		.stream_wait_destroy = waits##_stream_wait_destroy,            \
		.stream_wait_queue = waits##_stream_wait_queue,                \
		.stream_wait_release = waits##_stream_wait_release,            \
		.held = kind##_accel_held,                                     \
		.graphs = with,                                                \
		.copy = gpu_stream_copy,                                       \
		.reduce = gpu_host_reduce_reduce,                              \
		.fold = gpu_host_reduce_fold,                                  \
		.scale = gpu_host_reduce_scale,                                \
		.divide = gpu_host_reduce_divide,                              \
		.reach = kind##_accel_reach,                                   \
		.allocation = kind##_accel_allocation,                         \
		.mem_export = kind##_accel_mem_export,                         \
		.mem_import = kind##_accel_mem_import,                         \
		.mem_unimport = kind##_accel_mem_unimport,                     \
		.map_host = kind##_accel_map_host,                             \
		.unmap_host = kind##_accel_unmap_host,                         \
		.dmabuf = kind##_accel_dmabuf,                                 \
	};                                                                     \
	const struct accel accel_##kind = {                                    \
		.name = #kind,                                                 \
		.count = kind##_accel_count,                                   \
		.loaded = kind##_loaded,                                       \
		.describe = kind##_accel_describe,                             \
		.alloc = kind##_accel_alloc,                                   \
		.free = kind##_accel_free,                                     \
		.work = &kind##_work,                                          \
	};

#endif
