/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a rank that devices of other ranks in its process read directly. */
#include "src/memory/in_process.h"

#include <pthread.h>
#include <sched.h>
#include <sodium.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/fork.h"
#include "src/base/log.h"

struct in_process {
	uint64_t id;
	unsigned users;       /* guarded by the lock of the list */
	pthread_mutex_t lock; /* guards the members below */
	bool closed;
	struct in_process_read *reads;
	struct in_process *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct in_process *all;

/* The child of a fork has none of the parent's ranks. */
static void forget(void)
{
	pthread_mutex_init(&lock, NULL);
	all = NULL;
}

dicomm_result_t in_process_create(struct in_process **out)
{
	struct in_process *l = calloc(1, sizeof(*l));

	if (!l)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	fork_add(FORK_IN_PROCESS, forget);
	while (!l->id)
		randombytes_buf(&l->id, sizeof(l->id));
	l->users = 1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_lock(&lock);
	l->next = all;
	all = l;
	pthread_mutex_unlock(&lock);
	*out = l;
	return DICOMM_SUCCESS;
}

uint64_t in_process_id(const struct in_process *l)
{
	return l->id;
}

static bool is_closed(struct in_process *l)
{
	bool closed;

	pthread_mutex_lock(&l->lock);
	closed = l->closed;
	pthread_mutex_unlock(&l->lock);
	return closed;
}

struct in_process *in_process_find(uint64_t id)
{
	struct in_process *l;

	pthread_mutex_lock(&lock);
	for (l = all; l && l->id != id; l = l->next)
		;
	if (l && is_closed(l))
		l = NULL;
	if (l)
		l->users++;
	pthread_mutex_unlock(&lock);
	return l;
}

void in_process_put(struct in_process *l)
{
	struct in_process **at = &all;
	bool last;

	if (!l)
		return;
	pthread_mutex_lock(&lock);
	last = !--l->users;
	while (last && *at != l)
		at = &(*at)->next;
	if (last)
		*at = l->next;
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
}

bool in_process_begin(struct in_process *l)
{
	pthread_mutex_lock(&l->lock);
	if (!l->closed) {
		log_hold();
		return true;
	}
	pthread_mutex_unlock(&l->lock);
	return false;
}

void in_process_end(struct in_process *l, struct in_process_read *r)
{
	if (r->event) {
		r->from = l;
		r->next = l->reads;
		l->reads = r;
	}
	pthread_mutex_unlock(&l->lock);
	log_release(true);
}

void in_process_done(struct in_process_read *r)
{
	struct in_process *l = r->from;
	struct in_process_read **at;

	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	for (at = &l->reads; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	pthread_mutex_unlock(&l->lock);
	*r = (struct in_process_read){.from = NULL};
}

/* Close it, and return whether some stream still reads. A device that has
 * failed counts as not reading, since it runs nothing any more; its own rank
 * reports the failure. */
static bool is_read(struct in_process *l)
{
	bool read = false;

	pthread_mutex_lock(&l->lock);
	log_hold();
	l->closed = true;
	for (struct in_process_read *r = l->reads; r && !read; r = r->next)
		read = r->work->event_query(r->event) == DICOMM_AGAIN;
	pthread_mutex_unlock(&l->lock);
	log_release(false);
	return read;
}

bool in_process_close(struct in_process *l, uint64_t ns)
{
	uint64_t end = clock_ns() + ns;

	while (is_read(l)) {
		if (clock_ns() > end)
			return false;
		sched_yield();
	}
	return true;
}
