/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule by itself: order, window, posted sends, failures, budget. */
#include "collectives/plan/schedule.h"
#include "tests/support/runner.h"

#include <check.h>
#include <string.h>

enum { LOG = 256 };

struct runner {
	struct {
		uint32_t step;
		uint64_t slice, number;
	} log[LOG];
	unsigned n;
	uint64_t consumed; /* messages that finished() confirms */
	bool post, fail, block_recv;
};

static enum schedule_result start(void *ctx, const struct step *step,
				  uint32_t s, uint64_t slice, uint64_t number)
{
	struct runner *r = ctx;

	if (r->fail)
		return SCHEDULE_FAILED;
	if (r->block_recv && step->kind == STEP_RECV)
		return SCHEDULE_AGAIN;
	ck_assert_uint_lt(r->n, LOG);
	r->log[r->n].step = s;
	r->log[r->n].slice = slice;
	r->log[r->n++].number = number;
	return r->post && step->kind == STEP_SEND ? SCHEDULE_POSTED
						  : SCHEDULE_DONE;
}

static enum schedule_result finished(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	struct runner *r = ctx;

	(void)step;
	(void)s;
	(void)slice;
	return number < r->consumed ? SCHEDULE_DONE : SCHEDULE_AGAIN;
}

static const struct schedule_io io = {.start = start, .finished = finished};

/* Receive, send it on, receive into the same memory. */
static void relay(struct plan *p, enum plan_buffer buffer)
{
	plan_init(p, 2);
	if (buffer == PLAN_SCRATCH)
		plan_scratch(p, 1);
	plan_recv(p, 1, plan_block(buffer, 0));
	plan_send(p, 1, plan_block(buffer, 0));
	plan_recv(p, 1, plan_block(buffer, 0));
	ck_assert_int_eq(plan_finish(p), DICOMM_SUCCESS);
}

START_TEST(messages_are_numbered_by_slice)
{
	struct schedule sc = {0};
	struct runner r = {0};
	bool progressed = false;
	struct plan p;

	relay(&p, PLAN_RECV);
	ck_assert_int_eq(schedule_begin(&sc, &p, 3, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	ck_assert(progressed);
	ck_assert_uint_eq(r.n, 9);
	for (unsigned i = 0; i < r.n; i++) {
		uint64_t slice = r.log[i].slice;

		ck_assert_uint_eq(r.log[i].number,
				  r.log[i].step == 0   ? 2 * slice
				  : r.log[i].step == 1 ? slice
						       : 2 * slice + 1);
	}
	progressed = false;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	ck_assert(!progressed);
	schedule_free(&sc);
	plan_free(&p);
}
END_TEST

START_TEST(a_posted_send_holds_its_memory)
{
	struct runner r = {.post = true};
	struct schedule sc = {0};
	bool progressed = false;
	struct plan p;

	relay(&p, PLAN_RECV);
	ck_assert_int_eq(schedule_begin(&sc, &p, 2, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_AGAIN);
	/* Both slices came in and went out; none may be overwritten. */
	ck_assert_uint_eq(r.n, 4);
	r.consumed = 1;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_AGAIN);
	ck_assert_uint_eq(r.n, 5);
	ck_assert_uint_eq(r.log[4].step, 2);
	ck_assert_uint_eq(r.log[4].slice, 0);
	r.consumed = 2;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	schedule_free(&sc);
	plan_free(&p);
}
END_TEST

START_TEST(scratch_limits_how_far_slices_are_apart)
{
	struct runner r = {.post = true};
	struct schedule sc = {0};
	bool progressed = false;
	struct plan p;

	relay(&p, PLAN_SCRATCH);
	ck_assert_int_eq(schedule_begin(&sc, &p, 10, 3), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_AGAIN);
	ck_assert_uint_eq(sc.posted[0], 3);
	ck_assert_uint_eq(sc.posted[1], 3);
	r.consumed = 1;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_AGAIN);
	ck_assert_uint_eq(sc.posted[0], 4);
	ck_assert_uint_eq(sc.done[1], 1);
	r.consumed = 10;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	schedule_free(&sc);
	plan_free(&p);
}
END_TEST

/* A budget of 1, again and again: every step gets its turn. */
START_TEST(no_step_uses_up_all_turns)
{
	struct schedule sc = {0};
	struct runner r = {0};
	bool progressed = false;
	struct plan p;

	relay(&p, PLAN_RECV);
	ck_assert_int_eq(schedule_begin(&sc, &p, 50, 1), DICOMM_SUCCESS);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(schedule_turn(&sc, &io, &r, 1, &progressed),
				 SCHEDULE_AGAIN);
	ck_assert_uint_eq(r.n, 9);
	ck_assert_uint_eq(sc.done[0], 3);
	ck_assert_uint_eq(sc.done[2], 3);
	schedule_free(&sc);
	plan_free(&p);
}
END_TEST

START_TEST(nothing_moves_without_messages)
{
	struct runner r = {.block_recv = true};
	struct schedule sc = {0};
	bool progressed = false;
	struct plan p;

	relay(&p, PLAN_RECV);
	ck_assert_int_eq(schedule_begin(&sc, &p, 2, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_AGAIN);
	ck_assert(!progressed);
	r.fail = true;
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_FAILED);

	/* Begun anew after a failure, and with no slices at all. */
	memset(&r, 0, sizeof(r));
	ck_assert_int_eq(schedule_begin(&sc, &p, 1, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	ck_assert_int_eq(schedule_begin(&sc, &p, 0, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(schedule_turn(&sc, &io, &r, 100, &progressed),
			 SCHEDULE_DONE);
	ck_assert_uint_eq(r.n, 3);
	schedule_free(&sc);
	plan_free(&p);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("schedule");
	TCase *tc = tcase_create("all");

	tcase_add_test(tc, messages_are_numbered_by_slice);
	tcase_add_test(tc, a_posted_send_holds_its_memory);
	tcase_add_test(tc, scratch_limits_how_far_slices_are_apart);
	tcase_add_test(tc, no_step_uses_up_all_turns);
	tcase_add_test(tc, nothing_moves_without_messages);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
