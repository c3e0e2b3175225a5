/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks a job over the network, at the port where its ranks met. */
#ifndef DICOMM_PERFTEST_FAR_H
#define DICOMM_PERFTEST_FAR_H

#include <jansson.h>
#include <stdbool.h>

/* Adds to the array `answers` what the processes of the job answer, and to
 * `silent` an object {rank, where, why} for each rank that does not. Returns
 * false, after saying why, if there is no answer. */
bool far_ask(const char *host_port, json_t *answers, json_t *silent);

#endif
