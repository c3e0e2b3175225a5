/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References to memory of another rank. There are three kinds:
 *
 * - a pointer, between ranks of one process;
 * - an allocation of dicomm_mem_alloc, which the receiver maps once and keeps;
 * - an address, which the receiver reads by CMA.
 *
 * The ranks of a process share mapped allocations. An allocation is unmapped
 * when its last user in this process drops it: after the owner has listed it as
 * freed, or when the peer is closed.
 */
#include "transports/shm/reference.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/host/memory.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "transports/shm/cma.h"
#include "transports/shm/segment.h"

#define BUCKETS 64

/* 40 bytes, which share a cache line with the head of the line. */
struct ref {
	uint32_t how;
	int32_t pid;
	uint64_t where; /* address; SHM_MAP: offset in the allocation */
	uint64_t id;    /* of the allocation */
	uint64_t bytes; /* of the allocation */
	int32_t fd;     /* of the allocation */
	uint32_t unused;
	uint64_t here; /* address; only with SHM_MAP */
};

_Static_assert(offsetof(struct ref, here) == SHM_REF_BYTES,
	       "what a put copies");
_Static_assert(sizeof(struct ref) == SHM_MAP_REF_BYTES, "what a put copies");

/* An allocation of another process, mapped into this one. */
struct import {
	struct import *next;
	struct accel_export where;
	int refs;
	void *base;
};

/* The use of an import by one peer. */
struct use {
	struct use *next;
	struct import *import; /* counted in import->refs */
	uint64_t id;
	const uint8_t *base;
	uint64_t bytes;
	/* mappings->epoch when a reference to it was last mapped */
	uint64_t epoch;
};

struct shm_mappings {
	struct use *last; /* the use that was found last */
	struct use *bucket[BUCKETS];
	/* How many entries of the owner's list of freed allocations have
	 * been handled. */
	uint64_t seen;
	uint64_t marked; /* entries of that list at the last mark_freed() */
	/* number of calls of mark_freed() that marked something */
	uint64_t epoch;
};

static struct import *imports[BUCKETS];

/* The child's copies of the mappings vanish with its memory. */
static void forget(void)
{
	memset(imports, 0, sizeof(imports));
}

bool shm_ref_make(const struct shm_offer *how, const void *addr, uint64_t len,
		  struct tp_ref *ref)
{
	struct accel_export e;
	struct ref r = {.pid = how->pid, .where = (uintptr_t)addr};
	size_t offset;

	if (how->own) {
		r.how = SHM_POINTER;
	} else if (how->maps && len >= how->map_threshold &&
		   host_memory_find(addr, len, &e, &offset)) {
		r.how = SHM_MAP;
		r.where = offset;
		r.id = e.id;
		r.bytes = e.bytes;
		r.fd = e.fd;
		r.here = (uintptr_t)addr;
	} else if (how->cma && len >= how->cma_threshold) {
		r.how = SHM_CMA;
	} else {
		return false;
	}
	memcpy(ref, &r, sizeof(r));
	return true;
}

enum shm_how shm_ref_how(const struct tp_ref *ref)
{
	struct ref r;

	memcpy(&r, ref, sizeof(r));
	return (enum shm_how)r.how;
}

uint64_t shm_ref_address(const struct tp_ref *ref)
{
	struct ref r;

	memcpy(&r, ref, sizeof(r));
	return r.how == SHM_MAP ? r.here : r.where;
}

dicomm_result_t shm_mappings_create(struct shm_mappings **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? DICOMM_SUCCESS
		    : FAIL(DICOMM_ERR_NO_MEMORY, "shm peer: out of memory");
}

static dicomm_result_t import_get(const struct accel_export *e,
				  struct import **out)
{
	struct import **bucket = &imports[e->id % BUCKETS];
	dicomm_result_t status = DICOMM_SUCCESS;
	struct import *i;

