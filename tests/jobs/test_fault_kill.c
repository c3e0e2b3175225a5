/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that dies, at any moment, in any operation: all others learn who it
 * was within a second, and nothing is left behind. The second begins when the
 * kernel has ended the process: software RDMA may take long to close what it
 * had open, and nobody can know of its death before. */
#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/prompt.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"

#define KILLS 20
#define KILLS_LONG 200
#define READY_S 20.0
#define MOST_RANKS 4

struct scene {
	unsigned seed;
	int ranks, victim;
	int delay_us; /* from when all ranks are at work */
	struct result *result;
};

/* Outlives the job. */
struct result {
	_Atomic int working;
	_Atomic bool killed;
	double killed_s, ended_s;
	_Atomic bool ended; /* and both times are known */
};

static bool is_set_in_time(const _Atomic bool *flag)
{
	double until = job_seconds() + READY_S;

	while (!atomic_load(flag) && job_seconds() < until)
		job_sleep_ms(1);
	return atomic_load(flag);
}

static void check_words(const struct job_rank *me, dicomm_result_t status,
			int victim)
{
	const char *text = dicomm_get_last_error(me->comm);
	char name[16];
	dicomm_result_t async;

	snprintf(name, sizeof(name), "rank %d", victim);
	JOB_CHECK(status == DICOMM_ERR_REMOTE,
		  "status %d (%s) on the death "
		  "of %s",
		  (int)status, text, name);
	JOB_CHECK(strstr(text, name), "\"%s\" does not name %s", text, name);
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
	JOB_CHECK(async == status, "asynchronous error %d", (int)async);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_REMOTE, name);
}

static void work(struct job_rank *me)
{
	const struct scene *scene = me->arg;
	struct result *r = scene->result;
	struct residue before;
	dicomm_result_t status;
	struct storm s;
	double begin, end;

	storm_warm_up(me, &before);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	storm_begin(&s, me, scene->seed);
	atomic_fetch_add(&r->working, 1);
	begin = job_seconds();
	do {
		status = storm_next(&s);
		JOB_CHECK(job_seconds() < begin + READY_S,
			  "worked for %.0f s, and nobody died", READY_S);
	} while (status == DICOMM_SUCCESS);
	end = job_seconds();
	JOB_CHECK(atomic_load(&r->killed), "%s: %s",
		  dicomm_get_error_string(status),
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(is_set_in_time(&r->ended),
		  "the killed process has not ended after %.0f s", READY_S);
	prompt_check("news of a death", end - r->killed_s,
		     r->ended_s - r->killed_s);
	check_words(me, status, scene->victim);
	storm_end(&s);
	begin = job_seconds();
	JOB_TRY(dicomm_comm_destroy(me->comm));
	prompt_check("destroy", job_seconds() - begin, 0);
	me->comm = NULL;
	residue_check(&before, "after a death");
}

static void kill_one(const void *arg)
{
	const struct scene *scene = arg;
	struct result *r = scene->result;
	int pid = job_pid(scene->victim);
	struct pollfd process = {.events = POLLIN};
	double end = job_seconds() + READY_S;

	while (atomic_load(&r->working) < scene->ranks) {
		if (job_seconds() > end)
			return; /* the ranks say why */
		job_sleep_ms(1);
	}
	usleep((unsigned)scene->delay_us);
	process.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	r->killed_s = job_seconds();
	atomic_store(&r->killed, true);
	kill(pid, SIGKILL);
	/* Before Linux 5.3 there are no such descriptors: then the process is
	 * taken to end at once. */
	if (process.fd < 0 || poll(&process, 1, (int)(READY_S * 1e3)) == 1) {
		r->ended_s = job_seconds();
		atomic_store(&r->ended, true);
	}
}

/* As many as DICOMM_TEST_KILLS says, or as fit the time that there is. */
static int number_of_kills(void)
{
	const char *given = getenv("DICOMM_TEST_KILLS");

	if (given)
		return atoi(given);
	return job_is_long() ? KILLS_LONG : KILLS;
}

/* ---- what is left on the machine ---- */

static int shared_files(void)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		n += strstr(e->d_name, "dicomm") != NULL;
	if (dir)
		closedir(dir);
	return n;
}

static bool one_kill(struct scene *scene, char *text, size_t len)
{
	return job_try(&(struct job){.run = work,
				     .arg = scene,
				     .ranks = scene->ranks,
				     .bare = true,
				     .may_die = 1u << scene->victim,
				     .disturb = kill_one,
				     .env = {"DICOMM_DEBUG=none"},
				     .timeout_s = 60},
		       text, len);
}

START_TEST(survivors_of_a_random_death_end_cleanly)
{
	int kills = number_of_kills(), clean = 0;
	struct result *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int files = shared_files();
	unsigned state = (unsigned)getpid();
	char text[2000], first[2000] = "";

	ck_assert_int_gt(kills, 0);
	ck_assert(r != MAP_FAILED);
	printf("seed %u\n", state);
	for (int i = 0; i < kills; i++) {
		struct scene scene = {.seed = storm_random(&state, 1000000),
				      .ranks = 2 + i % (MOST_RANKS - 1),
				      .result = r};

		memset(r, 0, sizeof(*r));
		scene.victim = (int)storm_random(&state, (unsigned)scene.ranks);
		scene.delay_us = (int)storm_random(&state, 60000);
		if (one_kill(&scene, text, sizeof(text)))
			clean++;
		else if (!*first)
			snprintf(first, sizeof(first),
				 "kill %d, storm %u, rank %d of %d after %d "
				 "us: %.1800s",
				 i, scene.seed, scene.victim, scene.ranks,
				 scene.delay_us, text);
	}
	ck_assert_msg(clean == kills, "%d of %d clean; first: %s", clean, kills,
		      first);
	ck_assert_int_eq(shared_files(), files);
	munmap(r, sizeof(*r));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_kill");
	TCase *tcase = tcase_create("fault_kill");

	tcase_set_timeout(tcase, job_is_long() ? 1500 : 110);
	tcase_add_test(tcase, survivors_of_a_random_death_end_cleanly);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
