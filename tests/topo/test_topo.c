/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptions of clusters: how they are read, and what is chosen on them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/groups/groups.h"
#include "collectives/select/select.h"
#include "src/base/log.h"
#include "src/topo/cluster.h"
#include "tests/support/runner.h"

static const char *path_of(const char *file)
{
	static char path[512];
	const char *top = getenv("srcdir");

	snprintf(path, sizeof(path), "%s/tests/topo/%s", top ? top : ".", file);
	return path;
}

static struct cluster *cluster_of(const char *file)
{
	struct cluster *c = NULL;

	ck_assert_msg(cluster_read(path_of(file), &c) == DICOMM_SUCCESS, "%s",
		      log_last_error());
	return c;
}

static struct links *links_of(const char *file)
{
	struct cluster *c = cluster_of(file);
	struct links *l = NULL;

	ck_assert_int_eq(cluster_plan(c, 0, &l), DICOMM_SUCCESS);
	cluster_free(c);
	return l;
}

static struct select_table table(void)
{
	struct select_table t;

	memset(&t, 0, sizeof(t));
	t.params = (struct estimate_params){
		.latency_ps = 250000,
		.per_message_ps = 40000,
		.bytes_per_s = 9000000000,
		.reduce_bytes_per_s = 12000000000,
		.copy_bytes_per_s = 10000000000,
		.slot_bytes = 131072,
		.node_ranks = 1,
		.node_cores = 8,
	};
	return t;
}

/* ---- what is chosen ---- */

struct expected {
	char file[64], operation[32], chosen[32], why[128];
	unsigned long long bytes, bound_us;
	unsigned percent;
};

static void check_chosen(const struct expected *e, const struct links *l)
{
	struct select_table t = table();
	struct shape s = {.coll = coll_from_name(e->operation),
			  .ranks = (int)l->ranks,
			  .links = l};
	const struct algorithm *a;
	uint64_t ps;

	ck_assert_msg(s.coll < COLL_KINDS, "%s", e->operation);
	/* Every rank chooses it. */
	for (; s.rank < s.ranks; s.rank++) {
		ck_assert_int_eq(select_algorithm(&t, &s, e->bytes, &a),
				 DICOMM_SUCCESS);
		ck_assert_msg(!strcmp(a->name, e->chosen),
			      "%s: %s of %llu bytes: %s, not %s: %s", e->file,
			      e->operation, e->bytes, a->name, e->chosen,
			      e->why);
	}
	s.rank = 0;
	ps = estimate_ps(&t.params, a, &s, e->bytes);
	/* A time below what the links allow would be as wrong. */
	if (e->percent)
		ck_assert_msg(ps / 1000000 >= e->bound_us &&
				      ps / 10000 <= e->bound_us * e->percent,
			      "%s: %s by %s: predicted %.0f us, bound %llu us",
			      e->file, e->operation, a->name, (double)ps / 1e6,
			      e->bound_us);
}

START_TEST(selection_is_as_expected)
{
	FILE *f = fopen(path_of("selection.txt"), "re");
	struct links *l = NULL;
	struct expected e;
	char line[512], file[sizeof(e.file)] = "";
	int n = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		ck_assert_msg(sscanf(line,
				     "%63s %31s %llu %31s %llu %u %127[^\n]",
				     e.file, e.operation, &e.bytes, e.chosen,
				     &e.bound_us, &e.percent, e.why) == 7,
			      "%s", line);
		/* Links keep what was counted on them; for thousands of ranks
		 * that takes seconds. */
		if (strcmp(e.file, file) != 0) {
			links_free(l);
			l = links_of(e.file);
			strcpy(file, e.file);
		}
		check_chosen(&e, l);
		n++;
	}
	links_free(l);
	fclose(f);
	ck_assert_int_ge(n, 10);
}
END_TEST

