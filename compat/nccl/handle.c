/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles: given out, taken back, told from what is none. */
#include "compat/nccl/handle.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "compat/nccl/other.h"

struct ncclComm nccl_handles[NCCL_HANDLES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned fresh;
/* Freed first, taken first: a stale handle is seen as one for long. */
static struct ncclComm *first, **last = &first;

struct ncclComm *nccl_handle_new(const char *f, enum nccl_state state)
{
	struct ncclComm *c = NULL;

	pthread_mutex_lock(&lock);
	if (fresh < NCCL_HANDLES) {
		c = &nccl_handles[fresh++];
	} else if (first) {
		c = first;
		first = c->next;
		if (!first)
			last = &first;
	}
	pthread_mutex_unlock(&lock);
	if (!c) {
		nccl_refuse(ncclSystemError,
			    "%s: %d communicators exist already", f,
			    NCCL_HANDLES);
		return NULL;
	}
	c->pid = (int)getpid();
	c->comm = NULL;
	c->blocking = true;
	c->finalized = false;
	c->redops = NULL;
	c->children = NULL;
	c->parent = NULL;
	c->next = NULL;
	atomic_store(&c->busy, 0);
	atomic_store(&c->state, state);
	return c;
}

/* With the lock. */
static void take_from_parent(struct ncclComm *child)
{
	struct ncclComm *parent = child->parent, *c;

	if (!parent)
		return;
	child->parent = NULL;
	c = parent->children;
	if (c == child) {
		parent->children = child->next;
		return;
	}
	while (c->next != child)
		c = c->next;
	c->next = child->next;
}

void nccl_child_add(struct ncclComm *parent, struct ncclComm *child)
{
	pthread_mutex_lock(&lock);
	child->next = parent->children;
	child->parent = parent;
	parent->children = child;
	pthread_mutex_unlock(&lock);
}

void nccl_child_is_made(struct ncclComm *child)
{
	if (!atomic_load_explicit(&child->parent, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	take_from_parent(child);
	pthread_mutex_unlock(&lock);
}

/* Of a child that is ended meanwhile nothing is told. */
static dicomm_result_t state_of(struct ncclComm *child)
{
	dicomm_result_t error = DICOMM_SUCCESS;

	if (!nccl_enter_shared(child, NCCL_THERE))
		return DICOMM_SUCCESS;
	dicomm_comm_get_async_error(child->comm, &error);
	nccl_leave_shared(child);
	return error;
}

dicomm_result_t nccl_children_state(struct ncclComm *parent)
{
	dicomm_result_t state = DICOMM_SUCCESS, one;
	struct ncclComm *next;

	if (!atomic_load_explicit(&parent->children, memory_order_relaxed))
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&lock);
	for (struct ncclComm *c = parent->children; c; c = next) {
		next = c->next;
		one = state_of(c);
		if (one != DICOMM_IN_PROGRESS)
			take_from_parent(c);
		if (one != DICOMM_SUCCESS &&
		    (state == DICOMM_SUCCESS || state == DICOMM_IN_PROGRESS))
			state = one;
	}
	pthread_mutex_unlock(&lock);
	return state;
}

void nccl_handle_free(struct ncclComm *c)
{
	struct ncclComm *child;

	c->comm = NULL;
	atomic_store(&c->state, NCCL_FREE);
	pthread_mutex_lock(&lock);
	take_from_parent(c);
	while ((child = c->children))
		take_from_parent(child);
	c->next = NULL;
	*last = c;
	last = &c->next;
	pthread_mutex_unlock(&lock);
}

void nccl_handle_fail(struct ncclComm *c, ncclResult_t why)
{
	c->comm = NULL;
	c->failure = why;
	nccl_child_is_made(c);
	atomic_store(&c->state, NCCL_FAILED);
}

static void nap(unsigned us)
{
	struct timespec t = {.tv_nsec = (long)us * 1000};

	nanosleep(&t, NULL);
}

/* In the child of a fork, the thread that was in the call is not there. */
bool nccl_handle_wait(struct ncclComm *c)
{
	do {
		if (c->pid != (int)getpid())
			return false;
		nap(20);
	} while (atomic_exchange(&c->busy, 1));
	return true;
}

static bool is_in(const struct ncclComm *c, unsigned states)
{
	return NCCL_IN(atomic_load(&c->state)) & states;
}

bool nccl_enter_shared(struct ncclComm *c, unsigned states)
{
	if (!nccl_is_handle(c))
		return false;
	atomic_fetch_add(&c->readers, 1);
	if (is_in(c, states) && atomic_load(&c->comm))
		return true;
	atomic_fetch_sub(&c->readers, 1);
	return false;
}

void nccl_leave_shared(struct ncclComm *c)
{
	atomic_fetch_sub(&c->readers, 1);
}

bool nccl_enter_any(struct ncclComm *c, unsigned states)
{
	if (!nccl_is_handle(c))
		return false;
	if (atomic_exchange(&c->busy, 1) && !nccl_handle_wait(c))
		return false;
	if (is_in(c, states))
		return true;
	nccl_leave(c);
	return false;
}

bool nccl_turn(struct ncclComm *c, unsigned from, enum nccl_state to)
{
	uint32_t was = atomic_load(&c->state);

	while (NCCL_IN(was) & from)
		if (atomic_compare_exchange_weak(&c->state, &was, to))
			return true;
	return false;
}

bool nccl_handle_drain(struct ncclComm *c, int ms, bool busy, uint32_t own)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	while ((busy && atomic_load(&c->busy)) ||
	       atomic_load(&c->readers) > own) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begin.tv_sec) * 1000 +
			    (now.tv_nsec - begin.tv_nsec) / 1000000 >
		    ms)
			return false;
		nap(50);
	}
	return true;
}

