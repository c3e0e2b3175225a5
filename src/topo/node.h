/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine that this process runs on. It is looked up once. Any thread.
 */
#ifndef DICOMM_TOPO_NODE_H
#define DICOMM_TOPO_NODE_H

#include <stddef.h>
#include <stdint.h>

/* Equal for processes that share a kernel, and the name of their host (or the
 * same DICOMM_HOSTID). */
uint64_t node_identity(void);
/* Cores that processes here may run on, all together: those of the container,
 * if it has its own. */
int node_cores(void);
/* Of the second-level cache of one core; 0 if unknown. */
size_t node_core_cache_bytes(void);
/*
 * Bytes that one of so many ranks here finds in a cache when it comes back to
 * them; 0 if unknown. At most a few times its second level: the third may be
 * shared with strangers, as in a virtual machine.
 */
size_t node_cache_bytes(int ranks);

#endif
