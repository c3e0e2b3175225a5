/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/storms/rank.h"

#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/storms/board.h"
#include "tests/storms/calls.h"
#include "tests/storms/round.h"
#include "tests/support/residue.h"
#include "tests/support/storm.h"

#define ID_S 20 /* for rank 0 to make the id */
/* Between two questions whether it is over */
#define CALLS 8
/* Of these, one that no other test of this kind makes */
#define OTHER_CALLS 3
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

static dicomm_result_t ask_wish(dicomm_comm_t comm, int *wish)
{
	int mine = GO_ON, any = 0;
	dicomm_result_t status;

	if (atomic_load(&board->leave))
		mine = LEAVE;
	else if (atomic_load(&board->growths) > atomic_load(&seat->grown))
		mine = GROW;
	status = dicomm_allreduce(&mine, &any, 1, DICOMM_INT32, DICOMM_MAX,
				  comm, NULL);

	*wish = status == DICOMM_SUCCESS ? any : GO_ON;
	return status;
}

/* Until a call fails, or all leave or grow. */
static dicomm_result_t work(struct job_rank *me, unsigned seed, size_t most,
			    int *wish)
{
	dicomm_result_t status;
	struct storm s;

	storm_begin(&s, me, seed);
	s.most = most;
	*wish = GO_ON;
	for (unsigned i = 1; *wish == GO_ON; i++) {
		atomic_fetch_add(&seat->calls, 1);
		status = i % CALLS == 0 ? ask_wish(me->comm, wish)
			 : i % OTHER_CALLS == 0
				 ? calls_next(me, seed + i, s.streams[0])
				 : storm_next(&s);
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

/* Old ranks and one that joins: all attempts succeed, or the round ends. */
static bool grow(struct job_rank *me, struct life *l)
{
	bool joins = !me->comm;
	dicomm_unique_id_t *id = joins || me->rank == 0 ? &board->id : NULL;
	dicomm_comm_t next = NULL;

	atomic_store(&seat->phase, GROWING);
	set_current(NULL);
	if (!joins && me->rank == 0) {
		JOB_TRY(dicomm_comm_get_unique_id(me->comm, id));
		atomic_store(&board->called, board->joiner);
	}
	seat->grow = dicomm_comm_grow(me->comm, me->ranks + !joins, id,
				      joins ? me->rank : -1, &next, NULL);
	if (seat->grow != DICOMM_SUCCESS)
		snprintf(seat->grow_text, sizeof(seat->grow_text), "%s",
			 dicomm_get_last_error(NULL));
	if (!joins)
		JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = next;
	if (next) {
		JOB_TRY(dicomm_comm_user_rank(next, &me->rank));
		JOB_TRY(dicomm_comm_count(next, &me->ranks));
		*l = (struct life){.rank = me->rank, .ranks = me->ranks};
	}
	atomic_store(&seat->grown, atomic_load(&board->growths));
	return next != NULL;
}

/* One communicator after the other, from the n-th on. */
static void live(struct job_rank *me, const struct round *r, int n)
{
	int wish = GO_ON;
	bool goes_on = true;
	unsigned seed;

	while (goes_on && wish != LEAVE) {
		JOB_CHECK(n + 1 < BOARD_LIVES, "more failures than events");
		seed = r->seed + (unsigned)n * 101 +
		       (unsigned)atomic_load(&seat->grown) * 10007;
		set_current(me->comm);
		atomic_store(&seat->phase, WORKING);
		if (work(me, seed, r->most, &wish) != DICOMM_SUCCESS)
			goes_on = shrink(me, &seat->life[n++]);
		else if (wish == GROW)
			goes_on = grow(me, &seat->life[n]);
	}
	set_current(NULL);
	atomic_store(&seat->phase, LEAVING);
	if (goes_on)
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

	/* The one that serves windows has come with the first of them. */
	allowed.threads++;
	/* UCX keeps its own for each communicator with a death, and two for
	 * each of its connections. */
	if (r->ucx && deaths) {
		allowed.descriptors += deaths * (8 + 2 * BOARD_RANKS);
		allowed.threads++;
	}
	residue_check(&allowed, "after destroy");
	residue_count(&now);
	seat->descriptors = now.descriptors - before->descriptors;
	seat->memory = memory_used() - memory;
	JOB_CHECK(seat->memory < MEMORY_KEPT * (r->ucx ? 1 + 12 * deaths : 1),
		  "%ld bytes of memory are left after %d deaths", seat->memory,
		  deaths);
}

/* False: nobody has called it until the others left. */
static bool join_when_called(struct job_rank *me)
{
	int n;

	while (atomic_load(&board->called) != me->rank) {
		if (atomic_load(&board->leave))
			return false;
		job_sleep_ms(1);
	}
	n = board->life;
	atomic_store(&seat->failed, n);
	atomic_store(&seat->shrunk, n);
	me->ranks = board->ranks;
	me->rank = me->ranks - 1;
	return grow(me, &seat->life[n]);
}

static void live_from_the_start(struct job_rank *me, const struct round *r)
{
	dicomm_result_t status;

	me->ranks = r->ranks;
	status = meet(me);
	if (status != DICOMM_SUCCESS) {
		note_failure(seat->life, status, NULL);
		return;
	}
	seat->life[0] = (struct life){.rank = me->rank, .ranks = me->ranks};
	live(me, r, 0);
}

/* With islands, two processes are on a host. */
static void go_to_host(int number)
{
	char name[32];

	if (!getenv("DICOMM_ISLAND"))
		return;
	snprintf(name, sizeof(name), "storm%d", number / 2);
	setenv("DICOMM_HOSTID", name, 1);
}

void rank_run(struct job_rank *me)
{
	const struct round *r = me->arg;
	struct residue before;
	pthread_t helper;
	long memory;

	go_to_host(me->rank);
	seat = &board->seat[me->rank];
	JOB_CHECK(!pthread_create(&helper, NULL, obey, NULL), "no thread");
	if (r->warm)
		storm_warm_up(me, &before);
	memory = memory_used();
	atomic_store(&seat->ready, true);
	if (me->rank < r->ranks)
		live_from_the_start(me, r);
	else if (join_when_called(me))
		live(me, r, board->life);
	atomic_store(&seat->phase, LEAVING);
	if (r->warm)
		check_left(&before, memory, r);
	atomic_store(&over, true);
	pthread_join(helper, NULL);
	atomic_store(&seat->phase, GONE);
}
