/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that ranks of one process read: until when, and by whom. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/memory/in_process.h"
#include "tests/support/runner.h"

/* What streams have come to, by the address of their event */
static _Atomic bool reached[2];
static _Atomic bool closed;

static dicomm_result_t query(const struct accel_event *e)
{
	return atomic_load((_Atomic bool *)(uintptr_t)e) ? DICOMM_SUCCESS
							 : DICOMM_AGAIN;
}

static dicomm_result_t query_broken(const struct accel_event *e)
{
	(void)e;
	return FAIL(DICOMM_ERR_DEVICE, "it is broken");
}

static const struct accel_work work = {.event_query = query};
static const struct accel_work broken = {.event_query = query_broken};

static void begin_read(struct in_process *l, struct in_process_read *r,
		       int event)
{
	ck_assert(in_process_begin(l));
	r->work = &work;
	r->event = (const struct accel_event *)&reached[event];
	in_process_end(l, r);
}

static void setup(void)
{
	atomic_store(&reached[0], false);
	atomic_store(&reached[1], false);
	atomic_store(&closed, false);
}

static void *close_it(void *l)
{
	ck_assert(in_process_close(l, UINT64_C(10000000000)));
	atomic_store(&closed, true);
	return NULL;
}

START_TEST(who_closes_waits_for_the_events_of_those_who_read)
{
	struct in_process_read reads[2] = {{.from = NULL}};
	struct in_process *l, *found;
	pthread_t thread;

	setup();
	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	found = in_process_find(in_process_id(l));
	ck_assert_ptr_eq(found, l);
	begin_read(found, &reads[0], 0);
	begin_read(found, &reads[1], 1);
	pthread_create(&thread, NULL, close_it, l);
	usleep(20000);
	atomic_store(&reached[1], true);
	usleep(20000);
	ck_assert(!atomic_load(&closed));
	atomic_store(&reached[0], true);
	pthread_join(thread, NULL);
	/* Who reads finds out later. */
	in_process_done(&reads[0]);
	in_process_done(&reads[1]);
	in_process_done(&reads[1]);
	in_process_put(l);
	in_process_put(found);
}
END_TEST

START_TEST(nobody_begins_once_it_is_closed)
{
	struct in_process *l, *found;

	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	found = in_process_find(in_process_id(l));
	ck_assert(in_process_close(l, 0));
	ck_assert(!in_process_begin(found));
	ck_assert_ptr_null(in_process_find(in_process_id(l)));
	in_process_put(l);
	ck_assert(!in_process_begin(found));
	in_process_put(found);
}
END_TEST

START_TEST(what_is_done_or_was_not_queued_is_not_waited_for)
{
	struct in_process_read reads[3] = {{.from = NULL}};
	struct in_process *l;

	setup();
	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	begin_read(l, &reads[0], 0);
	in_process_done(&reads[0]);
	ck_assert(in_process_begin(l));
	in_process_end(l, &reads[1]);
	in_process_done(&reads[1]);
	begin_read(l, &reads[2], 0);
	reads[2].work = &broken;
	ck_assert(in_process_close(l, 0));
	in_process_done(&reads[2]);
	in_process_put(l);
}
END_TEST

/* ---- who listens to the log ---- */

static int heard;

/* As one who gives up whenever something fails */
static void listen(int level, const char *message, void *l)
{
	(void)level;
	(void)message;
	heard++;
	ck_assert(in_process_close(l, 0));
}

START_TEST(who_hears_of_a_failed_read_may_close_what_is_lent)
{
	struct in_process_read none = {.from = NULL};
	struct in_process *l;

	heard = 0;
	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	log_set_sink(listen, l);
	ck_assert(in_process_begin(l));
	log_error("it cannot be queued");
	ck_assert_int_eq(heard, 0);
	in_process_end(l, &none);
	ck_assert_int_eq(heard, 1);
	ck_assert_str_eq(log_last_error(), "it cannot be queued");
	ck_assert(!in_process_begin(l));
	log_set_sink(NULL, NULL);
	in_process_put(l);
}
END_TEST

START_TEST(who_closes_says_nothing_of_the_streams_of_others)
{
	struct in_process_read reads[2] = {{.from = NULL}};
	struct in_process *l;

	heard = 0;
	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	for (int i = 0; i < 2; i++) {
		begin_read(l, &reads[i], 0);
		reads[i].work = &broken;
	}
	log_set_last_error("of before");
	log_set_sink(listen, l);
	ck_assert(in_process_close(l, 0));
	ck_assert_int_eq(heard, 0);
	ck_assert_str_eq(log_last_error(), "of before");
	log_error("it is heard again");
	ck_assert_int_eq(heard, 1);
	log_set_sink(NULL, NULL);
	in_process_done(&reads[0]);
	in_process_done(&reads[1]);
	in_process_put(l);
}
END_TEST

START_TEST(closing_is_bounded)
{
	struct in_process_read read = {.from = NULL};
	struct in_process *l;

	setup();
	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	begin_read(l, &read, 0);
	ck_assert(!in_process_close(l, 10000000));
	in_process_done(&read);
	ck_assert(in_process_close(l, 0));
	in_process_put(l);
}
END_TEST

START_TEST(other_processes_do_not_find_it)
{
	struct in_process *l, *other;
	pid_t child;
	int status;

	ck_assert_int_eq(in_process_create(&l), DICOMM_SUCCESS);
	ck_assert_int_eq(in_process_create(&other), DICOMM_SUCCESS);
	ck_assert(in_process_id(l) && in_process_id(l) != in_process_id(other));
	ck_assert_ptr_null(in_process_find(0));
	child = fork();
	if (!child)
		_exit(in_process_find(in_process_id(l)) != NULL);
	waitpid(child, &status, 0);
	ck_assert_int_eq(status, 0);
	in_process_put(other);
	in_process_put(l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("in_process");
	TCase *t = tcase_create("lent");

	tcase_set_timeout(t, 20);
	tcase_add_test(t, who_closes_waits_for_the_events_of_those_who_read);
	tcase_add_test(t, nobody_begins_once_it_is_closed);
	tcase_add_test(t, what_is_done_or_was_not_queued_is_not_waited_for);
	tcase_add_test(t, who_hears_of_a_failed_read_may_close_what_is_lent);
	tcase_add_test(t, who_closes_says_nothing_of_the_streams_of_others);
	tcase_add_test(t, closing_is_bounded);
	tcase_add_test(t, other_processes_do_not_find_it);
	suite_add_tcase(s, t);
	return runner_main(s);
}
