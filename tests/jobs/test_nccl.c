/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's interface as its programs use it, by ranks of the host: results,
 * groups, ends, options of all versions, and what is refused. What a program
 * does with devices is in nccl_client.sh.
 */
#include <arpa/inet.h>
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compat/nccl/abi.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define QUIET .env = {"DICOMM_DEBUG=none"}

static void must(ncclResult_t got, const char *call, int line)
{
	JOB_CHECK(got == ncclSuccess, "line %d: %s: %s: %s", line, call,
		  ncclGetErrorString(got), ncclGetLastError(NULL));
}

static void refuses(ncclResult_t got, ncclResult_t want, const char *words,
		    const char *call, int line)
{
	JOB_CHECK(got == want, "line %d: %s: %d instead of %d (%s)", line, call,
		  (int)got, (int)want, ncclGetLastError(NULL));
	JOB_CHECK(strstr(ncclGetLastError(NULL), words),
		  "line %d: %s: no \"%s\" in \"%s\"", line, call, words,
		  ncclGetLastError(NULL));
}

#define MUST(call) must(call, #call, __LINE__)
#define REFUSES(call, want, words) refuses(call, want, words, #call, __LINE__)
#define ARGUMENT ncclInvalidArgument
#define USAGE ncclInvalidUsage

static ncclUniqueId unique_id(void)
{
	dicomm_unique_id_t id = job_id();
	ncclUniqueId out;

	memcpy(&out, &id, sizeof(out));
	return out;
}

static ncclComm_t join(const struct job_rank *me)
{
	ncclComm_t comm;

	MUST(ncclCommInitRank(&comm, me->ranks, unique_id(), me->rank));
	return comm;
}

/* The sum of 1 of each rank */
static void works(ncclComm_t comm, int ranks)
{
	int one = 1, sum = 0;

	MUST(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, NULL));
	JOB_CHECK(sum == ranks, "%d ranks sum to %d", ranks, sum);
}

static ncclResult_t state(ncclComm_t comm)
{
	ncclResult_t error = ncclInternalError;

	MUST(ncclCommGetAsyncError(comm, &error));
	return error;
}

static ncclResult_t settled(ncclComm_t comm)
{
	double begin = job_seconds();

	while (state(comm) == ncclInProgress) {
		JOB_CHECK(job_seconds() - begin < 15 + starved_s(),
			  "in progress for 15 s");
		job_sleep_ms(1);
	}
	return state(comm);
}

/* ---- operations ---- */

#define MOST 8

static void check_ints(const int *got, const int *want, int n, const char *what)
{
	for (int i = 0; i < n; i++)
		JOB_CHECK(got[i] == want[i], "%s: element %d is %d, not %d",
			  what, i, got[i], want[i]);
}

static void collectives(struct job_rank *me)
{
	ncclComm_t comm = join(me);
	int n = me->ranks, r = me->rank, last = n - 1;
	int send[MOST], recv[MOST], want[MOST];
	int sum = n * (n - 1) / 2;

	for (int i = 0; i < n; i++)
		send[i] = 100 * r + i;
	for (int i = 0; i < n; i++)
		want[i] = 100 * sum + n * i;
	MUST(ncclAllReduce(send, recv, (size_t)n, ncclInt32, ncclSum, comm,
			   NULL));
	check_ints(recv, want, n, "all-reduce");
	MUST(ncclAllReduceConfig(send, recv, (size_t)n, ncclInt32, ncclSum,
				 comm, NULL, NULL));
	check_ints(recv, want, n, "all-reduce with a configuration");
	memset(recv, 0, sizeof(recv));
	MUST(ncclReduce(send, r == last ? recv : NULL, (size_t)n, ncclInt32,
			ncclSum, last, comm, NULL));
	if (r == last)
		check_ints(recv, want, n, "reduce");
	MUST(ncclReduceScatter(send, recv, 1, ncclInt32, ncclSum, comm, NULL));
	check_ints(recv, &want[r], 1, "reduce-scatter");
	for (int i = 0; i < n; i++)
		want[i] = 100 * i;
	MUST(ncclAllGather(send, recv, 1, ncclInt32, comm, NULL));
	check_ints(recv, want, n, "all-gather");
	MUST(ncclGather(send, recv, 1, ncclInt32, last, comm, NULL));
	if (r == last)
		check_ints(recv, want, n, "gather");
	for (int i = 0; i < n; i++)
		want[i] = 100 * i + r;
	MUST(ncclAlltoAll(send, recv, 1, ncclInt32, comm, NULL));
	check_ints(recv, want, n, "all-to-all");
	memset(recv, 0, sizeof(recv));
	MUST(ncclAllToAll(send, recv, 1, ncclInt32, comm, NULL));
	check_ints(recv, want, n, "all-to-all of RCCL");
	want[0] = 100 * last + r;
	MUST(ncclScatter(send, recv, 1, ncclInt32, last, comm, NULL));
	check_ints(recv, want, 1, "scatter");
	want[0] = 100 * last;
	MUST(ncclBroadcast(send, recv, 1, ncclInt32, last, comm, NULL));
	check_ints(recv, want, 1, "broadcast");
	recv[0] = r;
	want[0] = 0;
	MUST(ncclBcast(recv, 1, ncclInt32, 0, comm, NULL));
	check_ints(recv, want, 1, "bcast");
	want[0] = sum + 1000 * r;
	recv[1] = 1000 * r;
	MUST(ncclAllReduceWithBias(&r, recv, 1, ncclInt32, ncclSum, comm, NULL,
				   &recv[1]));
	check_ints(recv, want, 1, "all-reduce with bias");
	MUST(ncclCommDestroy(comm));
}

START_TEST(collectives_do_what_they_say)
{
	job_run(&(struct job){
		.run = collectives, .ranks = _i, .bare = true, QUIET});
}
END_TEST

static void exchange_lists(ncclComm_t comm, int n, int r)
{
	size_t counts[MOST], displs[MOST], back[MOST], back_displs[MOST];
	int send[MOST * MOST], recv[MOST * MOST];
	size_t at = 0;

	/* Rank r sends r + d elements to rank d. */
	for (int d = 0; d < n; d++) {
		counts[d] = back[d] = (size_t)(r + d);
		displs[d] = back_displs[d] = at;
		for (size_t i = 0; i < counts[d]; i++)
			send[at++] = 10 * r + d;
	}
	ncclGroupStart();
	MUST(ncclAlltoAllv(send, counts, displs, recv, back, back_displs,
			   ncclInt32, comm, NULL));
	memset(counts, 0xff, sizeof(counts)); /* the caller's again */
	MUST(ncclGroupEnd());
	for (int s = 0; s < n; s++)
		for (size_t i = 0; i < back[s]; i++)
			JOB_CHECK(recv[back_displs[s] + i] == 10 * s + r,
				  "block of rank %d", s);
	MUST(ncclAllToAllv(send, back, displs, send, back, displs, ncclInt32,
			   comm, NULL));
	JOB_CHECK(!memcmp(send, recv, at * sizeof(*send)), "not so in place");
}

static void groups(struct job_rank *me)
{
	ncclComm_t comm = join(me), other = NULL, half = NULL, none = NULL;
	int n = me->ranks, r = me->rank, next = (r + 1) % n;
	int before = (r + n - 1) % n, got = -1, sum = 0, untouched = -7;

	MUST(ncclCommSplit(comm, 0, n - r, &other, NULL));
	/* All of a group go on together, nested or not, on whatever. */
	MUST(ncclGroupStart());
	MUST(ncclSend(&r, 1, ncclInt32, next, comm, NULL));
	MUST(ncclGroupStart());
	MUST(ncclRecv(&got, 1, ncclInt32, before, comm, NULL));
	MUST(ncclGroupEnd());
	JOB_CHECK(got == -1, "the end of an inner group began it");
	MUST(ncclAllReduce(&r, &sum, 1, ncclInt32, ncclSum, other, NULL));
	MUST(ncclGroupEnd());
	JOB_CHECK(got == before && sum == n * (n - 1) / 2, "got %d, sum %d",
		  got, sum);
	/* One that is refused takes all with it. */
	MUST(ncclGroupStart());
	MUST(ncclAllReduce(&r, &untouched, 1, ncclInt32, ncclSum, comm, NULL));
	REFUSES(ncclAllReduce(&r, &sum, 1, (ncclDataType_t)77, ncclSum, comm,
			      NULL),
		ARGUMENT, "datatype 77");
	REFUSES(ncclGroupEnd(), ARGUMENT, "datatype 77");
	JOB_CHECK(untouched == -7, "a part of a refused group was run");
	MUST(ncclGroupStart());
	REFUSES(ncclDevCommCreate(comm, NULL, NULL), USAGE, "device interface");
	REFUSES(ncclGroupEnd(), USAGE, "device interface");
	REFUSES(ncclGroupEnd(), USAGE, "has begun no group");
	/* What it was to make can be asked, and destroyed. */
	MUST(ncclGroupStart());
	MUST(ncclCommSplit(comm, 0, 0, &half, NULL));
	REFUSES(ncclCommSplit(comm, -3, 0, &none, NULL), ARGUMENT, "color -3");
	REFUSES(ncclGroupEnd(), ARGUMENT, "color -3");
	JOB_CHECK(state(half) == ARGUMENT && !none, "%d", (int)state(half));
	REFUSES(ncclCommFinalize(half), ARGUMENT, "could not be made");
	MUST(r ? ncclCommDestroy(half) : ncclCommAbort(half));
	MUST(ncclGroupStart());
	MUST(ncclGroupEnd());
	exchange_lists(comm, n, r);
	works(comm, n);
	/* Ends come after the operations. */
	MUST(ncclGroupStart());
	MUST(ncclAllReduce(&r, &sum, 1, ncclInt32, ncclMax, comm, NULL));
	MUST(ncclCommDestroy(comm));
	MUST(ncclCommDestroy(other));
	MUST(ncclGroupEnd());
	JOB_CHECK(sum == n - 1, "max %d", sum);
}

