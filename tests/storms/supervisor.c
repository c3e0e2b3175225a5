/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/supervisor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/storms/stacks.h"
#include "tests/storms/watch.h"
#include "tests/support/job.h"
#include "tests/support/storm.h"

/* Bounds of time: who takes longer hangs. */
#define MEET_S 40
#define KNOWN_S 20
#define GO_ON_S 60
#define SHRINK_S 30
#define GROW_S 30
#define LEAVE_S 40
/* After that nobody minds the socket that was shut. */
#define UNHURT_S 3

static const char *const phases[] = {"meets", "works",  "shrinks",
				     "grows", "leaves", "has ended"};

/* ---- what is told of faults ---- */

static void __attribute__((format(printf, 3, 4)))
fault(struct watch *w, enum tally_fault kind, const char *format, ...)
{
	const struct event *e = &w->cause.event;
	char text[1500];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!(w->counted >> kind & 1))
		tally_fault(&board->tally, kind);
	w->counted |= 1u << kind;
	fprintf(stderr,
		"seed %u, ranks %d, communicator %d of %d ranks, %s of rank %d "
		"(%d at first): %s: %s\n",
		w->r->seed, w->r->ranks, w->life,
		board->seat[e->victim].life[w->life].ranks, event_name(e->kind),
		w->cause.rank, e->victim, tally_name(kind), text);
}

static void print_seat(const struct watch *w, int s)
{
	const struct seat *at = &board->seat[s];
	const struct life *l = &at->life[w->life];

	fprintf(stderr,
		"   rank %d (%d at first) %s%s%s, failed %d, shrunk %d, %u "
		"calls since; status %d %s; shrink %d %s\n",
		l->rank, s, phases[watch_phase(s)],
		w->dead >> s & 1 ? ", was ended" : "",
		w->stopped >> s & 1 ? ", was stopped" : "",
		atomic_load(&at->failed), atomic_load(&at->shrunk),
		atomic_load(&at->calls) - w->calls[s], (int)l->status, l->text,
		(int)l->shrunk, l->shrink_text);
}

/* A condition was not met: say where everybody is, unless a rank ended by
 * itself, of which the job tells. */
static void hang(struct watch *w, const char *what)
{
	if (!watch_lost(w))
		fault(w, TALLY_HANG, "not all %s", what);
	for (int s = 0; s < w->seats; s++)
		print_seat(w, s);
	for (int s = 0; s < w->seats; s++)
		if (!(w->dead >> s & 1) && watch_phase(s) != GONE &&
		    !(w->stopped >> s & 1))
			stacks_print(job_pid(s));
}

/* ---- one event ---- */

static int draw_seat(struct watch *w)
{
	int s;

	do
		s = (int)storm_random(&w->random, (unsigned)w->seats);
	while (!watch_survives(w, s));
	return s;
}

static enum event_kind draw_kind(struct watch *w)
{
	unsigned z = storm_random(&w->random, 100);

	if (w->r->kind == ROUND_INIT)
		return EVENT_KILL_IN_INIT;
	if (w->r->kind == ROUND_STOPS)
		return EVENT_STOP;
	if (z < 8 && __builtin_popcount(watch_survivors(w)) >= 5)
		return EVENT_TWO_KILLS;
	return z < 30   ? EVENT_KILL
	       : z < 45 ? EVENT_PAUSE
	       : z < 60 ? EVENT_ABORT
	       : z < 69 ? EVENT_EXIT
	       : z < 78 ? EVENT_EXIT_NOW
			: EVENT_SHUT;
}

static struct event draw(struct watch *w)
{
	struct event e = {.kind = draw_kind(w), .second = -1};

	e.victim = draw_seat(w);
	e.stays_stopped = storm_random(&w->random, 2);
	board->seat[e.victim].shut = storm_random(&w->random, 256);
	if (e.kind == EVENT_PAUSE)
		e.pause_ms = 50 + (int)storm_random(&w->random, 700);
	if (e.kind == EVENT_TWO_KILLS) {
		do
			e.second = draw_seat(w);
		while (e.second == e.victim);
		e.pause_ms = (int)storm_random(&w->random, 30);
	}
	return e;
}

static void note_calls(struct watch *w)
{
	for (int s = 0; s < w->seats; s++)
		w->calls[s] = atomic_load(&board->seat[s].calls);
}