	fork_add(FORK_REFERENCES, forget);
	fork_lock(FORK_REFERENCES);
	for (i = *bucket; i; i = i->next)
		if (i->where.id == e->id && i->where.pid == e->pid &&
		    i->where.bytes == e->bytes)
			break;
	if (i) {
		i->refs++;
		goto unlock;
	}
	i = calloc(1, sizeof(*i));
	if (!i) {
		status =
			FAIL(DICOMM_ERR_NO_MEMORY, "shm import: out of memory");
		goto unlock;
	}
	status = host_memory_import(e, &i->base);
	if (status != DICOMM_SUCCESS) {
		free(i);
		goto unlock;
	}
	i->where = *e;
	i->refs = 1;
	i->next = *bucket;
	*bucket = i;
unlock:
	fork_unlock(FORK_REFERENCES);
	if (status == DICOMM_SUCCESS)
		*out = i;
	return status;
}

static void import_put(struct import *i)
{
	struct import **at = &imports[i->where.id % BUCKETS];

	fork_lock(FORK_REFERENCES);
	if (--i->refs == 0) {
		while (*at != i)
			at = &(*at)->next;
		*at = i->next;
		host_memory_unimport(&i->where, i->base);
		free(i);
	}
	fork_unlock(FORK_REFERENCES);
}

static void use_drop(struct shm_mappings *mappings, struct use **at)
{
	struct use *u = *at;

	*at = u->next;
	if (mappings->last == u)
		mappings->last = NULL;
	import_put(u->import);
	free(u);
}

/* Unmap allocations to which no reference was mapped since that epoch began. */
static void unmap_before(struct shm_mappings *mappings, uint64_t epoch)
{
	for (int b = 0; b < BUCKETS; b++)
		for (struct use **at = &mappings->bucket[b]; *at;)
			if ((*at)->epoch < epoch)
				use_drop(mappings, at);
			else
				at = &(*at)->next;
}

void shm_mappings_destroy(struct shm_mappings *mappings)
{
	if (!mappings)
		return;
	unmap_before(mappings, UINT64_MAX);
	free(mappings);
}

static dicomm_result_t use_add(struct shm_mappings *mappings,
			       const struct ref *r)
{
	struct use **bucket = &mappings->bucket[r->id % BUCKETS];
	struct accel_export e = {
		.id = r->id, .bytes = r->bytes, .pid = r->pid, .fd = r->fd};
	dicomm_result_t status;
	struct use *u;

	u = calloc(1, sizeof(*u));
	if (!u)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm import: out of memory");
	status = import_get(&e, &u->import);
	if (status != DICOMM_SUCCESS) {
		free(u);
		return status;
	}
	u->id = r->id;
	u->base = u->import->base;
	u->bytes = r->bytes;
	u->next = *bucket;
	*bucket = u;
	mappings->last = u;
	return DICOMM_SUCCESS;
}

static dicomm_result_t map_allocation(struct shm_mappings *mappings,
				      const struct ref *r, uint64_t len,
				      const void **ptr)
{
	struct use *u = mappings->last;

	if (!u || u->id != r->id) {
		for (u = mappings->bucket[r->id % BUCKETS]; u; u = u->next)
			if (u->id == r->id)
				break;
		if (!u) {
			dicomm_result_t status;
			bool refused;

			errno = 0;
			log_hold();
			status = use_add(mappings, r);
			refused = status != DICOMM_SUCCESS &&
				  shm_is_refused(errno);
			log_release(!refused);
			if (refused)
				return DICOMM_IN_PROGRESS;
			if (status != DICOMM_SUCCESS)
				return status;
			u = mappings->last;
		}
		mappings->last = u;
	}
	if (len > u->bytes || r->where > u->bytes - len)
		return FAIL(DICOMM_ERR_REMOTE,
			    "shm: a reference to %" PRIu64 " bytes at %" PRIu64
			    " of an allocation of %" PRIu64,
			    len, r->where, u->bytes);
	u->epoch = mappings->epoch;
	*ptr = u->base + r->where;
	return DICOMM_SUCCESS;
}

