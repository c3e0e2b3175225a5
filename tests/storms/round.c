/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/round.h"

#include <stdio.h>
#include <string.h>

#include "tests/storms/board.h"
#include "tests/storms/rank.h"
#include "tests/storms/supervisor.h"
#include "tests/support/storm.h"

/* However its supervisor fares */
#define ROUND_S 300
/* For ROUND_STOPS: nothing takes that long on a busy machine, but a rank that
 * stands still does. */
#define STOPS_TIMEOUT "DICOMM_TIMEOUT_MS=4000"
#define STOPS_BOOTSTRAP "DICOMM_BOOTSTRAP_TIMEOUT=20"
#define STOPS_MOST 4000
#define INIT_BOOTSTRAP "DICOMM_BOOTSTRAP_TIMEOUT=4"

static const size_t mosts[] = {1000, 1000, 1000, 9000, 9000, 60000, 0};

struct round round_draw(unsigned seed, int ranks)
{
	unsigned state = seed * 2654435761u + 17;
	struct round r = {.seed = seed, .ranks = ranks};
	unsigned kind = storm_random(&state, 100);

	r.kind = kind < 8    ? ROUND_INIT
		 : kind < 15 ? ROUND_STOPS
			     : ROUND_ORDINARY;
	r.warm = r.kind != ROUND_INIT || storm_random(&state, 2);
	/* Long messages take most of their time to verify: few rounds have
	 * them, so that most events fall into a call. */
	r.most = mosts[storm_random(&state, sizeof(mosts) / sizeof(*mosts))];
	if (r.kind == ROUND_STOPS)
		r.most = STOPS_MOST;
	if (r.kind == ROUND_ORDINARY)
		r.spares = (int)storm_random(&state, BOARD_SPARES + 1);
	return r;
}

/* What the ranks found wrong themselves */
static void count_words(const struct round *r, const char *text)
{
	struct tally *t = &board->tally;

	tally_fault(t, tally_read(text));
	fprintf(stderr, "seed %u, ranks %d, after %s: %s\n", r->seed, r->ranks,
		event_name(t->latest), text);
}

static void count_seats(void)
{
	struct tally *t = &board->tally;

	for (int i = 0; i < BOARD_SEATS; i++) {
		const struct seat *s = &board->seat[i];

		t->calls += atomic_load(&s->calls);
		if (s->memory > t->most_grown)
			t->most_grown = s->memory;
		if (s->descriptors > t->most_descriptors)
			t->most_descriptors = s->descriptors;
	}
}

void round_run(const struct round *r)
{
	struct job job = {.run = rank_run,
			  .arg = r,
			  .ranks = r->ranks + r->spares,
			  .bare = true,
			  .may_die = ~0u,
			  .disturb = supervisor_run,
			  .timeout_s = ROUND_S,
			  .env = {"DICOMM_DEBUG=none",
				  "UCX_ERROR_SIGNALS=", "UCX_LOG_LEVEL=error"}};
	char text[4000] = "";

	if (r->kind == ROUND_STOPS) {
		job.env[3] = STOPS_TIMEOUT;
		job.env[4] = STOPS_BOOTSTRAP;
	} else if (r->kind == ROUND_INIT) {
		job.env[3] = INIT_BOOTSTRAP;
	}
	memset(board, 0, offsetof(struct board, tally));
	atomic_store(&board->called, -1);
	board->tally.rounds++;
	if (!job_try(&job, text, sizeof(text)))
		count_words(r, text);
	count_seats();
}
