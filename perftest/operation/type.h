/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The element types and operators of the tool: their names in the table and
 * on the command line, and how their bit patterns stand for numbers.
 */
#ifndef DICOMM_PERFTEST_OPERATION_TYPE_H
#define DICOMM_PERFTEST_OPERATION_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

struct type {
	const char *name; /* in the table: at most 8 characters */
	dicomm_datatype_t id;
	uint32_t bytes;
	bool is_float, is_signed;
	/* floats */
	int exponent_bits, mantissa_bits, bias;
	bool fnuz;   /* one zero, one NaN, no infinity */
	bool finite; /* no infinity: all ones is the only NaN */
};

/* In the order in which -d all runs them. */
extern const struct type types[];
extern const int types_n;
/* NULL if unknown; also takes other usual names: float32, char. */
const struct type *type_find(const char *name);

/* A number as bit pattern of the type, rounded to nearest even. Integers: the
 * number must be in range. Floats: beyond the largest becomes NaN. */
uint64_t type_encode(const struct type *t, double value);
double type_decode(const struct type *t, uint64_t bits);
/* Bits of precision: all integers up to 2^this are exact. Floats only. */
int type_precision(const struct type *t);
/* The smallest positive number. Floats only. */
double type_smallest(const struct type *t);

void type_store(const struct type *t, void *at, size_t index, uint64_t bits);
uint64_t type_load(const struct type *t, const void *at, size_t index);

/* Operators: the library's, and mulsum, for which each rank creates one. */
enum reduction {
	REDUCTION_SUM,
	REDUCTION_PROD,
	REDUCTION_MAX,
	REDUCTION_MIN,
	REDUCTION_AVG,
	REDUCTION_MULSUM,
	REDUCTION_BAND,
	REDUCTION_BOR,
	REDUCTION_BXOR,
	REDUCTIONS
};

const char *reduction_name(enum reduction r);
enum reduction reduction_find(const char *name); /* REDUCTIONS if unknown */
/* The library's operator; mulsum has none of its own. */
dicomm_redop_t reduction_op(enum reduction r);
bool reduction_serves(enum reduction r, const struct type *t);

#endif
