/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory that neighbour processes can map: one memfd for each allocation.
 * The name of the memfd holds the id of the allocation. An importer opens
 * /proc/PID/fd/FD and reads the id back, so it never maps what a recycled pid
 * or descriptor leads to.
 */
#include "src/accel/host/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/accel/host/allocation.h"
#include "src/accel/host/memory_table.h"
#include "src/base/clock.h"
#include "src/base/cpuinfo.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/memfd.h"

#define FREED_IDS 256

/* How much is made huge pages at a time, and how long all of it may take:
 * regions take a third of that where the machine has nothing else to do. */
#define PIECE_BYTES (4 * ALLOCATION_REGION)
#define COLLAPSE_NS UINT64_C(50000000)
#define COLLAPSE_REGION_NS UINT64_C(1000000)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; older kernels refuse it */
#endif

/* Guarded by FORK_HOST_MEMORY, as alloc and free are */
static struct allocation *live, *spare;
static uint64_t last_id; /* 0 until the first allocation */

static _Atomic uint64_t freed_ids[FREED_IDS];
static _Atomic uint64_t freed_count;

/* The child of a fork sees its parent's memory, which it neither owns nor may
 * export. So it forgets all of it, and does not keep the pages alive. */
static void forget(void)
{
	struct allocation *a;

	while ((a = live)) {
		live = a->next;
		allocation_set(atomic_load(&a->base), atomic_load(&a->bytes),
			       NULL);
		close(atomic_load(&a->fd));
		a->next = spare;
		spare = a;
	}
	last_id = 0;
	memory_table_forget();
	atomic_store(&freed_count, 0);
}

static int host_count(char *why, size_t len)
{
	(void)why;
	(void)len;
	return 1;
}

/* The host has no runtime. */
static bool host_loaded(void)
{
	return false;
}

static dicomm_result_t host_describe(int index, dicomm_device_info_t *info)
{
	if (index != 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host device %d: there is only host:0", index);
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "host");
	snprintf(info->vendor, sizeof(info->vendor), "unknown");
	snprintf(info->description, sizeof(info->description), "CPU");
	cpuinfo_value("vendor_id", info->vendor, sizeof(info->vendor));
	cpuinfo_value("model name", info->description,
		      sizeof(info->description));
	return DICOMM_SUCCESS;
}

static void memfd_name(uint64_t id, char *name, size_t len)
{
	snprintf(name, len, "dicomm-memory-%016" PRIx64, id);
}

static uint64_t page_round(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

/* Map a whole memfd at a multiple of 2 MiB. Kernels give huge pages only to
 * mappings that are aligned like that. */
static void *map_aligned(int fd, uint64_t bytes, int protection)
{
	size_t reserved = bytes + ALLOCATION_REGION;
	uint8_t *start, *base;
	size_t head;

	start = mmap(NULL, reserved, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED)
		return MAP_FAILED;
	head = -(uintptr_t)start & (ALLOCATION_REGION - 1);
	base = mmap(start + head, bytes, protection, MAP_SHARED | MAP_FIXED, fd,
		    0);
	if (base == MAP_FAILED) {
		int error = errno;

		munmap(start, reserved);
		errno = error;
		return MAP_FAILED;
	}
	if (head)
		munmap(start, head);
	munmap(base + bytes, reserved - head - bytes);
	if (bytes >= ALLOCATION_REGION)
		(void)madvise(base, bytes, MADV_HUGEPAGE);
	return base;
}

/*
 * Ask for huge pages now. Many systems give none to shared memory by themselves
 * (shmem_enabled is "never"). Without them, a copy of large buffers runs at two
 * thirds of its speed, and each import faults page by page. The kernel refuses
 * a range without a single page, so touch one. A failure is ignored.
 *
 * On a busy machine a piece may take many times as long as else, and nothing
 * ends the call of the kernel, while a communicator that is aborted waits for
 * it. So what is not done after a while keeps its small pages.
 */
static void collapse(uint8_t *base, uint64_t bytes)
{
	uint64_t whole = bytes & ~(ALLOCATION_REGION - 1), len;
	uint64_t end_ns = clock_ns() + COLLAPSE_NS +
			  whole / ALLOCATION_REGION * COLLAPSE_REGION_NS;

	for (uint64_t at = 0; at < whole && clock_ns() < end_ns; at += len) {
		len = whole - at < PIECE_BYTES ? whole - at : PIECE_BYTES;
		for (uint64_t i = at; i < at + len; i += ALLOCATION_REGION)
			*(volatile uint8_t *)(base + i) = 0;
		(void)madvise(base + at, len, MADV_COLLAPSE);
	}
}

static struct allocation *record_get(void)
{
	struct allocation *a = spare;

	if (a)
		spare = a->next;
	else
		a = calloc(1, sizeof(*a));
	return a;
}

/* Ids start at a random number, so that two processes do not use the same. */
static uint64_t next_id(void)
{
	while (!last_id)
		if (getrandom(&last_id, sizeof(last_id), 0) < 0)
			last_id = (uint64_t)getpid() << 32;
	if (!++last_id)
		++last_id;
	return last_id;
}

static dicomm_result_t alloc_locked(uint64_t bytes, void **ptr)
{
	struct allocation *a;
	dicomm_result_t status;
	uint64_t id = next_id();
	char name[64];
	void *base;
	int fd;

	memfd_name(id, name, sizeof(name));
	fd = memfd_make(name, MFD_ALLOW_SEALING);
	if (fd < 0)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "host memory of %" PRIu64
			    " bytes: memfd_create: %m",
			    bytes);
	if (memfd_grow(fd, bytes) < 0) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "host memory of %" PRIu64 " bytes: resize: %m",
			      bytes);
		goto close_fd;
	}
	/* A neighbour that maps the memfd relies on its size. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	base = map_aligned(fd, bytes, PROT_READ | PROT_WRITE);
	if (base == MAP_FAILED) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "host memory of %" PRIu64 " bytes: map: %m",
			      bytes);
		goto close_fd;
	}
	a = record_get();
	if (!a || !allocation_reserve((uintptr_t)base, bytes)) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "host memory of %" PRIu64
			      " bytes: no memory for its record",
			      bytes);
		goto unmap;
	}
	atomic_store(&a->pid, getpid());
	atomic_store(&a->base, (uintptr_t)base);
	atomic_store(&a->bytes, bytes);
	atomic_store(&a->id, id);
	atomic_store(&a->fd, fd);
	a->next = live;
	live = a;
	allocation_set((uintptr_t)base, bytes, a);
	memory_table_add(id, bytes, fd);
	*ptr = base;
	return DICOMM_SUCCESS;

unmap:
	if (a) {
		a->next = spare;
		spare = a;
	}
	munmap(base, bytes);
close_fd:
	close(fd);
	return status;
}

static dicomm_result_t host_alloc(int index, size_t bytes, void **ptr)
{
	dicomm_result_t status;

	if (index != 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host device %d: there is only host:0", index);
	if (!bytes || bytes > (1ul << (ALLOCATION_ADDRESS_BITS - 1)))
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host memory: cannot allocate %zu bytes", bytes);
	fork_add(FORK_HOST_MEMORY, forget);
	fork_lock(FORK_HOST_MEMORY);
	status = alloc_locked(page_round(bytes), ptr);
	fork_unlock(FORK_HOST_MEMORY);
	if (status == DICOMM_SUCCESS)
		collapse(*ptr, page_round(bytes));
	return status;
}

static dicomm_result_t free_locked(void *ptr)
{
	struct allocation *a = allocation_at((uintptr_t)ptr);
	struct allocation **at = &live;
	uint64_t bytes, n;

	if (!a || atomic_load(&a->base) != (uintptr_t)ptr)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host memory: %p was not allocated by this process",
			    ptr);
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	bytes = atomic_load(&a->bytes);
	allocation_set((uintptr_t)ptr, bytes, NULL);
	memory_table_remove(atomic_load(&a->id));
	munmap(ptr, bytes);
	close(atomic_load(&a->fd));

	n = atomic_load(&freed_count);
	atomic_store(&freed_ids[n % FREED_IDS], atomic_load(&a->id));
	atomic_store_explicit(&freed_count, n + 1, memory_order_release);
	a->next = spare;
	spare = a;
	return DICOMM_SUCCESS;
}

static dicomm_result_t host_free(void *ptr)
{
	dicomm_result_t status;

	fork_lock(FORK_HOST_MEMORY);
	status = free_locked(ptr);
	fork_unlock(FORK_HOST_MEMORY);
	return status;
}

/* Returns true if the descriptor is the memfd of that allocation, with
 * its size. */
