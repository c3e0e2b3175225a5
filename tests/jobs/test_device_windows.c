/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of ranks on unlike devices, some of them mocked: puts, signals, waits
 * and gets from memory of one device into that of another. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cast.h"
#include "tests/support/puts.h"
#include "tests/support/runner.h"

#define MOST PUTS_MOST

START_TEST(puts_and_gets_between_unlike_devices)
{
	struct cast cast = {.run = puts_run};

	memcpy(cast.device, cast_unlike, sizeof(cast.device));
	cast_play(&cast, _i);
}
END_TEST

/* Between processes, then in one on one device, with oneself, and on two. Where
 * there is little time, the first of them. */
static const struct {
	const char *device[2];
	bool threads;
	int ranks;
} alike[] = {{{"cuda:0", "cuda:1"}, false, 2}, {{"cuda:0", "cuda:0"}, true, 2},
	     {{"cuda:0"}, false, 1},           {{"cuda:0", "cuda:1"}, true, 2},
	     {{"hip:0", "hip:0"}, false, 3},   {{"ze:0", "ze:0"}, false, 2},
	     {{"hip:0", "hip:0"}, true, 3}};
#define ALIKE (job_is_short() ? 3 : (int)(sizeof(alike) / sizeof(*alike)))

START_TEST(nothing_is_staged_between_devices_that_reach_each_other)
{
	cast_play(&(struct cast){.device = {alike[_i].device[0],
					    alike[_i].device[1]},
				 .threads = alike[_i].threads,
				 .staging = "never",
				 .run = puts_run,
				 .arg = puts_directly},
		  alike[_i].ranks);
}
END_TEST

/* A rank that refuses staging has no window, so nobody has. */
static void refuse(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = puts_alloc(g, 4096);
	dicomm_window_t win;

	JOB_REFUSED(dicomm_comm_window_register(me->comm, at, 4096, &win, 0),
		    DICOMM_ERR_UNSUPPORTED, "staging of rank");
	JOB_CHECK(!win, "a window");
	puts_free(g, at);
}

/* Only the host rank refuses it. */
static void refuse_alone(struct job_rank *me, struct gadget *g)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;

	JOB_TRY(dicomm_comm_destroy(me->comm));
	config.device = g->name;
	config.staging = me->rank ? NULL : "never";
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	refuse(me, g);
}

START_TEST(windows_of_devices_are_refused_where_nothing_is_staged)
{
	struct cast cast = {.device = {"host", "cuda:0"},
			    .staging = "never",
			    .run = refuse};

	cast_play(&cast, 2);
	cast.run = refuse_alone;
	cast_play(&cast, 2);
}
END_TEST

/* Rank 1 aborts among its puts. Rank 0 hears of it, and when it has aborted,
 * too, nothing writes its window. */
static void give_up(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = puts_alloc(g, MOST);
	uint8_t *host = puts_host(g, MOST);
	dicomm_window_t win;
	dicomm_wait_signal_desc_t awaited = {.count = 1000, .peer = 1};
	dicomm_result_t state = DICOMM_SUCCESS, status;
	uint8_t *before = malloc(MOST);

	JOB_TRY(dicomm_comm_window_register(me->comm, at, MOST, &win, 0));
	if (me->rank) {
		for (int i = 0; i < 20; i++)
			JOB_TRY(dicomm_put_signal(at, MOST, DICOMM_INT8, 0, win,
						  0, 0, 0, 0, me->comm,
						  g->native));
		job_sleep_ms(5);
		JOB_TRY(dicomm_comm_abort(me->comm));
		goto done;
	}
	/* The abort may be there before this rank gets to run. */
	status = dicomm_wait_signal(1, &awaited, me->comm, g->native);
	JOB_CHECK(status == DICOMM_SUCCESS || status == DICOMM_ERR_REMOTE,
		  "status %d", (int)status);
	while (state == DICOMM_SUCCESS) {
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &state));
		job_sleep_ms(1);
	}
	JOB_CHECK(state == DICOMM_ERR_REMOTE, "state %d", (int)state);
	JOB_CHECK(strstr(dicomm_get_last_error(me->comm), "rank 1"),
		  "\"%s\" does not name rank 1",
		  dicomm_get_last_error(me->comm));
	JOB_TRY(dicomm_comm_abort(me->comm));
	puts_fetch(g, host, at, MOST);
	memcpy(before, host, MOST);
	job_sleep_ms(20);
	puts_fetch(g, host, at, MOST);
	JOB_CHECK(!memcmp(before, host, MOST), "written after the abort");
