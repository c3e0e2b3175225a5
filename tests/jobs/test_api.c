/* SPDX-License-Identifier: BSD-3-Clause */
/* What the manual says of calls that are wrong: refused by name and value, and
 * nothing else changes. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define BAD DICOMM_ERR_INVALID_ARGUMENT
#define USAGE DICOMM_ERR_INVALID_USAGE

static void still_works(const struct job_rank *me)
{
	static unsigned seed;

	trial_run((struct trial){.kind = TRIAL_ALLREDUCE,
				 .type = DICOMM_INT32,
				 .count = 1000,
				 .seed = seed++},
		  me);
}

/* ---- operations ---- */

static void bad_reductions(struct job_rank *me)
{
	static int64_t a[64], b[64];
	dicomm_comm_t c = me->comm;
	const dicomm_datatype_t t = DICOMM_INT64;
	const dicomm_redop_t s = DICOMM_SUM;

	/* A call that was good once is checked the next time, too. */
	for (int i = 0; i < 3; i++)
		JOB_TRY(dicomm_allreduce(a, b, 8, t, s, c, NULL));
	JOB_REFUSED(dicomm_allreduce(a, b, 8, t, s, NULL, NULL), BAD,
		    "comm is NULL");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, t, s, (dicomm_comm_t)(void *)a, NULL),
		BAD, "not a communicator");
	JOB_REFUSED(dicomm_allreduce(NULL, b, 8, t, s, c, NULL), BAD,
		    "send is NULL, count is 8");
	JOB_REFUSED(dicomm_allreduce(a, NULL, 8, t, s, c, NULL), BAD,
		    "recv is NULL, count is 8");
	JOB_REFUSED(dicomm_allreduce(a, b, SIZE_MAX / 8, t, s, c, NULL), BAD,
		    "count 2305843009213693951");
	JOB_REFUSED(dicomm_allreduce(a, b, SIZE_MAX, t, s, c, NULL), BAD,
		    "count 18446744073709551615");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, (dicomm_datatype_t)99, s, c, NULL),
		BAD, "type 99");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, (dicomm_datatype_t)-1, s, c, NULL),
		BAD, "type -1");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, (dicomm_datatype_t)12, s, c, NULL),
		BAD, "type 12");
	JOB_REFUSED(dicomm_allreduce(a, b, 8, t, (dicomm_redop_t)5, c, NULL),
		    BAD, "op 5");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, t, (dicomm_redop_t)0x100, c, NULL),
		BAD, "op 256");
	JOB_REFUSED(
		dicomm_allreduce(a, b, 8, DICOMM_FLOAT32, DICOMM_BXOR, c, NULL),
		BAD, "op bxor: not defined for type float32");
	JOB_REFUSED(dicomm_allreduce(a, a + 1, 8, t, s, c, NULL), BAD,
		    "overlap");
	JOB_REFUSED(dicomm_allreduce(a + 7, a, 8, t, s, c, NULL), BAD,
		    "overlap");
	JOB_REFUSED(dicomm_reduce_local(a, b, 8, t, DICOMM_AVG, c, NULL), BAD,
		    "op avg");
	JOB_REFUSED(dicomm_reduce_local(a, a, 8, t, s, c, NULL), BAD,
		    "overlap");
	JOB_REFUSED(dicomm_reduce_local(a, NULL, 8, t, s, c, NULL), BAD,
		    "recv is NULL");
	JOB_REFUSED(dicomm_reduce(a, b, 8, t, s, -1, c, NULL), BAD, "root -1");
	JOB_REFUSED(dicomm_reduce(a, b, 8, t, s, me->ranks, c, NULL), BAD,
		    "root 2: not in 0 .. 1");
	JOB_REFUSED(
		dicomm_reduce_scatter(a, b, SIZE_MAX / 16 + 1, t, s, c, NULL),
		BAD, "count 1152921504606846976");
	JOB_REFUSED(dicomm_reduce_scatter(a, a + 8 * me->rank + 1, 8, t, s, c,
					  NULL),
		    BAD, "overlap");
	/* Without elements there is nothing to be NULL. */
	JOB_TRY(dicomm_allreduce(NULL, NULL, 0, t, s, c, NULL));
	JOB_TRY(dicomm_reduce(a, me->rank ? NULL : b, 8, t, s, 0, c, NULL));
	still_works(me);
}

