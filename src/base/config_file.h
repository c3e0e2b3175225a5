/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Variables from files, for what an administrator or a user sets once: lines
 * NAME=VALUE with DICOMM_ names, blank ones, and those that begin with #. The
 * first file that has a name counts: that of DICOMM_CONF, or ~/.dicomm.conf if
 * that is not set, then /etc/dicomm.conf. The environment goes before all. The
 * files are read once, by config_files_read(); the rest may be called by any
 * thread after that.
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
/* Returns what the first line for that variable says, or NULL. */
const struct config_line *config_file_line(const char *name);
/* Returns line i of all files, of whatever name, or NULL behind the last. */
const struct config_line *config_file_line_at(int i);
/* Returns what is wrong with the files, or "". They may have said more than was
 * understood, so nothing should begin without it. */
const char *config_file_error(void);

#endif
