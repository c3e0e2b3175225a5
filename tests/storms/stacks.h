/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_TESTS_STORMS_STACKS_H
#define DICOMM_TESTS_STORMS_STACKS_H

/* Write where the threads of a process are to stderr, by gdb if that is there;
 * takes a minute at most. */
void stacks_print(int pid);

#endif
