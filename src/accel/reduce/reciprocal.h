/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The factor by which an average of floats scales its inputs. It has the same
 * bits on every rank, whatever floating-point state the thread has set.
 */
#ifndef DICOMM_ACCEL_REDUCE_RECIPROCAL_H
#define DICOMM_ACCEL_REDUCE_RECIPROCAL_H

#include "dicomm.h"

/* Write 1 / ranks to *scalar: a float64 for DICOMM_FLOAT64 and
 * DICOMM_COMPLEX128, a float32 for all other float types. */
void reciprocal_of(dicomm_datatype_t type, int ranks, void *scalar);

#endif
