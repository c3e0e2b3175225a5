/* SPDX-License-Identifier: BSD-3-Clause */
/* Times and checks every combination of type, operator, root and size. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perftest/base/clock.h"
#include "perftest/run/data.h"
#include "perftest/base/failure.h"
#include "perftest/report/json.h"
#include "perftest/report/plot.h"
#include "perftest/run/run.h"
#include "perftest/base/size.h"

#define FIRST_SEED 99

/* Times of single iterations of one half of a row, in seconds. */
struct samples {
	double *mine;      /* of this thread */
	double *processes; /* thread 0: procs x iters */
	double *largest;   /* thread 0: over all processes */
};

/* A measuring thread, and what it measures now. */
struct worker {
	struct session *s;
	int thread;
	pthread_t id;
	struct session_rank *ranks;     /* o->devices of them */
	struct call *calls;             /* owned; one for each rank */
	struct verify_pattern *pattern; /* owned */
	struct samples samples[2];      /* out of place, in place */
	uint64_t seed;
	struct geometry geometry;
	const struct type *type;
	/* Progress and results. All threads have the same, except for
	 * failed_checks. */
	size_t done, all;
	long failed_checks;
	double bus_sum;
	size_t bus_n;
};

/* Returns the bytes of the larger buffer of a call. */
static size_t footprint(const struct worker *w)
{
	return operation_larger(&w->geometry) * w->type->bytes;
}

/* ---- one operation of all ranks of a thread ---- */

static void complete(struct worker *w)
{
	for (int i = 0; i < w->s->o->devices; i++)
		session_rank_wait(&w->ranks[i]);
}

/*
 * Starts an iteration on all ranks of the thread. Each iteration uses another
 * part of the buffers, as far as they reach, so that small operations do not
 * always find their data in the cache.
 */
static void start(struct worker *w, bool in_place, size_t iter)
{
	const struct options *o = w->s->o;
	size_t bytes = footprint(w);
	size_t places = bytes > 0 ? o->max_bytes / bytes : 1;
	size_t shift = places > 0 ? bytes * (iter % places) : 0;

	if (o->devices > 1)
		CHECK_DICOMM(NULL, dicomm_group_start());
	for (int i = 0; i < o->devices; i++) {
		struct session_rank *r = &w->ranks[i];
		size_t size = w->type->bytes;
		size_t rank = (size_t)r->rank;
		const char *send = r->send + shift;
		char *recv = r->recv + shift;

		if (in_place) {
			send = recv + rank * w->geometry.send_shift * size;
			recv += rank * w->geometry.recv_shift * size;
		}
		CHECK_DICOMM(*r->comm, operation_run(&w->calls[i], send, recv,
						     *r->comm, r->stream));
	}
	if (o->devices > 1)
		CHECK_DICOMM(*w->ranks[0].comm, dicomm_group_end());
	if (o->blocking == 1 || o->blocking == 2)
		complete(w);
	if (o->blocking == 1)
		exchange_barrier(&w->s->exchange, w->thread);
}

/* ---- checks ---- */

static void fill(struct worker *w, bool in_place, uint64_t seed)
{
	for (int i = 0; i < w->s->o->devices; i++)
		data_fill(w->pattern, &w->ranks[i], &w->calls[i], in_place,
			  seed);
	/* Peers write or read the buffers from here on. */
	if (w->s->o->op->one_sided)
		exchange_barrier(&w->s->exchange, w->thread);
}

/* A barrier is wrong if a rank leaves it before the last one has entered. Ranks
 * enter at different times; all read the same clock. */
static size_t wrong_of_barrier(struct worker *w)
{
	struct exchange *c = &w->s->exchange;
	int place = c->proc * c->threads + w->thread;
	const struct timespec late = {.tv_nsec = 1000 * 100 * (place % 8)};
	double came, left, last;

	exchange_barrier(c, w->thread);
	nanosleep(&late, NULL);
	came = clock_s();
	start(w, false, 0);
	complete(w);
	left = clock_s();
	last = exchange_combine(c, w->thread, came, EXCHANGE_MAX);
	return left < last ? 1 : 0;
}

