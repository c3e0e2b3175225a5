/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks a tensor and its boxes before a plan is made. */
#ifndef DICOMM_COLLECTIVES_REDISTRIBUTE_CHECK_H
#define DICOMM_COLLECTIVES_REDISTRIBUTE_CHECK_H

#include "dicomm.h"

/* Checks a tensor and each of its boxes separately. Returns
 * DICOMM_ERR_INVALID_ARGUMENT if one is invalid; the message names tensor, box,
 * axis, interval and rank. */
dicomm_result_t check_tensor(const dicomm_tensor_t *tensors, size_t index,
			     int ranks);

#endif
