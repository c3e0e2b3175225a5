/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs gnuplot on a program that the caller writes, for one picture. */
#ifndef DICOMM_PERFTEST_BASE_GNUPLOT_H
#define DICOMM_PERFTEST_BASE_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

/* Is gnuplot there? To be asked before hours of measuring; says so if not. */
bool gnuplot_possible(void);
/* May a picture be called so (.svg, .png)? */
bool gnuplot_draws(const char *path);
/* Terminal and output of the program, for a picture in `path`. */
void gnuplot_head(FILE *out, const char *path, int width, int height);
/* A text inside single quotes. */
void gnuplot_quote(FILE *out, const char *text);
/* Run what write() writes. -1 with the reason in error. */
int gnuplot_draw(const char *path, void (*write)(FILE *out, void *ctx),
		 void *ctx, char *error, size_t len);

#endif