static void bad_copies(struct job_rank *me)
{
	static int64_t a[64], b[64];
	dicomm_comm_t c = me->comm;
	const dicomm_datatype_t t = DICOMM_INT64;

	JOB_REFUSED(dicomm_broadcast(a, b, 8, t, 2, c, NULL), BAD, "root 2");
	JOB_REFUSED(dicomm_broadcast(a, NULL, 8, t, 0, c, NULL), BAD,
		    "recv is NULL");
	JOB_REFUSED(dicomm_gather(a, b, 8, t, 7, c, NULL), BAD, "root 7");
	JOB_REFUSED(dicomm_gather(NULL, b, 8, t, 0, c, NULL), BAD,
		    "send is NULL");
	JOB_REFUSED(dicomm_scatter(a, b, 8, t, INT_MIN, c, NULL), BAD,
		    "root -2147483648");
	JOB_REFUSED(dicomm_scatter(a, NULL, 8, t, 0, c, NULL), BAD,
		    "recv is NULL");
	JOB_REFUSED(dicomm_allgather(a, NULL, 8, t, c, NULL), BAD,
		    "recv is NULL");
	JOB_REFUSED(dicomm_allgather(a, a + 3, 8, t, c, NULL), BAD, "overlap");
	JOB_REFUSED(dicomm_alltoall(NULL, b, 8, t, c, NULL), BAD,
		    "send is NULL");
	JOB_REFUSED(dicomm_alltoall(a, a + 8, 8, t, c, NULL), BAD, "overlap");
	JOB_REFUSED(dicomm_send(NULL, 8, t, 1 - me->rank, c, NULL), BAD,
		    "send is NULL");
	JOB_REFUSED(dicomm_send(a, 8, t, 2, c, NULL), BAD, "peer 2");
	JOB_REFUSED(dicomm_send(a, SIZE_MAX / 2, t, 0, c, NULL), BAD, "count");
	JOB_REFUSED(dicomm_recv(NULL, 8, t, 1 - me->rank, c, NULL), BAD,
		    "recv is NULL");
	JOB_REFUSED(dicomm_recv(b, 8, t, -1, c, NULL), BAD, "peer -1");
	JOB_REFUSED(dicomm_recv(b, 8, (dicomm_datatype_t)1000, 0, c, NULL), BAD,
		    "type 1000");
	JOB_REFUSED(dicomm_barrier(NULL, NULL), BAD, "comm is NULL");
	JOB_REFUSED(dicomm_barrier(c, b), BAD, "stream");
	still_works(me);
}

static void bad_blocks(struct job_rank *me)
{
	static int64_t a[64], b[64];
	size_t one[2] = {1, 1}, at[2] = {0, 1}, huge[2] = {SIZE_MAX, SIZE_MAX};
	size_t unlike[2] = {2, 3};
	dicomm_comm_t c = me->comm;
	const dicomm_datatype_t t = DICOMM_INT64;

	JOB_REFUSED(dicomm_alltoallv(a, NULL, at, b, one, at, t, c, NULL), BAD,
		    "sendcounts is NULL");
	JOB_REFUSED(dicomm_alltoallv(a, one, NULL, b, one, at, t, c, NULL), BAD,
		    "senddispls is NULL");
	JOB_REFUSED(dicomm_alltoallv(a, one, at, b, NULL, at, t, c, NULL), BAD,
		    "recvcounts is NULL");
	JOB_REFUSED(dicomm_alltoallv(a, one, at, b, one, NULL, t, c, NULL), BAD,
		    "recvdispls is NULL");
	JOB_REFUSED(dicomm_alltoallv(NULL, one, at, b, one, at, t, c, NULL),
		    BAD, "send is NULL");
	JOB_REFUSED(dicomm_alltoallv(a, one, huge, b, one, at, t, c, NULL), BAD,
		    "18446744073709551615");
	JOB_REFUSED(dicomm_alltoallv(a, one, at, b, unlike, at, t, c, NULL),
		    BAD, "itself");
	JOB_REFUSED(dicomm_alltoallv(a, one, at, a + 1, one, at, t, c, NULL),
		    BAD, "overlap");
	JOB_REFUSED(dicomm_allgatherv(a, b, NULL, at, t, c, NULL), BAD,
		    "recvcounts is NULL");
	JOB_REFUSED(dicomm_allgatherv(a, b, one, NULL, t, c, NULL), BAD,
		    "recvdispls is NULL");
	JOB_REFUSED(dicomm_allgatherv(a, b, huge, at, t, c, NULL), BAD,
		    "18446744073709551615");
	JOB_REFUSED(dicomm_allgatherv(NULL, b, one, at, t, c, NULL), BAD,
		    "send is NULL");
	JOB_REFUSED(dicomm_reduce_scatterv(a, b, NULL, t, DICOMM_SUM, c, NULL),
		    BAD, "recvcounts is NULL");
	JOB_REFUSED(dicomm_reduce_scatterv(a, b, huge, t, DICOMM_SUM, c, NULL),
		    BAD, "18446744073709551615");
	JOB_REFUSED(dicomm_reduce_scatterv(a, b, one, t, (dicomm_redop_t)9, c,
					   NULL),
		    BAD, "op 9");
	JOB_REFUSED(
		dicomm_reduce_scatterv(a, NULL, one, t, DICOMM_SUM, c, NULL),
		BAD, "recv is NULL");
	still_works(me);
}

