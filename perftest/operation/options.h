/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line: the letters and meanings of nccl-tests, and long options
 * of our own.
 */
#ifndef DICOMM_PERFTEST_OPERATION_OPTIONS_H
#define DICOMM_PERFTEST_OPERATION_OPTIONS_H

#include "perftest/operation/operation.h"

struct options {
	const struct operation *op;
	int threads, devices; /* per process, per thread */
	size_t min_bytes, max_bytes, step_bytes, step_factor;
	bool sizes_given;
	int iters, agg_iters, warmup_iters;
	int cycles; /* 0: for ever */
	int parallel_init;
	int checks;
	enum reduction reduction;
	bool all_reductions;
	const struct type *type; /* NULL: all */
	int root;                /* -1: each in turn */
	int blocking;
	int stream_null; /* -1: as suits the device */
	int timeout_s;
	int cputime, timestamps;
	char *json; /* owned, as all strings here; NULL: none */
	int average;
	int local_register;
	int memory_report;
	int unalign;
	int per_iter, per_iter_skip;
	/* our own */
	int ranks; /* processes to start; 0: the launcher did */
	int pin, mem_alloc, stats, histogram, explain, traffic;
	char *device; /* "cuda:0", "0=cuda:0,1=host"; NULL: no word */
	char *plot;
};

enum options_outcome { OPTIONS_RUN, OPTIONS_EXIT };

/* OPTIONS_EXIT: everything is said; exit with *status. */
enum options_outcome options_parse(struct options *o, int argc,
				   const char **argv, int *status);
void options_free(struct options *o);

/* Is this what --device takes? */
bool options_devices_valid(const char *text);

/* --device for a rank; false: it says nothing of it. */
bool options_device(const struct options *o, int rank, char *device,
		    size_t len);

/* Are the times of single iterations wanted? */
bool options_per_iter(const struct options *o);

#endif