START_TEST(a_group_is_all_or_nothing)
{
	job_run(&(struct job){
		.run = groups, .ranks = 2 + 2 * _i, .bare = true, QUIET});
}
END_TEST

static void simulate(struct job_rank *me)
{
	static float data[1 << 16];
	ncclSimInfo_t info = {sizeof(info), NCCL_SIM_INFO_MAGIC, 23203, -1};
	ncclComm_t comm = join(me);
	float few;
	int x = 5;

	MUST(ncclGroupStart());
	MUST(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL));
	MUST(ncclGroupSimulateEnd(&info));
	few = info.estimatedTime;
	JOB_CHECK(few > 0, "8 bytes in %g us", few);
	JOB_CHECK(x == 5, "it was run");
	MUST(ncclGroupStart());
	for (int i = 0; i < 3; i++)
		MUST(ncclAllReduce(data, data, 1 << 16, ncclFloat32, ncclSum,
				   comm, NULL));
	MUST(ncclGroupSimulateEnd(&info));
	JOB_CHECK(info.estimatedTime > 3 * few, "%g us, 4 bytes %g us",
		  info.estimatedTime, few);
	info.magic = 1;
	MUST(ncclGroupStart());
	REFUSES(ncclGroupSimulateEnd(&info), ARGUMENT, "magic 0x1");
	REFUSES(ncclGroupSimulateEnd(&info), USAGE, "has begun no group");
	works(comm, me->ranks);
	MUST(ncclCommDestroy(comm));
}

START_TEST(a_group_can_be_asked_how_long_it_takes)
{
	job_run(&(struct job){
		.run = simulate, .ranks = 2, .bare = true, QUIET});
}
END_TEST

static void operators(struct job_rank *me)
{
	ncclComm_t comm = join(me);
	float x[200], y[200], factor = 0.5f;
	ncclRedOp_t op, kept;

	/* As FSDP does: one for each tensor of a group, gone before its end. */
	MUST(ncclGroupStart());
	for (int i = 0; i < 200; i++) {
		x[i] = (float)i;
		MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32,
					      ncclScalarHostImmediate, comm));
		MUST(ncclAllReduce(&x[i], &y[i], 1, ncclFloat32, op, comm,
				   NULL));
		MUST(ncclRedOpDestroy(op, comm));
	}
	MUST(ncclGroupEnd());
	for (int i = 0; i < 200; i++)
		JOB_CHECK(y[i] == 0.5f * (float)(i * me->ranks), "y[%d] %g", i,
			  y[i]);
	/* As many values as the library never has at once */
	for (int i = 0; i < 200; i++) {
		factor = (float)i;
		MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32,
					      ncclScalarHostImmediate, comm));
		MUST(ncclAllReduce(&x[1], &y[1], 1, ncclFloat32, op, comm,
				   NULL));
		JOB_CHECK(y[1] == (float)(i * me->ranks), "%d: %g", i, y[1]);
		MUST(ncclRedOpDestroy(op, comm));
	}
	factor = 3;
	MUST(ncclRedOpCreatePreMulSum(&kept, &factor, ncclFloat32,
				      ncclScalarDevice, comm));
	MUST(ncclAllReduce(&x[1], &y[1], 1, ncclFloat32, kept, comm, NULL));
	JOB_CHECK(y[1] == (float)(3 * me->ranks), "%g", y[1]);
	MUST(ncclRedOpDestroy(kept, comm));
	REFUSES(ncclRedOpDestroy(kept, comm), ARGUMENT, "no created operator");
	REFUSES(ncclAllReduce(&x[1], &y[1], 1, ncclFloat32, kept, comm, NULL),
		ARGUMENT, "was destroyed");
	/* One "of the device" is read by the call, not before. */
	MUST(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32,
				      ncclScalarDevice, comm));
	for (int i = 0; i < 40; i++) {
		factor = (float)i;
		MUST(ncclGroupStart());
		MUST(ncclAllReduce(&x[1], &y[1], 1, ncclFloat32, op, comm,
				   NULL));
		MUST(ncclGroupEnd());
		JOB_CHECK(y[1] == (float)(i * me->ranks) * x[1], "%g", y[1]);
	}
	MUST(ncclRedOpDestroy(op, comm));
	REFUSES(ncclRedOpDestroy(ncclSum, comm), ARGUMENT,
		"no created operator");
	REFUSES(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32,
					 ncclScalarDevice, comm),
		ARGUMENT, "scalar is NULL");
	REFUSES(ncclRedOpCreatePreMulSum(&op, &factor, (ncclDataType_t)12,
					 ncclScalarDevice, comm),
		ARGUMENT, "datatype 12");
	MUST(ncclCommDestroy(comm));
}

START_TEST(more_operators_than_the_library_has)
{
	job_run(&(struct job){
		.run = operators, .ranks = 2, .bare = true, QUIET});
}
END_TEST

static void memory(struct job_rank *me)
{
	static char left[4096];
	ncclComm_t comm = join(me);
	ncclWindow_t win;
	void *at, *handle, *user;
	int *data, wrong;

	MUST(ncclMemAlloc(&at, 8192));
	data = at;
	data[0] = me->rank;
	MUST(ncclCommRegister(comm, at, 8192, &handle));
	MUST(ncclAllReduce(data, data + 1, 1, ncclInt32, ncclSum, comm, NULL));
	JOB_CHECK(data[1] == me->ranks * (me->ranks - 1) / 2, "%d", data[1]);
	MUST(ncclCommDeregister(comm, handle));
	REFUSES(ncclCommDeregister(comm, &wrong), ARGUMENT, "handle");
	MUST(ncclCommWindowRegister(comm, at, 4096, &win,
				    NCCL_WIN_COLL_SYMMETRIC));
	MUST(ncclWinGetUserPtr(comm, win, &user));
	JOB_CHECK(user == at, "the window is of other memory");
	works(comm, me->ranks);
	REFUSES(ncclGetPeerDevicePointer(win, 0, 0, &user), USAGE,
		"device interface");
	JOB_CHECK(!user, "a pointer that is none");
	MUST(ncclCommWindowDeregister(comm, win));
	REFUSES(ncclCommWindowDeregister(comm, win), ARGUMENT, "no window");
	REFUSES(ncclWinGetUserPtr(comm, win, &user), ARGUMENT, "no window");
	REFUSES(ncclCommWindowRegister(comm, at, 4096, &win, NCCL_WIN_GIN_ONLY),
		USAGE, "GIN");
	/* What is left goes with the communicator. */
	MUST(ncclCommRegister(comm, left, sizeof(left), &handle));
	MUST(ncclCommWindowRegister(comm, left, sizeof(left), &win,
				    NCCL_WIN_DEFAULT));
	MUST(ncclMemFree(at));
	REFUSES(ncclMemFree(&wrong), ARGUMENT, "");
	MUST(ncclMemFree(NULL));
	MUST(ncclMemAlloc(&at, 0));
	MUST(ncclCommDestroy(comm));
}

START_TEST(memory_is_allocated_registered_and_a_window)
{
	job_run(&(struct job){.run = memory, .ranks = 2, .bare = true, QUIET});
}
END_TEST

/* ---- one-sided ---- */

#define CELLS 5000

