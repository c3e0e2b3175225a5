/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The n-th call of a device's driver fails, for each n until none fails any
 * more, while ranks on unlike devices meet or work: each of them ends with a
 * named error or with the right result, in time, and the driver gets back all
 * that it gave. The drivers are mocks, and what passes here says nothing about
 * a GPU.
 */
#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/memory/blocked_streams.h"
#include "tests/mock/driver.h"
#include "tests/support/cast.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define BOOTSTRAP_S 5.0
/* What a process may lack its core, on a machine that runs other things. */
#define SLACK_S (6.0 + starved_s())
#define VICTIM 1
#define MOST 5000
#define RANKS 3

struct word {
	_Atomic int failed; /* the n-th call was there */
};

struct run {
	struct job_rank *me;
	const struct scenario *scenario;
	struct gadget *g;
	struct word *word;
	int n, variant;
	int live; /* things of the driver, before */
	int lost; /* by failures */
	bool failed;
	struct trial trial;
};

struct scenario {
	const char *name;
	int variants;
	bool bare; /* without a communicator */
	/* Of the calls that fail in `make check`, unless short; and of those of
	 * the long run. */
	int stride, long_stride;
	dicomm_result_t (*run)(struct run *r);
};

static void keep(dicomm_result_t *first, dicomm_result_t status)
{
	if (*first == DICOMM_SUCCESS)
		*first = status;
}

static int error_of(const struct run *r)
{
	return r->n % 2 ? DRIVER_OUT_OF_MEMORY : DRIVER_INVALID_HANDLE;
}

static void arm(struct run *r)
{
	if (r->me->rank == VICTIM)
		gadget_fail(r->g, r->n, error_of(r));
}

static void disarm(struct run *r)
{
	if (r->me->rank == VICTIM)
		r->failed |= gadget_has_failed(r->g);
}

/* ---- scenarios ---- */

static dicomm_result_t meet(struct run *r)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;

	config.device = r->g->name;
	return dicomm_comm_init_rank_config(&r->me->comm, r->me->ranks,
					    job_id(), r->me->rank, &config);
}

static dicomm_result_t init(struct run *r)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t id = job_id();
	dicomm_result_t status;

	config.device = r->g->name;
	job_barrier();
	arm(r);
	status = dicomm_comm_init_rank_config(&r->me->comm, r->me->ranks, id,
					      r->me->rank, &config);
	disarm(r);
	return status;
}

/* The end of all that is on the stream of the test, whose own calls of the
 * driver may be those that fail. */
static void finish(const struct gadget *g)
{
	const struct accel_work *work = g->accel->work;

	if (!work)
		return;
	while (work->event_record(g->event, g->stream) != DICOMM_SUCCESS)
		continue;
	while (work->event_query(g->event) != DICOMM_SUCCESS)
		sched_yield();
}

static dicomm_result_t outcome(const struct run *r)
{
	dicomm_result_t async;

	JOB_TRY(dicomm_comm_get_async_error(r->me->comm, &async));
	return async;
}

/* Each kind, small and in many slices, in memory that wires and neighbours
 * know, or not. */
static dicomm_result_t operation(struct run *r)
{
	dicomm_result_t status;
	struct trial *t = &r->trial;

	t->kind = (enum trial_kind)(r->variant / 2 % TRIAL_KINDS);
	t->count = r->variant % 2 ? 40001 : 100;
	t->type = DICOMM_FLOAT32;
	t->op = DICOMM_SUM;
	t->root = r->me->ranks - 1;
	t->gadget = r->g->accel->work ? r->g : NULL;
	trial_fill(t, r->me);
	if (t->gadget)
		gadget_wait(r->g);
	job_barrier();
	arm(r);
	status = trial_call(t, r->g->native);
	/* What a rank has begun ends when the others hear that it failed. */
	if (status != DICOMM_SUCCESS)
		dicomm_comm_abort(r->me->comm);
	finish(r->g);
	disarm(r);
	keep(&status, outcome(r));
	return status;
}

