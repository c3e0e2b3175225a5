/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of dicomm-perf: meanings, defaults, refusals. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/base/failure.h"
#include "perftest/operation/options.h"
#include "tests/support/runner.h"

#define MAX_ARGS 32

/* Parse a line of words. What it prints is not of interest. */
static enum options_outcome parse(struct options *o, const char *line,
				  int *status)
{
	const char *argv[MAX_ARGS + 1];
	enum options_outcome outcome;
	char *copy = strdup(line);
	char *save = NULL;
	int argc = 0;

	ck_assert_ptr_nonnull(copy);
	for (char *word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	argv[argc] = NULL;
	*status = -1;
	outcome = options_parse(o, argc, argv, status);
	free(copy);
	return outcome;
}

START_TEST(defaults_are_those_of_nccl_tests)
{
	struct options o;
	int status;

	ck_assert_int_eq(parse(&o, "dicomm-perf allreduce", &status),
			 OPTIONS_RUN);
	ck_assert_str_eq(o.op->name, "allreduce");
	ck_assert_int_eq(o.threads, 1);
	ck_assert_int_eq(o.devices, 1);
	ck_assert_uint_eq(o.min_bytes, 32 << 20);
	ck_assert_uint_eq(o.max_bytes, 32 << 20);
	ck_assert_uint_eq(o.step_bytes, 1 << 20);
	ck_assert_uint_eq(o.step_factor, 0);
	ck_assert_int_eq(o.iters, 20);
	ck_assert_int_eq(o.agg_iters, 1);
	ck_assert_int_eq(o.warmup_iters, 1);
	ck_assert_int_eq(o.cycles, 1);
	ck_assert_int_eq(o.checks, 1);
	ck_assert_int_eq(o.reduction, REDUCTION_SUM);
	ck_assert_str_eq(o.type->name, "float");
	ck_assert_int_eq(o.root, 0);
	ck_assert_int_eq(o.average, 1);
	ck_assert_int_eq(o.blocking, 0);
	ck_assert_int_eq(o.timeout_s, 0);
	ck_assert(!options_per_iter(&o));
	options_free(&o);
}
END_TEST

START_TEST(every_letter_has_its_meaning)
{
	struct options o;
	int status;

	ck_assert_int_eq(
		parse(&o,
		      "reduce_perf -t 2 -g 3 -b 8 -e 1M -f 2 -n 5 -m 4 "
		      "-w 7 -N 0 -p 1",
		      &status),
		OPTIONS_RUN);
	ck_assert_str_eq(o.op->name, "reduce");
	ck_assert_int_eq(o.threads, 2);
	ck_assert_int_eq(o.devices, 3);
	ck_assert_uint_eq(o.min_bytes, 8);
	ck_assert_uint_eq(o.max_bytes, 1 << 20);
	ck_assert_uint_eq(o.step_factor, 2);
	ck_assert_int_eq(o.iters, 5);
	ck_assert_int_eq(o.agg_iters, 4);
	ck_assert_int_eq(o.warmup_iters, 7);
	ck_assert_int_eq(o.cycles, 0);
	ck_assert_int_eq(o.parallel_init, 1);
	options_free(&o);
	ck_assert_int_eq(
		parse(&o,
		      "reduce_perf -c 3 -o avg -d half -r -1 -z 3 -y 0 "
		      "-T 9 -G 0 -C 1 -S 1",
		      &status),
		OPTIONS_RUN);
	ck_assert_int_eq(o.checks, 3);
	ck_assert_int_eq(o.reduction, REDUCTION_AVG);
	ck_assert_int_eq(o.type->id, DICOMM_FLOAT16);
	ck_assert_int_eq(o.root, -1);
	ck_assert_int_eq(o.blocking, 3);
	ck_assert_int_eq(o.stream_null, 0);
	ck_assert_int_eq(o.timeout_s, 9);
	ck_assert_int_eq(o.cputime, 1);
	ck_assert_int_eq(o.timestamps, 1);
	options_free(&o);
	ck_assert_int_eq(parse(&o,
			       "reduce_perf -J /x/a.json -a 3 -R 1 -D 0 -M 1 "
			       "-u 5 -I 1 -K 2 -o all -d all",
			       &status),
			 OPTIONS_RUN);
	ck_assert_str_eq(o.json, "/x/a.json");
	ck_assert_int_eq(o.average, 3);
	ck_assert_int_eq(o.local_register, 1);
	ck_assert(!o.mem_alloc);
	ck_assert_int_eq(o.memory_report, 1);
	ck_assert_int_eq(o.unalign, 5);
	ck_assert_int_eq(o.per_iter, 1);
	ck_assert_int_eq(o.per_iter_skip, 2);
	ck_assert(o.all_reductions);
	ck_assert_ptr_null(o.type);
	options_free(&o);
	ck_assert_int_eq(parse(&o, "reduce_perf -R 2", &status), OPTIONS_RUN);
	ck_assert_int_eq(o.local_register, 2);
	ck_assert(o.mem_alloc);
	options_free(&o);
}
END_TEST

START_TEST(long_names_do_the_same)
{
	struct options o;
	int status;

	ck_assert_int_eq(
		parse(&o,
		      "dicomm-perf --minbytes=8 --maxbytes 64 alltoall "
		      "--stepbytes 8 --iters 3 --ranks 4 --mem alloc "
		      "--stats --plot x.svg --pin",
		      &status),
		OPTIONS_RUN);
	ck_assert_str_eq(o.op->name, "alltoall");
	ck_assert_uint_eq(o.min_bytes, 8);
	ck_assert_uint_eq(o.max_bytes, 64);
	ck_assert_uint_eq(o.step_bytes, 8);
	ck_assert_int_eq(o.iters, 3);
	ck_assert_int_eq(o.ranks, 4);
	ck_assert_int_eq(o.mem_alloc, 1);
	ck_assert_int_eq(o.pin, 1);
	ck_assert_str_eq(o.plot, "x.svg");
	ck_assert(options_per_iter(&o));
	options_free(&o);
}
END_TEST

static const struct {
	const char *line;
	int status;
} refused[] = {
	{"dicomm-perf", FAILURE_USAGE},
	{"dicomm-perf nothing", FAILURE_USAGE},
	{"dicomm-perf allreduce reduce", FAILURE_USAGE},
	{"dicomm-perf allreduce -b x", FAILURE_SIZE},
	{"dicomm-perf allreduce -b -8", FAILURE_SIZE},
	{"dicomm-perf allreduce -b 2M -e 1M", FAILURE_SIZE},
	{"dicomm-perf allreduce -b 1 -e 2 -i 0", FAILURE_SIZE},
	{"dicomm-perf allreduce -n 0", FAILURE_USAGE},
	{"dicomm-perf allreduce -n 3x", FAILURE_USAGE},
	{"dicomm-perf allreduce -t 0", FAILURE_USAGE},
	{"dicomm-perf allreduce -o sums", FAILURE_USAGE},
	{"dicomm-perf allreduce -d floats", FAILURE_USAGE},
	{"dicomm-perf allreduce -o band -d float", FAILURE_USAGE},
	{"dicomm-perf allreduce -z 4", FAILURE_USAGE},
	{"dicomm-perf allreduce -r -2", FAILURE_USAGE},
	{"dicomm-perf allreduce -J a.txt", FAILURE_USAGE},
	{"dicomm-perf allreduce --plot a.txt", FAILURE_USAGE},
	{"dicomm-perf allreduce --mem stack", FAILURE_USAGE},
	{"dicomm-perf allreduce -K 1", FAILURE_USAGE},
	{"dicomm-perf allreduce -I 1 -K 20", FAILURE_USAGE},
	/* what only a GPU can do */
	{"dicomm-perf allreduce -G 1", FAILURE_USAGE},
	{"dicomm-perf allreduce -R 3", FAILURE_USAGE},
	{"dicomm-perf allreduce -x 0", FAILURE_USAGE},
	{"dicomm-perf allreduce -D 1", FAILURE_USAGE},
	{"dicomm-perf allreduce -V 16", FAILURE_USAGE},
	/* as nccl-tests: the usage, and no failure */
	{"dicomm-perf allreduce -q", FAILURE_NONE},
	{"dicomm-perf --help", FAILURE_NONE},
	{"dicomm-perf -h", FAILURE_NONE},
	{"dicomm-perf --version", FAILURE_NONE},
};

START_TEST(what_makes_no_sense_is_refused)
{
	struct options o;
	int status;

	ck_assert_int_eq(parse(&o, refused[_i].line, &status), OPTIONS_EXIT);
	ck_assert_msg(status == refused[_i].status, "%s: status %d",
		      refused[_i].line, status);
	options_free(&o);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_options");
	TCase *tests = tcase_create("options");

	tcase_add_test(tests, defaults_are_those_of_nccl_tests);
	tcase_add_test(tests, every_letter_has_its_meaning);
	tcase_add_test(tests, long_names_do_the_same);
	tcase_add_loop_test(tests, what_makes_no_sense_is_refused, 0,
			    (int)(sizeof(refused) / sizeof(refused[0])));
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
