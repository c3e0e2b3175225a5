/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libibverbs and librdmacm, opened at the first use: this library starts on
 * machines that have neither. load.c defines the functions that the transport
 * calls of them, under their own names, each of which goes on to the real one.
 * A program of the tests that defines one itself takes its place.
 */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_LOAD_H
#define DICOMM_TRANSPORTS_VERBS_NIC_LOAD_H

#include <stdbool.h>
#include <stddef.h>

/* Open both. False: `why` says why not, and none of their functions may be
 * called. Any thread, any number of times. */
bool verbs_load(char *why, size_t len);

#endif
