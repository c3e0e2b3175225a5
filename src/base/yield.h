/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Giving a core away, or not, to other programs.
 *
 * A thread that waits yields its core, so that other ranks of the machine can
 * run. If another program wants that core, a yield costs as long as the
 * scheduler lets that program run, some milliseconds: since Linux 6.6 a thread
 * that yields gives up its whole turn. A thread that sleeps gets the core back
 * soon after it is woken. So threads sleep while their cores are crowded.
 */
#ifndef DICOMM_BASE_YIELD_H
#define DICOMM_BASE_YIELD_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if other programs have been found to want the cores of this
 * process lately. Any thread. */
bool cores_crowded(void);
/* Yields, unless the cores are crowded: then, and if they are found to be, it
 * returns false, and the caller should sleep. Any thread. */
bool core_yield(void);
/* How long this thread has been ready to run without a core since it began; 0
 * if the kernel does not tell. Reads a file. */
uint64_t core_starved_ns(void);

#endif
