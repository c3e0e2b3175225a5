/* SPDX-License-Identifier: BSD-3-Clause */
/* The counts of alltoallv, from a formula or a file. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/operation/traffic.h"

#define ALIGN ((size_t)16)
/* More ranks than anybody starts: a larger matrix is a mistake. */
#define MATRIX_MAX 16384
/* The sum of a row, or of a column, must fit into a size_t. */
#define BYTES_MAX (0x1p62 / MATRIX_MAX)

/* Reads a number in [low, high] from the environment. */
static int environment(const char *name, double low, double high, double *value,
		       char *error, size_t len)
{
	const char *text = getenv(name);
	char *end;
	double v;

	if (!text)
		return 0;
	errno = 0;
	v = strtod(text, &end);
	if (end == text || *end || errno || !(v >= low && v <= high)) {
		snprintf(error, len, "%s is %s: not a number from %g to %g",
			 name, text, low, high);
		return -1;
	}
	*value = v;
	return 0;
}

/* Reads the numbers of one line into row. Returns how many, or -1. */
static int matrix_row(char *line, double scale, size_t **row, int *room)
{
	int n = 0;
	char *end;

	for (char *p = strtok_r(line, " \t\r\n", &end); p;
	     p = strtok_r(NULL, " \t\r\n", &end)) {
		char *stop;
		double v = strtod(p, &stop) * scale;

		if (*stop || !(v >= 0 && v < BYTES_MAX) || n == MATRIX_MAX)
			return -1;
		if (n == *room) {
			size_t *more = realloc(
				*row, sizeof(**row) * (size_t)(2 * n + 8));

			if (!more)
				return -1;
			*row = more;
			*room = 2 * n + 8;
		}
		(*row)[n++] = (size_t)v & ~(ALIGN - 1);
	}
	return n;
}

static int matrix_read(struct traffic *t, FILE *file, double scale)
{
	char *line = NULL;
	size_t *row = NULL;
	size_t len = 0;
	int room = 0;
	int rows = 0;
	int status = -1;

	while (getline(&line, &len, file) > 0) {
		int n = matrix_row(line, scale, &row, &room);

		if (n == 0)
			continue;
		if (rows == 0 && n > 0) {
			t->dim = n;
			t->matrix = calloc((size_t)n * (size_t)n,
					   sizeof(*t->matrix));
		}
		if (n != t->dim || rows == t->dim || !t->matrix)
			goto free_line;
		memcpy(t->matrix + (size_t)rows * (size_t)n, row,
		       (size_t)n * sizeof(*row));
		rows++;
	}
	if (rows > 0 && rows == t->dim)
		status = 0;
free_line:
	free(row);
	free(line);
	return status;
}

static int matrix_open(struct traffic *t, const char *path, double scale,
		       int ranks, char *error, size_t len)
{
	FILE *file = fopen(path, "r");

	if (!file) {
		snprintf(error, len, "alltoallv matrix %s: %s", path,
			 strerror(errno));
		return -1;
	}
	if (matrix_read(t, file, scale) < 0) {
		snprintf(
			error, len,
			"alltoallv matrix %s: not a square of numbers of bytes",
			path);
		fclose(file);
		return -1;
	}
	fclose(file);
	if (t->dim < ranks) {
		snprintf(error, len,
			 "alltoallv matrix %s: %d rows for %d ranks", path,
			 t->dim, ranks);
		return -1;
	}
	return 0;
}

int traffic_open(struct traffic *t, int ranks, char *error, size_t len)
{
	const char *path = getenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE");
	double summary = 0;

	*t = (struct traffic){.spread = 1, .scale = 1};
	if (environment("NCCL_TESTS_ALLTOALLV_SPREAD", 0, 1, &t->spread, error,
			len) < 0 ||
	    environment("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 0, 1e18, &t->scale,
			error, len) < 0 ||
	    environment("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", 0, 1, &summary,
			error, len) < 0)
		return -1;
	t->summary = summary > 0;
	if (!path)
		return 0;
	if (matrix_open(t, path, t->scale, ranks, error, len) < 0) {
		traffic_close(t);
		return -1;
	}
	return 0;
}

