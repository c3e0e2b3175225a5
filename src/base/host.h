/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The name of the host that this process runs on, and which ranks share one.
 */
#ifndef DICOMM_BASE_HOST_H
#define DICOMM_BASE_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of DICOMM_HOSTID, or if that is not set, of the host name.
 * Containers on one machine that have different host names count as different
 * hosts, as in other libraries. */
uint64_t host_name_hash(void);

/* Numbers the hosts of n ranks in the order of their first ranks. `host` is
 * what identifies the host of rank 0; that of the next rank lies `stride` bytes
 * behind it. Sets of[rank] to the number of its host, and first[number] to the
 * first rank of a host; both have room for n. Returns the number of hosts. */
uint32_t host_number_all(const uint64_t *host, size_t stride, uint32_t n,
			 uint32_t *of, uint32_t *first);

#endif
