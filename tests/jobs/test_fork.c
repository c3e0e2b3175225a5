/* SPDX-License-Identifier: BSD-3-Clause */
/* fork(): a child cannot use what is its parent's, and the parent does not
 * notice, over any transport, whatever ends while the child has copies of its
 * descriptors. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/leaks.h"
#include "tests/support/runner.h"
#include "tests/support/trial.h"
#include "transports/transport.h"

#define USAGE DICOMM_ERR_INVALID_USAGE
/* So long the ranks rest, and so much processor time they may take for it. */
#define REST_MS 300
#define REST_CPU_MS 150
#define ROUNDS 12

/* The variables of a route. In tests/vm there is one, that of the machine. */
static const char *const routes[][2] = {
	{"DICOMM_TRANSPORTS=shm"},
	{"DICOMM_TRANSPORTS=tcp"},
	{"DICOMM_TRANSPORTS=tcp", "DICOMM_ENCRYPT=on"},
	{"DICOMM_TRANSPORTS=ucx"},
};

static int count_routes(void)
{
	return getenv("DICOMM_TRANSPORTS")
		       ? 1
		       : (int)(sizeof(routes) / sizeof(*routes));
}

/* Runs the job over that route, if this machine has it. */
static void run_over(int route, struct job job)
{
	char why[256];

	job.timeout_s = 60;
	job.env[0] = "DICOMM_DEBUG=none";
	if (count_routes() > 1)
		for (int i = 0; i < 2; i++)
			job.env[1 + i] = routes[route][i];
	if (route == 3 && (!transport_find("ucx") ||
			   !transport_find("ucx")->usable(why, sizeof(why))))
		return;
	job_run(&job);
}

/* ---- handles of the parent ---- */

static void forked_child(struct job_rank *me, dicomm_stream_t stream)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};
	dicomm_comm_t c = me->comm, own[2];
	const char *device;
	int32_t a = 1, b = 0;
	char text[100];
	int n;

	JOB_REFUSED(
		dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM, c, NULL),
		USAGE, "parent");
	JOB_REFUSED(dicomm_send(&a, 1, DICOMM_INT32, 0, c, NULL), USAGE,
		    "parent");
	JOB_REFUSED(dicomm_barrier(c, NULL), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_count(c, &n), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_user_rank(c, &n), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_device(c, &device), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_stats(c, &stats), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_get_async_error(c, (dicomm_result_t *)&n),
		    USAGE, "parent");
	JOB_REFUSED(dicomm_comm_explain(c, "barrier", 1, DICOMM_INT8, text,
					sizeof(text)),
		    USAGE, "parent");
	JOB_REFUSED(dicomm_comm_split(c, 0, 0, own, NULL), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_shrink(c, NULL, 0, own, NULL), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_finalize(c), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_abort(c), USAGE, "parent");
	JOB_REFUSED(dicomm_comm_destroy(c), USAGE, "parent");
	JOB_REFUSED(dicomm_host_stream_synchronize(stream), USAGE, "parent");
	JOB_REFUSED(dicomm_host_stream_destroy(stream), USAGE, "parent");
	/* It may have communicators of its own, but not by UCX. */
	if (job_uses("ucx")) {
		JOB_REFUSED(dicomm_comm_init_all(own, 2, NULL),
			    DICOMM_ERR_NO_PATH, "a fork");
		_exit(0);
	}
	/* The address sanitizer of gcc 12 lets a child have its heap as it was:
	 * if threads of the parent wanted one of its locks, the child's wait
	 * for ever. */
	if (job_is_sanitized())
		_exit(0);
	JOB_TRY(dicomm_comm_init_all(own, 2, NULL));
	JOB_TRY(dicomm_group_start());
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_allreduce(i ? &b : &a, i ? &b : &a, 1,
					 DICOMM_INT32, DICOMM_MAX, own[i],
					 NULL));
	JOB_TRY(dicomm_group_end());
	JOB_CHECK(a == 1 && b == 1, "%d, %d", a, b);
	JOB_REFUSED(dicomm_barrier(own[0], stream), USAGE, "parent");
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_comm_destroy(own[i]));
	_exit(0);
}

