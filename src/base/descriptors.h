/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * File descriptors of this process: how many it may have, and which numbers the
 * library's descriptors get. Any thread may call these functions.
 *
 * A process may start with descriptors 0, 1 and 2 closed. If a socket got one
 * of these numbers, the output of the program would go to it. So the library
 * passes every descriptor that it opens through descriptors_high(), or opens it
 * with one of the functions below.
 */
#ifndef DICOMM_BASE_DESCRIPTORS_H
#define DICOMM_BASE_DESCRIPTORS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

/* The number of descriptors to leave to the program, in addition to those that
 * the library needs. */
#define DESCRIPTORS_OF_OTHERS 256

/* Returns the soft limit; UINT64_MAX if there is none or it is unknown. */
uint64_t descriptors_limit(void);
/* Raises the soft limit to `wanted`, or as far as the hard limit allows.
 * Returns the new limit. */
uint64_t descriptors_raise(uint64_t wanted);

/* Returns a descriptor above 2 for the same open file, closed on exec: fd
 * itself, or a duplicate that replaces it. If there is no descriptor left,
 * closes fd, sets errno and returns -1. A negative fd is returned as it is,
 * with errno unchanged. */
int descriptors_high(int fd);
/* As fopen(path, "re") and opendir(path). */
FILE *descriptors_fopen(const char *path);
DIR *descriptors_opendir(const char *path);

/* Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, and
 * leaves it open. Called before a foreign library, such as UCX, opens
 * descriptors that it keeps. */
void descriptors_fill_standard(void);

#endif
