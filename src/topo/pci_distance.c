/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/topo/pci_distance.h"

#include <hwloc.h>
#include <pthread.h>
#include <stddef.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hwloc_topology_t machine; /* NULL: hwloc failed. Never freed. */

static void find(void)
{
	hwloc_topology_t t;

	if (hwloc_topology_init(&t))
		return;
	/* Leave out hwloc's "pci" component, which loads the names of all
	 * vendors. sysfs has all that is needed. */
	hwloc_topology_set_components(
		t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
	/* Keep bridges and PCI devices, but not devices that only their drivers
	 * know: hwloc would start those drivers in the user's process. */
	hwloc_topology_set_type_filter(t, HWLOC_OBJ_BRIDGE,
				       HWLOC_TYPE_FILTER_KEEP_ALL);
	hwloc_topology_set_type_filter(t, HWLOC_OBJ_PCI_DEVICE,
				       HWLOC_TYPE_FILTER_KEEP_ALL);
	if (hwloc_topology_load(t) == 0)
		machine = t;
	else
		hwloc_topology_destroy(t);
}

/* Count the steps up to the common ancestor and down. hwloc's own search for
 * that does not work here: the depths of buses are negative, and it runs beyond
 * the root. */
static uint32_t steps(hwloc_obj_t a, hwloc_obj_t b)
{
	for (uint32_t up = 0; a; a = a->parent, up++) {
		uint32_t down = 0;

		for (hwloc_obj_t o = b; o; o = o->parent, down++)
			if (o == a)
				return up + down;
	}
	return UINT32_MAX;
}

/* Returns the smallest part of the machine that has all cores of this
 * thread. */
static hwloc_obj_t cores(void)
{
	hwloc_cpuset_t set = hwloc_bitmap_alloc();
	hwloc_obj_t part = NULL;

	if (set && !hwloc_get_cpubind(machine, set, HWLOC_CPUBIND_THREAD))
		part = hwloc_get_obj_covering_cpuset(machine, set);
	hwloc_bitmap_free(set);
	return part ? part : hwloc_get_root_obj(machine);
}

uint32_t pci_distance_steps(const char *from, const char *to)
{
	hwloc_obj_t a, b;

	pthread_once(&once, find);
	if (!machine)
		return UINT32_MAX;
	a = *from ? hwloc_get_pcidev_by_busidstring(machine, from) : cores();
	b = *to ? hwloc_get_pcidev_by_busidstring(machine, to) : NULL;
	if (!a || !b)
		return UINT32_MAX;
	if (*from)
		return steps(a, b);
	b = hwloc_get_non_io_ancestor_obj(machine, b);
	/* If the device's memory is within the cores' part, it is near to no
	 * core in particular, so the distance is 0. */
	return hwloc_obj_is_in_subtree(machine, b, a) ? 0 : steps(a, b);
}
