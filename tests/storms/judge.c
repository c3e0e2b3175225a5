/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/judge.h"

#include <stdio.h>
#include <string.h>

#include "tests/storms/board.h"

bool judge_names(const char *text, int rank)
{
	char name[24];
	size_t len = (size_t)snprintf(name, sizeof(name), "rank %d", rank);

	for (; (text = strstr(text, name)); text += len)
		if (text[len] < '0' || text[len] > '9')
			return true;
	return false;
}

/* Nobody can tell which end of a connection was shut: either is blamed. And a
 * time-out blames who was waited for. */
static bool blamed(const struct cause *c, const char *text)
{
	if (c->event.kind == EVENT_SHUT || c->event.kind == EVENT_STOP)
		return strstr(text, "rank ") != NULL;
	/* Before rank 0 has said who it is, its address stands for it. */
	if (c->event.kind == EVENT_KILL_IN_INIT && c->rank == 0 &&
	    (strstr(text, "the id server at") ||
	     strstr(text, "the process that made the id")))
		return true;
	return judge_names(text, c->rank) ||
	       (c->second >= 0 && judge_names(text, c->second));
}

static bool status_fits(const struct cause *c, int seat, dicomm_result_t status)
{
	if (c->event.kind == EVENT_ABORT && seat == c->event.victim)
		return status == DICOMM_ERR_ABORTED;
	if (c->event.kind == EVENT_STOP || c->event.kind == EVENT_KILL_IN_INIT)
		return status == DICOMM_ERR_TIMEOUT ||
		       status == DICOMM_ERR_REMOTE;
	return status == DICOMM_ERR_REMOTE;
}

bool judge_named(const struct cause *c, int seat, int life)
{
	const struct life *l = &board->seat[seat].life[life];
	bool itself = c->event.kind == EVENT_ABORT && seat == c->event.victim;

	return (itself || blamed(c, l->text)) &&
	       status_fits(c, seat, l->status) && l->async == l->status;
}

bool judge_majority(const struct outcome *o)
{
	return 2 * o->survivors > o->ranks ||
	       (2 * o->survivors == o->ranks && o->with_lowest);
}

bool judge_one_party(unsigned seats, int life)
{
	int ranks = 0;
	unsigned seen = 0;

	for (int s = 0; s < BOARD_SEATS; s++) {
		const struct life *l = &board->seat[s].life[life];

		if (!(seats >> s & 1))
			continue;
		if ((ranks && l->ranks != ranks) || seen >> l->rank & 1)
			return false;
		ranks = l->ranks;
		seen |= 1u << l->rank;
	}
	return true;
}
