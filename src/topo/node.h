/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine that this process runs on. Found once; any thread. */
#ifndef DICOMM_TOPO_NODE_H
#define DICOMM_TOPO_NODE_H

#include <stddef.h>
#include <stdint.h>

/* Equal for processes that share a kernel (or the same DICOMM_HOSTID). */
uint64_t node_identity(void);
/* Cores that a process here may run on. */
int node_cores(void);
/* Bytes of the largest cache that one core sees; 0 if unknown. */
size_t node_cache_bytes(void);

#endif