/* Send and receive blocks of one memory, none of which overlap. */
static void one_memory(struct job_rank *me)
{
	int64_t a[8] = {10, 11, 12, 13, 14, 15, 16, 17}, sent;
	size_t one[2] = {1, 1}, low[2] = {1, 2}, high[2] = {5, 6};

	for (int i = 0; i < 8; i++)
		a[i] += 100 * me->rank;
	JOB_TRY(dicomm_alltoallv(a, one, me->rank ? high : low, a, one,
				 me->rank ? low : high, DICOMM_INT64, me->comm,
				 NULL));
	for (int r = 0; r < 2; r++) {
		sent = 10 + 100 * r + (int64_t)(r ? high : low)[me->rank];
		JOB_CHECK(a[(me->rank ? low : high)[r]] == sent,
			  "%lld from rank %d instead of %lld",
			  (long long)a[(me->rank ? low : high)[r]], r,
			  (long long)sent);
	}
	a[0] = 7 + me->rank;
	low[0] = 3;
	low[1] = 2;
	JOB_TRY(dicomm_allgatherv(a, a, one, low, DICOMM_INT64, me->comm,
				  NULL));
	JOB_CHECK(a[3] == 7 && a[2] == 8 && a[0] == 7 + me->rank,
		  "gathered %lld, %lld", (long long)a[3], (long long)a[2]);
	/* One between the other's. */
	a[3] = 30 + me->rank;
	low[0] = 2;
	low[1] = 4;
	JOB_TRY(dicomm_allgatherv(&a[3], a, one, low, DICOMM_INT64, me->comm,
				  NULL));
	JOB_CHECK(a[2] == 30 && a[4] == 31 && a[3] == 30 + me->rank,
		  "gathered %lld, %lld", (long long)a[2], (long long)a[4]);
	high[0] = 1;
	high[1] = 3;
	JOB_TRY(dicomm_alltoallv(a, one, low, a, one, high, DICOMM_INT64,
				 me->comm, NULL));
	JOB_CHECK(a[1] == 30 + me->rank && a[3] == 30 + me->rank,
		  "exchanged %lld, %lld", (long long)a[1], (long long)a[3]);
	high[1] = 4;
	JOB_REFUSED(dicomm_alltoallv(a, one, low, a, one, high, DICOMM_INT64,
				     me->comm, NULL),
		    BAD, "overlap");
}

START_TEST(blocks_of_one_memory_may_lie_apart)
{
	job_run(&(struct job){.run = one_memory, .ranks = 2});
}
END_TEST

static void (*const bad_calls[])(struct job_rank *me) = {
	bad_reductions, bad_copies, bad_blocks};

START_TEST(a_bad_argument_is_named_and_has_no_effect)
{
	job_run(&(struct job){.run = bad_calls[_i], .ranks = 2});
}
END_TEST

/* ---- created operators ---- */

static void created(struct job_rank *me)
{
	dicomm_redop_t op[65];
	int32_t two = 2, in = 5, out = 0, got;
	float f = 1;
	const dicomm_scalar_residence_t host = DICOMM_SCALAR_HOST_IMMEDIATE;
	dicomm_comm_t c = me->comm, other;

	JOB_REFUSED(dicomm_redop_create_premulsum(NULL, &two, DICOMM_INT32,
						  host, c),
		    BAD, "op is NULL");
	JOB_REFUSED(
		dicomm_redop_create_premulsum(op, NULL, DICOMM_INT32, host, c),
		BAD, "scalar is NULL");
	JOB_REFUSED(dicomm_redop_create_premulsum(
			    op, &two, (dicomm_datatype_t)77, host, c),
		    BAD, "type 77");
	JOB_REFUSED(dicomm_redop_create_premulsum(op, &two, DICOMM_INT32,
						  (dicomm_scalar_residence_t)3,
						  c),
		    BAD, "residence 3");
	JOB_REFUSED(dicomm_redop_destroy(DICOMM_SUM, c), BAD, "op 0");
	JOB_REFUSED(dicomm_redop_destroy((dicomm_redop_t)0x100, c), BAD,
		    "op 256");
	for (int i = 0; i < 64; i++)
		JOB_TRY(dicomm_redop_create_premulsum(&op[i], &two,
						      DICOMM_INT32, host, c));
	JOB_REFUSED(dicomm_redop_create_premulsum(&op[64], &two, DICOMM_INT32,
						  host, c),
		    USAGE, "64");
	JOB_REFUSED(dicomm_allreduce(&f, &f, 1, DICOMM_FLOAT32, op[3], c, NULL),
		    BAD, "created for type int32");
	JOB_REFUSED(
		dicomm_reduce_local(&in, &out, 1, DICOMM_INT32, op[3], c, NULL),
		BAD, "op premulsum");
	JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], c, NULL));
	JOB_CHECK(out == 2 * 5 * me->ranks, "premulsum gave %d", out);
	JOB_TRY(dicomm_redop_destroy(op[63], c));
	JOB_REFUSED(
		dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], c, NULL),
		BAD, "no such operator");
	/* A new one of the same number has its own scalar. */
	two = 3 + me->rank;
	JOB_TRY(dicomm_redop_create_premulsum(&op[63], &two, DICOMM_INT32, host,
					      c));
	JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], c, NULL));
	JOB_CHECK(out == 5 * (3 + 4), "another premulsum gave %d", out);
	/* It belongs to one communicator. */
	JOB_TRY(dicomm_comm_split(c, 0, 0, &other, NULL));
	JOB_REFUSED(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], other,
				     NULL),
		    BAD, "no such operator");
	JOB_TRY(dicomm_comm_destroy(other));
	/* Destroyed behind a queued call, which goes on. */
	{
		dicomm_stream_t stream;

		JOB_TRY(dicomm_host_stream_create(&stream));
		out = 0;
		JOB_TRY(dicomm_recv(&got, 1, DICOMM_INT32, !me->rank, c,
				    stream));
		JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], c,
					 stream));
		JOB_TRY(dicomm_redop_destroy(op[63], c));
		JOB_TRY(dicomm_send(&in, 1, DICOMM_INT32, !me->rank, c, NULL));
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		JOB_CHECK(out == 5 * (3 + 4), "queued: %d", out);
		JOB_REFUSED(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63],
					     c, NULL),
			    BAD, "no such operator");
		JOB_TRY(dicomm_host_stream_destroy(stream));
	}
	/* Destroyed, and its place taken, inside the group of a call. */
	out = 0;
	two = 2;
	JOB_TRY(dicomm_redop_create_premulsum(&op[63], &two, DICOMM_INT32, host,
					      c));
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, op[63], c, NULL));
	JOB_TRY(dicomm_redop_destroy(op[63], c));
	two = 9;
	JOB_TRY(dicomm_redop_create_premulsum(&op[63], &two, DICOMM_INT32, host,
					      c));
	JOB_TRY(dicomm_group_end());
	JOB_CHECK(out == 5 * 2 * me->ranks, "grouped: %d", out);
	still_works(me);
}

