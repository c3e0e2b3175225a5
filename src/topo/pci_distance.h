/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Distances between PCI devices of this machine, and from a thread's cores to
 * them. hwloc reads the topology once. Threads: any.
 */
#ifndef DICOMM_TOPO_PCI_DISTANCE_H
#define DICOMM_TOPO_PCI_DISTANCE_H

#include <stdint.h>

/* Returns the number of steps in the tree of buses, packages and memory from
 * one PCI address ("0000:17:00.0") to another. If `from` is "", returns the
 * steps from the cores that the calling thread may run on to the memory that
 * `to` is near to. Returns UINT32_MAX if the distance is unknown. */
uint32_t pci_distance_steps(const char *from, const char *to);

#endif
