/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: single operations of a host stream, asked for, waited for, or
 * called back. */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define LONG_MS 60000

static dicomm_stream_t new_stream(void)
{
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	return stream;
}

static dicomm_request_t request_of(dicomm_stream_t stream)
{
	dicomm_request_t request;

	JOB_TRY(dicomm_host_stream_request(stream, &request));
	return request;
}

/* ---- query, wait ---- */

/* The first of two operations is done, the second waits for the peer. */
static void one_of_two(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	dicomm_request_t first, second;
	int32_t x = 7, y = 0, z = 0;

	JOB_TRY(dicomm_allreduce(&x, &y, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 stream));
	first = request_of(stream);
	if (me->rank)
		JOB_TRY(dicomm_recv(&z, 1, DICOMM_INT32, 0, me->comm, stream));
	second = request_of(stream);
	JOB_TRY(dicomm_request_wait(first, LONG_MS));
	JOB_CHECK(y == 7 * me->ranks, "sum %d", y);
	JOB_TRY(dicomm_request_query(first));
	if (me->rank) {
		JOB_CHECK(dicomm_request_query(second) == DICOMM_IN_PROGRESS,
			  "the second is done");
		JOB_CHECK(dicomm_request_wait(second, 5) == DICOMM_IN_PROGRESS,
			  "the wait ended");
	}
	job_barrier();
	if (!me->rank)
		for (int r = 1; r < me->ranks; r++)
			JOB_TRY(dicomm_send(&x, 1, DICOMM_INT32, r, me->comm,
					    NULL));
	JOB_TRY(dicomm_request_wait(second, 0));
	JOB_CHECK(!me->rank || z == 7, "got %d", z);
	JOB_TRY(dicomm_request_free(first));
	JOB_TRY(dicomm_request_free(second));
	/* Nothing is queued. */
	first = request_of(stream);
	JOB_TRY(dicomm_request_query(first));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_TRY(dicomm_request_wait(first, 1));
	JOB_TRY(dicomm_request_free(first));
	JOB_TRY(dicomm_request_free(NULL));
}

START_TEST(a_request_is_of_one_operation)
{
	for (int n = 2; n <= 3; n++)
		job_run(&(struct job){
			.run = one_of_two, .ranks = n, .threads = _i});
}
END_TEST

/* Many operations, each with its request; they are freed in another order, and
 * some before they are done. */
static void many(struct job_rank *me)
{
	enum { N = 500 };
	dicomm_stream_t stream[2] = {new_stream(), new_stream()};
	dicomm_request_t request[N];
	static int64_t in[N], out[N];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			in[i] = i + round;
			JOB_TRY(dicomm_allreduce(&in[i], &out[i], 1,
						 DICOMM_INT64, DICOMM_SUM,
						 me->comm, stream[i % 2]));
			request[i] = request_of(stream[i % 2]);
			if (i % 7 == 3)
				JOB_TRY(dicomm_request_free(request[i]));
		}
		for (int i = N - 1; i >= 0; i--) {
			if (i % 7 == 3)
				continue;
			JOB_TRY(dicomm_request_wait(request[i], LONG_MS));
			JOB_CHECK(out[i] == (int64_t)(i + round) * me->ranks,
				  "operation %d: %ld", i, (long)out[i]);
			JOB_TRY(dicomm_request_free(request[i]));
		}
	}
	JOB_TRY(dicomm_host_stream_destroy(stream[0]));
	JOB_TRY(dicomm_host_stream_destroy(stream[1]));
}

START_TEST(many_requests_end_with_their_operations)
{
	for (int n = 1; n <= 3; n++)
		job_run(&(struct job){.run = many, .ranks = n});
}
END_TEST

/* Several threads sleep, each for another operation. */
struct sleeper {
	pthread_t thread;
	dicomm_request_t request;
	dicomm_result_t status;
	const int32_t *got;
	int32_t seen;
};

static void *sleeps(void *arg)
{
	struct sleeper *s = arg;

	s->status = dicomm_request_wait(s->request, LONG_MS);
	s->seen = *s->got;
	return NULL;
}

