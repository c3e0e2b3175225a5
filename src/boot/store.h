/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A way to meet: who says which rank this process is, and spreads the id. To
 * add one: a file; a line each in registry.c, Makefile.am and
 * docs/architecture.md; and if it needs a library, a check in configure.ac.
 */
#ifndef DICOMM_BOOT_STORE_H
#define DICOMM_BOOT_STORE_H

#include <stdbool.h>

#include "src/boot/launcher.h"

struct store {
	const char *name;  /* "torchrun" */
	const char *needs; /* what it looks for, for the message that none is */

	/* Was this process started so? Quiet. */
	bool (*present)(void);
	/* Fill in all but the name. Bounded by the bootstrap time-out. May be
	 * called again for another communicator: the ranks then meet anew. */
	dicomm_result_t (*meet)(struct launcher_info *info);
};

/* The stores of this build, in the order they are tried; NULL ends the list. */
extern const struct store *const stores[];

/* A number of the environment; ERR_INVALID_USAGE names the variable. */
dicomm_result_t store_number(const char *variable, long min, long max,
			     int *out);
/* The same where absence is no error: -1. */
int store_number_or_none(const char *variable);
/* Rank 0 makes an id; the others leave it empty. */
dicomm_result_t store_make_id(struct launcher_info *info);
/* An id that all ranks derive from a place and something they all know, which
 * DICOMM_COMM_KEY makes a secret. */
dicomm_result_t store_fixed_id(struct launcher_info *info, const char *host,
			       int port, const char *known);

#endif
