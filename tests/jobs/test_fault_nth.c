/* SPDX-License-Identifier: BSD-3-Clause */
/* The n-th request to the system fails, for each n until nothing fails any
 * more, in everything that a rank can do: it and the others end with a named
 * error or with the right result, in time, and nothing is lost. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/fault.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/support/trial.h"

/* What a process may lack its core, on a machine that runs other things. */
#define SLACK_S (4.0 + starved_s())
#define SMALL 100
#define LARGE 200000
/* No scenario asks for more. */
#define MOST 3000

/* Emulation: what a process does once, with RDMA devices, takes longer there.
 */
static bool is_slow(void)
{
	return getenv("DICOMM_TEST_VM");
}

static double bootstrap_s(void)
{
	return is_slow() ? 8 : 2;
}

static double background_s(void)
{
	return bootstrap_s() + 2 * SLACK_S;
}

/* What the processes of a job tell each other. */
struct word {
	_Atomic int failed; /* the n-th request was there */
	_Atomic bool go;
};

struct run {
	struct job_rank *me;
	int victim; /* this rank's requests fail */
	int n;
	int variant;
	struct word *word;
	struct residue before;
	struct trial trial;
	dicomm_unique_id_t id;
	const char *what; /* failed */
};

static bool is_victim(const struct run *r)
{
	return r->me->rank == r->victim;
}

static void arm(struct run *r)
{
	if (is_victim(r))
		fault_arm(r->n);
}

static void disarm(struct run *r)
{
	const char *what;

	if (!is_victim(r))
		return;
	what = fault_disarm();
	if (what)
		r->what = what;
}

struct scenario {
	const char *name;
	int variants;
	bool bare;  /* without a communicator */
	bool fresh; /* what a process does once may fail, too */
	int stride; /* of the requests that fail in `make check`; 0: all */
	/* Between arm() and disarm() only the library works. Its status is
	 * looked at, and the communicator destroyed, by the caller. */
	dicomm_result_t (*run)(struct run *r);
};

static void keep(dicomm_result_t *first, dicomm_result_t status)
{
	if (*first == DICOMM_SUCCESS)
		*first = status;
}

/* ---- scenarios ---- */

static dicomm_result_t init(struct run *r)
{
	dicomm_result_t status;

	arm(r);
	status = dicomm_comm_init_rank(&r->me->comm, r->me->ranks, r->id,
				       r->me->rank);
	disarm(r);
	return status;
}

static dicomm_result_t init_in_background(struct run *r)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_result_t status;

	config.blocking = 0;
	arm(r);
	status = dicomm_comm_init_rank_config(&r->me->comm, r->me->ranks, r->id,
					      r->me->rank, &config);
	status = job_settled(status, r->me->comm, background_s());
	disarm(r);
	return status;
}

/* A group of calls in the life of a communicator. */
static dicomm_result_t init_in_group(struct run *r)
{
	dicomm_result_t status;

	arm(r);
	status = dicomm_group_start();
	keep(&status, dicomm_comm_init_rank(&r->me->comm, r->me->ranks, r->id,
					    r->me->rank));
	keep(&status, dicomm_group_end());
	disarm(r);
	JOB_CHECK(status == DICOMM_SUCCESS || !r->me->comm,
		  "request %d (%s): status %d, but there is a handle", r->n,
		  r->what ? r->what : "none", (int)status);
	return status;
}

/* The first request at the end of a group is a thread; all others, those of the
 * thread, fail in the other scenarios. */
static dicomm_result_t end_group(struct run *r)
{
	dicomm_result_t status;

	if (r->n == 1)
		arm(r);
	status = dicomm_group_end();
	if (r->n == 1)
		disarm(r);
	return status;
}

static dicomm_result_t init_thread(struct run *r)
{
	dicomm_result_t status;

	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_comm_init_rank(&r->me->comm, r->me->ranks, r->id,
				      r->me->rank));
	status = end_group(r);
	JOB_CHECK(status == DICOMM_SUCCESS || !r->me->comm,
		  "status %d, but there is a handle", (int)status);
	return status;
}

static dicomm_result_t make_id(struct run *r)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	dicomm_unique_id_t id;

	arm(r);
	if (is_victim(r))
		status = dicomm_get_unique_id(&id);
	disarm(r);
	return status;
}

