/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that do not come, come twice, come with other settings or die on the
 * way: init ends in time, everywhere, with words that name them. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/control/hub.h"
#include "src/boot/control/recovery.h"
#include "tests/support/prompt.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"
#include "transports/transport.h"

#define BOOTSTRAP_S 2.0
#define PATIENCE_S 20.0

struct word {
	_Atomic int working, knowing;
	_Atomic bool go, made;
	dicomm_unique_id_t id;
};

static dicomm_result_t init(struct job_rank *me, int ranks,
			    const dicomm_unique_id_t *id, int rank)
{
	return dicomm_comm_init_rank(&me->comm, ranks, *id, rank);
}

static void check_failed(const struct job_rank *me, dicomm_result_t got,
			 dicomm_result_t want, const char *words)
{
	JOB_REFUSED(got, want, words);
	JOB_CHECK(!me->comm, "there is a handle nevertheless");
}

static void check_time(const char *kind, double begin, double due)
{
	prompt_check(kind, job_seconds() - begin, due);
}

/* After whatever went wrong, all is well the next time. */
static void meet_again(struct job_rank *me, const struct residue *before)
{
	struct storm s;

	job_barrier();
	dicomm_unique_id_t id = job_id();

	JOB_TRY(init(me, me->ranks, &id, me->rank));
	storm_begin(&s, me, 1);
	JOB_TRY(storm_next(&s));
	storm_end(&s);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	/* An id server that failed answers late-comers, for a while. */
	if (job_is_long())
		residue_check(before, "after a failed init");
}

/* ---- who does not come ---- */

static void miss_one(struct job_rank *me)
{
	int missing = *(const int *)me->arg;
	dicomm_unique_id_t id;
	struct residue before;
	char name[32];
	double begin;

	storm_warm_up(me, &before);
	id = job_id();
	snprintf(name, sizeof(name), "rank %d of %d did not come", missing,
		 me->ranks);
	begin = job_seconds();
	if (me->rank != missing) {
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_TIMEOUT, name);
		check_time("a rank is missing", begin, BOOTSTRAP_S);
		JOB_CHECK(job_seconds() - begin > BOOTSTRAP_S - 0.2,
			  "gave up after %.1f s", job_seconds() - begin);
	}
	meet_again(me, &before);
}

