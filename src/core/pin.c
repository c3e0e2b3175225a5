/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory of a neighbour that this rank's device reads. */
#include "src/core/pin.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "src/accel/host/memory_table.h"
#include "src/base/log.h"
#include "src/core/held.h"

struct pin {
	struct later later; /* the end of it */
	struct accel_export where;
	uint8_t *base;   /* as the host sees it */
	uint8_t *device; /* NULL: the device does not */
	struct pin *next;
};

struct pins {
	const struct accel_work *work;
	int index;
	struct accel_export where; /* of the board */
	void *board;
	uint64_t seen; /* changes of it */
	struct accel_export listed[MEMORY_TABLE_ENTRIES];
	size_t nlisted;
	struct pin *first;
	pthread_mutex_t lock; /* of the list */
};

static bool destroy(struct later *later)
{
	struct pin *p = (struct pin *)later;

	if (p->device)
		later->work->unmap_host(later->index, p->base);
	accels[0]->unimport(&p->where, p->base);
	free(p);
	return true;
}

/* Mapped for the host. */
static dicomm_result_t create(const struct pins *pins,
			      const struct accel_export *where,
			      struct pin **out)
{
	struct pin *p = calloc(1, sizeof(*p));
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
	p->later = (struct later){
		.work = pins->work, .index = pins->index, .go = destroy};
	p->where = *where;
	p->base = base;
	*out = p;
	return DICOMM_SUCCESS;
}

static struct pin *find(struct pins *pins, uint64_t id)
{
	struct pin *p = pins->first;

	while (p && p->where.id != id)
		p = p->next;
	return p;
}

static const struct accel_export *find_listed(const struct pins *pins,
					      uint64_t id)
{
	for (size_t i = 0; i < pins->nlisted; i++)
		if (pins->listed[i].id == id)
			return &pins->listed[i];
	return NULL;
}

/* Under the lock: what is not listed any more */
static struct pin *take_gone(struct pins *pins)
{
	struct pin *gone = NULL;

	for (struct pin **at = &pins->first; *at;) {
		struct pin *p = *at;

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

static void add(struct pins *pins, struct pin *p)
{
	pthread_mutex_lock(&pins->lock);
	p->next = pins->first;
	pins->first = p;
	pthread_mutex_unlock(&pins->lock);
}

/* See to it that the device sees an allocation. */
static void provide(struct pins *pins, const struct accel_export *where)
{
	struct pin *p;
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
static void follow(struct pins *pins)
{
	struct pin *p, *next;

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

void pin_refresh(struct pins *pins)
{
	/* A sink may want what is locked. */
	log_hold();
	if (held_by_none(pins->work, pins->index)) {
		follow(pins);
		held_release();
	}
	log_release(true);
}

dicomm_result_t pin_find(struct pins *pins, const struct accel_export *where,
			 uint64_t offset, uint64_t bytes, const void **at,
			 bool *seen)
{
	struct pin *p;

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
static dicomm_result_t try_board(const struct pins *pins)
{
	dicomm_result_t status;
	void *device = NULL;
	struct pin *p;

	TRY(create(pins, &pins->where, &p));
	status = pins->work->map_host(pins->index, p->base, p->where.bytes,
				      true, &device);
	p->device = device;
	held_later(&p->later);
	return status;
}

dicomm_result_t pin_open(const struct accel_work *work, int index,
			 const struct accel_export *board, struct pins **out)
{
	struct pins *pins = calloc(1, sizeof(*pins));
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
	pin_refresh(pins);
	*out = pins;
	return DICOMM_SUCCESS;

unimport:
	accels[0]->unimport(board, pins->board);
free_pins:
	free(pins);
	return status;
}

void pin_close(struct pins *pins)
{
	struct pin *p, *next;

	if (!pins)
		return;
	for (p = pins->first; p; p = next) {
		next = p->next;
		held_later(&p->later);
	}
	accels[0]->unimport(&pins->where, pins->board);
	pthread_mutex_destroy(&pins->lock);
	free(pins);
}
