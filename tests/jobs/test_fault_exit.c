/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that has its result may end without a goodbye: what the others need of
 * it for the same call has arrived, and counts. The call after that fails, and
 * names it. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define LATE_MS 50
#define VERY_LATE_MS 1000 /* one call may still begin */
#define SMALL 2000        /* bytes: sent as data */
#define LARGE (1 << 16)   /* by reference within a machine */
#define MOST_RANKS 4
#define EARLIER 3

enum kind {
	BROADCAST_LATE, /* the others enter when the root has gone */
	BROADCAST_VERY_LATE,
	SENDS_LATE,
	BROADCAST,
	BARRIER,
	ALLREDUCE,
	KINDS
};

static const char *const kind_names[KINDS] = {
	"broadcast, late", "broadcast, very late",
	"sends, late",     "broadcast",
	"barrier",         "allreduce"};

struct scene {
	enum kind kind;
	int ranks;
	int leaver; /* -1: all leave as soon as they have their result */
	int earlier;
};

static uint8_t byte_of(const struct scene *s, size_t i)
{
	return (uint8_t)(i * 7 + (size_t)s->kind + (size_t)s->ranks);
}

static void check_bytes(const struct scene *s, const uint8_t *got, size_t n)
{
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(got[i] == byte_of(s, i), "byte %zu is %d", i, got[i]);
}

static void last_sends(const struct job_rank *me, uint8_t *data)
{
	const struct scene *s = me->arg;

	if (me->rank != s->leaver) {
		JOB_TRY(dicomm_recv(data, SMALL, DICOMM_UINT8, s->leaver,
				    me->comm, NULL));
		check_bytes(s, data, SMALL);
		return;
	}
	for (int r = 0; r < me->ranks; r++)
		if (r != me->rank)
			JOB_TRY(dicomm_send(data, SMALL, DICOMM_UINT8, r,
					    me->comm, NULL));
}

static void last_broadcast(const struct job_rank *me, uint8_t *data, size_t n)
{
	const struct scene *s = me->arg;

	JOB_TRY(dicomm_broadcast(data, data, n, DICOMM_UINT8,
				 s->leaver < 0 ? 0 : s->leaver, me->comm,
				 NULL));
	check_bytes(s, data, n);
}

static void sum_up(const struct job_rank *me)
{
	int32_t in = me->rank + 1, out = 0;

	JOB_TRY(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_CHECK(out == me->ranks * (me->ranks + 1) / 2, "sum %d", out);
}

static void last_call(const struct job_rank *me, uint8_t *data)
{
	const struct scene *s = me->arg;

	if (s->kind == SENDS_LATE)
		last_sends(me, data);
	else if (s->kind == BARRIER)
		JOB_TRY(dicomm_barrier(me->comm, NULL));
	else if (s->kind == ALLREDUCE)
		sum_up(me);
	else
		last_broadcast(me, data, s->kind == BROADCAST ? LARGE : SMALL);
}

static bool is_late(const struct scene *s)
{
	return s->kind <= SENDS_LATE;
}

static void work(struct job_rank *me)
{
	const struct scene *s = me->arg;
	bool leaves = s->leaver < 0 || me->rank == s->leaver;
	static uint8_t data[LARGE];
	int32_t in = 1, out = 0;
	char name[16];

	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	for (int i = 0; i < s->earlier; i++)
		sum_up(me);
	for (size_t i = 0; i < LARGE && (leaves || s->leaver < 0); i++)
		data[i] = byte_of(s, i);
	if (leaves && s->leaver < 0 && me->rank > 0)
		memset(data, 0, LARGE);
	if (leaves)
		last_call(me, data);
	if (is_late(s))
		job_barrier();
	if (leaves)
		_exit(0);
	if (is_late(s))
		job_sleep_ms(s->kind == BROADCAST_VERY_LATE ? VERY_LATE_MS
							    : LATE_MS);
	last_call(me, data);
	snprintf(name, sizeof(name), "rank %d", s->leaver);
	JOB_REFUSED(dicomm_allreduce(&in, &out, 1, DICOMM_INT32, DICOMM_SUM,
				     me->comm, NULL),
		    DICOMM_ERR_REMOTE, name);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_REMOTE, name);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

static void run_scene(struct scene *s, const char *transports)
{
	char text[2000];
	struct job job = {.run = work,
			  .arg = s,
			  .ranks = s->ranks,
			  .bare = true,
			  .env = {transports, "DICOMM_DEBUG=none"}};

	ck_assert_msg(job_try(&job, text, sizeof(text)),
		      "%s, %s, %d ranks, %d leaves, %d calls before: %s",
		      transports, kind_names[s->kind], s->ranks, s->leaver,
		      s->earlier, text);
}

static void run_all(enum kind kind, const char *transports)
{
	struct scene s = {.kind = kind};

	for (s.ranks = 2; s.ranks <= MOST_RANKS; s.ranks++)
		for (int i = is_late(&s) ? 0 : -1; i < 2; i++) {
			if (kind == BROADCAST_VERY_LATE && s.ranks != 3)
				continue;
			s.leaver = i > 0 ? s.ranks - 1 : i;
			s.earlier = (s.ranks + s.leaver) % 2 ? EARLIER : 0;
			run_scene(&s, transports);
		}
}

START_TEST(who_has_its_result_may_end)
{
	run_all((enum kind)_i, "DICOMM_TRANSPORTS=shm");
}
END_TEST

START_TEST(who_has_its_result_may_end_over_tcp)
{
	run_all((enum kind)_i, "DICOMM_TRANSPORTS=tcp");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_exit");
	TCase *tcase = tcase_create("fault_exit");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, who_has_its_result_may_end, 0, KINDS);
	tcase_add_loop_test(tcase, who_has_its_result_may_end_over_tcp, 0,
			    KINDS);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
