/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of users in the memory of a device that wires reach. */
#include "src/core/given.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/device.h"
#include "src/core/direct.h"

/* From so many bytes on, a call pays for the registration of what the library
 * has allocated, which lasts until that is freed. */
#define PAYS ((size_t)64 << 10)

struct given {
	const uint8_t *at;
	size_t bytes;
	uint64_t id;    /* of the allocation */
	bool announced; /* by the user; else all of an allocation of ours */
	bool asked;     /* the wires were */
	bool asking;    /* that is under way, without the lock */
	struct held held;
	struct given *next;
};

/* Those of one communicator */
struct givens {
	struct dicomm_comm *comm;
	pthread_mutex_t lock; /* of the list */
	pthread_cond_t told;  /* what was asked */
	struct given *first;
	unsigned users; /* who keeps it among the communicators */
	struct givens *next;
};

/* Memory of ours on devices */
struct allocated {
	const uint8_t *at;
	size_t bytes;
	struct allocated *next;
};

/* Guards both lists, and is held for no more than a look at them: a NIC takes
 * its time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct givens *communicators;
static struct allocated *ours;

/* A fork's child has neither. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&unused, NULL);
	communicators = NULL;
	ours = NULL;
}

static void setup(void)
{
	pthread_atfork(NULL, NULL, forget);
}

static bool overlaps(const struct given *g, const void *at, size_t bytes)
{
	uintptr_t a = (uintptr_t)g->at, b = (uintptr_t)at;

	return a < b + bytes && b < a + g->bytes;
}

static bool covers(const struct given *g, const void *at, size_t bytes)
{
	uintptr_t a = (uintptr_t)g->at, b = (uintptr_t)at;

	return b >= a && b - a <= g->bytes && bytes <= g->bytes - (b - a);
}

/* ---- entries; under the lock of their list ---- */

static void destroy(struct givens *all, struct given **at)
{
	struct given *g = *at;

	*at = g->next;
	comm_drop(all->comm, &g->held);
	free(g);
}

/* What was there is no more: its keys must not reach what is there now. */
static void let_go(struct givens *all, const void *base, size_t bytes,
		   uint64_t but)
{
	struct given **at = &all->first;

	while (*at) {
		struct given *g = *at;

		if (g->id == but || !overlaps(g, base, bytes)) {
			at = &g->next;
		} else if (g->asking) {
			pthread_cond_wait(&all->told, &all->lock);
			at = &all->first;
		} else if (g->announced) {
			/* The user has a handle of it. */
			comm_drop(all->comm, &g->held);
			g->asked = true;
			at = &g->next;
		} else {
			destroy(all, at);
		}
	}
}

static struct given *add(struct givens *all, const void *at, size_t bytes,
			 uint64_t id, bool announced)
{
	struct given *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->at = at;
	g->bytes = bytes;
	g->id = id;
	g->announced = announced;
	g->next = all->first;
	all->first = g;
	return g;
}

/* Once: what a NIC does not take, it does not take later. Only a call of the
 * communicator asks, one at a time; meanwhile g stays, and what is before and
 * behind it may go. */
static void ask(struct givens *all, struct given *g)
{
	struct dicomm_comm *comm = all->comm;
	const struct device *dev = comm->dev;
	const struct tp_region region = {.accel = comm->accel,
					 .index = dev->index,
					 .addr = g->at,
					 .len = g->bytes,
					 .id = g->id};
	char how[DIRECT_HOW] = "";
	struct held held = {0};
	dicomm_result_t status;

	if (g->asked || dev->work->held(dev->index))
		return;
	g->asked = true;
	g->asking = true;
	pthread_mutex_unlock(&all->lock);
	status = direct_hold(comm, &region, &held, how);
	if (status != DICOMM_SUCCESS)
		comm_drop(comm, &held);
	pthread_mutex_lock(&all->lock);
	g->held = held;
	g->asking = false;
	pthread_cond_broadcast(&all->told);
	log_info(
		"%s rank %d: %s wire reaches the buffer of %zu bytes at %p%s%s",
		comm->name, comm->rank, g->held.wires ? "a" : "no", g->bytes,
		(const void *)g->at, how[0] ? ": " : "", how);
}

/* ---- communicators ---- */

dicomm_result_t given_open(struct dicomm_comm *comm)
{
	struct givens *all;
	bool wired = false;

	for (int r = 0; r < comm->ranks; r++)
		wired |= comm->peers[r].is_direct && r != comm->rank;
	if (!comm->dev || comm->dev->shares_host || !wired)
		return DICOMM_SUCCESS;
	all = calloc(1, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	pthread_once(&once, setup);
	all->comm = comm;
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->told, NULL);
	comm->dev->givens = all;
	pthread_mutex_lock(&lock);
	all->next = communicators;
	communicators = all;
	pthread_mutex_unlock(&lock);
	return DICOMM_SUCCESS;
}

void given_close(struct dicomm_comm *comm)
{
	struct givens *all = comm->dev->givens, **at = &communicators;

	if (!all)
		return;
	pthread_mutex_lock(&lock);
	while (all->users)
		pthread_cond_wait(&unused, &lock);
	while (*at != all)
		at = &(*at)->next;
	*at = all->next;
	pthread_mutex_unlock(&lock);
	while (all->first)
		destroy(all, &all->first);
	pthread_cond_destroy(&all->told);
	pthread_mutex_destroy(&all->lock);
	free(all);
	comm->dev->givens = NULL;
}

