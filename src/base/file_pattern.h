/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of files that each process has for itself, as DICOMM_DEBUG_FILE. */
#ifndef DICOMM_BASE_FILE_PATTERN_H
#define DICOMM_BASE_FILE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces %h by the host, %p by the process id, %r by the rank (-1: it stays)
 * and %% by a percent sign. Returns false if the path is too long. */
bool file_pattern_expand(const char *pattern, const char *host, int rank,
			 char *path, size_t room);

#endif
