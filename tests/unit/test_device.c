/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank on a device gives up, whatever it has under way. */
#include <check.h>

#include "src/base/clock.h"
#include "src/device/device.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

static int marks;

static dicomm_result_t event_record(struct accel_event *e,
				    struct accel_stream *s)
{
	(void)e;
	(void)s;
	marks++;
	return DICOMM_SUCCESS;
}

static dicomm_result_t event_query(const struct accel_event *e)
{
	(void)e;
	return DICOMM_SUCCESS;
}

static const struct accel_work work = {.event_record = event_record,
				       .event_query = event_query};

/* Messages that no peer takes, and that nobody sends any more, leave no stage
 * for the mark behind what was queued last. */
START_TEST(who_gives_up_needs_no_stage_that_is_free)
{
	static struct device dev = {.work = &work};
	static struct dicomm_comm comm = {.dev = &dev};
	static struct prepared prep[TP_CLASSES];
	static struct operation ops[TP_CLASSES];
	uint64_t begin = clock_ms();

	dev.last = &dev.first;
	for (int c = 0; c < TP_CLASSES; c++) {
		prep[c].class = (enum tp_class)c;
		ops[c].prep = &prep[c];
	}
	for (unsigned i = 0; i < DEVICE_STAGES; i++) {
		struct stage *st =
			device_stage(&dev, &ops[i % TP_CLASSES], 0, i,
				     i < DEVICE_SENDS * TP_CLASSES);

		ck_assert_ptr_nonnull(st);
		if (st->sends)
			st->phase = STAGE_SENT;
	}
	ck_assert_ptr_null(device_stage(&dev, NULL, 0, 0, false));
	dev.unmarked = true;
	comm.fault.status = DICOMM_ERR_ABORTED;
	device_quiesce(&comm);
	ck_assert_msg(clock_ms() - begin < 10000 + starved_ms(),
		      "it took %llu ms",
		      (unsigned long long)(clock_ms() - begin));
	ck_assert_int_eq(marks, 1);
	ck_assert(device_is_idle(&dev));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device");
	TCase *t = tcase_create("device");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, who_gives_up_needs_no_stage_that_is_free);
	suite_add_tcase(s, t);
	return runner_main(s);
}
