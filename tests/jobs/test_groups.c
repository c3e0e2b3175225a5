/* SPDX-License-Identifier: BSD-3-Clause */
/* What is in one group runs together, whatever the order in which each rank
 * says it; and one thread can be several ranks. */
#include <check.h>
#include <stdlib.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define MANY 5000 /* far more than a ring has slots */

static void start_group(void)
{
	JOB_TRY(dicomm_group_start());
}

static void end_group(void)
{
	JOB_TRY(dicomm_group_end());
}

/* ---- several operations ---- */

/* Every kind at once, small and large, blocking or on a stream. */
static void everything(struct job_rank *me)
{
	struct trial t[2 * TRIAL_KINDS] = {0};
	dicomm_stream_t stream = NULL;
	int n = 2 * TRIAL_KINDS;

	if (me->arg)
		JOB_TRY(dicomm_host_stream_create(&stream));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < n; i++) {
			t[i] = (struct trial){
				.kind = (enum trial_kind)(i % TRIAL_KINDS),
				.type = i % 2 ? DICOMM_FLOAT32 : DICOMM_INT16,
				.count = i < TRIAL_KINDS ? 10 : 30000,
				.root = i % me->ranks,
				.in_place = (i + me->rank) % 3 == 0,
				.shared = i % 4 == me->rank,
				.seed = (unsigned)(round * 100 + i)};
			trial_fill(&t[i], me);
		}
		start_group();
		for (int i = 0; i < n; i++)
			JOB_TRY(trial_call(&t[i], stream));
		end_group();
		if (stream)
			JOB_TRY(dicomm_host_stream_synchronize(stream));
		for (int i = 0; i < n; i++) {
			trial_check(&t[i]);
			trial_free(&t[i]);
		}
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(all_operations_fit_one_group)
{
	for (int n = 1; n <= 4; n++)
		job_run(&(struct job){.run = everything,
				      .ranks = n,
				      .arg = _i ? "stream" : NULL});
}
END_TEST

/* Two communicators of the same ranks, called in opposite orders, by groups
 * that are drawn differently. */
static void opposite(struct job_rank *me)
{
	struct job_rank other = *me;
	struct trial a = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_FLOAT32,
			  .count = 100000};
	struct trial b = {
		.kind = TRIAL_ALLTOALL, .type = DICOMM_UINT8, .count = 50000};
	dicomm_stream_t stream = NULL;

	if (me->arg)
		JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_comm_split(me->comm, 0, -me->rank, &other.comm, NULL));
	other.rank = me->ranks - 1 - me->rank;
	trial_fill(&a, me);
	trial_fill(&b, &other);
	for (unsigned i = 0; i < 20; i++) {
		bool first = (me->rank + (int)i) % 2;

		trial_refill(&a, i);
		trial_refill(&b, i);
		start_group();
		JOB_TRY(trial_call(first ? &a : &b, stream));
		JOB_TRY(trial_call(first ? &b : &a, stream));
		end_group();
		if (stream)
			JOB_TRY(dicomm_host_stream_synchronize(stream));
		trial_check(&a);
		trial_check(&b);
	}
	trial_free(&a);
	trial_free(&b);
	JOB_TRY(dicomm_comm_destroy(other.comm));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(communicators_of_a_group_may_come_in_any_order)
{
	for (int n = 2; n <= 4; n++)
		job_run(&(struct job){.run = opposite,
				      .ranks = n,
				      .arg = _i ? "stream" : NULL});
}
END_TEST

/* Some ranks draw one group, some several, some none. */
static void unlike_groups(struct job_rank *me)
{
	struct trial t[3];

	for (unsigned i = 0; i < 3; i++) {
		t[i] = (struct trial){.kind = i == 1 ? TRIAL_BROADCAST
						     : TRIAL_ALLREDUCE,
				      .type = DICOMM_INT32,
				      .count = i == 2 ? 40000 : 40,
				      .seed = i};
		trial_fill(&t[i], me);
	}
	for (int i = 0; i < 3; i++) {
		/* 0: all three; 1: one, then two; 2: nested, no meaning */
		if ((me->rank == 0 && i == 0) || (me->rank == 1 && i < 2) ||
		    me->rank == 2)
			start_group();
		if (me->rank == 2)
			start_group();
		JOB_TRY(trial_call(&t[i], NULL));
		if ((me->rank == 0 && i == 2) ||
		    (me->rank == 1 && (i == 0 || i == 2)) || me->rank == 2)
			end_group();
		if (me->rank == 2)
			end_group();
	}
	if (me->rank == 1)
		JOB_REFUSED(dicomm_group_end(), DICOMM_ERR_INVALID_USAGE,
			    "no group");
	for (int i = 0; i < 3; i++) {
		trial_check(&t[i]);
		trial_free(&t[i]);
	}
}

