/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports device memory to other processes, and imports theirs. */
#include "src/memory/ipc.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "src/accel/host/memory.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/memory/blocked_streams.h"

/* How often processes look for memory to unmap, in nanoseconds. A rank that
 * deregisters memory waits for that. */
#define LOOK_NS 10000000

/* An allocation on a page. To replace it, the owner sets the serial number to
 * 0, writes the rest, then the new number. No number is used twice. */
struct offer {
	_Atomic uint64_t serial; /* 0: no offer */
	struct accel_handle handle;
	struct lease_place lease;
};

struct page {
	_Atomic uint64_t changes; /* counts the changes of offers */
	_Atomic bool gave_up;
	struct offer offers[IPC_OFFERS];
	/* [rank][offer]: serial number of the offer of that rank that
	 * is imported */
	_Atomic uint64_t mapped[][IPC_OFFERS];
};

/* What only the owner of an offer knows. */
struct origin {
	uint64_t id; /* number of the allocation */
	const uint8_t *base;
	unsigned users;
	struct lease *lease; /* the one begun for this offer, or NULL */
};

struct ipc {
	const struct accel *accel;
	int index;
	struct page *page;
	struct accel_export where;
	pthread_mutex_t lock; /* guards the members below */
	uint64_t serial;      /* serial number of the last offer */
	struct origin origins[IPC_OFFERS];
};

struct import {
	uint64_t serial; /* 0: no import */
	uint64_t bytes;
	uint8_t *base;
	int lease;
};

struct ipc_view {
	struct deferred deferred; /* frees this struct */
	int self;
	struct accel_export where;
	const struct page *page;
	/* this rank's list of its imports from that neighbour, on its own
	 * page */
	_Atomic uint64_t *mapped;
	/* value of page->changes up to which offers are imported */
	uint64_t changes;
	pthread_mutex_t lock; /* of the imports */
	struct import imports[IPC_OFFERS];
	struct ipc_view *next;
};

/* Guards all views of this process and their imports. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ipc_view *views;
static bool keeping; /* the keeper thread runs */

/* The child of a fork starts without views and without a keeper. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	views = NULL;
	keeping = false;
}

/* ---- the page ---- */

dicomm_result_t ipc_create(const struct accel *accel, int index, int ranks,
			   struct ipc **out)
{
	struct ipc *ipc = calloc(1, sizeof(*ipc));
	size_t bytes = sizeof(*ipc->page) +
		       (size_t)ranks * sizeof(ipc->page->mapped[0]);
	dicomm_result_t status;
	size_t offset;
	void *page;

	if (!ipc)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	/* The memory is zeroed; the system allocates its pages when they
	 * are written. */
	status = accels[0]->alloc(0, bytes, &page);
	if (status != DICOMM_SUCCESS) {
		free(ipc);
		return status;
	}
	ipc->accel = accel;
	ipc->index = index;
	ipc->page = page;
	host_memory_find(page, bytes, &ipc->where, &offset);
	pthread_mutex_init(&ipc->lock, NULL);
	*out = ipc;
	return DICOMM_SUCCESS;
}

void ipc_free(struct ipc *ipc)
{
	if (!ipc)
		return;
	accels[0]->free(ipc->page);
	pthread_mutex_destroy(&ipc->lock);
	free(ipc);
}

void ipc_tell(const struct ipc *ipc, struct accel_export *page)
{
	*page = ipc->where;
}

void ipc_give_up(struct ipc *ipc)
{
	atomic_store(&ipc->page->gave_up, true);
	/* Neighbours see the mark before anybody overwrites the memory that
	 * was sent. */
	atomic_thread_fence(memory_order_seq_cst);
}

/* ---- offers ---- */

/* Returns the offer of the same allocation, otherwise a free one. -1: all are
 * in use. */
static int place_for(const struct ipc *ipc, uint64_t id)
{
	int place = -1;

	for (int i = IPC_OFFERS - 1; i >= 0; i--) {
		if (ipc->origins[i].users && ipc->origins[i].id == id)
			return i;
		if (!ipc->origins[i].users)
			place = i;
	}
	return place;
}

static dicomm_result_t list(struct ipc *ipc, int i,
			    const struct accel_handle *handle, const void *at,
			    const struct lease *lease)
{
	struct origin *o = &ipc->origins[i];
	struct offer *offer = &ipc->page->offers[i];

	if (!lease) {
		TRY(lease_begin(ipc->accel, ipc->index, NULL, &o->lease));
		lease = o->lease;
	}
	o->id = handle->id;
	/* A rank that still reads the former offer sees that its number
	 * is gone. */
	atomic_thread_fence(memory_order_seq_cst);
	o->base = (const uint8_t *)at - handle->offset;
	offer->handle = *handle;
	lease_tell(lease, &offer->lease);
	atomic_store(&offer->serial, ++ipc->serial);
	atomic_fetch_add(&ipc->page->changes, 1);
	return DICOMM_SUCCESS;
}