static dicomm_result_t memory(struct run *r)
{
	dicomm_result_t status;
	void *at = NULL, *handle = NULL;

	job_barrier();
	arm(r);
	status = dicomm_comm_mem_alloc(r->me->comm, &at, 100000);
	if (status == DICOMM_SUCCESS)
		status = dicomm_comm_register(r->me->comm, at, 100000, &handle);
	disarm(r);
	if (handle)
		JOB_TRY(dicomm_comm_deregister(r->me->comm, handle));
	if (at)
		JOB_TRY(dicomm_mem_free(at));
	return status;
}

static dicomm_result_t split(struct run *r)
{
	dicomm_comm_t child = NULL;
	dicomm_result_t status;

	job_barrier();
	arm(r);
	status = dicomm_comm_split(r->me->comm, 0, 0, &child, NULL);
	disarm(r);
	if (status != DICOMM_SUCCESS && child)
		dicomm_comm_abort(child);
	JOB_TRY(dicomm_comm_destroy(child));
	return status;
}

static const struct scenario scenarios[] = {
	{.name = "init",
	 .variants = 1,
	 .bare = true,
	 .stride = 41,
	 .long_stride = 1,
	 .run = init},
	{.name = "operation",
	 .variants = 2 * TRIAL_KINDS,
	 .stride = 61,
	 .long_stride = 3,
	 .run = operation},
	{.name = "memory",
	 .variants = 1,
	 .stride = 2,
	 .long_stride = 1,
	 .run = memory},
	{.name = "split",
	 .variants = 1,
	 .stride = 41,
	 .long_stride = 1,
	 .run = split},
};
#define SCENARIOS (int)(sizeof(scenarios) / sizeof(*scenarios))

/* ---- one run ---- */

static void check_status(const struct run *r, dicomm_result_t status)
{
	static const dicomm_result_t named[] = {
		DICOMM_SUCCESS,         DICOMM_ERR_DEVICE,
		DICOMM_ERR_REMOTE,      DICOMM_ERR_NO_MEMORY,
		DICOMM_ERR_ABORTED,     DICOMM_ERR_INVALID_ARGUMENT,
		DICOMM_ERR_UNSUPPORTED, DICOMM_ERR_TIMEOUT};
	const char *text = dicomm_get_last_error(r->me->comm);
	bool known = false;

	for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++)
		known |= status == named[i];
	JOB_CHECK(known && (status == DICOMM_SUCCESS || *text),
		  "%s %d, call %d: status %d, \"%s\"", r->scenario->name,
		  r->variant, r->n, (int)status, text);
}

/* As a user would: who alone has failed tells the others. */
static void end_comm(struct run *r, dicomm_result_t status)
{
	if (!r->me->comm)
		return;
	if (status != DICOMM_SUCCESS && outcome(r) == DICOMM_SUCCESS)
		JOB_TRY(dicomm_comm_abort(r->me->comm));
	JOB_TRY(dicomm_comm_destroy(r->me->comm));
	r->me->comm = NULL;
}

/* All have let go of it. What failed may be to enter a device whose thing was
 * to be freed, which then stays: one. */
static void count_lost(struct run *r)
{
	int left;

	deferred_sweep();
	left = gadget_live(r->g) - r->live;
	JOB_CHECK(left >= 0 && left <= r->failed,
		  "%s %d, call %d: %d things of the driver were not freed",
		  r->scenario->name, r->variant, r->n, left);
	r->live += left;
	r->lost += left;
}

