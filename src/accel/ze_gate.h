/* SPDX-License-Identifier: BSD-3-Clause */
/* The gates of gpu.h, which includes this, on Level Zero: each closing is an
 * event that only the host makes happen. */
#ifndef DICOMM_ACCEL_ZE_GATE_H
#define DICOMM_ACCEL_ZE_GATE_H

#include "src/accel/ze_order.h"

struct accel_gate {
	int index;
	struct ze_holds holds;
};

static _Atomic int closed_gates; /* closings that no opening has followed */

static dicomm_result_t gate_probe(int index, bool *waits)
{
	(void)index;
	*waits = true;
	return DICOMM_SUCCESS;
}

static dicomm_result_t gpu_gate_create(int index, struct accel_gate **out)
{
	struct accel_gate *g;

	TRY(check_index(index));
	g = calloc(1, sizeof(*g));
	if (!g)
		return no_memory(index);
	g->index = index;
	g->holds.last = &g->holds.first;
	*out = g;
	return DICOMM_SUCCESS;
}

static void gpu_gate_open(struct accel_gate *g)
{
	bool was = ze_hold_end(&g->holds);

	assert(was);
	if (was)
		atomic_fetch_sub(&closed_gates, 1);
}

static void gpu_gate_destroy(struct accel_gate *g)
{
	if (!g)
		return;
	while (ze_hold_end(&g->holds))
		atomic_fetch_sub(&closed_gates, 1);
	free(g);
}

static dicomm_result_t gpu_gate_close(struct accel_gate *g,
				      struct accel_stream *s)
{
	int error;

	TRY(refuse_capture(s));
	error = ze_hold_add(&g->holds, s->handle);
	if (error)
		return failed(error, s->index, "to wait for the host");
	atomic_fetch_add(&closed_gates, 1);
	return DICOMM_SUCCESS;
}

static bool gpu_held(int index)
{
	(void)index;
	return atomic_load(&closed_gates) > 0;
}

#endif