/* Every kind, small and large, in memory of both kinds. */
static dicomm_result_t operation(struct run *r)
{
	dicomm_result_t status;

	r->trial.kind = (enum trial_kind)(r->variant % TRIAL_KINDS);
	r->trial.count = r->variant / TRIAL_KINDS % 2 ? LARGE : SMALL;
	r->trial.shared = r->variant / TRIAL_KINDS / 2 % 2;
	r->trial.type = DICOMM_FLOAT32;
	r->trial.root = r->me->ranks - 1;
	trial_fill(&r->trial, r->me);
	job_barrier();
	arm(r);
	status = trial_call(&r->trial, NULL);
	disarm(r);
	return status;
}

static dicomm_result_t stream(struct run *r)
{
	dicomm_result_t status;
	dicomm_stream_t s = NULL;

	r->trial.kind = TRIAL_ALLREDUCE;
	r->trial.count = r->variant ? LARGE : SMALL;
	r->trial.type = DICOMM_INT32;
	trial_fill(&r->trial, r->me);
	job_barrier();
	arm(r);
	status = dicomm_host_stream_create(&s);
	if (status == DICOMM_SUCCESS)
		status = trial_call(&r->trial, s);
	if (s)
		keep(&status, dicomm_host_stream_synchronize(s));
	disarm(r);
	dicomm_host_stream_destroy(s);
	return status;
}

static dicomm_result_t group(struct run *r)
{
	int32_t a = 1, b = 0, c = 2, d = 0, e = 3, f = 0;
	int next = (r->me->rank + 1) % r->me->ranks;
	int before = (r->me->rank + r->me->ranks - 1) % r->me->ranks;
	dicomm_comm_t comm = r->me->comm;
	dicomm_stream_t s = NULL;
	dicomm_result_t status;

	if (r->variant)
		JOB_TRY(dicomm_host_stream_create(&s));
	job_barrier();
	arm(r);
	status = dicomm_group_start();
	keep(&status,
	     dicomm_allreduce(&a, &b, 1, DICOMM_INT32, DICOMM_SUM, comm, s));
	keep(&status, dicomm_send(&c, 1, DICOMM_INT32, next, comm, s));
	keep(&status, dicomm_recv(&d, 1, DICOMM_INT32, before, comm, s));
	keep(&status,
	     dicomm_allreduce(&e, &f, 1, DICOMM_INT32, DICOMM_SUM, comm, s));
	keep(&status, dicomm_group_end());
	/* What was queued has to end before its buffers go. */
	if (status != DICOMM_SUCCESS)
		dicomm_comm_abort(comm);
	if (s)
		keep(&status, dicomm_host_stream_synchronize(s));
	disarm(r);
	dicomm_host_stream_destroy(s);
	if (status == DICOMM_SUCCESS)
		JOB_CHECK(b == r->me->ranks && d == 2 && f == 3 * r->me->ranks,
			  "results %d %d %d", b, d, f);
	return status;
}

static dicomm_result_t try_child(dicomm_result_t status, dicomm_comm_t child)
{
	if (status == DICOMM_SUCCESS)
		status = dicomm_barrier(child, NULL);
	return status;
}

/* The call that made the child, and its first operation, are over. */
static dicomm_result_t end_child(struct run *r, dicomm_result_t status,
				 dicomm_comm_t child)
{
	status = try_child(status, child);
	disarm(r);
	if (status != DICOMM_SUCCESS && child)
		dicomm_comm_abort(child);
	JOB_TRY(dicomm_comm_destroy(child));
	return status;
}

static dicomm_result_t split(struct run *r)
{
	dicomm_comm_t child = NULL;
	dicomm_result_t status;

	job_barrier();
	arm(r);
	status = dicomm_comm_split(r->me->comm, 0, 0, &child, NULL);
	return end_child(r, status, child);
}

static dicomm_result_t create_group(struct run *r)
{
	static const int both[] = {0, 1};
	dicomm_comm_t child = NULL;
	dicomm_result_t status;

	job_barrier();
	arm(r);
	status =
		dicomm_comm_create_group(r->me->comm, both, 2, 3, &child, NULL);
	return end_child(r, status, child);
}

static dicomm_result_t shrink(struct run *r)
{
	dicomm_comm_t child = NULL;
	dicomm_result_t status;

	job_barrier();
	arm(r);
	status = dicomm_comm_shrink(r->me->comm, NULL, 0, &child, NULL);
	return end_child(r, status, child);
}