START_TEST(created_operators_live_and_die)
{
	for (int i = 0; i < 3; i++)
		job_run(&(struct job){.run = created, .ranks = 2});
}
END_TEST

/* ---- queries ---- */

static void queries(struct job_rank *me)
{
	dicomm_comm_t c = me->comm;
	dicomm_result_t status = DICOMM_IN_PROGRESS;
	const char *device;
	int n = -1;

	JOB_TRY(dicomm_comm_count(c, &n));
	JOB_CHECK(n == me->ranks, "count %d", n);
	JOB_TRY(dicomm_comm_user_rank(c, &n));
	JOB_CHECK(n == me->rank, "rank %d", n);
	JOB_TRY(dicomm_comm_device(c, &device));
	JOB_CHECK(!strcmp(device, "host"), "device %s", device);
	JOB_TRY(dicomm_comm_get_async_error(c, &status));
	JOB_CHECK(status == DICOMM_SUCCESS, "async error %d", (int)status);

	JOB_REFUSED(dicomm_comm_count(NULL, &n), BAD, "comm");
	JOB_REFUSED(dicomm_comm_count(c, NULL), BAD, "count is NULL");
	JOB_REFUSED(dicomm_comm_user_rank(c, NULL), BAD, "rank is NULL");
	JOB_REFUSED(dicomm_comm_device(c, NULL), BAD, "device is NULL");
	JOB_REFUSED(dicomm_comm_get_async_error(c, NULL), BAD,
		    "async_error is NULL");
	JOB_REFUSED(dicomm_comm_get_async_error(NULL, &status), BAD, "comm");
	JOB_REFUSED(dicomm_comm_stats(c, NULL), BAD, "stats is NULL");
	JOB_REFUSED(dicomm_comm_abort(NULL), BAD, "comm");
	JOB_REFUSED(dicomm_comm_finalize(NULL), BAD, "comm");
	JOB_TRY(dicomm_comm_destroy(NULL));
	still_works(me);
}

/* Counters count, and an older caller's shorter struct is filled as far as it
 * goes. */
static void stats(struct job_rank *me)
{
	dicomm_stats_t before = {.size = sizeof(before)}, after = before;
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT32,
			  .count = 100000};
	size_t bytes = 4 * t.count, n = (size_t)me->ranks;
	struct {
		dicomm_stats_t stats;
		uint8_t behind;
	} part;

	JOB_TRY(dicomm_comm_stats(me->comm, &before));
	JOB_CHECK(before.operations == 0 && before.size == sizeof(before),
		  "%d operations", (int)before.operations);
	trial_run(t, me);
	JOB_TRY(dicomm_comm_stats(me->comm, &after));
	JOB_CHECK(after.operations == 1, "%d operations",
		  (int)after.operations);
	JOB_CHECK(after.bytes_sent >= bytes / n && after.messages_sent,
		  "%zu bytes sent", (size_t)after.bytes_sent);
	JOB_CHECK(after.bytes_received >= bytes / n && after.messages_received,
		  "%zu bytes received", (size_t)after.bytes_received);
	JOB_CHECK(after.bytes_ring + after.bytes_mapped + after.bytes_cma +
				  after.bytes_rdma ==
			  after.bytes_received,
		  "%zu + %zu + %zu + %zu bytes of %zu",
		  (size_t)after.bytes_ring, (size_t)after.bytes_mapped,
		  (size_t)after.bytes_cma, (size_t)after.bytes_rdma,
		  (size_t)after.bytes_received);
	JOB_CHECK(after.bytes_staged == 0, "staged");
	JOB_CHECK(after.connected_peers >= 1 && after.connected_peers < n,
		  "%d peers", (int)after.connected_peers);
	JOB_CHECK(after.memory_bytes > 0, "no memory");
	/* Small calls take another way through the library. */
	before = after;
	t.count = 4;
	for (int i = 0; i < 5; i++)
		trial_run(t, me);
	JOB_TRY(dicomm_comm_stats(me->comm, &after));
	JOB_CHECK(after.operations == before.operations + 5, "%d operations",
		  (int)after.operations);
	JOB_CHECK(after.bytes_sent >= before.bytes_sent + 5 * 4,
		  "small calls sent %d bytes",
		  (int)(after.bytes_sent - before.bytes_sent));
	JOB_CHECK(after.bytes_ring + after.bytes_mapped + after.bytes_cma +
				  after.bytes_rdma ==
			  after.bytes_received,
		  "small calls: %zu + %zu + %zu + %zu bytes of %zu",
		  (size_t)after.bytes_ring, (size_t)after.bytes_mapped,
		  (size_t)after.bytes_cma, (size_t)after.bytes_rdma,
		  (size_t)after.bytes_received);

	memset(&part, 0x5a, sizeof(part));
	part.stats.size = offsetof(dicomm_stats_t, messages_sent);
	JOB_TRY(dicomm_comm_stats(me->comm, &part.stats));
	JOB_CHECK(part.stats.operations == after.operations &&
			  part.stats.messages_sent ==
				  UINT64_C(0x5a5a5a5a5a5a5a5a),
		  "a shorter struct is not respected");
	part.stats.size = 0;
	JOB_REFUSED(dicomm_comm_stats(me->comm, &part.stats), BAD, "size 0");
}

