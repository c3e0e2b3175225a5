/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/yield.h"

#include <sched.h>
#include <stdatomic.h>

#include "src/base/clock.h"

/* Another rank that runs meanwhile yields itself after a few microseconds, so
 * after so long it was another program. */
#define CROWDED_YIELD_NS UINT64_C(300000)
/* How long to do without yields until one tries again: the first time, and at
 * most, if all tries find the cores as crowded as before. */
#define CROWDED_NS UINT64_C(50000000)
#define CROWDED_MAX_NS UINT64_C(1000000000)

static _Atomic uint64_t until_ns; /* 0: the cores are not crowded */
static _Atomic uint64_t next_ns = CROWDED_NS;

static void found_free(void)
{
	if (!atomic_load_explicit(&until_ns, memory_order_relaxed))
		return;
	atomic_store(&until_ns, 0);
	atomic_store(&next_ns, CROWDED_NS);
}

static void found_crowded(uint64_t now)
{
	uint64_t ns = atomic_load(&next_ns);

	atomic_store(&until_ns, now + ns);
	atomic_store(&next_ns,
		     2 * ns < CROWDED_MAX_NS ? 2 * ns : CROWDED_MAX_NS);
}

bool cores_crowded(void)
{
	return atomic_load_explicit(&until_ns, memory_order_relaxed) != 0;
}

bool core_yield(void)
{
	uint64_t start = clock_ns(), end;

	if (start < atomic_load_explicit(&until_ns, memory_order_relaxed))
		return false;
	sched_yield();
	end = clock_ns();
	if (end - start < CROWDED_YIELD_NS) {
		found_free();
		return true;
	}
	found_crowded(end);
	return false;
}
