/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This machine as a description that DICOMM_TOPO_FILE reads: its name, the rate
 * of its network, and, as a remark, NUMA nodes, NICs, devices, and how far
 * these are from each other.
 */
#ifndef DICOMM_PERFTEST_MACHINE_H
#define DICOMM_PERFTEST_MACHINE_H

#include <hwloc.h>
#include <jansson.h>
#include <stdio.h>

/* A new reference; NULL with the reason on stderr. */
json_t *machine_describe(void);
/* The same for Graphviz. */
void machine_dot(const json_t *description, FILE *out);
/* The NUMA nodes: "node", "bytes" and "cpus" of each. A new reference. */
json_t *machine_numa(hwloc_topology_t t);

#endif