/* Read a reference. It comes from the peer, so everything is checked before it
 * is used. */
static dicomm_result_t ref_get(const struct shm_segment *seg,
			       const struct tp_ref *ref, struct ref *r)
{
	memcpy(r, ref, sizeof(*r));
	if (r->how < SHM_POINTER || r->how > SHM_CMA || r->pid != seg->pid ||
	    (r->how == SHM_POINTER) != seg->own)
		return FAIL(DICOMM_ERR_REMOTE,
			    "shm: rank %" PRIu32 " sent a bad reference",
			    seg->head->rank);
	return DICOMM_SUCCESS;
}

dicomm_result_t shm_ref_map(struct shm_mappings *mappings,
			    const struct shm_segment *seg,
			    const struct tp_ref *ref, uint64_t len,
			    const void **ptr)
{
	struct ref r;

	TRY(ref_get(seg, ref, &r));
	if (r.how == SHM_CMA)
		return DICOMM_ERR_UNSUPPORTED;
	if (r.how == SHM_MAP)
		return map_allocation(mappings, &r, len, ptr);
	*ptr = (const void *)(uintptr_t)r.where;
	return DICOMM_SUCCESS;
}

dicomm_result_t shm_ref_read(struct shm_mappings *mappings,
			     const struct shm_segment *seg,
			     const struct tp_ref *ref, uint64_t offset,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted, uint64_t *got)
{
	const void *src;
	struct ref r;

	*got = 0;
	TRY(ref_get(seg, ref, &r));
	if (r.how == SHM_CMA)
		return shm_cma_read(seg, r.where + offset, dst, len, aborted,
				    got);
	if (offset > UINT64_MAX - len)
		return FAIL(DICOMM_ERR_REMOTE,
			    "shm: read %" PRIu64 " bytes at %" PRIu64
			    " of a reference",
			    len, offset);
	TRY(shm_ref_map(mappings, seg, ref, offset + len, &src));
	memcpy(dst, (const uint8_t *)src + offset, len);
	return DICOMM_SUCCESS;
}

void shm_freed_publish(struct shm_segment *seg)
{
	struct shm_header *head = seg->head;
	uint64_t id, n = host_memory_freed(seg->published, &id);

	while (seg->published < n) {
		host_memory_freed(seg->published, &id);
		atomic_store(&head->freed_ids[seg->published % SHM_FREED_IDS],
			     id);
		atomic_store_explicit(&head->freed, ++seg->published,
				      memory_order_release);
	}
}

bool shm_mappings_mark_freed(struct shm_mappings *mappings,
			     const struct shm_segment *seg)
{
	uint64_t n =
		atomic_load_explicit(&seg->head->freed, memory_order_acquire);

	if (seg->own || n == mappings->seen)
		return false;
	mappings->marked = n;
	mappings->epoch++;
	return true;
}

static void drop_id(struct shm_mappings *mappings, uint64_t id)
{
	for (struct use **at = &mappings->bucket[id % BUCKETS]; *at;
	     at = &(*at)->next)
		if ((*at)->id == id) {
			use_drop(mappings, at);
			return;
		}
}

void shm_mappings_unmap_marked(struct shm_mappings *mappings,
			       const struct shm_segment *seg)
{
	const struct shm_header *head = seg->head;
	uint64_t first = mappings->seen, i = first;

	for (; i < mappings->marked; i++) {
		uint64_t id = atomic_load(&head->freed_ids[i % SHM_FREED_IDS]);

		/* Check after the id was read that the list has not wrapped
		 * meanwhile. Owners write id 0 if they do not know an id
		 * any more. */
		if (!id || atomic_load(&head->freed) - i >= SHM_FREED_IDS)
			break;
		drop_id(mappings, id);
	}
	/* Some ids are lost, so unmap all that was not used since the mark.
	 * What is unmapped too early is mapped again at its next use. */
	if (i < mappings->marked)
		unmap_before(mappings, mappings->epoch);
	mappings->seen = mappings->marked;
}
