/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicators of groups that threads run. */
#include "src/island/hold.h"

#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/fork.h"
#include "src/core/fault.h"

/* How many are aborted in one go */
#define MOST_BESIDE 16

static _Thread_local struct island_hold *held;
/* Guarded by FORK_ISLAND_HOLDS */
static struct island_hold *all;

/* The other threads, whose stacks have them, are not in the child. */
static void forget(void)
{
	all = NULL;
}

void island_hold_begin(struct island_hold *hold)
{
	hold->outer = held;
	held = hold;
	atomic_signal_fence(memory_order_seq_cst);
	for (size_t i = 0; i < hold->n; i++)
		atomic_fetch_add(&hold->items[i].comm->in_island, 1);
	fork_add(FORK_ISLAND_HOLDS, forget);
	fork_lock(FORK_ISLAND_HOLDS);
	hold->next = all;
	all = hold;
	fork_unlock(FORK_ISLAND_HOLDS);
}

void island_hold_end(struct island_hold *hold)
{
	struct island_hold **at = &all;

	fork_lock(FORK_ISLAND_HOLDS);
	while (*at && *at != hold)
		at = &(*at)->next;
	if (*at)
		*at = hold->next;
	fork_unlock(FORK_ISLAND_HOLDS);
	for (size_t i = 0; i < hold->n; i++)
		atomic_fetch_sub(&hold->items[i].comm->in_island, 1);
	atomic_signal_fence(memory_order_seq_cst);
	held = hold->outer;
}

static bool has(const struct island_hold *h, const struct dicomm_comm *comm)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->items[i].comm == comm)
			return true;
	return false;
}

bool island_hold_has(const struct dicomm_comm *comm)
{
	for (const struct island_hold *h = held; h; h = h->outer)
		if (has(h, comm))
			return true;
	return false;
}

/* Adds those of a group that are not broken, and keeps them from being freed.
 */
static size_t take_beside(const struct island_hold *h,
			  struct dicomm_comm **beside, size_t n)
{
	for (size_t i = 0; i < h->n && n < MOST_BESIDE; i++) {
		struct dicomm_comm *c = h->items[i].comm;
		bool again = fault_is(c);

		for (size_t k = 0; k < n; k++)
			again |= beside[k] == c;
		if (again)
			continue;
		atomic_fetch_add(&c->in_island, 1);
		beside[n++] = c;
	}
	return n;
}

/* Returns true if there are more. */
static bool abort_beside(const struct dicomm_comm *comm)
{
	struct dicomm_comm *beside[MOST_BESIDE];
	size_t n = 0;

	fork_lock(FORK_ISLAND_HOLDS);
	for (struct island_hold *h = all; h; h = h->next)
		if (has(h, comm))
			n = take_beside(h, beside, n);
	fork_unlock(FORK_ISLAND_HOLDS);
	for (size_t i = 0; i < n; i++) {
		fault_raise(beside[i], DICOMM_ERR_ABORTED, beside[i]->rank,
			    true,
			    "rank %d aborted %s while %s was in one group with "
			    "it",
			    beside[i]->rank, comm->name, beside[i]->name);
		atomic_fetch_sub(&beside[i]->in_island, 1);
	}
	return n == MOST_BESIDE;
}

void island_hold_abort(struct dicomm_comm *comm)
{
	const struct timespec nap = {0, 1000000};
	uint64_t begin = clock_ms();

	/* Either this finds who is inside, or who begins now finds the fault
	 * (island_group_run). */
	atomic_thread_fence(memory_order_seq_cst);
	while (atomic_load(&comm->in_island) &&
	       clock_ms() - begin < FAULT_NEWS_MS)
		nanosleep(&nap, NULL);
	while (atomic_load(&comm->in_island) && abort_beside(comm))
		;
}
