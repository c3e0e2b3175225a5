/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Variables from files, for what an administrator or a user sets once: lines
 * NAME=VALUE with DICOMM_ names, blank ones, and those that begin with #. A
 * name counts in the first file that has it: first the file of DICOMM_CONF, or
 * ~/.dicomm.conf if that is not set, then /etc/dicomm.conf. The environment
 * takes precedence over both. The files are read once, by config_files_read();
 * the rest may be called by any thread after that.
 */
#ifndef DICOMM_BASE_CONFIG_FILE_H
#define DICOMM_BASE_CONFIG_FILE_H

#include <stdbool.h>

struct config_line {
	const char *name, *text; /* "" stands for a value that is not set */
	const char *path;
	int number;   /* from 1 */
	bool exposed; /* others than the owner may read the file */
};

void config_files_read(void);
/* Returns the first line for that variable, or NULL. */
const struct config_line *config_file_line(const char *name);
/* Returns line i of all files, of whatever name, or NULL behind the last. */
const struct config_line *config_file_line_at(int i);
/* Returns what is wrong with the files, or "". If something is, a setting of
 * the user may be missing, so the caller should fail. */
const char *config_file_error(void);

#endif