static void explained(struct job_rank *me)
{
	static const char *const operations[] = {
		"allreduce", "reduce",     "broadcast",       "reduce_scatter",
		"allgather", "alltoall",   "gather",          "scatter",
		"alltoallv", "allgatherv", "reduce_scatterv", "barrier"};
	char text[2000], tiny[10], all[2 * sizeof(text)];

	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		for (size_t count = 1; count < 10000000; count *= 100) {
			JOB_TRY(dicomm_comm_explain(me->comm, operations[i],
						    count, DICOMM_FLOAT32, text,
						    sizeof(text)));
			JOB_CHECK(strstr(text, operations[i]) &&
					  strstr(text, "chosen"),
				  "%s: %s", operations[i], text);
			memset(text + strlen(text), 0,
			       sizeof(text) - strlen(text));
			JOB_TRY(dicomm_allgather(text, all, sizeof(text),
						 DICOMM_CHAR, me->comm, NULL));
			JOB_CHECK(
				!memcmp(all, all + sizeof(text), sizeof(text)),
				"the ranks read different tables: %s %s", all,
				all + sizeof(text));
		}
	memset(tiny, 'x', sizeof(tiny));
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1, DICOMM_INT8, tiny,
				    sizeof(tiny)));
	JOB_CHECK(!tiny[9] && !strncmp(tiny, "allreduce", 9), "%.10s", tiny);
	JOB_REFUSED(dicomm_comm_explain(me->comm, "dance", 1, DICOMM_INT8, text,
					sizeof(text)),
		    BAD, "dance");
	JOB_REFUSED(dicomm_comm_explain(me->comm, NULL, 1, DICOMM_INT8, text,
					sizeof(text)),
		    BAD, "NULL");
	JOB_REFUSED(dicomm_comm_explain(me->comm, "allreduce", 1,
					(dicomm_datatype_t)50, text,
					sizeof(text)),
		    BAD, "type 50");
	JOB_REFUSED(dicomm_comm_explain(me->comm, "allreduce", 1, DICOMM_INT8,
					text, 0),
		    BAD, "no room");
	JOB_REFUSED(dicomm_comm_explain(me->comm, "allreduce", 1, DICOMM_INT8,
					NULL, 10),
		    BAD, "no room");
}

static void (*const asking[])(struct job_rank *me) = {queries, stats,
						      explained};

START_TEST(queries_answer)
{
	job_run(&(struct job){.run = asking[_i], .ranks = 2});
}
END_TEST

/* The names and times are those that explain shows. */
static void predictions(void)
{
	static const size_t sizes[] = {8, 1 << 20};
	char text[2048], words[64];
	const char *name;
	double s[2];
	int i = 0;

	JOB_TRY(dicomm_explain("allreduce", 6, 1 << 20, text, sizeof(text)));
	for (; dicomm_predict(NULL, "allreduce", 6, i, sizes, 2, &name, s) ==
	       DICOMM_SUCCESS;
	     i++) {
		JOB_CHECK(strstr(text, name), "%s: not in\n%s", name, text);
		if (isnan(s[1]))
			continue;
		JOB_CHECK(s[1] > 0 && (isnan(s[0]) || s[0] <= s[1]), "%s: %g",
			  name, s[1]);
		snprintf(words, sizeof(words), " %.2f",
			 floor(s[1] * 1e8 + 0.5 + 1e-6) / 100);
		JOB_CHECK(strstr(text, words), "%s: no %s in\n%s", name, words,
			  text);
	}
	JOB_CHECK(i > 4, "%d algorithms", i);
	JOB_CHECK(!name, "%s: an algorithm past the end", name);
	name = text;
	JOB_REFUSED(
		dicomm_predict(NULL, "allreduce", 6, -1, sizes, 2, &name, s),
		BAD, "no algorithm");
	JOB_CHECK(!name, "%s: algorithm -1", name);
	name = text;
	JOB_REFUSED(dicomm_predict(NULL, "send", 6, 0, sizes, 2, &name, s), BAD,
		    "send");
	JOB_REFUSED(dicomm_predict(NULL, "allreduce", 0, 0, sizes, 2, &name, s),
		    BAD, "nranks 0");
	JOB_REFUSED(dicomm_predict(NULL, "allreduce", 6, 0, NULL, 2, &name, s),
		    BAD, "bytes");
	JOB_REFUSED(dicomm_predict("/nowhere.json", "allreduce", 6, 0, sizes, 2,
				   &name, s),
		    BAD, "nowhere");
	JOB_CHECK(name == text, "no file: not the end of the algorithms");
}