/* Each puts into all, itself too: a number and, in another context, a row. */
static void put_into_all(ncclComm_t comm, ncclWindow_t win, const int *cells,
			 int ranks, int rank)
{
	ncclWaitSignalDesc_t descs[8];
	int row[CELLS];

	for (int i = 0; i < CELLS; i++)
		row[i] = 1000 * rank + i % 999;
	for (int r = 0; r < ranks; r++) {
		MUST(ncclPutSignal(&rank, 1, ncclInt32, r, win,
				   (size_t)rank * sizeof(int), 3, 0, 0, comm,
				   NULL));
		MUST(ncclPutSignal(row, CELLS, ncclInt32, r, win,
				   (size_t)(8 + rank * CELLS) * sizeof(int), 3,
				   1, 0, comm, NULL));
		descs[r] = (ncclWaitSignalDesc_t){1, r, 3, 0};
	}
	MUST(ncclWaitSignal(ranks, descs, comm, NULL));
	for (int r = 0; r < ranks; r++)
		descs[r].ctx = 1;
	/* In a group too, whose end is the wait's. */
	MUST(ncclGroupStart());
	MUST(ncclWaitSignal(ranks, descs, comm, NULL));
	memset(descs, -1, sizeof(descs));
	MUST(ncclGroupEnd());
	for (int r = 0; r < ranks; r++) {
		JOB_CHECK(cells[r] == r, "cell %d is %d", r, cells[r]);
		for (int i = 0; i < CELLS; i++)
			JOB_CHECK(cells[8 + r * CELLS + i] ==
					  1000 * r + i % 999,
				  "row of rank %d, %d: %d", r, i,
				  cells[8 + r * CELLS + i]);
	}
}

static void refuse_puts(ncclComm_t comm, ncclComm_t other, ncclWindow_t win,
			int ranks)
{
	ncclWaitSignalDesc_t one = {1, ranks, 0, 0};
	size_t bytes = (size_t)(8 + ranks * CELLS) * sizeof(int);
	int x = 1;

	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "no window of this communicator");
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, win, 0, 0, 0, 0, other,
			      NULL),
		ARGUMENT, "no window of this communicator");
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, win, bytes, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "the window of rank 0 has");
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, ranks, win, 0, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "peer");
	REFUSES(ncclPutSignal(NULL, 1, ncclInt32, 0, win, 0, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "local is NULL");
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, win, 0, -1, 0, 0, comm,
			      NULL),
		ARGUMENT, "sigIdx -1");
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, win, 0, 0, 77, 0, comm,
			      NULL),
		ARGUMENT, "context 77");
	REFUSES(ncclPutSignal(&x, 1, (ncclDataType_t)77, 0, win, 0, 0, 0, 0,
			      comm, NULL),
		ARGUMENT, "type 77");
	REFUSES(ncclSignal(0, 256, 0, 0, comm, NULL), ARGUMENT, "signal 256");
	REFUSES(ncclSignal(0, 0, 0, 4, comm, NULL), ARGUMENT, "flags 0x4");
	REFUSES(ncclWaitSignal(1, &one, comm, NULL), ARGUMENT, "peer");
	REFUSES(ncclWaitSignal(-1, &one, comm, NULL), ARGUMENT, "nDesc -1");
	REFUSES(ncclWaitSignal(1, NULL, comm, NULL), ARGUMENT, "NULL");
	MUST(ncclWaitSignal(0, NULL, comm, NULL));
	MUST(ncclGroupStart());
	REFUSES(ncclPutSignal(&x, 1, ncclInt32, 0, NULL, 0, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "no window of this communicator");
	MUST(ncclSignal(0, 0, 0, 0, comm, NULL));
	REFUSES(ncclGroupEnd(), ARGUMENT, "no window of this communicator");
	MUST(ncclGroupStart());
	REFUSES(ncclCommWindowRegister(comm, &x, 4, NULL, 0), ARGUMENT,
		"win is NULL");
	REFUSES(ncclGroupEnd(), ARGUMENT, "win is NULL");
	REFUSES(ncclCommWindowRegister(comm, NULL, 4, &win, 0), ARGUMENT,
		"buff is NULL");
	JOB_CHECK(!win, "a window that is none");
}

static void one_sided(struct job_rank *me)
{
	static int cells[8 + 4 * CELLS];
	ncclComm_t comm = join(me), other = NULL;
	size_t bytes = (size_t)(8 + me->ranks * CELLS) * sizeof(int);
	ncclWindow_t win, second = NULL;

	MUST(ncclCommSplit(comm, 0, me->rank, &other, NULL));
	MUST(ncclCommWindowRegister(comm, cells, bytes, &win,
				    NCCL_WIN_COLL_SYMMETRIC));
	put_into_all(comm, win, cells, me->ranks, me->rank);
	refuse_puts(comm, other, win, me->ranks);
	works(comm, me->ranks);
	/* Of all ranks together only the beginning is. */
	if (me->rank)
		MUST(ncclCommWindowDeregister(comm, win));
	works(comm, me->ranks);
	if (!me->rank)
		MUST(ncclCommWindowDeregister(comm, win));
	REFUSES(ncclPutSignal(cells, 1, ncclInt32, 0, win, 0, 0, 0, 0, comm,
			      NULL),
		ARGUMENT, "it was deregistered");
	memset(cells, -1, sizeof(cells));
	/* Two by one group; both go with their communicators. */
	MUST(ncclGroupStart());
	MUST(ncclCommWindowRegister(other, cells, bytes, &win, 0));
	MUST(ncclCommWindowRegister(comm, NULL, 0, &second, 0));
	JOB_CHECK(!win && !second, "registered before the end of the group");
	MUST(ncclGroupEnd());
	JOB_CHECK(win && second, "none at the end of the group");
	put_into_all(other, win, cells, me->ranks, me->rank);
	works(comm, me->ranks);
	MUST(ncclCommDestroy(other));
	MUST(ncclCommDestroy(comm));
}

static const int sides[] = {1, 2, 4};

START_TEST(puts_go_into_windows)
{
	job_run(&(struct job){
		.run = one_sided, .ranks = sides[_i], .bare = true, QUIET});
}
END_TEST

