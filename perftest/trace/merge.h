/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-info --trace: the traces of a job as one. */
#ifndef DICOMM_PERFTEST_TRACE_MERGE_H
#define DICOMM_PERFTEST_TRACE_MERGE_H

#include <stdbool.h>

/* Prints the events of all files as one file for Chrome's trace viewer and
 * Perfetto: those of DICOMM_TRACE, which may lack their end, and of others, as
 * PyTorch's profiler. All times count from the earliest event, and the
 * processes of each file get numbers of their own. Returns false after saying
 * what is wrong, with nothing printed. */
bool merge_traces(const char *const *files);

#endif
