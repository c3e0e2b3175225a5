/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the table, its head and its foot. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perftest/report/report.h"
#include "perftest/base/size.h"

#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"

/* A progress line is on the terminal now. */
static bool progress_shown;

static void progress_clear(void)
{
	if (!progress_shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	progress_shown = false;
}

void report_progress(size_t done, size_t all, const char *what, size_t size)
{
	static int terminal = -1;
	char text[32];

	if (terminal < 0)
		terminal = isatty(STDERR_FILENO);
	if (!terminal)
		return;
	size_print(text, sizeof(text), (double)size);
	fprintf(stderr, "\r\033[K%zu", done + 1);
	if (all)
		fprintf(stderr, " of %zu", all);
	fprintf(stderr, ": %s %s", what, text);
	fflush(stderr);
	progress_shown = true;
}

void report_now(char *text, size_t len)
{
	time_t now = time(NULL);
	struct tm broken;

	text[0] = '\0';
	if (localtime_r(&now, &broken))
		strftime(text, len, TIME_FORMAT, &broken);
}

void report_number(char *text, size_t len, int width, double value)
{
	for (int decimals = 2; decimals >= 0; decimals--)
		if (snprintf(text, len, "%*.*f", width, decimals, value) <=
		    width)
			return;
	snprintf(text, len, "%*.*e", width, width >= 7 ? 1 : 0, value);
}

void report_head(const struct options *o, int library_version)
{
	bool factor = o->step_factor > 1;

	printf("# dicomm-perf version %d.%d.%d nccl-headers=%d "
	       "nccl-library=%d\n",
	       DICOMM_VERSION_MAJOR, DICOMM_VERSION_MINOR, DICOMM_VERSION_PATCH,
	       DICOMM_VERSION, library_version);
	printf("# Collective test starting: %s\n", o->op->program);
	printf("# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) "
	       "warmup iters: %d iters: %d agg iters: %d validation: %d "
	       "graph: 0 unalign: %d\n",
	       o->threads, o->devices, o->min_bytes, o->max_bytes,
	       factor ? o->step_factor : o->step_bytes,
	       factor ? "factor" : "bytes", o->warmup_iters, o->iters,
	       o->agg_iters, o->checks, o->unalign);
	if (o->blocking == 1)
		printf("# Blocking Enabled: wait and barrier after each inner "
		       "iteration (-m) \n");
	if (o->blocking == 2)
		printf("# Blocking Enabled: wait after each inner iteration "
		       "(-m), no barrier \n");
	if (o->blocking == 3)
		printf("# Blocking Enabled: wait and barrier after each outer "
		       "iteration (-n); time excludes barrier \n");
	if (options_per_iter(o)) {
		printf("# Per-Iteration Report: host clock; i_* uses max over "
		       "process rows");
		if (o->per_iter_skip)
			printf("; summary skips first %d iterations",
			       o->per_iter_skip);
		printf(" \n");
	}
	if (o->parallel_init)
		printf("# Parallel Init Enabled: threads call into "
		       "dicomm_comm_init_rank concurrently \n");
	printf("#\n");
}

void report_devices(const struct report_device *devices, int n)
{
	printf("# Using devices\n");
	for (int i = 0; i < n; i++)
		printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] "
		       "%s\n",
		       devices[i].rank, devices[i].group, devices[i].pid,
		       devices[i].host, devices[i].device, devices[i].pci,
		       devices[i].info);
}