/* What a file says of a node counts where all ranks are on it, too: a GiB in
 * 2.4 ms from one to another, which no core of this machine keeps up with. */
static void prediction_of_a_node(void)
{
	const char *top = getenv("srcdir"), *name;
	size_t gib = (size_t)1 << 30;
	char path[512];
	double s;

	snprintf(path, sizeof(path), "%s/tests/topo/four_chips.json",
		 top ? top : ".");
	JOB_TRY(dicomm_predict(path, "allgather", 8, 0, &gib, 1, &name, &s));
	JOB_CHECK(s > 2e-3 && s < 8e-3, "%s: %g s", name, s);
}

static void take_json(const char *json, void *ctx)
{
	(void)ctx;
	job_fail("nobody was asked, and told %s", json);
}

static void without_communicator(struct job_rank *me)
{
	dicomm_transport_info_t transport;
	dicomm_adapter_info_t adapter;
	dicomm_network_info_t network;
	dicomm_device_info_t device;
	dicomm_param_info_t param;
	dicomm_unique_id_t id;
	char text[2000];
	int n = 0;

	(void)me;
	JOB_TRY(dicomm_get_version(&n));
	JOB_CHECK(n == DICOMM_VERSION, "version %d", n);
	JOB_REFUSED(dicomm_get_version(NULL), BAD, "version is NULL");
	JOB_REFUSED(dicomm_get_unique_id(NULL), BAD, "id is NULL");
	JOB_REFUSED(dicomm_unique_id_at(NULL, 0, &id), BAD, "address is NULL");
	JOB_REFUSED(dicomm_unique_id_at("a:1", 0, NULL), BAD, "id is NULL");
	JOB_REFUSED(dicomm_unique_id_at("a:1", -1, &id), BAD, "rank -1");
	JOB_REFUSED(dicomm_unique_id_at("a", 1, &id), BAD, "\"a\" is not host");
	for (int i = -1; i < 30; i++)
		JOB_CHECK(dicomm_get_error_string((dicomm_result_t)i)[0],
			  "no text for result %d", i);

	for (n = 0; dicomm_param_info(n, &param) == DICOMM_SUCCESS; n++)
		JOB_CHECK(!strncmp(param.name, "DICOMM_", 7) && param.help[0],
			  "parameter %d", n);
	JOB_CHECK(n > 10, "%d parameters", n);
	JOB_CHECK(dicomm_param_info(-1, &param) == BAD, "parameter -1");
	JOB_REFUSED(dicomm_param_info(0, NULL), BAD, "info is NULL");
	for (n = 0; dicomm_transport_info(n, &transport) == DICOMM_SUCCESS; n++)
		JOB_CHECK(transport.name[0] && transport.reason[0],
			  "transport %d", n);
	JOB_CHECK(n > 0, "no transports");
	JOB_CHECK(dicomm_transport_info(-1, &transport) == BAD, "transport -1");
	for (n = 0; dicomm_adapter_info(n, &adapter) == DICOMM_SUCCESS; n++)
		JOB_CHECK(adapter.transport && adapter.adapter[0] &&
				  adapter.device[0] && adapter.how[0],
			  "adapter %d", n);
	JOB_CHECK(dicomm_adapter_info(-1, &adapter) == BAD, "adapter -1");
	JOB_REFUSED(dicomm_adapter_info(0, NULL), BAD, "info is NULL");
	JOB_REFUSED(dicomm_transport_info(0, NULL), BAD, "info is NULL");
	JOB_TRY(dicomm_network_info(&network));
	JOB_CHECK(network.interface[0] && network.address[0] &&
			  network.reason[0],
		  "\"%s\" \"%s\" \"%s\"", network.interface, network.address,
		  network.reason);
	JOB_REFUSED(dicomm_network_info(NULL), BAD, "info is NULL");
	JOB_REFUSED(dicomm_job_info(NULL, take_json, NULL), BAD,
		    "address is NULL");
	JOB_REFUSED(dicomm_job_info("127.0.0.1:1", NULL, NULL), BAD,
		    "fn is NULL");
	JOB_REFUSED(dicomm_job_info("4711:", take_json, NULL), BAD,
		    "\"4711:\" is not host:port");
	JOB_TRY(dicomm_device_info(0, &device));
	JOB_CHECK(!strcmp(device.name, "host"), "device 0 is %s", device.name);
	JOB_CHECK(dicomm_device_info(-1, &device) == BAD, "device -1");
	JOB_CHECK(dicomm_device_info(1000, &device) == BAD, "device 1000");
	JOB_REFUSED(dicomm_device_info(0, NULL), BAD, "info is NULL");

	JOB_TRY(dicomm_explain("allgather", 8, 1 << 20, text, sizeof(text)));
	JOB_CHECK(strstr(text, "chosen"), "%s", text);
	JOB_REFUSED(dicomm_explain("allgather", 0, 1, text, sizeof(text)), BAD,
		    "nranks 0");
	JOB_REFUSED(dicomm_explain("send", 2, 1, text, sizeof(text)), BAD,
		    "send");

	JOB_TRY(dicomm_explain_devices("host", "host", text, sizeof(text)));
	JOB_CHECK(!strcmp(text, "host memory"), "%s", text);
	JOB_TRY(dicomm_explain_devices("host", "host", text, 5));
	JOB_CHECK(!strcmp(text, "host"), "%s", text);
	JOB_REFUSED(
		dicomm_explain_devices("host", "toaster:0", text, sizeof(text)),
		BAD, "second toaster:0");
	JOB_REFUSED(dicomm_explain_devices(NULL, "host", text, sizeof(text)),
		    BAD, "first is NULL");
	JOB_REFUSED(dicomm_explain_devices("host", "host", text, 0), BAD,
		    "no room");
	predictions();
	prediction_of_a_node();
}

