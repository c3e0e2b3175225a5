/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps host memory of neighbours for this rank's device. */
#include "src/memory/host_map.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "src/accel/host/memory.h"
#include "src/accel/host/memory_table.h"
#include "src/base/log.h"
#include "src/memory/blocked_streams.h"

struct host_map {
	struct deferred deferred; /* unmaps the memory and frees this struct */
	struct accel_export where;
	uint8_t *base;   /* address of the host */
	uint8_t *device; /* address of the device; NULL: not mapped for it */
	struct host_map *next;
};

struct host_maps {
	const struct accel_work *work;
	int index;
	struct accel_export where; /* export of the board */
	void *board;
	uint64_t seen; /* version of the board that was followed */
	struct accel_export listed[MEMORY_TABLE_ENTRIES];
	size_t nlisted;
	struct host_map *first;
	pthread_mutex_t lock; /* guards the list of maps */
};

static bool destroy(struct deferred *deferred)
{
	struct host_map *p = (struct host_map *)deferred;

	if (p->device)
		deferred->work->unmap_host(deferred->index, p->base);
	host_memory_unimport(&p->where, p->base);
	free(p);
	return true;
}

/* Map an allocation for the host. */
static dicomm_result_t create(const struct host_maps *maps,
			      const struct accel_export *where,
			      struct host_map **out)
{
	struct host_map *p = calloc(1, sizeof(*p));
	dicomm_result_t status;
	void *base;

	if (!p)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	status = host_memory_import(where, &base);
	if (status != DICOMM_SUCCESS) {
		free(p);
		return status;
	}
	p->deferred = (struct deferred){
		.work = maps->work, .index = maps->index, .go = destroy};
	p->where = *where;
	p->base = base;
	*out = p;
	return DICOMM_SUCCESS;
}

static struct host_map *find(struct host_maps *maps, uint64_t id)
{
	struct host_map *p = maps->first;

	while (p && p->where.id != id)
		p = p->next;
	return p;
}

static const struct accel_export *find_listed(const struct host_maps *maps,
					      uint64_t id)
{
	for (size_t i = 0; i < maps->nlisted; i++)
		if (maps->listed[i].id == id)
			return &maps->listed[i];
	return NULL;
}

/* Take maps out of the list whose allocations the board does not list any more.
 * The caller holds the lock, and unmaps them. */
static struct host_map *take_gone(struct host_maps *maps)
{
	struct host_map *gone = NULL;

	for (struct host_map **at = &maps->first; *at;) {
		struct host_map *p = *at;

		if (find_listed(maps, p->where.id)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->next = gone;
		gone = p;
	}
	return gone;
}

static void add(struct host_maps *maps, struct host_map *p)
{
	pthread_mutex_lock(&maps->lock);
	p->next = maps->first;
	maps->first = p;
	pthread_mutex_unlock(&maps->lock);
}

/* Map an allocation for the device, and for the host if that is still to
 * be done. */
static void provide(struct host_maps *maps, const struct accel_export *where)
{
	struct host_map *p;
	void *device = NULL;

	pthread_mutex_lock(&maps->lock);
	p = find(maps, where->id);
	pthread_mutex_unlock(&maps->lock);
	if ((p && p->device) || where->id == maps->where.id)
		return;
	if (!p) {
		if (create(maps, where, &p) != DICOMM_SUCCESS)
			return;
		add(maps, p);
	}
	if (maps->work->map_host(maps->index, p->base, p->where.bytes, true,
				 &device) != DICOMM_SUCCESS)
		log_info("memory of process %d is not read in place",
			 where->pid);
	pthread_mutex_lock(&maps->lock);
	p->device = device;
	pthread_mutex_unlock(&maps->lock);
}

/* Follow the board. Called while no stream is blocked. */
static void follow(struct host_maps *maps)
{
	struct host_map *p, *next;

	if (!memory_table_read(maps->board, &maps->where, &maps->seen,
			       maps->listed, &maps->nlisted))
		return;
	pthread_mutex_lock(&maps->lock);
	p = take_gone(maps);
	pthread_mutex_unlock(&maps->lock);
	for (; p; p = next) {
		next = p->next;
		destroy(&p->deferred);
	}
	for (size_t i = 0; i < maps->nlisted; i++)
		provide(maps, &maps->listed[i]);
}

void host_map_refresh(struct host_maps *maps)
{
	/* A log sink may want the lock, so messages are kept until it
	 * is released. Memory that its owner has freed is no error. */
	log_hold();
	log_demote(true);
	if (streams_unblocked_begin(maps->work, maps->index)) {
		follow(maps);
		streams_unblocked_end();
	}
	log_demote(false);
	log_release(true);
}

dicomm_result_t host_map_find(struct host_maps *maps,
			      const struct accel_export *where, uint64_t offset,
			      uint64_t bytes, const void **at, bool *seen)
{
	struct host_map *p;

	pthread_mutex_lock(&maps->lock);
	p = find(maps, where->id);
	pthread_mutex_unlock(&maps->lock);
	if (!p) {
		TRY(create(maps, where, &p));
		add(maps, p);
	}
	if (bytes > p->where.bytes || offset > p->where.bytes - bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "a reference to %" PRIu64 " bytes at %" PRIu64
			    " of an allocation of %" PRIu64,
			    bytes, offset, p->where.bytes);
	pthread_mutex_lock(&maps->lock);
	*seen = p->device;
	*at = (p->device ? p->device : p->base) + offset;
	pthread_mutex_unlock(&maps->lock);
	return DICOMM_SUCCESS;
}

/* Find out whether the device can read memory of this kind. */
static dicomm_result_t try_board(const struct host_maps *maps)
{
	dicomm_result_t status;
	void *device = NULL;
	struct host_map *p;

	TRY(create(maps, &maps->where, &p));
	status = maps->work->map_host(maps->index, p->base, p->where.bytes,
				      true, &device);
	p->device = device;
	deferred_run(&p->deferred);
	return status;
}

dicomm_result_t host_map_open(const struct accel_work *work, int index,
			      const struct accel_export *board,
			      struct host_maps **out)
{
	struct host_maps *maps = calloc(1, sizeof(*maps));
	dicomm_result_t status;

	if (!maps)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	maps->work = work;
	maps->index = index;
	maps->where = *board;
	status = host_memory_import(board, &maps->board);
	if (status != DICOMM_SUCCESS)
		goto free_maps;
	status = try_board(maps);
	if (status != DICOMM_SUCCESS)
		goto unimport;
	maps->seen = UINT64_MAX;
	pthread_mutex_init(&maps->lock, NULL);
	host_map_refresh(maps);
	*out = maps;
	return DICOMM_SUCCESS;

unimport:
	host_memory_unimport(board, maps->board);
free_maps:
	free(maps);
	return status;
}

void host_map_close(struct host_maps *maps)
{
	struct host_map *p, *next;

	if (!maps)
		return;
	for (p = maps->first; p; p = next) {
		next = p->next;
		deferred_run(&p->deferred);
	}
	host_memory_unimport(&maps->where, maps->board);
	pthread_mutex_destroy(&maps->lock);
	free(maps);
}