static size_t check_once(struct worker *w, bool in_place)
{
	size_t wrong = 0;

	if (w->calls[0].op->id == OPERATION_BARRIER)
		return wrong_of_barrier(w);
	w->seed++;
	fill(w, in_place, w->seed);
	start(w, in_place, 0);
	complete(w);
	for (int i = 0; i < w->s->o->devices; i++)
		wrong += data_wrong(w->pattern, &w->ranks[i], &w->calls[i],
				    in_place, w->seed);
	return wrong;
}

static bool is_checked(const struct worker *w, bool in_place)
{
	const struct operation *op = w->s->o->op;

	if (w->s->o->checks == 0)
		return false;
	if (op->id == OPERATION_BARRIER)
		return w->s->one_host;
	return !in_place || op->checked_in_place;
}

/* All threads of all processes call this. Returns the number of wrong elements
 * on all. */
static double check(struct worker *w, bool in_place)
{
	double all = 0;

	for (int i = 0; i < w->s->o->checks && all == 0; i++) {
		size_t wrong = check_once(w, in_place);

		if (wrong > 0 && is_checked(w, in_place))
			w->failed_checks++;
		all = exchange_combine(&w->s->exchange, w->thread,
				       (double)wrong, EXCHANGE_SUM);
	}
	return all;
}

/* ---- time ---- */

/* Seconds per operation: until it is done, and of its call alone. */
struct timing {
	double done, call;
};

static struct timing timed_loop(struct worker *w, bool in_place)
{
	const struct options *o = w->s->o;
	double *samples = w->samples[in_place].mine;
	/* With -z 1 and 2, each call is waited for, but in a group it would not
	 * have begun. */
	bool grouped = o->agg_iters > 1 && o->blocking != 1 && o->blocking != 2;
	double all = (double)o->iters * o->agg_iters;
	double without_barrier = 0;
	struct timing t;
	double begin, last;

	begin = last = clock_s();
	for (int i = 0; i < o->iters; i++) {
		if (grouped)
			CHECK_DICOMM(NULL, dicomm_group_start());
		for (int k = 0; k < o->agg_iters; k++)
			start(w, in_place,
			      (size_t)i * (size_t)o->agg_iters + (size_t)k);
		if (grouped)
			CHECK_DICOMM(*w->ranks[0].comm, dicomm_group_end());
		if (!samples && o->blocking != 3)
			continue;
		complete(w);
		if (samples)
			samples[i] = (clock_s() - last) / o->agg_iters;
		if (o->blocking == 3) {
			without_barrier += clock_s() - last;
			exchange_barrier(&w->s->exchange, w->thread);
		}
		last = clock_s();
	}
	t.call = (clock_s() - begin) / all;
	complete(w);
	t.done = (clock_s() - begin) / all;
	if (o->blocking == 3)
		t.call = t.done = without_barrier / all;
	return t;
}

/* Collects the samples of all threads and processes for the report. */
static void collect(struct worker *w, bool in_place, struct report_half *half)
{
	const struct options *o = w->s->o;
	struct samples *s = &w->samples[in_place];
	size_t n = (size_t)o->iters;
	int procs = w->s->exchange.procs;

	exchange_times(&w->s->exchange, w->thread, s->mine, n, s->processes);
	if (w->thread != 0)
		return;
	for (size_t i = 0; i < n; i++) {
		s->largest[i] = s->processes[i];
		for (size_t p = 1; p < (size_t)procs; p++)
			if (s->processes[p * n + i] > s->largest[i])
				s->largest[i] = s->processes[p * n + i];
	}
	half->times = s->largest;
	half->process_times = s->processes;
	half->procs = procs;
	if (stats_compute(&half->stats, s->largest + o->per_iter_skip,
			  n - (size_t)o->per_iter_skip) < 0)
		failure_end(FAILURE_INTERNAL, "out of memory");
}

