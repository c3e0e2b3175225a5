/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows of ranks on unlike devices, some of them mocked: puts, signals, waits
 * and gets from memory of one device into that of another. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cast.h"
#include "tests/support/runner.h"

#define ROUNDS 3
#define MOST ((size_t)3 << 20)

/* From one message with its head to many staging buffers */
static const size_t sizes[] = {8, 4096, 5000, 70001, MOST};

static uint8_t pattern(int from, int to, int round, size_t i)
{
	return (uint8_t)(from * 31 + to * 7 + round * 11 + (int)(i % 251));
}

/* What the work of a rank is done with */
struct room {
	uint8_t *mine, *window, *host; /* memory of the device; of the host */
	dicomm_window_t win;
};

static bool is_host(const struct gadget *g)
{
	return !strcmp(g->name, "host");
}

static void *allocate(struct gadget *g, size_t bytes)
{
	return is_host(g) ? malloc(bytes) : gadget_alloc(g, bytes);
}

static void release(struct gadget *g, void *at)
{
	if (is_host(g))
		free(at);
	else
		gadget_free(g, at);
}

static void copy(struct gadget *g, void *dst, const void *src, size_t bytes)
{
	if (is_host(g))
		memcpy(dst, src, bytes);
	else
		gadget_copy(g, dst, src, bytes);
}

static void finish(struct gadget *g)
{
	if (!is_host(g))
		gadget_wait(g);
}

static void to_device(struct gadget *g, struct room *r, uint8_t *at,
		      size_t bytes)
{
	copy(g, at, r->host, bytes);
	finish(g);
}

static void from_device(struct gadget *g, struct room *r, const uint8_t *at,
			size_t bytes)
{
	memset(r->host, 0xee, bytes);
	copy(g, r->host, at, bytes);
	finish(g);
}

static void put_to(struct job_rank *me, struct gadget *g, struct room *r,
		   int peer, size_t bytes, int round)
{
	for (size_t i = 0; i < bytes; i++)
		r->host[i] = pattern(me->rank, peer, round, i);
	/* Not waited for: the put comes behind it on the stream. */
	copy(g, r->mine, r->host, bytes);
	JOB_TRY(dicomm_put_signal(r->mine, bytes, DICOMM_INT8, peer, r->win,
				  (size_t)me->rank * MOST, 3, 1, 0, me->comm,
				  g->native));
	finish(g);
}

static void expect(const uint8_t *got, size_t bytes, int from, int to,
		   int round, const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		JOB_CHECK(got[i] == pattern(from, to, round, i),
			  "%s: byte %zu of %zu from %d to %d is %d, not %d",
			  what, i, bytes, from, to, got[i],
			  pattern(from, to, round, i));
}

static void round_of(struct job_rank *me, struct gadget *g, struct room *r,
		     size_t bytes, int round)
{
	int before = (me->rank + me->ranks - 1) % me->ranks;
	int next = (me->rank + 1) % me->ranks;
	dicomm_wait_signal_desc_t awaited = {
		.count = 1, .peer = before, .signal = 3, .context = 1};

	job_doing("round %d, %zu bytes", round, bytes);
	put_to(me, g, r, next, bytes, round);
	JOB_TRY(dicomm_wait_signal(1, &awaited, me->comm, g->native));
	/* It runs behind the wait. */
	from_device(g, r, r->window + (size_t)before * MOST, bytes);
	expect(r->host, bytes, before, me->rank, round, "put");
	/* What this rank has put is read back. */
	memset(r->host, 0, bytes);
	to_device(g, r, r->mine, bytes);
	JOB_TRY(dicomm_get(r->mine, bytes, DICOMM_INT8, next, r->win,
			   (size_t)me->rank * MOST, me->comm, g->native));
	from_device(g, r, r->mine, bytes);
	expect(r->host, bytes, me->rank, next, round, "get");
	/* The next round overwrites it. */
	job_barrier();
}

static void rounds(struct job_rank *me, struct gadget *g, struct room *r)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int round = 0; round < ROUNDS; round++)
			round_of(me, g, r, sizes[i], round);
}

/* Where nothing is staged, devices copy at most what is put and what is got to
 * staging buffers of theirs; nothing, where the buffers are registered and
 * neighbours know them. */
static void exchange_directly(struct job_rank *me, struct gadget *g,
			      struct room *r)
{
	dicomm_stats_t before = cast_stats(me), after;
	bool in_place = false;
	void *handle;

	rounds(me, g, r);
	after = cast_stats(me);
	JOB_CHECK(!after.bytes_staged, "%s: %llu bytes were staged", g->name,
		  (unsigned long long)after.bytes_staged);
	JOB_CHECK(after.bytes_received - before.bytes_received >= 2 * MOST,
		  "%s: received %llu bytes", g->name,
		  (unsigned long long)after.bytes_received);
	JOB_TRY(dicomm_comm_register(me->comm, r->mine, MOST, &handle));
	/* A thread of the neighbour imports it within 10 ms or so. */
	for (int i = 0; i < 20; i++) {
		job_sleep_ms(10);
		before = cast_stats(me);
		round_of(me, g, r, 70001, i);
		after = cast_stats(me);
		in_place |= after.bytes_copied == before.bytes_copied;
	}
	JOB_CHECK(
		in_place, "%s: %llu bytes were copied", g->name,
		(unsigned long long)(after.bytes_copied - before.bytes_copied));
	JOB_TRY(dicomm_comm_deregister(me->comm, handle));
}