/* One thread makes the calls of two ranks. */
static void one_sided_by_one(struct job_rank *me)
{
	int cells[2] = {-1, -1}, x = 7;
	ncclWaitSignalDesc_t one = {1, 0, 0, 0};
	ncclUniqueId id;
	ncclComm_t comms[2];
	ncclWindow_t win[2];

	(void)me;
	MUST(ncclGetUniqueId(&id));
	MUST(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		MUST(ncclCommInitRank(&comms[i], 2, id, i));
	MUST(ncclGroupEnd());
	MUST(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		MUST(ncclCommWindowRegister(comms[i], &cells[i], sizeof(int),
					    &win[i], 0));
	MUST(ncclGroupEnd());
	MUST(ncclPutSignal(&x, 1, ncclInt32, 1, win[0], 0, 0, 0, 0, comms[0],
			   NULL));
	MUST(ncclWaitSignal(1, &one, comms[1], NULL));
	JOB_CHECK(cells[1] == 7, "%d", cells[1]);
	for (int i = 0; i < 2; i++)
		MUST(ncclCommWindowDeregister(comms[i], win[i]));
	MUST(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		MUST(ncclCommDestroy(comms[i]));
	MUST(ncclGroupEnd());
}

START_TEST(one_thread_puts_for_two_ranks)
{
	job_run(&(struct job){
		.run = one_sided_by_one, .ranks = 1, .bare = true, QUIET});
}
END_TEST

/* ---- communicators ---- */

static void init_all(struct job_rank *me)
{
	ncclComm_t comms[3];
	int devices[3] = {0, 0, 1}, in[3] = {1, 2, 4}, out[3], n = 0, v = -2;

	(void)me;
	for (int i = 0; i < 2; i++) {
		MUST(ncclCommInitAll(comms, 3, i ? devices : NULL));
		MUST(ncclGroupStart());
		for (int r = 0; r < 3; r++)
			MUST(ncclAllReduce(&in[r], &out[r], 1, ncclInt32,
					   ncclSum, comms[r], NULL));
		MUST(ncclGroupEnd());
		for (int r = 0; r < 3; r++)
			JOB_CHECK(out[r] == 7, "%d", out[r]);
		MUST(ncclCommCount(comms[2], &n));
		MUST(ncclCommUserRank(comms[2], &v));
		JOB_CHECK(n == 3 && v == 2, "rank %d of %d", v, n);
		MUST(ncclCommCuDevice(comms[2], &v));
		JOB_CHECK(v == -1, "a host rank has device %d", v);
		if (i)
			MUST(ncclGroupStart());
		for (int r = 0; r < 3; r++)
			MUST(ncclCommDestroy(comms[r]));
		if (i)
			MUST(ncclGroupEnd());
	}
	devices[1] = -4;
	REFUSES(ncclCommInitAll(comms, 3, devices), ARGUMENT,
		"devlist[1] is -4");
	REFUSES(ncclCommInitAll(comms, 0, NULL), ARGUMENT, "ndev 0");
	REFUSES(ncclCommInitAll(NULL, 1, NULL), ARGUMENT, "comms");
}

/* Nobody hands the id over; a communicator begins where the last one did. */
static void meet_at_an_address(struct job_rank *me)
{
	dicomm_unique_id_t whole = job_id();
	ncclComm_t comm[8];
	ncclUniqueId id;

	for (int i = 0; i < 8; i++) {
		MUST(ncclGetUniqueId(&id));
		MUST(ncclCommInitRank(&comm[i], me->ranks, id, me->rank));
		works(comm[i], me->ranks);
	}
	for (int i = 0; i < 8; i++)
		MUST(ncclCommDestroy(comm[i]));
	setenv("NCCL_COMM_ID", "nowhere", 1);
	MUST(ncclGetUniqueId(&id));
	REFUSES(ncclCommInitRank(comm, 1, id, 0), ARGUMENT,
		"\"nowhere\" is not host:port");
	setenv("NCCL_COMM_ID", whole.text, 1); /* or a whole id */
	MUST(ncclGetUniqueId(&id));
	JOB_CHECK(!strcmp(id.internal, whole.text), "another id");
	MUST(ncclCommInitRank(comm, me->ranks, id, me->rank));
	works(comm[0], me->ranks);
	MUST(ncclCommDestroy(comm[0]));
}

START_TEST(ranks_meet_at_a_known_address)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	char where[64];
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	/* A port that was free a moment ago */
	ck_assert(!bind(fd, (struct sockaddr *)&at, len));
	ck_assert(!getsockname(fd, (struct sockaddr *)&at, &len));
	close(fd);
	snprintf(where, sizeof(where), "NCCL_COMM_ID=127.0.0.1:%d",
		 ntohs(at.sin_port));
	job_run(&(struct job){.run = meet_at_an_address,
			      .ranks = 3,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none", where,
				      "DICOMM_COMM_KEY=open sesame"}});
}
END_TEST

START_TEST(init_all_makes_ranks_of_one_process)
{
	job_run(&(struct job){
		.run = init_all, .ranks = 1, .bare = true, QUIET});
}
END_TEST

static void grouped_init(struct job_rank *me)
{
	ncclUniqueId ids[2];
	ncclComm_t comms[4], halves[4];
	int n = -1;

	(void)me;
	MUST(ncclGetUniqueId(&ids[0]));
	MUST(ncclGetUniqueId(&ids[1]));
	MUST(ncclGroupStart());
	for (int r = 0; r < 4; r++)
		MUST(ncclCommInitRankScalable(&comms[r], 4, r, 2, ids, NULL));
	REFUSES(ncclCommCount(comms[0], &n), USAGE, "end of the group");
	MUST(ncclGroupEnd());
	MUST(ncclGroupStart());
	for (int r = 0; r < 4; r++)
		MUST(ncclCommSplit(comms[r], r % 2, -r, &halves[r], NULL));
	MUST(ncclGroupEnd());
	for (int r = 0; r < 4; r++) {
		MUST(ncclCommUserRank(halves[r], &n));
		JOB_CHECK(n == (r < 2), "rank %d is %d of its half", r, n);
	}
	MUST(ncclGroupStart());
	for (int r = 0; r < 4; r++) {
		MUST(ncclCommDestroy(halves[r]));
		MUST(ncclCommFinalize(comms[r]));
	}
	MUST(ncclGroupEnd());
	for (int r = 0; r < 4; r++)
		MUST(ncclCommDestroy(comms[r]));
	/* Given up before it began */
	MUST(ncclGetUniqueId(&ids[0]));
	MUST(ncclGroupStart());
	MUST(ncclCommInitRank(&comms[0], 2, ids[0], 0));
	MUST(ncclCommAbort(comms[0]));
	REFUSES(ncclGroupEnd(), USAGE, "aborted before");
	REFUSES(ncclCommInitRankScalable(&comms[0], 4, 0, 5, ids, NULL),
		ARGUMENT, "1 to nranks");
	REFUSES(ncclCommInitRankScalable(&comms[0], 4, 0, 1, NULL, NULL),
		ARGUMENT, "ids is NULL");
}

START_TEST(a_thread_is_many_ranks_by_a_group)
{
	job_run(&(struct job){
		.run = grouped_init, .ranks = 1, .bare = true, QUIET});
}
END_TEST

/* Four of one thread, of which the first two were there before; the id is told
 * to the old ones by the one that has made it. */
static void grow_in_a_group(struct job_rank *me)
{
	ncclComm_t old[2], grown[4], none = NULL;
	ncclUniqueId id, other;
	int n = 0, x[4], y[4];

	(void)me;
	MUST(ncclCommInitAll(old, 2, NULL));
	REFUSES(ncclCommGetUniqueId(old[0], NULL), ARGUMENT, "id is NULL");
	REFUSES(ncclCommGetUniqueId(NULL, &id), ARGUMENT, "comm");
	MUST(ncclCommGetUniqueId(old[1], &id));
	memset(&other, 0, sizeof(other));
	REFUSES(ncclCommGrow(old[0], 4, &id, -1, NULL, NULL), ARGUMENT,
		"newcomm is NULL");
	REFUSES(ncclCommGrow(NULL, 4, NULL, 2, &none, NULL), ARGUMENT,
		"needs the id");
	REFUSES(ncclCommGrow(NULL, 4, &other, 2, &none, NULL), ARGUMENT,
		"all zeros");
	/* All old ranks refuse it together. */
	MUST(ncclGroupStart());
	for (int r = 0; r < 2; r++)
		MUST(ncclCommGrow(old[r], 4 - 2 * r, NULL, -1, &grown[r],
				  NULL));
	REFUSES(ncclGroupEnd(), ARGUMENT, "nranks 2");
	JOB_CHECK(!none, "a handle");
	MUST(ncclGroupStart());
	for (int r = 0; r < 4; r++)
		MUST(ncclCommGrow(r < 2 ? old[r] : NULL, 4, r < 2 ? NULL : &id,
				  r < 2 ? -1 : r, &grown[r], NULL));
	MUST(ncclGroupEnd());
	MUST(ncclGroupStart());
	for (int r = 0; r < 4; r++) {
		x[r] = 10 + r;
		MUST(ncclAllReduce(&x[r], &y[r], 1, ncclInt32, ncclSum,
				   grown[r], NULL));
	}
	MUST(ncclGroupEnd());
	for (int r = 0; r < 4; r++) {
		MUST(ncclCommUserRank(grown[r], &n));
		JOB_CHECK(n == r && y[r] == 46, "rank %d is %d, sum %d", r, n,
			  y[r]);
	}
	MUST(ncclGroupStart());
	for (int r = 0; r < 2; r++)
		MUST(ncclCommDestroy(old[r]));
	for (int r = 0; r < 4; r++)
		MUST(ncclCommDestroy(grown[r]));
	MUST(ncclGroupEnd());
}

START_TEST(a_thread_grows_by_a_group)
{
	job_run(&(struct job){
		.run = grow_in_a_group, .ranks = 1, .bare = true, QUIET});
}
END_TEST

/* The last rank of the job joins the others. */
static void grow_by_one(struct job_rank *me)
{
	struct {
		_Atomic int made;
		ncclUniqueId id;
	} *board = job_board();
	int joins = me->rank == me->ranks - 1, sum = 0, x = me->rank + 1;
	ncclComm_t comm = NULL, grown = NULL;
	struct job_rank as = *me;

	as.ranks--;
	comm = joins ? (job_id(), NULL) : join(&as);
	if (me->rank == 0) {
		MUST(ncclCommGetUniqueId(comm, &board->id));
		atomic_store(&board->made, 1);
	}
	while (!atomic_load(&board->made))
		usleep(200);
	MUST(ncclCommGrow(comm, me->ranks,
			  joins || me->rank == 0 ? &board->id : NULL,
			  joins ? me->rank : -1, &grown, NULL));
	MUST(ncclAllReduce(&x, &sum, 1, ncclInt32, ncclSum, grown, NULL));
	JOB_CHECK(sum == me->ranks * (me->ranks + 1) / 2, "sum %d", sum);
	if (comm)
		MUST(ncclCommDestroy(comm));
	MUST(ncclCommDestroy(grown));
}

START_TEST(a_rank_joins)
{
	job_run(&(struct job){
		.run = grow_by_one, .ranks = 3, .bare = true, QUIET});
}
END_TEST

static void split_and_shrink(struct job_rank *me)
{
	ncclComm_t comm = join(me), part, fewer;
	int out[1] = {me->ranks - 1}, flags = *(const int *)me->arg, n = 0;

	MUST(ncclCommSplit(
		comm, me->rank == 0 ? NCCL_SPLIT_NOCOLOR : 1 + me->rank % 2, 0,
		&part, NULL));
	JOB_CHECK(!part == (me->rank == 0), "part %p", (void *)part);
	if (part) {
		MUST(ncclCommCount(part, &n));
		works(part, n);
		MUST(ncclCommDestroy(part));
	}
	REFUSES(ncclCommSplit(comm, -3, 0, &part, NULL), ARGUMENT, "color -3");
	REFUSES(ncclCommShrink(comm, NULL, 2, &fewer, NULL, 0), ARGUMENT,
		"excludeRanksCount 2");
	REFUSES(ncclCommShrink(comm, out, 1, &fewer, NULL, 6), ARGUMENT,
		"flags 0x6");
	job_barrier();
	if (me->rank != me->ranks - 1) {
		MUST(ncclCommShrink(comm, out, 1, &fewer, NULL, flags));
		works(fewer, me->ranks - 1);
		MUST(ncclCommDestroy(fewer));
		if (flags)
			REFUSES(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum,
					      comm, NULL),
				USAGE, "revoked");
	}
	job_barrier();
	MUST(ncclCommDestroy(comm));
}