static void measure(struct worker *w, bool in_place, struct report_half *half)
{
	struct exchange *c = &w->s->exchange;
	const struct options *o = w->s->o;
	struct timing t;

	*half = (struct report_half){.checked = is_checked(w, in_place)};
	if (o->checks > 0)
		fill(w, in_place, FIRST_SEED);
	start(w, in_place, 0);
	complete(w);
	exchange_barrier(c, w->thread);
	t = timed_loop(w, in_place);
	t.done = exchange_combine(c, w->thread, t.done,
				  (enum exchange_how)o->average);
	if (w->samples[in_place].mine)
		collect(w, in_place, half);
	operation_bandwidth(o->op, &w->geometry, w->type->bytes, w->s->ranks,
			    t.done, &half->algorithm_gbs, &half->bus_gbs);
	exchange_barrier(c, w->thread);
	half->wrong = check(w, in_place);
	half->seconds = t.done;
	half->time_us = (o->cputime ? t.call : t.done) * 1e6;
	w->bus_sum += half->bus_gbs;
	w->bus_n++;
}

/* ---- the sweep ---- */

/* One combination of type, operator and root. For a barrier, the type is
 * bytes. */
struct combination {
	const struct type *type;
	enum reduction reduction;
	int root;
};

static void set_size(struct worker *w, const struct combination *c, size_t size)
{
	struct session *s = w->s;
	const struct operation *op = s->o->op;
	size_t bytes = c->type->bytes;

	w->type = c->type;
	w->geometry = operation_geometry(op, size / bytes, bytes, s->ranks,
					 &s->traffic);
	for (int i = 0; i < s->o->devices; i++) {
		struct session_rank *r = &w->ranks[i];

		w->calls[i].geometry = w->geometry;
		if (op->id == OPERATION_ALLTOALLV)
			traffic_part_set(
				&r->part, &s->traffic, r->rank, s->ranks,
				w->geometry.param * (size_t)s->ranks * bytes,
				bytes);
		else if (operation_has_counts(op))
			traffic_part_set_equal(&r->part, s->ranks,
					       w->geometry.param);
	}
}

static size_t next_size(const struct options *o, size_t size, size_t factor,
			size_t element)
{
	if (o->op->id == OPERATION_BARRIER)
		return 0;
	return size_next(size, o->max_bytes, factor, o->step_bytes, element);
}

static size_t first_size(const struct options *o)
{
	return o->op->id == OPERATION_BARRIER ? 0 : o->min_bytes;
}

static void show_row(struct worker *w, const struct combination *c,
		     const struct report_half *halves)
{
	const struct options *o = w->s->o;
	bool barrier = o->op->id == OPERATION_BARRIER;
	const struct report_row row = {
		.size = footprint(w),
		.count = w->geometry.param,
		.type = barrier ? "none" : c->type->name,
		.reduction =
			o->op->reduces ? reduction_name(c->reduction) : "none",
		.root = c->root,
		.out_of_place = halves[0],
		.in_place = halves[1],
	};

	if (w->thread != 0 || !session_reports(w->s))
		return;
	/* This comes first, because somebody who sees the row may end the
	 * program. */
	json_row(o, &row);
	report_row(o, &row);
	if (o->op->id == OPERATION_ALLTOALLV)
		traffic_print(&w->s->traffic, w->s->ranks,
			      row.count * (size_t)w->s->ranks * c->type->bytes,
			      halves[0].seconds);
	if (o->plot)
		plot_row(&row);
}

static void run_size(struct worker *w, const struct combination *c, size_t size)
{
	struct report_half halves[2];

	set_size(w, c, size);
	if (w->thread == 0 && session_reports(w->s))
		report_progress(w->done, w->all, c->type->name, size);
	w->done++;
	measure(w, false, &halves[0]);
	if (w->s->o->op->in_place)
		measure(w, true, &halves[1]);
	else
		halves[1] = (struct report_half){.missing = true};
	show_row(w, c, halves);
}

/* Prepares the calls. -u counts elements, so the buffers start elsewhere for
 * each type. */
static void open_combination(struct worker *w, const struct combination *c)
{
	struct session *s = w->s;
	size_t shift = (size_t)s->o->unalign * c->type->bytes;

	for (int i = 0; i < s->o->devices; i++) {
		struct session_rank *r = &w->ranks[i];
		struct call *call = &w->calls[i];
		uint64_t scalar;

		session_rank_shift(r, shift);
		*call = (struct call){
			.op = s->o->op,
			.type = c->type,
			.reduction = c->reduction,
			.redop = reduction_op(c->reduction),
			.root = c->root,
			.rank = r->rank,
			.ranks = s->ranks,
			.traffic = &s->traffic,
			.part = &r->part,
			.window = r->window,
			.window_base = r->window_base,
		};
		if (!s->o->op->reduces || c->reduction != REDUCTION_MULSUM)
			continue;
		type_store(c->type, &scalar, 0,
			   type_encode(c->type, verify_scalar(r->rank)));
		CHECK_DICOMM(*r->comm,
			     dicomm_redop_create_premulsum(
				     &call->redop, &scalar, c->type->id,
				     DICOMM_SCALAR_HOST_IMMEDIATE, *r->comm));
	}
}

