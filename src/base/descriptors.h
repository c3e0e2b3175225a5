/* SPDX-License-Identifier: BSD-3-Clause */
/* How many descriptors this process may have open. Any thread. */
#ifndef DICOMM_BASE_DESCRIPTORS_H
#define DICOMM_BASE_DESCRIPTORS_H

#include <stdint.h>

/* What is left to the program, beside those that the library needs. */
#define DESCRIPTORS_OF_OTHERS 256

/* The soft limit; UINT64_MAX: there is none, or nobody can say. */
uint64_t descriptors_limit(void);
/* Raise it to so many, or as far as the hard limit lets us; what it is then. */
uint64_t descriptors_raise(uint64_t wanted);

#endif
