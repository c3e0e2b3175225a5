/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection: all ranks agree, the override, modes, the explanation. */
#include "collectives/select/select.h"
#include "src/base/log.h"
#include "tests/support/runner.h"

#include <check.h>
#include <string.h>

static struct select_table table(void)
{
	struct select_table t;

	memset(&t, 0, sizeof(t));
	t.params = (struct estimate_params){
		.latency_ps = 120000,
		.per_message_ps = 30000,
		.bytes_per_s = 9000000000,
		.reduce_bytes_per_s = 12000000000,
		.copy_bytes_per_s = 10000000000,
		.slot_bytes = 32768,
		.node_ranks = 4,
		.node_cores = 4,
	};
	return t;
}

static const char *chosen(const struct select_table *t, enum coll c, int ranks,
			  uint64_t bytes)
{
	struct shape s = {.coll = c, .ranks = ranks};
	const struct algorithm *a = NULL;

	if (select_algorithm(t, &s, bytes, &a) != DICOMM_SUCCESS)
		return NULL;
	return a->name;
}

START_TEST(all_ranks_choose_the_same)
{
	struct select_table t = table();

	for (enum coll c = 0; c < COLL_KINDS; c++) {
		for (int n = 1; n <= 40; n++) {
			for (int shift = 0; shift < 35; shift += 3) {
				const struct algorithm *first = NULL, *a;

				for (int r = 0; r < n; r++) {
					struct shape s = {
						.coll = c,
						.rank = r,
						.ranks = n,
						.root = coll_rooted(c) ? n / 3
								       : 0,
						.in_place = r % 2};

					ck_assert_int_eq(
						select_algorithm(
							&t, &s,
							UINT64_C(1) << shift,
							&a),
						DICOMM_SUCCESS);
					ck_assert(!first || a == first);
					first = a;
				}
			}
		}
	}
}
END_TEST

START_TEST(size_decides)
{
	struct select_table t = table();

	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 8), "direct");
	/* Two ranks send as much by any of them. */
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "direct");
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 4, 1 << 24), "two_shot");
	ck_assert_str_ne(chosen(&t, COLL_REDUCE, 16, 1 << 24), "direct");
	ck_assert_str_ne(chosen(&t, COLL_BROADCAST, 16, 1 << 24), "direct");
}
END_TEST

static uint64_t predicted(const struct select_table *t, const char *name)
{
	struct shape s = {.coll = COLL_ALLREDUCE, .ranks = 2};
	uint64_t ps;

	ck_assert_int_eq(select_predict(t, &s, 1 << 24,
					algorithm_find(COLL_ALLREDUCE, name),
					&ps),
			 DICOMM_SUCCESS);
	return ps;
}

START_TEST(one_hop_is_preferred_to_a_small_saving)
{
	struct select_table t = table();

	/* Reducing twice as much costs a little more than copying half of it */
	t.params.reduce_bytes_per_s = 8500000000;
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "direct");
	/* Who compares what is predicted finds the same. */
	ck_assert_uint_lt(predicted(&t, "direct"), predicted(&t, "two_shot"));
	/* or much more. */
	t.params.reduce_bytes_per_s = 5000000000;
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "two_shot");
}
END_TEST

START_TEST(override_restricts)
{
	struct select_table t = table();

	ck_assert_int_eq(
		select_override(&t, " allreduce : ring ; all_to_all:^direct;"),
		DICOMM_SUCCESS);
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 8), "ring");
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "ring");
	ck_assert_str_ne(chosen(&t, COLL_ALLTOALL, 2, 1 << 24), "direct");
	/* Others are as they were; the last clause wins. */
	ck_assert_str_eq(chosen(&t, COLL_ALLTOALLV, 2, 1 << 24), "direct");
	ck_assert_int_eq(select_override(&t, "allreduce:tree;"
					     "ALL_REDUCE:two_shot, ring"),
			 DICOMM_SUCCESS);
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "two_shot");
	ck_assert_int_eq(select_override(&t, ""), DICOMM_SUCCESS);
	ck_assert_int_eq(select_override(&t, "allreduce:tree,"),
			 DICOMM_SUCCESS);
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 2, 1 << 24), "tree");
}
END_TEST

