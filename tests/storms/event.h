/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens to a rank in a storm.
 */
#ifndef DICOMM_TESTS_STORMS_EVENT_H
#define DICOMM_TESTS_STORMS_EVENT_H

#include <stdbool.h>

enum event_kind {
	EVENT_KILL,
	EVENT_TWO_KILLS,
	EVENT_PAUSE, /* SIGSTOP, and SIGCONT within a second */
	EVENT_STOP,  /* SIGSTOP for good: only a time-out tells */
	EVENT_ABORT,
	EVENT_EXIT,
	EVENT_EXIT_NOW,
	EVENT_SHUT,
	EVENT_KILL_IN_INIT,
	EVENT_KINDS
};

struct event {
	enum event_kind kind;
	int victim, second; /* which seats; second: -1 but for TWO_KILLS */
	int pause_ms;       /* between SIGSTOP and SIGCONT, or two kills */
	bool stays_stopped; /* STOP: also while the others shrink */
};

/* "SIGKILL" */
const char *event_name(enum event_kind kind);
/* The victim's process ends. */
bool event_kills(enum event_kind kind);
/* Let it happen; returns when it has. */
void event_do(const struct event *e);

#endif