static dicomm_result_t child_thread(struct run *r)
{
	dicomm_comm_t child = NULL;
	dicomm_result_t status;

	job_barrier();
	JOB_TRY(dicomm_group_start());
	if (r->variant)
		JOB_TRY(dicomm_comm_shrink(r->me->comm, NULL, 0, &child, NULL));
	else
		JOB_TRY(dicomm_comm_split(r->me->comm, 0, 0, &child, NULL));
	/* Who fails aborts the old one: all have called by then. */
	job_barrier();
	status = end_group(r);
	JOB_CHECK(status == DICOMM_SUCCESS || !child,
		  "status %d, but there is a handle", (int)status);
	status = try_child(status, child);
	JOB_TRY(dicomm_comm_destroy(child));
	return status;
}

/* A window is made, written, and ended. Who cannot make its part refuses, and
 * then no rank has it, but the next one. */
static dicomm_result_t window(struct run *r)
{
	uint8_t there[64] = {0}, here[64] = {1};
	int peer = 1 - r->me->rank;
	dicomm_wait_signal_desc_t one = {1, peer, 3, 0};
	dicomm_window_t win = NULL;
	dicomm_result_t status;

	job_barrier();
	arm(r);
	status = dicomm_comm_window_register(r->me->comm, there, sizeof(there),
					     &win, 0);
	if (status == DICOMM_SUCCESS)
		status = dicomm_put_signal(here, sizeof(here), DICOMM_UINT8,
					   peer, win, 0, 3, 0, 0, r->me->comm,
					   NULL);
	if (status == DICOMM_SUCCESS)
		status = dicomm_wait_signal(1, &one, r->me->comm, NULL);
	if (status == DICOMM_SUCCESS)
		status = dicomm_comm_window_deregister(r->me->comm, win);
	disarm(r);
	JOB_CHECK(status != DICOMM_SUCCESS || there[0] == 1,
		  "request %d (%s): what was put is not there", r->n,
		  r->what ? r->what : "none");
	return status;
}

/* Local calls: what fails has no effect. */
static dicomm_result_t things(struct run *r)
{
	float scalar = 2;
	dicomm_redop_t op = DICOMM_SUM;
	dicomm_result_t status;
	void *p = NULL, *handle = NULL;

	arm(r);
	status = dicomm_mem_alloc(&p, 1 << 20);
	if (status == DICOMM_SUCCESS)
		status = dicomm_comm_register(r->me->comm, p, 1 << 20, &handle);
	keep(&status, dicomm_redop_create_premulsum(
			      &op, &scalar, DICOMM_FLOAT32,
			      DICOMM_SCALAR_HOST_IMMEDIATE, r->me->comm));
	disarm(r);
	if (handle)
		JOB_TRY(dicomm_comm_deregister(r->me->comm, handle));
	JOB_TRY(dicomm_mem_free(p));
	if (op != DICOMM_SUM)
		JOB_TRY(dicomm_redop_destroy(op, r->me->comm));
	return status;
}

static dicomm_result_t finalize(struct run *r)
{
	dicomm_result_t status;

	JOB_TRY(dicomm_barrier(r->me->comm, NULL));
	job_barrier();
	arm(r);
	status = dicomm_comm_finalize(r->me->comm);
	keep(&status, dicomm_comm_destroy(r->me->comm));
	r->me->comm = NULL;
	disarm(r);
	return status;
}

/* What fails leaves a communicator that works. */
static dicomm_result_t finalize_in_background(struct run *r)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_result_t status, async;

	config.blocking = 0;
	status = dicomm_comm_init_rank_config(&r->me->comm, r->me->ranks, r->id,
					      r->me->rank, &config);
	JOB_TRY(job_settled(status, r->me->comm, background_s()));
	JOB_TRY(dicomm_barrier(r->me->comm, NULL));
	job_barrier();
	arm(r);
	status = dicomm_comm_finalize(r->me->comm);
	async = job_settled(DICOMM_IN_PROGRESS, r->me->comm, background_s());
	disarm(r);
	JOB_CHECK(async == DICOMM_SUCCESS, "async %d", (int)async);
	if (status == DICOMM_IN_PROGRESS)
		status = async;
	/* The other need not hear of it. */
	job_barrier();
	return status;
}