/* Let it happen. */
static void disturb(struct watch *w)
{
	struct event e = draw(w);

	w->cause = (struct cause){e, e.victim, e.second};
	if (w->r->kind != ROUND_INIT) {
		w->cause.rank = board->seat[e.victim].life[w->life].rank;
		if (e.second >= 0)
			w->cause.second =
				board->seat[e.second].life[w->life].rank;
	}
	tally_event(&board->tally, e.kind);
	if (event_kills(e.kind))
		w->dead |= 1u << e.victim;
	if (e.second >= 0)
		w->dead |= 1u << e.second;
	if (e.kind == EVENT_STOP)
		w->stopped |= 1u << e.victim;
	w->counted = 0;
	note_calls(w);
	w->at = job_seconds();
	event_do(&e);
}

static double last_failure(const struct watch *w)
{
	double last = w->at;

	for (int s = 0; s < w->seats; s++) {
		const struct life *l = &board->seat[s].life[w->life];

		if (watch_survives(w, s) && l->failed_at > last)
			last = l->failed_at;
	}
	return last;
}

static void judge_words(struct watch *w)
{
	for (int s = 0; s < w->seats; s++) {
		const struct life *l = &board->seat[s].life[w->life];

		if (!watch_survives(w, s) || judge_named(&w->cause, s, w->life))
			continue;
		fault(w, TALLY_UNNAMED,
		      "rank %d (%d at first) has status %d (async %d): %s",
		      l->rank, s, (int)l->status, (int)l->async, l->text);
	}
}

/* The manual promises that a time-out names the peer that was waited for, which
 * may itself wait for the one that stands still. */
static void count_stop(const struct watch *w)
{
	bool all = true;

	for (int s = 0; s < w->seats; s++)
		if (watch_survives(w, s))
			all &= judge_names(board->seat[s].life[w->life].text,
					   w->cause.rank);
	board->tally.stops++;
	board->tally.stops_found += all;
}

/* True: all know. */
static bool learn(struct watch *w)
{
	if (!watch_await(w, watch_know, KNOWN_S)) {
		hang(w, "know");
		return false;
	}
	tally_known(&board->tally, last_failure(w) - w->at);
	judge_words(w);
	if (w->cause.event.kind == EVENT_STOP)
		count_stop(w);
	return true;
}

static struct outcome outcome(const struct watch *w)
{
	struct outcome o = {.survivors =
				    __builtin_popcount(watch_survivors(w))};

	for (int s = 0; s < w->seats; s++) {
		const struct life *l = &board->seat[s].life[w->life];

		if (!watch_survives(w, s))
			continue;
		o.ranks = l->ranks;
		o.with_lowest |= l->rank == 0;
	}
	return o;
}

/* All survivors have shrunk: into what? True: into one, and they go on. */
static bool judge_shrinks(struct watch *w, int *ranks)
{
	struct outcome o = outcome(w);
	unsigned went_on = 0;

	for (int s = 0; s < w->seats; s++) {
		const struct life *l = &board->seat[s].life[w->life];

		if (!watch_survives(w, s))
			continue;
		if (l->shrunk == DICOMM_SUCCESS) {
			went_on |= 1u << s;
			*ranks = l[1].ranks;
		} else if (judge_majority(&o)) {
			fault(w, TALLY_SHRINK,
			      "shrink at rank %d (%d at first): %d %s", l->rank,
			      s, (int)l->shrunk, l->shrink_text);
		}
	}
	if (went_on && (!judge_majority(&o) || went_on != watch_survivors(w) ||
			!judge_one_party(went_on, w->life + 1)))
		fault(w, TALLY_SPLIT,
		      "%d of %d ranks survive, and seats 0x%x go on, "
		      "as %d ranks",
		      o.survivors, o.ranks, went_on, *ranks);
	return went_on && went_on == watch_survivors(w);
}

/* True: they go on. A second death may be too late for the first shrink; it is
 * in the tally as part of the event. */
static bool go_on(struct watch *w)
{
	int ranks = 0, left = __builtin_popcount(watch_survivors(w));
	double began = job_seconds(), took;

	if (!watch_await(w, watch_have_shrunk, SHRINK_S)) {
		hang(w, "have shrunk");
		return false;
	}
	took = job_seconds() - began;
	if (w->cause.event.kind != EVENT_STOP &&
	    took > board->tally.slowest_shrink_s)
		board->tally.slowest_shrink_s = took;
	board->tally.shrinks++;
	if (!judge_shrinks(w, &ranks))
		return false;
	w->life++;
	if (ranks == left)
		return true;
	if (w->cause.event.second < 0 || ranks != left + 1) {
		fault(w, TALLY_SPLIT, "%d ranks go on, of whom %d live", ranks,
		      left);
		return false;
	}
	for (int s = 0; s < w->seats; s++)
		if (watch_survives(w, s))
			w->cause.second = -1; /* its number is not known */
	return watch_await(w, watch_know, KNOWN_S) && go_on(w);
}