START_TEST(unknown_names_are_errors_that_list_what_there_is)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"allreduce:rinng", "there are direct, recursive_doubling"},
		{"alreduce:ring", "there are allreduce, reduce"},
		{"allreduce", "not of the form"},
		{"allreduce:", "has no algorithm"},
		{"allreduce:^", "has no algorithm"},
		{"send:direct", "is no collective"},
		{"broadcast:ring", "broadcast has no algorithm ring"},
	};
	struct select_table t = table(), before = t;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_msg(select_override(&t, bad[i].text) ==
				      DICOMM_ERR_INVALID_ARGUMENT,
			      "%s", bad[i].text);
		ck_assert_msg(strstr(log_last_error(), bad[i].says), "%s: %s",
			      bad[i].text, log_last_error());
		ck_assert_mem_eq(&t, &before, sizeof(t));
	}
}
END_TEST

START_TEST(impossible_is_an_error_never_a_substitute)
{
	struct select_table t = table();

	ck_assert_int_eq(select_override(&t, "allreduce:recursive_doubling;"
					     "allgather:recursive_doubling"),
			 DICOMM_SUCCESS);
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 4, 32768),
			 "recursive_doubling");
	ck_assert_ptr_null(chosen(&t, COLL_ALLREDUCE, 4, 32769));
	ck_assert_ptr_nonnull(
		strstr(log_last_error(), "does not fit a slot of 32768"));
	ck_assert_ptr_null(chosen(&t, COLL_ALLGATHER, 6, 600));
	ck_assert_ptr_nonnull(
		strstr(log_last_error(), "not for 6 ranks on 1 node"));
	/* Alone, nothing is sent. */
	ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, 1, 1 << 20),
			 "recursive_doubling");
	/* Everything ruled out. */
	ck_assert_int_eq(select_override(&t, "gather:^direct,binomial"),
			 DICOMM_SUCCESS);
	ck_assert_ptr_null(chosen(&t, COLL_GATHER, 2, 8));
}
END_TEST

START_TEST(deterministic_mode_is_only_about_reductions)
{
	struct select_table t = table();

	t.deterministic = 1;
	for (int n = 2; n < 20; n++) {
		for (uint64_t b = 8; b < UINT64_C(1) << 34; b *= 16) {
			ck_assert_str_eq(chosen(&t, COLL_ALLREDUCE, n, b),
					 "ordered");
			ck_assert_str_eq(chosen(&t, COLL_REDUCE, n, b),
					 "ordered");
			ck_assert_str_eq(chosen(&t, COLL_REDUCE_SCATTER, n, b),
					 "ordered");
			ck_assert_str_eq(chosen(&t, COLL_REDUCE_SCATTERV, n, b),
					 "ordered");
			ck_assert_str_ne(chosen(&t, COLL_BROADCAST, n, b),
					 "ordered");
		}
	}
	ck_assert_int_eq(select_override(&t, "allreduce:ring"), DICOMM_SUCCESS);
	ck_assert_ptr_null(chosen(&t, COLL_ALLREDUCE, 2, 8));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "not deterministic"));
}
END_TEST

/* A single slice only: nothing that is sent may be longer than a slot. */
START_TEST(whole_messages_fit_a_slot)
{
	for (int i = 0; algorithms[i]; i++) {
		const struct algorithm *a = algorithms[i];

		for (int n = 2; a->whole && n <= 33; n++) {
			struct shape s = {
				.coll = a->coll, .rank = n / 2, .ranks = n};
			uint64_t block = a->coll == COLL_BARRIER ? 1 : 64;
			uint64_t bytes = a->coll == COLL_ALLREDUCE
						 ? block
						 : block * (uint64_t)n;

			if (!a->serves(&s))
				continue;
			for (s.rank = 0; s.rank < n; s.rank++) {
				struct plan p;

				ck_assert_int_eq(algorithm_plan(a, &s, &p),
						 DICOMM_SUCCESS);
				ck_assert_msg(
					block * p.message_parts <=
						p.message_parts_of *
							estimate_message_bytes(
								a, &s, bytes),
					"%s %s, %d ranks", coll_name(a->coll),
					a->name, n);
				plan_free(&p);
			}
		}
	}
}
END_TEST