/* The same by links that were asked much before, and by new ones. */
static void check_time(const struct select_table *t, const struct algorithm *a,
		       int root, uint64_t bytes, const struct links *used)
{
	struct links *fresh = links_of("islands_in_order.json");
	struct shape s = {
		.coll = a->coll, .ranks = 4, .root = root, .links = fresh};
	uint64_t ps;

	if (a->serves(&s)) {
		ps = estimate_ps(&t->params, a, &s, bytes);
		s.links = used;
		ck_assert_msg(estimate_ps(&t->params, a, &s, bytes) == ps,
			      "%s of %s, %d the root, %llu bytes", a->name,
			      coll_name(a->coll), root,
			      (unsigned long long)bytes);
	}
	links_free(fresh);
}

START_TEST(times_do_not_depend_on_what_was_asked_before)
{
	static const uint64_t sizes[] = {1 << 30, 1000, 1 << 20, 1000, 0};
	struct links *used = links_of("islands_in_order.json");
	struct select_table t = table();

	for (int i = 0; algorithms[i]; i++)
		for (int k = 0; k < 5; k++)
			check_time(&t, algorithms[i],
				   coll_rooted(algorithms[i]->coll) ? k % 4 : 0,
				   sizes[k], used);
	/* Another machine, the same links. */
	t.params.copy_bytes_per_s /= 1000;
	for (int i = 0; algorithms[i]; i++)
		check_time(&t, algorithms[i], 0, 1 << 20, used);
	links_free(used);
}
END_TEST

/* Of all algorithms of a collective, for each of some roots. */
START_TEST(what_was_counted_for_one_root_stays_beside_that_for_another)
{
	struct links *l = links_of("islands_in_order.json");
	struct select_table t = table();
	struct shape s = {.coll = COLL_BROADCAST, .ranks = 4, .links = l};
	const struct algorithm *a;
	int known = 0, wanted = 0;

	for (; s.root < 4; s.root++)
		ck_assert_int_eq(select_algorithm(&t, &s, 1 << 20, &a),
				 DICOMM_SUCCESS);
	for (int i = 0; algorithms[i]; i++)
		wanted += 4 * (algorithms[i]->coll == COLL_BROADCAST);
	for (int i = 0; i < LINKS_MEMOS; i++)
		known += l->memos->memo[i].what != NULL;
	ck_assert_int_eq(known, wanted);
	links_free(l);
}
END_TEST

START_TEST(a_barrier_has_no_size)
{
	struct links *l = links_of("shared_nics.json");
	struct select_table t = table();
	struct shape s = {.coll = COLL_BARRIER, .ranks = 8, .links = l};

	for (int i = 0; algorithms[i]; i++)
		if (algorithms[i]->coll == COLL_BARRIER)
			ck_assert_uint_eq(
				estimate_ps(&t.params, algorithms[i], &s,
					    UINT64_C(1) << 40),
				estimate_ps(&t.params, algorithms[i], &s, 1));
	links_free(l);
}
END_TEST

/* The library asks for some size, whatever the counts of a call are. */
START_TEST(the_counts_of_alltoallv_change_no_choice)
{
	static const char *const files[] = {
		"star_8_8_2_1.json", "islands_in_order.json",
		"shared_nics.json", "latency_only.json"};
	struct select_table t = table();

	for (size_t f = 0; f < sizeof(files) / sizeof(*files); f++) {
		struct links *l = links_of(files[f]);
		struct shape s = {.coll = COLL_ALLTOALLV,
				  .ranks = (int)l->ranks,
				  .links = l};
		const struct algorithm *a;

		for (int shift = 0; shift < 40; shift++) {
			ck_assert_int_eq(select_algorithm(&t, &s,
							  UINT64_C(1) << shift,
							  &a),
					 DICOMM_SUCCESS);
			ck_assert_msg(!strcmp(a->name, "direct"),
				      "%s, 2^%d bytes: %s", files[f], shift,
				      a->name);
		}
		links_free(l);
	}
}
END_TEST

