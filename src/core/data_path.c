/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may touch the data path of a communicator; the header has the table. */
#include "src/core/data_path.h"

#include <sched.h>
#include <time.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/yield.h"

/* What a thread has to do when it leaves */
enum { LEAVE_HOLDER = 1, RELEASE_CANCEL = 2 };

/* The owner of a shared communicator: no thread */
#define NO_THREAD ((void *)1)
/* A short lending ends after that, if the driver has not given it back. */
#define LEND_NS UINT64_C(20000)
/* Sleep of a lender whose core others want */
#define NAP_US 20

_Atomic(data_path_ask *) data_path_lets_begin;

static enum data_path_state state_of(uint64_t word)
{
	return (enum data_path_state)(word & DATA_PATH_STATE);
}

/* Changes the state if the word is still *word; else updates that. */
static bool change(struct data_path *p, uint64_t *word,
		   enum data_path_state state)
{
	return atomic_compare_exchange_strong(
		&p->word, word, (*word & ~DATA_PATH_STATE) | state);
}

/* Returns the word once it is not borrowed. */
static uint64_t await_return(struct data_path *p)
{
	uint64_t word;

	while (state_of(word = atomic_load(&p->word)) == DATA_PATH_BORROWED)
		sched_yield();
	return word;
}

/* The first thread that comes becomes it. */
static bool is_owner(struct data_path *p)
{
	void *owner = atomic_load(&p->owner);
	void *me = __builtin_thread_pointer();

	return owner == me || (!owner && atomic_compare_exchange_strong(
						 &p->owner, &owner, me));
}

/* The owner waits while it is borrowed. So whoever finds it shared also finds
 * whether the owner is inside. */
void data_path_claim(struct data_path *p)
{
	uint64_t word;

	if (data_path_is_shared(p) || (is_owner(p) && !atomic_load(&p->inside)))
		return;
	do {
		word = await_return(p);
		if (word & DATA_PATH_SHARED)
			return;
	} while (!change(p, &word, DATA_PATH_BORROWED));
	fence_all();
	atomic_fetch_add(&p->word, DATA_PATH_SHARED - DATA_PATH_BORROWED);
}

/* ---- threads that make calls ---- */

/* For the thread inside: it may have to leave again. */
static enum data_path_entry ask_fault(struct data_path *p, uint64_t word)
{
	if (!(word & DATA_PATH_FAULT) || atomic_load(&data_path_lets_begin)(p))
		return DATA_PATH_ENTERED;
	data_path_leave(p);
	return DATA_PATH_BROKEN;
}

/* For the owner, unless it is shared. Then this thread is no longer the
 * owner. */
static bool enter_as_owner(struct data_path *p, enum data_path_entry *entry)
{
	uint64_t word;

	atomic_store(&p->inside, true);
	/* Orders the load of the word after the store. */
	atomic_thread_fence(memory_order_seq_cst);
	word = await_return(p);
	if (word < DATA_PATH_QUEUED && !(word & DATA_PATH_SHARED)) {
		*entry = ask_fault(p, word);
		return true;
	}
	atomic_store(&p->inside, false);
	*entry = DATA_PATH_BUSY;
	if (!(word & DATA_PATH_SHARED))
		return true;
	atomic_store(&p->owner, NO_THREAD);
	return false;
}

/* The holder is set first and reset last: a signal handler that interrupts this
 * finds that this thread is inside. */
static enum data_path_entry enter_shared(struct data_path *p)
{
	void *nobody;
	uint64_t word;

	for (;;) {
		word = await_return(p);
		/* The owner may be inside since before it was shared. */
		if (word & ~(DATA_PATH_SHARED | DATA_PATH_FAULT) ||
		    atomic_load(&p->inside))
			return DATA_PATH_BUSY;
		nobody = NULL;
		if (!atomic_compare_exchange_strong(&p->holder, &nobody,
						    __builtin_thread_pointer()))
			sched_yield(); /* one that enters or leaves just now */
		else if (change(p, &word, DATA_PATH_HELD))
			break;
		else
			atomic_store(&p->holder, NULL);
	}
	p->undo = LEAVE_HOLDER;
	return ask_fault(p, word);
}

enum data_path_entry data_path_enter_slow(struct data_path *p)
{
	enum data_path_entry entry;

	cancel_hold();
	if (!is_owner(p) || !enter_as_owner(p, &entry)) {
		data_path_claim(p);
		entry = enter_shared(p);
	}
	if (entry == DATA_PATH_ENTERED && p->makes_system_calls)
		data_path_hold_cancel(p);
	cancel_release();
	return entry;
}

