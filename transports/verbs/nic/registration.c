/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cache of memory registrations of one NIC.
 *
 * The library does not learn when a user frees memory, so a registration may
 * not outlive the last verbs_mr_put(). Host allocations of dicomm_mem_alloc are
 * the exception: each has a number that is never reused, so these stay
 * registered until they are freed.
 *
 * A registration of device memory lives exactly as long as its references. All
 * callers that pass the driver's number of the same allocation share it.
 * src/device/user_buffer.c notices by that number if the memory was freed.
 */
#include "transports/verbs/nic/registration.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/accel/accel.h"
#include "src/accel/host/memory.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "transports/transport.h"
#include "transports/verbs/nic/device_memory.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

/* `m` is in no list. */
static void dereg(struct verbs_mr *m)
{
	if (ibv_dereg_mr(m->mr))
		log_warn("verbs: release the registration of %zu bytes: %m",
			 m->len);
	free(m);
}

static void destroy(struct verbs_mr **at)
{
	struct verbs_mr *m = *at;

	*at = m->next;
	dereg(m);
}

/* Drop the registrations of host allocations that were freed since the
 * last call. */
static void drop_freed(struct verbs_nic *nic)
{
	uint64_t id, n = host_memory_freed(nic->freed_seen, &id);

	while (nic->freed_seen < n) {
		struct verbs_mr **at = &nic->mrs;

		host_memory_freed(nic->freed_seen++, &id);
		/* The list of freed allocations is short; id 0 means that it
		 * has wrapped. Then all registrations that are not in use
		 * are dropped. */
		while (*at) {
			if ((*at)->id && (!id || (*at)->id == id) &&
			    !(*at)->refs)
				destroy(at);
			else
				at = &(*at)->next;
		}
	}
}

static struct verbs_mr *find(struct verbs_nic *nic, uintptr_t base, size_t len,
			     bool written, uint64_t id,
			     const struct accel *accel)
{
	for (struct verbs_mr *m = nic->mrs; m; m = m->next)
		if (m->id == id && m->accel == accel && (m->refs || id) &&
		    base >= m->base && base - m->base <= m->len &&
		    len <= m->len - (base - m->base) &&
		    (m->written || !written))
			return m;
	return NULL;
}

/* Returns the access flags. Relaxed ordering is safe: the reader waits for a
 * completion, and writes do not overtake that. */
static unsigned access_of(const struct verbs_nic *nic, bool written)
{
	unsigned access = IBV_ACCESS_REMOTE_READ;

	if (written)
		access |= IBV_ACCESS_LOCAL_WRITE;
	/* Over iWARP, the destination of a read is named by a remote key. */
	if (written && nic->fabric == VERBS_IWARP)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (config_bool(CONFIG_IB_PCI_RELAXED_ORDERING))
		access |= IBV_ACCESS_RELAXED_ORDERING;
	return access;
}

static void describe(struct verbs_nic *nic, struct verbs_mr *m, uintptr_t base,
		     size_t len, bool written)
{
	m->base = base;
	m->len = len;
	m->written = written;
	atomic_fetch_add(&nic->registrations, 1);
}

static void add(struct verbs_nic *nic, struct verbs_mr *m)
{
	m->next = nic->mrs;
	nic->mrs = m;
}

const char *verbs_memory_hint(void)
{
	return errno == ENOMEM ? " (is ulimit -l, the limit of locked memory, "
				 "too low?)"
			       : "";
}

static dicomm_result_t reg(struct verbs_nic *nic, uintptr_t base, size_t len,
			   bool written, struct verbs_mr **out)
{
	struct verbs_mr *m = calloc(1, sizeof(*m));

	if (!m)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	m->mr = ibv_reg_mr(nic->pd, (void *)base, len, access_of(nic, written));
	if (!m->mr) {
		dicomm_result_t status =
			FAIL(errno == ENOMEM ? DICOMM_ERR_NO_MEMORY
					     : DICOMM_ERR_SYSTEM,
			     "verbs %s: register %zu bytes at %p: %m%s",
			     nic->name, len, (void *)base, verbs_memory_hint());

		free(m);
		return status;
	}
	describe(nic, m, base, len, written);
	add(nic, m);
	*out = m;
	return DICOMM_SUCCESS;
}

