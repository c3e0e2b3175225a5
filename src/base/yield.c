/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/yield.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/base/descriptors.h"

/* A yield takes so long if another program ran meanwhile; or if another thread
 * of the job spun, or computed. The latter yields soon, but a program that
 * wants the core makes each yield long. So LONG_YIELDS in a row tell. */
#define LONG_NS UINT64_C(300000)
#define LONG_YIELDS 4
/* A thread does without yields for half as long as the cores have been crowded
 * already, within these bounds, and then tries one. So a program that is soon
 * gone costs little, and one that runs for long costs few tries. */
#define CROWDED_LEAST_NS UINT64_C(1000000)
#define CROWDED_MOST_NS UINT64_C(1000000000)
/* If all yields of so long a time are short, the cores are free again. */
#define FREE_NS UINT64_C(1000000)

/* Threads may write these at the same time. Then a try comes too early or too
 * late, which does no harm. */
static _Atomic unsigned longs;    /* long yields in a row, before since_ns */
static _Atomic uint64_t since_ns; /* of the first; 0: cores are not crowded */
static _Atomic uint64_t until_ns; /* no yield before; 0: the last was short */
static _Atomic uint64_t free_ns;  /* of the first short one; 0: it was long */

static void found_short(uint64_t now)
{
	uint64_t first = atomic_load(&free_ns);

	atomic_store(&longs, 0);
	atomic_store(&until_ns, 0);
	if (!first)
		atomic_store(&free_ns, now);
	else if (now - first > FREE_NS)
		atomic_store(&since_ns, 0);
}

/* Are the cores known to be crowded? Not if they were free meanwhile, or nobody
 * has tried for longer than they had been crowded. */
static bool still_crowded(uint64_t now)
{
	uint64_t since = atomic_load(&since_ns), until = atomic_load(&until_ns);
	uint64_t first = atomic_load(&free_ns);

	if (!since || (first && now - first > FREE_NS))
		return false;
	return now <= until || !until || now - until <= until - since;
}

/* Returns true if the cores are crowded. */
static bool found_long(uint64_t start, uint64_t now)
{
	uint64_t ns;

	if (!still_crowded(start)) {
		if (atomic_fetch_add(&longs, 1) + 1 < LONG_YIELDS)
			return false;
		atomic_store(&since_ns, start);
	}
	ns = (now - atomic_load(&since_ns)) / 2;
	if (ns < CROWDED_LEAST_NS)
		ns = CROWDED_LEAST_NS;
	if (ns > CROWDED_MOST_NS)
		ns = CROWDED_MOST_NS;
	atomic_store(&longs, 0);
	atomic_store(&free_ns, 0);
	atomic_store(&until_ns, now + ns);
	return true;
}

bool cores_crowded(void)
{
	return atomic_load_explicit(&until_ns, memory_order_relaxed) != 0;
}

/* The second number is what the thread waited for, in nanoseconds
 * (Documentation/scheduler/sched-stats.rst). */
uint64_t core_starved_ns(void)
{
	FILE *f = descriptors_fopen("/proc/thread-self/schedstat");
	uint64_t ran, waited = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2)
		waited = 0;
	fclose(f);
	return waited;
}

bool core_yield(void)
{
	uint64_t start = clock_ns(), end;

	if (start < atomic_load_explicit(&until_ns, memory_order_relaxed))
		return false;
	sched_yield();
	end = clock_ns();
	if (end - start >= LONG_NS)
		return !found_long(start, end);
	if (atomic_load_explicit(&since_ns, memory_order_relaxed) ||
	    atomic_load_explicit(&longs, memory_order_relaxed))
		found_short(end);
	return true;
}
