/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The oracle of the job tests: the inputs of every rank as a pure function, and
 * what a reduction makes of them. Independent of the library's own reducers.
 * Inputs are small enough that every order of evaluation gives the same bits.
 */
#ifndef DICOMM_TESTS_SUPPORT_ELEMENT_H
#define DICOMM_TESTS_SUPPORT_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

extern const dicomm_datatype_t element_types[];
extern const int element_ntypes;
/* Types that have few operators or none */
extern const dicomm_datatype_t element_more_types[];
extern const int element_nmore_types;
extern const dicomm_redop_t element_ops[]; /* built-in */
extern const int element_nops;

/* Stands for a created operator, whose scalars are element_scalar(). */
#define ELEMENT_PREMULSUM ((dicomm_redop_t)0x100)

size_t element_bytes(dicomm_datatype_t type);
const char *element_name(dicomm_datatype_t type);
const char *element_op_name(dicomm_redop_t op);
bool element_is_float(dicomm_datatype_t type);
bool element_op_fits(dicomm_redop_t op, dicomm_datatype_t type);

/* Element i of the input of a rank. */
int64_t element_input(dicomm_datatype_t type, dicomm_redop_t op, unsigned seed,
		      int rank, size_t i);
int64_t element_scalar(int rank);
/* Write the value, which the type can hold (of an integer: its low bits). */
void element_put(dicomm_datatype_t type, void *at, int64_t value);
void element_put_double(dicomm_datatype_t type, void *at, double value);
double element_get(dicomm_datatype_t type, const void *at);

/*
 * Write the reduction of element i over all ranks. Where the rounding is up to
 * the implementation (avg over a number of ranks that is no power of two),
 * `got` is taken over if it is near enough.
 */
void element_reduce(dicomm_datatype_t type, dicomm_redop_t op, unsigned seed,
		    int ranks, size_t i, void *at, const void *got);

#endif
