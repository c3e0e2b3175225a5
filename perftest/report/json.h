/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The results as JSON, with the keys and value types of nccl-tests' schema
 * version 3; further keys are ours. Kept in memory and written at the end,
 * also when that comes early.
 */
#ifndef DICOMM_PERFTEST_REPORT_JSON_H
#define DICOMM_PERFTEST_REPORT_JSON_H

#include "perftest/report/report.h"

/* Creates the file (a taken name gets .0, .1, ...), whose name goes to `path`.
 * Ends the program if that fails. */
void json_open(const struct options *o, int argc, char **argv,
	       int library_version, char *path, size_t len);
void json_config(const struct options *o, int procs,
		 const struct report_device *devices, int n);
void json_row(const struct options *o, const struct report_row *row);
void json_foot(const struct report_end *end);
/* -1 with errno if the file could not be written. Nothing if not open. */
int json_close(const char *last_error);

#endif