int ipc_offer(struct ipc *ipc, const void *at, const struct lease *lease)
{
	struct accel_handle handle;
	dicomm_result_t status;
	int i;

	/* Memory that cannot be exported is no error. */
	log_hold();
	log_demote(true);
	status = ipc->accel->work->mem_export(at, &handle);
	log_demote(false);
	log_release(true);
	if (status != DICOMM_SUCCESS)
		return -1;
	pthread_mutex_lock(&ipc->lock);
	i = place_for(ipc, handle.id);
	if (i >= 0 && !ipc->origins[i].users &&
	    list(ipc, i, &handle, at, lease) != DICOMM_SUCCESS)
		i = -1;
	if (i >= 0)
		ipc->origins[i].users++;
	pthread_mutex_unlock(&ipc->lock);
	return i;
}

struct lease *ipc_withdraw(struct ipc *ipc, int i)
{
	struct lease *lease = NULL;

	if (i < 0)
		return NULL;
	pthread_mutex_lock(&ipc->lock);
	if (!--ipc->origins[i].users) {
		atomic_store(&ipc->page->offers[i].serial, 0);
		atomic_fetch_add(&ipc->page->changes, 1);
		lease = ipc->origins[i].lease;
		ipc->origins[i] = (struct origin){.id = 0};
	}
	pthread_mutex_unlock(&ipc->lock);
	return lease;
}

uint64_t ipc_reference(const struct ipc *ipc, const struct ipc_view *view,
		       int i, const void *at, uint64_t *offset)
{
	uint64_t serial = atomic_load(&ipc->page->offers[i].serial);

	if (!serial ||
	    atomic_load(&view->page->mapped[view->self][i]) != serial)
		return 0;
	*offset = (uint64_t)((const uint8_t *)at - ipc->origins[i].base);
	return serial;
}

/* ---- what is mapped ---- */

static void unmap(const struct ipc_view *view, const struct import *gone)
{
	if (!gone->serial)
		return;
	view->deferred.work->mem_unimport(view->deferred.index, gone->base);
	lease_release(gone->lease);
}

/* Unmap an import. The caller holds the lock of all views. */
static void let_go(struct ipc_view *view, int i)
{
	struct import gone;

	pthread_mutex_lock(&view->lock);
	gone = view->imports[i];
	view->imports[i] = (struct import){.serial = 0};
	pthread_mutex_unlock(&view->lock);
	atomic_store(&view->mapped[i], 0);
	unmap(view, &gone);
}

static bool is_offered(const struct ipc_view *view, int i, uint64_t serial)
{
	return atomic_load(&view->page->offers[i].serial) == serial;
}

static dicomm_result_t map(struct ipc_view *view, int i, uint64_t serial)
{
	const struct offer *offer = &view->page->offers[i];
	struct import new = {.serial = serial};
	struct accel_handle handle = offer->handle;
	struct lease_place place = offer->lease;
	dicomm_result_t status;
	void *base = NULL;

	/* The owner may have replaced the offer while it was read. Then its
	 * successor is imported next time. */
	atomic_thread_fence(memory_order_acquire);
	if (!is_offered(view, i, serial))
		return DICOMM_SUCCESS;
	TRY(lease_take(&place, &new.lease));
	status = view->deferred.work->mem_import(view->deferred.index, &handle,
						 &base);
	if (status != DICOMM_SUCCESS) {
		lease_release(new.lease);
		return status;
	}
	new.base = base;
	new.bytes = handle.bytes;
	pthread_mutex_lock(&view->lock);
	view->imports[i] = new;
	pthread_mutex_unlock(&view->lock);
	atomic_store(&view->mapped[i], serial);
	return DICOMM_SUCCESS;
}

static bool is_behind(const struct ipc_view *view)
{
	return atomic_load(&view->page->changes) != view->changes;
}

static void follow(struct ipc_view *view)
{
	if (!streams_unblocked_begin(view->deferred.work, view->deferred.index))
		return;
	view->changes = atomic_load(&view->page->changes);
	/* Unmap first: a new offer may have the address of an old one. */
	for (int i = 0; i < IPC_OFFERS; i++)
		if (!is_offered(view, i, view->imports[i].serial))
			let_go(view, i);
	for (int i = 0; i < IPC_OFFERS; i++) {
		uint64_t serial = atomic_load(&view->page->offers[i].serial);

		if (serial && !view->imports[i].serial &&
		    map(view, i, serial) != DICOMM_SUCCESS)
			log_info("memory of process %d is not read in place",
				 view->where.pid);
	}
	streams_unblocked_end();
}

