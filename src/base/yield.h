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

/* Returns true if other programs wanted the cores of this process a short time
 * ago. Any thread. */
bool cores_crowded(void);
/* Yields the core and returns true. If the cores are crowded, or the yield
 * shows that they are, returns false: the caller should sleep. Any thread. */
bool core_yield(void);
/* Returns how long this thread has waited for a core, while it was ready to
 * run, since it began; 0 if the kernel does not count that. Reads a file. */
uint64_t core_starved_ns(void);

#endif
