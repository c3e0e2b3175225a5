/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps graph captures of other threads intact. cuda.c and hip.c include this
 * after their table of functions.
 *
 * While one thread captures a stream into a graph, queries of events,
 * allocations and other calls of any strict thread invalidate that graph. So
 * the library makes its thread relaxed during a call, and restores the mode
 * afterwards.
 *
 * A backend defines:
 *   api.capture_mode(mode)
 *                         sets the mode of the thread and returns the old one
 *                         in *mode; NULL if the driver lacks it
 *   GPU_CAPTURE_RELAXED   the relaxed mode
 */
#ifndef DICOMM_ACCEL_GPU_CAPTURE_H
#define DICOMM_ACCEL_GPU_CAPTURE_H

/* The mode of the thread before gpu_relax(). */
static _Thread_local int strict;

static void gpu_relax(void)
{
	strict = GPU_CAPTURE_RELAXED;
	if (api.capture_mode)
		(void)api.capture_mode(&strict);
}

static void gpu_restore(void)
{
	if (api.capture_mode)
		(void)api.capture_mode(&strict);
}

#endif
