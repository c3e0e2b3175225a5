/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls of setup: a rank that waits in one serves its peers, and
 * what is wrong on one rank is refused on all of them. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define BYTES ((size_t)1 << 20)
#define BAD DICOMM_ERR_INVALID_ARGUMENT
#define USAGE DICOMM_ERR_INVALID_USAGE

static const char *const variants[] = {
	"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA=off", "DICOMM_TRANSPORTS=tcp"};
#define VARIANTS 3

/* A tensor that goes from rank 0 to rank 1 */
struct moved {
	dicomm_box_t from, to;
	dicomm_tensor_t tensor;
};

static const dicomm_tensor_t *moved(struct moved *m)
{
	memset(m, 0, sizeof(*m));
	m->from.hi[0] = m->to.hi[0] = 4;
	m->to.rank = 1;
	m->tensor = (dicomm_tensor_t)DICOMM_TENSOR_INITIALIZER;
	m->tensor.axes = 1;
	m->tensor.shape[0] = 4;
	m->tensor.source = &m->from;
	m->tensor.target = &m->to;
	m->tensor.sources = m->tensor.targets = 1;
	return &m->tensor;
}

/* Of the tensor above, only what this rank has */
static const dicomm_tensor_t *own_part(struct moved *m, int rank)
{
	moved(m);
	m->tensor.sources = rank == 0;
	m->tensor.targets = rank == 1;
	return &m->tensor;
}

/* ---- the calls ---- */

/* What the ranks keep from call to call */
struct scene {
	struct job_rank *me;
	dicomm_window_t win, extra;
	dicomm_unique_id_t id;
};

static void do_register(struct scene *s)
{
	static char memory[2][8];

	JOB_TRY(dicomm_comm_window_register(s->me->comm, memory[s->me->rank], 8,
					    &s->extra, 0));
}

static void do_deregister(struct scene *s)
{
	JOB_TRY(dicomm_comm_window_deregister(s->me->comm, s->extra));
}

static void do_split(struct scene *s)
{
	dicomm_comm_t part;

	JOB_TRY(dicomm_comm_split(s->me->comm, 0, 0, &part, NULL));
	JOB_TRY(dicomm_comm_destroy(part));
}

static void do_create_group(struct scene *s)
{
	static const int both[] = {0, 1};
	dicomm_comm_t part;

	JOB_TRY(dicomm_comm_create_group(s->me->comm, both, 2, 0, &part, NULL));
	JOB_TRY(dicomm_comm_destroy(part));
}

static void do_shrink(struct scene *s)
{
	dicomm_comm_t part;

	JOB_TRY(dicomm_comm_shrink(s->me->comm, NULL, 0, &part, NULL));
	JOB_TRY(dicomm_comm_destroy(part));
}

static void do_init(struct scene *s)
{
	dicomm_comm_t other;

	JOB_TRY(dicomm_comm_init_rank(&other, 2, s->id, s->me->rank));
	JOB_TRY(dicomm_comm_destroy(other));
}

static void *join_as_third(void *arg)
{
	dicomm_comm_t grown;

	JOB_TRY(dicomm_comm_grow(NULL, 3, arg, 2, &grown, NULL));
	JOB_TRY(dicomm_comm_destroy(grown));
	return NULL;
}

static void do_grow(struct scene *s)
{
	dicomm_comm_t grown;
	pthread_t joiner;
	bool starts = s->me->rank == 1;

	if (starts)
		JOB_CHECK(!pthread_create(&joiner, NULL, join_as_third, &s->id),
			  "no thread");
	JOB_TRY(dicomm_comm_grow(s->me->comm, 3, &s->id, -1, &grown, NULL));
	JOB_TRY(dicomm_comm_destroy(grown));
	if (starts)
		pthread_join(joiner, NULL);
}

static void do_plan(struct scene *s)
{
	dicomm_redistribute_t plan;
	struct moved m;

	JOB_TRY(dicomm_redistribute_plan(&plan, moved(&m), 1, NULL,
					 s->me->comm));
	JOB_TRY(dicomm_redistribute_free(plan));
}

