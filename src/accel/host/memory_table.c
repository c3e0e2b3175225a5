/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of this process's host memory that neighbours can map. */
#include "src/accel/host/memory_table.h"

#include <stdatomic.h>
#include <string.h>

#include "src/accel/host/memory.h"
#include "src/base/fork.h"
#include "src/base/log.h"

/* How often a reader tries to get a consistent copy. The owner needs only a
 * moment to write a change. */
#define LOOKS 1000

struct entry {
	_Atomic uint64_t id, bytes; /* id 0: free */
	_Atomic int fd;
};

struct memory_table {
	_Atomic uint64_t changes; /* odd while the owner writes */
	struct entry entry[MEMORY_TABLE_ENTRIES];
};

/* The list lies here until memory_table_export() is called, and then in an
 * allocation that neighbours can import. */
static struct memory_table private;
static struct memory_table *board = &private;
static struct accel_export exported;

static struct entry *find(uint64_t id)
{
	for (size_t i = 0; i < MEMORY_TABLE_ENTRIES; i++)
		if (atomic_load(&board->entry[i].id) == id)
			return &board->entry[i];
	return NULL;
}

/* Overwrite an entry. NULL: the list is full, or the id is not listed. */
static void set(struct entry *at, uint64_t id, uint64_t bytes, int fd)
{
	if (!at)
		return;
	atomic_fetch_add(&board->changes, 1);
	atomic_store(&at->id, id);
	atomic_store(&at->bytes, bytes);
	atomic_store(&at->fd, fd);
	atomic_fetch_add(&board->changes, 1);
}

void memory_table_add(uint64_t id, uint64_t bytes, int fd)
{
	set(find(0), id, bytes, fd);
}

void memory_table_remove(uint64_t id)
{
	set(find(id), 0, 0, -1);
}

void memory_table_forget(void)
{
	memset(&private, 0, sizeof(private));
	exported = (struct accel_export){.id = 0};
	board = &private;
}

dicomm_result_t memory_table_export(struct accel_export *e)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	void *page = NULL;
	size_t offset;
	bool done;

	fork_lock(FORK_HOST_MEMORY);
	done = board != &private;
	fork_unlock(FORK_HOST_MEMORY);
	if (!done)
		status = accels[0]->alloc(0, sizeof(*board), &page);
	TRY(status);
	fork_lock(FORK_HOST_MEMORY);
	if (page && board == &private) {
		memcpy(page, board, sizeof(*board));
		host_memory_find(page, sizeof(*board), &exported, &offset);
		board = page;
		page = NULL;
	}
	*e = exported;
	fork_unlock(FORK_HOST_MEMORY);
	/* Another thread has made the page meanwhile. */
	return page ? accels[0]->free(page) : DICOMM_SUCCESS;
}

bool memory_table_read(const struct memory_table *b,
		       const struct accel_export *where, uint64_t *seen,
		       struct accel_export list[MEMORY_TABLE_ENTRIES],
		       size_t *n)
{
	uint64_t before;

	for (int look = 0; look < LOOKS; look++) {
		before = atomic_load(&b->changes);
		if (before == *seen)
			return false;
		*n = 0;
		for (size_t i = 0; i < MEMORY_TABLE_ENTRIES && !(before & 1);
		     i++) {
			const struct entry *at = &b->entry[i];
			uint64_t id = atomic_load(&at->id);

			if (id)
				list[(*n)++] = (struct accel_export){
					.id = id,
					.bytes = atomic_load(&at->bytes),
					.pid = where->pid,
					.fd = atomic_load(&at->fd)};
		}
		if (!(before & 1) && atomic_load(&b->changes) == before) {
			*seen = before;
			return true;
		}
	}
	return false;
}