/* Returns whether the n-th call was there. */
static bool run_once(struct run *r)
{
	dicomm_result_t status;
	double begin;
	bool failed;

	r->failed = false;
	memset(&r->trial, 0, sizeof(r->trial));
	atomic_store(&r->word->failed, 0);
	job_doing("%s %d, call %d", r->scenario->name, r->variant, r->n);
	job_barrier();
	if (!r->scenario->bare)
		JOB_TRY(meet(r));
	begin = job_seconds();
	status = r->scenario->run(r);
	if (r->failed)
		atomic_store(&r->word->failed, 1);
	check_status(r, status);
	if (status == DICOMM_SUCCESS && r->trial.send.memory)
		trial_check(&r->trial);
	end_comm(r, status);
	JOB_CHECK(job_seconds() - begin < BOOTSTRAP_S + SLACK_S,
		  "%s %d, call %d: took %.1f s", r->scenario->name, r->variant,
		  r->n, job_seconds() - begin);
	if (r->trial.send.memory)
		trial_free(&r->trial);
	job_barrier();
	failed = atomic_load(&r->word->failed);
	JOB_CHECK(failed || status == DICOMM_SUCCESS,
		  "%s %d: status %d, but nothing failed", r->scenario->name,
		  r->variant, (int)status);
	count_lost(r);
	job_barrier();
	return failed;
}

struct order {
	const struct scenario *scenario;
	const char *device[RANKS];
};

static int stride(const struct scenario *s)
{
	if (job_is_long())
		return s->long_stride;
	return job_is_short() ? 4 * s->stride : s->stride;
}

static void run_all(struct job_rank *me)
{
	const struct order *o = me->arg;
	struct gadget g;
	struct run r = {.me = me,
			.scenario = o->scenario,
			.g = &g,
			.word = job_board()};
	int step = stride(o->scenario), failed = 0;

	gadget_open(&g, o->device[me->rank]);
	r.live = gadget_live(&g);
	/* Here as well, what a process does but once may fail. */
	for (r.variant = 0; r.variant < o->scenario->variants; r.variant++)
		for (r.n = 1 + r.variant % step; r.n < MOST && run_once(&r);
		     r.n += step)
			failed++;
	JOB_CHECK(failed >= o->scenario->variants / step,
		  "%s: only %d calls failed", o->scenario->name, failed);
	if (me->rank == VICTIM)
		printf("%s: %d calls of the driver of %s failed\n",
		       o->scenario->name, failed, g.name);
	gadget_close(&g);
	JOB_CHECK(!gadget_hangs(&g), "%d calls would have waited for a stream",
		  gadget_hangs(&g));
	JOB_CHECK(!gadget_early(&g), "%d allocations were freed too early",
		  gadget_early(&g));
	JOB_CHECK(gadget_live(&g) == r.lost && r.lost <= 1 + failed / 50,
		  "%d things of the driver were not freed, %d of them lost",
		  gadget_live(&g), r.lost);
}

/* Of each, the victim's driver fails; another device of its kind maps its
 * memory, or one of the other kind does not. */
static const char *const devices[][RANKS] = {
	{"host", "cuda:0", "hip:0"},
	{"hip:1", "hip:0", "host"},
};
#define CASTS (int)(sizeof(devices) / sizeof(*devices))

START_TEST(every_call_of_a_driver_may_fail)
{
	struct order o = {.scenario = &scenarios[_i / CASTS]};

	memcpy(o.device, devices[_i % CASTS], sizeof(o.device));
	for (int i = 0; i < RANKS; i++)
		if (!cast_has(o.device[i]))
			return;
	job_run(&(struct job){
		.run = run_all,
		.arg = &o,
		.ranks = RANKS,
		.bare = true,
		.timeout_s = job_is_long() ? 1500 : 100,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=5"}});
}
END_TEST

/* Each scenario can be run alone: CK_RUN_CASE=split. */
int main(void)
{
	Suite *suite = suite_create("fault_driver");

	for (int i = 0; i < SCENARIOS; i++) {
		TCase *tcase = tcase_create(scenarios[i].name);

		tcase_set_timeout(tcase, job_is_long() ? 1600 : 120);
		tcase_add_loop_test(tcase, every_call_of_a_driver_may_fail,
				    CASTS * i, CASTS * (i + 1));
		suite_add_tcase(suite, tcase);
	}
	return runner_main(suite);
}
