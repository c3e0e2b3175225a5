/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends the program with a message and an exit status when it cannot go on. */
#ifndef DICOMM_PERFTEST_BASE_FAILURE_H
#define DICOMM_PERFTEST_BASE_FAILURE_H

#include <signal.h>
#include <stdbool.h>

#include "dicomm.h"

struct poptContext_s; /* what poptContext points to */

/* The exit statuses of nccl-tests; scripts know them. */
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

/* Sets a function that is called once before the end, with the reason, to
 * finish the output. */
void failure_hook(void (*fn)(const char *reason));
/* Makes signals that ask this process to end call the hook first. To be called
 * before any other thread starts. */
void failure_hook_signals(void);
/* Adds the signals that ask a process to end. A signal that is ignored, as
 * under nohup or for a background job of a shell, is left out: if it were
 * blocked, it would be received in spite of that. */
void failure_add_signals(sigset_t *signals);
/* Sets the communicators to abort at the end, so that the other ranks are
 * told. */
void failure_watch(const dicomm_comm_t *comms, int n);
/* Sets the seconds of option -T, for the message; 0: none. */
void failure_timeout(int seconds);

/* Ends the process, whatever its other threads do, because the library returned
 * an error. */
void failure_library(dicomm_result_t status, dicomm_comm_t comm,
		     const char *file, int line) __attribute__((noreturn));
void failure_end(enum failure_status status, const char *format, ...)
	__attribute__((noreturn, format(printf, 2, 3)));

/* As calloc(); ends the program if there is no memory. */
void *failure_alloc(size_t n, size_t size);

/* Returns true, and prints a message, if a part of the table was lost, usually
 * because the disk is full. Nothing may be printed after this call. */
bool failure_in_output(void);

/* Prints that a value on the command line is invalid. Returns FAILURE_USAGE. */
int failure_refuse(const char *mode, const char *what, const char *value,
		   const char *why);
/* Refuses an unknown option, which poptGetNextOpt() has returned, or an
 * argument too many. Returns FAILURE_NONE if there is neither. */
int failure_refuse_rest(const char *mode, struct poptContext_s *context,
			int option);

#define CHECK_DICOMM(comm, call)                                        \
	do {                                                            \
		dicomm_result_t check_status = (call);                  \
		if (check_status != DICOMM_SUCCESS)                     \
			failure_library(check_status, (comm), __FILE__, \
					__LINE__);                      \
	} while (0)

#endif
