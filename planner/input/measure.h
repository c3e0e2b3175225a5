/* SPDX-License-Identifier: BSD-3-Clause */
/* A profile of this machine's device, by PyTorch. */
#ifndef DICOMM_PLANNER_INPUT_MEASURE_H
#define DICOMM_PLANNER_INPUT_MEASURE_H

#include "planner/input/model.h"

/*
 * Times the embedding, a transformer block and the head at micro-batches of 1,
 * 2, 4 ... up to `most`, and writes a profile for a device type of that name.
 * Degree 1 only: what tensor parallelism makes of it depends on links. Runs
 * `python` ("python3"), which must find PyTorch, for at most ten minutes. False
 * after a message.
 */
bool measure_profile(const struct model *m, int seq, int most,
		     const char *device, const char *python, const char *out);

#endif
