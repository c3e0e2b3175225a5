/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/event.h"

#include <signal.h>

#include "tests/storms/board.h"
#include "tests/support/job.h"

static const char *const names[] = {
	[EVENT_KILL] = "SIGKILL",
	[EVENT_TWO_KILLS] = "two SIGKILLs",
	[EVENT_PAUSE] = "SIGSTOP, SIGCONT",
	[EVENT_STOP] = "SIGSTOP for good",
	[EVENT_ABORT] = "abort",
	[EVENT_EXIT] = "exit",
	[EVENT_EXIT_NOW] = "_exit",
	[EVENT_SHUT] = "shutdown of a socket",
	[EVENT_KILL_IN_INIT] = "SIGKILL in init",
};

const char *event_name(enum event_kind kind)
{
	return names[kind];
}

bool event_kills(enum event_kind kind)
{
	return kind == EVENT_KILL || kind == EVENT_TWO_KILLS ||
	       kind == EVENT_EXIT || kind == EVENT_EXIT_NOW ||
	       kind == EVENT_KILL_IN_INIT;
}

static void command(int seat, enum command what)
{
	atomic_store(&board->seat[seat].command, what);
}

void event_do(const struct event *e)
{
	int pid = job_pid(e->victim);

	switch (e->kind) {
	case EVENT_KILL:
	case EVENT_KILL_IN_INIT:
		kill(pid, SIGKILL);
		break;
	case EVENT_TWO_KILLS:
		kill(pid, SIGKILL);
		job_sleep_ms(e->pause_ms);
		kill(job_pid(e->second), SIGKILL);
		break;
	case EVENT_PAUSE:
		kill(pid, SIGSTOP);
		job_sleep_ms(e->pause_ms);
		kill(pid, SIGCONT);
		break;
	case EVENT_STOP:
		kill(pid, SIGSTOP);
		break;
	case EVENT_ABORT:
		command(e->victim, DO_ABORT);
		break;
	case EVENT_EXIT:
		command(e->victim, DO_EXIT);
		break;
	case EVENT_EXIT_NOW:
		command(e->victim, DO_EXIT_NOW);
		break;
	case EVENT_SHUT:
		command(e->victim, DO_SHUT);
		break;
	case EVENT_KINDS:
		break;
	}
}
