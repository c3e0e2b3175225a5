/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory of a neighbour that this rank's device reads. */
#include "src/memory/host_map.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "src/accel/host/memory_table.h"
#include "src/base/log.h"
#include "src/memory/blocked_streams.h"

struct host_map {
	struct deferred later; /* the end of it */
	struct accel_export where;
	uint8_t *base;   /* as the host sees it */
	uint8_t *device; /* NULL: the device does not */
	struct host_map *next;
};

struct host_maps {
	const struct accel_work *work;
	int index;
	struct accel_export where; /* of the board */
	void *board;
	uint64_t seen; /* changes of it */
	struct accel_export listed[MEMORY_TABLE_ENTRIES];
	size_t nlisted;
	struct host_map *first;
	pthread_mutex_t lock; /* of the list */
};

static bool destroy(struct deferred *later)
{
	struct host_map *p = (struct host_map *)later;

	if (p->device)
		later->work->unmap_host(later->index, p->base);
	accels[0]->unimport(&p->where, p->base);
	free(p);
	return true;
}

/* Mapped for the host. */
static dicomm_result_t create(const struct host_maps *pins,
			      const struct accel_export *where,
			      struct host_map **out)
{
	struct host_map *p = calloc(1, sizeof(*p));
	dicomm_result_t status;
	void *base;

	if (!p)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	status = accels[0]->import(where, &base);
	if (status != DICOMM_SUCCESS) {
		free(p);
		return status;
	}
	p->later = (struct deferred){
		.work = pins->work, .index = pins->index, .go = destroy};
	p->where = *where;
	p->base = base;
	*out = p;
	return DICOMM_SUCCESS;
}

static struct host_map *find(struct host_maps *pins, uint64_t id)
{
	struct host_map *p = pins->first;

	while (p && p->where.id != id)
		p = p->next;
	return p;
}

static const struct accel_export *find_listed(const struct host_maps *pins,
					      uint64_t id)
{
	for (size_t i = 0; i < pins->nlisted; i++)
		if (pins->listed[i].id == id)
			return &pins->listed[i];
	return NULL;
}

/* Under the lock: what is not listed any more */
static struct host_map *take_gone(struct host_maps *pins)
{
	struct host_map *gone = NULL;

	for (struct host_map **at = &pins->first; *at;) {
		struct host_map *p = *at;

		if (find_listed(pins, p->where.id)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->next = gone;
		gone = p;
	}
	return gone;
}

static void add(struct host_maps *pins, struct host_map *p)
{
	pthread_mutex_lock(&pins->lock);
	p->next = pins->first;
	pins->first = p;
	pthread_mutex_unlock(&pins->lock);
}

/* See to it that the device sees an allocation. */
static void provide(struct host_maps *pins, const struct accel_export *where)
{
	struct host_map *p;
	void *device = NULL;

	pthread_mutex_lock(&pins->lock);
	p = find(pins, where->id);
	pthread_mutex_unlock(&pins->lock);
	if ((p && p->device) || where->id == pins->where.id)
		return;
	if (!p) {
		if (create(pins, where, &p) != DICOMM_SUCCESS)
			return;
		add(pins, p);
	}
	if (pins->work->map_host(pins->index, p->base, p->where.bytes, true,
				 &device) != DICOMM_SUCCESS)
		log_info("memory of process %d is not read in place: %s",
			 where->pid, log_last_error());
	pthread_mutex_lock(&pins->lock);
	p->device = device;
	pthread_mutex_unlock(&pins->lock);
}

/* While no stream is held */
static void follow(struct host_maps *pins)
{
	struct host_map *p, *next;

	if (!memory_table_read(pins->board, &pins->where, &pins->seen,
			       pins->listed, &pins->nlisted))
		return;
	pthread_mutex_lock(&pins->lock);
	p = take_gone(pins);
	pthread_mutex_unlock(&pins->lock);
	for (; p; p = next) {
		next = p->next;
		destroy(&p->later);
	}
	for (size_t i = 0; i < pins->nlisted; i++)
		provide(pins, &pins->listed[i]);
}

void host_map_refresh(struct host_maps *pins)
{
	/* A sink may want what is locked. */
	log_hold();
	if (streams_unblocked_begin(pins->work, pins->index)) {
		follow(pins);
		streams_unblocked_end();
	}
	log_release(true);
}

dicomm_result_t host_map_find(struct host_maps *pins,
			      const struct accel_export *where, uint64_t offset,
			      uint64_t bytes, const void **at, bool *seen)
{
	struct host_map *p;

	pthread_mutex_lock(&pins->lock);
	p = find(pins, where->id);
	pthread_mutex_unlock(&pins->lock);
	if (!p) {
		TRY(create(pins, where, &p));
		add(pins, p);
	}
	if (bytes > p->where.bytes || offset > p->where.bytes - bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "a note of %" PRIu64 " bytes at %" PRIu64
			    " of an allocation of %" PRIu64,
			    bytes, offset, p->where.bytes);
	pthread_mutex_lock(&pins->lock);
	*seen = p->device;
	*at = (p->device ? p->device : p->base) + offset;
	pthread_mutex_unlock(&pins->lock);
	return DICOMM_SUCCESS;
}

/* Is it memory of the sort that the device reads? */
static dicomm_result_t try_board(const struct host_maps *pins)
{
	dicomm_result_t status;
	void *device = NULL;
	struct host_map *p;

	TRY(create(pins, &pins->where, &p));
	status = pins->work->map_host(pins->index, p->base, p->where.bytes,
				      true, &device);
	p->device = device;
	deferred_run(&p->later);
	return status;
}

dicomm_result_t host_map_open(const struct accel_work *work, int index,
			      const struct accel_export *board,
			      struct host_maps **out)
{
	struct host_maps *pins = calloc(1, sizeof(*pins));
	dicomm_result_t status;

	if (!pins)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	pins->work = work;
	pins->index = index;
	pins->where = *board;
	status = accels[0]->import(board, &pins->board);
	if (status != DICOMM_SUCCESS)
		goto free_pins;
	status = try_board(pins);
	if (status != DICOMM_SUCCESS)
		goto unimport;
	pins->seen = UINT64_MAX;
	pthread_mutex_init(&pins->lock, NULL);
	host_map_refresh(pins);
	*out = pins;
	return DICOMM_SUCCESS;

unimport:
	accels[0]->unimport(board, pins->board);
free_pins:
	free(pins);
	return status;
}

void host_map_close(struct host_maps *pins)
{
	struct host_map *p, *next;

	if (!pins)
		return;
	for (p = pins->first; p; p = next) {
		next = p->next;
		deferred_run(&p->later);
	}
	accels[0]->unimport(&pins->where, pins->board);
	pthread_mutex_destroy(&pins->lock);
	free(pins);
}