/* Nobody runs without a protection that was asked for by a wrong word. */
START_TEST(no_communicator_is_made_without_a_protection)
{
	dicomm_unique_id_t id;
	dicomm_comm_t comm;

	setenv("DICOMM_ENCRYPT", "aes", 1);
	ck_assert_int_eq(dicomm_comm_init_all(&comm, 1, NULL),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_msg(!!strstr(dicomm_get_last_error(NULL),
			       "DICOMM_ENCRYPT aes is not valid"),
		      "%s", dicomm_get_last_error(NULL));
	ck_assert_int_eq(dicomm_get_unique_id(&id),
			 DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(what_needs_no_communicator_works_without_one)
{
	job_run(&(struct job){
		.run = without_communicator, .ranks = 1, .bare = true});
}
END_TEST

/* ---- large counts ---- */

/* A few pages, mapped over and over: room for any count. */
#define PAGES_BYTES ((size_t)25603 * 4096)

static uint8_t *map_over_and_over(size_t bytes)
{
	int fd = memfd_create("pages", 0);
	uint8_t *at;

	JOB_CHECK(fd >= 0 && ftruncate(fd, (off_t)PAGES_BYTES) == 0,
		  "memfd: %m");
	at = mmap(NULL, bytes + PAGES_BYTES, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	JOB_CHECK(at != MAP_FAILED, "mmap: %m");
	for (size_t b = 0; b < bytes; b += PAGES_BYTES)
		JOB_CHECK(mmap(at + b, PAGES_BYTES, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_FIXED, fd, 0) == at + b,
			  "mmap: %m");
	close(fd);
	return at;
}

static uint32_t word(size_t i)
{
	return (uint32_t)(i * 2654435761u >> 3);
}

/* Of 2^32 and some more bytes; who forgot the upper bits would move only the
 * latter, or would take them from another place. */
static void beyond_32_bits(struct job_rank *me)
{
	size_t bytes = ((size_t)1 << 32) + 123456, n = PAGES_BYTES / 4;
	uint8_t *at = map_over_and_over(bytes);
	uint32_t *words = (uint32_t *)at;

	for (size_t i = 0; i < n && me->rank == 0; i++)
		words[i] = word(i);
	if (!strcmp(me->arg, "broadcast"))
		JOB_TRY(dicomm_broadcast(at, at, bytes, DICOMM_UINT8, 0,
					 me->comm, NULL));
	else if (!strcmp(me->arg, "allreduce"))
		/* However often the same page is reduced. */
		JOB_TRY(dicomm_allreduce(at, at, bytes, DICOMM_UINT8,
					 DICOMM_MAX, me->comm, NULL));
	else if (me->rank == 0)
		JOB_TRY(dicomm_send(at, bytes, DICOMM_UINT8, 1, me->comm,
				    NULL));
	else
		JOB_TRY(dicomm_recv(at, bytes, DICOMM_UINT8, 0, me->comm,
				    NULL));
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(words[i] == word(i), "word %zu is %#x, not %#x", i,
			  words[i], word(i));
	munmap(at, bytes + PAGES_BYTES);
}

START_TEST(a_count_may_have_more_than_32_bits)
{
	static const char *const calls[] = {"broadcast", "allreduce", "send"};

	job_run(&(struct job){.run = beyond_32_bits,
			      .ranks = 2,
			      .timeout_s = 60,
			      .arg = calls[_i]});
}
END_TEST

static uint8_t *map_sparsely(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	JOB_CHECK(at != MAP_FAILED, "mmap: %m");
	return at;
}

/* Short blocks that lie far apart: who forgot the upper bits of where they do
 * would take them from another place, or put them there. */
static void far_apart(struct job_rank *me)
{
	enum { BLOCK = 100000 };
	const size_t counts[] = {BLOCK, BLOCK};
	const size_t displs[] = {16, ((size_t)5 << 30) + 48};
	const size_t room = displs[1] + BLOCK;
	uint8_t *from = map_sparsely(room), *to = map_sparsely(room);
	bool gathers = !strcmp(me->arg, "allgatherv");

	for (size_t i = 0; i < BLOCK; i++)
		for (int d = 0; d < 2; d++)
			from[displs[d] + i] = (uint8_t)word(
				i * 4 + (size_t)me->rank * 2 + (size_t)d);
	if (gathers)
		JOB_TRY(dicomm_allgatherv(from + displs[1], to, counts, displs,
					  DICOMM_UINT8, me->comm, NULL));
	else
		JOB_TRY(dicomm_alltoallv(from, counts, displs, to, counts,
					 displs, DICOMM_UINT8, me->comm, NULL));
	for (size_t i = 0; i < BLOCK; i++)
		for (size_t r = 0; r < 2; r++) {
			size_t block = gathers ? 1 : (size_t)me->rank;
			uint8_t right = (uint8_t)word(i * 4 + r * 2 + block);

			JOB_CHECK(to[displs[r] + i] == right,
				  "of rank %zu, element %zu: %u, not %u", r, i,
				  to[displs[r] + i], right);
		}
	munmap(from, room);
	munmap(to, room);
}

/* Where blocks lie: of the first rank the first one first, and so on. */
#define LAID 5
#define LAID_BYTES 100000
#define GUARD ((size_t)256 << 10) /* between two that lie near each other */
#define GUARD_BYTES ((size_t)64 << 10)
static const size_t laid[LAID] = {((size_t)5 << 30) + 48, 16, 460000,
				  16 + LAID_BYTES + 9,
				  GUARD + GUARD_BYTES + 100};

static size_t lies_at(int rank, int block)
{
	return laid[(rank + block) % LAID];
}

/* What is sent may overlap: the second in memory does half the first. */
static size_t sent_from(int rank, int block)
{
	size_t at = lies_at(rank, block);

	return at == laid[3] ? at - LAID_BYTES / 2 : at;
}

static uint8_t laid_byte(int rank, size_t at)
{
	return (uint8_t)word(at * LAID + (size_t)rank);
}

static uint8_t *map_guarded(size_t bytes)
{
	uint8_t *at = map_sparsely(bytes);

	JOB_CHECK(!mprotect(at + GUARD, GUARD_BYTES, PROT_NONE),
		  "mprotect: %m");
	return at;
}

static void check_laid(const uint8_t *block, int rank, size_t at)
{
	for (size_t i = 0; i < LAID_BYTES; i++)
		JOB_CHECK(block[i] == laid_byte(rank, at + i),
			  "of rank %d, element %zu: %u, not %u", rank, i,
			  block[i], laid_byte(rank, at + i));
}

/* In any order, some near each other, some far; what is empty lies nowhere, and
 * not all that is between may be touched. */
static void laid_out(struct job_rank *me)
{
	const size_t room = laid[0] + LAID_BYTES, nowhere = (size_t)1 << 46;
	uint8_t *from = map_guarded(room), *to = map_guarded(room);
	bool gathers = !strcmp(me->arg, "allgatherv");
	size_t n[LAID], sent[LAID], received[LAID];

	for (int r = 0; r < LAID; r++) {
		bool empty = (gathers ? r : r + me->rank) % LAID == 3;

		n[r] = empty ? 0 : LAID_BYTES;
		sent[r] = empty ? nowhere : sent_from(me->rank, r);
		received[r] = empty ? nowhere : lies_at(me->rank, r);
		for (size_t i = 0; i < LAID_BYTES; i++)
			from[sent_from(me->rank, r) + i] =
				laid_byte(me->rank, sent_from(me->rank, r) + i);
	}
	if (gathers)
		JOB_TRY(dicomm_allgatherv(from + sent_from(me->rank, 0), to, n,
					  received, DICOMM_UINT8, me->comm,
					  NULL));
	else
		JOB_TRY(dicomm_alltoallv(from, n, sent, to, n, received,
					 DICOMM_UINT8, me->comm, NULL));
	for (int r = 0; r < LAID; r++)
		if (n[r])
			check_laid(to + received[r], r,
				   sent_from(r, gathers ? 0 : me->rank));
	munmap(from, room);
	munmap(to, room);
}

START_TEST(blocks_may_lie_in_any_order_near_and_far)
{
	static const char *const calls[] = {"alltoallv", "allgatherv"};

	job_run(&(struct job){
		.run = laid_out, .ranks = LAID, .arg = calls[_i]});
}
END_TEST

START_TEST(blocks_may_lie_further_apart_than_32_bits)
{
	static const char *const calls[] = {"alltoallv", "allgatherv"};

	job_run(&(struct job){.run = far_apart, .ranks = 2, .arg = calls[_i]});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api");
	TCase *tcase = tcase_create("api");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, blocks_of_one_memory_may_lie_apart);
	tcase_add_loop_test(tcase, a_bad_argument_is_named_and_has_no_effect, 0,
			    sizeof(bad_calls) / sizeof(*bad_calls));
	tcase_add_test(tcase, created_operators_live_and_die);
	tcase_add_loop_test(tcase, queries_answer, 0,
			    sizeof(asking) / sizeof(*asking));
	tcase_add_test(tcase, no_communicator_is_made_without_a_protection);
	/* It loads UCX, in which that sanitizer ends a thread that ends. */
	if (!job_has_thread_sanitizer())
		tcase_add_test(tcase,
			       what_needs_no_communicator_works_without_one);
	tcase_add_loop_test(tcase, blocks_may_lie_further_apart_than_32_bits, 0,
			    2);
	tcase_add_loop_test(tcase, blocks_may_lie_in_any_order_near_and_far, 0,
			    2);
	/* It would look at each of the bytes; and 4 GiB take long. */
	if (!job_has_thread_sanitizer() && !job_is_short())
		tcase_add_loop_test(tcase, a_count_may_have_more_than_32_bits,
				    0, job_is_sanitized() ? 1 : 3);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
