/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The factor by which an average of floats scales its inputs. It has the same
 * bits on every rank, whatever the floating-point state of the thread is.
 */
#ifndef DICOMM_ACCEL_REDUCE_RECIPROCAL_H
#define DICOMM_ACCEL_REDUCE_RECIPROCAL_H

#include "dicomm.h"

/* 1 / ranks: a float64 for that type, a float32 for all other floats. */
void reciprocal_of(dicomm_datatype_t type, int ranks, void *scalar);

#endif
