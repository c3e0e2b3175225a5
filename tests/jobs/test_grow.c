/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm_comm_grow(): ranks join a communicator, also one that has shrunk; who
 * does not come, dies or differs is named, and the old communicator goes on. */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "src/boot/control/rank_info.h"
#include "tests/support/job.h"
#include "tests/support/prompt.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"

#define PATIENCE_S 20.0
#define COME_MS 1000

static const char *const routes[] = {"DICOMM_TRANSPORTS=shm",
				     "DICOMM_TRANSPORTS=tcp"};

#define ROUTES 2

/* How an old rank hands the ids to the joiners: each attempt has one. */
struct board {
	_Atomic int made; /* ids */
	_Atomic int lost; /* ranks that know of a death */
	dicomm_unique_id_t id[8];
};

static void hand_out(dicomm_comm_t comm, dicomm_unique_id_t *id)
{
	struct board *b = job_board();
	int n = atomic_load(&b->made);

	JOB_TRY(dicomm_comm_get_unique_id(comm, id));
	b->id[n] = *id;
	atomic_store(&b->made, n + 1);
}

static void take_id(int n, dicomm_unique_id_t *id)
{
	struct board *b = job_board();
	double end = job_seconds() + PATIENCE_S;

	while (atomic_load(&b->made) <= n) {
		JOB_CHECK(job_seconds() < end, "there is no id %d", n);
		usleep(200);
	}
	*id = b->id[n];
}

/* It has n ranks, of which this is the place-th, and all operations work. */
static void check_works(dicomm_comm_t comm, int n, int place)
{
	struct job_rank me = {.rank = place, .ranks = n, .comm = comm};
	struct storm s;

	job_check_sums(comm, n, place);
	storm_begin(&s, &me, 12);
	for (int i = 0; i < 3; i++)
		JOB_TRY(storm_next(&s));
	storm_end(&s);
}

/* The first `old` ranks of a bare job have a communicator. */
static void begin_with(struct job_rank *me, int old)
{
	dicomm_unique_id_t id = job_id();

	if (me->rank < old)
		JOB_TRY(dicomm_comm_init_rank(&me->comm, old, id, me->rank));
}

/* ---- two become four, then three, then four ---- */

static dicomm_comm_t grow_as(dicomm_comm_t comm, int n, int rank, int attempt)
{
	dicomm_comm_t grown = NULL;
	dicomm_unique_id_t id;

	job_doing("grow to %d ranks", n);
	if (!comm)
		take_id(attempt, &id);
	else if (rank == 0)
		hand_out(comm, &id);
	/* In the second attempt the old ranks know it from who has made it. */
	JOB_TRY(dicomm_comm_grow(comm, n,
				 comm && (rank || attempt) ? NULL : &id,
				 comm ? -1 : rank, &grown, NULL));
	check_works(grown, n, rank);
	return grown;
}

/* Rank 1 of the four dies; rank 4 of the job takes its place at the end. */
static void live_and_die(struct job_rank *me)
{
	struct board *b = job_board();
	dicomm_comm_t four = NULL, three = NULL, again = NULL, old;
	double end = job_seconds() + PATIENCE_S;
	int value = 0, rank;

	begin_with(me, 2);
	old = me->comm;
	me->comm = NULL;
	if (me->rank < 4)
		four = grow_as(old, 4, me->rank, 0);
	if (old) {
		/* The old one works as before. */
		check_works(old, 2, me->rank);
		JOB_TRY(dicomm_comm_destroy(old));
	}
	if (me->rank == 1)
		raise(SIGKILL);
	if (four) {
		JOB_CHECK(dicomm_broadcast(&value, &value, 1, DICOMM_INT32, 1,
					   four, NULL) == DICOMM_ERR_REMOTE,
			  "the death was not noticed");
		JOB_TRY(dicomm_comm_shrink(four, NULL, 0, &three, NULL));
		JOB_TRY(dicomm_comm_destroy(four));
		JOB_TRY(dicomm_comm_user_rank(three, &rank));
		check_works(three, 3, me->rank ? me->rank - 1 : 0);
		atomic_fetch_add(&b->lost, 1);
	}
	while (atomic_load(&b->lost) < 3) {
		JOB_CHECK(job_seconds() < end, "they never shrank");
		usleep(500);
	}
	again = grow_as(three, 4, four ? rank : 3, 1);
	JOB_TRY(dicomm_comm_destroy(three));
	JOB_TRY(dicomm_comm_destroy(again));
}

