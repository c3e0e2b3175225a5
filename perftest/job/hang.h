/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds up the ranks of a communicator, from what they answer. */
#ifndef DICOMM_PERFTEST_HANG_H
#define DICOMM_PERFTEST_HANG_H

#include <jansson.h>

/* `ranks`: what each rank of one communicator that has answered says of it.
 * Adds a sentence to the array `sentences` for each rank that holds up others
 * for a second or longer: "rank 2 has not entered allreduce number 17; ranks 0,
 * 1, 3 wait in it for 3.2 s". */
void hang_find(json_t *ranks, json_t *sentences);

#endif
