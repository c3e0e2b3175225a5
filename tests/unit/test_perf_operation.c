/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts, offsets and bandwidth of operations; shares of alltoallv. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perftest/operation/operation.h"
#include "tests/support/runner.h"

static const struct operation *op(const char *name)
{
	const struct operation *o = operation_find(name);

	ck_assert_ptr_nonnull(o);
	return o;
}

START_TEST(operations_have_the_names_of_their_programs)
{
	ck_assert_str_eq(op("all_reduce_perf")->name, "allreduce");
	ck_assert_str_eq(op("/usr/bin/all_gather_perf")->name, "allgather");
	ck_assert_str_eq(op("./lt-reduce_scatter_perf")->name,
			 "reduce_scatter");
	ck_assert_str_eq(op("all_reduce")->name, "allreduce");
	ck_assert_str_eq(op("alltoallv")->name, "alltoallv");
	ck_assert_ptr_null(operation_find("dicomm-perf"));
	ck_assert_ptr_null(operation_find("all"));
	ck_assert_ptr_null(operation_find(""));
}
END_TEST

static void check_geometry(const char *name, size_t send, size_t recv,
			   size_t param, size_t send_shift, size_t recv_shift)
{
	/* 103 floats over 3 ranks: 34 each, of which 32 are whole 16 bytes */
	struct geometry g = operation_geometry(op(name), 103, 4, 3, NULL);

	ck_assert_uint_eq(g.send, send);
	ck_assert_uint_eq(g.recv, recv);
	ck_assert_uint_eq(g.param, param);
	ck_assert_uint_eq(g.send_shift, send_shift);
	ck_assert_uint_eq(g.recv_shift, recv_shift);
}

START_TEST(scattered_operations_cut_shares_to_16_bytes)
{
	check_geometry("allreduce", 103, 103, 103, 0, 0);
	check_geometry("broadcast", 103, 103, 103, 0, 0);
	check_geometry("reduce", 103, 103, 103, 0, 0);
	check_geometry("sendrecv", 103, 103, 103, 0, 0);
	check_geometry("put", 103, 103, 103, 0, 0);
	check_geometry("get", 103, 103, 103, 0, 0);
	check_geometry("allgather", 32, 96, 32, 32, 0);
	check_geometry("gather", 32, 96, 32, 32, 0);
	check_geometry("reduce_scatter", 96, 32, 32, 0, 32);
	check_geometry("scatter", 96, 32, 32, 0, 32);
	check_geometry("alltoall", 96, 96, 32, 0, 0);
	check_geometry("barrier", 0, 0, 0, 0, 0);
}
END_TEST

/* 1000 MB in 1 s over 4 ranks: 1 GB/s by the algorithm. */
static void check_bandwidth(const char *name, double bus)
{
	const struct geometry g = {.send = 1000000000, .recv = 1000000000};
	double algorithm_gbs, bus_gbs;

	operation_bandwidth(op(name), &g, 1, 4, 1.0, &algorithm_gbs, &bus_gbs);
	ck_assert_double_eq_tol(algorithm_gbs, 1, 1e-12);
	ck_assert_double_eq_tol(bus_gbs, bus, 1e-12);
}

START_TEST(bus_bandwidth_follows_the_formulas)
{
	check_bandwidth("allreduce", 1.5);
	check_bandwidth("allgather", 0.75);
	check_bandwidth("reduce_scatter", 0.75);
	check_bandwidth("alltoall", 0.75);
	check_bandwidth("alltoallv", 0.75);
	check_bandwidth("gather", 0.75);
	check_bandwidth("scatter", 0.75);
	check_bandwidth("broadcast", 1);
	check_bandwidth("reduce", 1);
	check_bandwidth("sendrecv", 1);
	check_bandwidth("put", 1);
	check_bandwidth("get", 1);
}
END_TEST

START_TEST(bandwidth_counts_the_larger_buffer)
{
	const struct geometry g = {.send = 250, .recv = 1000};
	double algorithm_gbs, bus_gbs;

	operation_bandwidth(op("allgather"), &g, 4, 4, 1e-6, &algorithm_gbs,
			    &bus_gbs);
	ck_assert_double_eq_tol(algorithm_gbs, 4, 1e-12);
	ck_assert_double_eq_tol(bus_gbs, 3, 1e-12);
}
END_TEST