void report_note(const char *format, ...)
{
	va_list args;

	progress_clear();
	fputs("# ", stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/* The columns of one line of the head. NULL ends a list. */
struct head_line {
	const char *columns[5];
	const char *half[4];     /* time, algbw, busbw, #wrong */
	const char *per_iter[4]; /* -I */
	const char *stats[5];    /* --stats */
	const char *timestamp;
};

static void print_half(const struct options *o, const struct head_line *line)
{
	printf("  %7s  %6s  %6s  %6s", line->half[0], line->half[1],
	       line->half[2], line->half[3]);
	for (int i = 0; o->per_iter && i < 4; i++)
		printf("  %7s", line->per_iter[i]);
}

static void print_head_line(const struct options *o,
			    const struct head_line *line)
{
	printf("# %10s  %12s  %8s  %6s  %6s", line->columns[0],
	       line->columns[1], line->columns[2], line->columns[3],
	       line->columns[4]);
	print_half(o, line);
	print_half(o, line);
	for (int i = 0; o->stats && i < 10; i++)
		printf("  %7s", line->stats[i % 5]);
	printf(" %*s\n", o->timestamps ? 19 : 0,
	       o->timestamps ? line->timestamp : "");
}

void report_table_head(const struct options *o)
{
	const struct head_line names = {
		{"size", "count", "type", "redop", "root"},
		{o->cputime ? "cputime" : "time", "algbw", "busbw", "#wrong"},
		{"i_min", "i_max", "i_p99", "i_cv%"},
		{"min", "avg", "max", "p50", "p99"},
		"timestamp",
	};
	const struct head_line units = {
		{"(B)", "(elements)", "", "", ""},
		{"(us)", "(GB/s)", "(GB/s)", ""},
		{"(us)", "(us)", "(us)", "(%)"},
		{"(us)", "(us)", "(us)", "(us)", "(us)"},
		TIME_FORMAT,
	};

	printf("#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
	if (o->per_iter)
		printf("              out-of-place (+ per-iteration)"
		       "                                in-place "
		       "(+ per-iteration)");
	else
		printf("           out-of-place                       "
		       "in-place          ");
	if (o->stats)
		printf("  %-43s  %-43s", "  out-of-place, single iterations",
		       "  in-place, single iterations");
	printf("\n");
	print_head_line(o, &names);
	print_head_line(o, &units);
	fflush(stdout);
}

static void print_number(int width, double value)
{
	char text[64];

	report_number(text, sizeof(text), width, value);
	printf("  %*s", width, text);
}

static void print_results(const struct options *o, const struct report_half *h)
{
	if (h->missing) {
		printf("  %7s  %6s  %6s    N/A", "N/A", "N/A", "N/A");
		for (int i = 0; o->per_iter && i < 4; i++)
			printf("  %7s", "N/A");
		return;
	}
	print_number(7, h->time_us);
	print_number(6, h->algorithm_gbs);
	print_number(6, h->bus_gbs);
	if (h->checked)
		printf("  %6g", h->wrong);
	else
		printf("    N/A");
	if (!o->per_iter)
		return;
	print_number(7, h->stats.min * 1e6);
	print_number(7, h->stats.max * 1e6);
	print_number(7, h->stats.p99 * 1e6);
	print_number(7, h->stats.avg > 0 ? h->stats.stdev / h->stats.avg * 100
					 : 0);
}

static void print_stats(const struct report_half *h)
{
	const struct stats *s = &h->stats;

	for (int i = 0; h->missing && i < 5; i++)
		printf("  %7s", "N/A");
	if (h->missing)
		return;
	print_number(7, s->min * 1e6);
	print_number(7, s->avg * 1e6);
	print_number(7, s->max * 1e6);
	print_number(7, s->p50 * 1e6);
	print_number(7, s->p99 * 1e6);
}

static void print_histogram(const struct options *o, const char *where,
			    const struct report_half *h)
{
	struct stats_histogram bins;
	size_t n = (size_t)(o->iters - o->per_iter_skip);
	size_t most = 1;

	stats_histogram(&bins, h->times + o->per_iter_skip, n);
	for (int b = 0; b < bins.bins; b++)
		most = bins.count[b] > most ? bins.count[b] : most;
	printf("#   %s: %zu iterations\n", where, n);
	for (int b = 0; b < bins.bins; b++) {
		int stars = (int)((40 * bins.count[b] + most - 1) / most);

		printf("#   %10.2f - %10.2f us %8zu %.*s\n", bins.from[b] * 1e6,
		       bins.from[b + 1] * 1e6, bins.count[b], stars,
		       "****************************************");
	}
}

void report_row(const struct options *o, const struct report_row *row)
{
	char now[32];

	progress_clear();
	printf("%12zu  %12zu  %8s  %6s  %6d", row->size, row->count, row->type,
	       row->reduction, row->root);
	print_results(o, &row->out_of_place);
	print_results(o, &row->in_place);
	if (o->stats) {
		print_stats(&row->out_of_place);
		print_stats(&row->in_place);
	}
	if (o->timestamps) {
		report_now(now, sizeof(now));
		printf("%21s", now);
	}
	printf("\n");
	if (o->histogram) {
		print_histogram(o, "out-of-place", &row->out_of_place);
		if (!row->in_place.missing)
			print_histogram(o, "in-place", &row->in_place);
	}
	fflush(stdout);
}

void report_summary(const char *label, const char *text)
{
	printf("# %-20s : %s\n", label, text);
}

void report_foot(const struct options *o, const struct report_end *end)
{
	const char *verdict = "";
	char text[64];

	progress_clear();
	if (end->least_bus_gbs >= 0)
		verdict = end->average_bus_gbs < 0.9 * end->least_bus_gbs
				  ? "FAILED"
				  : "OK";
	snprintf(text, sizeof(text), "%ld %s", end->failed_checks,
		 end->failed_checks ? "FAILED" : "OK");
	report_summary("Out of bounds values", text);
	snprintf(text, sizeof(text), "%g %s", end->average_bus_gbs, verdict);
	report_summary("Avg bus bandwidth", text);
	printf("#\n# Collective test concluded: %s\n", o->op->program);
}

void report_close(const char *last_error)
{
	printf("#\n");
	if (last_error && last_error[0])
		printf("# error: %s\n", last_error);
	else
		printf("\n");
	fflush(stdout);
}
