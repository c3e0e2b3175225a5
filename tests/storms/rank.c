/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/rank.h"

#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/storms/board.h"
#include "tests/storms/round.h"
#include "tests/support/residue.h"
#include "tests/support/storm.h"

#define ID_S 20 /* for rank 0 to make the id */
/* Between two questions whether it is over */
#define CALLS 8
/* Handles that were freed (src/base/handle.h), and the log. */
#define MEMORY_KEPT (512 * 1024)

static struct seat *seat;
static _Atomic bool over;
/* The communicator that another thread may abort, or NULL. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dicomm_comm_t current;

static void set_current(dicomm_comm_t comm)
{
	pthread_mutex_lock(&lock);
	current = comm;
	pthread_mutex_unlock(&lock);
}

static void abort_current(void)
{
	pthread_mutex_lock(&lock);
	if (current)
		dicomm_comm_abort(current);
	pthread_mutex_unlock(&lock);
}

static void shut_a_socket(void)
{
	int sockets[256], n = 0;

	for (int fd = 3; fd < 256; fd++) {
		struct sockaddr_storage to;
		socklen_t len = sizeof(to);

		if (!getpeername(fd, (struct sockaddr *)&to, &len) &&
		    (to.ss_family == AF_INET || to.ss_family == AF_INET6))
			sockets[n++] = fd;
	}
	if (n)
		shutdown(sockets[seat->shut % (unsigned)n], SHUT_RDWR);
}

/* What the supervisor cannot do from outside. */
static void *obey(void *unused)
{
	(void)unused;
	while (!atomic_load(&over)) {
		switch (atomic_exchange(&seat->command, NOTHING)) {
		case DO_ABORT:
			abort_current();
			break;
		case DO_EXIT:
			exit(0);
		case DO_EXIT_NOW:
			_exit(0);
		case DO_SHUT:
			shut_a_socket();
			break;
		}
		job_sleep_ms(1);
	}
	return NULL;
}

/* Not job_id(): a rank may die here. */
static dicomm_result_t meet(struct job_rank *me)
{
	double end = job_seconds() + ID_S;

	if (me->rank == 0) {
		JOB_TRY(dicomm_get_unique_id(&board->id));
		atomic_store(&board->id_made, true);
	}
	while (!atomic_load(&board->id_made)) {
		JOB_CHECK(job_seconds() < end, "rank 0 made no id");
		job_sleep_ms(1);
	}
	return dicomm_comm_init_rank(&me->comm, me->ranks, board->id, me->rank);
}

static void note_failure(struct life *l, dicomm_result_t status,
			 dicomm_comm_t comm)
{
	l->failed_at = job_seconds();
	l->status = l->async = status;
	snprintf(l->text, sizeof(l->text), "%s", dicomm_get_last_error(comm));
	if (comm)
		JOB_TRY(dicomm_comm_get_async_error(comm, &l->async));
	atomic_fetch_add(&seat->failed, 1);
}

static dicomm_result_t ask_whether_over(dicomm_comm_t comm, bool *leave)
{
	int mine = atomic_load(&board->leave), any = 0;
	dicomm_result_t status = dicomm_allreduce(&mine, &any, 1, DICOMM_INT32,
						  DICOMM_MAX, comm, NULL);

	*leave = status == DICOMM_SUCCESS && any;
	return status;
}

/* Until a call fails, or all leave. */
static dicomm_result_t work(struct job_rank *me, unsigned seed, size_t most,
			    bool *leave)
{
	dicomm_result_t status;
	struct storm s;

	storm_begin(&s, me, seed);
	s.most = most;
	for (int i = 1; !*leave; i++) {
		atomic_fetch_add(&seat->calls, 1);
		status = i % CALLS ? storm_next(&s)
				   : ask_whether_over(me->comm, leave);
		if (status != DICOMM_SUCCESS)
			break;
	}
	/* Streams outlive what failed on them; the time until then does not
	 * count. */
	if (status != DICOMM_SUCCESS)
		note_failure(&seat->life[atomic_load(&seat->failed)], status,
			     me->comm);
	storm_end(&s);
	return status;
}

/* Go on with who is left; false: nobody does. */
static bool shrink(struct job_rank *me, struct life *l)
{
	dicomm_comm_t next = NULL;

	atomic_store(&seat->phase, SHRINKING);
	set_current(NULL);
	l->shrunk = dicomm_comm_shrink(me->comm, NULL, 0, &next, NULL);
	if (l->shrunk != DICOMM_SUCCESS)
		snprintf(l->shrink_text, sizeof(l->shrink_text), "%s",
			 dicomm_get_last_error(NULL));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = next;
	if (next) {
		JOB_TRY(dicomm_comm_user_rank(next, &me->rank));
		JOB_TRY(dicomm_comm_count(next, &me->ranks));
		l[1].rank = me->rank;
		l[1].ranks = me->ranks;
	}
	atomic_fetch_add(&seat->shrunk, 1);
	return next != NULL;
}

/* One communicator after the other. */
static void live(struct job_rank *me, const struct round *r)
{
	struct life *l = seat->life;
	bool leave = false;

	*l = (struct life){.rank = me->rank, .ranks = me->ranks};
	for (unsigned n = 0;; n++, l++) {
		JOB_CHECK(n + 1 < BOARD_LIVES, "more failures than events");
		set_current(me->comm);
		atomic_store(&seat->phase, WORKING);
		work(me, r->seed + n * 101, r->most, &leave);
		if (leave || !shrink(me, l))
			break;
	}
	set_current(NULL);
	atomic_store(&seat->phase, LEAVING);
	if (leave)
		JOB_TRY(dicomm_comm_finalize(me->comm));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

static long memory_used(void)
{
	struct mallinfo2 m = mallinfo2();

	return (long)(m.uordblks + m.hblkhd);
}

static void check_left(const struct residue *before, long memory,
		       const struct round *r)
{
	int deaths = atomic_load(&seat->failed);
	struct residue allowed = *before, now;

	/* README.md says what UCX keeps for each communicator with a death. */
	if (r->ucx)
		allowed.descriptors += deaths * 10;
	residue_check(&allowed, "after destroy");
	residue_count(&now);
	seat->descriptors = now.descriptors - before->descriptors;
	seat->memory = memory_used() - memory;
	JOB_CHECK(seat->memory < MEMORY_KEPT * (r->ucx ? 1 + 4 * deaths : 1),
		  "%ld bytes of memory are left after %d deaths", seat->memory,
		  deaths);
}

void rank_run(struct job_rank *me)
{
	const struct round *r = me->arg;
	struct residue before;
	dicomm_result_t status;
	pthread_t helper;
	long memory;

	seat = &board->seat[me->rank];
	JOB_CHECK(!pthread_create(&helper, NULL, obey, NULL), "no thread");
	if (r->warm)
		storm_warm_up(me, &before);
	memory = memory_used();
	atomic_store(&seat->ready, true);
	status = meet(me);
	if (status == DICOMM_SUCCESS)
		live(me, r);
	else
		note_failure(seat->life, status, NULL);
	atomic_store(&seat->phase, LEAVING);
	if (r->warm)
		check_left(&before, memory, r);
	atomic_store(&over, true);
	pthread_join(helper, NULL);
	atomic_store(&seat->phase, GONE);
}