START_TEST(ranks_need_not_draw_the_same_groups)
{
	job_run(&(struct job){.run = unlike_groups, .ranks = 4});
}
END_TEST

static void refused_inside(struct job_rank *me)
{
	struct trial t = {
		.kind = TRIAL_ALLREDUCE, .type = DICOMM_INT32, .count = 100};
	dicomm_stream_t stream;

	trial_fill(&t, me);
	start_group();
	JOB_REFUSED(dicomm_allreduce(NULL, t.recv.at, 100, DICOMM_INT32,
				     DICOMM_SUM, me->comm, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "send is NULL");
	JOB_TRY(trial_call(&t, NULL));
	JOB_REFUSED(dicomm_broadcast(NULL, t.recv.at, 100, DICOMM_INT32,
				     me->ranks, me->comm, NULL),
		    DICOMM_ERR_INVALID_ARGUMENT, "root");
	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_barrier(me->comm, stream));
	/* They would be gone before the operations. */
	JOB_REFUSED(dicomm_host_stream_destroy(stream),
		    DICOMM_ERR_INVALID_USAGE, "after its end");
	JOB_REFUSED(dicomm_comm_finalize(me->comm), DICOMM_ERR_INVALID_USAGE,
		    "after its end");
	JOB_REFUSED(dicomm_comm_destroy(me->comm), DICOMM_ERR_INVALID_USAGE,
		    "after its end");
	end_group();
	JOB_TRY(dicomm_host_stream_destroy(stream));
	trial_check(&t);
	trial_free(&t);
	start_group();
	end_group();
	JOB_REFUSED(dicomm_group_end(), DICOMM_ERR_INVALID_USAGE, "no group");
}

START_TEST(a_refused_call_is_not_part_of_the_group)
{
	job_run(&(struct job){.run = refused_inside, .ranks = 2});
}
END_TEST

/* It would be freed twice, or used after its end. */
static void end_twice(struct job_rank *me)
{
	int32_t x = 1;
	dicomm_comm_t other, old;

	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
	old = other;
	start_group();
	JOB_TRY(dicomm_comm_destroy(other));
	JOB_REFUSED(dicomm_comm_destroy(other), DICOMM_ERR_INVALID_USAGE,
		    "is being destroyed already");
	JOB_REFUSED(dicomm_comm_finalize(other), DICOMM_ERR_INVALID_USAGE,
		    "was finalized");
	JOB_REFUSED(dicomm_allreduce(&x, &x, 1, DICOMM_INT32, DICOMM_SUM, other,
				     NULL),
		    DICOMM_ERR_INVALID_USAGE, "was finalized");
	end_group();
	for (int i = 0; i < 3; i++) {
		JOB_REFUSED(dicomm_comm_destroy(old),
			    DICOMM_ERR_INVALID_ARGUMENT, "not a communicator");
		JOB_REFUSED(dicomm_barrier(old, NULL),
			    DICOMM_ERR_INVALID_ARGUMENT, "not a communicator");
		/* Its memory is not used again at once. */
		JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
		JOB_CHECK(other != old, "the handle came back");
		JOB_TRY(dicomm_comm_destroy(other));
	}
}

START_TEST(a_group_ends_a_communicator_once)
{
	job_run(&(struct job){.run = end_twice, .ranks = 2});
}
END_TEST