static const int shrink_flags[] = {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT};

START_TEST(split_and_shrink_make_smaller_ones)
{
	job_run(&(struct job){.run = split_and_shrink,
			      .ranks = 4,
			      .arg = &shrink_flags[_i],
			      .bare = true,
			      QUIET});
}
END_TEST

static void revoke_all(struct job_rank *me)
{
	ncclComm_t comm = join(me), rest;
	int x = 1;

	works(comm, me->ranks);
	job_barrier();
	REFUSES(ncclCommRevoke(comm, 1), ARGUMENT, "flags 0x1");
	MUST(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
	JOB_CHECK(state(comm) == ncclSuccess, "it is not at rest");
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL), USAGE,
		"revoked");
	REFUSES(ncclCommFinalize(comm), USAGE, "revoked");
	MUST(ncclCommShrink(comm, NULL, 0, &rest, NULL, NCCL_SHRINK_DEFAULT));
	works(rest, me->ranks);
	MUST(ncclCommDestroy(comm));
	MUST(ncclCommDestroy(rest));
}

START_TEST(what_was_revoked_can_be_shrunk)
{
	job_run(&(struct job){
		.run = revoke_all, .ranks = 3, .bare = true, QUIET});
}
END_TEST

static void suspend(struct job_rank *me)
{
	ncclComm_t comm = join(me);
	uint64_t value = 9;
	int x = 1;

	REFUSES(ncclCommResume(comm), USAGE, "not suspended");
	REFUSES(ncclCommSuspend(comm, 0), ARGUMENT, "flags 0x0");
	MUST(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, NULL), USAGE,
		"suspended");
	MUST(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &value));
	JOB_CHECK(value == 1, "suspended is %d", (int)value);
	MUST(ncclCommResume(comm));
	MUST(ncclCommMemStats(comm, ncclStatGpuMemTotal, &value));
	JOB_CHECK(value == 0, "a host rank has GPU memory");
	works(comm, me->ranks);
	MUST(ncclCommDestroy(comm));
}

START_TEST(a_suspended_communicator_waits)
{
	job_run(&(struct job){.run = suspend, .ranks = 2, .bare = true, QUIET});
}
END_TEST

/* ---- ends ---- */

struct victim {
	ncclComm_t comm;
	ncclResult_t result;
	_Atomic int begun;
};

static void *receive(void *arg)
{
	struct victim *v = arg;
	int x;

	v->begun = 1;
	v->result = ncclRecv(&x, 1, ncclInt32, 1, v->comm, NULL);
	return NULL;
}

static void *meet(void *arg)
{
	struct victim *v = arg;
	ncclUniqueId id;

	if (ncclGetUniqueId(&id) != ncclSuccess)
		return NULL;
	v->begun = 1;
	v->result = ncclCommInitRank(&v->comm, 2, id, 0);
	return NULL;
}

/* A call that waits for what never comes ends when another thread aborts. */
static void abort_it(void *(*wait)(void *), struct victim *v)
{
	pthread_t thread;
	double begin;

	JOB_CHECK(!pthread_create(&thread, NULL, wait, v), "a thread");
	while (!v->begun || !*(ncclComm_t volatile *)&v->comm)
		job_sleep_ms(1);
	job_sleep_ms(30);
	begin = job_seconds();
	MUST(ncclCommAbort(*(ncclComm_t volatile *)&v->comm));
	pthread_join(thread, NULL);
	JOB_CHECK(job_seconds() - begin < 5 + starved_s(), "%.1f s",
		  job_seconds() - begin);
	JOB_CHECK(v->result != ncclSuccess, "the call that waited succeeded");
}

static void abort_waits(struct job_rank *me)
{
	struct victim v = {.comm = join(me)}, w = {.comm = NULL};
	ncclComm_t comm = v.comm;

	if (me->rank == 0) {
		abort_it(receive, &v);
		REFUSES(ncclAllReduce(&v, &v, 1, ncclInt32, ncclSum, comm,
				      NULL),
			ARGUMENT, "no communicator any more");
		/* Of a handle that one thread is given and another one uses,
		 * that sanitizer would say that they race. */
		if (!job_has_thread_sanitizer())
			abort_it(meet, &w);
		job_barrier();
		return;
	}
	job_barrier();
	MUST(ncclCommAbort(comm));
	MUST(ncclCommAbort(NULL));
}

START_TEST(abort_ends_what_another_thread_waits_in)
{
	job_run(&(struct job){
		.run = abort_waits, .ranks = 2, .bare = true, QUIET});
}
END_TEST

#define LAST_WORDS (1 << 20)

/* vLLM destroys its communicators by ncclCommAbort(), as soon as a rank is
 * done. */
static void abort_when_done(struct job_rank *me)
{
	int *x = calloc(LAST_WORDS, sizeof(*x));
	ncclComm_t comm = join(me);

	x[LAST_WORDS - 1] = me->rank ? -1 : 7;
	if (me->rank == 1)
		job_sleep_ms(200);
	MUST(ncclBroadcast(x, x, LAST_WORDS, ncclInt32, 0, comm, NULL));
	JOB_CHECK(x[LAST_WORDS - 1] == 7, "%d", x[LAST_WORDS - 1]);
	if (me->rank == 0)
		MUST(ncclCommAbort(comm));
	job_barrier();
	if (me->rank == 1) {
		REFUSES(ncclRecv(x, 1, ncclInt32, 0, comm, NULL),
			ncclRemoteError, "rank 0");
		MUST(ncclCommAbort(comm));
	}
	free(x);
}

START_TEST(abort_lets_peers_have_what_was_done)
{
	job_run(&(struct job){
		.run = abort_when_done, .ranks = 2, .bare = true, QUIET});
}
END_TEST

