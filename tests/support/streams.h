/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the streams, events and stream waits of every kind of device must do, as
 * cases of a suite. Each case has two streams of device 0, an event and a
 * stream wait.
 */
#ifndef DICOMM_TESTS_SUPPORT_STREAMS_H
#define DICOMM_TESTS_SUPPORT_STREAMS_H

#include <check.h>

#include "src/accel/accel.h"

/* Of the device that is tested, and of the case that runs. */
extern struct streams {
	const struct accel *accel;
	const struct accel_work *work;
	struct accel_stream *stream, *other;
	struct accel_event *event;
	struct accel_stream_wait *stream_wait;
} streams;

/* Which device; before anything else. */
void streams_use(const struct accel *accel);
/* A checked fixture. */
void streams_setup(void);
void streams_teardown(void);
void streams_add_tests(TCase *t);

/* Until all that was queued has run; the timeout of the test bounds it. */
dicomm_result_t streams_finish(struct accel_stream *s, struct accel_event *e);
void streams_drain(struct accel_stream *s);
void streams_pause_ms(int ms);
void *streams_alloc(size_t bytes);

#define STREAMS_OK(call) ck_assert_int_eq(call, DICOMM_SUCCESS)

#endif