/* Some of a group goes on, and some of it has failed: that is what is told. */
static void fail_beside(struct job_rank *me)
{
	dicomm_config_t later = DICOMM_CONFIG_INITIALIZER, unlike = later;
	int32_t in[2] = {0}, out[2];
	dicomm_comm_t other, part, never = NULL;
	dicomm_result_t async;

	later.blocking = 0;
	unlike.deterministic = me->rank;
	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &other, NULL));
	for (int i = 0; i < 2; i++) {
		start_group();
		JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &part, &later));
		if (i)
			JOB_TRY(dicomm_comm_init_rank_config(&never, me->ranks,
							     job_id(), me->rank,
							     &unlike));
		else
			JOB_TRY(dicomm_allreduce(in, out, (size_t)me->rank + 1,
						 DICOMM_INT32, DICOMM_SUM,
						 other, NULL));
		JOB_REFUSED(dicomm_group_end(), DICOMM_ERR_INVALID_USAGE,
			    i ? "deterministic" : "disagree");
		do {
			job_sleep_ms(1);
			JOB_TRY(dicomm_comm_get_async_error(part, &async));
		} while (async == DICOMM_IN_PROGRESS);
		JOB_TRY(async);
		JOB_TRY(dicomm_comm_destroy(part));
	}
	JOB_TRY(dicomm_comm_destroy(other));
}

START_TEST(what_goes_on_hides_no_failure)
{
	job_run(&(struct job){
		.run = fail_beside, .ranks = 2, .env = {"DICOMM_DEBUG=none"}});
}
END_TEST

/* ---- point to point ---- */

/* Byte b of what a rank sends to another. */
static uint8_t letter(int from, int to, size_t b)
{
	return (uint8_t)(from * 31 + to * 7 + (int)(b % 127) + (int)(b >> 12));
}

static void exchange(struct job_rank *me, size_t bytes, bool shared)
{
	size_t n = (size_t)me->ranks;
	uint8_t *out, *in;
	void *memory;

	if (shared)
		JOB_TRY(dicomm_mem_alloc(&memory, 2 * n * bytes));
	else
		memory = malloc(2 * n * bytes + 1);
	JOB_CHECK(memory || !bytes, "out of memory");
	out = memory;
	in = out + n * bytes;
	for (int r = 0; r < me->ranks; r++)
		for (size_t b = 0; b < bytes; b++) {
			out[(size_t)r * bytes + b] = letter(me->rank, r, b);
			in[(size_t)r * bytes + b] = 0;
		}
	start_group();
	for (int r = 0; r < me->ranks; r++)
		JOB_TRY(dicomm_send(out + (size_t)r * bytes, bytes,
				    DICOMM_UINT8, r, me->comm, NULL));
	for (int r = me->ranks; r--;)
		JOB_TRY(dicomm_recv(in + (size_t)r * bytes, bytes, DICOMM_UINT8,
				    r, me->comm, NULL));
	end_group();
	for (int r = 0; r < me->ranks; r++)
		for (size_t b = 0; b < bytes; b++)
			JOB_CHECK(in[(size_t)r * bytes + b] ==
					  letter(r, me->rank, b),
				  "%zu bytes from rank %d: byte %zu is %d",
				  bytes, r, b, in[(size_t)r * bytes + b]);
	if (shared)
		JOB_TRY(dicomm_mem_free(memory));
	else
		free(memory);
}

static void exchanges(struct job_rank *me)
{
	static const size_t sizes[] = {0,    1,     40,     104,    105,
				       4096, 40000, 300000, 3000000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(me, sizes[i], false);
		exchange(me, sizes[i], me->rank % 2);
		exchange(me, sizes[i], true);
	}
}

START_TEST(all_pairs_exchange_messages_and_a_rank_with_itself)
{
	job_run(&(struct job){.run = exchanges, .ranks = _i});
	job_run(&(struct job){.run = exchanges, .ranks = _i, .threads = true});
}
END_TEST

/* Thousands of sends before the first receive; the receiver is late. */
enum early { BLOCKING, ONE_GROUP, STREAM, EARLY_KINDS };