static void forks(struct job_rank *me)
{
	dicomm_stream_t stream;
	int32_t a = 1, b = 0;
	pid_t pid;
	int end;

	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 stream));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	trial_works(me->comm, me->rank, me->ranks);
	for (int i = 0; i < 3; i++) {
		/* With a stream that is idle, and one that has work to do. */
		if (i == 1)
			JOB_TRY(dicomm_recv(&b, 1, DICOMM_INT32, !me->rank,
					    me->comm, stream));
		pid = fork();
		JOB_CHECK(pid >= 0, "fork: %m");
		if (pid == 0)
			forked_child(me, stream);
		/* Meanwhile, the parent does not notice. */
		trial_works(me->comm, me->rank, me->ranks);
		JOB_CHECK(waitpid(pid, &end, 0) == pid && end == 0,
			  "the child ended with status %#x", (unsigned)end);
		trial_works(me->comm, me->rank, me->ranks);
	}
	JOB_TRY(dicomm_send(&a, 1, DICOMM_INT32, !me->rank, me->comm, NULL));
	JOB_TRY(dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM, me->comm,
				 stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

/* What the parent has called in a group that is open it alone runs. */
static void forks_in_group(struct job_rank *me)
{
	int32_t mine = me->rank, theirs = -1;
	dicomm_stream_t stream;
	pid_t pid;
	int end;

	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, !me->rank, me->comm, NULL));
	JOB_TRY(dicomm_recv(&theirs, 1, DICOMM_INT32, !me->rank, me->comm,
			    NULL));
	pid = fork();
	JOB_CHECK(pid >= 0, "fork: %m");
	if (pid == 0) {
		JOB_REFUSED(dicomm_group_end(), USAGE, "no group");
		forked_child(me, stream);
	}
	JOB_CHECK(waitpid(pid, &end, 0) == pid && end == 0,
		  "the child ended with status %#x", (unsigned)end);
	JOB_TRY(dicomm_group_end());
	JOB_CHECK(theirs == !me->rank, "%d from rank %d", theirs, !me->rank);
	trial_works(me->comm, me->rank, me->ranks);
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(a_forked_child_cannot_use_its_parents_handles)
{
	run_over(_i, (struct job){.run = forks, .ranks = 2});
}
END_TEST

START_TEST(a_group_stays_with_the_parent_of_a_fork)
{
	run_over(_i, (struct job){.run = forks_in_group, .ranks = 2});
}
END_TEST

/* ---- children that do nothing with the library ---- */

static dicomm_result_t try_exchange(dicomm_comm_t comm)
{
	int32_t mine[8] = {0}, theirs[8];

	return dicomm_alltoall(mine, theirs, 1, DICOMM_INT32, comm, NULL);
}

/* A child that has copies of all descriptors for some time, at most as long as
 * this thread lives. */
static pid_t fork_idle(int ms)
{
	pid_t pid = fork();

	JOB_CHECK(pid >= 0, "fork: %m");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	job_sleep_ms(ms);
	_exit(0);
}

static void reap(pid_t pid, int sig)
{
	int end = 0;

	kill(pid, sig);
	JOB_CHECK(waitpid(pid, &end, 0) == pid, "waitpid: %m");
	JOB_CHECK(end == sig, "the child ended with status %#x", (unsigned)end);
}

/* Uses all memory that has been freed. */
static void churn_heap(void)
{
	void *blocks[128];

	for (size_t i = 0; i < 128; i++)
		blocks[i] = calloc(1, 100 + 400 * i);
	for (size_t i = 0; i < 128; i++)
		free(blocks[i]);
}