START_TEST(two_four_three_four)
{
	job_run(&(struct job){
		.run = live_and_die,
		.ranks = 5,
		.bare = true,
		.may_die = 2,
		.timeout_s = 40,
		.env = {"DICOMM_DEBUG=none", routes[_i % ROUTES]}});
}
END_TEST

/* All in one process, one becoming four, and the options of each. */
static void grow_from_one(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t grown = NULL;
	dicomm_unique_id_t id;
	dicomm_result_t status;

	begin_with(me, 1);
	if (me->comm)
		hand_out(me->comm, &id);
	else
		take_id(0, &id);
	config.blocking = 0;
	config.deterministic = 1;
	status = dicomm_comm_grow(me->comm, me->ranks, &id,
				  me->rank ? me->rank : -1, &grown, &config);
	JOB_CHECK(status == DICOMM_IN_PROGRESS, "%d", (int)status);
	status = job_settled(status, grown, PATIENCE_S);
	JOB_CHECK(status == DICOMM_SUCCESS, "%d, \"%s\"", (int)status,
		  dicomm_get_last_error(grown));
	check_works(grown, me->ranks, me->rank);
	JOB_TRY(dicomm_comm_destroy(grown));
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(one_becomes_many)
{
	job_run(&(struct job){.run = grow_from_one,
			      .ranks = 4,
			      .threads = true,
			      .bare = true,
			      .env = {routes[_i]}});
}
END_TEST

/* ---- who spoils it ---- */

enum harm {
	NOBODY_COMES,
	IT_DIES,
	WRONG_SECRET,
	WRONG_VERSION,
	WRONG_NUMBER,
	TAKEN_RANK,
	OTHER_SETTING,
	HARMS
};

static void other_version(struct rank_info *info)
{
	info->version += 100;
}

static void die(int number)
{
	(void)number;
	raise(SIGKILL);
}

/* Another secret, of the same form */
static void spoil(dicomm_unique_id_t *id)
{
	char *secret = strrchr(id->text, ':') + 1;

	*secret = *secret == 'A' ? 'B' : 'A';
}

static const struct {
	dicomm_result_t status;
	const char *words;
	dicomm_result_t joiner; /* what it gets itself */
	double due_s;
} harms[HARMS] = {
	[NOBODY_COMES] = {DICOMM_ERR_TIMEOUT, "rank 2 of 3 did not come",
			  DICOMM_SUCCESS, COME_MS / 1000.0},
	[IT_DIES] = {DICOMM_ERR_REMOTE, "rank 2 (", DICOMM_SUCCESS, 0.3},
	[WRONG_SECRET] = {DICOMM_ERR_TIMEOUT, "rank 2 of 3 did not come",
			  DICOMM_ERR_INVALID_USAGE, COME_MS / 1000.0},
	[WRONG_VERSION] = {DICOMM_ERR_INVALID_USAGE, "library version differs",
			   DICOMM_ERR_INVALID_USAGE, 0},
	[WRONG_NUMBER] = {DICOMM_ERR_INVALID_USAGE, "number of ranks differs",
			  DICOMM_ERR_INVALID_USAGE, 0},
	[TAKEN_RANK] = {DICOMM_ERR_INVALID_USAGE, "rank 1",
			DICOMM_ERR_INVALID_USAGE, 0},
	[OTHER_SETTING] = {DICOMM_ERR_INVALID_USAGE, "deterministic",
			   DICOMM_ERR_INVALID_USAGE, 0},
};

static void join_badly(enum harm harm, const dicomm_config_t *config)
{
	dicomm_config_t mine = *config;
	dicomm_comm_t comm = NULL;
	dicomm_unique_id_t id;
	dicomm_result_t status;

	take_id(0, &id);
	if (harm == NOBODY_COMES)
		return;
	if (harm == IT_DIES) {
		/* Once it has joined the others on the way */
		signal(SIGALRM, die);
		ualarm(200000, 0);
	}
	if (harm == WRONG_SECRET)
		spoil(&id);
	if (harm == WRONG_VERSION)
		rank_info_test_hook = other_version;
	if (harm == OTHER_SETTING)
		mine.deterministic = 1;
	status = dicomm_comm_grow(NULL, harm == WRONG_NUMBER ? 4 : 3, &id,
				  harm == TAKEN_RANK ? 1 : 2, &comm, &mine);
	rank_info_test_hook = NULL;
	JOB_CHECK(status == harms[harm].joiner, "the joiner gets %d, \"%s\"",
		  (int)status, dicomm_get_last_error(NULL));
	JOB_CHECK(!comm, "there is a handle");
}

/* Then the old communicator works, and grows by a good one. When the joiner is
 * to die, rank 1 is late, so that nothing is complete before. */
static void spoil_growth(struct job_rank *me)
{
	enum harm harm = *(const enum harm *)me->arg;
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t grown = NULL;
	dicomm_unique_id_t id;
	double begin;

	begin_with(me, 2);
	config.bootstrap_timeout_ms = COME_MS;
	if (me->rank == 2)
		join_badly(harm, &config);
	if (me->rank < 2) {
		if (me->rank == 0)
			hand_out(me->comm, &id);
		JOB_TRY(dicomm_barrier(me->comm, NULL));
		if (harm == IT_DIES)
			job_sleep_ms(600);
		begin = job_seconds();
		JOB_REFUSED(dicomm_comm_grow(me->comm, 3, me->rank ? NULL : &id,
					     -1, &grown, &config),
			    harms[harm].status, harms[harm].words);
		JOB_CHECK(!grown, "there is a handle");
		prompt_check("growth that was spoiled", job_seconds() - begin,
			     harms[harm].due_s);
		check_works(me->comm, 2, me->rank);
	}
	if (me->rank == 2)
		job_sleep_ms(100);
	if (me->rank < 2 || me->rank == 3) {
		grown = grow_as(me->comm, 3, me->rank < 2 ? me->rank : 2, 1);
		JOB_TRY(dicomm_comm_destroy(grown));
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
	}
}

START_TEST(who_spoils_growth_is_named)
{
	enum harm harm = (enum harm)_i;

	job_run(&(struct job){.run = spoil_growth,
			      .arg = &harm,
			      .ranks = 4,
			      .bare = true,
			      .may_die = harm == IT_DIES ? 4 : 0,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- an old rank that dies ---- */

static void lose_old(struct job_rank *me)
{
	int victim = *(const int *)me->arg;
	dicomm_comm_t grown = NULL;
	dicomm_unique_id_t id;
	dicomm_result_t status;
	double begin;

	begin_with(me, 3);
	if (me->rank == 0)
		hand_out(me->comm, &id);
	else
		take_id(0, &id);
	job_barrier();
	if (me->rank == victim)
		raise(SIGKILL);
	begin = job_seconds();
	status = dicomm_comm_grow(me->comm, 4, &id, me->comm ? -1 : 3, &grown,
				  NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_SYSTEM,
		  "%d, \"%s\"", (int)status, dicomm_get_last_error(NULL));
	JOB_CHECK(!grown, "there is a handle");
	prompt_check("an old rank dies", job_seconds() - begin, 0);
	if (me->comm)
		JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(an_old_rank_dies)
{
	static const int victims[] = {1, 2};

	job_run(&(struct job){
		.run = lose_old,
		.arg = &victims[_i],
		.ranks = 4,
		.bare = true,
		.may_die = 1u << victims[_i],
		.env = {"DICOMM_DEBUG=none", "DICOMM_BOOTSTRAP_TIMEOUT=10"}});
}
END_TEST

/* ---- old ranks that disagree ---- */

/* The joiner, which has come already, hears of it at once, too. */
static void disagree(struct job_rank *me)
{
	dicomm_comm_t grown = NULL;
	dicomm_unique_id_t id;
	double begin;

	begin_with(me, 2);
	if (me->rank == 0)
		hand_out(me->comm, &id);
	else
		take_id(0, &id);
	job_barrier();
	begin = job_seconds();
	if (me->comm)
		job_sleep_ms(300);
	JOB_REFUSED(dicomm_comm_grow(me->comm, 3 + (me->rank == 1), &id,
				     me->comm ? -1 : 2, &grown, NULL),
		    DICOMM_ERR_INVALID_USAGE, "rank 1 (");
	JOB_CHECK(!grown, "there is a handle");
	prompt_check("old ranks disagree", job_seconds() - begin, 0.3);
	if (!me->comm)
		return;
	check_works(me->comm, 2, me->rank);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(old_ranks_disagree)
{
	job_run(&(struct job){.run = disagree,
			      .ranks = 3,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- refusals ---- */

static void ask_wrongly(struct job_rank *me)
{
	dicomm_unique_id_t id, broken = {.text = "dicomm1:nonsense"};
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t c = NULL;

	JOB_REFUSED(dicomm_comm_grow(me->comm, 3, NULL, -1, &c, NULL),
		    DICOMM_ERR_INVALID_USAGE, "no rank of comm has an id");
	JOB_REFUSED(
		dicomm_comm_grow(me->comm, 3 + me->rank, NULL, -1, &c, NULL),
		DICOMM_ERR_INVALID_USAGE, "rank 1 (");
	JOB_TRY(dicomm_comm_get_unique_id(me->comm, &id));
	JOB_REFUSED(dicomm_comm_get_unique_id(me->comm, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "id is NULL");
	JOB_REFUSED(dicomm_comm_get_unique_id(NULL, &id),
		    DICOMM_ERR_INVALID_ARGUMENT, "comm");
#define WRONG(words, ...)                          \
	JOB_REFUSED(dicomm_comm_grow(__VA_ARGS__), \
		    DICOMM_ERR_INVALID_ARGUMENT, words)
	WRONG("newcomm", me->comm, 3, &id, -1, NULL, NULL);
	WRONG("nranks 2", me->comm, 2, &id, -1, &c, NULL);
	WRONG("nranks 70000", me->comm, 70000, &id, -1, &c, NULL);
	WRONG("rank 2", me->comm, 3, &id, 2, &c, NULL);
	WRONG("id: ", me->comm, 3, &broken, -1, &c, NULL);
	WRONG("id: ", NULL, 3, &broken, 2, &c, NULL);
	WRONG("comm and id are NULL", NULL, 3, NULL, 2, &c, NULL);
	WRONG("rank 3: not in 0 .. 2", NULL, 3, &id, 3, &c, NULL);
#undef WRONG
	JOB_REFUSED(dicomm_comm_grow(me->comm, 3, &id, -1, &c, NULL),
		    DICOMM_ERR_INVALID_USAGE, "unlike ids");
	/* Each has its own, made but not given */
	JOB_TRY(dicomm_comm_get_unique_id(me->comm, &id));
	JOB_REFUSED(dicomm_comm_grow(me->comm, 3, NULL, -1, &c, NULL),
		    DICOMM_ERR_INVALID_USAGE, "unlike ids");
	config.device = me->rank ? "nowhere:0" : NULL;
	JOB_REFUSED(dicomm_comm_grow(me->comm, 3, me->rank ? NULL : &id, -1, &c,
				     &config),
		    DICOMM_ERR_INVALID_ARGUMENT, "nowhere");
	JOB_CHECK(!c, "there is a handle");
	check_works(me->comm, 2, me->rank);
}

START_TEST(wrong_arguments_are_named)
{
	job_run(&(struct job){
		.run = ask_wrongly, .ranks = 2, .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

int main(void)
{
	Suite *s = suite_create("grow");
	TCase *t = tcase_create("grow");

	tcase_set_timeout(t, 90);
	tcase_add_loop_test(t, two_four_three_four, 0, ROUTES);
	tcase_add_loop_test(t, one_becomes_many, 0, ROUTES);
	tcase_add_loop_test(t, who_spoils_growth_is_named, 0, HARMS);
	tcase_add_loop_test(t, an_old_rank_dies, 0, 2);
	tcase_add_test(t, old_ranks_disagree);
	tcase_add_test(t, wrong_arguments_are_named);
	suite_add_tcase(s, t);
	prompt_add(s);
	return runner_main(s);
}
