/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a reduction should give, written for clarity and nothing else: an
 * oracle that shares no code with the library. One thread only.
 */
#ifndef DICOMM_TESTS_SUPPORT_ARITHMETIC_H
#define DICOMM_TESTS_SUPPORT_ARITHMETIC_H

#include <stdint.h>

#include "dicomm.h"

/* r = a op b, of one element */
void arithmetic_expect(dicomm_datatype_t type, dicomm_redop_t op, void *r,
		       const void *a, const void *b);

uint64_t arithmetic_bits(dicomm_datatype_t type, const void *p);
/* Integer types */
__int128 arithmetic_integer(dicomm_datatype_t type, const void *p);
/* Float types; store rounds to nearest even */
double arithmetic_load(dicomm_datatype_t type, const void *p);
void arithmetic_store(dicomm_datatype_t type, void *p, double x);
/* x op y as the type computes: narrow floats in float32 */
double arithmetic_float(dicomm_datatype_t type, dicomm_redop_t op, double x,
			double y);
/* x, or the largest number of the type with its sign if x is finite and beyond
 * it: what the sums of averages do. Not of float64. */
double arithmetic_saturate(dicomm_datatype_t type, double x);
int arithmetic_man_bits(dicomm_datatype_t type);

#endif
