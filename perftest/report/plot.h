/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws bandwidth and latency over size. */
#ifndef DICOMM_PERFTEST_REPORT_PLOT_H
#define DICOMM_PERFTEST_REPORT_PLOT_H

#include <stdio.h>

#include "perftest/report/report.h"

/* Keeps a row for the picture. */
void plot_row(const struct report_row *row);
/* Draws the rows and forgets them. Returns -1, with the reason in error, on
 * failure. */
int plot_draw(const struct options *o, int ranks, char *error, size_t len);
/* Writes the gnuplot script for a picture in `path`. */
void plot_script(FILE *out, const struct options *o, int ranks,
		 const char *path);

#endif
