/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives with tags, and receives from any source. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define LONG 300000 /* elements of 4 bytes: many slices */

static int32_t *pattern(size_t count, int32_t seed)
{
	int32_t *p = malloc((count + 1) * sizeof(*p));

	for (size_t i = 0; i < count; i++)
		p[i] = seed * 1000003 + (int32_t)i;
	p[count] = -1;
	return p;
}

static void check_pattern(const int32_t *got, size_t count, int32_t seed)
{
	for (size_t i = 0; i < count; i++)
		JOB_CHECK(got[i] == seed * 1000003 + (int32_t)i,
			  "element %zu of %zu: %d instead of message %d", i,
			  count, got[i], seed);
}

static void send_to(const struct job_rank *me, size_t count, int32_t seed,
		    int peer, int tag)
{
	int32_t *p = pattern(count, seed);

	JOB_TRY(dicomm_send_tag(p, count, DICOMM_INT32, peer, tag, me->comm,
				NULL));
	free(p);
}

static void recv_from(const struct job_rank *me, size_t count, int32_t seed,
		      int peer, int tag)
{
	int32_t *p = pattern(count, 0);
	dicomm_status_t s = {0};

	JOB_TRY(dicomm_recv_tag(p, count, DICOMM_INT32, peer, tag, me->comm,
				NULL, &s));
	check_pattern(p, count, seed);
	JOB_CHECK(p[count] == -1, "wrote past %zu elements", count);
	JOB_CHECK(s.count == count && s.tag == tag && s.source == peer,
		  "told %zu elements from %d with tag %d", s.count, s.source,
		  s.tag);
	free(p);
}

/* ---- order ---- */

/* Short messages may be received in any order of their tags, while those of
 * one tag, and those without, keep theirs. */
static void unordered(struct job_rank *me)
{
	static const size_t counts[] = {0, 1, 7, 18, 500, 1000};
	enum { SIZES = 6, EACH = 9 };

	for (int c = 0; c < SIZES && !me->rank; c++) {
		for (int i = 0; i < EACH; i++)
			send_to(me, counts[c], c * 100 + i, 1, 1 + i % 3);
		if (c == 2 || c == 4)
			send_to(me, 10, c, 1, 0);
	}
	for (int tag = 3; tag && me->rank; tag--)
		for (int c = 0; c < SIZES; c++)
			for (int i = tag - 1; i < EACH; i += 3)
				recv_from(me, counts[c], c * 100 + i, 0, tag);
	for (int c = 2; c <= 4 && me->rank; c += 2)
		recv_from(me, 10, c, 0, 0);
}

START_TEST(tags_are_matched_whatever_came_before)
{
	/* Both are names of the host. */
	job_run(&(struct job){
		.run = unordered,
		.ranks = 2,
		.threads = _i,
		.env = {_i ? "DICOMM_DEVICE=host" : "DICOMM_DEVICE=host:0"}});
}
END_TEST

