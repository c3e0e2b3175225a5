/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which allocation of host memory an address lies in. Each allocation starts at
 * a multiple of 2 MiB. So a 2 MiB region of the address space belongs to at
 * most one allocation, and a two-level table finds it by address without a
 * lock. host.c changes the table under FORK_HOST_MEMORY.
 */
#ifndef DICOMM_ACCEL_HOST_ALLOCATION_H
#define DICOMM_ACCEL_HOST_ALLOCATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ALLOCATION_REGION_SHIFT 21
#define ALLOCATION_REGION (1ul << ALLOCATION_REGION_SHIFT)
#define ALLOCATION_ADDRESS_BITS 48

/* Records are recycled and never freed, since a lookup without a lock may still
 * read one. All fields are written before the table points to the record. */
struct allocation {
	_Atomic uintptr_t base;
	_Atomic uint64_t bytes;
	_Atomic uint64_t id;
	_Atomic int fd;
	_Atomic pid_t pid;
	struct allocation *next; /* in the list of live or of spare records */
};

/* Allocate the parts of the table that a range needs. They are never freed.
 * False: no memory, or no such addresses. */
bool allocation_reserve(uintptr_t base, uint64_t bytes);
/* The range, which is reserved, is of this allocation; NULL: of none. */
void allocation_set(uintptr_t base, uint64_t bytes, struct allocation *a);
/* NULL: none. */
struct allocation *allocation_at(uintptr_t addr);

#endif
