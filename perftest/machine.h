/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Describes this machine as DICOMM_TOPO_FILE reads it: its name and the rate of
 * its network. As a remark, adds its NUMA nodes, NICs and devices, and how far
 * these are from each other.
 */
#ifndef DICOMM_PERFTEST_MACHINE_H
#define DICOMM_PERFTEST_MACHINE_H

#include <hwloc.h>
#include <jansson.h>
#include <stdio.h>

/* Returns a new reference. Returns NULL, and prints the reason on stderr, on
 * failure. */
json_t *machine_describe(void);
/* Writes the description for Graphviz. */
void machine_dot(const json_t *description, FILE *out);
/* Returns the NUMA nodes, with "node", "bytes" and "cpus" of each, as a new
 * reference. */
json_t *machine_numa(hwloc_topology_t t);

#endif
