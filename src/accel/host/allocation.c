/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/accel/host/allocation.h"

#include <stdlib.h>

#include "src/accel/host/memory.h"

#define LEAF_SHIFT 13
#define LEAF_ENTRIES (1ul << LEAF_SHIFT)
#define ROOT_ENTRIES                                    \
	(1ul << (ALLOCATION_ADDRESS_BITS - LEAF_SHIFT - \
		 ALLOCATION_REGION_SHIFT))

struct leaf {
	struct allocation *_Atomic entry[LEAF_ENTRIES];
};

static struct leaf *_Atomic root[ROOT_ENTRIES];

static struct allocation *_Atomic *table_entry(uintptr_t addr)
{
	uintptr_t region = addr >> ALLOCATION_REGION_SHIFT;
	struct leaf *leaf;

	if (addr >> ALLOCATION_ADDRESS_BITS)
		return NULL;
	leaf = atomic_load_explicit(&root[region >> LEAF_SHIFT],
				    memory_order_acquire);
	return leaf ? &leaf->entry[region & (LEAF_ENTRIES - 1)] : NULL;
}

void allocation_set(uintptr_t base, uint64_t bytes, struct allocation *a)
{
	for (uint64_t at = 0; at < bytes; at += ALLOCATION_REGION)
		atomic_store_explicit(table_entry(base + at), a,
				      memory_order_release);
}

bool allocation_reserve(uintptr_t base, uint64_t bytes)
{
	const int shift = LEAF_SHIFT + ALLOCATION_REGION_SHIFT;

	if ((base + bytes - 1) >> ALLOCATION_ADDRESS_BITS)
		return false;
	for (uintptr_t i = base >> shift; i <= (base + bytes - 1) >> shift;
	     i++) {
		struct leaf *leaf = atomic_load(&root[i]);

		if (leaf)
			continue;
		leaf = calloc(1, sizeof(*leaf));
		if (!leaf)
			return false;
		atomic_store_explicit(&root[i], leaf, memory_order_release);
	}
	return true;
}

struct allocation *allocation_at(uintptr_t addr)
{
	struct allocation *_Atomic *entry = table_entry(addr);

	return entry ? atomic_load_explicit(entry, memory_order_acquire) : NULL;
}

bool host_memory_find(const void *addr, size_t len, struct accel_export *where,
		      size_t *offset)
{
	struct allocation *a = allocation_at((uintptr_t)addr);
	uintptr_t base;
	uint64_t bytes;

	if (!a)
		return false;
	base = atomic_load_explicit(&a->base, memory_order_relaxed);
	bytes = atomic_load_explicit(&a->bytes, memory_order_relaxed);
	if ((uintptr_t)addr < base || (uintptr_t)addr - base > bytes ||
	    len > bytes - ((uintptr_t)addr - base))
		return false;
	*where = (struct accel_export){
		.id = atomic_load_explicit(&a->id, memory_order_relaxed),
		.bytes = bytes,
		.pid = atomic_load_explicit(&a->pid, memory_order_relaxed),
		.fd = atomic_load_explicit(&a->fd, memory_order_relaxed),
	};
	*offset = (uintptr_t)addr - base;
	return true;
}