static bool judge_growth(struct watch *w)
{
	bool good = true;

	for (int s = 0; s < w->seats; s++) {
		const struct seat *at = &board->seat[s];

		if (!watch_survives(w, s) || at->grow == DICOMM_SUCCESS)
			continue;
		fault(w, TALLY_SHRINK, "grow at seat %d: %d %s", s,
		      (int)at->grow, at->grow_text);
		good = false;
	}
	if (good && !judge_one_party(watch_survivors(w), w->life)) {
		fault(w, TALLY_SPLIT, "unlike ranks after growing to %d",
		      board->ranks);
		good = false;
	}
	return good;
}

/* Of those that have shrunk, every second time: a spare rank joins them. True:
 * all go on. */
static bool grow(struct watch *w)
{
	if (w->growths == w->r->spares || storm_random(&w->random, 2))
		return true;
	/* Who works has drawn its calls already. */
	if (!watch_await(w, watch_work, MEET_S)) {
		hang(w, "work");
		return false;
	}
	board->joiner = w->r->ranks + w->growths++;
	w->waiting &= ~(1u << board->joiner);
	board->life = w->life;
	board->ranks = __builtin_popcount(watch_survivors(w));
	atomic_store(&board->growths, w->growths);
	if (!watch_await(w, watch_have_grown, GROW_S)) {
		hang(w, "have grown");
		return false;
	}
	board->tally.growths++;
	return judge_growth(w);
}

static bool survive_pause(struct watch *w)
{
	if (!watch_await(w, watch_went_on_or_know, GO_ON_S)) {
		hang(w, "went on");
		return false;
	}
	if (watch_none_knows(w))
		return true;
	learn(w);
	fault(w, TALLY_OTHER, "a pause ended an operation");
	return false;
}

static bool survive_shut(struct watch *w)
{
	/* It may be a connection that nobody needs any more. */
	if (watch_await(w, watch_know, UNHURT_S))
		return learn(w) && go_on(w) && grow(w);
	if (watch_none_knows(w) &&
	    watch_await(w, watch_went_on_or_know, GO_ON_S) &&
	    watch_none_knows(w))
		return true;
	return learn(w) && go_on(w);
}

static bool survive_stop(struct watch *w)
{
	const struct event *e = &w->cause.event;
	bool known = learn(w);

	if (!e->stays_stopped) {
		kill(job_pid(e->victim), SIGKILL);
		w->dead |= 1u << e->victim;
	}
	return known && go_on(w);
}

/* False: the round is over. */
static bool one_event(struct watch *w)
{
	unsigned often = storm_random(&w->random, 4);

	job_sleep_ms((int)storm_random(&w->random, often ? 30 : 150));
	disturb(w);
	switch (w->cause.event.kind) {
	case EVENT_PAUSE:
		return survive_pause(w);
	case EVENT_SHUT:
		return survive_shut(w);
	case EVENT_STOP:
		return survive_stop(w);
	default:
		return learn(w) && go_on(w) && grow(w);
	}
}

/* ---- a round ---- */

/* Nobody can go on, and all must say why. */
static void disturb_init(struct watch *w)
{
	if (!watch_await(w, watch_are_about_to_meet, MEET_S)) {
		hang(w, "are about to meet");
		return;
	}
	while (!atomic_load(&board->id_made) && !watch_lost(w))
		job_sleep_ms(1);
	job_sleep_ms((int)storm_random(&w->random, 60));
	disturb(w);
	learn(w);
}

static bool more(const struct watch *w)
{
	return w->r->events > tally_events(&board->tally) &&
	       job_seconds() < w->r->end && w->life + 3 < BOARD_LIVES &&
	       __builtin_popcount(watch_survivors(w)) >= 2;
}

static void disturb_work(struct watch *w)
{
	do {
		if (!watch_await(w, watch_work, MEET_S)) {
			hang(w, "work");
			return;
		}
	} while (more(w) && one_event(w));
}

static void end_all(struct watch *w)
{
	atomic_store(&board->leave, true);
	if (!watch_await(w, watch_are_gone, LEAVE_S))
		hang(w, "have ended");
	for (int s = 0; s < w->seats; s++)
		if (watch_phase(s) != GONE)
			kill(job_pid(s), SIGKILL);
}

void supervisor_run(const void *arg)
{
	struct watch w = {.r = arg};

	w.seats = w.r->ranks + w.r->spares;
	w.waiting = (1u << w.seats) - (1u << w.r->ranks);
	w.random = w.r->seed * 40503u + 7;
	if (w.r->kind == ROUND_INIT)
		disturb_init(&w);
	else
		disturb_work(&w);
	end_all(&w);
}
