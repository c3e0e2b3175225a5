/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who may touch the data path of a communicator: its transports, channels,
 * prepared calls, scratch and operation numbers. One thread at a time has it.
 *
 * The *owner* is the first thread that calls. While no other thread has called,
 * it enters by a plain store to `inside`. The first call of another thread
 * makes the communicator shared, for good: from then on, threads enter by an
 * atomic exchange, and the one inside is the *holder*. A call of another thread
 * meanwhile is queued for the *driver* (src/stream/driver.c), and so are all
 * later calls until the queued ones have ended. So at most two threads need the
 * data path: the holder, whose blocking call runs, and the driver. Whenever the
 * holder has to wait, it lends the data path to the driver for some turns. For
 * a rank that is away, a *poller* (cross_progress.c) borrows it.
 *
 * `word` holds a state, two flags and the number of queued operations. Nothing
 * else says who has the data path, except `inside`, which the owner sets. Each
 * kind of thread may change the state as follows ("-": not at all):
 *
 * state      who has it       threads that call     driver       poller
 * ---------  ---------------  --------------------  -----------  -----------
 * FREE       nobody; the      owner: stays FREE,    -            BORROWED,
 *            owner if          sets `inside`;                     _borrow()
 *            `inside`         if shared: HELD,
 *                              both by _enter()
 * FREE, and  the driver;      - (BUSY: the call     stays FREE,  -
 *  queued >0 first the owner,  is queued)            _take()
 *            if `inside`
 * BORROWED   the poller       - (_enter() waits)    -            FREE,
 *                                                                 _give_back()
 * HELD       the holder       holder: FREE,         -            -
 *                              _leave(); LENT or
 *                              LENT_ONCE, _lend()
 * LENT       nobody; the      holder: HELD, at the  TAKEN,       -
 *            holder waits      end of _lend()        _take()
 * LENT_ONCE  the same         the same              RECALLED,    -
 *                                                    _take()
 * TAKEN      the driver       holder: RECALLED, at  LENT,        -
 *                              the end of _lend()    _return()
 * RECALLED   the driver, for  - (holder: waits)     HELD,        -
 *            its last turn                           _return()
 *
 * From HELD on, _enter() of other threads returns BUSY. The flags are set once:
 * SHARED by _claim(), which borrows the data path for that as a poller does;
 * FAULT by the thread that reports a fault or a death, with _report(), in any
 * state. That thread changes nothing else: threads inside leave at their next
 * check, and those that enter ask fault.c.
 *
 * An entering owner stores `inside` and then loads the word, which needs a
 * fence in between. The thread that changes the word provides it: its
 * fence_all() puts a fence into every thread by membarrier(2). So a call pays
 * nothing for it, and only compares the word with 0: FREE, not shared, no
 * fault, nothing queued.
 *
 * The call of the holder may be one that the engine does not know (the fast
 * path). Before it lends, it puts an operation into the queue of that call, so
 * that later ones of that queue wait for it.
 */
#ifndef DICOMM_CORE_DATA_PATH_H
#define DICOMM_CORE_DATA_PATH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/core/fence.h"

enum data_path_state {
	DATA_PATH_FREE,
	DATA_PATH_BORROWED,
	DATA_PATH_HELD,
	DATA_PATH_LENT,
	DATA_PATH_LENT_ONCE,
	DATA_PATH_TAKEN,
	DATA_PATH_RECALLED
};

/* The parts of the word; one queued operation counts DATA_PATH_QUEUED. */
#define DATA_PATH_STATE UINT64_C(7)
#define DATA_PATH_SHARED UINT64_C(8)
#define DATA_PATH_FAULT UINT64_C(16)
#define DATA_PATH_QUEUED UINT64_C(32)

struct data_path {
	_Atomic uint64_t word;
	/* __builtin_thread_pointer() of the owner, and of the holder */
	_Atomic(void *) owner;
	_Atomic(void *) holder;
	_Atomic bool inside; /* the owner entered by its own store */
	/* What the thread inside has to do when it leaves. */
	uint8_t undo;
	/* Messages pass through the kernel, so each call holds cancellation
	 * off. Set during initialization. */
	bool makes_system_calls;
	/* Calls of its group that the thread inside has not ended yet. */
	int calls;
};

enum data_path_entry {
	DATA_PATH_ENTERED, /* to be left */
	DATA_PATH_BROKEN,  /* not entered */
	/* Not entered: a call of another thread is under way, or operations are
	 * queued. Queue this one for the driver. */
	DATA_PATH_BUSY
};

static inline bool data_path_is_shared(const struct data_path *p)
{
	return atomic_load_explicit(&p->word, memory_order_acquire) &
	       DATA_PATH_SHARED;
}

/* Returns the number of queued operations. */
static inline uint64_t data_path_queued(const struct data_path *p)
{
	return atomic_load_explicit(&p->word, memory_order_acquire) /
	       DATA_PATH_QUEUED;
}

/* Returns true if a blocking call is under way. */
static inline bool data_path_is_entered(const struct data_path *p)
{
	return atomic_load(&p->inside) || atomic_load(&p->holder);
}

