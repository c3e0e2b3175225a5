/* SPDX-License-Identifier: BSD-3-Clause */
/* The events of gpu.h, which includes this: the driver's own. */
#ifndef DICOMM_ACCEL_GPU_EVENT_H
#define DICOMM_ACCEL_GPU_EVENT_H

struct accel_event {
	int index;
	gpu_event handle;
};

static dicomm_result_t gpu_event_create(int index, struct accel_event **out)
{
	struct accel_event *e;
	int error;

	TRY(enter(index));
	e = calloc(1, sizeof(*e));
	if (!e) {
		gpu_leave();
		return no_memory(index);
	}
	e->index = index;
	error = api.event_create(&e->handle, GPU_EVENT_DISABLE_TIMING);
	gpu_leave();
	if (error) {
		free(e);
		return failed(error, index, "an event");
	}
	*out = e;
	return DICOMM_SUCCESS;
}

static void gpu_event_destroy(struct accel_event *e)
{
	if (!e)
		return;
	if (enter(e->index) == DICOMM_SUCCESS) {
		api.event_destroy(e->handle);
		gpu_leave();
	}
	free(e);
}

static dicomm_result_t gpu_event_record(struct accel_event *e,
					struct accel_stream *s)
{
	int error;

	TRY(refuse_capture(s));
	TRY(enter(s->index));
	error = api.event_record(e->handle, s->handle);
	return leave(error, s->index, "an event");
}

static dicomm_result_t gpu_event_query(const struct accel_event *e)
{
	int error;

	gpu_relax();
	error = api.event_query(e->handle);
	gpu_restore();
	if (error == GPU_NOT_READY)
		return DICOMM_AGAIN;
	return error ? failed(error, e->index, "work of a stream")
		     : DICOMM_SUCCESS;
}

static dicomm_result_t gpu_wait_event(struct accel_stream *s,
				      const struct accel_event *e)
{
	int error;

	TRY(enter(s->index));
	error = api.wait_event(s->handle, e->handle, 0);
	return leave(error, s->index, "to wait for an event");
}

#endif