static void abort_nonblocking(struct job_rank *me)
{
	ncclConfig_t config;
	ncclComm_t comm = NULL, child = NULL, other = NULL;
	ncclUniqueId id;
	int x = 1;

	memset(&config, 0xff, sizeof(config));
	config = (ncclConfig_t){.size = sizeof(config),
				.magic = NCCL_API_MAGIC,
				.version = 23203,
				.blocking = 0,
				.cgaClusterSize = NCCL_CONFIG_UNDEF_INT,
				.minCTAs = NCCL_CONFIG_UNDEF_INT,
				.maxCTAs = NCCL_CONFIG_UNDEF_INT,
				.splitShare = 1,
				.commName = "tower",
				.collnetEnable = NCCL_CONFIG_UNDEF_INT,
				.CTAPolicy = NCCL_CONFIG_UNDEF_INT,
				.shrinkShare = NCCL_CONFIG_UNDEF_INT,
				.nvlsCTAs = NCCL_CONFIG_UNDEF_INT,
				.nChannelsPerNetPeer = NCCL_CONFIG_UNDEF_INT,
				.maxP2pPeers = NCCL_CONFIG_UNDEF_INT};
	/* Alone, so that nobody comes */
	if (me->rank == 0) {
		MUST(ncclGetUniqueId(&id));
		JOB_CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) ==
				  ncclInProgress,
			  "an init without blocking waits");
		JOB_CHECK(state(comm) == ncclInProgress, "it has met nobody");
		REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm,
				      NULL),
			ARGUMENT, "initialised");
		MUST(ncclGetUniqueId(&id));
		MUST(ncclGroupStart());
		MUST(ncclCommInitRankConfig(&child, 1, id, 0, &config));
		REFUSES(ncclCommInitRank(&other, 1, id, 0), ARGUMENT,
			"in one group");
		REFUSES(ncclGroupEnd(), ARGUMENT, "in one group");
		MUST(ncclCommDestroy(child));
		MUST(ncclCommDestroy(other));
		MUST(ncclCommAbort(comm));
	}
	JOB_CHECK(ncclCommInitRankConfig(&comm, me->ranks, unique_id(),
					 me->rank, &config) == ncclInProgress,
		  "an init without blocking waits: %s", ncclGetLastError(NULL));
	JOB_CHECK(settled(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
	works(comm, me->ranks);
	JOB_CHECK(ncclCommSplit(comm, 0, 0, &child, NULL) == ncclInProgress,
		  "a child of one that does not block waits");
	/* As NCCL's guide has it: the parent is asked. */
	JOB_CHECK(settled(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
	works(child, me->ranks);
	JOB_CHECK(ncclCommFinalize(child) == ncclInProgress, "finalize waits");
	REFUSES(ncclCommFinalize(child), ARGUMENT, "finalized already");
	JOB_CHECK(settled(child) == ncclSuccess, "%s", ncclGetLastError(child));
	MUST(ncclCommDestroy(child));
	/* The name is for messages, about what broke it too. */
	job_barrier();
	if (me->rank == 1)
		MUST(ncclCommAbort(comm));
	if (me->rank == 0) {
		JOB_CHECK(ncclRecv(&x, 1, ncclInt32, 1, comm, NULL) ==
				  ncclRemoteError,
			  "%s", ncclGetLastError(comm));
		JOB_CHECK(state(comm) == ncclRemoteError, "not broken");
		JOB_CHECK(strstr(ncclGetLastError(comm), "rank 1"), "%s",
			  ncclGetLastError(comm));
		MUST(ncclCommDestroy(comm));
	}
}

START_TEST(what_does_not_block_is_polled)
{
	job_run(&(struct job){
		.run = abort_nonblocking, .ranks = 2, .bare = true, QUIET});
}
END_TEST

static void forked(struct job_rank *me)
{
	ncclComm_t comm = join(me);
	int status = 0;
	pid_t child = fork();

	if (!child) {
		ncclResult_t r = ncclCommCount(comm, &status);

		_exit(r == USAGE && strstr(ncclGetLastError(NULL), "parent")
			      ? 0
			      : 1);
	}
	JOB_CHECK(waitpid(child, &status, 0) == child && !status,
		  "the child could use it");
	works(comm, me->ranks);
	MUST(ncclCommDestroy(comm));
}

START_TEST(a_forked_child_is_refused)
{
	job_run(&(struct job){.run = forked, .ranks = 2, .bare = true, QUIET});
}
END_TEST

/* ---- both interfaces ---- */

/* Half of the ranks know only dicomm.h, and the 128 bytes. */
static void both_meet(struct job_rank *me)
{
	int n = me->ranks, x = me->rank, sum = 0;
	void *board = job_board();
	dicomm_comm_t ours = NULL;
	dicomm_unique_id_t id;
	ncclUniqueId made;
	ncclComm_t theirs;

	if (me->rank == 0) {
		MUST(ncclGetUniqueId(&made));
		memcpy(board, &made, sizeof(made));
	}
	job_barrier();
	memcpy(&id, board, sizeof(id));
	memcpy(&made, board, sizeof(made));
	if (me->rank % 2) {
		JOB_TRY(dicomm_comm_init_rank(&ours, n, id, me->rank));
		JOB_TRY(dicomm_allreduce(&x, &sum, 1, DICOMM_INT32, DICOMM_SUM,
					 ours, NULL));
		JOB_TRY(dicomm_comm_destroy(ours));
	} else {
		MUST(ncclCommInitRank(&theirs, n, made, me->rank));
		MUST(ncclAllReduce(&x, &sum, 1, ncclInt32, ncclSum, theirs,
				   NULL));
		MUST(ncclCommDestroy(theirs));
	}
	JOB_CHECK(sum == n * (n - 1) / 2, "sum %d", sum);
}

START_TEST(ranks_of_both_interfaces_meet)
{
	job_run(&(struct job){
		.run = both_meet, .ranks = 2 + 2 * _i, .bare = true, QUIET});
}
END_TEST

/* ---- options ---- */

/* As published */
static const struct {
	unsigned version;
	size_t size;
} layouts[] = {
	{21403, 24},  {21701, 40},  {21803, 48},  {22105, 48}, {22304, 48},
	{22602, 48},  {22705, 72},  {22809, 80},  {22907, 88}, {23007, 96},
	{23102, 112}, {23203, 120}, {23900, 200},
};

/* A configuration that a program of that version would have: what lies behind
 * its fields is its own. */
static void *config_of(unsigned version, size_t size)
{
	ncclConfig_t *c = malloc(4096);
	char *bytes = (char *)c;
	int undefined = NCCL_CONFIG_UNDEF_INT;

	JOB_CHECK(c, "memory");
	memset(c, 0x5a, 4096);
	for (size_t at = 16; at + 4 <= size; at += 4)
		memcpy(bytes + at, &undefined, 4);
	c->size = size;
	c->magic = NCCL_API_MAGIC;
	c->version = version;
	c->netName = size >= 40 ? NULL : c->netName;
	c->commName = size >= 56 ? NULL : c->commName;
	if (version < 21700)
		memset(bytes + 20, 0x5a, 4); /* padding */
	if (version < 22600 && size >= 48)
		memset(bytes + 44, 0x5a, 4);
	return c;
}

static void configure(struct job_rank *me)
{
	const int i = *(const int *)me->arg;
	unsigned version = layouts[i].version;
	ncclConfig_t *c = config_of(version, layouts[i].size);
	ncclComm_t comm;
	char text[64];

	c->blocking = 0;
	JOB_CHECK(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c) ==
			  ncclInProgress,
		  "%u: blocking was not read: %s", version,
		  ncclGetLastError(NULL));
	JOB_CHECK(settled(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
	works(comm, 1);
	MUST(ncclCommDestroy(comm));
	c->blocking = 7;
	REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c), ARGUMENT,
		"config.blocking 7: not in 0 .. 1");
	c->blocking = 1;
	c->magic = 0xdecade;
	REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c), ARGUMENT,
		"magic 0xdecade");
	c->magic = NCCL_API_MAGIC;
	c->size = 20;
	REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c), ARGUMENT,
		"size 20");
	c->size = layouts[i].size;
	c->version = 12;
	REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c), ARGUMENT,
		"version 12");
	c->version = version;
	if (version >= 21700) {
		c->minCTAs = 9;
		c->maxCTAs = 3;
		REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c),
			ARGUMENT, "minCTAs 9 is above config.maxCTAs 3");
		c->maxCTAs = 32;
		c->cgaClusterSize = 16; /* NCCL takes less of it */
	}
	if (version >= 22800) {
		c->nvlinkCentricSched = 2;
		REFUSES(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c),
			ARGUMENT, "config.nvlinkCentricSched 2: not in 0 .. 1");
		c->nvlinkCentricSched = 1;
	}
	if (version >= 22700) {
		snprintf(text, sizeof(text), "of %u", version);
		c->commName = text;
	}
	MUST(ncclCommInitRankConfig(&comm, 1, unique_id(), 0, c));
	memset(text, 'x', sizeof(text)); /* it was copied */
	works(comm, 1);
	MUST(ncclCommDestroy(comm));
	free(c);
}

static const int numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
#define LAYOUTS ((int)(sizeof(layouts) / sizeof(*layouts)))

START_TEST(options_of_every_version_are_read)
{
	job_run(&(struct job){.run = configure,
			      .arg = &numbers[_i],
			      .ranks = 1,
			      .bare = true,
			      QUIET});
}
END_TEST

static void environment(struct job_rank *me)
{
	ncclComm_t comm;
	int version = 0, level = 0, len = 0, n = 0;
	ncclParamHandle_t h;
	const char *text, **keys;
	char room[64];

	(void)me;
	MUST(ncclGetVersion(&version));
	JOB_CHECK(version == 22705, "version %d", version);
	JOB_CHECK(ncclCommInitRank(&comm, 1, unique_id(), 0) == ncclInProgress,
		  "NCCL_COMM_BLOCKING counts for nothing");
	JOB_CHECK(settled(comm) == ncclSuccess, "it failed");
	MUST(ncclCommDestroy(comm));
	MUST(ncclParamBind(&h, "NCCL_IB_TIMEOUT"));
	MUST(ncclParamGetI32(h, &level));
	JOB_CHECK(level == 17, "%d", level);
	MUST(ncclParamGetStr(h, &text));
	JOB_CHECK(!strcmp(text, "17"), "%s", text);
	MUST(ncclParamGet(h, room, sizeof(room), &len));
	JOB_CHECK(len == 3 && !strcmp(room, "17"), "%d bytes: %s", len, room);
	REFUSES(ncclParamGet(h, room, 1, &len), ARGUMENT, "takes 3 bytes");
	MUST(ncclParamGetParameter("DICOMM_IB_TIMEOUT", &text, &len));
	JOB_CHECK(len == 2 && !strcmp(text, "17"), "%d: %s", len, text);
	REFUSES(ncclParamBind(&h, "NCCL_NONSENSE"), ARGUMENT, "NCCL_NONSENSE");
	REFUSES(ncclParamGetU8((ncclParamHandle_t)(uintptr_t)999,
			       (uint8_t *)room),
		ARGUMENT, "handle");
	MUST(ncclParamGetAllParameterKeys(&keys, &n));
	JOB_CHECK(n > 20 && !strncmp(keys[n - 1], "DICOMM_", 7), "%d keys", n);
}

