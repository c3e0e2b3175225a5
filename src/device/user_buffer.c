/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of users in device memory that transports or other processes
 * access. */
#include "src/device/user_buffer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/device/device.h"
#include "src/device/transport_access.h"
#include "src/memory/blocked_streams.h"
#include "src/core/memory.h"

/* Calls of at least this size register memory that the library has allocated:
 * the registration lasts until the memory is freed, so it pays off. */
#define PAYS ((size_t)64 << 10)
/* How long to wait for neighbours that have the memory mapped: they may be in
 * an operation that waits for this rank. */
#define UNMAP_MS 200

struct user_buffer {
	const uint8_t *at;
	size_t bytes;
	uint64_t id; /* number of the allocation */
	/* The user registered it with dicomm_comm_register(); otherwise it is a
	 * whole allocation of the library. */
	bool announced;
	bool asked;  /* the transports and other processes were asked */
	bool asking; /* a request is under way, without the lock */
	struct mem_handles handles;
	int offer; /* number of the offer to other processes, or -1 */
	struct user_buffer *next;
};

/* The buffers of one communicator. */
struct user_buffers {
	struct dicomm_comm *comm;
	/* Whether transports, or other processes, would use them */
	bool wired, offers;
	pthread_mutex_t lock;   /* guards the list */
	pthread_cond_t changed; /* signalled when a request has ended */
	struct user_buffer *first;
	unsigned users; /* threads that work on this outside `lock` */
	struct user_buffers *next;
};

/* Device memory that the library has allocated. */
struct allocated {
	const struct accel *accel;
	int index;
	const uint8_t *at;
	size_t bytes;
	struct lease
		*lease; /* for neighbours; NULL: the memory was never offered */
	struct allocated *next;
};

/* Guards both lists. It is held only to look at them, because a NIC takes long
 * to register memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER;
static struct user_buffers *communicators;
static struct allocated *ours;

/* The child of a fork starts without either list. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&unused, NULL);
	communicators = NULL;
	ours = NULL;
}

static bool overlaps(const struct user_buffer *g, const void *at, size_t bytes)
{
	uintptr_t a = (uintptr_t)g->at, b = (uintptr_t)at;

	return a < b + bytes && b < a + g->bytes;
}

static bool covers(const struct user_buffer *g, const void *at, size_t bytes)
{
	uintptr_t a = (uintptr_t)g->at, b = (uintptr_t)at;

	return b >= a && b - a <= g->bytes && bytes <= g->bytes - (b - a);
}

/* ---- entries; under the lock of their list ---- */

/* Remove a buffer: deregister it and withdraw its offer. Returns the lease by
 * which neighbours may still have it mapped, or NULL. */
static struct lease *take_back(struct user_buffers *all, struct user_buffer *g)
{
	struct lease *lease = ipc_withdraw(all->comm->dev->ipc, g->offer);

	g->offer = -1;
	comm_mem_deregister(all->comm, &g->handles);
	return lease;
}

static struct lease *destroy(struct user_buffers *all, struct user_buffer **at)
{
	struct user_buffer *g = *at;
	struct lease *lease = take_back(all, g);

	*at = g->next;
	free(g);
	return lease;
}

/* The allocation at this address has changed. Remove all entries but those of
 * allocation `but`, so that their keys do not reach the new memory. */
static void let_go(struct user_buffers *all, const void *base, size_t bytes,
		   uint64_t but)
{
	struct user_buffer **at = &all->first;

	while (*at) {
		struct user_buffer *g = *at;

		if (g->id == but || !overlaps(g, base, bytes)) {
			at = &g->next;
		} else if (g->asking) {
			pthread_cond_wait(&all->changed, &all->lock);
			at = &all->first;
		} else if (g->announced) {
			/* The user has a handle of this entry, so it stays,
			 * without any use. */
			lease_end(take_back(all, g), 0);
			g->asked = true;
			at = &g->next;
		} else {
			lease_end(destroy(all, at), 0);
		}
	}
}

static struct user_buffer *add(struct user_buffers *all, const void *at,
			       size_t bytes, uint64_t id, bool announced)
{
	struct user_buffer *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->at = at;
	g->bytes = bytes;
	g->id = id;
	g->announced = announced;
	g->offer = -1;
	g->next = all->first;
	all->first = g;
	return g;
}

/* The library's allocation that contains this address, or NULL. Called with the
 * lock of the lists. */
static struct allocated *find_ours(const void *at)
{
	struct allocated *a = ours;

	while (a && (uintptr_t)at - (uintptr_t)a->at >= a->bytes)
		a = a->next;
	return a;
}

/* Neighbours take leases on the memory if the library allocated it, otherwise
 * on the offer. */
static int offer(struct dicomm_comm *comm, const struct user_buffer *g)
{
	const struct lease *lease = NULL;
	dicomm_result_t status = DICOMM_SUCCESS;
	struct allocated *a;

	pthread_mutex_lock(&lock);
	a = find_ours(g->at);
	if (a && !a->lease)
		status = lease_begin(a->accel, a->index,
				     (void *)(uintptr_t)a->at, &a->lease);
	if (a)
		lease = a->lease;
	pthread_mutex_unlock(&lock);
	if (status != DICOMM_SUCCESS)
		return -1;
	return ipc_offer(comm->dev->ipc, g->at, lease);
}

