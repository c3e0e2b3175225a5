/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who sends how much to whom in alltoallv: shares of a size that depend on the
 * distance between ranks, or a matrix of bytes from a file.
 *
 * NCCL_TESTS_ALLTOALLV_SPREAD         0: even ... 1: proportional to distance
 * NCCL_TESTS_ALLTOALLV_MATRIX_FILE    row i, column j: bytes from i to j
 * NCCL_TESTS_ALLTOALLV_MATRIX_SCALE   a factor on all of them
 * NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY  1: after each row, what each rank moves
 */
#ifndef DICOMM_PERFTEST_OPERATION_TRAFFIC_H
#define DICOMM_PERFTEST_OPERATION_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>

struct traffic {
	double spread, scale;
	bool summary;
	size_t *matrix; /* dim x dim bytes, owned; NULL: by distance */
	int dim;
};

/* Reads the environment and the file. Returns -1, with the reason in error, on
 * failure. */
int traffic_open(struct traffic *t, int ranks, char *error, size_t len);
void traffic_close(struct traffic *t);

/* Returns the bytes from one rank to another if each rank sends `total` bytes;
 * a multiple of 16. A matrix does not depend on the total. */
size_t traffic_bytes(const struct traffic *t, int from, int to, int ranks,
		     size_t total);
/* Computes the most that any rank sends, and receives, in bytes. */
void traffic_most(const struct traffic *t, int ranks, size_t total,
		  size_t *send, size_t *recv);

/* If the summary is on, prints bytes and bandwidth (GB/s) of each rank, as
 * nccl-tests does, for a call that took `seconds`. */
void traffic_print(const struct traffic *t, int ranks, size_t total,
		   double seconds);

/* The arguments of one rank's call in elements; arrays of `ranks` entries. */
struct traffic_part {
	size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
};

int traffic_part_create(struct traffic_part *p, int ranks);
void traffic_part_set(struct traffic_part *p, const struct traffic *t, int rank,
		      int ranks, size_t total, size_t bytes);
/* `count` elements from and to each rank */
void traffic_part_set_equal(struct traffic_part *p, int ranks, size_t count);
void traffic_part_destroy(struct traffic_part *p);

#endif
