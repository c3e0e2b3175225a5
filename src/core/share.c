/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may use the data path of a communicator that several threads call. */
#include "src/core/share.h"

#include <sched.h>
#include <time.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/yield.h"

/* A short lending ends after that, if the driver has not given it back. */
#define LEND_NS UINT64_C(20000)
/* Sleep of a lender whose core others want */
#define NAP_US 20

/* Needs fault.lock. The owner waits while it is borrowed, so whoever finds it
 * shared also finds whether the owner is inside. */
static void make_shared(struct dicomm_comm *comm)
{
	int was = atomic_load(&comm->fault.status);

	while (was <= DICOMM_SUCCESS &&
	       (was == COMM_BORROWED ||
		!atomic_compare_exchange_strong(&comm->fault.status, &was,
						COMM_BORROWED))) {
		sched_yield();
		was = atomic_load(&comm->fault.status);
	}
	if (was > DICOMM_SUCCESS)
		return;
	fence_all();
	was = COMM_BORROWED;
	atomic_compare_exchange_strong(&comm->fault.status, &was, COMM_SHARED);
}

/* The first thread that comes becomes it. */
static bool is_owner(struct dicomm_comm *comm)
{
	void *owner = atomic_load(&comm->owner);
	void *me = __builtin_thread_pointer();

	return owner == me || (!owner && atomic_compare_exchange_strong(
						 &comm->owner, &owner, me));
}

void share_claim(struct dicomm_comm *comm)
{
	if (share_is(comm) || is_owner(comm))
		return;
	pthread_mutex_lock(&comm->fault.lock);
	if (!share_is(comm) && !fault_is(comm))
		make_shared(comm);
	pthread_mutex_unlock(&comm->fault.lock);
}

/* The owner has stored `inside`. If the communicator is shared, it is no
 * longer the owner. */
static bool owner_enters(struct dicomm_comm *comm)
{
	int status;

	/* Orders the loads below after the store that made this thread a
	 * user. */
	atomic_thread_fence(memory_order_seq_cst);
	while ((status = atomic_load_explicit(&comm->fault.status,
					      memory_order_acquire)) ==
	       COMM_BORROWED)
		sched_yield();
	if (status == DICOMM_SUCCESS ||
	    (status == COMM_PENDING && comm_may_begin(comm)))
		return true;
	atomic_store(&comm->inside, 0);
	if (status == COMM_SHARED)
		atomic_store(&comm->owner, SHARE_POLLER);
	return false;
}

static enum comm_entry take_or_queue(struct dicomm_comm *comm)
{
	void *holder, *me = __builtin_thread_pointer();

	for (;;) {
		holder = NULL;
		if (atomic_compare_exchange_strong(&comm->holder, &holder, me))
			break;
		if (holder != SHARE_POLLER)
			return COMM_BUSY;
		sched_yield();
	}
	if (!fault_is(comm) && !atomic_load(&comm->queued) &&
	    !atomic_load(&comm->inside)) {
		comm->leaves_slowly = true;
		return COMM_ENTERED;
	}
	atomic_store(&comm->holder, NULL);
	return fault_is(comm) ? COMM_BROKEN : COMM_BUSY;
}

static enum comm_entry enter_slow(struct dicomm_comm *comm)
{
	if (is_owner(comm)) {
		atomic_store(&comm->inside, 1);
		if (owner_enters(comm))
			return COMM_ENTERED;
	}
	if (!comm_may_begin(comm))
		return COMM_BROKEN;
	share_claim(comm);
	return take_or_queue(comm);
}

enum comm_entry comm_enter_slow(struct dicomm_comm *comm)
{
	enum comm_entry entry;

	cancel_hold();
	entry = enter_slow(comm);
	if (entry == COMM_ENTERED && comm->slow_transport)
		comm_hold(comm);
	cancel_release();
	return entry;
}

void comm_hold(struct dicomm_comm *comm)
{
	if (comm->holds_cancel || !comm_is_inside(comm))
		return;
	comm->holds_cancel = comm->leaves_slowly = true;
	cancel_hold();
}

void comm_leave_slow(struct dicomm_comm *comm)
{
	bool held = comm->holds_cancel;

	comm->holds_cancel = comm->leaves_slowly = false;
	if (held)
		cancel_release();
	if (atomic_load(&comm->holder) != __builtin_thread_pointer())
		atomic_store_explicit(&comm->inside, 0, memory_order_release);
	else
		atomic_store_explicit(&comm->holder, NULL,
				      memory_order_release);
}

bool share_enter(struct dicomm_comm *comm)
{
	enum comm_entry entry;

	while ((entry = comm_enter(comm)) == COMM_BUSY)
		sched_yield();
	return entry == COMM_ENTERED;
}

/* ---- lending ---- */

static void rest(unsigned us)
{
	const struct timespec nap = {0, (long)us * 1000};

	nanosleep(&nap, NULL);
}

static void give_way(void)
{
	if (!core_yield())
		rest(NAP_US);
}

static void take_back(struct dicomm_comm *comm)
{
	for (;;) {
		int was = COMM_LENT;

		if (atomic_compare_exchange_strong(&comm->lent, &was,
						   COMM_KEPT) ||
		    was == COMM_KEPT)
			return;
		if (was != COMM_TAKEN ||
		    atomic_compare_exchange_strong(&comm->lent, &was,
						   COMM_RECALLED))
			give_way();
	}
}

void share_lend(struct dicomm_comm *comm, unsigned us)
{
	unsigned returns = atomic_load(&comm->returns);
	uint64_t end = clock_ns() + LEND_NS;

	atomic_store(&comm->lent, COMM_LENT);
	if (us)
		rest(us);
	while (!us && atomic_load(&comm->returns) == returns &&
	       share_is_wanted(comm) && clock_ns() < end)
		give_way();
	take_back(comm);
}

bool share_take(struct dicomm_comm *comm)
{
	int was = COMM_LENT;

	if (atomic_load(&comm->fault.status) == COMM_BORROWED)
		return false;
	/* Nobody enters while something is queued. */
	if (!atomic_load(&comm->inside) && !atomic_load(&comm->holder))
		return true;
	return atomic_compare_exchange_strong(&comm->lent, &was, COMM_TAKEN);
}

void share_return(struct dicomm_comm *comm)
{
	int was = atomic_load(&comm->lent);

	if (was != COMM_TAKEN && was != COMM_RECALLED)
		return;
	atomic_fetch_add(&comm->returns, 1);
	was = COMM_TAKEN;
	if (!atomic_compare_exchange_strong(&comm->lent, &was, COMM_LENT))
		atomic_store(&comm->lent, COMM_KEPT);
}
