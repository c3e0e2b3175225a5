/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sizes of datatypes and operators. */
#ifndef DICOMM_BASE_TYPE_H
#define DICOMM_BASE_TYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "dicomm.h"

/* Datatypes are numbered with a gap; an array that is indexed by type has this
 * many entries. */
#define TYPE_LIMIT 27

bool type_valid(dicomm_datatype_t type);
size_t type_bytes(dicomm_datatype_t type); /* 0 for an invalid type */
const char *type_name(dicomm_datatype_t type);
bool type_is_float(dicomm_datatype_t type);        /* also complex */
bool type_is_narrow_float(dicomm_datatype_t type); /* below 32 bits */

/* Returns the scalar type whose kernels reduce this type (complex64: float32),
 * and multiplies *n by the number of such scalars in an element. */
dicomm_datatype_t type_plain(dicomm_datatype_t type, size_t *n);
/* Does any operator take the type? Else it is moved only. */
bool type_reduces(dicomm_datatype_t type);
/* May the user make an operator that scales it? */
bool type_scales(dicomm_datatype_t type);
/* Is this built-in operator defined for the type? */
bool op_fits(dicomm_redop_t op, dicomm_datatype_t type);

/* These know built-in operators only; a communicator knows the operators that
 * were created for it. */
bool op_valid(dicomm_redop_t op);
const char *op_name(dicomm_redop_t op);

#endif