/* Ask the transports once: a NIC that refuses the memory will refuse it later,
 * too. Only one call of the communicator asks at a time. Meanwhile no stream
 * becomes blocked and g stays, but entries before and behind it may go. */
static void ask(struct user_buffers *all, struct user_buffer *g)
{
	struct dicomm_comm *comm = all->comm;
	const struct device *dev = comm->dev;
	const struct tp_region region = {.accel = comm->accel,
					 .index = dev->index,
					 .addr = g->at,
					 .len = g->bytes,
					 .id = g->id};
	char how[TRANSPORT_ACCESS_TEXT] = "";
	struct mem_handles handles = {0};
	int offered = -1;

	if (g->asked || !streams_unblocked_begin(dev->work, dev->index))
		return;
	g->asked = true;
	g->asking = true;
	pthread_mutex_unlock(&all->lock);
	if (all->wired && transport_access_register(comm, &region, &handles,
						    how) != DICOMM_SUCCESS)
		comm_mem_deregister(comm, &handles);
	if (all->offers)
		offered = offer(comm, g);
	streams_unblocked_end();
	pthread_mutex_lock(&all->lock);
	g->handles = handles;
	g->offer = offered;
	g->asking = false;
	pthread_cond_broadcast(&all->changed);
	log_info("%s rank %d: %s transport reaches the buffer of %zu bytes at "
		 "%p%s%s; to other processes it is %s",
		 comm->name, comm->rank, g->handles.transports ? "a" : "no",
		 g->bytes, (const void *)g->at, how[0] ? ": " : "", how,
		 offered < 0 ? "not offered" : "offered");
}

/* ---- communicators ---- */

dicomm_result_t user_buffer_open(struct dicomm_comm *comm)
{
	struct user_buffers *all;
	bool wired = false, offers = false;

	for (int r = 0; r < comm->ranks; r++) {
		const struct peer *p = &comm->peers[r];

		wired |= p->by_reference && r != comm->rank;
		offers |= p->has_peer_access &&
			  (p->neighbour->view || p->neighbour->apart);
	}
	if (!device_has_memory(comm->dev) || !(wired || offers))
		return DICOMM_SUCCESS;
	all = calloc(1, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	fork_add(FORK_USER_BUFFERS, forget);
	all->comm = comm;
	all->wired = wired;
	all->offers = offers && comm->dev->ipc;
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->changed, NULL);
	comm->dev->user_buffers = all;
	pthread_mutex_lock(&lock);
	all->next = communicators;
	communicators = all;
	pthread_mutex_unlock(&lock);
	return DICOMM_SUCCESS;
}

void user_buffer_close(struct dicomm_comm *comm)
{
	struct user_buffers *all = comm->dev ? comm->dev->user_buffers : NULL;
	struct user_buffers **at = &communicators;

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
		lease_end(destroy(all, &all->first), 0);
	pthread_cond_destroy(&all->changed);
	pthread_mutex_destroy(&all->lock);
	free(all);
	comm->dev->user_buffers = NULL;
}

/* ---- what the user registers, allocates and frees ---- */

dicomm_result_t user_buffer_add(struct dicomm_comm *comm, const void *at,
				size_t bytes, struct user_buffer **out)
{
	struct user_buffers *all = comm->dev->user_buffers;
	struct accel_allocation a;
	struct user_buffer *g;

	*out = NULL;
	if (!all)
		return DICOMM_SUCCESS;
	/* The driver does not know this memory, so the library would not notice
	 * when it is freed. */
	if (comm->dev->work->allocation(at, &a) != DICOMM_SUCCESS || !a.id)
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&all->lock);
	let_go(all, a.base, a.bytes, a.id);
	g = add(all, at, bytes, a.id, true);
	/* The buffer spans several allocations, so no single number identifies
	 * it. It is not used. */
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

void user_buffer_remove(struct dicomm_comm *comm, struct user_buffer *g)
{
	struct user_buffers *all = comm->dev->user_buffers;
	struct user_buffer **at = &all->first;
	struct lease *lease;

	pthread_mutex_lock(&all->lock);
	while (*at != g)
		at = &(*at)->next;
	lease = destroy(all, at);
	pthread_mutex_unlock(&all->lock);
	if (!lease_end(lease, UNMAP_MS))
		log_warn("%s: comm_deregister: other processes still have the "
			 "buffer mapped after %d ms, maybe because a stream "
			 "of theirs is blocked; they unmap it later",
			 comm->name, UNMAP_MS);
}

dicomm_result_t user_buffer_allocated(const struct accel *accel, int index,
				      const void *at, size_t bytes)
{
	struct allocated *a = malloc(sizeof(*a));

	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY, "mem_alloc: out of memory");
	fork_add(FORK_USER_BUFFERS, forget);
	*a = (struct allocated){
		.accel = accel, .index = index, .at = at, .bytes = bytes};
	pthread_mutex_lock(&lock);
	a->next = ours;
	ours = a;
	pthread_mutex_unlock(&lock);
	return DICOMM_SUCCESS;
}