static dicomm_result_t finalize_in_group(struct run *r)
{
	dicomm_result_t status, end;

	JOB_TRY(dicomm_barrier(r->me->comm, NULL));
	job_barrier();
	arm(r);
	status = dicomm_group_start();
	keep(&status, dicomm_comm_finalize(r->me->comm));
	keep(&status, dicomm_group_end());
	disarm(r);
	end = dicomm_comm_finalize(r->me->comm);
	/* The other need not hear of it. */
	job_barrier();
	JOB_CHECK(end == (status == DICOMM_SUCCESS ? DICOMM_ERR_INVALID_USAGE
						   : DICOMM_SUCCESS),
		  "request %d (%s): status %d, then %d", r->n,
		  r->what ? r->what : "none", (int)status, (int)end);
	return status;
}

/* The news of a failure comes to a rank that has no memory for it. */
static dicomm_result_t hear_of_an_abort(struct run *r)
{
	bool aborts = r->me->rank == (r->victim + 1) % r->me->ranks;

	JOB_TRY(dicomm_barrier(r->me->comm, NULL));
	job_barrier();
	arm(r);
	if (is_victim(r))
		atomic_store(&r->word->go, true);
	while (!atomic_load(&r->word->go))
		usleep(100);
	if (aborts) {
		usleep(1000);
		dicomm_comm_abort(r->me->comm);
	}
	dicomm_barrier(r->me->comm, NULL);
	disarm(r);
	/* That the other leaves would tell, too. */
	job_barrier();
	return DICOMM_ERR_REMOTE;
}

static const struct scenario scenarios[] = {
	{.name = "init",
	 .variants = 1,
	 .bare = true,
	 .fresh = true,
	 .stride = 31,
	 .run = init},
	{.name = "init again",
	 .variants = 1,
	 .bare = true,
	 .stride = 31,
	 .run = init},
	{.name = "init in the background",
	 .variants = 1,
	 .bare = true,
	 .stride = 31,
	 .run = init_in_background},
	{.name = "init in a group",
	 .variants = 1,
	 .bare = true,
	 .stride = 31,
	 .run = init_in_group},
	{.name = "init's thread",
	 .variants = 1,
	 .bare = true,
	 .run = init_thread},
	{.name = "child's thread", .variants = 2, .run = child_thread},
	{.name = "id",
	 .variants = 1,
	 .bare = true,
	 .fresh = true,
	 .stride = 7,
	 .run = make_id},
	{.name = "operation",
	 .variants = 4 * TRIAL_KINDS,
	 .stride = 29,
	 .run = operation},
	{.name = "stream", .variants = 2, .stride = 13, .run = stream},
	{.name = "first stream",
	 .variants = 1,
	 .fresh = true,
	 .stride = 7,
	 .run = stream},
	{.name = "group", .variants = 2, .stride = 13, .run = group},
	{.name = "split", .variants = 1, .stride = 37, .run = split},
	{.name = "create group",
	 .variants = 1,
	 .stride = 37,
	 .run = create_group},
	{.name = "shrink", .variants = 1, .stride = 37, .run = shrink},
	{.name = "window", .variants = 1, .run = window},
	{.name = "first window", .variants = 1, .fresh = true, .run = window},
	{.name = "things", .variants = 1, .run = things},
	{.name = "finalize", .variants = 1, .run = finalize},
	{.name = "finalize in the background",
	 .variants = 1,
	 .bare = true,
	 .run = finalize_in_background},
	{.name = "finalize in a group",
	 .variants = 1,
	 .run = finalize_in_group},
	{.name = "abort", .variants = 1, .run = hear_of_an_abort},
};

#define SCENARIOS (int)(sizeof(scenarios) / sizeof(*scenarios))

/* ---- one run ---- */

static bool names(const char *text, int rank)
{
	char name[24];

	snprintf(name, sizeof(name), "rank %d", rank);
	return strstr(text, name) != NULL;
}