static void sleepers(struct job_rank *me)
{
	enum { N = 6 };
	struct sleeper s[N];
	dicomm_stream_t stream[N];
	int32_t got[N] = {0};

	for (int i = 0; i < N; i++) {
		stream[i] = new_stream();
		if (!me->rank)
			continue;
		JOB_TRY(dicomm_recv_tag(&got[i], 1, DICOMM_INT32, 0, 1 + i,
					me->comm, stream[i], NULL));
		s[i].request = request_of(stream[i]);
		s[i].got = &got[i];
		JOB_CHECK(!pthread_create(&s[i].thread, NULL, sleeps, &s[i]),
			  "no thread");
	}
	job_barrier();
	for (int32_t i = N - 1; i >= 0; i--) {
		int32_t x = 100 + i;

		if (me->rank) {
			pthread_join(s[i].thread, NULL);
			JOB_CHECK(s[i].status == DICOMM_SUCCESS &&
					  s[i].seen == x,
				  "status %d, got %d", s[i].status, s[i].seen);
			JOB_TRY(dicomm_request_free(s[i].request));
		} else {
			JOB_TRY(dicomm_send_tag(&x, 1, DICOMM_INT32, 1, 1 + i,
						me->comm, NULL));
		}
		job_barrier();
	}
	for (int i = 0; i < N; i++)
		JOB_TRY(dicomm_host_stream_destroy(stream[i]));
}

START_TEST(each_waiter_is_woken_by_its_own_operation)
{
	job_run(&(struct job){.run = sleepers, .ranks = 2});
}
END_TEST

/* ---- who runs what is queued ---- */

static const char *const routes[] = {"DICOMM_TRANSPORTS=shm",
				     "DICOMM_TRANSPORTS=tcp"};

/* Rank 0 queues a short receive and a reply on one stream, and calls the
 * library no more until rank 1 has the reply. */
