/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of accel.h that start one kernel each. A backend includes this
 * once, after it has defined:
 *   launch_none(stream, what)
 *                         logs that there is no kernel for that
 *   launch_start(stream, launch)
 *                         queues the kernel; does nothing for 0 elements
 */
#ifndef DICOMM_ACCEL_LAUNCH_WORK_H
#define DICOMM_ACCEL_LAUNCH_WORK_H

#include "src/accel/accel.h"
#include "src/accel/launch/launch.h"

static dicomm_result_t work_reduce(struct accel_stream *s,
				   dicomm_datatype_t type, dicomm_redop_t op,
				   void *dst, const void *a, const void *b,
				   size_t n)
{
	struct launch l;

	if (!launch_reduce(&l, type, op, dst, a, b, n))
		return launch_none(s, "a reduction");
	return launch_start(s, &l);
}

static dicomm_result_t work_fold(struct accel_stream *s, dicomm_datatype_t type,
				 dicomm_redop_t op, void *dst,
				 const void *const *src, int nsrc, size_t n)
{
	struct launch l;

	if (!launch_fold(&l, type, op, dst, src, nsrc, n))
		return launch_none(s, "a fold");
	return launch_start(s, &l);
}

static dicomm_result_t work_scale(struct accel_stream *s,
				  dicomm_datatype_t type, void *dst,
				  const void *a, const void *scalar_at,
				  uint64_t scalar, size_t n)
{
	struct launch l;

	if (!launch_scale(&l, type, dst, a, scalar_at, scalar, n))
		return launch_none(s, "a scale");
	return launch_start(s, &l);
}

static dicomm_result_t work_divide(struct accel_stream *s,
				   dicomm_datatype_t type, void *dst,
				   const void *a, long divisor, size_t n)
{
	struct launch l;

	if (divisor < 0 ||
	    !launch_divide(&l, type, dst, a, (uint64_t)divisor, n))
		return launch_none(s, "a division");
	return launch_start(s, &l);
}

#endif