static void check_status(const struct run *r, const struct scenario *s,
			 dicomm_result_t status)
{
	static const dicomm_result_t named[] = {
		DICOMM_SUCCESS,     DICOMM_ERR_SYSTEM,    DICOMM_ERR_REMOTE,
		DICOMM_ERR_TIMEOUT, DICOMM_ERR_NO_MEMORY, DICOMM_ERR_NO_PATH,
		DICOMM_ERR_ABORTED};
	const char *text = dicomm_get_last_error(r->me->comm);
	bool known = false;

	for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++)
		known |= status == named[i];
	JOB_CHECK(known, "%s %d, request %d (%s): status %d, \"%s\"", s->name,
		  r->variant, r->n, r->what ? r->what : "none", (int)status,
		  text);
	JOB_CHECK(status == DICOMM_SUCCESS || *text,
		  "%s %d, request %d (%s): status %d without a word", s->name,
		  r->variant, r->n, r->what ? r->what : "none", (int)status);
	/* Who did not fail is told who did. */
	JOB_CHECK(s->bare || s->run == hear_of_an_abort || is_victim(r) ||
			  status == DICOMM_SUCCESS ||
			  status == DICOMM_ERR_ABORTED ||
			  names(text, r->victim),
		  "%s %d, request %d: status %d, \"%s\"", s->name, r->variant,
		  r->n, (int)status, text);
	/* The system's words come from what the call returned. */
	JOB_CHECK(status == DICOMM_SUCCESS || !strstr(text, ": Success"),
		  "%s %d, request %d (%s): status %d, \"%s\"", s->name,
		  r->variant, r->n, r->what ? r->what : "none", (int)status,
		  text);
}

static void check_time(const struct run *r, const struct scenario *s,
		       dicomm_result_t status, double took)
{
	const char *what = r->what ? r->what : "none";

	if (job_is_long() && took > 1)
		fprintf(stderr,
			"%s %d, request %d (%s): rank %d: %.1f s, status %d\n",
			s->name, r->variant, r->n, what, r->me->rank, took,
			(int)status);
	JOB_CHECK(took < bootstrap_s() + SLACK_S,
		  "%s %d, request %d (%s): took %.1f s", s->name, r->variant,
		  r->n, what, took);
}

/* As a user would: who alone has failed tells the others. */
static void end_comm(struct run *r, dicomm_result_t status)
{
	dicomm_result_t async;

	if (!r->me->comm)
		return;
	JOB_TRY(dicomm_comm_get_async_error(r->me->comm, &async));
	if (status != DICOMM_SUCCESS && async == DICOMM_SUCCESS)
		JOB_TRY(dicomm_comm_abort(r->me->comm));
	JOB_TRY(dicomm_comm_destroy(r->me->comm));
	r->me->comm = NULL;
}

/* Returns whether the n-th request was there. */
static bool run_once(struct run *r, const struct scenario *s)
{
	dicomm_result_t status;
	double begin;
	bool failed;

	r->id = job_id();
	r->what = NULL;
	memset(&r->trial, 0, sizeof(r->trial));
	atomic_store(&r->word->failed, 0);
	atomic_store(&r->word->go, false);
	job_barrier();
	if (!s->bare)
		JOB_TRY(dicomm_comm_init_rank(&r->me->comm, r->me->ranks, r->id,
					      r->me->rank));
	begin = job_seconds();
	status = s->run(r);
	if (r->what)
		atomic_store(&r->word->failed, 1);
	check_status(r, s, status);
	if (status == DICOMM_SUCCESS && r->trial.send.memory)
		trial_check(&r->trial);
	end_comm(r, status);
	check_time(r, s, status, job_seconds() - begin);
	if (r->trial.send.memory)
		trial_free(&r->trial);
	job_barrier();
	failed = atomic_load(&r->word->failed);
	JOB_CHECK(failed || status == DICOMM_SUCCESS ||
			  s->run == hear_of_an_abort,
		  "%s %d: status %d, but nothing failed", s->name, r->variant,
		  (int)status);
	job_barrier();
	return failed;
}

/* `make check` has a part of them. */
static int stride(const struct scenario *s)
{
	return job_is_long() || !s->stride ? 1 : s->stride;
}

struct order {
	const struct scenario *scenario;
	int victim, n, variant;
};

