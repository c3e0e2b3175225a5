/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs whose ranks are bound to unlike devices. */
#include "tests/support/cast.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/memory/blocked_streams.h"
#include "tests/support/leaks.h"

const char *const cast_unlike[CAST_DEVICES] = {"host", "opencl:0", "cuda:0",
					       "hip:0", "ze:0"};

static bool exists(const char *name)
{
	char why[256];

	leaks_ignore(); /* the mocks count what devices hold */
	if (gadget_exists(name, why, sizeof(why)))
		return true;
	printf("%s: not tested: %s\n", name, why);
	return false;
}

bool cast_has(const char *device)
{
	pid_t child;
	int status = -1;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		bool has = exists(device);

		fflush(NULL);
		_exit(has ? 0 : 1);
	}
	if (child > 0)
		waitpid(child, &status, 0);
	return status == 0;
}

/* Who plays a device that does not exist? */
static const char *stand_in(const struct cast *cast, const char *device)
{
	static const char *const first[] = {"cuda:0", "hip:0", "ze:0"};

	for (int i = 0; i < 3; i++)
		if (!strncmp(first[i], device, 3) && exists(first[i]))
			return first[i];
	return cast->instead ? cast->instead : "host";
}

static const char *device_of(const struct cast *cast, int rank)
{
	int n = 0;

	while (n < CAST_DEVICES && cast->device[n])
		n++;
	return cast->device[rank % n];
}

static void act(struct job_rank *me)
{
	const struct cast *cast = me->arg;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	const char *device = device_of(cast, me->rank);
	struct gadget g;

	if (!exists(device))
		device = stand_in(cast, device);
	gadget_open(&g, device);
	config.device = g.name;
	config.staging = cast->staging;
	config.deterministic = cast->deterministic;
	me->arg = cast->arg;
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	cast->run(me, &g);
	job_barrier();
	JOB_CHECK(!gadget_hangs(&g), "%d calls would have waited for a stream",
		  gadget_hangs(&g));
	if (me->comm)
		JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	/* Once all have let go of it, which may have waited, too */
	deferred_sweep();
	job_barrier();
	deferred_sweep();
	gadget_close(&g);
	/* Of threads, all have one driver. */
	if (cast->threads)
		job_barrier();
	JOB_CHECK(!gadget_early(&g), "%d allocations were freed too early",
		  gadget_early(&g));
	JOB_CHECK(!gadget_live(&g), "%d things of the driver were not freed",
		  gadget_live(&g));
}

void cast_play(const struct cast *cast, int ranks)
{
	job_run(&(struct job){.run = act,
			      .arg = cast,
			      .ranks = ranks,
			      .bare = true,
			      .threads = cast->threads,
			      .may_die = cast->may_die,
			      .timeout_s = 150});
}

void cast_trial(struct trial t, const struct job_rank *me, struct gadget *g)
{
	t.gadget = g->accel->work ? g : NULL;
	trial_run(t, me);
}

dicomm_stats_t cast_stats(const struct job_rank *me)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	return stats;
}

uint64_t cast_staged(const struct job_rank *me)
{
	return cast_stats(me).bytes_staged;
}

uint64_t cast_copied(struct trial t, const struct job_rank *me,
		     struct gadget *g)
{
	uint64_t before = cast_stats(me).bytes_copied;

	cast_trial(t, me, g);
	return cast_stats(me).bytes_copied - before;
}

void cast_sum(struct job_rank *me, struct gadget *g)
{
	cast_trial((struct trial){.kind = TRIAL_ALLREDUCE,
				  .type = DICOMM_FLOAT32,
				  .op = DICOMM_SUM,
				  .count = 1000},
		   me, g);
}

void cast_sum_direct(struct job_rank *me, struct gadget *g, char *text,
		     size_t len)
{
	dicomm_stats_t stats;

	cast_sum(me, g);
	stats = cast_stats(me);
	JOB_CHECK(stats.bytes_staged == 0 && stats.bytes_direct == 4000 &&
			  stats.bytes_rdma == 4000,
		  "staged %d, direct %d, by rdma %d", (int)stats.bytes_staged,
		  (int)stats.bytes_direct, (int)stats.bytes_rdma);
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1000, DICOMM_FLOAT32,
				    text, len));
}

#define MUCH ((size_t)16 << 20)

void cast_give_up(struct job_rank *me, struct gadget *g)
{
	uint8_t *device = gadget_alloc(g, MUCH), *host = gadget_host(g, MUCH);
	void *handle;

	JOB_TRY(dicomm_comm_register(me->comm, device, MUCH, &handle));
	cast_sum(me, g);
	memset(host, me->rank ? 0xee : 0x11, MUCH);
	gadget_copy(g, device, host, MUCH);
	gadget_wait(g);
	job_barrier();
	if (!me->rank) {
		(void)dicomm_send(device, MUCH, DICOMM_UINT8, 1, me->comm,
				  g->native);
	} else {
		uint64_t before = cast_stats(me).bytes_rdma;

		JOB_TRY(dicomm_recv(device, MUCH, DICOMM_UINT8, 0, me->comm,
				    g->native));
		while (cast_stats(me).bytes_rdma == before)
			sched_yield();
		JOB_TRY(dicomm_comm_abort(me->comm));
		gadget_copy(g, device, host, MUCH);
		gadget_wait(g);
		job_sleep_ms(300);
		memset(host, 0, MUCH);
		gadget_copy(g, host, device, MUCH);
		gadget_wait(g);
		for (size_t i = 0; i < MUCH; i++)
			JOB_CHECK(host[i] == 0xee,
				  "byte %zu was written after the abort", i);
	}
	gadget_wait(g);
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
	gadget_free(g, device);
	gadget_host_free(g, host);
}
