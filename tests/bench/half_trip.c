/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Half a round trip between two ranks of this machine, by dicomm_send() and
 * dicomm_recv(): what is typical (the median) and the mean, in microseconds, as
 * ib_send_lat tells them.
 *
 * With "put", then the same by dicomm_put_signal() and dicomm_wait_signal(),
 * and how many times as fast that is. Trips of both kinds alternate, so that
 * whatever else the machine does concerns both.
 *
 * half_trip BYTES ITERATIONS [put]
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dicomm.h"

#define WARM_UP 16

/* Of both processes. */
struct shared {
	_Atomic bool ready; /* the id */
	dicomm_unique_id_t id;
};

static dicomm_comm_t comm;
static dicomm_window_t window;

static void must(dicomm_result_t status)
{
	if (status == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "half_trip: %s\n", dicomm_get_last_error(comm));
	_exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double trip_us(int rank, char *buffer, size_t bytes)
{
	double begin = now_us();

	if (rank == 0)
		must(dicomm_send(buffer, bytes, DICOMM_INT8, 1, comm, NULL));
	must(dicomm_recv(buffer, bytes, DICOMM_INT8, !rank, comm, NULL));
	if (rank == 1)
		must(dicomm_send(buffer, bytes, DICOMM_INT8, 0, comm, NULL));
	return now_us() - begin;
}

static double put_trip_us(int rank, const char *buffer, size_t bytes)
{
	const dicomm_wait_signal_desc_t signal = {.count = 1, .peer = !rank};
	double begin = now_us();

	if (rank == 0)
		must(dicomm_put_signal(buffer, bytes, DICOMM_INT8, 1, window, 0,
				       0, 0, 0, comm, NULL));
	must(dicomm_wait_signal(1, &signal, comm, NULL));
	if (rank == 1)
		must(dicomm_put_signal(buffer, bytes, DICOMM_INT8, 0, window, 0,
				       0, 0, 0, comm, NULL));
	return now_us() - begin;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median. */
static double print(double *took_us, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += took_us[i];
	qsort(took_us, (size_t)n, sizeof(*took_us), by_value);
	printf("%.2f %.2f\n", took_us[n / 2] / 2, sum / n / 2);
	return took_us[n / 2];
}

static void run(int rank, char *buffer, size_t bytes, int n, bool put)
{
	double *sends = calloc(2 * (size_t)n, sizeof(*sends)), *puts, median;

	if (!sends)
		_exit(1);
	puts = sends + n;
	for (int i = -WARM_UP; i < n; i++) {
		double send = trip_us(rank, buffer, bytes);
		double other = put ? put_trip_us(rank, buffer, bytes) : 0;

		if (i < 0)
			continue;
		sends[i] = send;
		puts[i] = other;
	}
	if (rank == 0) {
		median = print(sends, n);
		if (put)
			printf("%.2f\n", median / print(puts, n));
	}
	free(sends);
}

static void be_rank(int rank, struct shared *s, size_t bytes, int n, bool put)
{
	char *buffer = calloc(1, bytes);

	if (rank == 0) {
		must(dicomm_get_unique_id(&s->id));
		atomic_store(&s->ready, true);
	}
	while (!atomic_load(&s->ready))
		usleep(1000);
	must(dicomm_comm_init_rank(&comm, 2, s->id, rank));
	if (!buffer)
		_exit(1);
	if (put)
		must(dicomm_comm_window_register(comm, buffer, bytes, &window,
						 DICOMM_WINDOW_DEFAULT));
	run(rank, buffer, bytes, n, put);
	if (put)
		must(dicomm_comm_window_deregister(comm, window));
	must(dicomm_comm_destroy(comm));
	free(buffer);
}

int main(int argc, char **argv)
{
	bool put = argc == 4 && !strcmp(argv[3], "put");
	long bytes = argc == 3 || put ? atol(argv[1]) : 0;
	int n = argc == 3 || put ? atoi(argv[2]) : 0, status;
	pid_t other;
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (bytes < 1 || n < 1 || s == MAP_FAILED) {
		fprintf(stderr, "usage: %s BYTES ITERATIONS [put]\n", argv[0]);
		return 2;
	}
	other = fork();
	if (other < 0)
		return 1;
	be_rank(other == 0, s, (size_t)bytes, n, put);
	if (other == 0)
		return 0;
	return waitpid(other, &status, 0) != other || status != 0;
}
