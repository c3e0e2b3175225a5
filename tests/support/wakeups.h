/* SPDX-License-Identifier: BSD-3-Clause */
/* How often threads of this process have gone to sleep. */
#ifndef DICOMM_TESTS_SUPPORT_WAKEUPS_H
#define DICOMM_TESTS_SUPPORT_WAKEUPS_H

/* Returns the voluntary context switches of the threads of that name since they
 * began, or of all threads if it is NULL; those that have ended do not count.
 */
unsigned long wakeups(const char *name);

#endif
