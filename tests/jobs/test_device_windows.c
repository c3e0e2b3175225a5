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

START_TEST(who_aborts_among_puts_is_named_and_writes_no_more)
{
	cast_play(&(struct cast){.device = {"cuda:0", "hip:0"}, .run = give_up},
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
	tcase_add_test(t, who_aborts_among_puts_is_named_and_writes_no_more);
	suite_add_tcase(suite, t);
	return runner_main(suite);
}
