/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine that this process runs on. It is examined once. Threads: any.
 */
#ifndef DICOMM_TOPO_NODE_H
#define DICOMM_TOPO_NODE_H

#include <stddef.h>
#include <stdint.h>

/* Returns a number that is equal for processes that share a kernel, a pid
 * namespace and the name of their host, or that have the same DICOMM_HOSTID. */
uint64_t node_identity(void);
/* Returns how many cores the processes of this machine may run on, all
 * together. In a container with cores of its own, only those count. */
int node_cores(void);
/* Returns the size of one core's second-level cache, or 0 if it is unknown. */
size_t node_core_cache_bytes(void);
/*
 * Returns how many bytes each of that many ranks of this machine is likely to
 * find in a cache when it uses them again, or 0 if that is unknown. At most
 * four times the second-level cache, because other programs or virtual machines
 * may use the third level, too.
 */
size_t node_cache_bytes(int ranks);

#endif