static bool import_check(int fd, const struct accel_export *e)
{
	char link[64], wanted[64], expected[96], actual[96];
	struct stat st;
	ssize_t n;

	memfd_name(e->id, wanted, sizeof(wanted));
	snprintf(expected, sizeof(expected), "/memfd:%s (deleted)", wanted);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, actual, sizeof(actual) - 1);
	if (n < 0 || fstat(fd, &st) < 0)
		return false;
	actual[n] = '\0';
	return !strcmp(actual, expected) && (uint64_t)st.st_size == e->bytes;
}

dicomm_result_t host_memory_import(const struct accel_export *e, void **base)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	char path[MEMFD_PATH];
	void *mapped;
	int fd;

	if (e->pid <= 0 || e->fd < 0 || !e->bytes ||
	    e->bytes != page_round(e->bytes) ||
	    e->bytes > (1ul << (ALLOCATION_ADDRESS_BITS - 1)) ||
	    e->pid == getpid())
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "host memory: cannot import descriptor %d of "
			    "process %d, %" PRIu64 " bytes",
			    e->fd, e->pid, e->bytes);
	/* The mapping is for loads only; the exporter writes the memory. The
	 * descriptor is opened for writing because a device driver may need the
	 * pages writable even for loads (map_host). */
	fd = memfd_open(e->pid, e->fd, O_RDWR, path);
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE, "host memory: open %s: %m",
			    path);
	if (!import_check(fd, e)) {
		status = FAIL(DICOMM_ERR_REMOTE,
			      "host memory: %s is not allocation %016" PRIx64
			      " any more",
			      path, e->id);
		goto close_fd;
	}
	mapped = map_aligned(fd, e->bytes, PROT_READ);
	if (mapped == MAP_FAILED) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "host memory: map %" PRIu64 " bytes of %s: %m",
			      e->bytes, path);
		goto close_fd;
	}
	*base = mapped;
close_fd:
	close(fd);
	return status;
}

void host_memory_unimport(const struct accel_export *e, void *base)
{
	munmap(base, e->bytes);
}

uint64_t host_memory_freed(uint64_t i, uint64_t *id)
{
	uint64_t n = atomic_load_explicit(&freed_count, memory_order_acquire);
	uint64_t found = atomic_load(&freed_ids[i % FREED_IDS]);

	/* The oldest entry of the ring does not count: the next free may be
	 * overwriting it. */
	if (i >= n || atomic_load(&freed_count) - i >= FREED_IDS)
		found = 0;
	*id = found;
	return n;
}

const struct accel accel_host = {
	.name = "host",
	.count = host_count,
	.loaded = host_loaded,
	.describe = host_describe,
	.alloc = host_alloc,
	.free = host_free,
};
