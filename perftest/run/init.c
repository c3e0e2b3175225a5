/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times the first communicator of each process, then further ones by an id, by
 * a split, and their ends. A call takes as long as it does on the slowest rank.
 * The first communicator also contains the time between the starts of the
 * processes, except on the rank that comes last.
 */
#include "perftest/run/init.h"

#include <limits.h>
#include <popt.h>
#include <stdio.h>
#include <stdlib.h>

#include "perftest/base/clock.h"
#include "perftest/base/exchange.h"
#include "perftest/base/failure.h"
#include "perftest/base/launch.h"
#include "perftest/base/stats.h"

#define NOT_GIVEN INT_MIN /* --ranks was not given */

struct request {
	int ranks, repeats;
};

enum what { BY_ID, SPLIT, DESTROY, WHATS };

static const char *const names[] = {"by id", "split", "destroy"};

/* Returns the seconds that the call took here. */
static double make_by_id(struct exchange *c, dicomm_comm_t *comm)
{
	dicomm_unique_id_t id = {.text = ""}, *all;
	double begin;

	all = failure_alloc((size_t)c->procs, sizeof(*all));
	if (c->proc == 0)
		CHECK_DICOMM(NULL, dicomm_get_unique_id(&id));
	exchange_gather(c, &id, sizeof(id), all);
	exchange_barrier(c, 0);
	begin = clock_s();
	CHECK_DICOMM(NULL,
		     dicomm_comm_init_rank(comm, c->procs, all[0], c->proc));
	free(all);
	return clock_s() - begin;
}

static double make_by_split(struct exchange *c, dicomm_comm_t *comm)
{
	double begin;

	exchange_barrier(c, 0);
	begin = clock_s();
	CHECK_DICOMM(c->comm,
		     dicomm_comm_split(c->comm, 0, c->proc, comm, NULL));
	return clock_s() - begin;
}

/* It has been used, as communicators are. */
static double end(struct exchange *c, dicomm_comm_t comm)
{
	double begin;

	CHECK_DICOMM(comm, dicomm_barrier(comm, NULL));
	exchange_barrier(c, 0);
	begin = clock_s();
	CHECK_DICOMM(NULL, dicomm_comm_destroy(comm));
	return clock_s() - begin;
}

static void print(const char *name, const double *times, size_t n)
{
	struct stats s;

	if (stats_compute(&s, times, n) < 0)
		failure_end(FAILURE_INTERNAL, "out of memory");
	printf("%10s %6zu %10.1f %10.1f %10.1f\n", name, n, s.p50 * 1e6,
	       s.min * 1e6, s.max * 1e6);
}

/* Prints the times of the slowest rank. */
static void report(struct exchange *c, const char *name, const double *mine,
		   size_t n)
{
	double *all = failure_alloc((size_t)c->procs * n, sizeof(*all));
	double *most = failure_alloc(n, sizeof(*most));

	exchange_times(c, 0, mine, n, all);
	for (size_t i = 0; i < n; i++)
		for (size_t p = 0; p < (size_t)c->procs; p++)
			if (all[p * n + i] > most[i])
				most[i] = all[p * n + i];
	if (c->proc == 0)
		print(name, most, n);
	free(all);
	free(most);
}

static void report_first(struct exchange *c, double mine)
{
	double *all = failure_alloc((size_t)c->procs, sizeof(*all));

	exchange_times(c, 0, &mine, 1, all);
	if (c->proc == 0) {
		printf("# Making and ending communicators of %d ranks, on the "
		       "slowest rank, in us\n"
		       "# \"first\" is of the %d ranks of this run\n"
		       "#%9s %6s %10s %10s %10s\n",
		       c->procs, c->procs, "what", "n", "median", "min", "max");
		print("first", all, (size_t)c->procs);
	}
	free(all);
}

static int run(const struct request *r)
{
	size_t n = (size_t)r->repeats;
	double *times[WHATS], begin = clock_s();
	struct exchange c;
	dicomm_comm_t comm;

	exchange_open(&c, 1);
	begin = clock_s() - begin;
	if (!c.comm) {
		exchange_close(&c);
		return failure_refuse("init", "--ranks", "(none)",
				      "and no launcher has started ranks");
	}
	report_first(&c, begin);
	for (int w = 0; w < WHATS; w++)
		times[w] = failure_alloc(n, sizeof(*times[w]));
	for (size_t i = 0; i < n; i++) {
		times[BY_ID][i] = make_by_id(&c, &comm);
		end(&c, comm);
		times[SPLIT][i] = make_by_split(&c, &comm);
		times[DESTROY][i] = end(&c, comm);
	}
	for (int w = 0; w < WHATS; w++) {
		report(&c, names[w], times[w], n);
		free(times[w]);
	}
	exchange_close(&c);
	return FAILURE_NONE;
}

static int check(const struct request *r)
{
	char text[32];

	if (r->ranks != NOT_GIVEN && (r->ranks < 1 || r->ranks > 4096)) {
		snprintf(text, sizeof(text), "%d", r->ranks);
		return failure_refuse("init", "--ranks", text,
				      "not an integer from 1 to 4096");
	}
	if (r->repeats < 1 || r->repeats > 100000) {
		snprintf(text, sizeof(text), "%d", r->repeats);
		return failure_refuse("init", "--repeats", text,
				      "not an integer from 1 to 100000");
	}
	return FAILURE_NONE;
}

/* Reads the options of init. Returns a status; FAILURE_NONE to go on. */
static int parse(struct request *r, int argc, char **argv)
{
	const struct poptOption table[] = {
		{"ranks", '\0', POPT_ARG_INT, &r->ranks, 0,
		 "start this many processes here (else a launcher did)", "N"},
		{"repeats", '\0', POPT_ARG_INT, &r->repeats, 0,
		 "how many further communicators of each kind (20)", "N"},
		POPT_AUTOHELP POPT_TABLEEND,
	};
	poptContext context = poptGetContext(NULL, argc, (const char **)argv,
					     table, POPT_CONTEXT_KEEP_FIRST);
	int status;

	poptSetOtherOptionHelp(context, "dicomm-perf init [options]");
	status = failure_refuse_rest("init", context, poptGetNextOpt(context));
	if (status == FAILURE_NONE)
		status = check(r);
	poptFreeContext(context);
	return status;
}

int init_main(int argc, char **argv, int child_rank)
{
	struct request r = {.ranks = NOT_GIVEN, .repeats = 20};
	int status = parse(&r, argc - 2, argv + 2);

	if (status != FAILURE_NONE)
		return status;
	return r.ranks > 0 && child_rank < 0 ? launch_processes(r.ranks, argv)
					     : run(&r);
}
