/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The results as JSON, with the keys and value types of version 3 of
 * nccl-tests' schema; there are further keys. The report is kept in memory and
 * written at the end, also if the end comes early.
 */
#ifndef DICOMM_PERFTEST_REPORT_JSON_H
#define DICOMM_PERFTEST_REPORT_JSON_H

#include "perftest/report/report.h"

/* Creates the file; if the name is taken, appends .0, .1, ... Stores the name
 * in `path`. Ends the program on failure. */
void json_open(const struct options *o, int argc, char **argv,
	       int library_version, char *path, size_t len);
void json_config(const struct options *o, int procs,
		 const struct report_device *devices, int n);
void json_row(const struct options *o, const struct report_row *row);
void json_foot(const struct report_end *end);
/* Writes the file. Returns -1 and sets errno if that fails. Does nothing if it
 * is not open. */
int json_close(const char *last_error);

#endif