static void send_early(struct job_rank *me, enum early how, int *values)
{
	dicomm_stream_t stream = NULL;

	if (how == STREAM)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (how == ONE_GROUP)
		start_group();
	for (int i = 0; i < MANY; i++)
		JOB_TRY(dicomm_send(&values[i], 1, DICOMM_INT32, 1, me->comm,
				    stream));
	if (how == ONE_GROUP)
		end_group();
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

static void early(struct job_rank *me)
{
	enum early how = *(const enum early *)me->arg;
	int *values = calloc(MANY, sizeof(*values));

	JOB_CHECK(values, "out of memory");
	for (int i = 0; i < MANY && me->rank == 0; i++)
		values[i] = i * 3;
	if (me->rank == 0)
		send_early(me, how, values);
	if (me->rank == 1) {
		job_sleep_ms(200);
		for (int i = 0; i < MANY; i++)
			JOB_TRY(dicomm_recv(&values[i], 1, DICOMM_INT32, 0,
					    me->comm, NULL));
	}
	for (int i = 0; i < MANY; i++)
		JOB_CHECK(values[i] == i * 3, "message %d is %d", i, values[i]);
	free(values);
}

START_TEST(many_sends_come_before_the_first_receive)
{
	enum early how = (enum early)_i;

	job_run(&(struct job){.run = early, .arg = &how, .ranks = 2});
}
END_TEST

/* Receives that were called first do not hold up others: each pair has its own
 * order, and a collective needs none of them. */
static void crossing(struct job_rank *me)
{
	int right = (me->rank + 1) % me->ranks, from_left = -1, from_right = -1;
	int left = (me->rank + me->ranks - 1) % me->ranks, sum = 0;

	for (int i = 0; i < 200; i++) {
		int mine = me->rank * 1000 + i, one = 1;

		start_group();
		JOB_TRY(dicomm_recv(&from_left, 1, DICOMM_INT32, left, me->comm,
				    NULL));
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, NULL));
		JOB_TRY(dicomm_recv(&from_right, 1, DICOMM_INT32, right,
				    me->comm, NULL));
		JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, left, me->comm,
				    NULL));
		JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, right, me->comm,
				    NULL));
		end_group();
		JOB_CHECK(from_left == left * 1000 + i &&
				  from_right == right * 1000 + i &&
				  sum == me->ranks,
			  "round %d: %d from rank %d, %d from rank %d, sum %d",
			  i, from_left, left, from_right, right, sum);
	}
}

START_TEST(receives_before_sends_do_not_block_a_group)
{
	for (int n = 3; n <= 5; n++)
		job_run(&(struct job){.run = crossing, .ranks = n});
}
END_TEST

/* ---- several ranks in a thread ---- */

#define RANKS 8

static void check_ranks(const dicomm_comm_t *comms, int first, int mine,
			int ranks)
{
	static struct trial t[RANKS][TRIAL_KINDS];

	for (int i = 0; i < mine; i++)
		for (int k = 0; k < TRIAL_KINDS; k++) {
			struct job_rank me = {.rank = first + i,
					      .ranks = ranks,
					      .comm = comms[i]};

			t[i][k] = (struct trial){.kind = (enum trial_kind)k,
						 .type = DICOMM_INT32,
						 .count = 5000,
						 .root = k % ranks,
						 .in_place = i % 2};
			trial_fill(&t[i][k], &me);
		}
	start_group();
	for (int i = 0; i < mine; i++)
		for (int k = 0; k < TRIAL_KINDS; k++)
			JOB_TRY(trial_call(&t[i][k], NULL));
	end_group();
	for (int i = 0; i < mine; i++)
		for (int k = 0; k < TRIAL_KINDS; k++) {
			trial_check(&t[i][k]);
			trial_free(&t[i][k]);
		}
}

static void one_thread(struct job_rank *me)
{
	dicomm_comm_t comms[RANKS];
	int rank, count;

	(void)me;
	JOB_TRY(dicomm_comm_init_all(comms, RANKS, NULL));
	for (int i = 0; i < RANKS; i++) {
		JOB_TRY(dicomm_comm_user_rank(comms[i], &rank));
		JOB_TRY(dicomm_comm_count(comms[i], &count));
		JOB_CHECK(rank == i && count == RANKS, "comms[%d] is %d of %d",
			  i, rank, count);
	}
	for (int i = 0; i < 3; i++)
		check_ranks(comms, 0, RANKS, RANKS);
	for (int i = 0; i < RANKS; i++)
		JOB_TRY(dicomm_comm_destroy(comms[i]));
}

START_TEST(one_thread_is_eight_ranks)
{
	job_run(&(struct job){.run = one_thread, .ranks = 1, .bare = true});
}
END_TEST

