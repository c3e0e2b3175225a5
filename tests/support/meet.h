/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that do nothing but meet, as threads or as processes, for tests of the
 * control plane. What each saw lies in memory that all of them share.
 */
#ifndef DICOMM_TESTS_SUPPORT_MEET_H
#define DICOMM_TESTS_SUPPORT_MEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/boot/control/control.h"
#include "src/boot/control/id.h"

#define MEET_MAX 512

enum meet_kind { MEET_THREADS, MEET_PROCESSES, MEET_KINDS };

struct meet;

struct meet_rank {
	struct meet *meet;
	int rank;
	pid_t pid; /* of a process */
	struct control *control;
	_Atomic bool cancelled;

	/* What became of control_open(). */
	_Atomic bool returned;
	dicomm_result_t opened;
	char error[1024];
	uint64_t open_ms;

	/* What events.failed said, first and how often. */
	_Atomic int failures;
	_Atomic uint64_t failed_ns;
	dicomm_result_t status;
	int culprit;
	char text[1024];

	int note[4]; /* for the test */
};

struct meet {
	enum meet_kind kind;
	int ranks;
	int timeout_ms; /* 0: 20 s */
	dicomm_unique_id_t id;
	/* In each rank that opened, between open and close; NULL: nothing. */
	void (*run)(struct meet_rank *r);
	/* Change what a rank passes to control_open(). */
	void (*adjust)(struct meet_rank *r, struct control_config *config);
	bool absent[MEET_MAX]; /* does not come */
	bool killed[MEET_MAX]; /* a process that is expected to be killed */
	struct meet_rank rank[MEET_MAX];
	_Atomic int arrived; /* at barriers, ever */
	_Atomic int flag[8]; /* for the test */
};

/* Shared memory, zeroed; ends with the test. */
struct meet *meet_create(enum meet_kind kind, int ranks);
/* Make an id unless there is one; start all ranks; wait for their end. */
void meet_run(struct meet *m);
/* The halves of meet_run(). */
void meet_start(struct meet *m);
void meet_wait(struct meet *m);
/* In all ranks that opened; n of them. */
void meet_barrier(struct meet_rank *r, int n);
/* Wait for a condition, at most ten seconds. */
#define MEET_UNTIL(condition)                                                \
	do {                                                                 \
		uint64_t meet_end = meet_now_ms() + 10000;                   \
		while (!(condition)) {                                       \
			ck_assert_msg(meet_now_ms() < meet_end, "never: %s", \
				      #condition);                           \
			meet_sleep_ms(1);                                    \
		}                                                            \
	} while (0)
uint64_t meet_now_ms(void);
void meet_sleep_ms(int ms);
/* Open descriptors of this process. */
int meet_descriptors(void);
/* The same, of sockets. */
int meet_sockets(void);

#endif
