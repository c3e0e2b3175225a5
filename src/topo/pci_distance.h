/* SPDX-License-Identifier: BSD-3-Clause */
/* Where things are on the buses of this machine. Found once; any thread. */
#ifndef DICOMM_TOPO_PCI_DISTANCE_H
#define DICOMM_TOPO_PCI_DISTANCE_H

#include <stdint.h>

/* Steps in the tree of buses, packages and memory from one PCI address
 * ("0000:17:00.0") to another; from "" it is the cores that the calling thread
 * may run on, to the memory that the other is near to. UINT32_MAX: unknown. */
uint32_t pci_distance_steps(const char *from, const char *to);

#endif
