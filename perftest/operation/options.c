/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses and checks the command line. */
#include <errno.h>
#include <limits.h>
#include <popt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "dicomm.h"
#include "perftest/base/failure.h"
#include "perftest/base/gnuplot.h"
#include "perftest/operation/options.h"
#include "perftest/base/size.h"

/* Values for options without a letter. */
enum own_option {
	OWN_RANKS = 256,
	OWN_MEM,
	OWN_DEVICE,
	OWN_PLOT,
	OWN_PIN,
	OWN_STATS,
	OWN_HISTOGRAM,
	OWN_EXPLAIN,
	OWN_TRAFFIC,
	OWN_VERSION,
	OWN_USAGE,
};

#define VALUE(letter, name, help, arg)                                 \
	{                                                              \
		name, letter, POPT_ARG_STRING, NULL, letter, help, arg \
	}
#define OWN_VALUE(value, name, help, arg)                           \
	{                                                           \
		name, '\0', POPT_ARG_STRING, NULL, value, help, arg \
	}
#define OWN_FLAG(value, name, help)                                \
	{                                                          \
		name, '\0', POPT_ARG_NONE, NULL, value, help, NULL \
	}

static const struct poptOption options_table[] = {
	VALUE('t', "nthreads", "threads per process (1)", "N"),
	VALUE('g', "ngpus", "ranks per thread; --device says where (1)", "N"),
	VALUE('b', "minbytes", "first size; K, M, G are powers of 1024 (32M)",
	      "SIZE"),
	VALUE('e', "maxbytes", "last size (32M)", "SIZE"),
	VALUE('i', "stepbytes", "step between sizes (1M)", "SIZE"),
	VALUE('f', "stepfactor", "factor between sizes, instead of a step",
	      "N"),
	VALUE('n', "iters", "timed iterations (20)", "N"),
	VALUE('m', "agg_iters", "operations in one group per iteration (1)",
	      "N"),
	VALUE('w', "warmup_iters", "iterations to warm up (1)", "N"),
	VALUE('N', "run_cycles", "sweeps; 0 = for ever (1)", "N"),
	VALUE('p', "parallel_init", "1: threads initialise at once (0)", "0|1"),
	VALUE('c', "check", "iterations whose results are checked (1)", "N"),
	VALUE('o', "op",
	      "sum, prod, min, max, avg, mulsum; band, bor, bxor on integers; "
	      "all (sum)",
	      "OP"),
	VALUE('d', "datatype",
	      "int8, uint8, int32, uint32, int64, uint64, half, float, double, "
	      "bfloat16, f8e4m3, f8e5m2, int16, uint16, f8e4m3uz, f8e5m2uz; "
	      "all (float)",
	      "TYPE"),
	VALUE('r', "root", "root rank; -1 = each in turn (0)", "RANK"),
	VALUE('z', "blocking",
	      "1: wait and barrier after each operation, 2: wait, 3: wait and "
	      "barrier after each iteration, not timed (0)",
	      "0|1|2|3"),
	VALUE('y', "stream_null",
	      "1: null stream (calls block on a host), 0: a stream (1 on a "
	      "host)",
	      "0|1"),
	VALUE('T', "timeout", "bound on each wait (DICOMM_TIMEOUT_MS)",
	      "SECONDS"),
	VALUE('G', "cudagraph", "only 0: operations cannot be captured", "N"),
	VALUE('C', "report_cputime", "1: time of the calls alone (0)", "0|1"),
	VALUE('S', "report_timestamps", "1: add a column (0)", "0|1"),
	VALUE('J', "output_file", "write results there too, as JSON",
	      "FILE.json"),
	VALUE('a', "average",
	      "time over ranks: 0 of rank 0, 1 average, 2 least, 3 most (1)",
	      "0|1|2|3"),
	VALUE('R', "local_register",
	      "1: register the buffers, 2: they are also --mem alloc (0)",
	      "0|1|2"),
	VALUE('x', "cta_policy", "refused: thread blocks cannot be chosen",
	      "N"),
	VALUE('D', "device_implementation", "only 0: there is no device API",
	      "N"),
	VALUE('V', "device_cta_count", "refused: there is no device API", "N"),
	VALUE('M', "memory", "1: report memory use (0)", "0|1"),
	VALUE('u', "unalign", "index of the first element (0)", "N"),
	VALUE('I', "per_iter_timing", "1: columns on single iterations (0)",
	      "0|1"),
	VALUE('K', "per_iter_skip",
	      "leading iterations left out of statistics (0)", "N"),
	OWN_VALUE(OWN_RANKS, "ranks",
		  "start this many processes here (else a launcher did)", "N"),
	OWN_FLAG(OWN_PIN, "pin", "bind each rank to a core"),
	OWN_VALUE(OWN_MEM, "mem",
		  "buffers from malloc or from dicomm_mem_alloc (malloc)",
		  "malloc|alloc"),
	OWN_FLAG(OWN_STATS, "stats",
		 "add columns min, avg, max, p50, p99 of single iterations"),
	OWN_FLAG(OWN_HISTOGRAM, "histogram",
		 "print a histogram of single iterations for each row"),
	OWN_VALUE(OWN_DEVICE, "device",
		  "what the ranks compute on: cuda:0, or for each rank: "
		  "0=cuda:0,1=host",
		  "DEVICE"),
	OWN_VALUE(OWN_PLOT, "plot",
		  "draw bandwidth and latency over size (needs gnuplot)",
		  "FILE.svg"),
	OWN_FLAG(OWN_EXPLAIN, "explain",
		 "print which algorithm runs for each size, and why"),
	OWN_FLAG(OWN_TRAFFIC, "traffic",
		 "print at the end how many bytes moved directly or staged"),
	OWN_FLAG(OWN_VERSION, "version", "print the version"),
	{"help", 'h', POPT_ARG_NONE, NULL, 'h', "print this", NULL},
	{"usage", '\0', POPT_ARG_NONE, NULL, OWN_USAGE, "print a summary",
	 NULL},
	POPT_TABLEEND,
};