void data_path_hold_cancel(struct data_path *p)
{
	if (!data_path_is_inside(p) || p->undo & RELEASE_CANCEL)
		return;
	p->undo |= RELEASE_CANCEL;
	cancel_hold();
}

void data_path_leave_slow(struct data_path *p)
{
	uint8_t undo = p->undo;

	p->undo = 0;
	if (undo & RELEASE_CANCEL)
		cancel_release();
	/* After the last store, the communicator may be gone. */
	if (undo & LEAVE_HOLDER) {
		atomic_fetch_and(&p->word, ~DATA_PATH_STATE);
		atomic_store(&p->holder, NULL);
	} else {
		atomic_store_explicit(&p->inside, false, memory_order_release);
	}
}

bool data_path_await(struct data_path *p)
{
	enum data_path_entry entry;

	while ((entry = data_path_enter(p)) == DATA_PATH_BUSY)
		sched_yield();
	return entry == DATA_PATH_ENTERED;
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

/* The owner that entered before it was shared goes on as the holder. */
static void become_holder(struct data_path *p)
{
	if (p->undo & LEAVE_HOLDER)
		return;
	p->undo |= LEAVE_HOLDER;
	atomic_store(&p->holder, __builtin_thread_pointer());
	/* Nobody else changes the state while the owner is inside. */
	atomic_fetch_or(&p->word, DATA_PATH_HELD);
	atomic_store(&p->inside, false);
}

static void take_back(struct data_path *p)
{
	uint64_t word = atomic_load(&p->word);

	while (state_of(word) != DATA_PATH_HELD) {
		bool taken = state_of(word) == DATA_PATH_TAKEN;

		if (state_of(word) == DATA_PATH_RECALLED)
			give_way();
		else if (change(p, &word,
				taken ? DATA_PATH_RECALLED : DATA_PATH_HELD) &&
			 !taken)
			return;
		word = atomic_load(&p->word);
	}
}

void data_path_lend(struct data_path *p, unsigned us)
{
	uint64_t end = clock_ns() + LEND_NS;

	if (!data_path_is_shared(p))
		return;
	become_holder(p);
	atomic_fetch_add(&p->word, (us ? DATA_PATH_LENT : DATA_PATH_LENT_ONCE) -
					   DATA_PATH_HELD);
	if (us)
		rest(us);
	while (!us && state_of(atomic_load(&p->word)) != DATA_PATH_HELD &&
	       data_path_queued(p) && clock_ns() < end)
		give_way();
	take_back(p);
}

bool data_path_take(struct data_path *p)
{
	uint64_t word = atomic_load(&p->word);

	for (;;) {
		switch (state_of(word)) {
		case DATA_PATH_FREE: /* nobody enters: something is queued */
			if (atomic_load(&p->inside))
				return false;
			/* The owner may have become the holder meanwhile. */
			word = atomic_load(&p->word);
			if (state_of(word) == DATA_PATH_FREE)
				return true;
			break;
		case DATA_PATH_LENT:
			if (change(p, &word, DATA_PATH_TAKEN))
				return true;
			break;
		case DATA_PATH_LENT_ONCE:
			if (change(p, &word, DATA_PATH_RECALLED))
				return true;
			break;
		default:
			return false;
		}
	}
}

void data_path_return(struct data_path *p)
{
	uint64_t word = atomic_load(&p->word);

	while ((state_of(word) == DATA_PATH_TAKEN &&
		!change(p, &word, DATA_PATH_LENT)) ||
	       (state_of(word) == DATA_PATH_RECALLED &&
		!change(p, &word, DATA_PATH_HELD)))
		;
}

/* ---- pollers ---- */

bool data_path_borrow(struct data_path *p)
{
	uint64_t word = atomic_load(&p->word);

	if (word & ~DATA_PATH_SHARED || atomic_load(&p->inside) ||
	    !change(p, &word, DATA_PATH_BORROWED))
		return false;
	/* Once it is shared, the owner does not enter by `inside`. */
	if (!(word & DATA_PATH_SHARED))
		fence_all();
	if (!atomic_load(&p->inside))
		return true;
	data_path_give_back(p);
	return false;
}

void data_path_give_back(struct data_path *p)
{
	atomic_fetch_and(&p->word, ~DATA_PATH_STATE);
}
