/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on several hosts: shared memory inside of one, a network between them,
 * which is TCP, unless DICOMM_TRANSPORTS says otherwise (tests/vm). One job
 * goes over UCX. The hosts are said to be such (DICOMM_HOSTID), and are network
 * namespaces if tests/net/hosts runs this program; else they share the loopback
 * interface. Every other one says that its pages have 64 KiB, as some of arm64
 * have.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "src/core/comm.h"
#include "tests/support/leaks.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"
#include "tests/support/storm.h"
#include "tests/support/trial.h"
#include "transports/transport.h"

#define MOST_RANKS 4
#define CALLS 60
#define BOUND_S 1.0
#define SLACK_S (2.0 + starved_s())
#define READY_S 20.0
#define BLOCK ((size_t)1 << 20)
#define LATE_MS 300
#define WAITS 40
#define WAIT_MS 8 /* too short for the naps of who has waited for long */

/* Which host each rank is on. */
static const struct layout {
	int ranks, host[MOST_RANKS];
} layouts[] = {
	{2, {0, 1}}, {3, {0, 1, 2}}, {4, {0, 0, 1, 1}}, {4, {0, 1, 0, 2}}};
#define LAYOUTS (int)(sizeof(layouts) / sizeof(*layouts))

static bool is_namespaces(void)
{
	return getenv("DICOMM_TEST_HOSTS");
}

/* Of this rank's host; 0: as they are. */
static long page_bytes;

long __real_sysconf(int name);
long __wrap_sysconf(int name);

long __wrap_sysconf(int name)
{
	return page_bytes && name == _SC_PAGESIZE ? page_bytes
						  : __real_sysconf(name);
}

/* Before anything of the library is used. */
static void go_to_host(int host)
{
	char name[32], path[64];
	int fd;

	page_bytes = host % 2 ? 65536 : 0;
	snprintf(name, sizeof(name), "host%d", host);
	setenv("DICOMM_HOSTID", name, 1);
	if (!is_namespaces()) {
		setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
		return;
	}
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	JOB_CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0, "%s: %s", path,
		  strerror(errno));
	close(fd);
}

static void start(struct job_rank *me, const struct layout *l)
{
	go_to_host(l->host[me->rank]);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
}