/* Is a blocking call under way, or anything queued? */
static inline bool data_path_is_used(const struct data_path *p)
{
	return data_path_is_entered(p) || data_path_queued(p);
}

/* Returns true if this thread has entered and not left: the caller is then a
 * signal handler, or a function of the user that the library has called. */
static inline bool data_path_is_inside(const struct data_path *p)
{
	void *me = __builtin_thread_pointer();

	return atomic_load(&p->holder) == me ||
	       (atomic_load(&p->inside) && atomic_load(&p->owner) == me);
}

/* ---- for the threads that make calls ---- */

/* If this thread is inside, holds cancellation off for it until it leaves. */
void data_path_hold_cancel(struct data_path *p);
enum data_path_entry data_path_enter_slow(struct data_path *p);
void data_path_leave_slow(struct data_path *p);

static inline enum data_path_entry data_path_enter(struct data_path *p)
{
	if (__builtin_expect(
		    atomic_load_explicit(&p->owner, memory_order_relaxed) !=
			    __builtin_thread_pointer(),
		    0))
		return data_path_enter_slow(p);
	atomic_store_explicit(&p->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&fence_needed, memory_order_acquire))
		atomic_thread_fence(memory_order_seq_cst);
	/* Acquire, to see the writes of the driver or of a poller. */
	if (__builtin_expect(
		    atomic_load_explicit(&p->word, memory_order_acquire) != 0,
		    0))
		return data_path_enter_slow(p);
	if (__builtin_expect(p->makes_system_calls, 0))
		data_path_hold_cancel(p);
	return DATA_PATH_ENTERED;
}

static inline void data_path_leave(struct data_path *p)
{
	if (__builtin_expect(p->undo, 0))
		data_path_leave_slow(p);
	else
		atomic_store_explicit(&p->inside, false, memory_order_release);
}

/* Enters for a short way of a call that may turn out to need the long one,
 * which enters again. Returns false if this thread is not inside; so too where
 * a fault is reported: if that is a death, the short way would be the one call
 * that may still begin. */
static inline bool data_path_enter_briefly(struct data_path *p)
{
	return !(atomic_load_explicit(&p->word, memory_order_relaxed) &
		 DATA_PATH_FAULT) &&
	       data_path_enter(p) == DATA_PATH_ENTERED;
}

/* As data_path_enter(), for each call of a group, in any order. The last call
 * to leave also leaves the data path. */
static inline enum data_path_entry data_path_enter_one(struct data_path *p)
{
	enum data_path_entry entry = DATA_PATH_ENTERED;

	if (!data_path_is_inside(p)) {
		entry = data_path_enter(p);
		if (entry == DATA_PATH_ENTERED)
			p->calls = 0;
	} else if (!p->calls) {
		p->calls = 1; /* that it is in, which leaves by itself */
	}
	/* Others must not touch the count of the thread inside. */
	if (entry == DATA_PATH_ENTERED)
		p->calls++;
	return entry;
}

static inline void data_path_leave_one(struct data_path *p)
{
	if (!--p->calls)
		data_path_leave(p);
}

/* Waits until this thread is inside, or returns false if the communicator is
 * broken. The calls of other threads end in bounded time. */
bool data_path_await(struct data_path *p);

/* Lends the data path to the driver: for about `us` microseconds, or if `us` is
 * 0, for one turn, and for 20 microseconds at most. For the thread inside, if
 * it is shared and something is queued. */
void data_path_lend(struct data_path *p, unsigned us);

/* To be called before this thread queues something: makes the communicator
 * shared unless this thread is its owner, and outside. */
void data_path_claim(struct data_path *p);

static inline void data_path_queue(struct data_path *p)
{
	atomic_fetch_add(&p->word, DATA_PATH_QUEUED);
}

/* ---- for the driver ---- */

/* The driver takes one data path at a time, where something is queued. This
 * never waits. It returns false if a thread is inside and has not lent it, or
 * if it is borrowed. */
bool data_path_take(struct data_path *p);
void data_path_return(struct data_path *p);

static inline void data_path_dequeue(struct data_path *p)
{
	atomic_fetch_sub_explicit(&p->word, DATA_PATH_QUEUED,
				  memory_order_release);
}

/* ---- for pollers ---- */

/* Returns true if this thread has the data path now. If other threads come
 * meanwhile, they wait: it gives it back after a few polls, or at once when
 * data_path_is_used(). Fails where a thread is inside, anything is queued, or a
 * fault is reported. */
bool data_path_borrow(struct data_path *p);
void data_path_give_back(struct data_path *p);

/* ---- for threads that report a fault ---- */

/* Asked where a fault is reported: may a call begin? By way of a pointer, since
 * fault.c itself needs this file. comm_create() sets it. */
typedef bool data_path_ask(struct data_path *p);
extern _Atomic(data_path_ask *) data_path_lets_begin;

/* From now on, threads that enter ask data_path_lets_begin. May be called in a
 * signal handler. */
static inline void data_path_report(struct data_path *p)
{
	atomic_fetch_or(&p->word, DATA_PATH_FAULT);
}

static inline bool data_path_has_fault(const struct data_path *p)
{
	return atomic_load(&p->word) & DATA_PATH_FAULT;
}

#endif
