/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/accel/reduce/reciprocal.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "src/base/fp_state.h"
#include "src/base/type.h"

/* Not inlined, so that the compiler cannot move the division out of the
 * floating-point state that the caller sets. */
static __attribute__((noinline)) void divide(bool is_double, int ranks,
					     void *scalar)
{
	double f64 = 1.0 / ranks;
	float f32 = 1.0f / (float)ranks;

	if (is_double)
		memcpy(scalar, &f64, sizeof(f64));
	else
		memcpy(scalar, &f32, sizeof(f32));
}

void reciprocal_of(dicomm_datatype_t type, int ranks, void *scalar)
{
	fp_state was = fp_state_enter();
	size_t numbers = 1;

	assert(type_is_float(type) && ranks > 0);
	divide(type_plain(type, &numbers) == DICOMM_FLOAT64, ranks, scalar);
	fp_state_leave(was);
}
