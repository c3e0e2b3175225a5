/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times of a redistribution in each way, beside what the plan predicts, and
 * beside a leader that sends the whole tensor and a broadcast by the library:
 *
 *     redistribute LAYOUT M N REPEATS BYTES...
 *
 * Run by M + N processes, found by dicomm_comm_init_env(). Ranks 0 to M - 1
 * hold a float32 tensor, ranks M to M + N - 1 want it. LAYOUT is
 *
 *     copies  each holds it whole, and each wants it whole
 *     gather  each holds some rows, and each wants it whole
 *     cut     each holds some rows, and each wants some columns
 *     sum     each holds a term, and each wants the sum
 *
 * The ways take turns within each repeat, so that whatever else the machine
 * does falls on all of them. A time is that of the slowest rank, from a barrier
 * to its end; rank 0 prints the medians.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dicomm.h"

#define COLUMNS 1024
#define MOST_RANKS 64
#define MOST_REPEATS 101
#define WARM_UP 1

enum { AUTO, DIRECT, SCATTER, LEADER, BROADCAST, WAYS };

static const char *const names[WAYS] = {"auto", "direct", "scatter", "leader",
					"broadcast"};

enum layout { COPIES, GATHER, CUT, SUM, LAYOUTS };

static const char *const layouts[LAYOUTS] = {"copies", "gather", "cut", "sum"};

struct run {
	enum layout layout;
	int m, n, rank, repeats;
	dicomm_comm_t comm;
	dicomm_comm_t part; /* of the ranks that want the tensor, or NULL */
	dicomm_redistribute_t plan[BROADCAST];
	float *source, *target;
	size_t elements;
	double took[WAYS][MOST_REPEATS];
};

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "redistribute: %s: %s: %s\n", what,
		dicomm_get_error_string(result), dicomm_get_last_error(comm));
	exit(1);
}

#define CHECK(call) check(call, #call, r->comm)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What element i of the tensor is; a term of a sum is as much. */
static float value(size_t i)
{
	return (float)(i % 1000);
}

static void describe(const struct run *r, dicomm_tensor_t *t,
		     dicomm_box_t *source, dicomm_box_t *target)
{
	static int ranks[MOST_RANKS];
	dicomm_mesh_t from = {.dims = 1, .extent = {r->m}, .ranks = ranks};
	dicomm_mesh_t to = {.dims = 1, .extent = {r->n}, .ranks = ranks + r->m};

	for (int i = 0; i < r->m + r->n; i++)
		ranks[i] = i;
	if (r->layout == GATHER || r->layout == CUT)
		from.placements[0].kind = DICOMM_SHARD;
	if (r->layout == SUM)
		from.placements[0].kind = DICOMM_PARTIAL;
	if (r->layout == CUT) {
		to.placements[0].kind = DICOMM_SHARD;
		to.placements[0].axis = 1;
	}
	t->type = DICOMM_FLOAT32;
	t->axes = 2;
	t->shape[0] = (int64_t)(r->elements / COLUMNS);
	t->shape[1] = COLUMNS;
	t->terms = r->layout == SUM ? r->m : 1;
	CHECK(dicomm_mesh_boxes(&from, 2, t->shape, 0, source));
	CHECK(dicomm_mesh_boxes(&to, 2, t->shape, 0, target));
	t->source = source;
	t->target = target;
	t->sources = (size_t)r->m;
	t->targets = (size_t)r->n;
}

static void fill(struct run *r, const dicomm_box_t *box)
{
	size_t k = 0;

	for (int64_t x = box->lo[0]; x < box->hi[0]; x++)
		for (int64_t y = box->lo[1]; y < box->hi[1]; y++)
			r->source[k++] = value((size_t)(x * COLUMNS + y));
}

static void verify(const struct run *r, const dicomm_box_t *box,
		   const char *way)
{
	float times = r->layout == SUM ? (float)r->m : 1;
	size_t k = 0;

	for (int64_t x = box->lo[0]; x < box->hi[0]; x++)
		for (int64_t y = box->lo[1]; y < box->hi[1]; y++, k++)
			if (r->target[k] !=
			    times * value((size_t)(x * COLUMNS + y))) {
				fprintf(stderr,
					"redistribute: %s: rank %d has %g at "
					"%d, %d\n",
					way, r->rank, (double)r->target[k],
					(int)x, (int)y);
				exit(1);
			}
}

static void leader_and_broadcast(const struct run *r)
{
	if (r->rank == 0)
		CHECK(dicomm_send(r->source, r->elements, DICOMM_FLOAT32, r->m,
				  r->comm, NULL));
	if (r->rank == r->m)
		CHECK(dicomm_recv(r->target, r->elements, DICOMM_FLOAT32, 0,
				  r->comm, NULL));
	if (r->part)
		CHECK(dicomm_broadcast(r->target, r->target, r->elements,
				       DICOMM_FLOAT32, 0, r->part, NULL));
}