static void close_combination(struct worker *w, const struct combination *c)
{
	if (!w->s->o->op->reduces || c->reduction != REDUCTION_MULSUM)
		return;
	for (int i = 0; i < w->s->o->devices; i++)
		CHECK_DICOMM(*w->ranks[i].comm,
			     dicomm_redop_destroy(w->calls[i].redop,
						  *w->ranks[i].comm));
}

static void run_combination(struct worker *w, const struct combination *c)
{
	const struct options *o = w->s->o;
	size_t element = c->type->bytes;
	size_t size;

	exchange_barrier(&w->s->exchange, w->thread);
	open_combination(w, c);
	size = first_size(o);
	do {
		set_size(w, c, size);
		for (int i = 0; i < o->warmup_iters; i++)
			start(w, false, (size_t)i);
		complete(w);
		size = next_size(o, size, 2, element);
	} while (size > 0);
	for (int cycle = 0;
	     o->cycles == 0 || cycle<o->cycles; cycle += o->cycles> 0) {
		size = first_size(o);
		do {
			run_size(w, c, size);
			size = next_size(o, size, o->step_factor, element);
		} while (size > 0);
	}
	close_combination(w, c);
}

/* Calls fn for all combinations that the options ask for. */
static void each_combination(struct worker *w,
			     void (*fn)(struct worker *,
					const struct combination *))
{
	const struct options *o = w->s->o;
	bool barrier = o->op->id == OPERATION_BARRIER;
	int first = o->op->rooted ? o->root : -1;
	int last = first;

	if (o->op->rooted && o->root < 0) {
		first = 0;
		last = w->s->ranks - 1;
	}
	for (int t = 0; t < types_n; t++) {
		if (barrier ? t > 0 : o->type && o->type != &types[t])
			continue;
		for (int r = 0; r < REDUCTIONS; r++) {
			struct combination c = {.type = &types[t],
						.reduction = (enum reduction)r};

			if (o->op->reduces && !o->all_reductions
				    ? c.reduction != o->reduction
				    : !o->op->reduces && r > 0)
				continue;
			if (!reduction_serves(c.reduction, c.type))
				continue;
			for (c.root = first; c.root <= last; c.root++)
				fn(w, &c);
		}
	}
}

static void count_combination(struct worker *w, const struct combination *c)
{
	const struct options *o = w->s->o;
	size_t size = first_size(o);

	do {
		w->all += (size_t)o->cycles;
		size = next_size(o, size, o->step_factor, c->type->bytes);
	} while (size > 0);
}

/* Returns the count argument for dicomm_comm_explain(). If a matrix gives the
 * counts, returns a count that leads to the same size. */
static size_t count_to_explain(const struct worker *w)
{
	const struct geometry *g = &w->geometry;

	if (w->s->o->op->id == OPERATION_ALLTOALLV)
		return operation_larger(g) / (size_t)w->s->ranks;
	return g->param;
}

static void explain_combination(struct worker *w, const struct combination *c)
{
	const struct options *o = w->s->o;
	size_t size = first_size(o);
	char text[8192];

	do {
		char *line, *rest = text;

		set_size(w, c, size);
		CHECK_DICOMM(w->s->comms[0],
			     dicomm_comm_explain(w->s->comms[0], o->op->name,
						 count_to_explain(w),
						 c->type->id, text,
						 sizeof(text)));
		report_note("%s", "");
		report_note("%s of %zu bytes, %s:", o->op->name, footprint(w),
			    c->type->name);
		while ((line = strsep(&rest, "\n")) != NULL)
			if (*line)
				report_note("  %s", line);
		size = next_size(o, size, o->step_factor, c->type->bytes);
	} while (size > 0);
}

