/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/streams.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/log.h"

#define OK STREAMS_OK
#define BYTES 300000

struct streams streams;

void streams_use(const struct accel *accel)
{
	streams = (struct streams){.accel = accel, .work = accel->work};
}

void streams_setup(void)
{
	const struct accel_work *work = streams.work;

	OK(work->open(0, NULL, &streams.stream));
	OK(work->open_beside(streams.stream, &streams.other));
	OK(work->event_create(0, &streams.event));
	OK(work->stream_wait_create(0, &streams.stream_wait));
}

void streams_teardown(void)
{
	const struct accel_work *work = streams.work;

	work->stream_wait_destroy(streams.stream_wait);
	work->event_destroy(streams.event);
	work->close(streams.other);
	work->close(streams.stream);
}

dicomm_result_t streams_finish(struct accel_stream *s, struct accel_event *e)
{
	dicomm_result_t status = streams.work->event_record(e, s);

	while (status == DICOMM_SUCCESS &&
	       (status = streams.work->event_query(e)) == DICOMM_AGAIN) {
		/* Each look is a call that may be made to fail. */
		usleep(200);
		status = DICOMM_SUCCESS;
	}
	return status;
}

void streams_drain(struct accel_stream *s)
{
	struct accel_event *e;

	OK(streams.work->event_create(0, &e));
	OK(streams_finish(s, e));
	streams.work->event_destroy(e);
}

void streams_pause_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

void *streams_alloc(size_t bytes)
{
	void *p = NULL;

	OK(streams.accel->alloc(0, bytes, &p));
	return p;
}

START_TEST(copies_run_in_order)
{
	unsigned char *a = malloc(BYTES), *b = calloc(1, BYTES);
	char *p = streams_alloc(BYTES), *q = streams_alloc(BYTES);

	for (int i = 0; i < BYTES; i++)
		a[i] = (unsigned char)(i * 7);
	OK(streams.work->copy(streams.stream, p, a, BYTES));
	OK(streams.work->copy(streams.stream, q + 1, p + 1, BYTES - 2));
	OK(streams.work->copy(streams.stream, b, q, BYTES));
	OK(streams.work->copy(streams.stream, b, a, 0));
	streams_drain(streams.stream);
	ck_assert_mem_eq(b + 1, a + 1, BYTES - 2);
	ck_assert_int_eq(b[0], 0);
	ck_assert_int_eq(b[BYTES - 1], 0);
	OK(streams.accel->free(p));
	OK(streams.accel->free(q));
	free(a);
	free(b);
}
END_TEST

START_TEST(a_stream_wait_holds_what_is_queued_after_it)
{
	int from = 1, to = 0, before = 0;

	OK(streams.work->event_query(streams.event)); /* never recorded */
	OK(streams.work->copy(streams.stream, &before, &from, sizeof(int)));
	OK(streams.work->event_record(streams.event, streams.stream));
	OK(streams.work->stream_wait_queue(streams.stream_wait,
					   streams.stream));
	OK(streams.work->copy(streams.stream, &to, &from, sizeof(int)));
	/* What comes before it is not held. */
	while (streams.work->event_query(streams.event) == DICOMM_AGAIN)
		sched_yield();
	ck_assert_int_eq(before, 1);
	OK(streams.work->event_record(streams.event, streams.stream));
	streams_pause_ms(30);
	ck_assert_int_eq(streams.work->event_query(streams.event),
			 DICOMM_AGAIN);
	ck_assert_int_eq(to, 0);
	streams.work->stream_wait_release(streams.stream_wait);
	streams_drain(streams.stream);
	ck_assert_int_eq(to, 1);
	OK(streams.work->event_query(streams.event));
}
END_TEST

START_TEST(a_stream_wait_is_released_once_for_each_queueing)
{
	int one = 1, to[3] = {0, 0, 0};
	struct accel_event *past[3];

	for (int i = 0; i < 3; i++) {
		OK(streams.work->event_create(0, &past[i]));
		OK(streams.work->stream_wait_queue(streams.stream_wait,
						   streams.stream));
		OK(streams.work->copy(streams.stream, &to[i], &one,
				      sizeof(int)));
		OK(streams.work->event_record(past[i], streams.stream));
	}
	for (int i = 0; i < 3; i++) {
		streams_pause_ms(10);
		ck_assert_int_eq(streams.work->event_query(past[i]),
				 DICOMM_AGAIN);
		ck_assert_int_eq(to[i], 0);
		streams.work->stream_wait_release(streams.stream_wait);
		while (streams.work->event_query(past[i]) == DICOMM_AGAIN)
			sched_yield();
		ck_assert_int_eq(to[i], 1);
		streams.work->event_destroy(past[i]);
	}
}
END_TEST