done:
	free(before);
	puts_host_free(g, host);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	puts_free(g, at);
}

/* Staged; directly, between processes and in one */
static const struct {
	const char *device[2];
	bool threads;
} among[] = {{{"cuda:0", "hip:0"}, false},
	     {{"cuda:0", "cuda:0"}, false},
	     {{"cuda:0", "cuda:0"}, true}};
#define AMONG (int)(sizeof(among) / sizeof(*among))

static void play_among(int i,
		       void (*run)(struct job_rank *me, struct gadget *g))
{
	cast_play(&(struct cast){.device = {among[i].device[0],
					    among[i].device[1]},
				 .threads = among[i].threads,
				 .run = run,
				 .arg = &among[i].threads},
		  2);
}

START_TEST(who_aborts_among_puts_is_named_and_writes_no_more)
{
	play_among(_i, give_up);
}
END_TEST

/* Each copy begins up to so much later. */
#define LATE_US 5000

/* Bytes of whoever wrote them: the window's at first, those of puts, and those
 * that are written when its owner has aborted */
enum { FIRST = 0x11, PUT = 0x22, LAST = 0xee };

static void fill(struct gadget *g, uint8_t *at, uint8_t *host, int byte)
{
	memset(host, byte, MOST);
	puts_store(g, at, host, MOST);
}

static void abort_own(struct job_rank *me, struct gadget *g, uint8_t *window,
		      uint8_t *host)
{
	gadget_delay(g, 10 * LATE_US);
	job_sleep_ms(150);
	JOB_TRY(dicomm_comm_abort(me->comm));
	gadget_delay(g, 0);
	fill(g, window, host, LAST);
	job_sleep_ms(60);
	puts_fetch(g, host, window, MOST);
	job_check_bytes(host, MOST, LAST, "after the abort");
}

static bool has(const uint8_t *host, int byte)
{
	return memchr(host, byte, MOST) != NULL;
}

/* Until it hears of the abort, this rank puts into the window and gets what is
 * in it. A rank of the same process waits for its device. */
static void use(struct job_rank *me, struct gadget *g, dicomm_window_t win,
		uint8_t *mine, uint8_t *host)
{
	const bool *threads = me->arg;
	dicomm_result_t state = DICOMM_SUCCESS;
	uint8_t *got = puts_alloc(g, MOST);

	fill(g, mine, host, PUT);
	fill(g, got, host, FIRST);
	gadget_delay(g, 10 * LATE_US);
	while (state == DICOMM_SUCCESS) {
		for (int i = 0; i < 4; i++) {
			(void)dicomm_get(got, MOST, DICOMM_INT8, 0, win, 0,
					 me->comm, g->native);
			(void)dicomm_put_signal(mine, MOST, DICOMM_INT8, 0, win,
						0, 0, 0, 0, me->comm,
						g->native);
		}
		puts_fetch(g, host, got, MOST);
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &state));
		JOB_CHECK(!has(host, LAST) ||
				  (state != DICOMM_SUCCESS && !*threads),
			  "got what was written after the abort");
	}
	JOB_CHECK(state == DICOMM_ERR_REMOTE, "state %d", (int)state);
	JOB_TRY(dicomm_comm_abort(me->comm));
	puts_free(g, got);
}

