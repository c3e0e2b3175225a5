/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/topo/node.h"

#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/hash.h"
#include "src/base/host.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	uint64_t identity;
	int cores;
	size_t core_cache_bytes, shared_cache_bytes;
} node;

static uint64_t hash(uint64_t h, const char *text)
{
	return hash_bytes(h, text, strlen(text));
}

static uint64_t find_identity(void)
{
	uint64_t h = host_name_hash();
	char line[128] = "";
	FILE *f;

	if (*config_string(CONFIG_HOSTID))
		return h;
	f = descriptors_fopen("/proc/sys/kernel/random/boot_id");
	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
	}
	h = hash(h, line);
	/* Processes in different pid namespaces cannot access each
	 * other's memory. */
	memset(line, 0, sizeof(line));
	if (readlink("/proc/self/ns/pid", line, sizeof(line) - 1) > 0)
		h = hash(h, line);
	return h;
}

/* Read cores and caches from hwloc. It leaves out cores that the cgroup of a
 * container does not have. It includes cores that this process is not bound to,
 * since other processes use them. */
static void find_parts(void)
{
	hwloc_topology_t t;
	hwloc_obj_t c;
	int cores;

	if (hwloc_topology_init(&t))
		return;
	if (hwloc_topology_load(t) == 0) {
		cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
		if (cores > 0 && cores < node.cores)
			node.cores = cores;
		c = hwloc_get_obj_by_type(t, HWLOC_OBJ_L2CACHE, 0);
		if (c)
			node.core_cache_bytes = (size_t)c->attr->cache.size;
		c = hwloc_get_obj_by_type(t, HWLOC_OBJ_L3CACHE, 0);
		if (c)
			node.shared_cache_bytes = (size_t)c->attr->cache.size;
	}
	hwloc_topology_destroy(t);
}

static void find(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	node.identity = find_identity();
	node.cores = cores > 0 ? (int)cores : 1;
	find_parts();
}

uint64_t node_identity(void)
{
	pthread_once(&once, find);
	return node.identity;
}

int node_cores(void)
{
	pthread_once(&once, find);
	return node.cores;
}

size_t node_core_cache_bytes(void)
{
	pthread_once(&once, find);
	return node.core_cache_bytes;
}

size_t node_cache_bytes(int ranks)
{
	size_t own, share;

	pthread_once(&once, find);
	own = 4 * node.core_cache_bytes;
	share = node.shared_cache_bytes / (size_t)(ranks > 0 ? ranks : 1);
	if (!own || !share)
		return own + share;
	return own < share ? own : share;
}