/* All at once, long and short, from every rank to every rank and itself. */
static void everywhere(struct job_rank *me)
{
	static const size_t counts[] = {3, LONG, 1024, 0, 40000, 1};
	enum { TAGS = 6 };
	int32_t *in[4][TAGS], *out[4][TAGS];
	dicomm_status_t told[4][TAGS];
	dicomm_stream_t stream = NULL;

	if (me->arg)
		JOB_TRY(dicomm_host_stream_create(&stream));
	for (int round = 0; round < 3; round++) {
		JOB_TRY(dicomm_group_start());
		for (int p = 0; p < me->ranks; p++)
			for (int k = 0; k < TAGS; k++) {
				int tag = (k + me->rank + p) % TAGS;

				out[p][tag] = pattern(counts[tag],
						      round + tag + me->rank);
				JOB_TRY(dicomm_send_tag(
					out[p][tag], counts[tag], DICOMM_INT32,
					p, tag, me->comm, stream));
				tag = (k * 5 + round) % TAGS;
				in[p][tag] = pattern(counts[tag], 77);
				JOB_TRY(dicomm_recv_tag(in[p][tag], counts[tag],
							DICOMM_INT32, p, tag,
							me->comm, stream,
							&told[p][tag]));
			}
		JOB_TRY(dicomm_group_end());
		if (stream)
			JOB_TRY(dicomm_host_stream_synchronize(stream));
		for (int p = 0; p < me->ranks; p++)
			for (int tag = 0; tag < TAGS; tag++) {
				check_pattern(in[p][tag], counts[tag],
					      round + tag + p);
				JOB_CHECK(told[p][tag].source == p &&
						  told[p][tag].tag == tag &&
						  told[p][tag].count ==
							  counts[tag],
					  "told rank %d tag %d", p, tag);
				free(in[p][tag]);
				free(out[p][tag]);
			}
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(all_pairs_exchange_all_tags_in_a_group)
{
	for (int n = 1; n <= 4; n++)
		for (int threads = 0; threads < 2; threads++)
			job_run(&(struct job){.run = everywhere,
					      .ranks = n,
					      .threads = threads,
					      .arg = _i ? "stream" : NULL});
}
END_TEST

/* More unexpected messages than the receiver keeps: the rest wait, and are
 * found by their tags all the same. */
static void unexpected(struct job_rank *me)
{
	enum { N = 2000 };
	dicomm_stream_t stream;
	int32_t *all = pattern((size_t)N * 256, 5);

	JOB_TRY(dicomm_host_stream_create(&stream));
	if (!me->rank) {
		for (int i = 0; i < N; i++)
			JOB_TRY(dicomm_send_tag(all + i * 256, 256,
						DICOMM_INT32, 1, 1 + i % 10,
						me->comm, stream));
		JOB_TRY(dicomm_send_tag(all, LONG, DICOMM_INT32, 1, 99,
					me->comm, stream));
	} else {
		int32_t *got = pattern(LONG, 0);

		recv_from(me, LONG, 5, 0, 99);
		for (int tag = 10; tag; tag--)
			for (int i = tag - 1; i < N; i += 10) {
				JOB_TRY(dicomm_recv_tag(got, 256, DICOMM_INT32,
							0, tag, me->comm, NULL,
							NULL));
				JOB_CHECK(!memcmp(got, all + i * 256, 1024),
					  "message %d is another", i);
			}
		free(got);
	}
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(all);
}

START_TEST(many_messages_may_be_unexpected)
{
	job_run(&(struct job){.run = unexpected, .ranks = 2, .threads = _i});
}
END_TEST

/* ---- any source ---- */

/* Rank 0 serves whoever comes, as often as it comes. */
static void serve(struct job_rank *me)
{
	int tag = me->arg ? 7 : 0;
	size_t count = me->ranks == 3 ? LONG : 5;
	int seen[8] = {0};

	for (int i = 0; i < 20 && me->rank; i++) {
		send_to(me, count, me->rank, 0, tag);
		recv_from(me, 1, i, 0, tag);
	}
	for (int i = 0; i < 20 * (me->ranks - 1) && !me->rank; i++) {
		int32_t *p = pattern(count, 0);
		dicomm_status_t s = {.tag = -1};

		JOB_TRY(dicomm_recv_tag(p, count, DICOMM_INT32,
					DICOMM_ANY_SOURCE, tag, me->comm, NULL,
					&s));
		JOB_CHECK(s.source > 0 && s.source < me->ranks &&
				  s.count == count && s.tag == tag,
			  "told %zu elements of rank %d, tag %d", s.count,
			  s.source, s.tag);
		check_pattern(p, count, s.source);
		send_to(me, 1, seen[s.source]++, s.source, tag);
		free(p);
	}
	for (int r = 1; r < me->ranks && !me->rank; r++)
		JOB_CHECK(seen[r] == 20, "%d messages of rank %d", seen[r], r);
}

START_TEST(any_source_tells_the_source)
{
	for (int n = 2; n <= 4; n++)
		for (int threads = 0; threads < 2; threads++)
			job_run(&(struct job){.run = serve,
					      .ranks = n,
					      .threads = threads,
					      .arg = _i ? "tag" : NULL});
}
END_TEST

/* Receives take messages in the order in which they were called. */
static void in_call_order(struct job_rank *me)
{
	int tag = me->arg ? 7 : 0;
	dicomm_stream_t stream[4];
	dicomm_status_t s[4];
	int32_t got[4] = {0}, one = 1, two = 2;

	for (int i = 0; i < 4; i++)
		JOB_TRY(dicomm_host_stream_create(&stream[i]));
	if (me->rank) {
		job_barrier();
		for (int i = 0; i < 2; i++)
			JOB_TRY(dicomm_send_tag(i ? &two : &one, 1,
						DICOMM_INT32, 0, tag, me->comm,
						NULL));
		job_barrier();
	} else {

		for (int i = 0; i < 4; i++)
			JOB_TRY(dicomm_recv_tag(
				&got[i], 1, DICOMM_INT32,
				i == 1 || i == 2 ? i : DICOMM_ANY_SOURCE, tag,
				me->comm, stream[i], &s[i]));
		job_barrier();
		for (int i = 0; i < 4; i++)
			JOB_TRY(dicomm_host_stream_synchronize(stream[i]));
		for (int r = 1; r <= 2; r++) {
			int32_t last = 0;

			for (int i = 0; i < 4; i++)
				if (s[i].source == r) {
					JOB_CHECK(got[i] == last + 1,
						  "receive %d has message %d "
						  "of rank %d after %d",
						  i, got[i], r, last);
					last = got[i];
				}
			JOB_CHECK(last == 2, "rank %d: %d messages", r, last);
		}
		JOB_CHECK(s[1].source == 1 && s[2].source == 2,
			  "sources %d and %d", s[1].source, s[2].source);
		job_barrier();
	}
	for (int i = 0; i < 4; i++)
		JOB_TRY(dicomm_host_stream_destroy(stream[i]));
}

START_TEST(receives_match_in_call_order)
{
	for (int threads = 0; threads < 2; threads++)
		job_run(&(struct job){.run = in_call_order,
				      .ranks = 3,
				      .threads = threads,
				      .arg = _i ? "tag" : NULL});
}
END_TEST

/* The messages of all sources are there before the first receive, so they come
 * in rounds: one of each source. */
static void in_turns(struct job_rank *me)
{
	enum { EACH = 4 };
	bool seen[8] = {false};

	/* connected, and nothing is left of that */
	for (int r = 1; r < me->ranks && !me->rank; r++)
		recv_from(me, 1, r, r, 6);
	if (me->rank)
		send_to(me, 1, me->rank, 0, 6);
	job_barrier();
	for (int i = 0; i < EACH && me->rank; i++)
		send_to(me, 5, i, 0, 7);
	job_barrier();
	for (int i = 0; i < EACH * (me->ranks - 1) && !me->rank; i++) {
		int32_t *p = pattern(5, 0);
		dicomm_status_t s = {.source = -1};

		if (i % (me->ranks - 1) == 0)
			memset(seen, 0, sizeof(seen));
		JOB_TRY(dicomm_recv_tag(p, 5, DICOMM_INT32, DICOMM_ANY_SOURCE,
					7, me->comm, NULL, &s));
		JOB_CHECK(!seen[s.source],
			  "receive %d: rank %d again, while others wait", i,
			  s.source);
		seen[s.source] = true;
		check_pattern(p, 5, i / (me->ranks - 1));
		free(p);
	}
}

START_TEST(sources_take_turns)
{
	job_run(&(struct job){.run = in_turns, .ranks = 4, .threads = _i});
}
END_TEST

/* ---- streams ---- */

/* Each operation of a stream finds in its buffer what those before it left
 * there, also if its message, or that of a later one, has come early. */
static void forward(struct job_rank *me)
{
	size_t count = me->arg ? LONG : 5;
	int32_t *p = pattern(count, 1);
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	if (me->rank) {
		JOB_TRY(dicomm_send_tag(p, count, DICOMM_INT32, 0, 3, me->comm,
					stream));
		job_barrier();
		send_to(me, count, 2, 0, 1);
		recv_from(me, count, 2, 0, 2);
		JOB_TRY(dicomm_host_stream_synchronize(stream));
	} else {
		int32_t *x = pattern(count, 0);

		JOB_TRY(dicomm_recv_tag(x, count, DICOMM_INT32, 1, 1, me->comm,
					stream, NULL));
		JOB_TRY(dicomm_send_tag(x, count, DICOMM_INT32, 1, 2, me->comm,
					stream));
		JOB_TRY(dicomm_recv_tag(x, count, DICOMM_INT32, 1, 3, me->comm,
					stream, NULL));
		job_barrier();
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		check_pattern(x, count, 1);
		free(x);
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(p);
}

START_TEST(tags_keep_the_order_of_their_stream)
{
	for (int threads = 0; threads < 2; threads++)
		job_run(&(struct job){.run = forward,
				      .ranks = 2,
				      .threads = threads,
				      .arg = _i ? "long" : NULL});
}
END_TEST

/* Blocking calls pass by receives that wait. If each looked at all of them,
 * this would take minutes. */
static void beside_many(struct job_rank *me)
{
	enum { N = 20000 };
	int32_t *got = pattern(N, 0);
	int peer = 1 - me->rank;
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	for (int i = 0; i < N; i++)
		JOB_TRY(dicomm_recv_tag(&got[i], 1, DICOMM_INT32, peer,
					1 + i % 3, me->comm, stream, NULL));
	for (int i = 0; i < 200; i++) {
		send_to(me, 5, i, peer, 9);
		recv_from(me, 5, i, peer, 9);
	}
	for (int32_t i = 0; i < N; i++)
		JOB_TRY(dicomm_send_tag(&i, 1, DICOMM_INT32, peer, 1 + i % 3,
					me->comm, NULL));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	for (int32_t i = 0; i < N; i++)
		JOB_CHECK(got[i] == i, "receive %d has message %d", i, got[i]);
	JOB_TRY(dicomm_host_stream_destroy(stream));
	free(got);
}

START_TEST(what_waits_holds_up_nothing_else)
{
	job_run(&(struct job){.run = beside_many, .ranks = 2, .threads = _i});
}
END_TEST

/* ---- errors ---- */

static void refused(struct job_rank *me)
{
	const dicomm_result_t bad = DICOMM_ERR_INVALID_ARGUMENT;
	dicomm_comm_t c = me->comm;
	int32_t x = 0;

	JOB_REFUSED(dicomm_send_tag(&x, 1, DICOMM_INT32, 0, -1, c, NULL), bad,
		    "send_tag: tag -1");
	JOB_REFUSED(dicomm_send_tag(&x, 1, DICOMM_INT32, -1, 1, c, NULL), bad,
		    "send_tag: peer -1");
	JOB_REFUSED(dicomm_send_tag(NULL, 1, DICOMM_INT32, 0, 1, c, NULL), bad,
		    "send is NULL");
	JOB_REFUSED(dicomm_recv_tag(&x, 1, DICOMM_INT32, 0, -5, c, NULL, NULL),
		    bad, "recv_tag: tag -5");
	JOB_REFUSED(dicomm_recv_tag(&x, 1, DICOMM_INT32, 2, 1, c, NULL, NULL),
		    bad, "recv_tag: peer 2");
	JOB_REFUSED(dicomm_recv_tag(&x, 1, DICOMM_INT32, -2, 1, c, NULL, NULL),
		    bad, "recv_tag: peer -2");
	JOB_REFUSED(dicomm_recv_tag(NULL, 0, DICOMM_INT32, DICOMM_ANY_SOURCE, 0,
				    c, NULL, NULL),
		    DICOMM_ERR_UNSUPPORTED, "count 0 from any source");
	JOB_REFUSED(dicomm_recv_tag(&x, 1, (dicomm_datatype_t)99, 0, 1, c, NULL,
				    NULL),
		    bad, "type 99");
	/* None of that has had an effect. */
	if (me->rank)
		send_to(me, 1, 4, 0, 3);
	else
		recv_from(me, 1, 4, 1, 3);
}

START_TEST(wrong_arguments_are_refused_by_name)
{
	job_run(&(struct job){.run = refused, .ranks = 2});
}
END_TEST

/* Rank 0 sends other elements than rank 1 receives. */
static void unlike(struct job_rank *me)
{
	int32_t x[9] = {0};
	dicomm_result_t status;

	status = me->rank ? dicomm_recv_tag(x, 8, DICOMM_INT32, 0, 5, me->comm,
					    NULL, NULL)
			  : dicomm_send_tag(x, 9, DICOMM_INT32, 1, 5, me->comm,
					    NULL);
	for (int i = 0; i < 10000 && status == DICOMM_SUCCESS; i++) {
		job_sleep_ms(1);
		JOB_TRY(dicomm_comm_get_async_error(me->comm, &status));
	}
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE, "status %d", status);
	for (int i = 0; i < 2; i++)
		JOB_CHECK(strstr(dicomm_get_last_error(me->comm),
				 i ? "rank 1 called recv count 8 int32 tag 5"
				   : "rank 0 called send count 9 int32 tag 5"),
			  "text: %s", dicomm_get_last_error(me->comm));
	job_barrier();
}

START_TEST(a_mismatch_names_both_calls)
{
	job_run(&(struct job){.run = unlike, .ranks = 2});
}
END_TEST

/* Nobody sends: the time-out says what was waited for. */
static void nothing_comes(struct job_rank *me)
{
	bool any = me->arg;
	int32_t x;

	if (!me->rank) {
		JOB_REFUSED(dicomm_recv_tag(&x, 1, DICOMM_INT32,
					    any ? DICOMM_ANY_SOURCE : 1, 4,
					    me->comm, NULL, NULL),
			    DICOMM_ERR_TIMEOUT,
			    any ? "receive from any rank"
				: "recv count 1 int32 tag 4: timed out");
	}
	job_barrier();
}

START_TEST(a_message_that_never_comes_times_out)
{
	job_run(&(struct job){.run = nothing_comes,
			      .ranks = 2,
			      .arg = _i ? "any" : NULL,
			      .env = {"DICOMM_TIMEOUT_MS=1500"}});
}
END_TEST

/* Rank 1 dies while a long message waits for it, and rank 2 for one of any. */
static void dies(struct job_rank *me)
{
	int32_t *p = pattern(LONG, 1);
	dicomm_result_t status;

	if (me->rank == 1) {
		job_sleep_ms(200);
		raise(SIGKILL);
	}
	status = me->rank ? dicomm_recv_tag(p, LONG, DICOMM_INT32,
					    DICOMM_ANY_SOURCE, me->arg ? 2 : 0,
					    me->comm, NULL, NULL)
			  : dicomm_send_tag(p, LONG, DICOMM_INT32, 1, 2,
					    me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_REMOTE &&
			  strstr(dicomm_get_last_error(me->comm), "rank 1"),
		  "status %d: %s", status, dicomm_get_last_error(me->comm));
	free(p);
}

START_TEST(a_death_ends_what_waits)
{
	job_run(&(struct job){.run = dies,
			      .ranks = 3,
			      .may_die = 2,
			      .arg = _i ? "tag" : NULL});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tags");
	TCase *tcase = tcase_create("tags");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, tags_are_matched_whatever_came_before, 0, 2);
	tcase_add_loop_test(tcase, all_pairs_exchange_all_tags_in_a_group, 0,
			    2);
	tcase_add_loop_test(tcase, many_messages_may_be_unexpected, 0, 2);
	tcase_add_loop_test(tcase, any_source_tells_the_source, 0, 2);
	tcase_add_loop_test(tcase, receives_match_in_call_order, 0, 2);
	tcase_add_loop_test(tcase, sources_take_turns, 0, 2);
	tcase_add_loop_test(tcase, tags_keep_the_order_of_their_stream, 0, 2);
	tcase_add_loop_test(tcase, what_waits_holds_up_nothing_else, 0, 2);
	tcase_add_test(tcase, wrong_arguments_are_refused_by_name);
	tcase_add_test(tcase, a_mismatch_names_both_calls);
	tcase_add_loop_test(tcase, a_message_that_never_comes_times_out, 0, 2);
	tcase_add_loop_test(tcase, a_death_ends_what_waits, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
