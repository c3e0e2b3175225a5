/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What device.h needs of drivers that capture streams into graphs: cuda.c and
 * hip.c include this behind their table of functions.
 *
 * A thread that is as strict as it began spoils the graphs that others capture,
 * by queries of events, allocations and the like.
 *
 * Needed:
 *   api.capture_mode(mode)       set how strict the thread is, tell how it was;
 *                                NULL: not there
 *   GPU_CAPTURE_RELAXED          not at all
 */
#ifndef DICOMM_ACCEL_GPU_CAPTURE_H
#define DICOMM_ACCEL_GPU_CAPTURE_H

/* How strict a thread was before gpu_relax() */
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