/* ---- shares ---- */

START_TEST(shares_level_what_the_ways_carry)
{
	static const struct {
		uint64_t rate[4];
		uint32_t x[4];
	} cases[] = {
		{{2, 2, 2, 2}, {16, 16, 16, 16}},
		{{8, 8, 2, 1}, {32, 32, 0, 0}},
		{{8, 2, 2, 2}, {64, 0, 0, 0}},
		{{4, 4, 4, 1}, {22, 21, 21, 0}},
		{{0, 1, 1, 1}, {64, 0, 0, 0}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint32_t x[4], sum = 0;

		groups_share(4, cases[i].rate, 2, 64, x);
		for (int r = 0; r < 4; r++) {
			ck_assert_msg(x[r] == cases[i].x[r],
				      "case %zu, rank %d: %u, not %u", i, r,
				      x[r], cases[i].x[r]);
			sum += x[r];
		}
		ck_assert_uint_eq(sum, 64);
	}
}
END_TEST

/* ---- reading ---- */

static void parse(const char *text, dicomm_result_t status, const char *words)
{
	struct cluster *c = NULL;

	ck_assert_msg(cluster_parse(text, strlen(text), "f.json", &c) == status,
		      "%s", text);
	if (status == DICOMM_SUCCESS)
		cluster_free(c);
	else
		ck_assert_msg(strstr(log_last_error(), words), "%s: %s", text,
			      log_last_error());
}

START_TEST(what_is_wrong_is_named)
{
	static const char *const wrong[][2] = {
		{"", "line 1"},
		{"[]", "\"nodes\""},
		{"{\"nodes\": []}", "\"nodes\""},
		{"{\"nodes\": [1]}", "nodes[0]"},
		{"{\"nodes\": [{\"gbit\": 1}]}", "key gbit"},
		{"{\"nodes\": [{}, {\"gbit_per_s\": -1}]}", "nodes[1]"},
		{"{\"nodes\": [{\"gbit_per_s\": \"8\"}]}", "gbit_per_s"},
		{"{\"nodes\": [{\"up_gbit_per_s\": 1e9}]}", "up_gbit_per_s"},
		{"{\"nodes\": [{\"count\": 0}]}", "count"},
		{"{\"nodes\": [{\"count\": 1.5}]}", "count"},
		{"{\"nodes\": [{\"count\": 65536, \"ranks\": 1024}]}", "65536"},
		{"{\"nodes\": [{\"name\": \"a\", \"count\": 2}]}", "count"},
		{"{\"nodes\": [{\"name\": \"a\"}, {}]}", "nodes[1]: name"},
		{"{\"nodes\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}",
		 "nodes[1]: name: wanted a name of its own"},
		{"{\"nodes\": [{\"name\": 7}]}", "name: wanted a string"},
		{"{\"nodes\": [{\"island\": 1}]}", "island: wanted a string"},
		{"{\"nodes\": [{\"island\": \"x\"}]}", "island"},
		{"{\"nodes\": [{}], \"islands\": [{}]}", "islands[0]: name"},
		{"{\"nodes\": [{}], \"islands\": [{\"name\": \"x\"},"
		 " {\"name\": \"x\"}]}",
		 "islands[1]: name"},
		{"{\"nodes\": [{\"count\": 1, \"count\": 2}]}", "duplicate"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		parse(wrong[i][0], DICOMM_ERR_INVALID_ARGUMENT, wrong[i][1]);
	parse("{\"nodes\": [{}]}", DICOMM_SUCCESS, "");
	ck_assert_int_eq(
		cluster_read(path_of("none.json"), &(struct cluster *){NULL}),
		DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "none.json"));
}
END_TEST

/* However it was written, and whatever was measured. */
START_TEST(the_hash_is_of_what_it_says)
{
	static const char *const texts[] = {
		"{\"nodes\": [{\"count\": 2, \"gbit_per_s\": 8}]}",
		"{\"nodes\":[{\"gbit_per_s\":8,\n\"count\":2}]}",
		("{\"nodes\":[{\"gbit_per_s\":8,\"count\":2}],"
		 "\"measured\":{\"gbit_per_s\":[[null,8],[7,null]]}}"),
		"{\"nodes\":[{\"gbit_per_s\":8,\"count\":3}]}"};
	uint64_t hash[4];

	for (int i = 0; i < 4; i++) {
		struct cluster *c;

		ck_assert_int_eq(
			cluster_parse(texts[i], strlen(texts[i]), "f", &c),
			DICOMM_SUCCESS);
		hash[i] = cluster_hash(c);
		cluster_free(c);
	}
	ck_assert_uint_eq(hash[0], hash[1]);
	ck_assert_uint_eq(hash[0], hash[2]);
	ck_assert_uint_ne(hash[0], hash[3]);
}
END_TEST

START_TEST(nodes_are_found_by_name_or_by_order)
{
	static const uint32_t node_of[] = {0, 1, 0};
	static const char *const names[] = {"d.example.org pid 7", "a pid 9"};
	static const char *const strange[] = {"d", "e"};
	struct cluster *c = cluster_of("star_8_8_2_1.json");
	struct links *l;

	ck_assert_int_eq(cluster_links(c, "f", 3, node_of, 2, names, &l),
			 DICOMM_SUCCESS);
	ck_assert_uint_eq(links_node(l, 0)->nic.up, 125000000);
	ck_assert_uint_eq(links_node(l, 1)->nic.down, 1000000000);
	links_free(l);
	ck_assert_int_eq(cluster_links(c, "f", 3, node_of, 2, strange, &l),
			 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "called e"));
	cluster_free(c);

	/* Which two of 128 nodes they are, nobody can know. */
	c = cluster_of("four_chips.json");
	ck_assert_int_eq(cluster_links(c, "f", 3, node_of, 2, strange, &l),
			 DICOMM_SUCCESS);
	ck_assert_ptr_null(l);
	cluster_free(c);
	/* Where all are alike, that does not matter. */
	c = cluster_of("star_equal.json");
	ck_assert_int_eq(cluster_links(c, "f", 3, node_of, 2, strange, &l),
			 DICOMM_SUCCESS);
	ck_assert_uint_eq(links_node(l, 1)->nic.up, 250000000);
	links_free(l);
	cluster_free(c);
}
END_TEST

START_TEST(the_very_name_comes_first)
{
	static const char text[] =
		"{\"nodes\": [{\"name\": \"a.x\", \"gbit_per_s\": 1},"
		"{\"name\": \"a\", \"gbit_per_s\": 2},"
		"{\"name\": \"a.y\", \"gbit_per_s\": 4},"
		"{\"name\": \"b.x\", \"gbit_per_s\": 8},"
		"{\"name\": \"b.y\", \"gbit_per_s\": 8},"
		"{\"name\": \"h\\\\xf4te\", \"gbit_per_s\": 16}]}";
	static const struct {
		const char *names[2], *words; /* NULL: they are found */
		uint64_t gbit[2];
	} cases[] = {
		{{"a pid 7", "a.y pid 8"}, NULL, {2, 4}},
		/* Only the one without a domain may mean it. */
		{{"a.z pid 7", "b.y pid 8"}, NULL, {2, 8}},
		/* Not in UTF-8: as dicomm-info --topo writes it */
		{{"h\364te pid 7", "b.y pid 8"}, NULL, {16, 8}},
		{{"a.x pid 7", "b pid 8"},
		 "node b the one called b.x, or b.y",
		 {0, 0}},
		{{"a.x pid 7", "b.z pid 8"}, "no node is called b.z", {0, 0}},
		{{"a.x pid 7", "bb pid 8"}, "no node is called bb", {0, 0}},
	};
	struct cluster *c;

	ck_assert_int_eq(cluster_parse(text, strlen(text), "f", &c),
			 DICOMM_SUCCESS);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		static const uint32_t node_of[] = {0, 1};
		struct links *l = NULL;
		dicomm_result_t status = cluster_links(c, "f", 2, node_of, 2,
						       cases[i].names, &l);

		if (cases[i].words) {
			ck_assert_int_eq(status, DICOMM_ERR_INVALID_ARGUMENT);
			ck_assert_msg(strstr(log_last_error(), cases[i].words),
				      "%s", log_last_error());
			continue;
		}
		ck_assert_int_eq(status, DICOMM_SUCCESS);
		for (uint32_t n = 0; n < 2; n++)
			ck_assert_uint_eq(links_node(l, n)->nic.up,
					  cases[i].gbit[n] * 125000000);
		links_free(l);
	}
	cluster_free(c);
}
END_TEST