static bool is_ours(const void *at)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = find_ours(at);
	pthread_mutex_unlock(&lock);
	return found;
}

/* Remove entries from one communicator. The caller holds `lock`, which is
 * released meanwhile, since the driver may take long. */
static void let_go_in(struct user_buffers *all, const void *at, size_t bytes)
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

dicomm_result_t user_buffer_free(void *at)
{
	struct allocated **a = &ours, *gone;

	pthread_mutex_lock(&lock);
	while (*a && (*a)->at != at)
		a = &(*a)->next;
	gone = *a;
	if (gone) {
		*a = gone->next;
		for (struct user_buffers *all = communicators; all;
		     all = all->next)
			let_go_in(all, at, gone->bytes);
	}
	pthread_mutex_unlock(&lock);
	if (!gone)
		return DICOMM_ERR_INVALID_ARGUMENT;
	if (gone->lease)
		lease_end(gone->lease, UNMAP_MS);
	else
		lease_free(gone->accel, gone->index, at);
	free(gone);
	return DICOMM_SUCCESS;
}

/* ---- calls ---- */

/* Record who reaches the buffer. Of several offers, the last one is used. */
static void add_uplinks(const struct user_buffer *g, struct call *call,
			enum plan_buffer b)
{
	call->transports[b] |= (uint8_t)g->handles.transports;
	if (g->offer >= 0)
		call->offers[b] = (uint8_t)(g->offer + 1);
}

static void find_access(struct user_buffers *all, const void *at, size_t bytes,
			struct call *call, enum plan_buffer b)
{
	struct accel_allocation a;
	bool found = false, pays;

	/* The driver does not know this memory, so the library would not notice
	 * when it is freed. */
	if (all->comm->dev->work->allocation(at, &a) != DICOMM_SUCCESS || !a.id)
		return;
	pays = bytes >= PAYS && is_ours(at) &&
	       (uintptr_t)at - (uintptr_t)a.base + bytes <= a.bytes;
	pthread_mutex_lock(&all->lock);
	let_go(all, a.base, a.bytes, a.id);
	for (struct user_buffer *g = all->first; g; g = g->next) {
		if (g->id != a.id || !covers(g, at, bytes))
			continue;
		found = true;
		ask(all, g);
		add_uplinks(g, call, b);
	}
	if (!found && pays) {
		struct user_buffer *g = add(all, a.base, a.bytes, a.id, false);

		if (g) {
			ask(all, g);
			add_uplinks(g, call, b);
		}
	}
	pthread_mutex_unlock(&all->lock);
}

struct buffer_reach user_buffer_reach(struct dicomm_comm *comm,
				      struct user_buffer *g)
{
	struct user_buffers *all = comm->dev ? comm->dev->user_buffers : NULL;
	struct buffer_reach r = {0, 0};

	if (!all || !g)
		return r;
	pthread_mutex_lock(&all->lock);
	ask(all, g);
	r.transports = (uint8_t)g->handles.transports;
	r.offer = (uint8_t)(g->offer + 1);
	pthread_mutex_unlock(&all->lock);
	return r;
}

/* The bytes that a call uses of one of its buffers; of a one-sided call, it has
 * only one. */
static void used(const struct dicomm_comm *comm, const struct call *call,
		 enum plan_buffer b, size_t *first, size_t *bytes)
{
	*first = 0;
	*bytes = call->count * type_bytes(call->type);
	if (!call->window)
		call_touches(call, call_rank(call, comm->rank),
			     call_ranks(call, comm->ranks), b, first, bytes);
}

void user_buffer_find(struct dicomm_comm *comm, struct call *call)
{
	size_t first, bytes;

	/* NICs can register only so much memory, so register nothing for a call
	 * that sends nothing. */
	if (!comm->dev || !comm->dev->user_buffers ||
	    (call->function >= CALL_REDUCE_LOCAL && !call->window))
		return;
	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		const char *base = b == PLAN_SEND ? call->send : call->recv;

		used(comm, call, b, &first, &bytes);
		if (base && bytes)
			find_access(comm->dev->user_buffers, base + first,
				    bytes, call, b);
	}
}

void user_buffer_explain(const struct dicomm_comm *comm, char *text, size_t len)
{
	struct user_buffers *all = comm->dev ? comm->dev->user_buffers : NULL;
	unsigned n = 0;
	uint64_t bytes = 0;

	*text = '\0';
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	for (const struct user_buffer *g = all->first; g; g = g->next)
		if (g->handles.transports || g->offer >= 0) {
			n++;
			bytes += g->bytes;
		}
	pthread_mutex_unlock(&all->lock);
	snprintf(text, len,
		 "  rank %d (%s): in place, without a copy on the device: %u "
		 "buffers, %" PRIu64 " bytes\n",
		 comm->rank, comm->device, n, bytes);
}
