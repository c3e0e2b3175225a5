/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels that were built for a device, kept on disk for later processes, in
 * the folder of DICOMM_CACHE_DIR. One file holds one binary. Its name is a hash
 * of all that the binary depends on.
 *
 * A file counts only if it is whole and belongs to the user of this process. A
 * damaged or foreign file is ignored, and so is a folder that cannot be used:
 * then the caller builds the kernel, and only a line of level debug is logged.
 * Any user may remove any file at any time.
 *
 * Any thread may call these functions, in any number of processes.
 */
#ifndef DICOMM_ACCEL_LAUNCH_BINARY_CACHE_H
#define DICOMM_ACCEL_LAUNCH_BINARY_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A build that takes longer than this is logged at level info. */
#define BINARY_SLOW_MS 2000

struct binary_key {
	uint8_t hash[32];
};

/* Returns false if the cache is off, or if a file could not be written before.
 * Then the caller need not fetch the binary from the compiler. */
bool binary_cache_works(void);
/* Hashes n texts: those that describe the device, its driver and the compiler,
 * and the options and the source. Different lists have different keys, also if
 * their texts are equal when they are joined. */
void binary_cache_key(struct binary_key *key, const char *const *texts,
		      size_t n);
/* Returns the binary and its size, in memory that the caller frees, or NULL if
 * none is kept. A NUL follows the binary. */
void *binary_cache_load(const struct binary_key *key, size_t *len);
/* Keeps a binary; replaces one with the same key. Does nothing if it cannot be
 * written. */
void binary_cache_keep(const struct binary_key *key, const void *binary,
		       size_t len);

#endif