/* ---- what the user gives ---- */

dicomm_result_t given_add(struct dicomm_comm *comm, const void *at,
			  size_t bytes, struct given **out)
{
	struct givens *all = comm->dev->givens;
	struct accel_allocation a;
	struct given *g;

	*out = NULL;
	if (!all)
		return DICOMM_SUCCESS;
	/* Of what the driver does not know no wire is told. */
	if (comm->dev->work->allocation(at, &a) != DICOMM_SUCCESS || !a.id)
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&all->lock);
	let_go(all, a.base, a.bytes, a.id);
	g = add(all, at, bytes, a.id, true);
	/* Of more than one allocation, a number says too little. */
	if (g && bytes > a.bytes - ((uintptr_t)at - (uintptr_t)a.base))
		g->asked = true;
	if (g)
		ask(all, g);
	pthread_mutex_unlock(&all->lock);
	if (!g)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_register: out of memory");
	*out = g;
	return DICOMM_SUCCESS;
}

void given_remove(struct dicomm_comm *comm, struct given *g)
{
	struct givens *all = comm->dev->givens;
	struct given **at = &all->first;

	pthread_mutex_lock(&all->lock);
	while (*at != g)
		at = &(*at)->next;
	destroy(all, at);
	pthread_mutex_unlock(&all->lock);
}

dicomm_result_t given_allocated(const void *at, size_t bytes)
{
	struct allocated *a = malloc(sizeof(*a));

	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY, "mem_alloc: out of memory");
	pthread_once(&once, setup);
	a->at = at;
	a->bytes = bytes;
	pthread_mutex_lock(&lock);
	a->next = ours;
	ours = a;
	pthread_mutex_unlock(&lock);
	return DICOMM_SUCCESS;
}

static bool is_ours(const void *at)
{
	const struct allocated *a;

	pthread_mutex_lock(&lock);
	for (a = ours; a; a = a->next)
		if ((uintptr_t)at - (uintptr_t)a->at < a->bytes)
			break;
	pthread_mutex_unlock(&lock);
	return a;
}

/* Under the lock of the lists, but for the time it takes */
static void let_go_in(struct givens *all, const void *at, size_t bytes)
{
	all->users++;
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(&all->lock);
	let_go(all, at, bytes, 0);
	pthread_mutex_unlock(&all->lock);
	pthread_mutex_lock(&lock);
	if (!--all->users)
		pthread_cond_broadcast(&unused);
}

void given_freed(const void *at)
{
	struct allocated **a = &ours, *gone;

	pthread_mutex_lock(&lock);
	while (*a && (*a)->at != at)
		a = &(*a)->next;
	gone = *a;
	if (gone) {
		*a = gone->next;
		for (struct givens *all = communicators; all; all = all->next)
			let_go_in(all, at, gone->bytes);
	}
	pthread_mutex_unlock(&lock);
	free(gone);
}

/* ---- calls ---- */

static void wires_to(struct givens *all, const void *at, size_t bytes,
		     uint8_t *wires)
{
	struct accel_allocation a;
	bool found = false, pays;

	/* Of what the driver does not know no wire is told. */
	if (all->comm->dev->work->allocation(at, &a) != DICOMM_SUCCESS || !a.id)
		return;
	pays = bytes >= PAYS && is_ours(at) &&
	       (uintptr_t)at - (uintptr_t)a.base + bytes <= a.bytes;
	pthread_mutex_lock(&all->lock);
	let_go(all, a.base, a.bytes, a.id);
	for (struct given *g = all->first; g; g = g->next) {
		if (g->id != a.id || !covers(g, at, bytes))
			continue;
		found = true;
		ask(all, g);
		*wires |= (uint8_t)g->held.wires;
	}
	if (!found && pays) {
		struct given *g = add(all, a.base, a.bytes, a.id, false);

		if (g) {
			ask(all, g);
			*wires = (uint8_t)g->held.wires;
		}
	}
	pthread_mutex_unlock(&all->lock);
}

void given_find(struct dicomm_comm *comm, struct call *call)
{
	size_t first, bytes;

	if (!comm->dev || !comm->dev->givens)
		return;
	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		const char *base = b == PLAN_SEND ? call->send : call->recv;

		call_touches(call, comm->rank, comm->ranks, b, &first, &bytes);
		if (base && bytes)
			wires_to(comm->dev->givens, base + first, bytes,
				 &call->wires[b]);
	}
}

void given_explain(const struct dicomm_comm *comm, char *text, size_t len)
{
	struct givens *all = comm->dev ? comm->dev->givens : NULL;
	unsigned n = 0;
	uint64_t bytes = 0;

	*text = '\0';
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	for (const struct given *g = all->first; g; g = g->next)
		if (g->held.wires) {
			n++;
			bytes += g->bytes;
		}
	pthread_mutex_unlock(&all->lock);
	snprintf(text, len,
		 "  rank %d (%s): in place, without a copy on the device: %u "
		 "buffers, %" PRIu64 " bytes\n",
		 comm->rank, comm->device, n, bytes);
}
