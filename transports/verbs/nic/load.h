/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libibverbs and librdmacm, opened at the first use: this library starts on
 * machines that have neither. load.c defines each of their functions that the
 * transport calls, under its own name, as a call of the real one. A test
 * program may define such a function itself; then its definition is used.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_LOAD_H
#define DICOMM_TRANSPORTS_VERBS_NIC_LOAD_H

#include <stdbool.h>
#include <stddef.h>

/* Open both. False: the reason is in `why`, and none of their functions may be
 * called. Any thread, any number of times. */
bool verbs_load(char *why, size_t len);

#endif