bool nccl_is_mapped(const void *p)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	unsigned char there;

	return !mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &there);
}

ncclResult_t nccl_handle_refuse(const char *f, const void *p)
{
	const struct ncclComm *c = p;
	char text[768];

	if (!p)
		return nccl_refuse(ncclInvalidArgument, "%s: comm is NULL", f);
	if (!nccl_is_handle(p)) {
		snprintf(text, sizeof(text),
			 "%s: comm %p is no communicator of libdicomm's NCCL "
			 "interface%s",
			 f, p,
			 nccl_is_mapped(p)
				 ? ": another library has made it, or it "
				   "is no communicator at all"
				 : "");
		nccl_tell_other(text, sizeof(text));
		return nccl_refuse(ncclInvalidArgument, "%s", text);
	}
	switch ((enum nccl_state)atomic_load(&c->state)) {
	case NCCL_PENDING:
		return nccl_refuse(ncclInvalidUsage,
				   "%s: comm %p is made by the end of the "
				   "group that it was called in",
				   f, p);
	case NCCL_FAILED:
		return nccl_refuse(ncclInvalidArgument,
				   "%s: comm %p could not be made: it is good "
				   "for ncclCommGetAsyncError(), "
				   "ncclCommDestroy() and ncclCommAbort() only",
				   f, p);
	case NCCL_SUSPENDED:
		return nccl_refuse(ncclInvalidUsage,
				   "%s: comm %p is suspended: "
				   "ncclCommResume() is to be called first",
				   f, p);
	case NCCL_REVOKED:
		return nccl_refuse(ncclInvalidUsage,
				   "%s: comm %p was revoked: it is good for "
				   "ncclCommShrink(), "
				   "ncclCommDestroy() and ncclCommAbort() only",
				   f, p);
	case NCCL_LIVE:
		if (c->pid != (int)getpid())
			return nccl_refuse(ncclInvalidUsage,
					   "%s: comm %p belongs to the parent "
					   "of this process",
					   f, p);
		return nccl_refuse(ncclInvalidUsage, "%s: comm %p is not ready",
				   f, p);
	case NCCL_FREE:
	case NCCL_DYING:
		break;
	}
	return nccl_refuse(ncclInvalidArgument,
			   "%s: comm %p is no communicator any more: it was "
			   "destroyed or aborted",
			   f, p);
}

ncclResult_t nccl_handle_failed(struct ncclComm *c, dicomm_result_t status)
{
	ncclResult_t result = nccl_failed(status);
	dicomm_result_t error = DICOMM_SUCCESS;

	if (status != DICOMM_ERR_INVALID_USAGE ||
	    !nccl_enter_shared(c, NCCL_THERE))
		return result;
	dicomm_comm_get_async_error(c->comm, &error);
	nccl_leave_shared(c);
	return error == DICOMM_IN_PROGRESS ? ncclInvalidArgument : result;
}