static void do_plan_own(struct scene *s)
{
	dicomm_redistribute_t plan;
	struct moved m;

	JOB_TRY(dicomm_redistribute_plan_own(&plan, own_part(&m, s->me->rank),
					     1, NULL, s->me->comm));
	JOB_TRY(dicomm_redistribute_free(plan));
}

static void do_set_timeout(struct scene *s)
{
	JOB_TRY(dicomm_comm_set_timeout(s->me->comm, 15000));
	JOB_TRY(dicomm_barrier(s->me->comm, NULL));
}

static const struct {
	const char *name;
	void (*call)(struct scene *s);
} calls[] = {{"set_timeout", do_set_timeout},
	     {"window_register", do_register},
	     {"window_deregister", do_deregister},
	     {"comm_split", do_split},
	     {"comm_create_group", do_create_group},
	     {"comm_shrink", do_shrink},
	     {"comm_init_rank", do_init},
	     {"comm_grow", do_grow},
	     {"redistribute_plan", do_plan},
	     {"redistribute_plan_own", do_plan_own}};
#define CALLS (sizeof(calls) / sizeof(*calls))

/* ---- served meanwhile ---- */

/* Rank 1 writes and reads the window of rank 0, which calls nothing for that,
 * and counts more signals than there are slots. */
static void use_window(const struct scene *s, unsigned char *local, int value)
{
	dicomm_comm_t comm = s->me->comm;

	memset(local, value, BYTES);
	JOB_TRY(dicomm_put_signal(local, BYTES, DICOMM_UINT8, 0, s->win, 0,
				  DICOMM_NO_SIGNAL, 0, 0, comm, NULL));
	for (int i = 0; i < 100; i++)
		JOB_TRY(dicomm_signal(0, 0, 0, 0, comm, NULL));
	memset(local, 0, BYTES);
	JOB_TRY(dicomm_get(local, BYTES, DICOMM_UINT8, 0, s->win, 0, comm,
			   NULL));
	for (size_t i = 0; i < BYTES; i++)
		JOB_CHECK(local[i] == value, "byte %zu is %d, not %d", i,
			  local[i], value);
}

static void serve_in_all(struct job_rank *me)
{
	unsigned char *memory = calloc(1, BYTES), *local = malloc(BYTES);
	dicomm_wait_signal_desc_t hundred = {.count = 100, .peer = 1};
	dicomm_unique_id_t *shared = job_board();
	struct scene s = {.me = me};

	JOB_TRY(dicomm_comm_set_timeout(me->comm, 15000));
	JOB_TRY(dicomm_comm_window_register(me->comm, memory, BYTES, &s.win,
					    0));
	for (size_t i = 0; i < CALLS; i++) {
		job_doing("%s", calls[i].name);
		if (me->rank == 0 && calls[i].call == do_init)
			JOB_TRY(dicomm_get_unique_id(shared));
		if (me->rank == 0 && calls[i].call == do_grow)
			JOB_TRY(dicomm_comm_get_unique_id(me->comm, shared));
		job_barrier();
		s.id = *shared;
		if (me->rank == 1) {
			job_sleep_ms(20); /* rank 0 is in the call by now */
			use_window(&s, local, (int)i + 1);
		}
		calls[i].call(&s);
		if (me->rank == 0)
			JOB_TRY(dicomm_wait_signal(1, &hundred, me->comm,
						   NULL));
	}
	job_doing("comm_finalize");
	job_barrier();
	if (me->rank == 1)
		use_window(&s, local, 99);
	else
		JOB_TRY(dicomm_wait_signal(1, &hundred, me->comm, NULL));
	job_barrier();
	JOB_TRY(dicomm_comm_finalize(me->comm));
	free(local);
	job_barrier();
	free(memory);
}