/* Prints the head of the report, which needs all communicators. */
static void report_begin(struct worker *w)
{
	struct session *s = w->s;
	const struct options *o = s->o;

	session_devices(s);
	if (!session_reports(s))
		return;
	report_devices(s->devices, s->all_ranks);
	if (!s->exchange.comm && s->ranks == 1)
		report_note("One rank: no launcher started this process "
			    "(--ranks N starts N)");
	if (getenv("NCCL_TESTS_DEVICE"))
		report_note("NCCL_TESTS_DEVICE is of no effect: --device says "
			    "where ranks are");
	if (o->op->id == OPERATION_BARRIER && o->sizes_given)
		report_note("A barrier has no sizes: one row");
	json_config(o, s->exchange.procs, s->devices, s->all_ranks);
	if (o->explain && o->op->id != OPERATION_SENDRECV && !o->op->one_sided)
		each_combination(w, explain_combination);
	else if (o->explain)
		report_note("%s: point to point, nothing to choose",
			    o->op->name);
	each_combination(w, count_combination);
	report_table_head(o);
}

static void samples_create(struct worker *w)
{
	size_t n = (size_t)w->s->o->iters;
	size_t procs = (size_t)w->s->exchange.procs;

	if (!options_per_iter(w->s->o))
		return;
	for (int half = 0; half < 2; half++) {
		struct samples *s = &w->samples[half];

		s->mine = failure_alloc(n, sizeof(*s->mine));
		s->processes = failure_alloc(n * procs, sizeof(*s->processes));
		s->largest = failure_alloc(n, sizeof(*s->largest));
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	session_thread_open(w->s, w->thread);
	samples_create(w);
	if (w->thread == 0)
		report_begin(w);
	each_combination(w, run_combination);
	session_thread_close(w->s, w->thread);
	return NULL;
}

static void worker_create(struct worker *w, struct session *s, int thread)
{
	w->s = s;
	w->thread = thread;
	w->ranks = &s->mine[thread * s->o->devices];
	w->seed = FIRST_SEED;
	w->calls = failure_alloc((size_t)s->o->devices, sizeof(*w->calls));
	w->pattern = failure_alloc(1, sizeof(*w->pattern));
}

static void worker_destroy(struct worker *w)
{
	for (int half = 0; half < 2; half++) {
		free(w->samples[half].mine);
		free(w->samples[half].processes);
		free(w->samples[half].largest);
	}
	free(w->pattern);
	free(w->calls);
}

static double minimum_bandwidth(void)
{
	const char *text = getenv("NCCL_TESTS_MIN_BW");
	double gbs;
	char *end;

	if (!text)
		return -1;
	gbs = strtod(text, &end);
	/* nccl-tests would take such a value as 0, and accept every run. */
	if (end == text || *end || isnan(gbs))
		failure_end(FAILURE_USAGE, "NCCL_TESTS_MIN_BW %s: no number",
			    text);
	return gbs;
}

void run_all(struct session *s, struct report_end *end)
{
	int n = s->o->threads;
	struct worker *workers = failure_alloc((size_t)n, sizeof(*workers));
	struct exchange *c = &s->exchange;
	long *all = failure_alloc((size_t)c->procs, sizeof(*all));

	*end = (struct report_end){.least_bus_gbs = minimum_bandwidth()};
	for (int t = 0; t < n; t++)
		worker_create(&workers[t], s, t);
	for (int t = 1; t < n; t++)
		if (pthread_create(&workers[t].id, NULL, worker_main,
				   &workers[t]) != 0)
			failure_end(FAILURE_INTERNAL, "cannot start a thread");
	worker_main(&workers[0]);
	for (int t = 1; t < n; t++)
		pthread_join(workers[t].id, NULL);
	if (workers[0].bus_n > 0)
		end->average_bus_gbs =
			workers[0].bus_sum / (double)workers[0].bus_n;
	for (int t = 0; t < n; t++)
		end->failed_checks += workers[t].failed_checks;
	exchange_gather(c, &end->failed_checks, sizeof(*all), all);
	end->failed_checks = 0;
	for (int p = 0; p < c->procs; p++)
		end->failed_checks += all[p];
	for (int t = 0; t < n; t++)
		worker_destroy(&workers[t]);
	free(workers);
	free(all);
}