static double run_once(const struct run *r, int way)
{
	const void *source = r->source;
	void *target = r->target;
	double begin, took, slowest;

	CHECK(dicomm_barrier(r->comm, NULL));
	begin = now();
	if (way == BROADCAST)
		leader_and_broadcast(r);
	else
		CHECK(dicomm_redistribute_run(r->plan[way], &source, &target,
					      NULL));
	took = now() - begin;
	CHECK(dicomm_allreduce(&took, &slowest, 1, DICOMM_FLOAT64, DICOMM_MAX,
			       r->comm, NULL));
	return slowest;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(struct run *r, const dicomm_redistribute_info_t *info)
{
	double best;

	for (int w = 0; w < WAYS; w++)
		qsort(r->took[w], (size_t)r->repeats, sizeof(double), by_value);
	best = r->took[AUTO][r->repeats / 2];
	for (int w = 0; w < WAYS; w++) {
		double took = r->took[w][r->repeats / 2];
		double predicted = w == BROADCAST ? (double)NAN
				   : w == AUTO    ? info[AUTO].seconds
						  : info[AUTO].seconds_of[w];

		if (w == BROADCAST && r->layout != COPIES)
			continue;
		printf("%10zu %-9s %10.3f %10.3f %6.2f %6.2f %12zu%s%s\n",
		       r->elements * sizeof(float), names[w], predicted * 1e3,
		       took * 1e3, predicted / took, took / best,
		       w == BROADCAST ? (size_t)0
				      : (size_t)info[w].bytes_between_hosts,
		       w == AUTO ? " " : "",
		       w == AUTO ? names[info[AUTO].way] : "");
	}
	fflush(stdout);
}

static void measure(struct run *r, size_t bytes)
{
	dicomm_redistribute_info_t info[BROADCAST];
	dicomm_box_t source[MOST_RANKS], target[MOST_RANKS];
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;

	r->elements = bytes / sizeof(float) / COLUMNS * COLUMNS;
	describe(r, &t, source, target);
	r->source = calloc(r->elements, sizeof(float));
	r->target = calloc(r->elements, sizeof(float));
	if (!r->source || !r->target) {
		fprintf(stderr, "redistribute: no memory for %zu bytes\n",
			bytes);
		exit(1);
	}
	if (r->rank < r->m)
		fill(r, &source[r->rank]);
	for (int w = 0; w < BROADCAST; w++) {
		dicomm_redistribute_config_t config =
			DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;

		config.way = (dicomm_way_t)w;
		CHECK(dicomm_redistribute_plan(&r->plan[w], &t, 1, &config,
					       r->comm));
		info[w].size = sizeof(info[w]);
		CHECK(dicomm_redistribute_info(r->plan[w], &info[w]));
	}
	for (int k = -WARM_UP; k < r->repeats; k++)
		for (int w = 0; w < WAYS; w++) {
			double took;

			if (w == BROADCAST && r->layout != COPIES)
				continue;
			if (k < 0)
				memset(r->target, 0xff,
				       r->elements * sizeof(float));
			took = run_once(r, w);
			if (k < 0 && r->rank >= r->m)
				verify(r, &target[r->rank - r->m], names[w]);
			if (k >= 0)
				r->took[w][k] = took;
		}
	if (r->rank == 0)
		print(r, info);
	for (int w = 0; w < BROADCAST; w++)
		CHECK(dicomm_redistribute_free(r->plan[w]));
	free(r->source);
	free(r->target);
}

static int usage(void)
{
	fprintf(stderr, "usage: redistribute copies|gather|cut|sum M N REPEATS "
			"BYTES...\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct run *r = calloc(1, sizeof(*r));
	int ranks;

	if (argc < 6 || !r)
		return usage();
	while (r->layout < LAYOUTS && strcmp(argv[1], layouts[r->layout]) != 0)
		r->layout++;
	r->m = atoi(argv[2]);
	r->n = atoi(argv[3]);
	r->repeats = atoi(argv[4]);
	if (r->layout == LAYOUTS || r->m < 1 || r->n < 1 ||
	    r->m + r->n > MOST_RANKS || r->repeats < 1 ||
	    r->repeats > MOST_REPEATS)
		return usage();
	CHECK(dicomm_comm_init_env(&r->comm));
	CHECK(dicomm_comm_user_rank(r->comm, &r->rank));
	CHECK(dicomm_comm_count(r->comm, &ranks));
	if (ranks != r->m + r->n) {
		fprintf(stderr, "redistribute: %d ranks, not %d + %d\n", ranks,
			r->m, r->n);
		return 2;
	}
	CHECK(dicomm_comm_split(r->comm,
				r->rank < r->m ? DICOMM_SPLIT_NOCOLOR : 0,
				r->rank, &r->part, NULL));
	if (r->rank == 0)
		printf("# %s, %d to %d ranks, medians of %d\n"
		       "#    bytes way       predicted   measured  pred/    "
		       " /auto between hosts\n"
		       "#                           ms         ms   meas\n",
		       layouts[r->layout], r->m, r->n, r->repeats);
	for (int i = 5; i < argc; i++) {
		long bytes = atol(argv[i]);

		if (bytes < (long)(COLUMNS * sizeof(float)))
			return usage();
		measure(r, (size_t)bytes);
	}
	if (r->part)
		CHECK(dicomm_comm_destroy(r->part));
	CHECK(dicomm_comm_destroy(r->comm));
	free(r);
	return 0;
}
