/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a machine with other things to do costs a test. A bound of time in a
 * test allows for it, so that it bounds what the library takes: a program that
 * hangs sleeps, or spins on cores that it has.
 */
#ifndef DICOMM_TESTS_SUPPORT_STARVED_H
#define DICOMM_TESTS_SUPPORT_STARVED_H

/* By how much a bound on the time of a job may grow at most */
#define STARVED_TIMES 5

/* How long the threads of this process have been ready to run, without a core,
 * since it began; those that have ended do not count. */
double starved_s(void);
unsigned starved_ms(void);
/* The same of another process; 0 if it has gone. */
double starved_process_s(int pid);

#endif
