/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists: each block in a buffer of its own, at any address. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define BAD DICOMM_ERR_INVALID_ARGUMENT
#define RANKS 3
#define GUARD 0xA5u
#define PLAIN_COUNT ((size_t)1 << 18)

/* Elements that `from` has for `to`, some none. In an allgatherv and a
 * reduce_scatterv all ranks know those of one rank. */
static size_t count_of(size_t count, int from, int to)
{
	return (from + 2 * to) % 4 == 1 ? 0
					: count + 5 * (size_t)from + (size_t)to;
}

static int64_t element(int from, int to, size_t i)
{
	return from * 1000003 + to * 5003 + (int64_t)i * 7;
}

/* A buffer of its own for each rank, whose distance from the others is no
 * multiple of an element. */
struct list {
	uint8_t *memory[RANKS];
	void *at[RANKS];
	size_t n[RANKS];
};

static void list_make(struct list *l, int r, size_t n)
{
	l->n[r] = n;
	l->memory[r] = malloc(n * 8 + 24);
	JOB_CHECK(l->memory[r], "no memory for %zu elements", n);
	memset(l->memory[r], (int)GUARD, n * 8 + 24);
	l->at[r] = n ? l->memory[r] + 8 + r : NULL;
}

static void list_put(struct list *l, int r, int from, int to)
{
	for (size_t i = 0; i < l->n[r]; i++) {
		int64_t x = element(from, to, i);

		memcpy((uint8_t *)l->at[r] + 8 * i, &x, 8);
	}
}

/* from -1: the sum of all ranks */
static void list_check(const struct list *l, int r, int from, int to)
{
	for (size_t i = 0; i < l->n[r]; i++) {
		int64_t got, want = from < 0 ? 0 : element(from, to, i);

		for (int s = 0; from < 0 && s < RANKS; s++)
			want += element(s, to, i);
		memcpy(&got, (uint8_t *)l->at[r] + 8 * i, 8);
		JOB_CHECK(got == want,
			  "block %d, element %zu: %lld instead of %lld", r, i,
			  (long long)got, (long long)want);
	}
	for (size_t i = 0; i < 8 + (size_t)r; i++)
		JOB_CHECK(l->memory[r][i] == GUARD, "before block %d", r);
	for (size_t i = 8 + (size_t)r + 8 * l->n[r]; i < 8 * l->n[r] + 24; i++)
		JOB_CHECK(l->memory[r][i] == GUARD, "behind block %d", r);
}

static void list_free(struct list *l)
{
	for (int r = 0; r < RANKS; r++)
		free(l->memory[r]);
}

static void alltoall(struct job_rank *me, size_t count)
{
	struct list out, in;
	const void *sends[RANKS];

	for (int r = 0; r < RANKS; r++) {
		list_make(&out, r, count_of(count, me->rank, r));
		list_put(&out, r, me->rank, r);
		sends[r] = out.at[r];
		list_make(&in, r, count_of(count, r, me->rank));
	}
	JOB_TRY(dicomm_alltoallv_list(sends, out.n, in.at, in.n, DICOMM_INT64,
				      me->comm, NULL));
	for (int r = 0; r < RANKS; r++) {
		list_check(&in, r, r, me->rank);
		list_check(&out, r, me->rank, r);
	}
	list_free(&out);
	list_free(&in);
}

/* Also a gatherv: `root` is -1 for an allgatherv. */
static void gather(struct job_rank *me, size_t count, int root, bool in_place)
{
	bool receives = root < 0 || root == me->rank;
	struct list mine = {{NULL}, {NULL}, {0}}, in;
	const void *send;

	for (int r = 0; r < RANKS; r++)
		list_make(&in, r, count_of(count, r, 0));
	list_make(&mine, me->rank, in.n[me->rank]);
	send = mine.at[me->rank];
	list_put(&mine, me->rank, me->rank, 0);
	if (in_place && receives) {
		list_put(&in, me->rank, me->rank, 0);
		send = in.at[me->rank];
	}
	if (root < 0)
		JOB_TRY(dicomm_allgatherv_list(send, in.at, in.n, DICOMM_INT64,
					       me->comm, NULL));
	else
		JOB_TRY(dicomm_gatherv_list(
			send, in.n[me->rank], receives ? in.at : NULL,
			receives ? in.n : NULL, DICOMM_INT64, root, me->comm,
			NULL));
	for (int r = 0; r < RANKS && receives; r++)
		list_check(&in, r, r, 0);
	list_free(&mine);
	list_free(&in);
}

