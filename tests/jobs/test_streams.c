/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on host streams: in the order of their streams, in the background,
 * with errors where they are asked for. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/comm.h"
#include "tests/support/runner.h"
#include "tests/support/trial.h"

static dicomm_stream_t new_stream(void)
{
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	return stream;
}

/* Each operation reads what the one before has written. */
static void chain(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	int64_t a = 1, b = 0, want = 1;

	for (int i = 0; i < 15; i++) {
		JOB_TRY(dicomm_allreduce(&a, &b, 1, DICOMM_INT64, DICOMM_SUM,
					 me->comm, stream));
		JOB_TRY(dicomm_allreduce(&b, &a, 1, DICOMM_INT64, DICOMM_MAX,
					 me->comm, stream));
		want *= me->ranks;
	}
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_CHECK(a == want && b == want, "%ld and %ld instead of %ld", (long)a,
		  (long)b, (long)want);
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(operations_of_a_stream_run_in_order)
{
	for (int n = 1; n <= 4; n++)
		job_run(&(struct job){.run = chain, .ranks = n});
}
END_TEST

/* One stream, two communicators: the order of the stream holds between them. */
static void relay(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	dicomm_comm_t other;
	int64_t a = 1, b = 0, want = 1;

	JOB_TRY(dicomm_comm_split(me->comm, 0, -me->rank, &other, NULL));
	for (int i = 0; i < 15; i++) {
		JOB_TRY(dicomm_allreduce(&a, &b, 1, DICOMM_INT64, DICOMM_SUM,
					 me->comm, stream));
		JOB_TRY(dicomm_allreduce(&b, &a, 1, DICOMM_INT64, DICOMM_SUM,
					 other, stream));
		want *= me->ranks * me->ranks;
	}
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_CHECK(a == want, "%ld instead of %ld", (long)a, (long)want);
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(a_stream_orders_two_communicators)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = relay, .ranks = n});
}
END_TEST

/* Two streams, one communicator: all of it happens, in call order. */
static void both(struct job_rank *me)
{
	dicomm_stream_t stream[2] = {new_stream(), new_stream()};
	struct trial t[20];

	for (unsigned i = 0; i < 20; i++) {
		t[i] = (struct trial){
			.kind = (enum trial_kind)(i % TRIAL_KINDS),
			.type = DICOMM_INT32,
			.count = i % 3 ? 100 : 60000,
			.seed = i};
		trial_fill(&t[i], me);
	}
	for (int i = 0; i < 20; i++)
		JOB_TRY(trial_call(&t[i], stream[i / 2 % 2]));
	JOB_TRY(dicomm_host_stream_synchronize(stream[1]));
	JOB_TRY(dicomm_host_stream_synchronize(stream[0]));
	for (int i = 0; i < 20; i++) {
		trial_check(&t[i]);
		trial_free(&t[i]);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream[0]));
	JOB_TRY(dicomm_host_stream_destroy(stream[1]));
}

START_TEST(two_streams_share_a_communicator)
{
	for (int n = 1; n <= 4; n++)
		job_run(&(struct job){.run = both, .ranks = n});
}
END_TEST

/* A program that always waits for something makes ever new calls. */
static void ever_new(struct job_rank *me)
{
	static int32_t in[1000], out[1000];
	dicomm_stream_t waits = new_stream(), works = new_stream();
	int32_t last = me->rank, other = -1;

	JOB_TRY(dicomm_recv(&other, 1, DICOMM_INT32, !me->rank, me->comm,
			    waits));
	for (size_t n = 1; n < 1000; n++)
		JOB_TRY(dicomm_allreduce(in, out, n, DICOMM_INT32, DICOMM_SUM,
					 me->comm, works));
	JOB_TRY(dicomm_host_stream_synchronize(works));
	JOB_CHECK(me->comm->prepared.n < 200, "%u plans are kept",
		  me->comm->prepared.n);
	JOB_TRY(dicomm_send(&last, 1, DICOMM_INT32, !me->rank, me->comm,
			    works));
	JOB_TRY(dicomm_host_stream_destroy(works));
	JOB_TRY(dicomm_host_stream_destroy(waits));
	JOB_CHECK(other == !me->rank, "received %d", other);
}

