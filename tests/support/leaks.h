/* SPDX-License-Identifier: BSD-3-Clause */
/* The leak checker of gcc 12 falls over the threads of a library that was
 * opened at run time. */
#ifndef DICOMM_TESTS_SUPPORT_LEAKS_H
#define DICOMM_TESTS_SUPPORT_LEAKS_H

/* Nobody looks for leaks when this process ends, or one that it forks from now
 * on. */
void leaks_ignore(void);

#endif