static void finish(struct job_rank *me)
{
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

/* What happens to ranks that connect is not what these tests are about. */
static void connect_all(struct job_rank *me)
{
	int mine[MOST_RANKS] = {0}, all[MOST_RANKS];

	JOB_TRY(dicomm_alltoall(mine, all, 1, DICOMM_INT32, me->comm, NULL));
	JOB_TRY(dicomm_barrier(me->comm, NULL));
}

/* ---- data ---- */

static void check_ways(const struct job_rank *me, const struct layout *l)
{
	dicomm_stats_t s = {.size = sizeof(s)};
	int here = 0;

	for (int r = 0; job_uses("shm") && r < l->ranks; r++)
		here += l->host[r] == l->host[me->rank];
	JOB_TRY(dicomm_comm_stats(me->comm, &s));
	JOB_CHECK((s.bytes_rdma > 0) == job_uses("verbs"),
		  "%llu bytes were asked for, over %s",
		  (unsigned long long)s.bytes_rdma,
		  getenv("DICOMM_TRANSPORTS"));
	JOB_CHECK((s.bytes_mapped + s.bytes_cma > 0) == (here > 1),
		  "%d ranks here, %llu bytes mapped, %llu read", here,
		  (unsigned long long)s.bytes_mapped,
		  (unsigned long long)s.bytes_cma);
}

static void collectives(struct job_rank *me)
{
	static const size_t counts[] = {0, 1, 1000, 70001, 300007};
	const struct layout *l = me->arg;
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	if (job_uses("ucx"))
		leaks_ignore();
	start(me, l);
	for (int kind = 0; kind < TRIAL_KINDS; kind++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
			t.kind = (enum trial_kind)kind;
			t.count = counts[c];
			t.shared = c % 2;
			t.seed += 10;
			t.root = trial_rooted(t.kind) ? (int)t.seed % me->ranks
						      : 0;
			trial_run(t, me);
		}
	check_ways(me, l);
	finish(me);
}

START_TEST(every_operation_between_hosts)
{
	job_run(&(struct job){.run = collectives,
			      .arg = &layouts[_i],
			      .ranks = layouts[_i].ranks,
			      .bare = true,
			      .timeout_s = 40});
}
END_TEST

START_TEST(every_operation_over_ucx)
{
	const struct transport *ucx = transport_find("ucx");
	char why[256];

	/* The thread sanitizer does not see its locks. */
	if (job_has_thread_sanitizer() || !ucx->usable(why, sizeof(why)))
		return;
	job_run(&(struct job){.run = collectives,
			      .arg = &layouts[2],
			      .ranks = layouts[2].ranks,
			      .bare = true,
			      .env = {"DICOMM_TRANSPORTS=shm,ucx"},
			      .timeout_s = 40});
}
END_TEST

/* Ranks 0 to 2 are on one host, and rank 1 has no shared memory. */
static void uneven(struct job_rank *me)
{
	struct trial t = {.kind = TRIAL_ALLTOALL,
			  .type = DICOMM_INT32,
			  .op = DICOMM_SUM,
			  .count = 70001};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const struct transport *to;

	go_to_host(me->rank / 3);
	if (me->rank == 1)
		config.transports = "tcp";
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	connect_all(me);
	trial_run(t, me);
	for (int r = 0; r < me->ranks; r++) {
		bool near = r % 2 == 0 && me->rank % 2 == 0;

		to = me->comm->peers[r].transport;
		JOB_CHECK(!to || r == me->rank || to->intra_node == near,
			  "rank %d to rank %d: %s", me->rank, r, to->name);
	}
	finish(me);
}

START_TEST(ranks_of_a_host_are_reached_by_unlike_transports)
{
	job_run(&(struct job){.run = uneven, .ranks = 4, .bare = true});
}
END_TEST

static void storms(struct job_rank *me)
{
	const struct layout *l = me->arg;
	struct storm s;

	start(me, l);
	storm_begin(&s, me, (unsigned)(l - layouts) + 1);
	for (int i = 0; i < CALLS; i++)
		JOB_TRY(storm_next(&s));
	storm_end(&s);
	finish(me);
}

START_TEST(any_calls_in_any_mixture)
{
	job_run(&(struct job){.run = storms,
			      .arg = &layouts[_i],
			      .ranks = layouts[_i].ranks,
			      .bare = true,
			      .timeout_s = 40});
}
END_TEST

/* ---- ranks that are away ---- */

/* What a call has promised happens while its rank is not in the library: the
 * message comes, and the first one, too, which needs a connection. */
static void away(struct job_rank *me)
{
	int *board = job_board();
	_Atomic int *done = (_Atomic int *)board;
	char byte = (char)me->rank;
	double end;

	start(me, me->arg);
	if (me->rank == 0) {
		JOB_TRY(dicomm_send(&byte, 1, DICOMM_INT8, 1, me->comm, NULL));
		end = job_seconds() + READY_S;
		while (!atomic_load(done))
			JOB_CHECK(job_seconds() < end,
				  "the message has not come");
	} else if (me->rank == 1) {
		JOB_TRY(dicomm_recv(&byte, 1, DICOMM_INT8, 0, me->comm, NULL));
		JOB_CHECK(byte == 0, "received %d", byte);
		atomic_store(done, 1);
	}
	finish(me);
}

START_TEST(a_message_arrives_though_its_sender_is_away)
{
	job_run(&(struct job){.run = away,
			      .arg = &layouts[0],
			      .ranks = layouts[0].ranks,
			      .bare = true});
}
END_TEST

/* Calls without an element, and those of an alltoallv among others, ask nothing
 * of a rank, which may have left. */
static void nothing(struct job_rank *me)
{
	const bool idle = me->rank == 0;
	const size_t none[] = {0, 0, 0}, some[] = {0, 3, 3}, at[] = {0, 0, 3};
	const size_t *counts = idle ? none : some;
	int32_t mine[6], theirs[6];

	start(me, me->arg);
	for (int i = 0; i < 6; i++)
		mine[i] = me->rank;
	if (!idle)
		job_sleep_ms(LATE_MS);
	JOB_TRY(idle ? dicomm_recv(NULL, 0, DICOMM_INT32, 1, me->comm, NULL)
		     : dicomm_send(NULL, 0, DICOMM_INT32, 0, me->comm, NULL));
	JOB_TRY(dicomm_allreduce(NULL, NULL, 0, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_TRY(dicomm_alltoallv(mine, counts, at, theirs, counts, at,
				 DICOMM_INT32, me->comm, NULL));
	for (int i = 0; i < 6 && !idle; i++)
		JOB_CHECK(theirs[i] == 1 + i / 3, "element %d is %d", i,
			  theirs[i]);
	finish(me);
}

START_TEST(who_has_nothing_to_send_needs_nobody)
{
	job_run(&(struct job){.run = nothing,
			      .arg = &layouts[1],
			      .ranks = layouts[1].ranks,
			      .bare = true});
}
END_TEST

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rank 2 waits for rank 0 on another host, and has a neighbour of its own. */
static void idle(struct job_rank *me)
{
	char byte = 0;
	double cpu, all;

	start(me, me->arg);
	connect_all(me);
	cpu = cpu_seconds();
	all = job_seconds();
	for (int i = 0; i < WAITS; i++) {
		if (me->rank == 2)
			JOB_TRY(dicomm_recv(&byte, 1, DICOMM_INT8, 0, me->comm,
					    NULL));
		if (me->rank)
			continue;
		job_sleep_ms(WAIT_MS);
		JOB_TRY(dicomm_send(&byte, 1, DICOMM_INT8, 2, me->comm, NULL));
	}
	cpu = cpu_seconds() - cpu;
	all = job_seconds() - all;
	JOB_CHECK(me->rank != 2 || cpu < all / 2,
		  "%.0f of %.0f ms on a core that others want", cpu * 1e3,
		  all * 1e3);
	finish(me);
}

START_TEST(who_waits_for_another_host_gives_the_core_away)
{
	job_run(&(struct job){.run = idle,
			      .arg = &layouts[2],
			      .ranks = layouts[2].ranks,
			      .bare = true});
}
END_TEST

/* ---- ranks that are ahead ---- */

/* All to rank 2, from ranks that have something for it. */
static void send_to_last(struct job_rank *me, char *block)
{
	size_t none[3] = {0}, out[3] = {0}, in[3] = {0};
	size_t at[3] = {0, BLOCK, 2 * BLOCK};

	if (me->rank < 2)
		out[2] = BLOCK;
	else
		in[0] = in[1] = BLOCK;
	JOB_TRY(dicomm_alltoallv(block, out, none, block, in, at, DICOMM_INT8,
				 me->comm, NULL));
}

/* Rank 0 is done with the first operation at once, and rank 2 is not before
 * rank 1 begins it. What rank 0 sends for the second one leaves after that. */
static void ahead(struct job_rank *me)
{
	double *began = job_board();
	char *block = calloc(3, BLOCK);

	JOB_CHECK(block, "no memory");
	start(me, me->arg);
	connect_all(me);
	if (me->rank == 1) {
		job_sleep_ms(LATE_MS);
		*began = job_seconds();
	}
	send_to_last(me, block);
	send_to_last(me, block);
	JOB_CHECK(me->rank || (*began > 0 && job_seconds() >= *began),
		  "sent for the second operation during the first");
	finish(me);
	free(block);
}

START_TEST(who_is_ahead_leaves_the_way_to_who_is_behind)
{
	job_run(&(struct job){.run = ahead,
			      .arg = &layouts[1],
			      .ranks = layouts[1].ranks,
			      .bare = true});
}
END_TEST

/* ---- ranks that die ---- */

struct scene {
	const struct layout *layout;
	int victim, delay_us;
	struct result *result;
};

/* Outlives the job. */
struct result {
	_Atomic int working;
	_Atomic bool killed;
	double died_s;
};

static void mortals(struct job_rank *me)
{
	const struct scene *scene = me->arg;
	struct result *r = scene->result;
	dicomm_result_t status;
	struct storm s;
	double end;
	char name[16];

	start(me, scene->layout);
	connect_all(me);
	storm_begin(&s, me, 7);
	atomic_fetch_add(&r->working, 1);
	end = job_seconds() + READY_S;
	do {
		status = storm_next(&s);
		JOB_CHECK(job_seconds() < end, "nobody died");
	} while (status == DICOMM_SUCCESS);
	snprintf(name, sizeof(name), "rank %d", scene->victim);
	JOB_CHECK(atomic_load(&r->killed) && status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(me->comm), name),
		  "%s: %s", dicomm_get_error_string(status),
		  dicomm_get_last_error(me->comm));
	JOB_CHECK(job_seconds() - r->died_s < BOUND_S + SLACK_S,
		  "learned after %.1f s", job_seconds() - r->died_s);
	storm_end(&s);
	end = job_seconds() + BOUND_S + SLACK_S;
	finish(me);
	JOB_CHECK(job_seconds() < end, "destroy took long");
}

static void kill_one(const void *arg)
{
	const struct scene *scene = arg;
	struct result *r = scene->result;
	int pid = job_pid(scene->victim);
	double end = job_seconds() + READY_S;

	while (atomic_load(&r->working) < scene->layout->ranks) {
		if (job_seconds() > end)
			return; /* the ranks say why */
		job_sleep_ms(1);
	}
	usleep((unsigned)scene->delay_us);
	r->died_s = job_seconds();
	atomic_store(&r->killed, true);
	kill(pid, SIGKILL);
}

START_TEST(all_hosts_learn_of_a_death)
{
	struct scene scene = {.layout = &layouts[_i]};
	struct job job = {.run = mortals,
			  .arg = &scene,
			  .ranks = layouts[_i].ranks,
			  .bare = true,
			  .disturb = kill_one,
			  .timeout_s = 40};
	unsigned random = (unsigned)_i;

	scene.result = mmap(NULL, sizeof(*scene.result), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(scene.result, MAP_FAILED);
	for (int i = 0; i < 4; i++) {
		memset(scene.result, 0, sizeof(*scene.result));
		scene.victim = i % job.ranks;
		scene.delay_us = (int)storm_random(&random, 50000);
		job.may_die = 1u << scene.victim;
		job_run(&job);
	}
	munmap(scene.result, sizeof(*scene.result));
}
END_TEST

/* ---- ranks that leave when rank 0, which tells of such, has left ---- */

struct departure {
	struct layout layout;
	bool aborts; /* and lives on */
};

static const struct departure departures[] = {
	{{3, {0, 1, 2}}, false},
	{{3, {0, 1, 2}}, true},
	{{3, {0, 1, 1}}, false},
	{{3, {0, 1, 1}}, true},
};

static void depart(struct job_rank *me)
{
	const struct departure *d = me->arg;
	dicomm_result_t status;
	double begin;
	int32_t value;

	start(me, &d->layout);
	connect_all(me);
	if (me->rank)
		job_sleep_ms(300);
	begin = job_seconds();
	if (me->rank == 1 && d->aborts) {
		JOB_TRY(dicomm_comm_abort(me->comm));
	} else if (me->rank == 2) {
		status =
			dicomm_recv(&value, 1, DICOMM_INT32, 1, me->comm, NULL);
		JOB_CHECK(status == DICOMM_ERR_REMOTE &&
				  strstr(dicomm_get_last_error(me->comm),
					 "rank 1"),
			  "%s: %s", dicomm_get_error_string(status),
			  dicomm_get_last_error(me->comm));
		JOB_CHECK(job_seconds() - begin < BOUND_S + SLACK_S,
			  "learned after %.1f s", job_seconds() - begin);
	} else {
		finish(me);
	}
	job_barrier();
	finish(me);
}

START_TEST(without_rank_0_who_leaves_is_missed)
{
	struct departure d = departures[_i];

	job_run(&(struct job){.run = depart,
			      .arg = &d,
			      .ranks = d.layout.ranks,
			      .bare = true,
			      .timeout_s = 40});
}
END_TEST

/* ---- a rank that is not there any more, and was never connected ---- */

/* Rank 0, which tells of such, leaves. Rank 2 turns to it in vain, and gives
 * up; or also destroys its handle. Then rank 1 turns to rank 2. */
static void turn_to_nobody(struct job_rank *me)
{
	bool destroys = *(const bool *)me->arg;
	dicomm_result_t status;
	int32_t value = 7;
	double begin;

	start(me, &layouts[1]);
	if (me->rank == 0)
		finish(me);
	job_barrier();
	if (me->rank == 2) {
		status =
			dicomm_send(&value, 1, DICOMM_INT32, 0, me->comm, NULL);
		JOB_CHECK(status == DICOMM_ERR_REMOTE, "%s",
			  dicomm_get_last_error(me->comm));
		if (destroys)
			finish(me);
	}
	job_barrier();
	begin = job_seconds();
	if (me->rank == 1) {
		status =
			dicomm_send(&value, 1, DICOMM_INT32, 2, me->comm, NULL);
		JOB_CHECK(status == DICOMM_ERR_REMOTE &&
				  strstr(dicomm_get_last_error(me->comm),
					 "rank 2"),
			  "%s: %s", dicomm_get_error_string(status),
			  dicomm_get_last_error(me->comm));
		JOB_CHECK(job_seconds() - begin < BOUND_S + SLACK_S,
			  "learned after %.1f s", job_seconds() - begin);
	}
	job_barrier();
	finish(me);
}

START_TEST(who_has_gone_is_not_connected_to)
{
	bool destroys = _i;

	job_run(&(struct job){.run = turn_to_nobody,
			      .arg = &destroys,
			      .ranks = layouts[1].ranks,
			      .bare = true,
			      /* Else all are connected by then. */
			      .env = {"DICOMM_PROBE=off"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("network");
	TCase *tcase = tcase_create("network");

	setenv("DICOMM_TRANSPORTS", "shm,tcp", 0);
	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, every_operation_between_hosts, 0, LAYOUTS);
	if (!is_namespaces() && !job_uses("verbs"))
		tcase_add_test(
			tcase,
			ranks_of_a_host_are_reached_by_unlike_transports);
	tcase_add_loop_test(tcase, any_calls_in_any_mixture, 0, LAYOUTS);
	tcase_add_test(tcase, a_message_arrives_though_its_sender_is_away);
	tcase_add_test(tcase, who_has_nothing_to_send_needs_nobody);
	/* A NIC shares its way out between those who send, and who waits for it
	 * looks for long before it sleeps. */
	if (!job_uses("verbs")) {
		tcase_add_test(tcase, every_operation_over_ucx);
		tcase_add_test(tcase,
			       who_waits_for_another_host_gives_the_core_away);
		tcase_add_test(tcase,
			       who_is_ahead_leaves_the_way_to_who_is_behind);
		tcase_add_loop_test(tcase, who_has_gone_is_not_connected_to, 0,
				    2);
	}
	tcase_add_loop_test(tcase, all_hosts_learn_of_a_death, 0, LAYOUTS);
	tcase_add_loop_test(tcase, without_rank_0_who_leaves_is_missed, 0,
			    (int)(sizeof(departures) / sizeof(*departures)));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