START_TEST(a_destroyed_stream_wait_holds_nothing)
{
	struct accel_stream_wait *g;
	int one = 1, to = 0;

	OK(streams.work->stream_wait_create(0, &g));
	OK(streams.work->stream_wait_queue(g, streams.stream));
	OK(streams.work->stream_wait_queue(g, streams.other));
	OK(streams.work->copy(streams.stream, &to, &one, sizeof(int)));
	streams.work->stream_wait_destroy(g);
	/* Its word counts on for the next. */
	OK(streams.work->stream_wait_create(0, &g));
	OK(streams.work->stream_wait_queue(g, streams.other));
	streams_drain(streams.stream);
	ck_assert_int_eq(to, 1);
	OK(streams.work->event_record(streams.event, streams.other));
	streams_pause_ms(10);
	ck_assert_int_eq(streams.work->event_query(streams.event),
			 DICOMM_AGAIN);
	streams.work->stream_wait_release(g);
	streams_drain(streams.other);
	streams.work->stream_wait_destroy(g);
}
END_TEST

static void *open_later(void *arg)
{
	streams_pause_ms(20);
	streams.work->stream_wait_release(arg);
	return NULL;
}

START_TEST(any_thread_releases_a_stream_wait)
{
	pthread_t thread;

	OK(streams.work->stream_wait_queue(streams.stream_wait,
					   streams.stream));
	OK(streams.work->event_record(streams.event, streams.stream));
	ck_assert_int_eq(streams.work->event_query(streams.event),
			 DICOMM_AGAIN);
	ck_assert_int_eq(
		pthread_create(&thread, NULL, open_later, streams.stream_wait),
		0);
	streams_drain(streams.stream);
	OK(streams.work->event_query(streams.event));
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(streams_wait_for_each_other_and_for_nobody_else)
{
	int one = 1, first = 0, second = 0, third = 0;

	OK(streams.work->stream_wait_queue(streams.stream_wait,
					   streams.stream));
	OK(streams.work->copy(streams.stream, &first, &one, sizeof(int)));
	OK(streams.work->event_record(streams.event, streams.stream));
	OK(streams.work->copy(streams.other, &third, &one, sizeof(int)));
	streams_drain(streams.other);
	ck_assert_int_eq(third, 1);
	OK(streams.work->wait_event(streams.other, streams.event));
	OK(streams.work->copy(streams.other, &second, &first, sizeof(int)));
	streams_pause_ms(20);
	ck_assert_int_eq(second, 0);
	streams.work->stream_wait_release(streams.stream_wait);
	streams_drain(streams.other);
	ck_assert_int_eq(second, 1);
}
END_TEST

START_TEST(bad_work_is_refused)
{
	const struct accel_work *work = streams.work;
	struct accel_stream *none;
	float x = 1;

	ck_assert_int_eq(work->reduce(streams.stream, DICOMM_FLOAT32,
				      DICOMM_BAND, &x, &x, &x, 1),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(
		work->divide(streams.stream, DICOMM_FLOAT32, &x, &x, 0, 1),
		DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(
		work->divide(streams.stream, DICOMM_INT32, &x, &x, -2, 1),
		DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(work->open(77, NULL, &none),
			 DICOMM_ERR_INVALID_ARGUMENT);
}
END_TEST

void streams_add_tests(TCase *t)
{
	tcase_add_test(t, copies_run_in_order);
	tcase_add_test(t, a_stream_wait_holds_what_is_queued_after_it);
	tcase_add_test(t, bad_work_is_refused);
	tcase_add_test(t, a_stream_wait_is_released_once_for_each_queueing);
	tcase_add_test(t, a_destroyed_stream_wait_holds_nothing);
	tcase_add_test(t, any_thread_releases_a_stream_wait);
	tcase_add_test(t, streams_wait_for_each_other_and_for_nobody_else);
}
