/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The element types and operators of the tool: their names in the table and on
 * the command line, and the numbers that their bit patterns stand for.
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
	/* For floats only. */
	int exponent_bits, mantissa_bits, bias;
	bool fnuz;   /* one zero, one NaN, no infinity */
	bool finite; /* no infinity; only all ones is NaN */
};

/* In the order in which -d all runs them. */
extern const struct type types[];
extern const int types_n;
/* Finds a type. Also accepts other usual names, such as float32 and char.
 * Returns NULL if there is none. */
const struct type *type_find(const char *name);

/* type_encode() converts a number to a bit pattern of the type, rounded to
 * nearest even. For integers, the number must be in range. For floats, a number
 * beyond the largest becomes NaN. */
uint64_t type_encode(const struct type *t, double value);
double type_decode(const struct type *t, uint64_t bits);
/* Returns the bits of precision of a float: all integers up to 2^this are
 * exact. */
int type_precision(const struct type *t);
/* Returns the smallest positive number of a float type. */
double type_smallest(const struct type *t);

void type_store(const struct type *t, void *at, size_t index, uint64_t bits);
uint64_t type_load(const struct type *t, const void *at, size_t index);

/* The operators: those of the library, and mulsum, for which each rank creates
 * one. */
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
/* Returns the library's operator. For mulsum there is none. */
dicomm_redop_t reduction_op(enum reduction r);
bool reduction_serves(enum reduction r, const struct type *t);

#endif
