/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/topo/node.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/hash.h"
#include "src/base/host.h"
#include "src/base/thread.h"

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

/* Machines have fewer cores. */
#define CORES_MOST 8192
#define SETS (CORES_MOST / CPU_SETSIZE)
#define SETS_BYTES (SETS * sizeof(cpu_set_t))

/* Finds the cores that the cgroup of this process has. A thread that asks for
 * all cores gets those, also if this process is bound to fewer: other processes
 * use them. Leaves the set empty if the kernel does not tell. */
static void *find_cores(void *arg)
{
	cpu_set_t *cores = arg, all[SETS];

	memset(all, 0xff, sizeof(all));
	if (sched_setaffinity(0, sizeof(all), all) ||
	    sched_getaffinity(0, SETS_BYTES, cores))
		memset(cores, 0, SETS_BYTES);
	return NULL;
}

/* The binding of the caller's thread stays as it is. */
static void count_cores(cpu_set_t cores[SETS])
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread;
	int n;

	node.cores = online > 0 ? (int)online : 1;
	memset(cores, 0, SETS_BYTES);
	if (thread_start(&thread, "dicomm-cores", find_cores, cores))
		return;
	pthread_join(thread, NULL);
	n = CPU_COUNT_S(SETS_BYTES, cores);
	if (n > 0 && n < node.cores)
		node.cores = n;
}

/* Reads a file of a few bytes; returns false if there is none. */
static bool read_line(const char *folder, const char *name, char line[32])
{
	char path[128];
	FILE *f;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = descriptors_fopen(path);
	if (!f)
		return false;
	found = fgets(line, 32, f);
	fclose(f);
	return found;
}

/* As in "1024K" and "32M" */
static size_t parse_size(const char *text)
{
	char *end;
	size_t size = strtoul(text, &end, 10);

	if (*end == 'K')
		size <<= 10;
	else if (*end == 'M')
		size <<= 20;
	return size;
}

/* What the C library knows, from the processor itself */
static size_t size_known(int name)
{
	long size = sysconf(name);

	return size > 0 ? (size_t)size : 0;
}

static void find_caches(size_t core)
{
	char folder[80], line[32];

	for (int i = 0;; i++) {
		size_t *bytes = NULL;

		snprintf(folder, sizeof(folder),
			 "/sys/devices/system/cpu/cpu%zu/cache/index%d", core,
			 i);
		if (!read_line(folder, "level", line))
			break;
		if (*line == '2')
			bytes = &node.core_cache_bytes;
		else if (*line == '3')
			bytes = &node.shared_cache_bytes;
		if (!bytes || !read_line(folder, "type", line) ||
		    *line == 'I' || !read_line(folder, "size", line))
			continue;
		*bytes = parse_size(line);
	}
	/* A virtual machine may hide them there. */
	if (!node.core_cache_bytes)
		node.core_cache_bytes = size_known(_SC_LEVEL2_CACHE_SIZE);
	if (!node.shared_cache_bytes)
		node.shared_cache_bytes = size_known(_SC_LEVEL3_CACHE_SIZE);
}

/* hwloc would tell all this too. But it searches for everything that a machine
 * has, and loads its plugins and what they need, X11 and OpenCL among that,
 * which takes longer than all the rest of init. */
static void find(void)
{
	cpu_set_t cores[SETS];
	size_t first = 0;

	node.identity = find_identity();
	count_cores(cores);
	while (first < CORES_MOST && !CPU_ISSET_S(first, SETS_BYTES, cores))
		first++;
	find_caches(first < CORES_MOST ? first : 0);
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
