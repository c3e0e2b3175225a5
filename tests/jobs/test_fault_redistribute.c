/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank is killed, stopped or aborted in the middle of a redistribution: the
 * others end in bounded time, know whom to name, and once
 * dicomm_comm_abort() has returned, nobody writes their buffers. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/prompt.h"
#include "tests/support/runner.h"

#define RANKS 3
#define VICTIM 2
#define PATIENCE_S 20.0
#define TIMEOUT_MS 1500
#define WIDTH (1 << 16)
#define ROWS (RANKS * 48)
#define WHOLE ((size_t)ROWS * WIDTH)
#define POISON 0x5A

enum ending { KILLED, STOPPED, ABORTED, ENDINGS };

struct scene {
	enum ending how;
	dicomm_way_t way;
	bool on_stream;
};

/* What the processes of a job tell each other. */
struct word {
	_Atomic int begun;  /* ranks that have done a run */
	_Atomic int looked; /* ranks that have done with their buffers */
	_Atomic bool struck, going;
	_Atomic double struck_s; /* when the victim was, or the abort began */
};

static void wait_for(const _Atomic int *n, int wanted, const char *what)
{
	double end = job_seconds() + PATIENCE_S;

	while (atomic_load(n) < wanted) {
		JOB_CHECK(job_seconds() < end, "%s never came", what);
		usleep(200);
	}
}

static void wait_until(const _Atomic bool *flag, const char *what)
{
	double end = job_seconds() + PATIENCE_S;

	while (!atomic_load(flag)) {
		JOB_CHECK(job_seconds() < end, "%s never came", what);
		usleep(200);
	}
}

/* Beside the ranks. Where the victim is in a run is left to chance. */
static void strike(const void *arg)
{
	const struct scene *s = arg;
	struct word *w = job_board();
	int pid = job_pid(VICTIM);

	wait_for(&w->begun, RANKS, "the first run");
	usleep((unsigned)getpid() % 8 * 1000);
	atomic_store(&w->struck_s, job_seconds());
	kill(pid, s->how == KILLED ? SIGKILL : SIGSTOP);
	job_sleep_ms(2);
	atomic_store(&w->struck, true);
	if (s->how == KILLED)
		return;
	wait_for(&w->looked, s->how == STOPPED ? RANKS - 1 : 1, "the look");
	kill(pid, SIGCONT);
	atomic_store(&w->going, true);
}

static uint8_t *buffer_get(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	JOB_CHECK(p != MAP_FAILED, "no memory");
	memset(p, 0x11, bytes);
	return p;
}

/* Each has a part of the rows, and each wants all. */
static dicomm_redistribute_t plan(const struct job_rank *me,
				  const struct scene *s)
{
	static const int ranks[] = {0, 1, 2};
	dicomm_redistribute_config_t config =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	dicomm_tensor_t t = DICOMM_TENSOR_INITIALIZER;
	dicomm_mesh_t mesh = {.dims = 1, .extent = {RANKS}, .ranks = ranks};
	dicomm_box_t source[RANKS], target[RANKS];
	dicomm_redistribute_t p;

	t.type = DICOMM_UINT8;
	t.axes = 2;
	t.shape[0] = ROWS;
	t.shape[1] = WIDTH;
	t.source = source;
	t.target = target;
	t.sources = t.targets = RANKS;
	JOB_TRY(dicomm_mesh_boxes(&mesh, 2, t.shape, 0, target));
	mesh.placements[0].kind = DICOMM_SHARD;
	JOB_TRY(dicomm_mesh_boxes(&mesh, 2, t.shape, 0, source));
	config.way = s->way;
	config.staging_bytes = 4 << 20; /* several rounds */
	JOB_TRY(dicomm_redistribute_plan(&p, &t, 1, &config, me->comm));
	return p;
}

/* Over and over, until it fails. */
static dicomm_result_t run(const struct job_rank *me, dicomm_redistribute_t p,
			   const void *source, void *target,
			   dicomm_stream_t stream)
{
	double end = job_seconds() + PATIENCE_S;
	struct word *w = job_board();
	dicomm_result_t status;

	(void)me;
	for (int i = 0;; i++) {
		status = dicomm_redistribute_run(p, &source, &target, stream);
		if (stream) {
			dicomm_result_t ended =
				dicomm_host_stream_synchronize(stream);

			status = status != DICOMM_SUCCESS ? status : ended;
		}
		if (status != DICOMM_SUCCESS)
			return status;
		JOB_CHECK(job_seconds() < end, "no end of it");
		if (!i)
			atomic_fetch_add(&w->begun, 1);
	}
}

/* Rank 0, while the victim is stopped */
static void *abort_midway(void *arg)
{
	struct word *w = job_board();
	double begin;

	wait_until(&w->struck, "the stop");
	begin = job_seconds();
	atomic_store(&w->struck_s, begin);
	JOB_TRY(dicomm_comm_abort(arg));
	prompt_check("abort", job_seconds() - begin, 0);
	return NULL;
}