START_TEST(few_plans_are_kept_though_something_is_always_queued)
{
	job_run(&(struct job){.run = ever_new, .ranks = 2});
}
END_TEST

/* A blocking call behind queued ones comes after them, and the other way. */
static void mixed(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	int64_t value = 1, want = 1, check = 0;

	for (int i = 0; i < 10; i++) {
		JOB_TRY(dicomm_allreduce(&value, &value, 1, DICOMM_INT64,
					 DICOMM_SUM, me->comm, stream));
		want *= me->ranks;
		if (i % 2) {
			int64_t one = 1;

			JOB_TRY(dicomm_allreduce(&one, &check, 1, DICOMM_INT64,
						 DICOMM_SUM, me->comm, NULL));
			JOB_CHECK(check == me->ranks, "blocking: %ld",
				  (long)check);
			/* Collectives run in call order. */
			JOB_CHECK(value == want, "queued: %ld instead of %ld",
				  (long)value, (long)want);
		}
	}
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(blocking_calls_mix_with_queued_ones)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = mixed, .ranks = n});
}
END_TEST

/* A group waits for all its streams, and all of them wait for it. */
static void grouped(struct job_rank *me)
{
	dicomm_stream_t x = new_stream(), y = new_stream();
	dicomm_comm_t other;
	int64_t a = 1, b = 1, c = 0, d = 0, n = me->ranks;

	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
	for (int i = 0; i < 20; i++) {
		a = b = 1;
		c = d = 0;
		JOB_TRY(dicomm_allreduce(&a, &a, 1, DICOMM_INT64, DICOMM_SUM,
					 me->comm, x));
		JOB_TRY(dicomm_allreduce(&b, &b, 1, DICOMM_INT64, DICOMM_SUM,
					 other, y));
		JOB_TRY(dicomm_group_start());
		/* Reads what the other stream has written. */
		JOB_TRY(dicomm_allreduce(&b, &c, 1, DICOMM_INT64, DICOMM_SUM,
					 me->comm, x));
		JOB_TRY(dicomm_allreduce(&a, &d, 1, DICOMM_INT64, DICOMM_SUM,
					 other, y));
		JOB_TRY(dicomm_group_end());
		JOB_TRY(dicomm_allreduce(&c, &a, 1, DICOMM_INT64, DICOMM_SUM,
					 other, y));
		JOB_TRY(dicomm_host_stream_synchronize(y));
		JOB_TRY(dicomm_host_stream_synchronize(x));
		JOB_CHECK(c == n * n && d == n * n && a == n * n * n,
			  "round %d: %ld, %ld, %ld", i, (long)c, (long)d,
			  (long)a);
	}
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_TRY(dicomm_host_stream_destroy(x));
	JOB_TRY(dicomm_host_stream_destroy(y));
}

START_TEST(a_group_is_one_place_in_all_its_streams)
{
	for (int n = 2; n <= 3; n++)
		job_run(&(struct job){.run = grouped, .ranks = n});
}
END_TEST

#define QUEUED 1000

static void queue(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	int *in = calloc(QUEUED, sizeof(*in)),
	    *out = calloc(QUEUED, sizeof(*out));
	size_t *counts = calloc((size_t)me->ranks, sizeof(*counts));
	size_t *displs = calloc((size_t)me->ranks, sizeof(*displs));
	int v[16] = {0};

	JOB_CHECK(in && out && counts && displs, "out of memory");
	for (int i = 0; i < QUEUED; i++) {
		in[i] = i + me->rank;
		JOB_TRY(dicomm_allreduce(&in[i], &out[i], 1, DICOMM_INT32,
					 DICOMM_MAX, me->comm, stream));
		/* The arrays are the caller's again at once. */
		if (i % 100 == 0) {
			for (int r = 0; r < me->ranks; r++) {
				counts[r] = 1;
				displs[r] = (size_t)r;
			}
			JOB_TRY(dicomm_allgatherv(&in[0], v, counts, displs,
						  DICOMM_INT32, me->comm,
						  stream));
			memset(counts, 0xff,
			       (size_t)me->ranks * sizeof(*counts));
			memset(displs, 0xff,
			       (size_t)me->ranks * sizeof(*displs));
		}
	}
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	for (int i = 0; i < QUEUED; i++)
		JOB_CHECK(out[i] == i + me->ranks - 1, "operation %d gave %d",
			  i, out[i]);
	for (int r = 0; r < me->ranks; r++)
		JOB_CHECK(v[r] == r, "allgatherv: %d at %d", v[r], r);
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(in);
	free(out);
	free(counts);
	free(displs);
}

