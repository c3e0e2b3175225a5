/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs gnuplot on a script that the caller writes, to draw one picture. */
#ifndef DICOMM_PERFTEST_BASE_GNUPLOT_H
#define DICOMM_PERFTEST_BASE_GNUPLOT_H

#include <stdbool.h>
#include <stdio.h>

/* Returns true if gnuplot can be run; otherwise prints a message. To be called
 * before hours of measuring. */
bool gnuplot_possible(void);
/* Returns true if a picture may have this name, which ends in .svg or .png. */
bool gnuplot_draws(const char *path);
/* Writes the terminal and the output of the script, for a picture in `path`. */
void gnuplot_head(FILE *out, const char *path, int width, int height);
/* Writes a text for use inside single quotes. */
void gnuplot_quote(FILE *out, const char *text);
/* Runs the script that write() writes. Returns -1, with the reason in error, if
 * that fails. */
int gnuplot_draw(const char *path, void (*write)(FILE *out, void *ctx),
		 void *ctx, char *error, size_t len);

#endif
