/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store: the side of a launcher that says which rank this process is, and
 * brings the id of rank 0 to the others. To add one, write a file, add a line
 * each in registry.c, Makefile.am and docs/architecture.md, and a check in
 * configure.ac if it needs a library.
 */
#ifndef DICOMM_BOOT_STORE_H
#define DICOMM_BOOT_STORE_H

#include <stdbool.h>

#include "dicomm.h"

/* What a store finds out. */
struct launcher_info {
	const char *name; /* "torchrun" */
	int rank, ranks;
	dicomm_unique_id_t id;
};

struct store {
	const char *name;  /* "torchrun" */
	const char *needs; /* what it looks for; for the error message */

	/* Was this process started by that launcher? Logs nothing. */
	bool (*present)(void);
	/* Fill in all but the name. Bounded by the bootstrap time-out. Called
	 * again for another communicator, it brings a new id. */
	dicomm_result_t (*get)(struct launcher_info *info);
};

/* The stores of this build, in the order they are tried; NULL ends the list. */
extern const struct store *const stores[];

/* Read a number from the environment. ERR_INVALID_USAGE names the variable. */
dicomm_result_t store_number(const char *variable, long min, long max,
			     int *out);
/* The same; -1 if the variable is not set or not a number. */
int store_number_or_none(const char *variable);
/* Rank 0 makes an id; on the others it stays empty. */
dicomm_result_t store_make_id(struct launcher_info *info);
/* Derive the same id on all ranks from host, port, and known, a text that all
 * ranks have. DICOMM_COMM_KEY makes it secret. */
dicomm_result_t store_fixed_id(struct launcher_info *info, const char *host,
			       int port, const char *known);

#endif
