/* SPDX-License-Identifier: BSD-3-Clause */
/* How the program ends when it cannot go on, and its exit statuses. */
#ifndef DICOMM_PERFTEST_BASE_FAILURE_H
#define DICOMM_PERFTEST_BASE_FAILURE_H

#include <signal.h>
#include <stdbool.h>

#include "dicomm.h"

/* The numbers of nccl-tests; scripts know them. */
enum failure_status {
	FAILURE_NONE = 0,
	FAILURE_INTERNAL = 1,
	FAILURE_LIBRARY = 3,
	FAILURE_TIMEOUT = 4,
	FAILURE_NOT_IMPLEMENTED = 5,
	FAILURE_USAGE = 6,
	FAILURE_RESULTS = 7, /* wrong data, or too slow */
	FAILURE_SIZE = 255,
};

/* Called once before the end, with the reason: to close what is written. */
void failure_hook(void (*fn)(const char *reason));
/* A signal that asks this process to end waits for the hook. Before any other
 * thread is started. */
void failure_hook_signals(void);
/* Adds the signals that ask a process to end. What nohup, or a shell for its
 * background, ignores stays out: a blocked signal comes even so. */
void failure_add_signals(sigset_t *signals);
/* Communicators to abort at the end, so that the other ranks learn of it. */
void failure_watch(const dicomm_comm_t *comms, int n);
/* Seconds of -T, for the message; 0 for none. */
void failure_timeout(int seconds);

/* The library refused or broke; ends the process, other threads included. */
void failure_library(dicomm_result_t status, dicomm_comm_t comm,
		     const char *file, int line) __attribute__((noreturn));
void failure_end(enum failure_status status, const char *format, ...)
	__attribute__((noreturn, format(printf, 2, 3)));

/* Was something of the table lost, on a full disk as a rule? Says so. Nothing
 * is printed after it. */
bool failure_in_output(void);

/* A value of the command line is of no use; returns FAILURE_USAGE. */
int failure_refuse(const char *mode, const char *what, const char *value,
		   const char *why);

#define CHECK_DICOMM(comm, call)                                        \
	do {                                                            \
		dicomm_result_t check_status = (call);                  \
		if (check_status != DICOMM_SUCCESS)                     \
			failure_library(check_status, (comm), __FILE__, \
					__LINE__);                      \
	} while (0)

#endif