static void nobody_waits(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();

	for (int32_t i = 0; i < 20; i++) {
		int32_t x = i, y = -1;

		if (me->rank) {
			JOB_TRY(dicomm_send(&x, 1, DICOMM_INT32, 0, me->comm,
					    NULL));
			JOB_TRY(dicomm_recv(&y, 1, DICOMM_INT32, 0, me->comm,
					    NULL));
			JOB_CHECK(y == i, "round %d: got %d", i, y);
		} else {
			JOB_TRY(dicomm_recv(&y, 1, DICOMM_INT32, 1, me->comm,
					    stream));
			JOB_TRY(dicomm_send(&y, 1, DICOMM_INT32, 1, me->comm,
					    stream));
		}
		job_barrier();
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		/* The progress thread sleeps deeper after a longer pause. */
		job_sleep_ms(i % 3 * 5);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(what_nobody_waits_for_goes_on)
{
	job_run(&(struct job){
		.run = nobody_waits, .ranks = 2, .env = {routes[_i]}});
}
END_TEST

/* One thread waits for a message that comes last, while another waits for many
 * short ones: neither depends on the other. */
static void beside(struct job_rank *me)
{
	enum { N = 200 };
	dicomm_stream_t stream = new_stream(), last = new_stream();
	int32_t in[N], out = 0, end = 0;
	struct sleeper s = {.got = &end};
	dicomm_request_t request;

	if (!me->rank) {
		JOB_TRY(dicomm_recv_tag(&end, 1, DICOMM_INT32, 1, 9, me->comm,
					last, NULL));
		s.request = request_of(last);
		JOB_CHECK(!pthread_create(&s.thread, NULL, sleeps, &s),
			  "no thread");
	}
	for (int32_t i = 0; i < N; i++) {
		JOB_TRY(dicomm_allreduce(&i, &in[i], 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, stream));
		request = request_of(stream);
		if (i % 2)
			while (dicomm_request_query(request) ==
			       DICOMM_IN_PROGRESS)
				;
		JOB_TRY(dicomm_request_wait(request, LONG_MS));
		JOB_TRY(dicomm_request_free(request));
		JOB_CHECK(in[i] == i * me->ranks, "sum %d: %d", i, in[i]);
		out += in[i];
	}
	if (me->rank) {
		JOB_TRY(dicomm_send_tag(&out, 1, DICOMM_INT32, 0, 9, me->comm,
					NULL));
	} else {
		pthread_join(s.thread, NULL);
		JOB_CHECK(s.status == DICOMM_SUCCESS && s.seen == out,
			  "status %d, got %d instead of %d", s.status, s.seen,
			  out);
		JOB_TRY(dicomm_request_free(s.request));
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_TRY(dicomm_host_stream_destroy(last));
}

START_TEST(threads_wait_beside_each_other)
{
	job_run(&(struct job){.run = beside, .ranks = 2, .env = {routes[_i]}});
}
END_TEST

/* ---- callbacks ---- */

struct note {
	_Atomic int calls;
	dicomm_result_t status;
	pthread_t thread;
	struct note *other; /* wait for its call first */
};

static void noted(dicomm_result_t status, void *ctx)
{
	struct note *n = ctx;

	for (int ms = 0;
	     n->other && !atomic_load(&n->other->calls) && ms < LONG_MS; ms++)
		job_sleep_ms(1);
	n->status = status;
	n->thread = pthread_self();
	atomic_fetch_add(&n->calls, 1);
}

static void await(struct note *n)
{
	for (int ms = 0; !atomic_load(&n->calls) && ms < LONG_MS; ms++)
		job_sleep_ms(1);
	JOB_CHECK(atomic_load(&n->calls) == 1 && n->status == DICOMM_SUCCESS &&
			  !pthread_equal(n->thread, pthread_self()),
		  "%d calls, status %d", atomic_load(&n->calls), n->status);
}

/* Each callback waits for that of the next operation: none can keep another
 * from being called. */
static void nested(struct job_rank *me)
{
	enum { N = 12 };
	struct note notes[N] = {0};
	dicomm_stream_t stream = new_stream();
	dicomm_request_t request;
	int32_t x = 1, y[N];

	for (int i = 0; i < N; i++) {
		notes[i].other = i < N - 1 ? &notes[i + 1] : NULL;
		JOB_TRY(dicomm_allreduce(&x, &y[i], 1, DICOMM_INT32, DICOMM_SUM,
					 me->comm, stream));
		request = request_of(stream);
		JOB_TRY(dicomm_request_call(request, noted, &notes[i]));
		if (!i)
			JOB_REFUSED(dicomm_request_call(request, noted, NULL),
				    DICOMM_ERR_INVALID_USAGE,
				    "has a callback already");
		JOB_TRY(dicomm_request_free(request));
	}
	for (int i = 0; i < N; i++)
		await(&notes[i]);
	/* Of one that is done */
	request = request_of(stream);
	JOB_TRY(dicomm_request_query(request));
	notes[0] = (struct note){0};
	JOB_TRY(dicomm_request_call(request, noted, &notes[0]));
	await(&notes[0]);
	JOB_TRY(dicomm_request_free(request));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(a_callback_may_wait_for_another)
{
	for (int n = 1; n <= 2; n++)
		job_run(&(struct job){.run = nested, .ranks = n});
}
END_TEST

/* A callback that calls the library, and waits for what it has queued there. */
struct chain {
	struct note done;
	dicomm_comm_t comm;
	dicomm_stream_t stream;
	int32_t sum, total;
};

static void goes_on(dicomm_result_t status, void *ctx)
{
	struct chain *c = ctx;
	dicomm_request_t request;

	JOB_TRY(status);
	JOB_TRY(dicomm_allreduce(&c->sum, &c->total, 1, DICOMM_INT32,
				 DICOMM_SUM, c->comm, c->stream));
	request = request_of(c->stream);
	JOB_TRY(dicomm_request_wait(request, LONG_MS));
	JOB_TRY(dicomm_request_free(request));
	noted(status, &c->done);
}

static void chained(struct job_rank *me)
{
	struct chain c = {.comm = me->comm, .stream = new_stream()};
	dicomm_request_t request;
	int32_t x = 3;

	JOB_TRY(dicomm_allreduce(&x, &c.sum, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, c.stream));
	request = request_of(c.stream);
	JOB_TRY(dicomm_request_call(request, goes_on, &c));
	await(&c.done);
	JOB_CHECK(c.total == 3 * me->ranks * me->ranks, "total %d", c.total);
	JOB_TRY(dicomm_request_free(request));
	JOB_TRY(dicomm_host_stream_destroy(c.stream));
}

START_TEST(a_callback_may_call_the_library)
{
	job_run(&(struct job){.run = chained, .ranks = 2});
}
END_TEST

/* ---- errors ---- */

/* The result is that of the operation, with its text. */
static void fails(struct job_rank *me)
{
	dicomm_stream_t stream = new_stream();
	dicomm_request_t good, bad;
	struct note note = {0};
	int32_t x = 1, y;

	JOB_TRY(dicomm_allreduce(&x, &y, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 stream));
	good = request_of(stream);
	if (!me->rank)
		JOB_TRY(dicomm_recv(&x, 1, DICOMM_INT32, 1, me->comm, stream));
	bad = request_of(stream);
	if (!me->rank) {
		JOB_TRY(dicomm_request_call(bad, noted, &note));
		JOB_REFUSED(dicomm_request_wait(bad, LONG_MS),
			    DICOMM_ERR_TIMEOUT, "timed out after 1500 ms");
		JOB_REFUSED(dicomm_request_query(bad), DICOMM_ERR_TIMEOUT,
			    "receive from rank 1");
		while (!atomic_load(&note.calls))
			job_sleep_ms(1);
		JOB_CHECK(note.status == DICOMM_ERR_TIMEOUT, "called with %d",
			  note.status);
	}
	JOB_TRY(dicomm_request_wait(good, LONG_MS));
	job_barrier();
	JOB_TRY(dicomm_request_free(good));
	JOB_TRY(dicomm_request_free(bad));
	dicomm_host_stream_destroy(stream);
}

START_TEST(a_request_tells_the_failure_of_its_operation)
{
	job_run(&(struct job){
		.run = fails, .ranks = 2, .env = {"DICOMM_TIMEOUT_MS=1500"}});
}
END_TEST

static void refused(struct job_rank *me)
{
	const dicomm_result_t bad = DICOMM_ERR_INVALID_ARGUMENT;
	dicomm_stream_t stream = new_stream();
	static char nothing[1024];
	dicomm_request_t request = (dicomm_request_t)(void *)nothing;
	int32_t x = 1, y;
	int status;
	pid_t child;

	JOB_REFUSED(dicomm_host_stream_request(stream, NULL), bad,
		    "request is NULL");
	JOB_REFUSED(dicomm_request_query(request), bad, "is not a request");
	JOB_REFUSED(dicomm_request_wait(NULL, 1), bad, "is not a request");
	JOB_REFUSED(dicomm_request_free(request), bad, "is not a request");
	JOB_REFUSED(dicomm_host_stream_request(NULL, &request), bad,
		    "is not a host stream");
	JOB_CHECK(!request, "request is %p", (void *)request);
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_allreduce(&x, &y, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 stream));
	JOB_REFUSED(dicomm_host_stream_request(stream, &request),
		    DICOMM_ERR_INVALID_USAGE, "in a group");
	JOB_TRY(dicomm_group_end());
	request = request_of(stream);
	JOB_REFUSED(dicomm_request_wait(request, -1), bad, "timeout_ms -1");
	JOB_REFUSED(dicomm_request_call(request, NULL, NULL), bad,
		    "fn is NULL");
	JOB_TRY(dicomm_request_wait(request, 0));
	child = fork();
	if (!child)
		_exit(dicomm_request_query(request) !=
		      DICOMM_ERR_INVALID_USAGE);
	waitpid(child, &status, 0);
	JOB_CHECK(WIFEXITED(status) && !WEXITSTATUS(status),
		  "the child may use it");
	JOB_TRY(dicomm_request_free(request));
	JOB_REFUSED(dicomm_request_wait(request, 1), bad, "is not a request");
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(what_is_wrong_is_refused)
{
	job_run(&(struct job){.run = refused, .ranks = 1});
}
END_TEST

static _Thread_local unsigned signals;

/* In the place of the C library's: counts those of this thread. */
int pthread_cond_signal(pthread_cond_t *cond)
{
	int (*next)(pthread_cond_t *);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_cond_signal");
	signals++;
	return next(cond);
}

/* A blocking call beside a queued one drives itself: the progress thread is not
 * woken in each. */
static void alone(struct job_rank *me)
{
	enum { CALLS = 400 };
	dicomm_stream_t stream = new_stream();
	int32_t x = 1, y = 0;
	unsigned before;

	JOB_TRY(dicomm_recv_tag(&y, 1, DICOMM_INT32, !me->rank, 9, me->comm,
				stream, NULL));
	before = signals;
	for (int i = 0; i < CALLS; i++)
		if (me->rank)
			JOB_TRY(dicomm_recv_tag(&x, 1, DICOMM_INT32, 0, 1,
						me->comm, NULL, NULL));
		else
			JOB_TRY(dicomm_send_tag(&x, 1, DICOMM_INT32, 1, 1,
						me->comm, NULL));
	JOB_CHECK(signals - before < CALLS / 4, "%u signals in %d calls",
		  signals - before, CALLS);
	JOB_TRY(dicomm_send_tag(&x, 1, DICOMM_INT32, !me->rank, 9, me->comm,
				NULL));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_CHECK(y == 1, "got %d", y);
}

START_TEST(a_blocking_call_drives_itself)
{
	job_run(&(struct job){.run = alone, .ranks = 2});
}
END_TEST

static uint64_t memory_of(dicomm_comm_t comm)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(comm, &stats));
	return stats.memory_bytes;
}

/* At least what is written down of each call */
static void counted(struct job_rank *me)
{
	enum { CALLS = 1000, LEAST = 200 };
	dicomm_stream_t stream = new_stream();
	int32_t x = 1, y[CALLS] = {0};
	uint64_t before, queued;

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	before = memory_of(me->comm);
	for (int i = 0; i < CALLS; i++)
		JOB_TRY(dicomm_recv_tag(&y[i], 1, DICOMM_INT32, !me->rank, 9,
					me->comm, stream, NULL));
	queued = memory_of(me->comm);
	JOB_CHECK(queued >= before + CALLS * LEAST, "%llu bytes, then %llu",
		  (unsigned long long)before, (unsigned long long)queued);
	job_barrier();
	for (int i = 0; i < CALLS; i++)
		JOB_TRY(dicomm_send_tag(&x, 1, DICOMM_INT32, !me->rank, 9,
					me->comm, NULL));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	JOB_CHECK(y[CALLS - 1] == 1, "got %d", y[CALLS - 1]);
}

START_TEST(what_is_queued_counts_as_memory)
{
	job_run(&(struct job){.run = counted, .ranks = 2});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("requests");
	TCase *tcase = tcase_create("requests");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, a_request_is_of_one_operation, 0, 2);
	tcase_add_test(tcase, many_requests_end_with_their_operations);
	tcase_add_test(tcase, each_waiter_is_woken_by_its_own_operation);
	tcase_add_loop_test(tcase, what_nobody_waits_for_goes_on, 0, 2);
	tcase_add_loop_test(tcase, threads_wait_beside_each_other, 0, 2);
	tcase_add_test(tcase, a_callback_may_wait_for_another);
	tcase_add_test(tcase, a_callback_may_call_the_library);
	tcase_add_test(tcase, a_request_tells_the_failure_of_its_operation);
	tcase_add_test(tcase, a_blocking_call_drives_itself);
	tcase_add_test(tcase, what_is_queued_counts_as_memory);
	tcase_add_test(tcase, what_is_wrong_is_refused);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
