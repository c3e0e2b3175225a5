/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out whether the host can access the memory of a call. */
#include "src/core/host_access.h"

#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/core/comm.h"

/* Devices and the host allocate whole pages of this size. */
#define PAGE_SHIFT 12
#define PAGES 1024
/* The size of a signal set in the kernel, and an operation that
 * rt_sigprocmask(2) does not have. */
#define SIGNALS_BYTES 8
#define NO_WAY -1

_Atomic bool host_access_wanted;
/* Host pages that were checked. Each page has one slot in this table, which it
 * shares with others. */
static _Atomic uintptr_t seen[PAGES];

static _Atomic uintptr_t *place(uintptr_t page)
{
	return &seen[(page ^ page >> 10) % PAGES];
}

static uintptr_t page_of(const void *at)
{
	return (uintptr_t)at >> PAGE_SHIFT;
}

static bool is_seen(uintptr_t page)
{
	return atomic_load_explicit(place(page), memory_order_relaxed) == page;
}

bool host_access_knows(const void *send, size_t sent, const void *recv,
		       size_t received)
{
	return (!sent || is_seen(page_of(send))) &&
	       (!received || is_seen(page_of(recv)));
}

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

/* The lookup of a library that is not loaded searches for its file, so do it
 * only when further libraries were loaded. */
void host_access_look(void)
{
	static _Atomic unsigned long long looked;
	unsigned long long loaded = 0;

	if (atomic_load_explicit(&host_access_wanted, memory_order_relaxed))
		return;
	dl_iterate_phdr(count, &loaded);
	if (loaded == atomic_load_explicit(&looked, memory_order_relaxed))
		return;
	for (int i = 0; accels[i]; i++)
		if (accels[i]->loaded())
			atomic_store(&host_access_wanted, true);
	atomic_store(&looked, loaded);
}

/* Returns true if the host can read this address. rt_sigprocmask(2) reads the
 * signal set from the address before it checks the operation, so the error
 * tells. */
static bool is_readable(const void *at)
{
	uintptr_t set = (uintptr_t)at & ~(uintptr_t)(SIGNALS_BYTES - 1);

	return !syscall(SYS_rt_sigprocmask, NO_WAY, set, NULL, SIGNALS_BYTES) ||
	       errno != EFAULT;
}

dicomm_result_t host_access_check(const struct dicomm_comm *comm, const char *f,
				  const char *name, const void *at)
{
	uintptr_t page = page_of(at);
	struct accel_owner owner;

	if (is_seen(page))
		return DICOMM_SUCCESS;
	host_access_look();
	if (!atomic_load_explicit(&host_access_wanted, memory_order_relaxed) ||
	    is_readable(at)) {
		atomic_store_explicit(place(page), page, memory_order_relaxed);
		return DICOMM_SUCCESS;
	}
	for (int i = 0; accels[i]; i++)
		if (accels[i]->loaded() && accels[i]->work->owner(at, &owner))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "%s: %s %p is memory of %s:%d, but rank %d "
				    "has %s",
				    f, name, at, accels[i]->name, owner.index,
				    comm->rank, comm->device);
	return DICOMM_SUCCESS;
}