/* Any thread that finds no stream blocked does this for all ranks of the
 * process. An offer that has gone is no error. A log sink may want the lock, so
 * messages are kept until it is released. */
void ipc_refresh(void)
{
	struct ipc_view *v;

	pthread_mutex_lock(&lock);
	for (v = views; v && !is_behind(v); v = v->next)
		;
	pthread_mutex_unlock(&lock);
	if (!v)
		return;
	log_hold();
	log_demote(true);
	pthread_mutex_lock(&lock);
	for (v = views; v; v = v->next)
		if (is_behind(v))
			follow(v);
	pthread_mutex_unlock(&lock);
	log_demote(false);
	log_release(true);
}

static bool is_wanted(void)
{
	bool wanted;

	pthread_mutex_lock(&lock);
	wanted = keeping = views;
	pthread_mutex_unlock(&lock);
	return wanted;
}

/* Follows the offers, even while this process makes no calls: owners wait until
 * it unmaps memory. */
static void *keeper(void *arg)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};

	(void)arg;
	while (is_wanted()) {
		ipc_refresh();
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static dicomm_result_t start_keeper(void)
{
	int error;

	if (keeping)
		return DICOMM_SUCCESS;
	error = thread_start(NULL, "dicomm-keeper", keeper, NULL);
	if (error) {
		errno = error;
		return FAIL(DICOMM_ERR_SYSTEM,
			    "memory of a neighbour: thread: %m");
	}
	keeping = true;
	return DICOMM_SUCCESS;
}

/* ---- views ---- */

static void unmap_page(struct ipc_view *view)
{
	host_memory_unimport(&view->where, (void *)(uintptr_t)view->page);
	pthread_mutex_destroy(&view->lock);
	free(view);
}

static bool close_view(struct deferred *deferred)
{
	struct ipc_view *view = (struct ipc_view *)deferred;

	for (int i = 0; i < IPC_OFFERS; i++)
		unmap(view, &view->imports[i]);
	unmap_page(view);
	return true;
}

dicomm_result_t ipc_view_open(struct ipc *ipc, const struct accel_export *page,
			      int rank, int self, struct ipc_view **out)
{
	struct ipc_view *view = calloc(1, sizeof(*view));
	dicomm_result_t status;
	void *base;

	if (!view)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "memory of a neighbour: out of memory");
	status = host_memory_import(page, &base);
	if (status != DICOMM_SUCCESS) {
		free(view);
		return status;
	}
	view->deferred = (struct deferred){.work = ipc->accel->work,
					   .index = ipc->index,
					   .go = close_view};
	view->self = self;
	view->where = *page;
	view->page = base;
	view->mapped = ipc->page->mapped[rank];
	pthread_mutex_init(&view->lock, NULL);
	fork_add(FORK_IPC, forget);
	pthread_mutex_lock(&lock);
	status = start_keeper();
	if (status == DICOMM_SUCCESS) {
		view->next = views;
		views = view;
	}
	pthread_mutex_unlock(&lock);
	if (status != DICOMM_SUCCESS) {
		unmap_page(view);
		return status;
	}
	*out = view;
	ipc_refresh();
	return DICOMM_SUCCESS;
}

bool ipc_gave_up(const struct ipc_view *view)
{
	/* This is loaded after the bytes were. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&view->page->gave_up);
}

dicomm_result_t ipc_find(struct ipc_view *view, int i, uint64_t serial,
			 uint64_t offset, uint64_t bytes, const void **at)
{
	struct import found = {.serial = 0};

	pthread_mutex_lock(&view->lock);
	if (i >= 0 && i < IPC_OFFERS)
		found = view->imports[i];
	pthread_mutex_unlock(&view->lock);
	if (found.serial != serial || bytes > found.bytes ||
	    offset > found.bytes - bytes)
		return FAIL(DICOMM_ERR_REMOTE,
			    "process %d sent a reference to %" PRIu64
			    " bytes at %" PRIu64 " of offer %d, number %" PRIu64
			    "; imported are %" PRIu64 " bytes as number "
			    "%" PRIu64,
			    view->where.pid, bytes, offset, i, serial,
			    found.bytes, found.serial);
	*at = found.base + offset;
	return DICOMM_SUCCESS;
}

void ipc_view_close(struct ipc_view *view)
{
	struct ipc_view **at = &views;

	if (!view)
		return;
	pthread_mutex_lock(&lock);
	while (*at != view)
		at = &(*at)->next;
	*at = view->next;
	pthread_mutex_unlock(&lock);
	/* Clear the list now: this rank's page is freed with its
	 * communicator. */
	for (int i = 0; i < IPC_OFFERS; i++)
		atomic_store(&view->mapped[i], 0);
	deferred_run(&view->deferred);
}