/* Register device memory. The result is in no list yet. */
static dicomm_result_t reg_device(struct verbs_nic *nic,
				  const struct tp_region *r,
				  struct verbs_mr **out, char *how, size_t len)
{
	struct verbs_mr *m = calloc(1, sizeof(*m));

	if (!m)
		return FAIL(DICOMM_ERR_NO_MEMORY, "verbs: out of memory");
	m->mr = verbs_reg_device_memory(nic, r, access_of(nic, true), how, len);
	if (!m->mr) {
		free(m);
		return DICOMM_ERR_UNSUPPORTED;
	}
	snprintf(m->how, sizeof(m->how), "%s", how);
	m->accel = r->accel;
	m->id = r->id;
	describe(nic, m, (uintptr_t)r->addr, r->len, true);
	*out = m;
	return DICOMM_SUCCESS;
}

static dicomm_result_t get(struct verbs_nic *nic, const void *addr, size_t len,
			   bool written, struct verbs_mr **out)
{
	uintptr_t base = (uintptr_t)addr;
	struct accel_export where = {.id = 0};
	size_t offset;

	drop_freed(nic);
	if (host_memory_find(addr, len, &where, &offset)) {
		base -= offset;
		len = where.bytes;
		written = true;
	}
	*out = find(nic, base, len, written, where.id, NULL);
	if (!*out)
		TRY(reg(nic, base, len, written, out));
	(*out)->id = where.id;
	(*out)->refs++;
	return DICOMM_SUCCESS;
}

dicomm_result_t verbs_mr_get(struct verbs_nic *nic, const void *addr,
			     size_t len, bool written, struct verbs_mr **out)
{
	dicomm_result_t status;

	pthread_mutex_lock(&nic->lock);
	status = get(nic, addr, len, written, out);
	pthread_mutex_unlock(&nic->lock);
	return status;
}

/* Take a reference to a registration that exists. Returns NULL if there is
 * none. The caller holds nic->lock. */
static struct verbs_mr *share(struct verbs_nic *nic, const struct tp_region *r,
			      char *how, size_t len)
{
	struct verbs_mr *m =
		find(nic, (uintptr_t)r->addr, r->len, true, r->id, r->accel);

	if (!m)
		return NULL;
	m->refs++;
	snprintf(how, len, "%s", m->how);
	return m;
}

/* Registering memory of a device may take long, and may wait for other threads,
 * so nic->lock is not held meanwhile. If two threads register the same memory,
 * the first registration is kept. */
dicomm_result_t verbs_mr_get_device(struct verbs_nic *nic,
				    const struct tp_region *region,
				    struct verbs_mr **out, char *how,
				    size_t len)
{
	struct verbs_mr *mine = NULL, *m;
	dicomm_result_t status;

	pthread_mutex_lock(&nic->lock);
	m = share(nic, region, how, len);
	pthread_mutex_unlock(&nic->lock);
	if (m) {
		*out = m;
		return DICOMM_SUCCESS;
	}
	status = reg_device(nic, region, &mine, how, len);
	pthread_mutex_lock(&nic->lock);
	m = share(nic, region, how, len);
	if (!m && mine) {
		add(nic, mine);
		mine->refs = 1;
		m = mine;
		mine = NULL;
	}
	pthread_mutex_unlock(&nic->lock);
	if (mine)
		dereg(mine);
	if (!m)
		return status;
	*out = m;
	return DICOMM_SUCCESS;
}

/* Returns true if the allocation still exists. It may have been freed while the
 * registration was in use, and its address may belong to another one now. */
static bool is_there(const struct verbs_mr *mr)
{
	struct accel_export where;
	size_t offset;

	return host_memory_find((void *)mr->base, mr->len, &where, &offset) &&
	       where.id == mr->id;
}

void verbs_mr_put(struct verbs_nic *nic, struct verbs_mr *mr)
{
	struct verbs_mr **at = &nic->mrs, *last = NULL;

	pthread_mutex_lock(&nic->lock);
	drop_freed(nic);
	if (!--mr->refs && (!mr->id || mr->accel || !is_there(mr))) {
		while (*at != mr)
			at = &(*at)->next;
		*at = mr->next;
		last = mr;
	}
	pthread_mutex_unlock(&nic->lock);
	if (last)
		dereg(last);
}

void verbs_mr_free_all(struct verbs_nic *nic)
{
	while (nic->mrs)
		destroy(&nic->mrs);
}