/* Two processes of two ranks each, in an order that no rank shares. */
static void two_each(struct job_rank *me)
{
	dicomm_comm_t comms[2], parts[2];
	dicomm_unique_id_t id = job_id();
	int first = 2 * me->rank, last = first + 1;

	start_group();
	JOB_TRY(dicomm_comm_init_rank(&comms[1], 4, id, last));
	JOB_TRY(dicomm_comm_init_rank(&comms[0], 4, id, first));
	end_group();
	check_ranks(comms, first, 2, 4);
	/* 0 and 2, 1 and 3 */
	start_group();
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_comm_split(comms[i], i, 0, &parts[i], NULL));
	end_group();
	for (int i = 0; i < 2; i++)
		check_ranks(&parts[i], me->rank, 1, 2);
	start_group();
	for (int i = 0; i < 2; i++) {
		JOB_TRY(dicomm_comm_finalize(comms[i]));
		JOB_TRY(dicomm_comm_destroy(parts[i]));
	}
	end_group();
	for (int i = 0; i < 2; i++)
		JOB_TRY(dicomm_comm_destroy(comms[i]));
}

START_TEST(processes_have_several_ranks)
{
	job_run(&(struct job){.run = two_each, .ranks = 2, .bare = true});
}
END_TEST

/* Calls on one communicator are made in their order. */
static void lives_in_order(struct job_rank *me)
{
	for (int i = 0; i < 20; i++) {
		dicomm_comm_t comm, row, column;
		int n = me->ranks / 2, rank;

		JOB_TRY(dicomm_comm_init_rank(&comm, me->ranks, job_id(),
					      me->rank));
		start_group();
		JOB_TRY(dicomm_comm_split(comm, me->rank / n, 0, &row, NULL));
		JOB_TRY(dicomm_comm_split(comm, me->rank % n,
					  me->ranks - me->rank, &column, NULL));
		end_group();
		JOB_TRY(dicomm_comm_user_rank(row, &rank));
		JOB_CHECK(rank == me->rank % n, "rank %d in its row", rank);
		JOB_TRY(dicomm_comm_user_rank(column, &rank));
		JOB_CHECK(rank == 1 - me->rank / n, "rank %d in its column",
			  rank);
		check_ranks(&row, me->rank % n, 1, n);
		check_ranks(&column, 1 - me->rank / n, 1, 2);
		start_group();
		JOB_TRY(dicomm_comm_finalize(row));
		JOB_TRY(dicomm_comm_destroy(row));
		JOB_TRY(dicomm_comm_finalize(comm));
		JOB_TRY(dicomm_comm_destroy(comm));
		JOB_TRY(dicomm_comm_destroy(column));
		end_group();
	}
}

START_TEST(calls_on_one_communicator_keep_their_order)
{
	job_run(&(struct job){.run = lives_in_order,
			      .ranks = 4,
			      .bare = true,
			      .timeout_s = 60});
}
END_TEST

static void one_of_eight(struct job_rank *me)
{
	struct trial t = {.type = DICOMM_FLOAT32, .count = 20000};

	for (int k = 0; k < TRIAL_KINDS; k++) {
		t.kind = (enum trial_kind)k;
		t.in_place = (k + me->rank) % 2;
		t.shared = me->rank % 3 == 0;
		trial_run(t, me);
		t.seed++;
	}
}

START_TEST(eight_threads_are_eight_ranks)
{
	job_run(&(struct job){
		.run = one_of_eight, .ranks = 8, .threads = true});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups");
	TCase *tcase = tcase_create("groups");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, all_operations_fit_one_group, 0, 2);
	tcase_add_loop_test(
		tcase, communicators_of_a_group_may_come_in_any_order, 0, 2);
	tcase_add_test(tcase, ranks_need_not_draw_the_same_groups);
	tcase_add_test(tcase, a_refused_call_is_not_part_of_the_group);
	tcase_add_test(tcase, a_group_ends_a_communicator_once);
	tcase_add_test(tcase, what_goes_on_hides_no_failure);
	tcase_add_loop_test(tcase,
			    all_pairs_exchange_messages_and_a_rank_with_itself,
			    1, 5);
	tcase_add_loop_test(tcase, many_sends_come_before_the_first_receive, 0,
			    EARLY_KINDS);
	tcase_add_test(tcase, receives_before_sends_do_not_block_a_group);
	tcase_add_test(tcase, one_thread_is_eight_ranks);
	tcase_add_test(tcase, processes_have_several_ranks);
	tcase_add_test(tcase, calls_on_one_communicator_keep_their_order);
	tcase_add_test(tcase, eight_threads_are_eight_ranks);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