static enum options_outcome refuse(int *status, int code, const char *what,
				   const char *value, const char *why)
{
	fprintf(stderr, "dicomm-perf: %s %s: %s\n", what, value, why);
	*status = code;
	return OPTIONS_EXIT;
}

struct range {
	int option;
	int *value;
	int low, high;
	/* Why the range ends there; NULL: the range itself says it. */
	const char *why;
};

/* Handles an integer option: checks that its value is in range. */
static enum options_outcome parse_integer(const struct range *r,
					  const char *name, const char *text,
					  int *status)
{
	char why[128];
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 0);
	if (end != text && !*end && !errno && v >= r->low && v <= r->high) {
		*r->value = (int)v;
		return OPTIONS_RUN;
	}
	if (r->why)
		snprintf(why, sizeof(why), "%s", r->why);
	else
		snprintf(why, sizeof(why), "not an integer from %d to %d",
			 r->low, r->high);
	return refuse(status, FAILURE_USAGE, name, text, why);
}

static enum options_outcome parse_size(const char *name, const char *text,
				       size_t *size, int *status)
{
	if (size_parse(text, size))
		return OPTIONS_RUN;
	fprintf(stderr, "invalid size specified for '%s'\n", name);
	*status = FAILURE_SIZE;
	return OPTIONS_EXIT;
}

/* Accepts "cuda:0" or "0=cuda:0,2=host". Which devices exist, only the library
 * knows. */
bool options_devices_valid(const char *text)
{
	if (!strchr(text, '='))
		return *text && !strchr(text, ',');
	while (*text) {
		size_t digits = strspn(text, "0123456789");
		size_t n = strcspn(text, ",");

		if (!digits || digits > 6 || text[digits] != '=' ||
		    n < digits + 2)
			return false;
		text += n;
		if (*text && !*++text)
			return false;
	}
	return true;
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n > m && strcasecmp(text + n - m, end) == 0;
}

static void keep(char **string, const char *text)
{
	free(*string);
	*string = strdup(text);
}

/* Handles options whose value is a word or a file. */
static enum options_outcome parse_word(struct options *o, int option,
				       const char *text, int *status)
{
	switch (option) {
	case 'o':
		o->all_reductions = strcmp(text, "all") == 0;
		o->reduction = o->all_reductions ? REDUCTION_SUM
						 : reduction_find(text);
		if (o->reduction == REDUCTIONS)
			return refuse(status, FAILURE_USAGE, "op", text,
				      "unknown; see --help");
		return OPTIONS_RUN;
	case 'd':
		o->type = type_find(text);
		if (!o->type && strcmp(text, "all") != 0)
			return refuse(status, FAILURE_USAGE, "datatype", text,
				      "unknown; see --help");
		return OPTIONS_RUN;
	case 'J':
		if (!ends_in(text, ".json"))
			return refuse(status, FAILURE_USAGE, "output_file",
				      text, "must end in .json");
		keep(&o->json, text);
		return OPTIONS_RUN;
	case OWN_PLOT:
		if (!gnuplot_draws(text))
			return refuse(status, FAILURE_USAGE, "plot", text,
				      "must end in .svg or .png");
		keep(&o->plot, text);
		return OPTIONS_RUN;
	case OWN_DEVICE:
		if (!options_devices_valid(text))
			return refuse(status, FAILURE_USAGE, "device", text,
				      "not DEVICE, nor RANK=DEVICE,...");
		keep(&o->device, text);
		return OPTIONS_RUN;
	case OWN_MEM:
		o->mem_alloc = strcmp(text, "alloc") == 0;
		if (!o->mem_alloc && strcmp(text, "malloc") != 0)
			return refuse(status, FAILURE_USAGE, "mem", text,
				      "not malloc or alloc");
		return OPTIONS_RUN;
	default:
		return refuse(status, FAILURE_INTERNAL, "option", text,
			      "has no meaning");
	}
}

