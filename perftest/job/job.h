/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-info --job: what the ranks on this machine do. */
#ifndef DICOMM_PERFTEST_JOB_H
#define DICOMM_PERFTEST_JOB_H

#include <jansson.h>
#include <stdbool.h>

/* `pid`: a process, as the user gave it; NULL: all of this user. Adds to the
 * object, or prints. Returns false after saying what is wrong. */
bool job_show(const char *pid, json_t *json);
/* Is it a process number? */
bool job_is_pid(const char *text);

#endif