static void check_status(const struct job_rank *me, const struct scene *s,
			 dicomm_result_t status)
{
	static const char *const culprit[ENDINGS] = {"rank 2", "rank 2",
						     "rank 0"};
	static const char *const what[ENDINGS] = {
		"a death ends it", "a time-out ends it", "an abort ends it"};
	const char *text = dicomm_get_last_error(me->comm);
	struct word *w = job_board();
	bool good = status == DICOMM_ERR_REMOTE;

	if (s->how == STOPPED)
		good = good || status == DICOMM_ERR_TIMEOUT;
	if (s->how == ABORTED && me->rank == 0)
		good = status == DICOMM_ERR_ABORTED;
	/* The victim does not know that it was stopped. */
	if (me->rank == VICTIM && s->how == STOPPED) {
		JOB_CHECK(good, "status %d, \"%s\"", (int)status, text);
		return;
	}
	JOB_CHECK(good && strstr(text, culprit[s->how]),
		  "%s: status %d, \"%s\"", what[s->how], (int)status, text);
	if (me->rank != VICTIM)
		prompt_check(what[s->how],
			     job_seconds() - atomic_load(&w->struck_s),
			     s->how == STOPPED ? TIMEOUT_MS / 1e3 : 0);
}

static void abort_now(const struct job_rank *me)
{
	double begin = job_seconds();

	JOB_TRY(dicomm_comm_abort(me->comm));
	prompt_check("abort", job_seconds() - begin, 0);
}

static void play(struct job_rank *me)
{
	const struct scene *s = me->arg;
	bool aborts = s->how == ABORTED && me->rank == 0;
	uint8_t *source = buffer_get(WHOLE / RANKS);
	uint8_t *target = buffer_get(WHOLE);
	struct word *w = job_board();
	dicomm_stream_t stream = NULL;
	dicomm_redistribute_t p;
	dicomm_result_t status;
	pthread_t thread = 0;

	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	p = plan(me, s);
	/* Not before: the plan measures memory, and ranks begin late. */
	job_barrier();
	if (s->how == STOPPED)
		JOB_TRY(dicomm_comm_set_timeout(me->comm, TIMEOUT_MS));
	if (s->on_stream)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (aborts)
		JOB_CHECK(
			!pthread_create(&thread, NULL, abort_midway, me->comm),
			"no thread");
	job_doing("to run until it fails");
	status = run(me, p, source, target, stream);
	job_doing("to look at what is left");
	if (aborts)
		pthread_join(thread, NULL);
	check_status(me, s, status);
	if (!aborts)
		abort_now(me);
	memset(source, POISON, WHOLE / RANKS);
	memset(target, POISON, WHOLE);
	atomic_fetch_add(&w->looked, 1);
	if (s->how != KILLED)
		wait_until(&w->going, "the continuation");
	job_sleep_ms(100);
	job_check_bytes(source, WHOLE / RANKS, POISON, "source");
	job_check_bytes(target, WHOLE, POISON, "target");
	JOB_TRY(dicomm_redistribute_free(p));
	dicomm_host_stream_destroy(stream);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	job_check_bytes(target, WHOLE, POISON, "target after all");
	munmap(source, WHOLE / RANKS);
	munmap(target, WHOLE);
}

static void play_scene(enum ending how, int i, const char *env)
{
	struct scene s = {.how = how,
			  .way = (dicomm_way_t)(1 + i % 3),
			  .on_stream = i % 2};

	job_run(&(struct job){.run = play,
			      .arg = &s,
			      .ranks = RANKS,
			      .bare = true,
			      .may_die = how == KILLED ? 1u << VICTIM : 0,
			      .disturb = strike,
			      .timeout_s = 40,
			      .env = {"DICOMM_DEBUG=none", env}});
}

START_TEST(a_death_in_the_middle)
{
	play_scene(KILLED, _i, NULL);
}
END_TEST

START_TEST(a_stop_in_the_middle)
{
	play_scene(STOPPED, _i, NULL);
}
END_TEST

START_TEST(an_abort_in_the_middle)
{
	play_scene(ABORTED, _i, _i % 4 < 2 ? NULL : "DICOMM_SHM_CMA=off");
}
END_TEST

START_TEST(over_a_network)
{
	play_scene((enum ending)_i, _i, "DICOMM_TRANSPORTS=tcp");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault_redistribute");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_death_in_the_middle, 0, 3);
	tcase_add_test(t, a_stop_in_the_middle);
	tcase_add_loop_test(t, an_abort_in_the_middle, 0, 4);
	tcase_add_loop_test(t, over_a_network, 0, ENDINGS);
	suite_add_tcase(s, t);
	prompt_add(s);
	return runner_main(s);
}