START_TEST(explanation_shows_all_candidates)
{
	struct select_table t = table();
	struct shape s = {.coll = COLL_ALLREDUCE, .ranks = 6};
	char text[2048], small[40];

	ck_assert_int_eq(select_override(&t, "allreduce:^ring"),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(select_explain(&t, &s, 1 << 20, text, sizeof(text)),
			 DICOMM_SUCCESS);
	for (int i = 0; algorithms[i]; i++)
		if (algorithms[i]->coll == COLL_ALLREDUCE)
			ck_assert_ptr_nonnull(
				strstr(text, algorithms[i]->name));
	ck_assert_ptr_nonnull(strstr(text, "ruled out by DICOMM_ALGO"));
	ck_assert_ptr_nonnull(strstr(text, "does not fit a slot"));
	ck_assert_ptr_nonnull(strstr(text, "* two_shot"));
	memset(small, 'x', sizeof(small));
	select_explain(&t, &s, 1 << 20, small, sizeof(small));
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
}
END_TEST

static bool memory_is_short;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return memory_is_short ? NULL : __real_calloc(n, size);
}

/* Of several nodes, times are found by counting, which takes memory. */
START_TEST(want_of_memory_is_no_choice)
{
	struct select_table t = table();
	struct links *l = links_create(2, 2, 1, 1);
	struct shape s = {.coll = COLL_ALLREDUCE, .ranks = 2, .links = l};
	const struct algorithm *a;
	char text[2048];

	ck_assert_ptr_nonnull(l);
	l->node_of[1] = 1;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	memory_is_short = true;
	ck_assert_int_eq(select_algorithm(&t, &s, 8, &a), DICOMM_ERR_NO_MEMORY);
	ck_assert_int_eq(select_explain(&t, &s, 8, text, sizeof(text)),
			 DICOMM_ERR_NO_MEMORY);
	memory_is_short = false;
	ck_assert_int_eq(select_explain(&t, &s, 8, text, sizeof(text)),
			 DICOMM_SUCCESS);
	ck_assert_ptr_nonnull(strstr(text, "* direct"));
	/* Of groups of one rank each. */
	ck_assert_ptr_nonnull(strstr(text, "not for 2 ranks on 2 nodes"));
	links_free(l);
}
END_TEST

START_TEST(names_of_collectives_in_any_spelling)
{
	for (enum coll c = 0; c < COLL_KINDS; c++)
		ck_assert_int_eq(coll_from_name(coll_name(c)), c);
	ck_assert_int_eq(coll_from_name("all_reduce"), COLL_ALLREDUCE);
	ck_assert_int_eq(coll_from_name("AllGather"), COLL_ALLGATHER);
	ck_assert_int_eq(coll_from_name("reducescatter"), COLL_REDUCE_SCATTER);
	ck_assert_int_eq(coll_from_name("reduce_"), COLL_REDUCE);
	ck_assert_int_eq(coll_from_name("reduc"), COLL_KINDS);
	ck_assert_int_eq(coll_from_name(""), COLL_KINDS);
	ck_assert_int_eq(coll_from_name("allreducex"), COLL_KINDS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("select");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, all_ranks_choose_the_same);
	tcase_add_test(tc, size_decides);
	tcase_add_test(tc, one_hop_is_preferred_to_a_small_saving);
	tcase_add_test(tc, override_restricts);
	tcase_add_test(tc, unknown_names_are_errors_that_list_what_there_is);
	tcase_add_test(tc, impossible_is_an_error_never_a_substitute);
	tcase_add_test(tc, deterministic_mode_is_only_about_reductions);
	tcase_add_test(tc, whole_messages_fit_a_slot);
	tcase_add_test(tc, explanation_shows_all_candidates);
	tcase_add_test(tc, want_of_memory_is_no_choice);
	tcase_add_test(tc, names_of_collectives_in_any_spelling);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