START_TEST(a_rank_in_a_call_of_setup_serves_its_peers)
{
	job_run(&(struct job){.run = serve_in_all,
			      .ranks = 2,
			      .threads = _i >= VARIANTS,
			      .env = {variants[_i % VARIANTS]},
			      .timeout_s = 60});
}
END_TEST

/* ---- refused on all ranks ---- */

/* Rank `bad` gives `wrong`, and the others `right`. */
#define GIVES(wrong, right) (me->rank == bad ? (wrong) : (right))
/* All ranks get the error of rank `bad`, and the others read its number. */
#define ALL_REFUSE(call, status, words)                                      \
	do {                                                                 \
		char who[20];                                                \
                                                                             \
		snprintf(who, sizeof(who), "rank %d (", bad);                \
		job_doing("%s", words);                                      \
		JOB_REFUSED(call, status, words);                            \
		JOB_CHECK(me->rank == bad ||                                 \
				  strstr(dicomm_get_last_error(NULL), who),  \
			  "no %s in: %s", who, dicomm_get_last_error(NULL)); \
	} while (0)

/* The next call of all ranks belongs together: what rank 0 puts into the window
 * of the last rank is in the memory that this one has registered for it. */
static void pairs_again(const struct job_rank *me)
{
	dicomm_wait_signal_desc_t one = {.count = 1, .peer = 0};
	int memory = 0, value = 4711, last = me->ranks - 1;
	dicomm_window_t win;

	JOB_TRY(dicomm_comm_window_register(me->comm, &memory, sizeof(memory),
					    &win, 0));
	if (me->rank == 0)
		JOB_TRY(dicomm_put_signal(&value, 1, DICOMM_INT32, last, win, 0,
					  0, 0, 0, me->comm, NULL));
	if (me->rank == last) {
		JOB_TRY(dicomm_wait_signal(1, &one, me->comm, NULL));
		JOB_CHECK(memory == value, "the memory has %d", memory);
	}
	JOB_TRY(dicomm_comm_window_deregister(me->comm, win));
}

static void refuse_windows(struct job_rank *me, int bad)
{
	static char memory[3][64];
	char *at = memory[me->rank];
	dicomm_window_t a, b;
	dicomm_comm_t c = me->comm;

	ALL_REFUSE(dicomm_comm_window_register(c, at, 64, &a, GIVES(0x40, 0)),
		   BAD, "flags 0x40");
	JOB_CHECK(!a, "a window in spite of that");
	ALL_REFUSE(dicomm_comm_window_register(c, at, 64, GIVES(NULL, &a), 0),
		   BAD, "win is NULL");
	ALL_REFUSE(dicomm_comm_window_register(c, GIVES(NULL, at), 64, &a, 0),
		   BAD, "buff is NULL, size is 64");
	JOB_REFUSED(dicomm_comm_window_register(
			    c, at, 64, &a, GIVES(DICOMM_WINDOW_ENDS_ALONE, 0)),
		    USAGE, "DICOMM_WINDOW_ENDS_ALONE");
	pairs_again(me);
	JOB_TRY(dicomm_comm_window_register(c, at, 64, &a, 0));
	JOB_TRY(dicomm_comm_window_register(c, at, 64, &b, 0));
	ALL_REFUSE(dicomm_comm_window_deregister(c, GIVES(NULL, a)), BAD,
		   "no window of this communicator");
	JOB_REFUSED(dicomm_comm_window_deregister(c, GIVES(b, a)), USAGE,
		    "win: rank 0");
	JOB_TRY(dicomm_comm_window_deregister(c, a));
	JOB_TRY(dicomm_comm_window_deregister(c, b));
	/* Of windows that end alone nobody else hears, also of a stale one. */
	JOB_TRY(dicomm_comm_window_register(c, at, 64, &a,
					    DICOMM_WINDOW_ENDS_ALONE));
	JOB_TRY(dicomm_comm_window_deregister(c, a));
	if (me->rank == bad)
		JOB_REFUSED(dicomm_comm_window_deregister(c, a), BAD, "win");
}