static void warm_up(struct job_rank *me)
{
	dicomm_stream_t s;

	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_TRY(dicomm_host_stream_create(&s));
	JOB_TRY(dicomm_barrier(me->comm, s));
	JOB_TRY(dicomm_host_stream_destroy(s));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

/* All requests of all variants, in one process after the other runs. */
static void run_all(struct job_rank *me)
{
	const struct order *o = me->arg;
	const struct scenario *s = o->scenario;
	struct run r = {.me = me, .victim = o->victim, .word = job_board()};
	int step = stride(s), failed = 0;

	warm_up(me);
	job_sleep_ms(100);
	residue_count(&r.before);
	for (r.variant = 0; r.variant < s->variants; r.variant++) {
		r.n = 1 + (r.variant + o->victim + o->n) % step;
		for (; r.n < MOST && run_once(&r, s); r.n += step)
			failed++;
	}
	if (is_victim(&r))
		printf("%s: %d requests of rank %d failed\n", s->name, failed,
		       me->rank);
	/* What hosted an id server that failed answers late-comers for a time.
	 */
	if (job_is_long())
		residue_check(&r.before, s->name);
}

/* Outlives the job: there are not as many requests. */
static bool *past_the_end;

static void run_fresh(struct job_rank *me)
{
	const struct order *o = me->arg;
	struct run r = {.me = me,
			.victim = o->victim,
			.n = o->n,
			.variant = o->variant,
			.word = job_board()};

	if (!run_once(&r, o->scenario))
		*past_the_end = true;
}

#define QUIET "DICOMM_DEBUG=none"

static const char *bootstrap_timeout(void)
{
	return is_slow() ? "DICOMM_BOOTSTRAP_TIMEOUT=8"
			 : "DICOMM_BOOTSTRAP_TIMEOUT=2";
}

/* Who is to meet over another communicator need not wait for a time-out, which
 * would be too late. But an id server to which nobody came lasts so long. */
static const char *patience(const struct scenario *s)
{
	return s->run == split ? "DICOMM_BOOTSTRAP_TIMEOUT=10"
			       : bootstrap_timeout();
}

START_TEST(every_request_may_fail)
{
	const struct scenario *s = &scenarios[_i / 2];
	struct order o = {.scenario = s, .victim = _i % 2};
	int step = stride(s), seconds = is_slow() ? 240 : 60, jobs = 0;

	past_the_end = mmap(NULL, 1, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(past_the_end != MAP_FAILED);
	if (job_is_long())
		seconds = 1500;
	o.n = job_is_long() ? 1 : 1 + (int)(getpid() % step);
	if (!s->fresh) {
		job_run(&(struct job){.run = run_all,
				      .arg = &o,
				      .ranks = 2,
				      .bare = true,
				      .timeout_s = seconds,
				      .env = {QUIET, patience(s)}});
		return;
	}
	for (; o.n < MOST && !*past_the_end; o.n += step, jobs++)
		job_run(&(struct job){.run = run_fresh,
				      .arg = &o,
				      .ranks = 2,
				      .bare = true,
				      .env = {QUIET, bootstrap_timeout()}});
	printf("%s: %d requests of rank %d failed\n", s->name, jobs - 1,
	       o.victim);
	fflush(stdout);
}
END_TEST

/* Of ranks in one process none waits for one that cannot come. */
static void short_of_memory(struct job_rank *me)
{
	dicomm_comm_t comms[4];
	dicomm_result_t status;
	double begin;

	(void)me;
	for (int n = 1; n <= 20; n++) {
		begin = job_seconds();
		fault_arm(n);
		status = dicomm_comm_init_all(comms, 4, NULL);
		JOB_CHECK(fault_disarm(), "%d requests did not fail", n);
		JOB_CHECK(job_seconds() - begin < 10 + starved_s(),
			  "request %d: it took %.1f s", n,
			  job_seconds() - begin);
		for (int i = 0; i < 4; i++) {
			JOB_CHECK(!comms[i] == (status != DICOMM_SUCCESS),
				  "request %d: status %d", n, (int)status);
			JOB_TRY(dicomm_comm_destroy(comms[i]));
		}
	}
}

START_TEST(init_all_waits_for_no_rank_that_cannot_come)
{
	job_run(&(struct job){.run = short_of_memory,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

/* Each scenario can be run alone: CK_RUN_CASE=split. */
int main(void)
{
	Suite *suite = suite_create("fault_nth");
	TCase *alone = tcase_create("alone");

	tcase_set_timeout(alone, 70);
	tcase_add_test(alone, init_all_waits_for_no_rank_that_cannot_come);
	suite_add_tcase(suite, alone);
	for (int i = 0; i < SCENARIOS; i++) {
		TCase *tcase = tcase_create(scenarios[i].name);

		tcase_set_timeout(tcase, job_is_long() ? 1600 : 70);
		tcase_add_loop_test(tcase, every_request_may_fail, 2 * i,
				    2 * i + 2);
		suite_add_tcase(suite, tcase);
	}
	return runner_main(suite);
}