static void reduce_scatter(struct job_rank *me, size_t count, bool in_place)
{
	struct list out, result = {{NULL}, {NULL}, {0}}, *to = &result;
	const void *sends[RANKS];

	for (int r = 0; r < RANKS; r++) {
		list_make(&out, r, count_of(count, 0, r));
		list_put(&out, r, me->rank, r);
		sends[r] = out.at[r];
	}
	list_make(&result, me->rank, out.n[me->rank]);
	if (in_place)
		to = &out;
	JOB_TRY(dicomm_reduce_scatterv_list(sends, to->at[me->rank], out.n,
					    DICOMM_INT64, DICOMM_SUM, me->comm,
					    NULL));
	list_check(to, me->rank, -1, me->rank);
	for (int r = 0; r < RANKS; r++)
		if (!in_place || r != me->rank)
			list_check(&out, r, me->rank, r);
	list_free(&out);
	list_free(&result);
}

static void scatter(struct job_rank *me, size_t count, int root, bool in_place)
{
	struct list out, mine = {{NULL}, {NULL}, {0}}, *to = &mine;
	const void *sends[RANKS];
	bool is_root = me->rank == root;

	for (int r = 0; r < RANKS; r++) {
		list_make(&out, r, count_of(count, root, r));
		list_put(&out, r, root, r);
		sends[r] = out.at[r];
	}
	list_make(&mine, me->rank, out.n[me->rank]);
	if (in_place && is_root)
		to = &out;
	JOB_TRY(dicomm_scatterv_list(is_root ? sends : NULL,
				     is_root ? out.n : NULL, to->at[me->rank],
				     out.n[me->rank], DICOMM_INT64, root,
				     me->comm, NULL));
	list_check(to, me->rank, root, me->rank);
	for (int r = 0; r < RANKS; r++)
		list_check(&out, r, root, r);
	list_free(&out);
	list_free(&mine);
}

static void all_lists(struct job_rank *me)
{
	static const size_t counts[] = {0, 1, 30, 3000, 70000};

	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		if (job_is_short() && c % 2 == 1)
			continue;
		alltoall(me, counts[c]);
		for (int in_place = 0; in_place < 2; in_place++) {
			gather(me, counts[c], -1, in_place);
			reduce_scatter(me, counts[c], in_place);
			for (int root = 0; root < RANKS; root++) {
				gather(me, counts[c], root, in_place);
				scatter(me, counts[c], root, in_place);
			}
		}
	}
}

static const char *const transports[] = {"DICOMM_TRANSPORTS=shm",
					 "DICOMM_TRANSPORTS=tcp"};

START_TEST(each_block_comes_to_its_own_buffer)
{
	job_run(&(struct job){.run = all_lists,
			      .ranks = RANKS,
			      .env = {transports[_i / 2]},
			      .threads = _i % 2});
}
END_TEST

/* ---- what a list costs ---- */

static dicomm_stats_t stats_of(const struct job_rank *me)
{
	dicomm_stats_t s = {.size = sizeof(s)};

	JOB_TRY(dicomm_comm_stats(me->comm, &s));
	return s;
}

/* As many messages as with displacements, by the same ways: nothing is copied
 * into a buffer of the library first. */
static void plain(struct job_rank *me)
{
	static const size_t counts[] = {PLAIN_COUNT, PLAIN_COUNT, PLAIN_COUNT};
	static const size_t displs[] = {0, PLAIN_COUNT, 2 * PLAIN_COUNT};
	dicomm_stats_t before, between, after;
	size_t bytes = PLAIN_COUNT * 4;
	uint8_t *all = malloc(RANKS * bytes), *send = malloc(bytes);
	void *list[RANKS];

	JOB_CHECK(all && send, "no memory");
	memset(send, me->rank, bytes);
	for (int r = 0; r < RANKS; r++) {
		list[r] = malloc(bytes);
		JOB_CHECK(list[r], "no memory");
	}
	before = stats_of(me);
	JOB_TRY(dicomm_allgatherv(send, all, counts, displs, DICOMM_INT32,
				  me->comm, NULL));
	between = stats_of(me);
	JOB_TRY(dicomm_allgatherv_list(send, list, counts, DICOMM_INT32,
				       me->comm, NULL));
	after = stats_of(me);
	for (int r = 0; r < RANKS; r++) {
		JOB_CHECK(!memcmp(list[r], all + (size_t)r * bytes, bytes),
			  "block of rank %d", r);
		free(list[r]);
	}
#define SAME(field)                                                            \
	JOB_CHECK(between.field - before.field == after.field - between.field, \
		  #field ": %llu, by a list %llu",                             \
		  (unsigned long long)(between.field - before.field),          \
		  (unsigned long long)(after.field - between.field))
	SAME(messages_received);
	SAME(bytes_received);
	SAME(bytes_direct);
	SAME(bytes_staged);
	SAME(bytes_ring);
	SAME(bytes_cma);
	SAME(bytes_mapped);
#undef SAME
	free(all);
	free(send);
}

START_TEST(a_list_costs_what_displacements_cost)
{
	job_run(&(struct job){
		.run = plain, .ranks = RANKS, .env = {transports[_i]}});
}
END_TEST

/* ---- wrong arguments ---- */