static double processor_ms(int whose)
{
	struct rusage u;

	getrusage(whose, &u);
	return 1e3 * (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-3 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Of the library's threads: this one churns, which takes long where others want
 * the machine's memory. */
static double others_ms(void)
{
	return processor_ms(RUSAGE_SELF) - processor_ms(RUSAGE_THREAD);
}

static void check_rests(void)
{
	double began = others_ms(), used;

	for (int ms = 0; ms < REST_MS; ms += 20) {
		churn_heap();
		job_sleep_ms(20);
	}
	used = others_ms() - began;
	JOB_CHECK(used < REST_CPU_MS,
		  "%.0f ms of processor time in %d ms of rest", used, REST_MS);
}

static void check_pair(struct job_rank *me)
{
	int32_t mine = me->rank, theirs = -1;

	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, !me->rank, me->comm, NULL));
	JOB_TRY(dicomm_recv(&theirs, 1, DICOMM_INT32, !me->rank, me->comm,
			    NULL));
	JOB_TRY(dicomm_group_end());
	JOB_CHECK(theirs == !me->rank, "%d", theirs);
}

/* The last rank leaves, or dies. */
static void has_children(struct job_rank *me)
{
	bool dies = *(const bool *)me->arg, last = me->rank == me->ranks - 1;
	dicomm_comm_t rest;
	double begin;
	pid_t child;

	if (job_uses("ucx"))
		leaks_ignore();
	JOB_TRY(try_exchange(me->comm));
	child = fork_idle(60000);
	job_barrier();
	if (last && dies) {
		kill(child, SIGKILL);
		kill(getpid(), SIGKILL);
	}
	if (last) {
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
	}
	if (!dies)
		job_barrier();
	begin = job_seconds();
	while (dies && try_exchange(me->comm) == DICOMM_SUCCESS)
		JOB_CHECK(job_seconds() - begin < 10, "no error in 10 s");
	check_rests();
	if (!last && !dies)
		check_pair(me);
	if (dies) {
		JOB_TRY(dicomm_comm_shrink(me->comm, NULL, 0, &rest, NULL));
		trial_works(rest, me->rank, me->ranks - 1);
		JOB_TRY(dicomm_comm_destroy(rest));
	}
	reap(child, SIGKILL);
}

START_TEST(who_leaves_a_parent_is_not_polled_any_more)
{
	run_over(_i, (struct job){.run = has_children,
				  .arg = &(bool){false},
				  .ranks = 3});
}
END_TEST

START_TEST(who_dies_beside_a_parent_is_not_polled_any_more)
{
	run_over(_i, (struct job){.run = has_children,
				  .arg = &(bool){true},
				  .ranks = 3,
				  .may_die = 4});
}
END_TEST

/* Every rank calls every other one in each communicator. */
static void *connect_often(void *arg)
{
	struct job_rank *me = arg;
	dicomm_comm_t comm;

	for (int i = 0; i < ROUNDS; i++) {
		JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &comm, NULL));
		for (int k = 0; k < 3; k++)
			JOB_TRY(try_exchange(comm));
		JOB_TRY(dicomm_comm_destroy(comm));
	}
	return NULL;
}

static void forks_amid(struct job_rank *me)
{
	pthread_t thread;

	if (job_uses("ucx"))
		leaks_ignore();
	JOB_CHECK(!pthread_create(&thread, NULL, connect_often, me),
		  "pthread_create");
	while (pthread_tryjoin_np(thread, NULL))
		reap(fork_idle(10), 0);
}

START_TEST(a_parent_connects_while_it_forks)
{
	run_over(_i, (struct job){.run = forks_amid, .ranks = 3});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	TCase *tcase = tcase_create("fork");
	int n = count_routes();

	tcase_set_timeout(tcase, 100);
	/* That does not follow a child whose parent has threads. */
	if (!job_has_thread_sanitizer()) {
		tcase_add_loop_test(
			tcase, a_forked_child_cannot_use_its_parents_handles, 0,
			n);
		tcase_add_loop_test(
			tcase, a_group_stays_with_the_parent_of_a_fork, 0, n);
		tcase_add_loop_test(tcase,
				    who_leaves_a_parent_is_not_polled_any_more,
				    0, n);
		tcase_add_loop_test(
			tcase, who_dies_beside_a_parent_is_not_polled_any_more,
			0, n);
		tcase_add_loop_test(tcase, a_parent_connects_while_it_forks, 0,
				    n);
	}
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
