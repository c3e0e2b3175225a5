/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/watch.h"

#include <errno.h>
#include <signal.h>

#include "tests/support/job.h"

/* A nap that took longer says that the machine is busy; the ranks have had no
 * more of it. */
#define NAP_MS 2
#define LONGEST_NAP_S 0.005

bool watch_survives(const struct watch *w, int seat)
{
	return !((w->dead | w->stopped | w->waiting) >> seat & 1);
}

unsigned watch_survivors(const struct watch *w)
{
	return ((1u << w->seats) - 1) & ~(w->dead | w->stopped | w->waiting);
}

int watch_phase(int seat)
{
	return atomic_load(&board->seat[seat].phase);
}

bool watch_lost(const struct watch *w)
{
	for (int s = 0; s < w->seats; s++)
		if (watch_survives(w, s) && watch_phase(s) != GONE &&
		    kill(job_pid(s), 0) && errno == ESRCH &&
		    watch_phase(s) != GONE)
			return true;
	return false;
}

bool watch_await(const struct watch *w, watch_condition *met, double seconds)
{
	double spent = 0, t;

	if (job_is_sanitized())
		seconds *= 3;
	while (!met(w)) {
		if (spent > seconds || watch_lost(w))
			return false;
		t = job_seconds();
		job_sleep_ms(NAP_MS);
		t = job_seconds() - t;
		spent += t < LONGEST_NAP_S ? t : LONGEST_NAP_S;
	}
	return true;
}

#define ALL(w, what)                                         \
	do {                                                 \
		for (int s = 0; s < w->seats; s++) {         \
			struct seat *at = &board->seat[s];   \
                                                             \
			if (watch_survives(w, s) && !(what)) \
				return false;                \
		}                                            \
		return true;                                 \
	} while (0)

bool watch_work(const struct watch *w)
{
	ALL(w, atomic_load(&at->phase) == WORKING);
}

bool watch_are_about_to_meet(const struct watch *w)
{
	ALL(w, atomic_load(&at->ready));
}

bool watch_know(const struct watch *w)
{
	ALL(w, atomic_load(&at->failed) > w->life);
}

bool watch_none_knows(const struct watch *w)
{
	ALL(w, atomic_load(&at->failed) <= w->life);
}

bool watch_went_on_or_know(const struct watch *w)
{
	ALL(w, atomic_load(&at->calls) > w->calls[s] + 2 ||
		       atomic_load(&at->failed) > w->life);
}

bool watch_have_shrunk(const struct watch *w)
{
	ALL(w, atomic_load(&at->shrunk) > w->life ||
		       atomic_load(&at->phase) >= LEAVING);
}

bool watch_have_grown(const struct watch *w)
{
	ALL(w, atomic_load(&at->grown) == w->growths);
}

bool watch_are_gone(const struct watch *w)
{
	ALL(w, atomic_load(&at->phase) == GONE);
}
