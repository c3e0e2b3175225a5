/* SPDX-License-Identifier: BSD-3-Clause */
/* Follows who waits for whom to the rank that everybody waits for. */
#include "src/core/wait_chain.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/clock.h"
#include "src/boot/control/control.h"
#include "src/core/comm.h"

#define ANSWER_MS 400 /* how long a rank may take to answer */
#define FOLLOW_MS 2000
/* Ranks that are named on the way; a ring of many ranks would fill the text. */
#define NAMED 3

void wait_chain_note(struct dicomm_comm *comm, const struct wait_note *note,
		     uint64_t valid_ms)
{
	struct awaited *a = &comm->awaited;
	uint64_t now = clock_ms();

	atomic_store(&a->until_ms, 0);
	atomic_store(&a->peer, note->peer);
	atomic_store(&a->since_ms, now - note->waited_ms);
	atomic_store(&a->number, note->number);
	atomic_store(&a->what, note->what);
	atomic_store(&a->count, note->count);
	atomic_store(&a->until_ms, now + valid_ms);
}

bool wait_chain_read(const struct dicomm_comm *comm, struct wait_note *note)
{
	const struct awaited *a = &comm->awaited;
	uint64_t since = atomic_load(&a->since_ms);
	uint64_t now = clock_ms();

	note->peer = atomic_load(&a->peer);
	note->number = atomic_load(&a->number);
	note->what = atomic_load(&a->what);
	note->count = atomic_load(&a->count);
	note->waited_ms = now > since ? now - since : 0;
	return now <= atomic_load(&a->until_ms);
}

bool wait_chain_answer(const struct dicomm_comm *comm, uint64_t least_ms,
		       uint32_t *peer)
{
	struct wait_note note;

	if (!wait_chain_read(comm, &note) || note.peer < 0 ||
	    note.peer == comm->rank || note.waited_ms < least_ms)
		return false;
	*peer = (uint32_t)note.peer;
	return true;
}

enum answer { WAITS, WAITS_NOT, SILENT, UNKNOWN };

/* Asks a rank for whom it has waited that long. */
static enum answer ask(struct dicomm_comm *comm, int rank, uint64_t least_ms,
		       int *next)
{
	uint32_t peer = 0;
	bool known = false;
	char text[160];
	dicomm_result_t status =
		control_query(comm->control, rank, ASK_AWAITED, least_ms,
			      ANSWER_MS, &known, &peer, text, sizeof(text));

	if (status != DICOMM_SUCCESS)
		return status == DICOMM_ERR_TIMEOUT ? SILENT : UNKNOWN;
	*next = (int)peer;
	return known ? WAITS : WAITS_NOT;
}

struct sentence {
	char *text;
	size_t len, n;
};

__attribute__((format(printf, 2, 3))) static void more(struct sentence *s,
						       const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(s->text + s->n, s->len - s->n, format, args);
	va_end(args);
	if (n > 0)
		s->n = s->n + (size_t)n < s->len ? s->n + (size_t)n
						 : s->len - 1;
}

static void name_next(struct dicomm_comm *comm, struct sentence *s,
		      unsigned hops, int rank)
{
	if (hops <= NAMED)
		more(s, ", which waits for rank %d (%s)", rank,
		     control_where(comm->control, rank));
}

/* Questions pass through rank 0. If it stands still nobody answers, and it is
 * the one that holds up all. */
static bool is_rank_0(struct dicomm_comm *comm, int last)
{
	int next;

	return last != 0 && comm->rank != 0 && ask(comm, 0, 0, &next) == SILENT;
}

int wait_chain_follow(struct dicomm_comm *comm, int peer, uint64_t waited_ms,
		      char *text, size_t len)
{
	struct sentence s = {.text = text, .len = len};
	uint64_t end = clock_ms() + FOLLOW_MS;
	enum answer answer = UNKNOWN;
	unsigned hops = 0;
	int last = peer, next = peer;

	more(&s, " (%s)", control_where(comm->control, peer));
	while (clock_ms() < end && hops < (unsigned)comm->ranks &&
	       (answer = ask(comm, last, waited_ms / 2, &next)) == WAITS) {
		name_next(comm, &s, ++hops, next);
		if (next == comm->rank || next == peer)
			return peer;
		last = next;
	}
	if (hops > NAMED)
		more(&s, ", and so on; the last of %u is rank %d (%s)", hops,
		     last, control_where(comm->control, last));
	if (answer == SILENT && is_rank_0(comm, last)) {
		more(&s,
		     "; rank 0 (%s), through which ranks ask each other, "
		     "does not answer",
		     control_where(comm->control, 0));
		return 0;
	}
	if (answer == SILENT)
		more(&s, ", which does not answer");
	else if (answer == WAITS_NOT)
		more(&s, ", which waits for no rank");
	return answer == WAITS ? peer : last;
}
