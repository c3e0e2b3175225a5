/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors of this process: how many it may have, and which numbers those of
 * the library get. Any thread.
 *
 * A process may start with descriptors 0, 1 and 2 closed. A socket that got one
 * of these numbers would take what the program prints. So every descriptor that
 * the library opens passes through descriptors_high(), or is opened by one of
 * the functions below.
 */
#ifndef DICOMM_BASE_DESCRIPTORS_H
#define DICOMM_BASE_DESCRIPTORS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>

/* What is left to the program, beside those that the library needs. */
#define DESCRIPTORS_OF_OTHERS 256

/* The soft limit; UINT64_MAX: there is none, or nobody can say. */
uint64_t descriptors_limit(void);
/* Raise it to so many, or as far as the hard limit lets us; what it is then. */
uint64_t descriptors_raise(uint64_t wanted);

/* The same open file at a number above 2, closed on exec: fd itself, or a
 * duplicate in its place. -1 with errno, and fd is closed, where there is none;
 * a negative fd stays as it is, with errno. */
int descriptors_high(int fd);
/* As fopen(path, "re") and opendir(path) */
FILE *descriptors_fopen(const char *path);
DIR *descriptors_opendir(const char *path);

/* Before a library of others opens descriptors for a long time, as UCX does:
 * let /dev/null take those of 0, 1 and 2 that are closed. They stay. */
void descriptors_fill_standard(void);

#endif
