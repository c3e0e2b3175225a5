/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line: the letters and meanings of nccl-tests, and further long
 * options.
 */
#ifndef DICOMM_PERFTEST_OPERATION_OPTIONS_H
#define DICOMM_PERFTEST_OPERATION_OPTIONS_H

#include "perftest/operation/operation.h"

struct options {
	const struct operation *op;
	int threads, devices; /* per process; per thread */
	size_t min_bytes, max_bytes, step_bytes, step_factor;
	bool sizes_given;
	int iters, agg_iters, warmup_iters;
	int cycles; /* 0: for ever */
	int parallel_init;
	int checks;
	enum reduction reduction;
	bool all_reductions;
	const struct type *type; /* NULL: all types */
	int root;                /* -1: each rank in turn */
	int blocking;
	int stream_null; /* -1: as suits the device */
	int timeout_s;
	int cputime, timestamps;
	char *json; /* owned, like all strings here; NULL: no file */
	int average;
	int local_register;
	int memory_report;
	int unalign;
	int per_iter, per_iter_skip;
	/* Options that nccl-tests does not have. */
	int ranks; /* processes to start; 0: a launcher has started them */
	int pin, mem_alloc, stats, histogram, explain, traffic;
	char *device; /* "cuda:0", "0=cuda:0,1=host"; NULL: not given */
	char *plot;
};

enum options_outcome { OPTIONS_RUN, OPTIONS_EXIT };

/* Parses the command line. On OPTIONS_EXIT everything has been printed, and the
 * program is to exit with *status. */
enum options_outcome options_parse(struct options *o, int argc,
				   const char **argv, int *status);
void options_free(struct options *o);

/* Returns true if the text is valid for --device. */
bool options_devices_valid(const char *text);

/* Finds the device of a rank in --device. Returns false if there is none for
 * it. */
bool options_device(const struct options *o, int rank, char *device,
		    size_t len);

/* Returns true if the times of single iterations are needed. */
bool options_per_iter(const struct options *o);

#endif