static void exchange(struct job_rank *me, struct gadget *g)
{
	bool direct = me->arg != NULL;
	struct room r = {.mine = allocate(g, MOST),
			 .window = allocate(g, MOST * (size_t)me->ranks),
			 .host = is_host(g) ? malloc(MOST)
					    : gadget_host(g, MOST)};
	uint64_t staged = cast_staged(me);
	bool apart = !is_host(g) && strncmp(g->name, "opencl", 6);

	JOB_TRY(dicomm_comm_window_register(
		me->comm, r.window, MOST * (size_t)me->ranks, &r.win, 0));
	if (direct)
		exchange_directly(me, g, &r);
	else
		rounds(me, g, &r);
	JOB_TRY(dicomm_comm_window_deregister(me->comm, r.win));
	/* No other thread of the rank counts any more. */
	/* Barriers may stage a few bytes more. */
	JOB_CHECK((cast_staged(me) - staged >= MOST) == (apart && !direct),
		  "%s: %zu bytes were staged", g->name,
		  (size_t)(cast_staged(me) - staged));
	if (is_host(g))
		free(r.host);
	else
		gadget_host_free(g, r.host);
	release(g, r.window);
	release(g, r.mine);
}

START_TEST(puts_and_gets_between_unlike_devices)
{
	struct cast cast = {.run = exchange};

	memcpy(cast.device, cast_unlike, sizeof(cast.device));
	cast_play(&cast, _i);
}
END_TEST

static const struct {
	const char *device[2];
	bool threads;
	int ranks;
} alike[] = {{{"cuda:0", "cuda:1"}, false, 2},
	     {{"hip:0", "hip:0"}, false, 3},
	     {{"ze:0", "ze:0"}, false, 2},
	     {{"cuda:0", "cuda:0"}, true, 2},
	     {{"cuda:0", "cuda:1"}, true, 2},
	     {{"hip:0", "hip:0"}, true, 3},
	     {{"cuda:0"}, false, 1}};

START_TEST(nothing_is_staged_between_devices_that_reach_each_other)
{
	cast_play(&(struct cast){.device = {alike[_i].device[0],
					    alike[_i].device[1]},
				 .threads = alike[_i].threads,
				 .staging = "never",
				 .run = exchange,
				 .arg = ""},
		  alike[_i].ranks);
}
END_TEST

/* A rank that refuses staging has no window, so nobody has. */
static void refuse(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = allocate(g, 4096);
	dicomm_window_t win;

	JOB_REFUSED(dicomm_comm_window_register(me->comm, at, 4096, &win, 0),
		    DICOMM_ERR_UNSUPPORTED, "staging of rank");
	JOB_CHECK(!win, "a window");
	release(g, at);
}

START_TEST(windows_of_devices_are_refused_where_nothing_is_staged)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0"},
				 .staging = "never",
				 .run = refuse},
		  2);
}
END_TEST

/* Rank 1 aborts among its puts. Rank 0 hears of it, and when it has aborted,
 * too, nothing writes its window. */
static void give_up(struct job_rank *me, struct gadget *g)
{
	uint8_t *at = allocate(g, MOST);
	struct room r = {.host = is_host(g) ? malloc(MOST)
					    : gadget_host(g, MOST)};
	dicomm_wait_signal_desc_t awaited = {.count = 1000, .peer = 1};
	dicomm_result_t state = DICOMM_SUCCESS, status;
	uint8_t *before = malloc(MOST);

	JOB_TRY(dicomm_comm_window_register(me->comm, at, MOST, &r.win, 0));
	if (me->rank) {
		for (int i = 0; i < 20; i++)
			JOB_TRY(dicomm_put_signal(at, MOST, DICOMM_INT8, 0,
						  r.win, 0, 0, 0, 0, me->comm,
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
	from_device(g, &r, at, MOST);
	memcpy(before, r.host, MOST);
	job_sleep_ms(20);
	from_device(g, &r, at, MOST);
	JOB_CHECK(!memcmp(before, r.host, MOST), "written after the abort");
done:
	free(before);
	if (is_host(g))
		free(r.host);
	else
		gadget_host_free(g, r.host);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	release(g, at);
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
		sizeof(alike) / sizeof(*alike));
	tcase_add_test(t,
		       windows_of_devices_are_refused_where_nothing_is_staged);
	tcase_add_test(t, who_aborts_among_puts_is_named_and_writes_no_more);
	suite_add_tcase(suite, t);
	return runner_main(suite);
}