static void check_traffic_adds_up(const struct traffic *t, int ranks,
				  size_t total)
{
	size_t most_send, most_recv;

	traffic_most(t, ranks, total, &most_send, &most_recv);
	ck_assert_uint_eq(most_send, most_recv);
	ck_assert_uint_le(most_send, total);
	for (int i = 0; i < ranks; i++) {
		size_t out = 0, in = 0;

		for (int j = 0; j < ranks; j++) {
			size_t bytes = traffic_bytes(t, i, j, ranks, total);

			ck_assert_uint_eq(bytes % 16, 0);
			out += bytes;
			in += traffic_bytes(t, j, i, ranks, total);
		}
		ck_assert_uint_eq(out, most_send);
		ck_assert_uint_eq(in, most_recv);
	}
}

START_TEST(traffic_by_distance_is_balanced)
{
	struct traffic t = {.spread = 1};

	ck_assert_uint_eq(traffic_bytes(&t, 0, 0, 4, 9600), 0);
	ck_assert_uint_eq(traffic_bytes(&t, 0, 1, 4, 9600), 1600);
	ck_assert_uint_eq(traffic_bytes(&t, 3, 1, 4, 9600), 3200);
	ck_assert_uint_eq(traffic_bytes(&t, 2, 1, 4, 9600), 4800);
	t.spread = 0;
	ck_assert_uint_eq(traffic_bytes(&t, 2, 1, 4, 9600), 2400);
	ck_assert_uint_eq(traffic_bytes(&t, 0, 0, 1, 9600), 9600);
	for (int ranks = 1; ranks <= 17; ranks++)
		for (int k = 0; k <= 4; k++) {
			t.spread = k / 4.0;
			check_traffic_adds_up(&t, ranks, 100000);
		}
}
END_TEST

/* Open a traffic whose matrix file holds this text. */
static int open_matrix(struct traffic *t, const char *text, int ranks,
		       char *error, size_t len)
{
	char path[] = "/tmp/test_perf_matrix.XXXXXX";
	int fd = mkstemp(path);
	int status;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	setenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", path, 1);
	status = traffic_open(t, ranks, error, len);
	unlink(path);
	return status;
}

START_TEST(a_matrix_file_gives_the_bytes)
{
	struct traffic t;
	struct traffic_part part;
	char error[256];
	size_t send, recv;

	setenv("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", "2", 1);
	ck_assert_int_eq(open_matrix(&t, "8 100 0\n\n16 0 33 \n0\t8 64\n", 2,
				     error, sizeof(error)),
			 0);
	ck_assert_uint_eq(traffic_bytes(&t, 0, 1, 2, 0), 192);
	ck_assert_uint_eq(traffic_bytes(&t, 1, 2, 3, 0), 64);
	traffic_most(&t, 3, 0, &send, &recv);
	ck_assert_uint_eq(send, 16 + 192);
	ck_assert_uint_eq(recv, 192 + 16);
	ck_assert_int_eq(traffic_part_create(&part, 3), 0);
	traffic_part_set(&part, &t, 2, 3, 0, 4);
	ck_assert_uint_eq(part.send_counts[1], 4);
	ck_assert_uint_eq(part.send_displs[2], 4);
	ck_assert_uint_eq(part.recv_counts[1], 16);
	ck_assert_uint_eq(part.recv_counts[2], 32);
	ck_assert_uint_eq(part.recv_displs[2], 16);
	traffic_part_destroy(&part);
	traffic_close(&t);
}
END_TEST

START_TEST(a_wrong_matrix_file_is_refused)
{
	static const char *const cases[] = {
		"",
		"1 2\n",
		"1 2\n3\n",
		"1 x\n2 3\n",
		"1 -2\n3 4\n",
		"1 2\n3 4\n5 6\n",
		"1\n",
		/* A few of these are more than a size can be. */
		"4611686018427387392 1\n1 1\n",
	};
	struct traffic t;
	char error[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		error[0] = '\0';
		ck_assert_int_eq(
			open_matrix(&t, cases[i], 2, error, sizeof(error)), -1);
		ck_assert_ptr_nonnull(strstr(error, "matrix"));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_operation");
	TCase *tests = tcase_create("operation");

	tcase_add_test(tests, operations_have_the_names_of_their_programs);
	tcase_add_test(tests, scattered_operations_cut_shares_to_16_bytes);
	tcase_add_test(tests, bus_bandwidth_follows_the_formulas);
	tcase_add_test(tests, bandwidth_counts_the_larger_buffer);
	tcase_add_test(tests, traffic_by_distance_is_balanced);
	tcase_add_test(tests, a_matrix_file_gives_the_bytes);
	tcase_add_test(tests, a_wrong_matrix_file_is_refused);
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
