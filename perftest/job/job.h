/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-info --job: what the ranks on this machine do, or those of a job. */
#ifndef DICOMM_PERFTEST_JOB_H
#define DICOMM_PERFTEST_JOB_H

#include <jansson.h>
#include <stdbool.h>

/* `whom`: a process, or a job as HOST:PORT, as the user gave it; NULL: all
 * processes of this user. Adds to the object, or prints. Returns false after
 * saying what is wrong. */
bool job_show(const char *whom, json_t *json);
/* Is it a process number, or does it look like HOST:PORT? */
bool job_check(const char *whom);

#endif
