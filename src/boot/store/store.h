/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store finds, for one kind of launcher, the rank of this process, and brings
 * the id of rank 0 to the other ranks. To add one, write a file, add a line
 * each to registry.c, src/boot/Makefile.include and README.md, and a check to
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
	/* "WORLD_SIZE": the source of the number of ranks */
	const char *ranks_from;
	dicomm_unique_id_t id;
};

struct store {
	const char *name; /* "torchrun" */
	const char
		*needs; /* the variables that it needs; for an error message */

	/* Returns true if that launcher started this process. Logs nothing. */
	bool (*present)(void);
	/* Fills in everything but the name, within the bootstrap time-out. Each
	 * call brings a new id. */
	dicomm_result_t (*get)(struct launcher_info *info);
};

/* The stores of this build, in the order in which they are tried. NULL ends the
 * list. */
extern const struct store *const stores[];
/* The first of them: the variables of this library, without a launcher. */
extern const struct store store_own;

/* Reads a number from the environment. Returns DICOMM_ERR_INVALID_USAGE, and
 * logs the variable, if it is not a number from min to max. */
dicomm_result_t store_number(const char *variable, long min, long max,
			     int *out);
/* Reads a number from the environment. Returns -1 if the variable is not set or
 * is not a number. */
int store_number_or_none(const char *variable);
/* On rank 0 makes an id; on other ranks clears it. */
dicomm_result_t store_make_id(struct launcher_info *info);
/* Derives the same id on all ranks from host, port, and a text that all ranks
 * know. DICOMM_COMM_KEY makes it secret. */
dicomm_result_t store_fixed_id(struct launcher_info *info, const char *host,
			       int port, const char *known);

#endif
