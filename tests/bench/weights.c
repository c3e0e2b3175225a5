/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Weights from a trainer of 4 ranks to an engine of 2, in one plan, beside what
 * is done without: rank 0 gathers each tensor, broadcasts it to the engine, and
 * each rank there keeps its part.
 *
 *     weights TENSORS BYTES REPEATS
 *
 * Run by 6 processes, found by dicomm_comm_init_env(). BYTES is that of all
 * tensors. Every other one is sharded along axis 1, the rest along axis 0. Both
 * ways take turns; times are medians of the slowest rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dicomm.h"

#define TRAINERS 4
#define ENGINE 2
#define COLUMNS 1024
#define MOST_REPEATS 101
#define ELEM 2 /* bytes */

struct run {
	dicomm_comm_t comm, trainers, spread; /* spread: rank 0, the engine */
	int rank;
	size_t n, part; /* tensors; bytes of a tensor on one trainer */
	int64_t rows;
	dicomm_tensor_t *tensors;
	dicomm_box_t boxes[2][TRAINERS + ENGINE]; /* by axis */
	dicomm_redistribute_t plan;
	uint8_t **source, **target;
	uint8_t *whole;
};

static void check(dicomm_result_t result, const char *what, dicomm_comm_t comm)
{
	if (result == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "weights: %s: %s: %s\n", what,
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

static uint16_t value(size_t tensor, int64_t row, int64_t column)
{
	return (uint16_t)((int64_t)tensor * 31 + row * COLUMNS + column);
}

static void describe(struct run *r)
{
	static const int ranks[] = {0, 1, 2, 3, 4, 5};

	for (int axis = 0; axis < 2; axis++) {
		dicomm_mesh_t mesh = {
			.dims = 1, .extent = {TRAINERS}, .ranks = ranks};
		int64_t shape[DICOMM_AXES] = {r->rows, COLUMNS};

		mesh.placements[0].kind = DICOMM_SHARD;
		mesh.placements[0].axis = axis;
		CHECK(dicomm_mesh_boxes(&mesh, 2, shape, 0, r->boxes[axis]));
		mesh.extent[0] = ENGINE;
		mesh.ranks = ranks + TRAINERS;
		CHECK(dicomm_mesh_boxes(&mesh, 2, shape, 0,
					r->boxes[axis] + TRAINERS));
	}
	for (size_t i = 0; i < r->n; i++) {
		dicomm_tensor_t *t = &r->tensors[i];

		*t = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
		t->type = DICOMM_BFLOAT16;
		t->axes = 2;
		t->shape[0] = r->rows;
		t->shape[1] = COLUMNS;
		t->source = r->boxes[i % 2];
		t->target = r->boxes[i % 2] + TRAINERS;
		t->sources = TRAINERS;
		t->targets = ENGINE;
	}
}

/* Writes what the box of this rank has, or with `check` compares it. */
static void visit(const struct run *r, size_t i, uint8_t *at, int check)
{
	const dicomm_box_t *box = &r->boxes[i % 2][r->rank];
	uint16_t *x = (uint16_t *)(void *)at;

	for (int64_t a = box->lo[0]; a < box->hi[0]; a++)
		for (int64_t b = box->lo[1]; b < box->hi[1]; b++, x++)
			if (!check) {
				*x = value(i, a, b);
			} else if (*x != value(i, a, b)) {
				fprintf(stderr,
					"weights: rank %d: tensor %zu "
					"is wrong\n",
					r->rank, i);
				exit(1);
			}
}

static void make(struct run *r)
{
	r->tensors = calloc(r->n, sizeof(*r->tensors));
	r->source = calloc(r->n, sizeof(*r->source));
	r->target = calloc(r->n, sizeof(*r->target));
	r->whole = malloc(TRAINERS * r->part);
	if (!r->tensors || !r->source || !r->target || !r->whole)
		exit(1);
	describe(r);
	for (size_t i = 0; i < r->n; i++) {
		if (r->rank < TRAINERS) {
			r->source[i] = malloc(r->part);
			if (!r->source[i])
				exit(1);
			visit(r, i, r->source[i], 0);
			continue;
		}
		r->target[i] = calloc(TRAINERS / ENGINE, r->part);
		if (!r->target[i])
			exit(1);
	}
	CHECK(dicomm_redistribute_plan(&r->plan, r->tensors, r->n, NULL,
				       r->comm));
}

/* A rank of the engine keeps two of the four blocks of a tensor. */
static void keep(const struct run *r, size_t i)
{
	size_t half = (size_t)(r->rank - TRAINERS), row = COLUMNS / 4 * ELEM;
	const uint8_t *first = r->whole + half * 2 * r->part;

	if (i % 2 == 0) {
		memcpy(r->target[i], first, 2 * r->part);
		return;
	}
	for (size_t a = 0; a < (size_t)r->rows; a++) {
		memcpy(r->target[i] + 2 * a * row, first + a * row, row);
		memcpy(r->target[i] + (2 * a + 1) * row,
		       first + r->part + a * row, row);
	}
}

static void gather_and_broadcast(const struct run *r)
{
	for (size_t i = 0; i < r->n; i++) {
		if (r->trainers)
			CHECK(dicomm_gather(r->source[i], r->whole, r->part,
					    DICOMM_UINT8, 0, r->trainers,
					    NULL));
		if (r->spread)
			CHECK(dicomm_broadcast(r->whole, r->whole,
					       TRAINERS * r->part, DICOMM_UINT8,
					       0, r->spread, NULL));
		if (r->rank >= TRAINERS)
			keep(r, i);
	}
}

static double run_once(struct run *r, int planned)
{
	double begin, took, slowest;

	for (size_t i = 0; i < r->n && r->rank >= TRAINERS; i++)
		r->target[i][0] ^= 1;
	CHECK(dicomm_barrier(r->comm, NULL));
	begin = now();
	if (planned)
		CHECK(dicomm_redistribute_run(r->plan,
					      (const void *const *)r->source,
					      (void *const *)r->target, NULL));
	else
		gather_and_broadcast(r);
	took = now() - begin;
	CHECK(dicomm_allreduce(&took, &slowest, 1, DICOMM_FLOAT64, DICOMM_MAX,
			       r->comm, NULL));
	for (size_t i = 0; i < r->n && r->rank >= TRAINERS; i++)
		visit(r, i, r->target[i], 1);
	return slowest;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(struct run *r, int repeats)
{
	double took[2][MOST_REPEATS];

	for (int k = -1; k < repeats; k++)
		for (int planned = 0; planned < 2; planned++) {
			double s = run_once(r, planned);

			if (k >= 0)
				took[planned][k] = s;
		}
	for (int i = 0; i < 2; i++)
		qsort(took[i], (size_t)repeats, sizeof(double), by_value);
	if (r->rank == 0)
		printf("%zu tensors, %zu bytes: one plan %.1f ms, gather and "
		       "broadcast %.1f ms, %.2f times as long\n",
		       r->n, r->n * TRAINERS * r->part,
		       took[1][repeats / 2] * 1e3, took[0][repeats / 2] * 1e3,
		       took[0][repeats / 2] / took[1][repeats / 2]);
}

int main(int argc, char **argv)
{
	struct run *r = calloc(1, sizeof(*r));
	long n = argc == 4 ? atol(argv[1]) : 0;
	long bytes = argc == 4 ? atol(argv[2]) : 0;
	int repeats = argc == 4 ? atoi(argv[3]) : 0, ranks;

	if (!r || n < 1 || repeats < 1 || repeats > MOST_REPEATS ||
	    bytes / n < 4L * COLUMNS * ELEM) {
		fprintf(stderr, "usage: weights TENSORS BYTES REPEATS\n");
		return 2;
	}
	r->n = (size_t)n;
	r->rows = bytes / n / (COLUMNS * ELEM) / 4 * 4;
	r->part = (size_t)r->rows * COLUMNS * ELEM / TRAINERS;
	CHECK(dicomm_comm_init_env(&r->comm));
	CHECK(dicomm_comm_user_rank(r->comm, &r->rank));
	CHECK(dicomm_comm_count(r->comm, &ranks));
	if (ranks != TRAINERS + ENGINE) {
		fprintf(stderr, "weights: %d ranks, not 6\n", ranks);
		return 2;
	}
	CHECK(dicomm_comm_split(r->comm,
				r->rank < TRAINERS ? 0 : DICOMM_SPLIT_NOCOLOR,
				r->rank, &r->trainers, NULL));
	CHECK(dicomm_comm_split(
		r->comm,
		r->rank == 0 || r->rank >= TRAINERS ? 0 : DICOMM_SPLIT_NOCOLOR,
		r->rank, &r->spread, NULL));
	make(r);
	measure(r, repeats);
	CHECK(dicomm_redistribute_free(r->plan));
	if (r->trainers)
		CHECK(dicomm_comm_destroy(r->trainers));
	if (r->spread)
		CHECK(dicomm_comm_destroy(r->spread));
	CHECK(dicomm_comm_destroy(r->comm));
	return 0;
}
