/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: puts, signals and gets, by ranks that call and ranks that do not;
 * failures; and calls that are refused. */
#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/job.h"
#include "tests/support/starved.h"

#define PATIENCE_S 30.0
#define MOST (3u << 20)
#define ROOM (MOST + 64)

static const char *const variants[] = {
	"DICOMM_SHM_CMA=on", "DICOMM_SHM_CMA=off", "DICOMM_TRANSPORTS=tcp"};
#define VARIANTS 3

static void run_job(void (*run)(struct job_rank *me), int ranks, int variant,
		    bool threads, const char *arg)
{
	job_run(&(struct job){.run = run,
			      .ranks = ranks,
			      .threads = threads,
			      .arg = arg,
			      .env = {variants[variant]},
			      .timeout_s = 40});
}

static uint8_t pattern(unsigned seed, size_t i)
{
	return (uint8_t)(seed * 131 + i * 7 + (i >> 8));
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(seed, i);
}

static void check(const uint8_t *p, size_t n, unsigned seed, const char *what)
{
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(p[i] == pattern(seed, i),
			  "%s: byte %zu of %zu is %#x, not %#x", what, i, n,
			  p[i], pattern(seed, i));
}

static void check_zero(const uint8_t *p, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		JOB_CHECK(!p[i], "%s: byte %zu is %#x", what, i, p[i]);
}

static void put(const struct job_rank *me, const void *local, size_t bytes,
		int peer, dicomm_window_t win, size_t offset, int signal,
		dicomm_stream_t stream)
{
	JOB_TRY(dicomm_put_signal(local, bytes, DICOMM_UINT8, peer, win, offset,
				  signal, 0, 0, me->comm, stream));
}

static void wait_for_one(const struct job_rank *me, int peer, int signal,
			 dicomm_stream_t stream)
{
	dicomm_wait_signal_desc_t d = {1, peer, signal, 0};

	JOB_TRY(dicomm_wait_signal(1, &d, me->comm, stream));
}

static dicomm_window_t window(const struct job_rank *me, void *at, size_t bytes)
{
	dicomm_window_t win;

	JOB_TRY(dicomm_comm_window_register(me->comm, at, bytes, &win,
					    DICOMM_WINDOW_DEFAULT));
	return win;
}

static void end(const struct job_rank *me, dicomm_window_t win)
{
	JOB_TRY(dicomm_comm_window_deregister(me->comm, win));
}

static void wait_on_board(_Atomic int *at, const char *what)
{
	double until = job_seconds() + PATIENCE_S;

	while (!atomic_load(at)) {
		JOB_CHECK(job_seconds() < until, "%s: not yet", what);
		usleep(200);
	}
}

/* ---- all pairs ---- */

static size_t length_of(int round, int from, int to)
{
	static const size_t lengths[] = {
		0,     1, 8,     72,    73,     104,     4064, 4096, 4097,
		32768, 8, 65536, 65537, 300001, 1048576, MOST, 3};

	return lengths[(size_t)(round * 5 + from * 3 + to) %
		       (sizeof(lengths) / sizeof(*lengths))];
}

static unsigned seed_of(int round, int from, int to)
{
	return (unsigned)(round * 100 + from * 10 + to + 1);
}

/* Signal 0: bytes are there; signal 1: they were looked at. */
static void exchange(const struct job_rank *me, int round, dicomm_window_t win,
		     uint8_t *mine, uint8_t *local, dicomm_stream_t stream)
{
	for (int p = 0; p < me->ranks; p++) {
		uint8_t *from = local + (size_t)p * ROOM;
		size_t n = length_of(round, me->rank, p);

		fill(from, n, seed_of(round, me->rank, p));
		put(me, from, n, p, win, (size_t)me->rank * ROOM + 3, 0,
		    stream);
	}
	for (int p = 0; p < me->ranks; p++)
		wait_for_one(me, p, 0, stream);
	if (stream)
		JOB_TRY(dicomm_host_stream_synchronize(stream));
	for (int p = 0; p < me->ranks; p++) {
		uint8_t *at = mine + (size_t)p * ROOM;
		size_t n = length_of(round, p, me->rank);
		char what[40];

		snprintf(what, sizeof(what), "round %d, put of rank %d", round,
			 p);
		check(at + 3, n, seed_of(round, p, me->rank), what);
		check_zero(at, 3, what);
		check_zero(at + 3 + n, ROOM - 3 - n < 64 ? ROOM - 3 - n : 64,
			   what);
		memset(at + 3, 0, n);
		JOB_TRY(dicomm_signal(p, 1, 0, 0, me->comm, stream));
	}
	for (int p = 0; p < me->ranks; p++)
		wait_for_one(me, p, 1, stream);
	if (stream)
		JOB_TRY(dicomm_host_stream_synchronize(stream));
}