static void owner_aborts(struct job_rank *me, struct gadget *g)
{
	uint8_t *at, *host;
	dicomm_window_t win;

	/* Plays all of them where there is no other device. */
	if (!strcmp(g->name, "host"))
		return;
	at = puts_alloc(g, MOST);
	host = puts_host(g, MOST);
	fill(g, at, host, FIRST);
	JOB_TRY(dicomm_comm_window_register(me->comm, at, MOST, &win, 0));
	if (me->rank)
		use(me, g, win, at, host);
	else
		abort_own(me, g, at, host);
	gadget_delay(g, 0);
	puts_host_free(g, host);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	puts_free(g, at);
}

START_TEST(who_aborts_without_a_call_has_its_window)
{
	play_among(_i, owner_aborts);
}
END_TEST

/* Rank 0 leaves once the bytes of its put have come, which the device of rank 1
 * still copies into the window. */
static void leave(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = puts_alloc(g, MOST);
	dicomm_wait_signal_desc_t awaited = {.count = 1, .peer = 0};
	dicomm_result_t state;
	dicomm_window_t win;

	JOB_TRY(dicomm_comm_window_register(me->comm, at, MOST, &win, 0));
	gadget_delay(g, 80 * LATE_US);
	if (me->rank) {
		JOB_TRY(dicomm_wait_signal(1, &awaited, me->comm, g->native));
		if (g->accel->work)
			gadget_wait(g);
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &state));
		JOB_CHECK(state == DICOMM_SUCCESS, "state %d: %s", (int)state,
			  dicomm_get_last_error(me->comm));
	} else {
		JOB_TRY(dicomm_put_signal(at, 4096, DICOMM_INT8, 1, win, 0, 0,
					  0, 0, me->comm, g->native));
	}
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	gadget_delay(g, 0);
	puts_free(g, at);
}

/* Rank 1 ends its window alone, when all bytes of the put are in staging
 * buffers. */
static void end_alone(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = puts_alloc(g, MOST), *host = puts_host(g, MOST);
	dicomm_stats_t stats = {.bytes_staged = 0};
	dicomm_window_t win;

	fill(g, at, host, PUT);
	JOB_TRY(dicomm_comm_window_register(me->comm, at, MOST, &win,
					    DICOMM_WINDOW_ENDS_ALONE));
	gadget_delay(g, 4 * LATE_US);
	if (!me->rank)
		JOB_TRY(dicomm_put_signal(at, MOST, DICOMM_INT8, 1, win, 0, 0,
					  0, 0, me->comm, g->native));
	while (me->rank && stats.bytes_staged < MOST &&
	       stats.bytes_received < MOST) {
		job_sleep_ms(1);
		stats = cast_stats(me);
	}
	JOB_TRY(dicomm_comm_window_deregister(me->comm, win));
	fill(g, at, host, LAST);
	job_sleep_ms(20);
	puts_fetch(g, host, at, MOST);
	job_check_bytes(host, MOST, LAST, "after the end of the window");
	gadget_delay(g, 0);
	puts_host_free(g, host);
	puts_free(g, at);
}

START_TEST(a_window_that_ends_alone_waits_for_copies_into_it)
{
	cast_play(
		&(struct cast){.device = {"host", "cuda:0"}, .run = end_alone},
		2);
}
END_TEST

START_TEST(who_has_put_may_leave_while_the_device_copies)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0"}, .run = leave},
		  2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("device_windows");
	TCase *t = tcase_create("device_windows");

	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, puts_and_gets_between_unlike_devices, 2,
			    CAST_DEVICES + 1);
	tcase_add_loop_test(
		t, nothing_is_staged_between_devices_that_reach_each_other, 0,
		ALIKE);
	tcase_add_test(t,
		       windows_of_devices_are_refused_where_nothing_is_staged);
	tcase_add_loop_test(
		t, who_aborts_among_puts_is_named_and_writes_no_more, 0, AMONG);
	tcase_add_loop_test(t, who_aborts_without_a_call_has_its_window, 0,
			    AMONG);
	tcase_add_test(t, a_window_that_ends_alone_waits_for_copies_into_it);
	tcase_add_test(t, who_has_put_may_leave_while_the_device_copies);
	suite_add_tcase(suite, t);
	return runner_main(suite);
}