START_TEST(who_does_not_come_is_named)
{
	static const int ranks[] = {2, 2, 3, 3, 4};
	static const int missing[] = {0, 1, 2, 0, 1};

	job_run(&(struct job){
		.run = miss_one,
		.arg = &missing[_i],
		.ranks = ranks[_i],
		.bare = true,
		.timeout_s = 40,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=2"}});
}
END_TEST

/* Two of three are missing. */
static void miss_two(struct job_rank *me)
{
	dicomm_unique_id_t id = job_id();

	if (me->rank == 1)
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_TIMEOUT,
			     "ranks 0, 2 of 3 did not come");
	job_barrier();
}

START_TEST(all_who_do_not_come_are_named)
{
	job_run(&(struct job){
		.run = miss_two,
		.ranks = 3,
		.bare = true,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=1"}});
}
END_TEST

static int free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	JOB_CHECK(!bind(fd, (struct sockaddr *)&a, len) &&
			  !getsockname(fd, (struct sockaddr *)&a, &len),
		  "no port");
	close(fd);
	return ntohs(a.sin_port);
}

/* Another launcher's variables may be left over: who reads the message has to
 * know which ones were believed. */
static void come_alone(struct job_rank *me)
{
	char place[32];

	snprintf(place, sizeof(place), "127.0.0.1:%d", free_port());
	setenv("DICOMM_COMM_ID", place, 1);
	check_failed(me, dicomm_comm_init_env(&me->comm), DICOMM_ERR_TIMEOUT,
		     "rank 1 of 2 did not come within 1000 ms (DICOMM_SIZE "
		     "says that there are 2)");
}

START_TEST(what_said_how_many_come_is_named)
{
	job_run(&(struct job){.run = come_alone,
			      .ranks = 1,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none",
				      "DICOMM_BOOTSTRAP_TIMEOUT=1",
				      "DICOMM_RANK=0", "DICOMM_SIZE=2",
				      "DICOMM_COMM_KEY=any"}});
}
END_TEST

/* ---- who comes with something else ---- */

struct difference {
	const char *words;            /* of the error, on every rank */
	const char *name, *values[2]; /* a variable; [1]: of the last rank */
	bool twice;                   /* the last rank says that it is rank 0 */
	int ranks; /* what the last rank says; 0: the truth */
	int deterministic[2];
};

static const struct difference differences[] = {
	{.words = "DICOMM_ALGO",
	 .name = "DICOMM_ALGO",
	 .values = {"allreduce:ring", "allreduce:tree"}},
	{.words = "DICOMM_ALGO",
	 .name = "DICOMM_ALGO",
	 .values = {NULL, "allreduce:tree"}},
	{.words = "DICOMM_SHM_SLOTS",
	 .name = "DICOMM_SHM_SLOTS",
	 .values = {NULL, "32"}},
	{.words = "DICOMM_SHM_SLOTS=16(default)",
	 .name = "DICOMM_SHM_SLOTS",
	 .values = {NULL, "16"}},
	{.words = "DICOMM_SHM_SLOT_BYTES=32K(default)",
	 .name = "DICOMM_SHM_SLOT_BYTES",
	 .values = {"32K", NULL}},
	{.words = "DICOMM_SHM_SLOT_BYTES",
	 .name = "DICOMM_SHM_SLOT_BYTES",
	 .values = {"16K", "64K"}},
	{.words = "DICOMM_DETERMINISTIC",
	 .name = "DICOMM_DETERMINISTIC",
	 .values = {"0", "1"}},
	{.words = "deterministic", .deterministic = {0, 1}},
	{.words = "rank 0", .twice = true},
	{.words = "ranks", .ranks = 7},
};

#define DIFFERENCES (int)(sizeof(differences) / sizeof(*differences))

static void differ(struct job_rank *me)
{
	const struct difference *d = me->arg;
	bool last = me->rank == me->ranks - 1;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	int rank = last && d->twice ? 0 : me->rank;
	int ranks = last && d->ranks ? d->ranks : me->ranks;
	const char *value = d->values[last];
	dicomm_result_t status;
	dicomm_unique_id_t id;
	double begin;

	if (value)
		setenv(d->name, value, 1);
	if (d->deterministic[1])
		config.deterministic = d->deterministic[last];
	id = job_id();
	if (me->rank && !last)
		usleep(300000); /* the others know by then */
	begin = job_seconds();
	status = dicomm_comm_init_rank_config(&me->comm, ranks, id, rank,
					      &config);
	check_failed(me, status, DICOMM_ERR_INVALID_USAGE, d->words);
	/* It stays for those who come later, if they do. */
	check_time(d->ranks && me->rank == 0 ? "host of unlike numbers"
					     : "ranks that differ",
		   begin, 0);
	/* And this process ends, though it may be the host of the id server. */
}

START_TEST(who_differs_is_refused)
{
	for (int n = 2; n <= 3; n++)
		job_run(&(struct job){.run = differ,
				      .arg = &differences[_i],
				      .ranks = n,
				      .bare = true,
				      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- strangers ---- */

/* The port in "dicomm1:ADDRESS:PORT:SECRET". */
static int port_of(const dicomm_unique_id_t *id, char *address, size_t len)
{
	const char *begin = strchr(id->text, ':');
	const char *secret = strrchr(id->text, ':');
	const char *port = secret;

	JOB_CHECK(begin && secret && begin != secret, "id %s", id->text);
	while (*--port != ':')
		;
	JOB_CHECK(port > begin, "id %s", id->text);
	snprintf(address, len, "%.*s", (int)(port - begin - 1), begin + 1);
	return atoi(port + 1);
}

static int connect_to(const dicomm_unique_id_t *id)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	char address[64];
	int fd;

	to.sin_port = htons((uint16_t)port_of(id, address, sizeof(address)));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || fd < 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Some hang about, some talk nonsense, some leave at once. */
static void be_strange(const void *arg)
{
	struct word *w = job_board();
	char noise[4096];
	unsigned state = 1;
	int fds[30], n = 0;

	(void)arg;
	job_await(&w->made, "the id");
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (char)storm_random(&state, 256);
	for (int i = 0; i < 30; i++) {
		int fd = connect_to(&w->id);

		if (fd < 0)
			continue; /* all have met: nobody listens any more */
		fds[n++] = fd;
		if (i % 3)
			(void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
		if (i % 3 == 2)
			close(fds[--n]);
		if (i == 20)
			atomic_store(&w->go, true);
	}
	atomic_store(&w->go, true);
	job_sleep_ms(200);
	while (n)
		close(fds[--n]);
}

static void meet_among_strangers(struct job_rank *me)
{
	struct word *w = job_board();
	dicomm_unique_id_t id = job_id();
	double begin;

	if (me->rank == 0) {
		w->id = id;
		atomic_store(&w->made, true);
	}
	if (me->rank == me->ranks - 1)
		job_await(&w->go, "the strangers");
	begin = job_seconds();
	JOB_TRY(init(me, me->ranks, &id, me->rank));
	if (me->rank == me->ranks - 1)
		check_time("init among strangers", begin, 0);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(strangers_do_not_disturb)
{
	job_run(&(struct job){
		.run = meet_among_strangers,
		.ranks = 3,
		.bare = true,
		.disturb = be_strange,
		.env = {"DICOMM_DEBUG=none", "DICOMM_SOCKET_FAMILY=AF_INET"}});
}
END_TEST

/* Who has another secret is as good as missing. */
static void know_another_secret(struct job_rank *me)
{
	dicomm_unique_id_t id = job_id();
	double begin = job_seconds();
	char *secret = strrchr(id.text, ':') + 1;

	if (me->rank == 1) {
		*secret = *secret == '0' ? '1' : '0';
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_INVALID_USAGE, "secret");
		/* Anybody may have said that, so it has tried to the end. */
		check_time("another secret", begin, BOOTSTRAP_S);
	} else {
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_TIMEOUT, "rank 1 of 3 did not come");
		check_time("a rank is missing", begin, BOOTSTRAP_S);
	}
	job_barrier();
}

START_TEST(another_secret_is_refused)
{
	job_run(&(struct job){
		.run = know_another_secret,
		.ranks = 3,
		.bare = true,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=2"}});
}
END_TEST

/* ---- who dies on the way ---- */

struct death {
	int victim, delay_us;
};

/* Until all that live know their fate: whoever hosts the id server must not end
 * before. */
static void wait_for_survivors(struct word *w, int survivors)
{
	double end = job_seconds() + PATIENCE_S;

	atomic_fetch_add(&w->knowing, 1);
	while (atomic_load(&w->knowing) < survivors && job_seconds() < end)
		usleep(200);
}

static void meet_the_dying(struct job_rank *me)
{
	const struct death *d = me->arg;
	struct word *w = job_board();
	dicomm_result_t status;
	struct residue before;
	dicomm_unique_id_t id;
	const char *text;
	char name[16];
	double begin;

	storm_warm_up(me, &before);
	id = job_id();
	atomic_fetch_add(&w->working, 1);
	begin = job_seconds();
	status = init(me, me->ranks, &id, me->rank);
	if (status == DICOMM_SUCCESS)
		do
			status = dicomm_barrier(me->comm, NULL);
		while (status == DICOMM_SUCCESS &&
		       job_seconds() < begin + PATIENCE_S);
	text = dicomm_get_last_error(me->comm);
	snprintf(name, sizeof(name), "rank %d", d->victim);
	JOB_CHECK(status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_TIMEOUT,
		  "status %d, \"%s\"", (int)status, text);
	/* With rank 0 the id server may be gone before anybody knew whose it
	 * was. */
	JOB_CHECK(strstr(text, name) ||
			  (d->victim == 0 && (strstr(text, "made the id") ||
					      strstr(text, "the id server"))),
		  "\"%s\" does not name %s", text, name);
	/* Nobody tells who did not come before it died. */
	check_time("a death in init", begin,
		   status == DICOMM_ERR_TIMEOUT ? BOOTSTRAP_S : 0);
	wait_for_survivors(w, me->ranks - 1);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	if (job_is_long())
		residue_check(&before, "after a death in init");
}

static void kill_one(const void *arg)
{
	const struct death *d = arg;
	struct word *w = job_board();
	int pid = job_pid(d->victim);
	double end = job_seconds() + PATIENCE_S;

	/* Any of them: the others may be about to begin. */
	while (!atomic_load(&w->working) && job_seconds() < end)
		;
	usleep((unsigned)d->delay_us);
	kill(pid, SIGKILL);
}

START_TEST(who_dies_in_init_is_named)
{
	unsigned state = (unsigned)getpid();
	int times = job_is_long() ? 100 : 9;

	for (int i = 0; i < times; i++) {
		int ranks = 2 + i % 3;
		struct death d = {
			.victim = (int)storm_random(&state, (unsigned)ranks),
			.delay_us = (int)storm_random(&state, 12000)};

		job_run(&(struct job){.run = meet_the_dying,
				      .arg = &d,
				      .ranks = ranks,
				      .bare = true,
				      .may_die = 1u << d.victim,
				      .disturb = kill_one,
				      .timeout_s = 40,
				      .env = {"DICOMM_DEBUG=none",
					      "DICOMM_BOOTSTRAP_TIMEOUT=2"}});
	}
}
END_TEST

/* ---- init in the background ---- */

enum end { ABORT_IT, DESTROY_IT, ENDS };

static void start_init(struct job_rank *me, const dicomm_unique_id_t *id)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	double begin = job_seconds();
	dicomm_result_t async;

	config.blocking = 0;
	JOB_CHECK(dicomm_comm_init_rank_config(&me->comm, me->ranks, *id,
					       me->rank,
					       &config) == DICOMM_IN_PROGRESS,
		  "init is not in progress");
	check_time("start of an init", begin, 0);
	JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
	JOB_CHECK(async == DICOMM_IN_PROGRESS, "async %d", (int)async);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_INVALID_USAGE,
		    "initialised");
}

/* The last rank does not come; rank 0 gives up after a while, and the ranks in
 * between, if there are any, learn of it. */
static void end_init(struct job_rank *me)
{
	enum end how = *(const enum end *)me->arg;
	dicomm_result_t async;
	struct residue before;
	dicomm_unique_id_t id;
	double begin;

	storm_warm_up(me, &before);
	id = job_id();
	if (me->rank < me->ranks - 1)
		start_init(me, &id);
	job_barrier();
	begin = job_seconds();
	if (me->rank == 0) {
		/* Until it has come to the id server: it would be missing, not
		 * gone. */
		job_sleep_ms(500);
		begin = job_seconds();
		if (how == ABORT_IT) {
			JOB_TRY(dicomm_comm_abort(me->comm));
			JOB_TRY(dicomm_comm_abort(me->comm));
			JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
			JOB_CHECK(async == DICOMM_ERR_ABORTED, "async %d",
				  (int)async);
			JOB_REFUSED(dicomm_barrier(me->comm, NULL),
				    DICOMM_ERR_ABORTED, "abort");
		}
	} else if (me->comm) {
		do {
			JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
			usleep(1000);
		} while (async == DICOMM_IN_PROGRESS &&
			 job_seconds() < begin + PATIENCE_S);
		JOB_CHECK(async == DICOMM_ERR_REMOTE, "async %d: %s",
			  (int)async, dicomm_get_last_error(me->comm));
		JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 0"),
			  "%s", dicomm_get_last_error(me->comm));
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
	/* Rank 0 has slept, the others have not. */
	check_time("end of an init under way", begin, me->rank ? 0.5 : 0);
	me->comm = NULL;
	meet_again(me, &before);
}

START_TEST(an_init_under_way_is_ended)
{
	enum end how = (enum end)(_i % ENDS);

	for (int n = 2; n <= 3; n++)
		job_run(&(struct job){.run = end_init,
				      .arg = &how,
				      .ranks = n,
				      .threads = _i / ENDS,
				      .bare = true,
				      .timeout_s = 40,
				      .env = {"DICOMM_DEBUG=none",
					      "DICOMM_BOOTSTRAP_TIMEOUT=3"}});
}
END_TEST

/* A rank is held up once all have met, or fails. */
static _Atomic bool is_late, is_poor, is_hubless, is_cut, is_dying;
static struct word *late_word;

dicomm_result_t __real_hub_open(const struct rank_info *self,
				const uint8_t key[AUTH_KEY],
				char address[SOCK_TEXT], struct hub **out);
dicomm_result_t __wrap_hub_open(const struct rank_info *self,
				const uint8_t key[AUTH_KEY],
				char address[SOCK_TEXT], struct hub **out);
dicomm_result_t __wrap_hub_open(const struct rank_info *self,
				const uint8_t key[AUTH_KEY],
				char address[SOCK_TEXT], struct hub **out)
{
	if (atomic_load(&is_hubless))
		return FAIL(DICOMM_ERR_SYSTEM, "no port");
	return __real_hub_open(self, key, address, out);
}

dicomm_result_t __real_hub_open_idle(struct hub **out);
dicomm_result_t __wrap_hub_open_idle(struct hub **out);
dicomm_result_t __wrap_hub_open_idle(struct hub **out)
{
	if (atomic_load(&is_hubless))
		return FAIL(DICOMM_ERR_SYSTEM, "no port");
	return __real_hub_open_idle(out);
}

/* Both are past what they have to do before they hear of each other. */
static void die_when_another_is_there(void)
{
	struct word *w = job_board();

	job_await(&w->made, "the rank that is cut off");
	atomic_store(&w->go, true);
	kill(getpid(), SIGKILL);
}

static dicomm_result_t be_cut_off_by_death(void)
{
	struct word *w = job_board();

	atomic_store(&w->made, true);
	job_await(&w->go, "the death");
	return FAIL(DICOMM_ERR_NO_PATH, "tcp: rank 1: it has closed its side");
}

dicomm_result_t __real_recovery_open(struct recovery **out,
				     const uint8_t key[AUTH_KEY], int rank,
				     char text[SOCK_TEXT]);
dicomm_result_t __wrap_recovery_open(struct recovery **out,
				     const uint8_t key[AUTH_KEY], int rank,
				     char text[SOCK_TEXT]);
dicomm_result_t __wrap_recovery_open(struct recovery **out,
				     const uint8_t key[AUTH_KEY], int rank,
				     char text[SOCK_TEXT])
{
	if (atomic_load(&is_late))
		job_await(&late_word->go, "the end of the others");
	if (atomic_load(&is_dying))
		die_when_another_is_there();
	if (atomic_load(&is_cut))
		return be_cut_off_by_death();
	if (atomic_load(&is_poor))
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "no memory for a recovery socket");
	return __real_recovery_open(out, key, rank, text);
}

/* An abort reaches who has met, though nobody leaves. */
static void abort_after_joining(struct job_rank *me)
{
	int aborts = *(const int *)me->arg;
	struct word *w = job_board();
	dicomm_result_t async;
	dicomm_unique_id_t id = job_id();
	double begin, end;

	late_word = w;
	atomic_store(&is_late, me->rank == me->ranks - 1);
	start_init(me, &id);
	job_sleep_ms(500);
	begin = job_seconds();
	end = begin + PATIENCE_S;
	if (me->rank == aborts)
		JOB_TRY(dicomm_comm_abort(me->comm));
	do {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		usleep(1000);
	} while (async == DICOMM_IN_PROGRESS && job_seconds() < end);
	JOB_CHECK(async == (me->rank == aborts ? DICOMM_ERR_ABORTED
					       : DICOMM_ERR_REMOTE),
		  "async %d: %s", (int)async, dicomm_get_last_error(me->comm));
	check_time("abort after joining", begin, 0);
	if (atomic_fetch_add(&w->knowing, 1) + 1 == me->ranks)
		atomic_store(&w->go, true);
	while (!atomic_load(&w->go) && job_seconds() < end)
		usleep(1000);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(an_abort_after_the_meeting_is_told)
{
	job_run(&(struct job){
		.run = abort_after_joining,
		.arg = &_i,
		.ranks = 3,
		.bare = true,
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=15"}});
}
END_TEST

/* ---- who fails when all have met ---- */

static char no_transports[100]; /* "^shm,verbs,ucx" */

static void name_no_transports(void)
{
	size_t n = 0;

	for (size_t i = 0; transports[i]; i++)
		n += (size_t)snprintf(no_transports + n,
				      sizeof(no_transports) - n, "%s%s",
				      i ? "," : "^", transports[i]->name);
}

static const struct cause {
	const char *transports;
	bool poor, hubless; /* hubless: rank 0, before all have met */
	dicomm_result_t status;
	const char *words;
} causes[] = {
	{NULL, true, false, DICOMM_ERR_NO_MEMORY,
	 "no memory for a recovery socket"},
	{NULL, false, true, DICOMM_ERR_SYSTEM, "host the others: no port"},
	{"nothing", false, false, DICOMM_ERR_INVALID_ARGUMENT,
	 "transport nothing"},
	{no_transports, false, false, DICOMM_ERR_NO_PATH,
	 "no transport is usable"},
};

#define CAUSES (int)(sizeof(causes) / sizeof(*causes))

/* ---- no transport can be opened ---- */

/* Shared memory fails for the size of its file, and UCX for what the user has
 * set: the text has both, in the order in which they are tried. */
static void without_transports(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct rlimit before, little;
	const char *text, *first, *second;
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;

	config.transports = "shm,ucx";
	JOB_CHECK(!getrlimit(RLIMIT_FSIZE, &before), "getrlimit");
	little = (struct rlimit){1024, before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	JOB_CHECK(!setrlimit(RLIMIT_FSIZE, &little), "setrlimit");
	status = dicomm_comm_init_rank_config(&comm, me->ranks, job_id(),
					      me->rank, &config);
	setrlimit(RLIMIT_FSIZE, &before);
	text = dicomm_get_last_error(NULL);
	first = strstr(text, "shm: ");
	second = strstr(text, "; ucx: ");
	JOB_CHECK(status == DICOMM_ERR_NO_PATH && first && second &&
			  first < second && strstr(first, "ulimit -f"),
		  "status %d, \"%s\"", (int)status, text);
	JOB_CHECK(!strstr(second, "open (") || strstr(second, "UCX_TLS is rc"),
		  "\"%s\" does not name UCX_TLS", text);
}

START_TEST(every_transport_says_why_it_cannot_be_used)
{
	job_run(&(struct job){.run = without_transports,
			      .ranks = 2,
			      .bare = true,
			      .env = {"UCX_TLS=rc"}});
}
END_TEST

enum route { BY_ID, IN_BACKGROUND, BY_CALLBACK, BY_SPLIT, ROUTES };

static dicomm_result_t start(struct job_rank *me, enum route route,
			     dicomm_comm_t parent, const struct cause *mine,
			     dicomm_comm_t *comm)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_unique_id_t id = {.text = ""};
	dicomm_result_t status;

	/* A meeting to which nobody comes stays for a while. */
	if (route == BY_ID || route == IN_BACKGROUND)
		id = job_id();
	if (mine)
		config.transports = mine->transports;
	config.blocking = route != IN_BACKGROUND;
	if (route == BY_CALLBACK) {
		config.bootstrap.allgather = job_gather;
		config.bootstrap.ctx = me;
	}
	if (route == BY_SPLIT)
		return dicomm_comm_split(parent, 0, 0, comm, &config);
	status = dicomm_comm_init_rank_config(comm, me->ranks, id, me->rank,
					      &config);
	return job_settled(status, *comm, PATIENCE_S);
}

static void fail_alone(struct job_rank *me, enum route route,
		       dicomm_comm_t parent, const struct cause *cause,
		       int victim)
{
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;
	char name[24];
	const char *text;
	double begin;

	snprintf(name, sizeof(name), "rank %d", victim);
	atomic_store(&is_poor, cause->poor && me->rank == victim);
	atomic_store(&is_hubless, cause->hubless && me->rank == victim);
	job_barrier();
	begin = job_seconds();
	status = start(me, route, parent, me->rank == victim ? cause : NULL,
		       &comm);
	check_time("a failure after joining", begin, 0);
	atomic_store(&is_poor, false);
	atomic_store(&is_hubless, false);
	text = dicomm_get_last_error(comm);
	JOB_CHECK(status == cause->status && strstr(text, cause->words) &&
			  strstr(text, name),
		  "route %d, %s fails with %d, \"%s\": here it is %d, \"%s\"",
		  (int)route, name, (int)cause->status, cause->words,
		  (int)status, text);
	JOB_CHECK(!comm || route == IN_BACKGROUND, "there is a handle");
	JOB_TRY(dicomm_comm_destroy(comm));
	job_barrier();
	comm = NULL;
	JOB_TRY(start(me, route, parent, NULL, &comm));
	JOB_TRY(dicomm_barrier(comm, NULL));
	JOB_TRY(dicomm_comm_destroy(comm));
}

/* Twice: what the first round leaves behind belongs to the process. */
static void fail_after_joining(struct job_rank *me)
{
	enum route route = *(const enum route *)me->arg;
	struct residue before;
	dicomm_comm_t parent;

	storm_warm_up(me, &before);
	JOB_TRY(dicomm_comm_init_rank(&parent, me->ranks, job_id(), me->rank));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < CAUSES * me->ranks; i++) {
			const struct cause *cause = &causes[i / me->ranks];
			int victim = i % me->ranks;

			if (!cause->hubless || victim == 0)
				fail_alone(me, route, parent, cause, victim);
		}
		job_barrier();
		if (round)
			residue_check(&before, "after a failure");
		job_sleep_ms(100);
		residue_count(&before);
		job_barrier();
	}
	JOB_TRY(dicomm_comm_destroy(parent));
}

START_TEST(who_fails_after_the_meeting_tells)
{
	enum route route = (enum route)_i;

	name_no_transports();
	job_run(&(struct job){.run = fail_after_joining,
			      .arg = &route,
			      .ranks = 3,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who is cut off by a death ---- */

/* Rank 2 dies. Rank 0 first notices that rank 1 has closed its connection,
 * which is a consequence. */
static void be_cut_off(struct job_rank *me)
{
	struct word *w = job_board();
	dicomm_unique_id_t id = job_id();
	dicomm_result_t status;
	const char *text;

	atomic_store(&is_cut, me->rank == 0);
	atomic_store(&is_dying, me->rank == 2);
	status = init(me, me->ranks, &id, me->rank);
	text = dicomm_get_last_error(NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE && strstr(text, "rank 2") &&
			  !strstr(text, "closed its side"),
		  "status %d, \"%s\"", (int)status, text);
	wait_for_survivors(w, me->ranks - 1);
}

START_TEST(the_dead_are_named_and_not_those_they_cut_off)
{
	job_run(&(struct job){.run = be_cut_off,
			      .ranks = 3,
			      .bare = true,
			      .may_die = 1u << 2,
			      .timeout_s = 40,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who hosts the others cannot open enough files ---- */

static void host_with_few_files(struct job_rank *me)
{
	bool comes_last = *(const int *)me->arg;
	dicomm_unique_id_t id = job_id();
	struct rlimit few;
	const char *text;
	double begin;

	few.rlim_cur = few.rlim_max = (rlim_t)residue_descriptors() + 4;
	if (me->rank == 0)
		JOB_CHECK(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
	job_barrier();
	if (me->rank == 0 && comes_last)
		job_sleep_ms(300);
	begin = job_seconds();
	check_failed(me, init(me, me->ranks, &id, me->rank), DICOMM_ERR_SYSTEM,
		     "open files, for ");
	check_time("too few files", begin, comes_last ? 0.3 : 0);
	text = dicomm_get_last_error(NULL);
	JOB_CHECK(strstr(text, "its limit is ") && strstr(text, "ulimit -Hn"),
		  "%s", text);
	job_barrier();
}

START_TEST(who_may_open_too_few_files_tells_the_others)
{
	job_run(&(struct job){.run = host_with_few_files,
			      .arg = &_i,
			      .ranks = 8,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- who cannot come to a split ---- */

static _Atomic bool is_threadless;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*run)(void *), void *arg)
{
	return atomic_load(&is_threadless)
		       ? EAGAIN
		       : __real_pthread_create(thread, attr, run, arg);
}

static void lacks_a_thread(struct job_rank *me)
{
	dicomm_unique_id_t id = job_id();
	double begin = job_seconds();

	atomic_store(&is_threadless, me->rank == 1);
	if (me->rank == 1) {
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_SYSTEM, "control thread: start: ");
	} else {
		check_failed(me, init(me, me->ranks, &id, me->rank),
			     DICOMM_ERR_REMOTE, "rank 1");
		JOB_CHECK(strstr(dicomm_get_last_error(NULL),
				 "control thread: start: "),
			  "%s", dicomm_get_last_error(NULL));
	}
	check_time("a rank has no thread", begin, 0);
	job_barrier();
	/* The next time it gets one. */
	atomic_store(&is_threadless, false);
	id = job_id();
	JOB_TRY(init(me, me->ranks, &id, me->rank));
	job_check_sums(me->comm, me->ranks, me->rank);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(who_gets_no_thread_tells_the_others)
{
	job_run(&(struct job){.run = lacks_a_thread,
			      .ranks = 3,
			      .bare = true,
			      .timeout_s = 60,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

static const struct hindrance {
	int lanes;
	bool background, threadless;
	bool fileless; /* no file can be opened */
	dicomm_result_t status;
	const char *words;
} hindrances[] = {
	{9, false, false, false, DICOMM_ERR_INVALID_ARGUMENT, "lanes 9"},
	{9, true, false, false, DICOMM_ERR_INVALID_ARGUMENT, "lanes 9"},
	{1, true, true, false, DICOMM_ERR_SYSTEM, "create a thread"},
	{1, false, false, true, DICOMM_ERR_SYSTEM, "Too many open files"},
	{1, true, false, true, DICOMM_ERR_SYSTEM, "Too many open files"},
};

#define HINDRANCES (int)(sizeof(hindrances) / sizeof(*hindrances))

#define FILES_MOST 1024

/* Until files_give_back(), this process can open none. */
struct files {
	int fds[FILES_MOST];
	int n;
	struct rlimit before;
};

static void files_take(struct files *f)
{
	struct rlimit few;
	int fd;

	f->n = 0;
	JOB_CHECK(!getrlimit(RLIMIT_NOFILE, &f->before), "getrlimit");
	few = f->before;
	few.rlim_cur = FILES_MOST;
	JOB_CHECK(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
	while (f->n < FILES_MOST &&
	       (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		f->fds[f->n++] = fd;
	JOB_CHECK(errno == EMFILE, "open: %s", strerror(errno));
}

static void files_give_back(struct files *f)
{
	while (f->n)
		close(f->fds[--f->n]);
	JOB_CHECK(!setrlimit(RLIMIT_NOFILE, &f->before), "setrlimit");
}

/* The last rank goes another way, and is not concerned. */
static void split_with(struct job_rank *me, const struct hindrance *h,
		       int victim)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	bool aside = me->rank == me->ranks - 1;
	bool fileless = h->fileless && me->rank == victim;
	struct files files;
	double begin;
	dicomm_comm_t comm = NULL;
	dicomm_result_t status;
	char name[20];
	const char *text;

	snprintf(name, sizeof(name), "rank %d", victim);
	config.blocking = !h->background;
	if (me->rank == victim)
		config.lanes = h->lanes;
	atomic_store(&is_threadless, h->threadless && me->rank == victim);
	if (fileless)
		files_take(&files);
	job_barrier();
	begin = job_seconds();
	status = dicomm_comm_split(me->comm, aside, 0, &comm, &config);
	text = dicomm_get_last_error(NULL);
	atomic_store(&is_threadless, false);
	if (fileless)
		files_give_back(&files);
	check_time("a rank cannot come to a split", begin, 0);
	if (!aside)
		JOB_CHECK(status == h->status && !comm &&
				  strstr(text, h->words) && strstr(text, name),
			  "%s fails with %d, \"%s\": here it is %d, \"%s\"",
			  name, (int)h->status, h->words, (int)status, text);
	status = job_settled(status, comm, PATIENCE_S);
	if (aside)
		JOB_CHECK(status == DICOMM_SUCCESS, "alone it is %d, \"%s\"",
			  (int)status, text);
	JOB_TRY(dicomm_comm_destroy(comm));
}

/* Nothing is left of it, and the parent goes on. */
static void split_in_vain(struct job_rank *me)
{
	struct residue before;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < HINDRANCES * (me->ranks - 1); i++) {
			split_with(me, &hindrances[i / (me->ranks - 1)],
				   i % (me->ranks - 1));
			JOB_TRY(dicomm_barrier(me->comm, NULL));
		}
		job_barrier();
		if (round)
			residue_check(&before, "after splits in vain");
		job_sleep_ms(100);
		residue_count(&before);
		job_barrier();
	}
}

/* Where it may open too few files, UCX fails without saying why, or ends the
 * process. */
static void split_with_few_files(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	int of_ucx = 0;

	config.transports = "ucx";
	for (int left = 0; left < 12; left++) {
		dicomm_comm_t comm = NULL;
		dicomm_result_t status;
		struct files files;
		const char *text;

		job_barrier();
		if (me->rank == 1) {
			files_take(&files);
			for (int i = 0; i < left; i++)
				close(files.fds[--files.n]);
		}
		status = dicomm_comm_split(me->comm, 0, 0, &comm, &config);
		text = dicomm_get_last_error(NULL);
		if (me->rank == 1)
			files_give_back(&files);
		if (status != DICOMM_SUCCESS && strstr(text, "ucx: ")) {
			of_ucx++;
			JOB_CHECK(strstr(text, "rank 1 ") &&
					  strstr(text, "open files"),
				  "%d are left: \"%s\"", left, text);
		}
		JOB_TRY(dicomm_comm_destroy(comm));
	}
	JOB_CHECK(of_ucx, "nothing failed in UCX");
}

START_TEST(ucx_says_that_it_lacks_files)
{
	const struct transport *ucx = transport_find("ucx");
	char why[200];

	if (!ucx || !ucx->usable(why, sizeof(why)))
		return;
	job_run(&(struct job){.run = split_with_few_files,
			      .ranks = 2,
			      .timeout_s = 60,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

START_TEST(who_cannot_come_to_a_split_tells)
{
	job_run(&(struct job){.run = split_in_vain,
			      .ranks = 4,
			      .timeout_s = 60,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* Without a disturbance it becomes ready. */
static void poll_init(struct job_rank *me)
{
	dicomm_unique_id_t id = job_id();
	double end = job_seconds() + PATIENCE_S;
	dicomm_result_t async;
	struct storm s;

	if (me->rank)
		job_sleep_ms(50);
	start_init(me, &id);
	do {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		JOB_CHECK(job_seconds() < end, "still in progress");
	} while (async == DICOMM_IN_PROGRESS);
	JOB_CHECK(async == DICOMM_SUCCESS, "async %d", (int)async);
	storm_begin(&s, me, 3);
	JOB_TRY(storm_next(&s));
	storm_end(&s);
	JOB_CHECK(dicomm_comm_finalize(me->comm) == DICOMM_IN_PROGRESS,
		  "finalize is not in progress");
	do {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &async));
		JOB_CHECK(job_seconds() < end, "still in progress");
	} while (async == DICOMM_IN_PROGRESS);
	JOB_CHECK(async == DICOMM_SUCCESS, "async %d", (int)async);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(an_init_is_polled)
{
	job_run(&(struct job){.run = poll_init,
			      .ranks = 3,
			      .threads = _i,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_init");
	TCase *tcase = tcase_create("fault_init");

	tcase_set_timeout(tcase, job_is_long() ? 600 : 100);
	tcase_add_test(tcase, who_gets_no_thread_tells_the_others);
	tcase_add_loop_test(tcase, who_may_open_too_few_files_tells_the_others,
			    0, 2);
	tcase_add_loop_test(tcase, who_does_not_come_is_named, 0, 5);
	tcase_add_test(tcase, all_who_do_not_come_are_named);
	tcase_add_test(tcase, what_said_how_many_come_is_named);
	tcase_add_loop_test(tcase, who_differs_is_refused, 0, DIFFERENCES);
	tcase_add_test(tcase, strangers_do_not_disturb);
	tcase_add_test(tcase, another_secret_is_refused);
	tcase_add_test(tcase, who_dies_in_init_is_named);
	tcase_add_loop_test(tcase, an_init_under_way_is_ended, 0, 2 * ENDS);
	tcase_add_loop_test(tcase, an_abort_after_the_meeting_is_told, 0, 2);
	tcase_add_test(tcase, the_dead_are_named_and_not_those_they_cut_off);
	tcase_add_loop_test(tcase, who_fails_after_the_meeting_tells, 0,
			    ROUTES);
	tcase_add_test(tcase, who_cannot_come_to_a_split_tells);
	tcase_add_test(tcase, ucx_says_that_it_lacks_files);
	tcase_add_test(tcase, every_transport_says_why_it_cannot_be_used);
	tcase_add_loop_test(tcase, an_init_is_polled, 0, 2);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