static void all_pairs(struct job_rank *me)
{
	size_t bytes = (size_t)me->ranks * ROOM;
	uint8_t *mine = calloc(1, bytes), *local = calloc(1, bytes);
	int rounds = job_is_sanitized() ? 6 : 17;
	dicomm_stream_t stream = NULL;
	dicomm_window_t win;

	if (me->arg)
		JOB_TRY(dicomm_host_stream_create(&stream));
	win = window(me, mine, bytes);
	for (int i = 0; i < rounds; i++)
		exchange(me, i, win, mine, local, stream);
	end(me, win);
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(mine);
	free(local);
}

START_TEST(all_pairs_put_all_lengths)
{
	run_job(all_pairs, 3, _i % VARIANTS, _i >= VARIANTS, NULL);
}
END_TEST

START_TEST(puts_keep_the_order_of_streams)
{
	run_job(all_pairs, 2, _i % VARIANTS, _i >= VARIANTS, "stream");
}
END_TEST

/* ---- the peer calls nothing ---- */

static void write_while_it_computes(struct job_rank *me)
{
	uint8_t *mine = calloc(1, MOST), *local = calloc(1, MOST);
	_Atomic int *done = job_board();
	dicomm_window_t win = window(me, mine, MOST);

	fill(local, MOST, 9);
	if (me->rank == 0) {
		/* Long puts and gets end only when the peer has taken part. */
		put(me, local, MOST, 1, win, 0, 2, NULL);
		memset(local, 0, MOST);
		JOB_TRY(dicomm_get(local, MOST / 4, DICOMM_UINT32, 1, win, 0,
				   me->comm, NULL));
		check(local, MOST, 9, "get");
		atomic_store(done, 1);
	} else {
		wait_on_board(done, "a put without this rank");
		wait_for_one(me, 0, 2, NULL);
		check(mine, MOST, 9, "put");
	}
	end(me, win);
	free(mine);
	free(local);
}

START_TEST(a_rank_that_computes_is_written_and_read)
{
	run_job(write_while_it_computes, 2, _i % VARIANTS, _i >= VARIANTS,
		NULL);
}
END_TEST

/* Each waits in a collective for the other, which puts before. */
static void put_to_who_waits(struct job_rank *me)
{
	uint8_t *mine = calloc(1, MOST), *local = calloc(1, MOST);
	dicomm_window_t win = window(me, mine, MOST);
	int32_t one = 1, sum = 0;

	fill(local, MOST, (unsigned)me->rank);
	for (int i = 0; i < 4; i++) {
		if (me->rank == i % me->ranks) {
			job_sleep_ms(20);
			put(me, local, MOST, (me->rank + 1) % me->ranks, win, 0,
			    0, NULL);
		}
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, NULL));
		JOB_CHECK(sum == me->ranks, "sum %d", sum);
		if (me->rank == (i + 1) % me->ranks) {
			wait_for_one(me, i % me->ranks, 0, NULL);
			check(mine, MOST, (unsigned)(i % me->ranks), "put");
		}
	}
	end(me, win);
	free(mine);
	free(local);
}

START_TEST(a_rank_in_a_collective_takes_puts)
{
	run_job(put_to_who_waits, 2, _i, false, NULL);
}
END_TEST

/* ---- signals ---- */