static enum options_outcome parse_value(struct options *o, int option,
					const char *text, int *status)
{
	static const char no_device_api[] = "there is no device API";
	int ignored, factor = 0;
	const struct range ranges[] = {
		{'t', &o->threads, 1, 4096, NULL},
		{'g', &o->devices, 1, 4096, NULL},
		{'f', &factor, 0, INT_MAX, NULL},
		{'n', &o->iters, 1, INT_MAX, NULL},
		{'m', &o->agg_iters, 1, INT_MAX, NULL},
		{'w', &o->warmup_iters, 0, INT_MAX, NULL},
		{'N', &o->cycles, 0, INT_MAX, NULL},
		{'p', &o->parallel_init, 0, 1, NULL},
		{'c', &o->checks, 0, INT_MAX, NULL},
		{'r', &o->root, -1, INT_MAX, NULL},
		{'z', &o->blocking, 0, 3, NULL},
		{'y', &o->stream_null, 0, 1, NULL},
		{'T', &o->timeout_s, 0, INT_MAX / 1000, NULL},
		{'G', &ignored, 0, 0, "operations cannot be captured"},
		{'C', &o->cputime, 0, 1, NULL},
		{'S', &o->timestamps, 0, 1, NULL},
		{'a', &o->average, 0, 3, NULL},
		{'R', &o->local_register, 0, 2, NULL},
		{'x', &ignored, 1, 0, "thread blocks cannot be chosen"},
		{'D', &ignored, 0, 0, no_device_api},
		{'V', &ignored, 1, 0, no_device_api},
		{'M', &o->memory_report, 0, 1, NULL},
		{'u', &o->unalign, 0, 1 << 20, NULL},
		{'I', &o->per_iter, 0, 1, NULL},
		{'K', &o->per_iter_skip, 0, INT_MAX, NULL},
		{OWN_RANKS, &o->ranks, 1, 4096, NULL},
	};
	const char *name = "option";
	enum options_outcome outcome;

	for (const struct poptOption *p = options_table; p->longName; p++)
		if (p->val == option)
			name = p->longName;
	if (strchr("bei", option) && option < 256) {
		o->sizes_given = true;
		return parse_size(name, text,
				  option == 'b'   ? &o->min_bytes
				  : option == 'e' ? &o->max_bytes
						  : &o->step_bytes,
				  status);
	}
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		if (ranges[i].option != option)
			continue;
		outcome = parse_integer(&ranges[i], name, text, status);
		if (option == 'f') {
			o->sizes_given = true;
			o->step_factor = (size_t)factor;
		}
		/* Symmetric memory of nccl-tests is memory that neighbours can
		 * map. */
		if (option == 'R' && o->local_register == 2)
			o->mem_alloc = true;
		return outcome;
	}
	return parse_word(o, option, text, status);
}

static enum options_outcome parse_flag(struct options *o, poptContext context,
				       int option, int *status)
{
	*status = FAILURE_NONE;
	switch (option) {
	case OWN_PIN:
		o->pin = 1;
		return OPTIONS_RUN;
	case OWN_STATS:
		o->stats = 1;
		return OPTIONS_RUN;
	case OWN_HISTOGRAM:
		o->histogram = 1;
		return OPTIONS_RUN;
	case OWN_EXPLAIN:
		o->explain = 1;
		return OPTIONS_RUN;
	case OWN_TRAFFIC:
		o->traffic = 1;
		return OPTIONS_RUN;
	case OWN_VERSION:
		printf("dicomm-perf %d.%d.%d\n", DICOMM_VERSION_MAJOR,
		       DICOMM_VERSION_MINOR, DICOMM_VERSION_PATCH);
		return OPTIONS_EXIT;
	case OWN_USAGE:
		poptPrintUsage(context, stdout, 0);
		return OPTIONS_EXIT;
	default:
		poptPrintHelp(context, stdout, 0);
		return OPTIONS_EXIT;
	}
}

static enum options_outcome parse_operation(struct options *o,
					    poptContext context,
					    const char *program, int *status)
{
	const char *name;

	o->op = operation_find(program);
	if (!o->op) {
		name = poptGetArg(context);
		if (!name) {
			poptPrintHelp(context, stderr, 0);
			return refuse(status, FAILURE_USAGE, "operation", "",
				      "which one?");
		}
		o->op = operation_find(name);
		if (!o->op) {
			fprintf(stderr, "dicomm-perf: known operations:");
			for (int i = 0; i < OPERATIONS; i++)
				fprintf(stderr, " %s", operations[i].name);
			fputc('\n', stderr);
			return refuse(status, FAILURE_USAGE, "operation", name,
				      "unknown");
		}
	}
	name = poptGetArg(context);
	if (name)
		return refuse(status, FAILURE_USAGE, "argument", name,
			      "one too many");
	return OPTIONS_RUN;
}

