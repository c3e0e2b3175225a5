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

/* Devices and the host allocate whole pages. */
#define PAGE_SHIFT 12
#define PAGES 1024
/* Size of a signal set in the kernel, and an operation on it that does not
 * exist */
#define SIGNALS_BYTES 8
#define NO_WAY -1

_Atomic bool host_access_wanted;
/* Host pages that were checked; a page has one slot of this table */
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

/* A lookup of a library that is not loaded searches for its file. So look only
 * when new libraries were loaded. */
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

/* The kernel reads the signal set from this address before it sees that the
 * operation does not exist. So the error says whether the host can read it. */
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