START_TEST(a_thousand_operations_are_queued)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = queue, .ranks = n});
}
END_TEST

/* Streams of both ends run ahead of each other. */
static void unequal(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT64,
			  .count = 200000};

	trial_fill(&t, me);
	for (unsigned i = 0; i < 5; i++) {
		trial_refill(&t, i);
		if ((int)i % me->ranks == me->rank)
			job_sleep_ms(20);
		/* Some queue it, some wait in the call. */
		JOB_TRY(trial_call(&t,
				   (me->rank + (int)i) % 2 ? stream : NULL));
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		trial_check(&t);
	}
	trial_free(&t);
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(some_ranks_queue_what_others_wait_for)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = unequal, .ranks = n});
}
END_TEST

/* ---- progress without the caller ---- */

/* Copied in much less than DONE_S. */
#define LARGE ((size_t)(job_is_short() ? 8 : 64) << 20)
#define BUSY_S (job_has_thread_sanitizer() ? 6.0 : 5.0)
/* Who had to wait is later by all that the other computes. */
#define DONE_S (BUSY_S / 2)

static void compute(double seconds)
{
	volatile double x = 1;
	double end = job_seconds() + seconds;

	while (job_seconds() < end)
		for (int i = 0; i < 100000; i++)
			x = x * 1.0000001;
}

static void deaf_sender(struct job_rank *me)
{
	bool blocking = !me->arg;
	dicomm_stream_t stream = blocking ? NULL : new_stream();
	uint8_t *memory = malloc(LARGE);
	double begin, took;

	JOB_CHECK(memory, "out of memory");
	memset(memory, me->rank ? 0 : 42, LARGE);
	/* Connect, and let everybody be there. */
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0) {
		JOB_TRY(dicomm_send(memory, LARGE, DICOMM_UINT8, 1, me->comm,
				    stream));
		compute(BUSY_S);
	} else {
		JOB_TRY(dicomm_recv(memory, LARGE, DICOMM_UINT8, 0, me->comm,
				    NULL));
		took = job_seconds() - begin;
		for (size_t b = 0; b < LARGE; b += 1021)
			JOB_CHECK(memory[b] == 42, "byte %zu is %d", b,
				  memory[b]);
		JOB_CHECK(took < DONE_S,
			  "the receiver took %.2f s, as if it had waited for "
			  "the sender's %.1f s of computing",
			  took, BUSY_S);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(memory);
}

START_TEST(a_receiver_does_not_wait_for_a_sender_that_computes)
{
	job_run(&(struct job){
		.run = deaf_sender, .ranks = 2, .arg = _i ? "stream" : NULL});
}
END_TEST

/* The other way: a receive that was queued takes the message in while its
 * process computes, and the blocking sender goes on. */
static void deaf_receiver(struct job_rank *me)
{
	uint8_t *memory = malloc(LARGE);
	dicomm_stream_t stream = new_stream();
	double begin, took;

	JOB_CHECK(memory, "out of memory");
	memset(memory, me->rank ? 0 : 42, LARGE);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0) {
		JOB_TRY(dicomm_send(memory, LARGE, DICOMM_UINT8, 1, me->comm,
				    NULL));
		took = job_seconds() - begin;
		JOB_CHECK(took < DONE_S, "the sender took %.2f s", took);
	} else {
		JOB_TRY(dicomm_recv(memory, LARGE, DICOMM_UINT8, 0, me->comm,
				    stream));
		compute(BUSY_S);
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		for (size_t b = 0; b < LARGE; b += 1021)
			JOB_CHECK(memory[b] == 42, "byte %zu is %d", b,
				  memory[b]);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(memory);
}

START_TEST(a_queued_receive_needs_no_further_call)
{
	job_run(&(struct job){.run = deaf_receiver, .ranks = 2});
}
END_TEST

/* ---- errors ---- */

/* Unlike calls break the communicator; whoever synchronizes learns it, once,
 * and a communicator beside it goes on. */