static void count_signals(struct job_rank *me)
{
	dicomm_wait_signal_desc_t d[] = {{2, 0, 0, 0},
					 {1, 0, 255, 15},
					 {3, 0, 0, 0},
					 {0, 2, 7, 0},
					 {1, 1, 0, 1}};
	uint64_t word = 0, value = 42;
	dicomm_window_t win = window(me, &word, sizeof(word));

	if (me->rank == 0) {
		for (int i = 0; i < 7; i++)
			JOB_TRY(dicomm_signal(2, 0, 0, 0, me->comm, NULL));
		put(me, &value, sizeof(value), 2, win, 0, DICOMM_NO_SIGNAL,
		    NULL);
		JOB_TRY(dicomm_signal(2, 255, 15, 0, me->comm, NULL));
	} else if (me->rank == 1) {
		JOB_TRY(dicomm_signal(2, 0, 1, 0, me->comm, NULL));
	} else {
		/* 5 of 7 are taken; 2 are left. */
		JOB_TRY(dicomm_wait_signal(5, d, me->comm, NULL));
		JOB_CHECK(word == 42, "the put before is not there: %llu",
			  (unsigned long long)word);
		JOB_TRY(dicomm_wait_signal(1, d, me->comm, NULL));
		JOB_TRY(dicomm_wait_signal(0, NULL, me->comm, NULL));
		JOB_TRY(dicomm_comm_set_timeout(me->comm, 300));
		d[0].count = 1;
		JOB_REFUSED(dicomm_wait_signal(1, d, me->comm, NULL),
			    DICOMM_ERR_TIMEOUT, "rank 0");
		return;
	}
	JOB_CHECK(dicomm_comm_window_deregister(me->comm, win) !=
			  DICOMM_SUCCESS,
		  "rank 2 has timed out");
}

START_TEST(signals_are_counted_and_taken)
{
	run_job(count_signals, 3, _i, false, NULL);
}
END_TEST

#define MANY 1000

/* Rank 1 has no window, and waits late, or not at all. */
static void signal_a_stranger(struct job_rank *me)
{
	dicomm_wait_signal_desc_t d = {.count = MANY, .peer = 0};
	bool waits = me->arg != NULL;
	_Atomic int *done = job_board();
	dicomm_result_t status = DICOMM_SUCCESS;

	if (me->rank == 1) {
		if (waits)
			job_sleep_ms(50);
		else
			wait_on_board(done, "the refusal");
		if (waits)
			JOB_TRY(dicomm_wait_signal(1, &d, me->comm, NULL));
		return;
	}
	JOB_TRY(dicomm_comm_set_timeout(me->comm, waits ? 30000 : 300));
	for (int i = 0; i < MANY && status == DICOMM_SUCCESS; i++)
		status = dicomm_signal(1, 0, 0, 0, me->comm, NULL);
	if (waits)
		JOB_TRY(status);
	else
		JOB_REFUSED(status, DICOMM_ERR_TIMEOUT,
			    "which has neither registered a window nor waited "
			    "for a signal");
	atomic_store(done, 1);
}

START_TEST(signals_wait_for_who_waits_and_name_who_does_not)
{
	run_job(signal_a_stranger, 2, _i % VARIANTS, false,
		_i < VARIANTS ? "waits" : NULL);
}
END_TEST

/* ---- groups ---- */

static void in_group(struct job_rank *me)
{
	int next = (me->rank + 1) % me->ranks;
	int before = (me->rank + me->ranks - 1) % me->ranks;
	uint8_t *mine = calloc(1, MOST), *local = calloc(1, MOST);
	dicomm_wait_signal_desc_t d = {1, before, 0, 0};
	int32_t one = 1, sum;
	dicomm_window_t win;

	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_comm_window_register(me->comm, mine, MOST, &win, 0));
	JOB_TRY(dicomm_group_end());
	fill(local, MOST, (unsigned)me->rank);
	for (int i = 0; i < 3; i++) {
		size_t n = i == 1 ? 100 : MOST;

		memset(mine, 0, MOST);
		JOB_TRY(dicomm_barrier(me->comm, NULL));
		JOB_TRY(dicomm_group_start());
		JOB_TRY(dicomm_wait_signal(1, &d, me->comm, NULL));
		put(me, local, n, next, win, MOST - n, 0, NULL);
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, NULL));
		JOB_TRY(dicomm_group_end());
		check(mine + MOST - n, n, (unsigned)before, "in a group");
		JOB_CHECK(sum == me->ranks, "sum %d", sum);
	}
	JOB_TRY(dicomm_group_start());
	JOB_TRY(dicomm_comm_window_deregister(me->comm, win));
	JOB_TRY(dicomm_group_end());
	free(mine);
	free(local);
}

START_TEST(a_group_puts_and_waits)
{
	run_job(in_group, 3, _i % VARIANTS, _i >= VARIANTS, NULL);
}
END_TEST

