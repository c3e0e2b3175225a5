/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a function as every rank of a communicator, in processes or in threads
 * of one process, under a bound of time. The process of the test itself never
 * uses the library, so that nothing of it is inherited by fork.
 */
#ifndef DICOMM_TESTS_SUPPORT_JOB_H
#define DICOMM_TESTS_SUPPORT_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

/* One rank, as its function sees it. */
struct job_rank {
	int rank, ranks;
	dicomm_comm_t comm; /* NULL with bare */
	const void *arg;
};

struct job {
	void (*run)(struct job_rank *me);
	const void *arg;
	int ranks;
	/* All ranks are threads of one process. */
	bool threads;
	/* No communicator is made, and no process is given a rank's: run() does
	 * it all. Else run() finds one, which is destroyed after it. */
	bool bare;
	/* "NAME=value" for the environment of all ranks; NULL ends. */
	const char *env[8];
	/* 0: 20. Up to STARVED_TIMES as long if the ranks lack cores. */
	int timeout_s;
	/* Ranks that may be ended by SIGKILL: bit r. */
	unsigned may_die;
	/* Runs beside the ranks in a process of its own, which stops or kills
	 * theirs. */
	void (*disturb)(const void *arg);
};

/* Run it to its end; any failure of any rank fails the calling Check test with
 * the ranks' own words. */
void job_run(const struct job *job);
/* The same; false: it failed, text has the words. */
bool job_try(const struct job *job, char *text, size_t len);

/* For ranks: end this rank, and with it the job. */
_Noreturn void job_fail(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* What this rank is about to do, to be told if it hangs in it. */
void job_doing(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* End this process as a user's program would end, with success. */
_Noreturn void job_exit(void);
/* Wait for all ranks by no means of the library. */
void job_barrier(void);
/* An id that rank 0 makes: a call of all ranks. */
dicomm_unique_id_t job_id(void);
/* Memory that all ranks see, zeroed at the start. */
#define JOB_BOARD_BYTES 65536
void *job_board(void);
/* For config.bootstrap, with the rank as its ctx: one all-gather after the
 * other, over the board from JOB_GATHER_AT on. */
#define JOB_GATHER_AT 4096
dicomm_result_t job_gather(const void *mine, void *all, size_t len, void *ctx);

/* For ranks: how many jobs their test has run, with this one */
int job_number(void);
/* Process of a rank; waits until it runs. */
int job_pid(int rank);

double job_seconds(void);
/* Wait until another process or thread sets it: 20 s at most. */
void job_await(const _Atomic bool *flag, const char *what);
void job_sleep_ms(int ms);
/* Long variants of tests are asked for: DICOMM_TEST_LONG. */
bool job_is_long(void);
/* Less is to be tried, and between 2 to 4 ranks, where all takes long
 * (tests/vm), or somebody waits for it (scripts/test): DICOMM_TEST_SHORT. */
bool job_is_short(void);
/* Each process takes much memory or time: under a sanitizer, or where bounds
 * are some times as long (DICOMM_TEST_TIMES). */
bool job_is_costly(void);
/* Does DICOMM_TRANSPORTS name that as one to use? */
bool job_uses(const char *transport);
/* Under a sanitizer everything takes longer, and memory is not what it was. */
bool job_is_sanitized(void);
bool job_has_thread_sanitizer(void);

#define JOB_CHECK(condition, ...)              \
	do {                                   \
		if (!(condition))              \
			job_fail(__VA_ARGS__); \
	} while (0)

/* A call that has to succeed. */
#define JOB_TRY(call) job_expect((call), DICOMM_SUCCESS, #call)
/* A call that has to end with a status, and with words in the last error. */
#define JOB_REFUSED(call, status, words) \
	job_refused((call), (status), #call, (words))

/* How what a call began in the background ends: its status, or IN_PROGRESS if
 * that lasts longer. */
dicomm_result_t job_settled(dicomm_result_t status, dicomm_comm_t comm,
			    double seconds);

/* Each of so many bytes is `byte`, or the job ends. */
void job_check_bytes(const uint8_t *at, size_t len, uint8_t byte,
		     const char *what);

/* The communicator has n ranks, of which this is the place-th, and adds up. */
void job_check_sums(dicomm_comm_t comm, int n, int place);

void job_expect(dicomm_result_t got, dicomm_result_t want, const char *call);
void job_refused(dicomm_result_t got, dicomm_result_t want, const char *call,
		 const char *words);

#endif