static void broken(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	dicomm_comm_t other;
	dicomm_result_t status;
	int64_t a[4] = {1, 1, 1, 1}, b[4] = {0}, c = 0;

	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
	JOB_TRY(dicomm_allreduce(a, b, 1, DICOMM_INT64, DICOMM_SUM, me->comm,
				 stream));
	JOB_TRY(dicomm_allreduce(a, b, me->rank ? 2 : 3, DICOMM_INT64,
				 DICOMM_SUM, me->comm, stream));
	JOB_TRY(dicomm_allreduce(a, &c, 1, DICOMM_INT64, DICOMM_SUM, other,
				 stream));
	JOB_REFUSED(dicomm_host_stream_synchronize(stream),
		    DICOMM_ERR_INVALID_USAGE, "disagree");
	JOB_CHECK(c == me->ranks, "the other communicator gave %ld", (long)c);
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &status));
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE, "async error %d",
		  (int)status);
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_REFUSED(dicomm_allreduce(a, b, 1, DICOMM_INT64, DICOMM_SUM,
				     me->comm, stream),
		    DICOMM_ERR_INVALID_USAGE, "disagree");
	JOB_TRY(dicomm_allreduce(a, &c, 1, DICOMM_INT64, DICOMM_SUM, other,
				 NULL));
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(an_error_shows_where_one_synchronizes)
{
	job_run(&(struct job){.run = broken, .ranks = 2});
}
END_TEST

static void refused(struct job_rank *me)
{
	uint64_t no_stream[64] = {0};
	int64_t a = 1, b = 0;

	JOB_REFUSED(dicomm_host_stream_create(NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "stream is NULL");
	JOB_REFUSED(dicomm_host_stream_synchronize(NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "not a host stream");
	JOB_REFUSED(dicomm_host_stream_destroy(no_stream),
		    DICOMM_ERR_INVALID_ARGUMENT, "not a host stream");
	JOB_TRY(dicomm_host_stream_destroy(NULL));
	JOB_REFUSED(dicomm_allreduce(&a, &b, 1, DICOMM_INT64, DICOMM_SUM,
				     me->comm, no_stream),
		    DICOMM_ERR_INVALID_ARGUMENT, "not a host stream");
	JOB_TRY(dicomm_allreduce(&a, &b, 1, DICOMM_INT64, DICOMM_SUM, me->comm,
				 NULL));
	JOB_CHECK(b == me->ranks, "%ld", (long)b);
}

START_TEST(what_is_no_stream_is_refused)
{
	job_run(&(struct job){.run = refused, .ranks = 2});
}
END_TEST

/* Destroying a stream waits for what is queued on it. */
static void destroyed(struct job_rank *me)
{
	struct trial t = {
		.kind = TRIAL_ALLGATHER, .type = DICOMM_INT32, .count = 300000};

	for (unsigned i = 0; i < 10; i++) {
		dicomm_stream_t stream = new_stream();

		t.seed = i;
		trial_fill(&t, me);
		JOB_TRY(trial_call(&t, stream));
		JOB_TRY(dicomm_host_stream_destroy(stream));
		trial_check(&t);
		trial_free(&t);
	}
}

START_TEST(destroying_a_stream_waits_for_it)
{
	job_run(&(struct job){.run = destroyed, .ranks = 3});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("streams");
	TCase *tcase = tcase_create("streams");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, operations_of_a_stream_run_in_order);
	tcase_add_test(tcase, a_stream_orders_two_communicators);
	tcase_add_test(tcase, two_streams_share_a_communicator);
	tcase_add_test(tcase,
		       few_plans_are_kept_though_something_is_always_queued);
	tcase_add_test(tcase, blocking_calls_mix_with_queued_ones);
	tcase_add_test(tcase, a_group_is_one_place_in_all_its_streams);
	tcase_add_test(tcase, a_thousand_operations_are_queued);
	tcase_add_test(tcase, some_ranks_queue_what_others_wait_for);
	tcase_add_loop_test(tcase,
			    a_receiver_does_not_wait_for_a_sender_that_computes,
			    0, 2);
	tcase_add_test(tcase, a_queued_receive_needs_no_further_call);
	tcase_add_test(tcase, an_error_shows_where_one_synchronizes);
	tcase_add_test(tcase, what_is_no_stream_is_refused);
	tcase_add_test(tcase, destroying_a_stream_waits_for_it);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
