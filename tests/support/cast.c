/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs whose ranks are bound to unlike devices. */
#include "tests/support/cast.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/core/lease.h"
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
	/* Once all have let go of it */
	job_barrier();
	lease_sweep();
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

uint64_t cast_staged(dicomm_comm_t comm)
{
	dicomm_stats_t stats = {.size = sizeof(stats)};

	JOB_TRY(dicomm_comm_stats(comm, &stats));
	return stats.bytes_staged;
}
