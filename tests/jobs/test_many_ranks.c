/* SPDX-License-Identifier: BSD-3-Clause */
/* Many more ranks than cores meet, compute and end within a minute. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/boot/net/conn.h"
#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define LIMIT_S 60
/* What is chosen follows how fast the machine is, and may need all peers. */
#define FEW_PEERS "DICOMM_ALGO=allreduce:recursive_doubling"

static void run(struct job_rank *me)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT64,
			  .op = DICOMM_SUM,
			  .count = 1000};
	dicomm_stats_t stats = {.size = sizeof(stats)};
	unsigned bits = 0;

	trial_run(t, me);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	/* Paths are made as they are needed, not to everybody: to as many as
	 * the number of ranks has bits, by each of the two. */
	while (1 << bits < me->ranks)
		bits++;
	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	JOB_CHECK(stats.connected_peers <= 2 * bits, "%llu peers",
		  (unsigned long long)stats.connected_peers);
}

/* By whatever the library chooses, be it a path to every other rank. */
static void run_small(struct job_rank *me)
{
	static const enum trial_kind kinds[] = {
		TRIAL_BROADCAST, TRIAL_REDUCE_SCATTER, TRIAL_ALLGATHER,
		TRIAL_ALLTOALL, TRIAL_BARRIER};
	struct trial t = {.type = DICOMM_INT32, .op = DICOMM_SUM};

	run(me);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		t.kind = kinds[i];
		for (t.count = 1; t.count <= 3; t.count += 2) {
			t.root = me->ranks - (int)t.count;
			t.seed++;
			job_doing("%s of %zu", trial_name(t.kind), t.count);
			trial_run(t, me);
		}
	}
}

/* A process under a sanitizer needs several times the memory. */
static int many(void)
{
	if (job_is_short() && job_is_costly())
		return 16;
	return job_is_long() || !job_is_sanitized() ? 512 : 64;
}

START_TEST(many_processes_are_ranks)
{
	job_run(&(struct job){.run = run_small,
			      .ranks = many(),
			      .env = {FEW_PEERS},
			      .timeout_s = LIMIT_S});
}
END_TEST

START_TEST(many_threads_are_ranks)
{
	job_run(&(struct job){.run = run,
			      .ranks = (job_is_short() && job_is_costly()) ? 16
									   : 64,
			      .threads = true,
			      .env = {FEW_PEERS},
			      .timeout_s = LIMIT_S});
}
END_TEST

#define RANKS_OF_HOST 8
/* What a rank tells all others. Rank 0 sends it to the ranks of its host, to
 * four other hosts, and to each rank whose connection to its parent is not made
 * yet: how many these are is a matter of time, but never most. */
#define TOLD_BYTES 300
#define COPIES(ranks) ((ranks) / 2)

static void count(struct job_rank *me)
{
	size_t most = (size_t)(me->ranks * COPIES(me->ranks)) * TOLD_BYTES;
	char host[32];

	snprintf(host, sizeof(host), "host%d", me->rank / RANKS_OF_HOST);
	setenv("DICOMM_HOSTID", host, 1);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_CHECK(conn_bytes_sent() > 0 && conn_bytes_sent() <= most,
		  "rank %d of %d sent %llu bytes, at most %zu", me->rank,
		  me->ranks, (unsigned long long)conn_bytes_sent(), most);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(rank_0_sends_little_to_all)
{
	job_run(&(struct job){.run = count,
			      .ranks = job_is_sanitized() ? 32 : 64,
			      .bare = true,
			      .env = {"DICOMM_TRANSPORTS=shm,tcp",
				      "DICOMM_SOCKET_IFNAME=lo",
				      "DICOMM_PROBE=off"},
			      .timeout_s = LIMIT_S});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("many ranks");
	TCase *tcase = tcase_create("many ranks");

	tcase_set_timeout(tcase, LIMIT_S + 5);
	tcase_add_test(tcase, many_processes_are_ranks);
	tcase_add_test(tcase, many_threads_are_ranks);
	tcase_add_test(tcase, rank_0_sends_little_to_all);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
