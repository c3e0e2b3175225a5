/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table on stdout, in the format of nccl-tests 2.19; scripts read it by
 * column. Only thread 0 of process 0 calls these functions.
 */
#ifndef DICOMM_PERFTEST_REPORT_REPORT_H
#define DICOMM_PERFTEST_REPORT_REPORT_H

#include "perftest/operation/options.h"
#include "perftest/base/stats.h"

/* One line of "Using devices"; processes exchange it as bytes. */
struct report_device {
	int rank, group, pid, device;
	char host[64];
	char pci[16];   /* "0000:00:00" */
	char info[192]; /* name and vendor */
};

/* One half of a row. */
struct report_half {
	bool missing;   /* the operation does not exist in place */
	double seconds; /* until done; the bandwidths follow from it */
	double time_us; /* as printed; with -C 1, time of the call only */
	double algorithm_gbs, bus_gbs;
	bool checked;
	double wrong;
	/* Set if options_per_iter(). In seconds; borrowed. */
	struct stats stats;
	/* [iters]: the largest over all processes. */
	const double *times;
	const double *process_times; /* [procs x iters] */
	int procs;
};

struct report_row {
	size_t size, count;
	const char *type, *reduction;
	int root;
	struct report_half out_of_place, in_place;
};

struct report_end {
	long failed_checks;
	double average_bus_gbs;
	double least_bus_gbs; /* NCCL_TESTS_MIN_BW; below 0: not set */
};

/* Writes a number for a column, with as many decimals as fit, at most two. */
void report_number(char *text, size_t len, int width, double value);

void report_head(const struct options *o, int library_version);
void report_devices(const struct report_device *devices, int n);
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_table_head(const struct options *o);
void report_row(const struct options *o, const struct report_row *row);
void report_foot(const struct options *o, const struct report_end *end);
/* Prints "# label : text" after the table, with the label padded as in
 * nccl-tests. */
void report_summary(const char *label, const char *text);
void report_close(const char *last_error);

/* If stderr is a terminal, prints a line there that the next row replaces.
 * `all` is 0 if the run has no end. */
void report_progress(size_t done, size_t all, const char *what, size_t size);

/* Writes the time, such as "2026-11-21 09:04:34". */
void report_now(char *text, size_t len);

#endif
