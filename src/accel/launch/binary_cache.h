/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels that were built for a device, kept on disk for later processes, in
 * the folder of DICOMM_CACHE_DIR. One file holds one binary. Its name is a hash
 * of all that the binary depends on.
 *
 * A file counts only if it is whole and belongs to the user of this process. So
 * a damaged or foreign one is as good as none, and so is a folder that cannot
 * be used: then the caller builds, and nobody but a line of level debug says
 * so. Any user may remove any file at any time.
 *
 * Any thread may call these functions, in any number of processes.
 */
#ifndef DICOMM_ACCEL_LAUNCH_BINARY_CACHE_H
#define DICOMM_ACCEL_LAUNCH_BINARY_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* To make a binary that takes longer is worth a line of level info. */
#define BINARY_SLOW_MS 2000

struct binary_key {
	uint8_t hash[32];
};

/* Returns false if nothing is kept: the user says so, or a file could not be
 * written. Then the caller need not fetch a binary. */
bool binary_cache_works(void);
/* Hashes n texts: those that describe the device, its driver and the compiler,
 * and the options and the source. Different lists have different keys, also if
 * their texts would be one another's when joined. */
void binary_cache_key(struct binary_key *key, const char *const *texts,
		      size_t n);
/* Returns the binary and its size, in memory that the caller frees, or NULL if
 * none is kept. A NUL follows the binary. */
void *binary_cache_load(const struct binary_key *key, size_t *len);
/* Keeps a binary, in place of one with that key, or does nothing if that is not
 * possible. */
void binary_cache_keep(const struct binary_key *key, const void *binary,
		       size_t len);

#endif
