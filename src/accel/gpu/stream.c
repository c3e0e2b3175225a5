/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/stream.h"
#include "src/base/log.h"

dicomm_result_t gpu_stream_refuse_capture(const struct accel_stream *s)
{
	struct gpu_driver *gpu = s->gpu;
	int state = gpu->capture_none;
	int error;

	if (s->own || (!s->native && !gpu->capture_implicit))
		return DICOMM_SUCCESS;
	TRY(gpu_device_enter(gpu, s->index));
	error = gpu->api.capturing(s->handle, &state);
	gpu_device_leave(gpu);
	if (error && error == gpu->capture_implicit)
		return FAIL(DICOMM_ERR_UNSUPPORTED,
			    "%s:%d: the default stream cannot be used "
			    "while a stream that waits for it is "
			    "captured into a graph",
			    gpu->kind, s->index);
	if (error || state == gpu->capture_none)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_UNSUPPORTED, "%s:%d: stream %p %s", gpu->kind,
		    s->index, s->native,
		    gpu->captured ? gpu->captured
				  : "is being captured into a graph, which "
				    "this cannot be part of");
}

/* own: stream_create() made it */
static void stream_end(struct gpu_driver *gpu, void *handle, bool own)
{
	if (own)
		gpu->api.stream_destroy(handle);
	else if (gpu->stream_close)
		gpu->stream_close(handle);
}

dicomm_result_t gpu_stream_misfit(const struct gpu_driver *gpu, int index,
				  void *native)
{
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "%s:%d: stream %p is of another device or context",
		    gpu->kind, index, native);
}

static dicomm_result_t stream_new(struct gpu_driver *gpu, int index,
				  void *handle, bool own,
				  struct accel_stream **out)
{
	struct accel_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return gpu_device_no_memory(gpu, index);
	s->gpu = gpu;
	s->index = index;
	s->handle = handle;
	s->own = own;
	*out = s;
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_stream_open(struct gpu_driver *gpu, int index, void *native,
				struct accel_stream **out)
{
	struct accel_stream *s = NULL;
	void *handle = NULL;
	dicomm_result_t status;
	bool fits = true;
	int error;

	TRY(gpu_device_enter(gpu, index));
	error = gpu->stream_open(index, native, &handle, &fits);
	gpu_device_leave(gpu);
	if (!fits)
		return gpu_stream_misfit(gpu, index, native);
	if (error)
		return gpu_device_failed(gpu, error, index, "a stream");
	status = stream_new(gpu, index, handle, false, &s);
	if (status == DICOMM_SUCCESS)
		s->native = native;
	/* A communicator may open the default stream only to create others on
	 * its device, so this does not fail during a capture. */
	if (status == DICOMM_SUCCESS && native)
		status = gpu_stream_refuse_capture(s);
	if (status == DICOMM_SUCCESS) {
		*out = s;
		return DICOMM_SUCCESS;
	}
	stream_end(gpu, handle, false);
	free(s);
	return status;
}

dicomm_result_t gpu_stream_open_beside(struct accel_stream *other,
				       struct accel_stream **out)
{
	struct gpu_driver *gpu = other->gpu;
	int least = 0, greatest = 0, error;
	void *handle = NULL;
	dicomm_result_t status;

	TRY(gpu_device_enter(gpu, other->index));
	error = gpu->api.priorities(&least, &greatest);
	if (!error)
		error = gpu->api.stream_create(&handle, gpu->stream_flags,
					       greatest);
	TRY(gpu_device_done(gpu, error, other->index, "a stream"));
	status = stream_new(gpu, other->index, handle, true, out);
	if (status != DICOMM_SUCCESS)
		stream_end(gpu, handle, true);
	return status;
}

void gpu_stream_close(struct accel_stream *s)
{
	struct gpu_driver *gpu;

	if (!s)
		return;
	gpu = s->gpu;
	if (gpu_device_enter(gpu, s->index) == DICOMM_SUCCESS) {
		if (s->pinned)
			(void)gpu->api.host_function(s->handle, s->pinned_put,
						     s->pinned);
		stream_end(gpu, s->handle, s->own);
		gpu_device_leave(gpu);
	}
	free(s);
}

dicomm_result_t gpu_stream_copy(struct accel_stream *s, void *dst,
				const void *src, size_t bytes)
{
	int error;

	if (!bytes)
		return DICOMM_SUCCESS;
	TRY(gpu_stream_refuse_capture(s));
	TRY(gpu_device_enter(s->gpu, s->index));
	error = s->gpu->copy(dst, src, bytes, s->handle);
	return gpu_device_done(s->gpu, error, s->index, "a copy");
}