static void bad_lists(struct job_rank *me)
{
	static int64_t a[64], b[64];
	const size_t n[2] = {2, 3}, huge[2] = {SIZE_MAX, SIZE_MAX};
	const void *out[2] = {a, a + 8}, *half[2] = {a, NULL};
	void *in[2] = {b, b + 8}, *none[2] = {b, NULL}, *same[2] = {b, b + 1};
	void *mixed[2] = {b, a + 9};
	dicomm_comm_t c = me->comm;
	const dicomm_datatype_t t = DICOMM_INT64;
	const size_t mine[2] = {n[me->rank], n[me->rank]};

	JOB_REFUSED(dicomm_allgatherv_list(a, NULL, n, t, c, NULL), BAD,
		    "allgatherv_list: recvs is NULL");
	JOB_REFUSED(dicomm_allgatherv_list(a, in, NULL, t, c, NULL), BAD,
		    "allgatherv_list: recvcounts is NULL");
	JOB_REFUSED(dicomm_allgatherv_list(a, none, n, t, c, NULL), BAD,
		    "recvs[1] is NULL, count is 3");
	JOB_REFUSED(dicomm_allgatherv_list(a, in, huge, t, c, NULL), BAD,
		    "18446744073709551615");
	JOB_REFUSED(dicomm_allgatherv_list(a, same, n, t, c, NULL), BAD,
		    "recvs[0]");
	JOB_REFUSED(dicomm_allgatherv_list(a, same, n, t, c, NULL), BAD,
		    "overlap");
	JOB_REFUSED(dicomm_alltoallv_list(NULL, n, in, n, t, c, NULL), BAD,
		    "sends is NULL");
	JOB_REFUSED(dicomm_alltoallv_list(half, n, in, n, t, c, NULL), BAD,
		    "sends[1] is NULL, count is 3");
	JOB_REFUSED(dicomm_alltoallv_list(out, n, mixed, n, t, c, NULL), BAD,
		    "sends[1]");
	JOB_REFUSED(dicomm_alltoallv_list(out, n, in, n, t, NULL, NULL), BAD,
		    "comm is NULL");
	JOB_REFUSED(
		dicomm_reduce_scatterv_list(half, b, n, t, DICOMM_SUM, c, NULL),
		BAD, "sends[1] is NULL");
	JOB_REFUSED(dicomm_reduce_scatterv_list(out, a + 9, n, t, DICOMM_SUM, c,
						NULL),
		    BAD, "overlap");
	JOB_REFUSED(dicomm_gatherv(a, 2, b, n, n, t, 2, c, NULL), BAD,
		    "root 2");
	JOB_REFUSED(dicomm_scatterv_list(out, n, b, mine[0], t, -1, c, NULL),
		    BAD, "root -1");
	JOB_REFUSED(dicomm_gatherv(NULL, 2, b, n, n, t, 0, c, NULL), BAD,
		    "send is NULL, count is 2");
	JOB_REFUSED(dicomm_scatterv(a, n, n, NULL, 2, t, 0, c, NULL), BAD,
		    "recv is NULL, count is 2");
	if (me->rank == 0) {
		JOB_REFUSED(dicomm_gatherv(a, 2, b, NULL, n, t, 0, c, NULL),
			    BAD, "gatherv: recvcounts is NULL");
		JOB_REFUSED(dicomm_gatherv(a, 2, b, n, NULL, t, 0, c, NULL),
			    BAD, "gatherv: recvdispls is NULL");
		JOB_REFUSED(dicomm_gatherv(a, 7, b, n, huge, t, 0, c, NULL),
			    BAD, "18446744073709551615");
		JOB_REFUSED(dicomm_gatherv_list(a, 7, in, n, t, 0, c, NULL),
			    BAD, "sends itself 7 elements, but receives 2");
		JOB_REFUSED(dicomm_scatterv(a, NULL, n, b, 2, t, 0, c, NULL),
			    BAD, "scatterv: sendcounts is NULL");
		JOB_REFUSED(dicomm_scatterv(a, n, NULL, b, 2, t, 0, c, NULL),
			    BAD, "scatterv: senddispls is NULL");
		JOB_REFUSED(dicomm_scatterv_list(out, n, b, 9, t, 0, c, NULL),
			    BAD, "sends itself 2 elements, but receives 9");
		JOB_REFUSED(
			dicomm_scatterv_list(out, n, a + 9, 2, t, 0, c, NULL),
			BAD, "overlap");
	}
	/* All of that had no effect. */
	JOB_TRY(dicomm_gatherv_list(a, mine[0], in, n, t, 0, c, NULL));
}

START_TEST(a_bad_entry_is_named_and_has_no_effect)
{
	job_run(&(struct job){.run = bad_lists, .ranks = 2});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lists");
	TCase *tcase = tcase_create("lists");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, each_block_comes_to_its_own_buffer, 0, 4);
	tcase_add_loop_test(tcase, a_list_costs_what_displacements_cost, 0, 2);
	tcase_add_test(tcase, a_bad_entry_is_named_and_has_no_effect);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
