/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an operation between two ranks of this machine asks of their NICs, over
 * verbs: work requests, doorbells (calls that post them), completions, and the
 * same of receives. Counted between the library and the driver of the NIC, in a
 * row of operations, so that what is told of many at once shows in its part.
 *
 * tests/bench/verbs_requests
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "dicomm.h"

#define WARM_UP 16
#define LARGEST ((size_t)16 << 20)

/* ---- between library and driver ---- */

struct counts {
	uint64_t requests, reads, doorbells, completions;
	uint64_t receives, receive_doorbells;
};

static struct counts counted;
static struct ibv_context_ops real;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	counted.doorbells++;
	for (const struct ibv_send_wr *w = wr; w; w = w->next) {
		counted.requests++;
		counted.reads += w->opcode == IBV_WR_RDMA_READ;
	}
	return real.post_send(qp, wr, bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	counted.receive_doorbells++;
	for (const struct ibv_recv_wr *w = wr; w; w = w->next)
		counted.receives++;
	return real.post_srq_recv(srq, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	int n = real.poll_cq(cq, most, wc);

	counted.completions += n > 0 ? (uint64_t)n : 0;
	return n;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_context *context;

	*(void **)&open_device = dlsym(RTLD_NEXT, "ibv_open_device");
	context = open_device ? open_device(device) : NULL;
	if (!context)
		return NULL;
	real = context->ops;
	context->ops.post_send = post_send;
	context->ops.post_srq_recv = post_srq_recv;
	context->ops.poll_cq = poll_cq;
	return context;
}

/* ---- two ranks ---- */

static int rank;
static dicomm_comm_t comm;
static char *send, *recv;

static void must(dicomm_result_t status)
{
	if (status == DICOMM_SUCCESS)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, dicomm_get_last_error(comm));
	_exit(1);
}

static void message(size_t bytes)
{
	if (rank == 0)
		must(dicomm_send(send, bytes, DICOMM_INT8, 1, comm, NULL));
	else
		must(dicomm_recv(recv, bytes, DICOMM_INT8, 0, comm, NULL));
}

static void allreduce(size_t bytes)
{
	must(dicomm_allreduce(send, recv, bytes / sizeof(float), DICOMM_FLOAT32,
			      DICOMM_SUM, comm, NULL));
}

static const struct row {
	const char *name;
	void (*run)(size_t bytes);
	size_t bytes;
	int times;
} rows[] = {
	{"put of 8 B", message, 8, 1024},
	{"put of 64 KiB", message, 1 << 16, 256},
	{"put of 16 MiB", message, LARGEST, 8},
	{"all-reduce of 8 B", allreduce, 8, 1024},
	{"all-reduce of 1 MiB", allreduce, 1 << 20, 32},
};
#define ROWS (sizeof(rows) / sizeof(*rows))

static void run_rows(struct counts *result)
{
	for (size_t i = 0; i < ROWS; i++) {
		struct counts before;

		for (int k = 0; k < WARM_UP; k++)
			rows[i].run(rows[i].bytes);
		must(dicomm_barrier(comm, NULL));
		before = counted;
		for (int k = 0; k < rows[i].times; k++)
			rows[i].run(rows[i].bytes);
		result[i].requests = counted.requests - before.requests;
		result[i].reads = counted.reads - before.reads;
		result[i].doorbells = counted.doorbells - before.doorbells;
		result[i].completions =
			counted.completions - before.completions;
		result[i].receives = counted.receives - before.receives;
		result[i].receive_doorbells =
			counted.receive_doorbells - before.receive_doorbells;
		must(dicomm_barrier(comm, NULL));
	}
}

/* Of both processes. */
struct shared {
	_Atomic bool ready; /* the id */
	dicomm_unique_id_t id;
	struct counts result[2][ROWS];
};

static void be_rank(int r, struct shared *s)
{
	rank = r;
	if (r == 0) {
		must(dicomm_get_unique_id(&s->id));
		atomic_store(&s->ready, true);
	}
	while (!atomic_load(&s->ready))
		usleep(1000);
	must(dicomm_comm_init_rank(&comm, 2, s->id, r));
	send = calloc(1, LARGEST);
	recv = calloc(1, LARGEST);
	if (!send || !recv)
		_exit(1);
	run_rows(s->result[r]);
	must(dicomm_comm_destroy(comm));
	_exit(0);
}

static void print(const struct row *row, int r, const struct counts *c)
{
	double n = row->times;

	printf("| %s, rank %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
	       row->name, r, (double)c->requests / n, (double)c->reads / n,
	       (double)c->doorbells / n, (double)c->completions / n,
	       (double)c->receives / n, (double)c->receive_doorbells / n);
}

int main(void)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, failed = 0;

	if (s == MAP_FAILED)
		return 1;
	setenv("DICOMM_TRANSPORTS", "verbs", 0);
	setenv("DICOMM_IB_NICS", "1", 0);
	for (int r = 0; r < 2; r++)
		if (fork() == 0)
			be_rank(r, s);
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		return 1;
	printf("| operation | requests | of these reads | doorbells "
	       "| completions | receives | their doorbells |\n"
	       "|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < ROWS; i++)
		for (int r = 0; r < 2; r++)
			print(&rows[i], r, &s->result[r][i]);
	return 0;
}