START_TEST(the_path_keeps_islands_together)
{
	static const uint32_t path[] = {0, 2, 1, 3};
	struct links *l = links_of("islands_two_by_two.json");

	ck_assert_uint_eq(l->islands, 2);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(l->path[i], path[i]);
		ck_assert_uint_eq(l->place[path[i]], i);
	}
	links_free(l);
}
END_TEST

/* Nobody is in the one of those who name none; and of two ranks, both are in
 * the first that has a name. */
START_TEST(islands_without_nodes_are_none)
{
	struct cluster *c = cluster_of("islands_in_order.json");
	struct links *l;

	for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
		ck_assert_int_eq(cluster_plan(c, ranks, &l), DICOMM_SUCCESS);
		ck_assert_uint_eq(l->islands, ranks / 2);
		for (uint32_t n = 0; n < ranks; n++)
			ck_assert_uint_eq(l->island_of[n], n / 2);
		for (uint32_t i = 0; i < l->islands; i++)
			ck_assert_uint_eq(l->island[i].up, 125000000);
		links_free(l);
	}
	cluster_free(c);
}
END_TEST

/* The islands of islands_two_by_two.json are of ranks 0 and 2, and 1 and 3. */
START_TEST(a_chain_ends_with_slow_nodes)
{
	static const struct {
		const char *file;
		int root, chain[4];
	} cases[] = {
		{"star_8_8_2_1.json", 0, {0, 1, 2, 3}},
		{"star_8_8_2_1.json", 2, {2, 0, 1, 3}},
		{"star_8_8_2_1.json", 3, {3, 0, 1, 2}},
		{"islands_two_by_two.json", 1, {1, 3, 0, 2}},
		{"islands_two_by_two.json", 2, {2, 0, 1, 3}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct links *l = links_of(cases[i].file);
		struct shape s = {
			.ranks = 4, .root = cases[i].root, .links = l};

		for (int k = 0; k < 4; k++) {
			s.rank = cases[i].chain[k];
			ck_assert_int_eq(shape_chain_place(&s), k);
			ck_assert_int_eq(shape_chain_rank(&s, k), s.rank);
		}
		links_free(l);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topo");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, selection_is_as_expected);
	tcase_add_test(tc, times_do_not_depend_on_what_was_asked_before);
	tcase_add_test(
		tc,
		what_was_counted_for_one_root_stays_beside_that_for_another);
	tcase_add_test(tc, a_barrier_has_no_size);
	tcase_add_test(tc, the_counts_of_alltoallv_change_no_choice);
	tcase_add_test(tc, shares_level_what_the_ways_carry);
	tcase_add_test(tc, what_is_wrong_is_named);
	tcase_add_test(tc, the_hash_is_of_what_it_says);
	tcase_add_test(tc, nodes_are_found_by_name_or_by_order);
	tcase_add_test(tc, the_very_name_comes_first);
	tcase_add_test(tc, the_path_keeps_islands_together);
	tcase_add_test(tc, islands_without_nodes_are_none);
	tcase_add_test(tc, a_chain_ends_with_slow_nodes);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