START_TEST(the_environment_counts)
{
	job_run(&(struct job){
		.run = environment,
		.ranks = 1,
		.bare = true,
		.env = {"DICOMM_DEBUG=none", "DICOMM_NCCL_VERSION=2.27.5",
			"NCCL_COMM_BLOCKING=0", "NCCL_IB_TIMEOUT=17"}});
}
END_TEST

static void properties(struct job_rank *me)
{
	ncclCommProperties_t p = {.size = 56, .magic = NCCL_API_MAGIC};
	ncclComm_t comm = join(me);
	uint64_t least, greatest;
	ncclTeam_t team;

	p.commHash = 77; /* behind what a program of 2.29 has */
	p.deviceApiSupport = true;
	MUST(ncclCommQueryProperties(comm, &p));
	JOB_CHECK(p.rank == me->rank && p.nRanks == me->ranks &&
			  p.cudaDev == -1 && !p.deviceApiSupport &&
			  p.hostRmaSupport && p.commHash == 77 && p.size == 56,
		  "properties");
	p.size = sizeof(p);
	MUST(ncclCommQueryProperties(comm, &p));
	least = greatest = p.commHash;
	MUST(ncclAllReduce(&least, &least, 1, ncclUint64, ncclMin, comm, NULL));
	MUST(ncclAllReduce(&greatest, &greatest, 1, ncclUint64, ncclMax, comm,
			   NULL));
	JOB_CHECK(least && least == greatest, "commHash %llx",
		  (unsigned long long)p.commHash);
	p.magic = 3;
	REFUSES(ncclCommQueryProperties(comm, &p), ARGUMENT, "magic 0x3");
	team = ncclTeamWorld(comm);
	JOB_CHECK(team.nRanks == me->ranks && team.rank == me->rank &&
			  team.stride == 1,
		  "the world");
	JOB_CHECK(ncclTeamLsa(comm).nRanks == 1, "reaches others' memory");
	JOB_CHECK(ncclTeamRankToWorld(comm, ncclTeamLsa(comm), 0) == me->rank,
		  "itself");
	MUST(ncclCommDestroy(comm));
}

START_TEST(properties_are_as_long_as_the_program_has_them)
{
	job_run(&(struct job){
		.run = properties, .ranks = 2, .bare = true, QUIET});
}
END_TEST

/* ---- bad input ---- */

static void ids(struct job_rank *me)
{
	ncclUniqueId id;
	ncclComm_t comm;
	const unsigned char four[] = {2, 0, 0x10, 0x92, 10, 1, 2, 3};

	(void)me;
	memset(&id, 0, sizeof(id));
	REFUSES(ncclCommInitRank(&comm, 2, id, 0), ARGUMENT,
		"all zeros: it was not handed over");
	/* As NCCL has it: a number, then where to meet. */
	memset(&id, 0x6b, 8);
	memcpy(id.internal + 8, four, sizeof(four));
	REFUSES(ncclCommInitRank(&comm, 2, id, 0), ARGUMENT,
		"this id was made by NCCL or RCCL, not by libdicomm: another "
		"process of the job (that listens at 10.1.2.3:4242) runs the "
		"real one");
	id.internal[8] = 10;
	REFUSES(ncclCommInitRankConfig(&comm, 2, id, 0, NULL), ARGUMENT,
		"listens at [");
	REFUSES(ncclCommInitRankScalable(&comm, 2, 0, 1, &id, NULL), ARGUMENT,
		"not by libdicomm");
	strcpy(id.internal, "dicomm1:nonsense");
	REFUSES(ncclCommInitRank(&comm, 2, id, 0), ARGUMENT, "damaged");
	id = unique_id();
	REFUSES(ncclCommInitRank(&comm, 0, id, 0), ARGUMENT, "nranks 0");
	REFUSES(ncclCommInitRank(&comm, 2, id, 2), ARGUMENT, "rank 2");
	REFUSES(ncclCommInitRank(NULL, 2, id, 0), ARGUMENT, "comm is NULL");
	JOB_CHECK(!comm, "a refused init left a handle");
}

START_TEST(ids_that_are_not_ours_are_told)
{
	job_run(&(struct job){.run = ids, .ranks = 1, .bare = true, QUIET});
}
END_TEST

static void handles(struct job_rank *me)
{
	ncclComm_t comm = join(me), stale = comm, none;
	void *foreign = calloc(1, 8192);
	void *nothing =
		mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int x = 1;

	munmap(nothing, 4096);
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, NULL, NULL),
		ARGUMENT, "ncclAllReduce: comm is NULL");
	REFUSES(ncclSend(&x, 1, ncclInt32, 0, foreign, NULL), ARGUMENT,
		"another library has made it");
	REFUSES(ncclCommDestroy(foreign), ARGUMENT, "no communicator of");
	REFUSES(ncclCommAbort(nothing), ARGUMENT, "no communicator of");
	REFUSES(ncclCommCount((ncclComm_t)((char *)comm + 8), &x), ARGUMENT,
		"no communicator of");
	/* On a host rank, no stream waits, and any other is none. */
	works(comm, me->ranks);
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, foreign),
		ARGUMENT, "stream");
	REFUSES(ncclAllReduce(NULL, &x, 1, ncclInt32, ncclSum, comm, NULL),
		ARGUMENT, "send is NULL");
	REFUSES(ncclBroadcast(&x, &x, 1, ncclInt32, 9, comm, NULL), ARGUMENT,
		"root 9");
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, (ncclRedOp_t)5, comm, NULL),
		ARGUMENT, "op 5");
	works(comm, me->ranks);
	MUST(ncclCommDestroy(comm));
	REFUSES(ncclCommDestroy(stale), ARGUMENT, "no communicator any more");
	REFUSES(ncclCommAbort(stale), ARGUMENT, "no communicator any more");
	REFUSES(ncclCommSplit(stale, 0, 0, &none, NULL), ARGUMENT,
		"no communicator any more");
	REFUSES(ncclCommGetAsyncError(stale, (ncclResult_t *)&x), ARGUMENT,
		"no communicator any more");
	MUST(ncclGroupStart());
	REFUSES(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, stale, NULL),
		ARGUMENT, "no communicator any more");
	REFUSES(ncclGroupEnd(), ARGUMENT, "no communicator any more");
	free(foreign);
}

START_TEST(handles_that_are_none_are_told)
{
	job_run(&(struct job){.run = handles, .ranks = 2, .bare = true, QUIET});
}
END_TEST

static void lacking(struct job_rank *me)
{
	ncclCollConfig_t c = {.size = sizeof(c),
			      .magic = NCCL_API_MAGIC,
			      .version = 23203,
			      .algSelection = "ring",
			      .forceAlgSelection = 1};
	ncclEncryptionConfig_t e = {.size = sizeof(e), .magic = NCCL_API_MAGIC};
	ncclComm_t comm = join(me);
	int x = 1;

	REFUSES(ncclDevCommCreate(comm, NULL, NULL), USAGE,
		"ncclDevCommCreate: the device interface");
	REFUSES(mscclLoadAlgo("x", &x, 0), USAGE, "MSCCL");
	MUST(ncclSetEncryption(&e));
	e.mode = 1;
	REFUSES(ncclSetEncryption(&e), USAGE, "too late");
	x = 1;
	REFUSES(ncclAllReduceConfig(&x, &x, 1, ncclInt32, ncclSum, comm, NULL,
				    &c),
		USAGE, "algSelection ring");
	c.forceAlgSelection = 0;
	MUST(ncclAllReduceConfig(&x, &x, 1, ncclInt32, ncclSum, comm, NULL,
				 &c));
	JOB_CHECK(x == me->ranks, "%d", x);
	c.launchCompletionEvent = (cudaEvent_t)(uintptr_t)8;
	REFUSES(ncclAllGatherConfig(&x, &x, 1, ncclInt32, comm, NULL, &c),
		USAGE, "launchCompletionEvent");
	c.magic = 5;
	REFUSES(ncclBroadcastConfig(&x, &x, 1, ncclInt32, 0, comm, NULL, &c),
		ARGUMENT, "magic 0x5");
	works(comm, me->ranks);
	MUST(ncclCommDestroy(comm));
}

