/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws bandwidth and latency over size. */
#ifndef DICOMM_PERFTEST_REPORT_PLOT_H
#define DICOMM_PERFTEST_REPORT_PLOT_H

#include <stdio.h>

#include "perftest/report/report.h"

/* Keep a row for the picture. */
void plot_row(const struct report_row *row);
/* Draw what was kept, and forget it. -1 with the reason in error. */
int plot_draw(const struct options *o, int ranks, char *error, size_t len);
/* The program that gnuplot runs, for a picture in `path`. */
void plot_script(FILE *out, const struct options *o, int ranks,
		 const char *path);

#endif