/* Checks options that depend on each other. */
static enum options_outcome check_together(const struct options *o, int *status)
{
	char text[64];

	if (o->min_bytes > o->max_bytes) {
		fprintf(stderr,
			"invalid sizes for 'minbytes' and 'maxbytes': %zu > "
			"%zu\n",
			o->min_bytes, o->max_bytes);
		*status = FAILURE_SIZE;
		return OPTIONS_EXIT;
	}
	if (o->step_factor <= 1 && o->step_bytes == 0 &&
	    o->min_bytes < o->max_bytes)
		return refuse(status, FAILURE_SIZE, "stepbytes", "0",
			      "the sweep would never end");
	if (o->plot && o->op->id == OPERATION_BARRIER)
		return refuse(status, FAILURE_USAGE, "plot", o->plot,
			      "a barrier has no sizes to draw over");
	snprintf(text, sizeof(text), "%d", o->per_iter_skip);
	if (o->per_iter_skip >= o->iters)
		return refuse(status, FAILURE_USAGE, "per_iter_skip", text,
			      "leaves no iteration");
	if (o->per_iter_skip && !options_per_iter(o))
		return refuse(status, FAILURE_USAGE, "per_iter_skip", text,
			      "needs -I 1, --stats or --histogram");
	if (o->type && o->op->reduces && !o->all_reductions &&
	    !reduction_serves(o->reduction, o->type))
		return refuse(status, FAILURE_USAGE, "op",
			      reduction_name(o->reduction), "only on integers");
	return OPTIONS_RUN;
}

bool options_device(const struct options *o, int rank, char *device, size_t len)
{
	const char *p = o->device;

	if (!p)
		return false;
	if (!strchr(p, '=')) {
		snprintf(device, len, "%s", p);
		return true;
	}
	while (*p) {
		char *name;
		long r = strtol(p, &name, 10);
		size_t n = strcspn(name, ",");

		if (r == rank) {
			snprintf(device, len, "%.*s", (int)n - 1, name + 1);
			return true;
		}
		p = name + n + (name[n] == ',');
	}
	return false;
}

bool options_per_iter(const struct options *o)
{
	return o->per_iter || o->stats || o->histogram;
}

static const struct options defaults = {
	.threads = 1,
	.devices = 1,
	.min_bytes = 32 << 20,
	.max_bytes = 32 << 20,
	.step_bytes = 1 << 20,
	.iters = 20,
	.agg_iters = 1,
	.warmup_iters = 1,
	.cycles = 1,
	.checks = 1,
	.average = 1,
	.stream_null = -1,
};

enum options_outcome options_parse(struct options *o, int argc,
				   const char **argv, int *status)
{
	enum options_outcome outcome = OPTIONS_RUN;
	poptContext context;
	int option;

	*o = defaults;
	o->type = type_find("float");
	context = poptGetContext(NULL, argc, argv, options_table, 0);
	poptSetOtherOptionHelp(
		context, operation_find(argv[0])
				 ? "[options]"
				 : "allreduce|allgather|reduce_scatter|"
				   "broadcast|reduce|alltoall|alltoallv|gather|"
				   "scatter|gatherv|scatterv|sendrecv|put|get|"
				   "barrier|init|links|simulate [options]");
	while (outcome == OPTIONS_RUN &&
	       (option = poptGetNextOpt(context)) > 0) {
		char *text = poptGetOptArg(context);

		outcome = text ? parse_value(o, option, text, status)
			       : parse_flag(o, context, option, status);
		free(text);
	}
	if (outcome == OPTIONS_RUN && option < -1) {
		/* Like nccl-tests, prints the usage and does not fail. */
		fprintf(stderr, "dicomm-perf: %s: %s\n",
			poptBadOption(context, POPT_BADOPTION_NOALIAS),
			poptStrerror(option));
		poptPrintHelp(context, stdout, 0);
		*status = FAILURE_NONE;
		outcome = OPTIONS_EXIT;
	}
	if (outcome == OPTIONS_RUN)
		outcome = parse_operation(o, context, argv[0], status);
	if (outcome == OPTIONS_RUN)
		outcome = check_together(o, status);
	poptFreeContext(context);
	return outcome;
}

void options_free(struct options *o)
{
	free(o->json);
	free(o->device);
	free(o->plot);
	o->json = o->device = o->plot = NULL;
}
