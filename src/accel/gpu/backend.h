/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of operations of a GPU backend (accel.h). A backend includes this
 * file once, at the end of its .c file, after the names that device.h asks for.
 * It brings in the parts in the order in which they build on each other.
 */
#ifndef DICOMM_ACCEL_GPU_BACKEND_H
#define DICOMM_ACCEL_GPU_BACKEND_H

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/host_reduce.h"
#include "src/accel/gpu/event.h"
#include GPU_STREAM_WAITS

static const struct accel_work gpu_work = {
	.queues = GPU_QUEUES,
	.caps = gpu_caps,
	.owner = gpu_owns,
	.open = gpu_open,
	.open_beside = gpu_open_beside,
	.close = gpu_close,
	.prepare = gpu_prepare,
	.prepare_host_reduce = gpu_prepare_host_reduce,
	.event_create = gpu_event_create,
	.event_destroy = gpu_event_destroy,
	.event_record = gpu_event_record,
	.event_query = gpu_event_query,
	.wait_event = gpu_wait_event,
	.stream_wait_create = gpu_stream_wait_create,
	.stream_wait_destroy = gpu_stream_wait_destroy,
	.stream_wait_queue = gpu_stream_wait_queue,
	.stream_wait_release = gpu_stream_wait_release,
	.held = GPU_HELD,
	.graphs = GPU_GRAPHS,
	.copy = gpu_queue_copy,
	.reduce = gpu_reduce,
	.fold = gpu_fold,
	.scale = gpu_scale,
	.divide = gpu_divide,
	.reach = gpu_reach,
	.allocation = gpu_allocation,
	.mem_export = gpu_mem_export,
	.mem_import = gpu_mem_import,
	.mem_unimport = gpu_mem_unimport,
	.map_host = gpu_map_host,
	.unmap_host = gpu_unmap_host,
	.dmabuf = gpu_dmabuf,
};

#define GPU_ACCEL                                                           \
	{                                                                   \
		.name = GPU_KIND, .count = gpu_count, .loaded = gpu_loaded, \
		.describe = gpu_describe, .alloc = gpu_alloc,               \
		.free = gpu_free, .work = &gpu_work                         \
	}

#endif