void traffic_close(struct traffic *t)
{
	free(t->matrix);
	t->matrix = NULL;
}

size_t traffic_bytes(const struct traffic *t, int from, int to, int ranks,
		     size_t total)
{
	double n = ranks;
	double distance = (to - from + ranks) % ranks;
	double even, far;

	if (t->matrix)
		return t->matrix[(size_t)from * (size_t)t->dim + (size_t)to];
	if (ranks == 1)
		return total & ~(ALIGN - 1);
	even = (double)total / n;
	far = distance * (double)total / (n * (n - 1) / 2);
	return (size_t)((1 - t->spread) * even + t->spread * far) &
	       ~(ALIGN - 1);
}

/* Computes everything that one rank sends, and receives. */
static void sum_of(const struct traffic *t, int rank, int ranks, size_t total,
		   size_t *send, size_t *recv)
{
	*send = *recv = 0;
	for (int j = 0; j < ranks; j++) {
		*send += traffic_bytes(t, rank, j, ranks, total);
		*recv += traffic_bytes(t, j, rank, ranks, total);
	}
}

void traffic_most(const struct traffic *t, int ranks, size_t total,
		  size_t *send, size_t *recv)
{
	/* By distance, all ranks send and receive equally much. */
	int last = t->matrix ? ranks : 1;

	*send = *recv = 0;
	for (int i = 0; i < last; i++) {
		size_t out, in;

		sum_of(t, i, ranks, total, &out, &in);
		*send = out > *send ? out : *send;
		*recv = in > *recv ? in : *recv;
	}
}

void traffic_print(const struct traffic *t, int ranks, size_t total,
		   double seconds)
{
	if (!t->summary)
		return;
	printf("# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: ");
	if (t->matrix)
		printf("mode=matrix nranks=%d matrix_dim=%d scale=%.3f", ranks,
		       t->dim, t->scale);
	else
		printf("mode=generated nranks=%d total_bytes=%zu spread=%.3f",
		       ranks, total, t->spread);
	printf(" time_usec=%.2f\n", seconds * 1e6);
	for (int i = 0; i < ranks; i++) {
		size_t send, recv;
		double rate;

		sum_of(t, i, ranks, total, &send, &recv);
		rate = (double)(send > recv ? send : recv) / seconds / 1e9;
		printf("#   rank=%d send_bytes=%zu recv_bytes=%zu alg_bw=%.2f "
		       "bus_bw=%.2f\n",
		       i, send, recv, rate, rate * (ranks - 1) / ranks);
	}
}

int traffic_part_create(struct traffic_part *p, int ranks)
{
	size_t n = (size_t)ranks;
	size_t *all = calloc(4 * n, sizeof(*all));

	if (!all)
		return -1;
	*p = (struct traffic_part){all, all + n, all + 2 * n, all + 3 * n};
	return 0;
}

void traffic_part_set(struct traffic_part *p, const struct traffic *t, int rank,
		      int ranks, size_t total, size_t bytes)
{
	size_t out = 0, in = 0;

	for (int j = 0; j < ranks; j++) {
		p->send_counts[j] =
			traffic_bytes(t, rank, j, ranks, total) / bytes;
		p->recv_counts[j] =
			traffic_bytes(t, j, rank, ranks, total) / bytes;
		p->send_displs[j] = out;
		p->recv_displs[j] = in;
		out += p->send_counts[j];
		in += p->recv_counts[j];
	}
}

void traffic_part_set_equal(struct traffic_part *p, int ranks, size_t count)
{
	for (int j = 0; j < ranks; j++) {
		p->send_counts[j] = p->recv_counts[j] = count;
		p->send_displs[j] = p->recv_displs[j] = (size_t)j * count;
	}
}

void traffic_part_destroy(struct traffic_part *p)
{
	free(p->send_counts);
	*p = (struct traffic_part){NULL, NULL, NULL, NULL};
}