static void refuse_communicators(struct job_rank *me, int bad)
{
	dicomm_config_t nowhere = DICOMM_CONFIG_INITIALIZER, garbage;
	int all[3] = {0, 1, 2};
	dicomm_comm_t c = me->comm, n;

	memset(&garbage, 0, sizeof(garbage));
	nowhere.device = "nowhere:7";
	ALL_REFUSE(dicomm_comm_split(c, GIVES(-5, 0), 0, &n, NULL), BAD,
		   "color -5");
	ALL_REFUSE(dicomm_comm_split(c, 0, 0, GIVES(NULL, &n), NULL), BAD,
		   "newcomm is NULL");
	ALL_REFUSE(dicomm_comm_split(c, 0, 0, &n, GIVES(&garbage, NULL)), BAD,
		   "DICOMM_CONFIG_INITIALIZER");
	ALL_REFUSE(dicomm_comm_split(c, 0, 0, &n, GIVES(&nowhere, NULL)), BAD,
		   "nowhere:7");
	ALL_REFUSE(dicomm_comm_grow(c, GIVES(1, 4), NULL, -1, &n, NULL), BAD,
		   "nranks 1");
	ALL_REFUSE(dicomm_comm_grow(c, 4, NULL, GIVES(7, -1), &n, NULL), BAD,
		   "rank 7");
	ALL_REFUSE(dicomm_comm_grow(c, 4, NULL, -1, GIVES(NULL, &n), NULL), BAD,
		   "newcomm is NULL");
	ALL_REFUSE(
		dicomm_comm_create_group(c, all, 3, 0, GIVES(NULL, &n), NULL),
		BAD, "newcomm is NULL");
	ALL_REFUSE(dicomm_comm_create_group(c, all, 3, 0, &n,
					    GIVES(&garbage, NULL)),
		   BAD, "DICOMM_CONFIG_INITIALIZER");
	JOB_TRY(dicomm_comm_split(c, 0, 0, &n, NULL));
	JOB_TRY(dicomm_comm_destroy(n));
}

static void refuse_all(struct job_rank *me)
{
	JOB_TRY(dicomm_comm_set_timeout(me->comm, 15000));
	for (int bad = 0; bad < me->ranks; bad += 2) {
		refuse_windows(me, bad);
		pairs_again(me);
		refuse_communicators(me, bad);
		pairs_again(me);
	}
}

START_TEST(what_is_wrong_on_one_rank_is_refused_on_all)
{
	job_run(&(struct job){.run = refuse_all,
			      .ranks = 3,
			      .threads = _i == 1,
			      .timeout_s = 60});
}
END_TEST

/* ---- unlike calls ---- */

static void call_unlike(struct job_rank *me)
{
	dicomm_window_t win;
	dicomm_comm_t part;

	if (me->rank == 0)
		JOB_REFUSED(dicomm_comm_split(me->comm, 0, 0, &part, NULL),
			    USAGE,
			    "rank 0 called comm_split, rank 1 called "
			    "window_register");
	else
		JOB_REFUSED(dicomm_comm_window_register(me->comm, &win,
							sizeof(win), &win, 0),
			    USAGE,
			    "rank 0 called comm_split, rank 1 called "
			    "window_register");
}

START_TEST(unlike_calls_are_named)
{
	job_run(&(struct job){.run = call_unlike, .ranks = 2});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("setup_calls");
	TCase *served = tcase_create("served");
	TCase *refused = tcase_create("refused");

	tcase_set_timeout(served, 70);
	tcase_add_loop_test(served, a_rank_in_a_call_of_setup_serves_its_peers,
			    0, VARIANTS + 1);
	suite_add_tcase(suite, served);
	tcase_set_timeout(refused, 70);
	tcase_add_loop_test(refused,
			    what_is_wrong_on_one_rank_is_refused_on_all, 0, 2);
	tcase_add_test(refused, unlike_calls_are_named);
	suite_add_tcase(suite, refused);
	return runner_main(suite);
}