START_TEST(what_is_lacking_is_named)
{
	job_run(&(struct job){.run = lacking, .ranks = 2, .bare = true, QUIET});
}
END_TEST

/* Nothing is done with nothing; and nobody dies of it. */
static void nulls(struct job_rank *me)
{
	ncclUniqueId id = unique_id();
	ncclTeam_t t = {0, 0, 0};
	ncclMultimemHandle_t m = {NULL};

	(void)me;
#define NO(call) JOB_CHECK((call) != ncclSuccess, "%s succeeds", #call)
	NO(ncclMemAlloc(NULL, 1));
	NO(ncclGetVersion(NULL));
	NO(ncclGetUniqueId(NULL));
	NO(ncclCommInitRankConfig(NULL, 1, id, 0, NULL));
	NO(ncclCommInitRank(NULL, 1, id, 0));
	NO(ncclCommInitAll(NULL, 1, NULL));
	NO(ncclCommInitRankScalable(NULL, 1, 0, 1, &id, NULL));
	MUST(ncclCommFinalize(NULL));
	MUST(ncclCommRevoke(NULL, 0));
	NO(ncclCommSplit(NULL, 0, 0, NULL, NULL));
	NO(ncclCommShrink(NULL, NULL, 0, NULL, NULL, 0));
	NO(ncclCommGetUniqueId(NULL, NULL));
	NO(ncclCommGrow(NULL, 0, NULL, 0, NULL, NULL));
	NO(ncclCommGetAsyncError(NULL, NULL));
	NO(ncclCommCount(NULL, NULL));
	NO(ncclCommCuDevice(NULL, NULL));
	NO(ncclCommUserRank(NULL, NULL));
	NO(ncclCommRegister(NULL, NULL, 0, NULL));
	NO(ncclCommDeregister(NULL, NULL));
	NO(ncclCommSuspend(NULL, 1));
	NO(ncclCommResume(NULL));
	NO(ncclCommMemStats(NULL, 0, NULL));
	NO(ncclCommWindowRegister(NULL, NULL, 0, NULL, 0));
	NO(ncclCommWindowDeregister(NULL, NULL));
	NO(ncclWinGetUserPtr(NULL, NULL, NULL));
	NO(ncclRedOpCreatePreMulSum(NULL, NULL, 0, 0, NULL));
	NO(ncclRedOpDestroy(0, NULL));
	NO(ncclReduce(NULL, NULL, 0, 0, 0, 0, NULL, NULL));
	NO(ncclBcast(NULL, 0, 0, 0, NULL, NULL));
	NO(ncclBroadcast(NULL, NULL, 0, 0, 0, NULL, NULL));
	NO(ncclAllReduce(NULL, NULL, 0, 0, 0, NULL, NULL));
	NO(ncclReduceScatter(NULL, NULL, 0, 0, 0, NULL, NULL));
	NO(ncclAllGather(NULL, NULL, 0, 0, NULL, NULL));
	NO(ncclAlltoAll(NULL, NULL, 0, 0, NULL, NULL));
	NO(ncclGather(NULL, NULL, 0, 0, 0, NULL, NULL));
	NO(ncclScatter(NULL, NULL, 0, 0, 0, NULL, NULL));
	NO(ncclSend(NULL, 0, 0, 0, NULL, NULL));
	NO(ncclRecv(NULL, 0, 0, 0, NULL, NULL));
	NO(ncclPutSignal(NULL, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL));
	NO(ncclSignal(0, 0, 0, 0, NULL, NULL));
	NO(ncclWaitSignal(0, NULL, NULL, NULL));
	NO(ncclParamBind(NULL, NULL));
	NO(ncclParamGetI8(NULL, NULL));
	NO(ncclParamGetStr(NULL, NULL));
	NO(ncclParamGet(NULL, NULL, 0, NULL));
	NO(ncclParamGetParameter(NULL, NULL, NULL));
	NO(ncclParamGetAllParameterKeys(NULL, NULL));
	MUST(ncclSetEncryption(NULL));
	NO(ncclCommQueryProperties(NULL, NULL));
	NO(ncclDevCommCreate(NULL, NULL, NULL));
	NO(ncclDevCommDestroy(NULL, NULL));
	NO(ncclGetLsaMultimemDevicePointer(NULL, 0, NULL));
	NO(ncclGetMultimemDevicePointer(NULL, 0, m, NULL));
	NO(ncclGetLsaDevicePointer(NULL, 0, 0, NULL));
	NO(ncclGetPeerDevicePointer(NULL, 0, 0, NULL));
	NO(ncclGetMultimemDeviceLeInfo(NULL, 0, NULL, NULL));
	NO(ncclGetCftDeviceLeInfo(NULL, 0, 0, t, NULL, NULL));
	NO(ncclGetPeerDeviceLeInfo(NULL, 0, 0, NULL, NULL));
	NO(ncclLsaBarrierCreateRequirement(t, 0, NULL, NULL));
	NO(ncclGinBarrierCreateRequirement(NULL, t, 0, NULL, NULL));
	NO(ncclGinOutboxCreateRequirement(0, 0, NULL, NULL));
	NO(ncclGinInboxA2ACreateRequirement(t, 0, 0, NULL, NULL));
	NO(ncclLLA2ACreateRequirement(0, 0, NULL, NULL));
	NO(ncclAlltoAllv(NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL));
	NO(ncclAllReduceWithBias(NULL, NULL, 0, 0, 0, NULL, NULL, NULL));
	NO(mscclLoadAlgo(NULL, NULL, 0));
	NO(mscclUnloadAlgo(0));
	NO(ncclGroupSimulateEnd(NULL)); /* of no group */
	MUST(ncclGroupStart());
	MUST(ncclGroupSimulateEnd(NULL));
	JOB_CHECK(!ncclTeamWorld(NULL).nRanks && !ncclTeamLsa(NULL).nRanks,
		  "a team of nobody");
	JOB_CHECK(ncclLLA2ACalcSlots(1, 1) == 0, "slots");
	JOB_CHECK(strlen(ncclGetErrorString((ncclResult_t)99)), "no words");
	MUST(ncclMemFree(NULL));
	MUST(ncclCommDestroy(NULL));
	ncclResetDebugInit();
}

START_TEST(nothing_is_refused_and_nobody_dies)
{
	job_run(&(struct job){.run = nulls, .ranks = 1, .bare = true, QUIET});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nccl");
	TCase *tcase = tcase_create("nccl");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, collectives_do_what_they_say, 1, 5);
	tcase_add_loop_test(tcase, a_group_is_all_or_nothing, 0, 2);
	tcase_add_test(tcase, a_group_can_be_asked_how_long_it_takes);
	tcase_add_test(tcase, more_operators_than_the_library_has);
	tcase_add_test(tcase, memory_is_allocated_registered_and_a_window);
	tcase_add_test(tcase, ranks_meet_at_a_known_address);
	tcase_add_loop_test(tcase, puts_go_into_windows, 0, 3);
	tcase_add_test(tcase, one_thread_puts_for_two_ranks);
	tcase_add_test(tcase, init_all_makes_ranks_of_one_process);
	tcase_add_test(tcase, a_thread_is_many_ranks_by_a_group);
	tcase_add_test(tcase, a_thread_grows_by_a_group);
	tcase_add_test(tcase, a_rank_joins);
	tcase_add_loop_test(tcase, split_and_shrink_make_smaller_ones, 0, 2);
	tcase_add_test(tcase, what_was_revoked_can_be_shrunk);
	tcase_add_test(tcase, a_suspended_communicator_waits);
	tcase_add_test(tcase, abort_ends_what_another_thread_waits_in);
	tcase_add_test(tcase, abort_lets_peers_have_what_was_done);
	tcase_add_test(tcase, what_does_not_block_is_polled);
	/* That does not follow a child whose parent has threads. */
	if (!job_has_thread_sanitizer())
		tcase_add_test(tcase, a_forked_child_is_refused);
	tcase_add_loop_test(tcase, ranks_of_both_interfaces_meet, 0, 2);
	tcase_add_loop_test(tcase, options_of_every_version_are_read, 0,
			    LAYOUTS);
	tcase_add_test(tcase, the_environment_counts);
	tcase_add_test(tcase, properties_are_as_long_as_the_program_has_them);
	tcase_add_test(tcase, ids_that_are_not_ours_are_told);
	tcase_add_test(tcase, handles_that_are_none_are_told);
	tcase_add_test(tcase, what_is_lacking_is_named);
	tcase_add_test(tcase, nothing_is_refused_and_nobody_dies);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