/* ---- windows end ---- */

static void end_at_once(struct job_rank *me)
{
	int next = (me->rank + 1) % me->ranks;
	int before = (me->rank + me->ranks - 1) % me->ranks;
	/* Windows of unlike sizes; rank 0 has none. */
	size_t bytes = (size_t)me->rank * 100000;
	uint8_t *mine = calloc(1, bytes + 1), *local = malloc(300000);
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	for (int i = 0; i < 5; i++) {
		dicomm_window_t win = window(me, me->rank ? mine : NULL, bytes);

		fill(local, (size_t)next * 100000, (unsigned)(i * 10 + next));
		put(me, local, (size_t)next * 100000, next, win, 0,
		    DICOMM_NO_SIGNAL, i % 2 ? stream : NULL);
		end(me, win);
		check(mine, bytes, (unsigned)(i * 10 + me->rank), "at its end");
		memset(mine, 0, bytes);
		JOB_REFUSED(dicomm_put_signal(local, 0, DICOMM_UINT8, before,
					      win, 0, 0, 0, 0, me->comm, NULL),
			    DICOMM_ERR_INVALID_ARGUMENT, "win");
		JOB_REFUSED(dicomm_comm_window_deregister(me->comm, win),
			    DICOMM_ERR_INVALID_ARGUMENT, "win");
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(mine);
	free(local);
}

START_TEST(a_window_ends_when_all_puts_are_there)
{
	run_job(end_at_once, 3, _i % VARIANTS, _i >= VARIANTS, NULL);
}
END_TEST

/* ---- refused ---- */

static void refuse(struct job_rank *me)
{
	uint8_t bytes[64] = {0}, local[100] = {0};
	dicomm_wait_signal_desc_t d = {1, 0, 0, 0};
	dicomm_comm_t other;
	dicomm_window_t win, none;

#define NO(call, words) JOB_REFUSED(call, DICOMM_ERR_INVALID_ARGUMENT, words)
	NO(dicomm_comm_window_register(me->comm, bytes, 64, NULL, 0), "win");
	NO(dicomm_comm_window_register(me->comm, bytes, 64, &none, 0x40),
	   "flags 0x40");
	/* One rank has no memory: no rank has a window. */
	NO(dicomm_comm_window_register(me->comm, me->rank ? bytes : NULL, 64,
				       &none, 0),
	   me->rank ? "rank 0" : "buff is NULL, size is 64");
	JOB_CHECK(!none, "a window in spite of that");
	win = window(me, bytes, me->rank ? 64 : 32);
#define PUT(n, type, peer, win, offset, signal, ctx, flags)               \
	dicomm_put_signal(local, n, type, peer, win, offset, signal, ctx, \
			  flags, me->comm, NULL)
	NO(PUT(1, DICOMM_UINT8, 2, win, 0, 0, 0, 0), "peer 2");
	NO(PUT(1, DICOMM_UINT8, -1, win, 0, 0, 0, 0), "peer -1");
	NO(PUT(1, DICOMM_UINT8, 0, NULL, 0, 0, 0, 0), "win");
	NO(PUT(1, (dicomm_datatype_t)99, 0, win, 0, 0, 0, 0), "type 99");
	NO(PUT(1, DICOMM_UINT8, 0, win, 32, 0, 0, 0),
	   "offset 32, 1 bytes: the window of rank 0 has 32");
	NO(PUT(9, DICOMM_UINT64, 1, win, 0, 0, 0, 0), "rank 1 has 64 bytes");
	NO(PUT(1, DICOMM_UINT8, 1, win, SIZE_MAX, 0, 0, 0), "offset");
	NO(PUT(SIZE_MAX, DICOMM_UINT64, 1, win, 0, 0, 0, 0), "count");
	NO(PUT(1, DICOMM_UINT8, 0, win, 0, 256, 0, 0), "signal 256");
	NO(PUT(1, DICOMM_UINT8, 0, win, 0, -2, 0, 0), "signal -2");
	NO(PUT(1, DICOMM_UINT8, 0, win, 0, 0, 16, 0), "context 16");
	NO(PUT(1, DICOMM_UINT8, 0, win, 0, 0, 0, 1), "flags 0x1");
	NO(dicomm_put_signal(NULL, 1, DICOMM_UINT8, 0, win, 0, 0, 0, 0,
			     me->comm, NULL),
	   "local is NULL");
	NO(dicomm_put_signal(local, 1, DICOMM_UINT8, 0, win, 0, 0, 0, 0,
			     me->comm, &other),
	   "stream");
	NO(dicomm_signal(2, 0, 0, 0, me->comm, NULL), "peer 2");
	NO(dicomm_signal(0, DICOMM_NO_SIGNAL, 0, 0, me->comm, NULL),
	   "signal -1");
	NO(dicomm_signal(0, 0, -1, 0, me->comm, NULL), "context -1");
	NO(dicomm_signal(0, 0, 0, 2, me->comm, NULL), "flags 0x2");
	NO(dicomm_wait_signal(-1, &d, me->comm, NULL), "n -1");
	NO(dicomm_wait_signal(1, NULL, me->comm, NULL), "descs");
	d.peer = 2;
	NO(dicomm_wait_signal(1, &d, me->comm, NULL), "peer 2");
	d = (dicomm_wait_signal_desc_t){-1, 0, 0, 0};
	NO(dicomm_wait_signal(1, &d, me->comm, NULL), "count -1");
	NO(dicomm_get(local, 65, DICOMM_UINT8, 1, win, 0, me->comm, NULL),
	   "rank 1 has 64");
	NO(dicomm_get(NULL, 1, DICOMM_UINT8, 1, win, 0, me->comm, NULL),
	   "local is NULL");
	/* A window of another communicator */
	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	NO(dicomm_put_signal(local, 1, DICOMM_UINT8, 0, win, 0, 0, 0, 0, other,
			     NULL),
	   "win");
	NO(dicomm_comm_window_deregister(other, win), "win");
	JOB_TRY(dicomm_comm_destroy(other));
	check_zero(bytes, sizeof(bytes), "after refusals");
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	put(me, "all is well", 11, 1 - me->rank, win, 0, 0, NULL);
	wait_for_one(me, 1 - me->rank, 0, NULL);
	JOB_CHECK(!memcmp(bytes, "all is well", 11), "%.11s", (char *)bytes);
	end(me, win);
}

START_TEST(wrong_arguments_are_refused_by_name)
{
	run_job(refuse, 2, _i, false, NULL);
}
END_TEST

/* ---- failures ---- */

static void check_remote(const struct job_rank *me, dicomm_result_t status,
			 const char *name)
{
	const char *text = dicomm_get_last_error(me->comm);

	JOB_CHECK(status == DICOMM_ERR_REMOTE && strstr(text, name),
		  "status %d: %s", status, text);
}

static void dies(struct job_rank *me)
{
	uint8_t *mine = calloc(1, MOST);
	dicomm_window_t win = window(me, mine, MOST);
	dicomm_wait_signal_desc_t d = {2, 1, 0, 0};
	double begin;

	if (me->rank == 1) {
		put(me, mine, 100, 0, win, 0, 0, NULL);
		if (me->arg)
			return; /* it leaves */
		kill(getpid(), SIGKILL);
	}
	begin = job_seconds();
	check_remote(me, dicomm_wait_signal(1, &d, me->comm, NULL), "rank 1");
	JOB_CHECK(job_seconds() - begin < 15 + starved_s(), "took %.1f s",
		  job_seconds() - begin);
	check_remote(me, dicomm_comm_window_deregister(me->comm, win),
		     "rank 1");
	free(mine);
}

START_TEST(a_death_ends_a_wait_and_is_named)
{
	job_run(&(struct job){
		.run = dies, .ranks = 3, .may_die = 2, .env = {variants[_i]}});
}
END_TEST

static void leaves(struct job_rank *me)
{
	uint8_t byte = 0;
	dicomm_window_t win = window(me, &byte, 1);
	dicomm_wait_signal_desc_t d = {1, 1, 0, 0};

	if (me->rank == 0) {
		/* What came before it left counts. */
		JOB_TRY(dicomm_wait_signal(1, &d, me->comm, NULL));
		JOB_CHECK(byte == 5, "byte is %d", byte);
		check_remote(me, dicomm_wait_signal(1, &d, me->comm, NULL),
			     "rank 1");
		return;
	}
	byte = 5;
	put(me, &byte, 1, 0, win, 0, 0, NULL);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
}

START_TEST(a_rank_that_leaves_is_named)
{
	run_job(leaves, 2, _i, false, NULL);
}
END_TEST

/* A window of rank 0, which aborts while rank 1 is stopped in the middle of its
 * puts. */
struct scene {
	_Atomic int begun, stopped, go, going;
};

/* What the library may be writing at this moment */
__attribute__((noinline, no_sanitize("thread"))) static bool
is_written(const volatile uint8_t *at)
{
	return *at != 0;
}

static void be_written(struct job_rank *me)
{
	struct scene *s = job_board();
	uint8_t *mine = calloc(1, MOST);
	double until = job_seconds() + PATIENCE_S;

	window(me, mine, MOST);
	while (!is_written(mine + MOST / 2))
		JOB_CHECK(job_seconds() < until, "nothing arrives");
	atomic_store(&s->begun, 1);
	wait_on_board(&s->stopped, "the stop");
	JOB_TRY(dicomm_comm_abort(me->comm));
	memset(mine, 0xa5, MOST);
	atomic_store(&s->go, 1);
	wait_on_board(&s->going, "the continuation");
	job_sleep_ms(100);
	for (size_t i = 0; i < MOST; i++)
		JOB_CHECK(mine[i] == 0xa5, "byte %zu is %#x after the abort", i,
			  mine[i]);
	JOB_TRY(dicomm_comm_destroy(me->comm));
	me->comm = NULL;
	free(mine);
}

static void write_on(struct job_rank *me)
{
	uint8_t *mine = malloc(MOST);
	dicomm_window_t win = window(me, NULL, 0);
	double until = job_seconds() + PATIENCE_S;
	dicomm_result_t status;

	memset(mine, 1, MOST);
	do {
		status = dicomm_put_signal(mine, MOST, DICOMM_UINT8, 0, win, 0,
					   0, 0, 0, me->comm, NULL);
		JOB_CHECK(job_seconds() < until, "no end of it");
	} while (status == DICOMM_SUCCESS);
	check_remote(me, status, "rank 0");
	free(mine);
}

static void write_and_abort(struct job_rank *me)
{
	if (me->rank)
		write_on(me);
	else
		be_written(me);
}

static void stop_and_go(const void *arg)
{
	struct scene *s = job_board();
	int pid = job_pid(1);

	(void)arg;
	wait_on_board(&s->begun, "the first put");
	kill(pid, SIGSTOP);
	job_sleep_ms(2);
	atomic_store(&s->stopped, 1);
	wait_on_board(&s->go, "the abort");
	kill(pid, SIGCONT);
	atomic_store(&s->going, 1);
}

START_TEST(after_an_abort_no_window_changes)
{
	job_run(&(struct job){.run = write_and_abort,
			      .ranks = 2,
			      .disturb = stop_and_go,
			      .env = {variants[_i]},
			      .timeout_s = 40});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("windows");
	TCase *tcase = tcase_create("windows");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, all_pairs_put_all_lengths, 0, 2 * VARIANTS);
	tcase_add_loop_test(tcase, puts_keep_the_order_of_streams, 0,
			    2 * VARIANTS);
	tcase_add_loop_test(tcase, a_rank_that_computes_is_written_and_read, 0,
			    2 * VARIANTS);
	tcase_add_loop_test(tcase, a_rank_in_a_collective_takes_puts, 0,
			    VARIANTS);
	tcase_add_loop_test(tcase, signals_are_counted_and_taken, 0, VARIANTS);
	tcase_add_loop_test(tcase,
			    signals_wait_for_who_waits_and_name_who_does_not, 0,
			    2 * VARIANTS);
	tcase_add_loop_test(tcase, a_group_puts_and_waits, 0, 2 * VARIANTS);
	tcase_add_loop_test(tcase, a_window_ends_when_all_puts_are_there, 0,
			    2 * VARIANTS);
	tcase_add_loop_test(tcase, wrong_arguments_are_refused_by_name, 0,
			    VARIANTS);
	tcase_add_loop_test(tcase, a_death_ends_a_wait_and_is_named, 0,
			    VARIANTS);
	tcase_add_loop_test(tcase, a_rank_that_leaves_is_named, 0, VARIANTS);
	tcase_add_loop_test(tcase, after_an_abort_no_window_changes, 0,
			    VARIANTS);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
