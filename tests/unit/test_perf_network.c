/* SPDX-License-Identifier: BSD-3-Clause */
/* What is concluded from rates between hosts. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perftest/links/network.h"
#include "tests/support/runner.h"

#define HOSTS 4

/* A network that is known, measured without error. */
struct known {
	double way[HOSTS]; /* both ways */
	int island[HOSTS];
	double island_way; /* of each; 0: there are none */
};

static double least(double a, double b)
{
	return a < b ? a : b;
}

/* Each host sends to the one `shift` on; flows that leave an island, or enter
 * it, share its way. */
static double together(const struct known *k, int from, int to)
{
	int shift = (to - from + HOSTS) % HOSTS, out = 0, in = 0;
	double rate = least(k->way[from], k->way[to]);

	if (k->island_way <= 0 || k->island[from] == k->island[to])
		return rate;
	for (int h = 0; h < HOSTS; h++) {
		int peer = (h + shift) % HOSTS;

		if (k->island[h] == k->island[peer])
			continue;
		out += k->island[h] == k->island[from];
		in += k->island[peer] == k->island[to];
	}
	return least(rate, k->island_way / (out > in ? out : in));
}

static void measure(struct network *n, const struct known *k)
{
	static const char *const names[] = {"a", "b", "c", "d"};

	ck_assert(network_create(n, HOSTS));
	for (int h = 0; h < HOSTS; h++) {
		n->name[h] = names[h];
		n->ranks[h] = 1 + h;
		n->up[h] = n->down[h] = k->way[h];
		for (int to = 0; to < HOSTS; to++) {
			double rate = least(k->way[h], k->way[to]);

			if (k->island_way > 0 && k->island[h] != k->island[to])
				rate = least(rate, k->island_way);
			n->latency[h * HOSTS + to] = 1e-5 * (1 + to);
			n->alone[h * HOSTS + to] = rate;
			n->together[h * HOSTS + to] = together(k, h, to);
		}
	}
	network_find_islands(n);
	for (int i = 0; i < n->islands; i++)
		n->island_up[i] = n->island_down[i] = k->island_way;
	network_drop_islands(n);
}

static const struct {
	struct known known;
	int islands, island[HOSTS];
} cases[] = {
	/* Unlike ways alone are no islands. */
	{{{8e9, 8e9, 2e9, 1e9}, {0}, 0}, 1, {0}},
	{{{2e9, 2e9, 2e9, 2e9}, {0}, 0}, 1, {0}},
	/* Narrower than the way of one host: seen by each pair. */
	{{{8e9, 8e9, 8e9, 8e9}, {0, 0, 1, 1}, 1e9}, 2, {0, 0, 1, 1}},
	{{{8e9, 8e9, 8e9, 8e9}, {0, 1, 0, 1}, 1e9}, 2, {0, 1, 0, 1}},
	/* As wide as that of one: seen when all are busy only. */
	{{{8e9, 8e9, 8e9, 8e9}, {0, 0, 1, 1}, 8e9}, 2, {0, 0, 1, 1}},
	{{{8e9, 8e9, 8e9, 8e9}, {0, 1, 0, 1}, 8e9}, 2, {0, 1, 0, 1}},
	/* The way of an island of one is that of its host. */
	{{{8e9, 8e9, 8e9, 4e9}, {0, 0, 0, 1}, 1e9}, 1, {0}},
};

START_TEST(islands_are_found)
{
	struct network n;

	measure(&n, &cases[_i].known);
	ck_assert_int_eq(n.islands, cases[_i].islands);
	for (int h = 0; h < HOSTS; h++)
		ck_assert_int_eq(n.island[h], cases[_i].island[h]);
	network_destroy(&n);
}
END_TEST

/* Two hosts of 8 send as much to one of 4 each: it takes as long. */
START_TEST(ways_of_hosts_are_no_island)
{
	ck_assert(network_is_wide(2.0, 2.0));
	ck_assert(network_is_wide(2.1, 2.0));
	ck_assert(!network_is_wide(3.0, 2.0));
}
END_TEST

static void has(const char *text, const char *words)
{
	ck_assert_msg(strstr(text, words), "no %s in %s", words, text);
}

static void save(const struct known *k, char *text, size_t len)
{
	char path[] = "/tmp/test_perf_network.XXXXXX";
	struct network n;
	FILE *f;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	measure(&n, k);
	ck_assert_int_eq(network_save(&n, path), 0);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	text[fread(text, 1, len - 1, f)] = '\0';
	fclose(f);
	unlink(path);
	ck_assert_int_lt(network_save(&n, "/nowhere/at/all.json"), 0);
	network_destroy(&n);
}

START_TEST(the_file_says_what_is_known)
{
	char text[16384];

	save(&cases[0].known, text, sizeof(text));
	has(text, "\"name\": \"d\"");
	has(text, "\"ranks\": 4");
	has(text, "\"up_gbit_per_s\": 64.0");
	has(text, "\"latency_us\": 40.0");
	ck_assert_ptr_null(strstr(text, "island"));
	save(&cases[2].known, text, sizeof(text));
	has(text, "\"island\": \"island1\"");
	has(text, "\"up_gbit_per_s\": 8.0");
}
END_TEST

START_TEST(hosts_of_one_name_go_by_their_order)
{
	char path[] = "/tmp/test_perf_network.XXXXXX", text[16384];
	struct network n;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	measure(&n, &cases[0].known);
	n.name[2] = n.name[0];
	ck_assert_int_eq(network_save(&n, path), 0);
	text[read(fd, text, sizeof(text) - 1)] = '\0';
	has(text, "\"ranks\": 4");
	ck_assert_ptr_null(strstr(text, "\"name\""));
	close(fd);
	unlink(path);
	network_destroy(&n);
}
END_TEST

/* What network_print() says. */
static void print(const struct network *n, char *text, size_t len)
{
	FILE *captured = tmpfile();
	int saved = dup(STDOUT_FILENO);

	ck_assert_ptr_nonnull(captured);
	fflush(stdout);
	ck_assert_int_ge(dup2(fileno(captured), STDOUT_FILENO), 0);
	network_print(n);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(captured);
	text[fread(text, 1, len - 1, captured)] = '\0';
	fclose(captured);
}

/* As clouds call them, so that each is known by its end. */
START_TEST(names_of_hosts_are_whole)
{
	static const char *const names[] = {"ip-10-0-114-101", "ip-10-0-114-2",
					    "ip-10-0-114-103", "d"};
	char text[16384];
	struct network n;

	measure(&n, &cases[2].known);
	for (int h = 0; h < HOSTS; h++)
		n.name[h] = names[h];
	print(&n, text, sizeof(text));
	has(text, "\n#               ip-10-0-114-101   ip-10-0-114-2 "
		  "ip-10-0-114-103               d\n");
	has(text, "\nip-10-0-114-2                64               -"
		  "               8               8\n");
	has(text, "\n#                       up       down");
	has(text, "\nip-10-0-114-103         64         64");
	network_destroy(&n);
}
END_TEST

/* Two islands, of which one is as wide as its hosts' ways. */
START_TEST(what_is_not_there_has_no_rate)
{
	char text[16384];
	struct network n;

	measure(&n, &cases[2].known);
	n.island_up[1] = n.island_down[1] = 0;
	n.inside[1] = 2e9;
	print(&n, text, sizeof(text));
	has(text, "\na                    64         64          -      1"
		  "      0\n");
	has(text, "\nb                    64         64         16      2"
		  "      0\n");
	has(text, "\n0                     8          8\n"
		  "1                     -          -\n");
	network_destroy(&n);
}
END_TEST

static double measured(json_t *root, const char *key, size_t from, size_t to)
{
	json_t *rows = json_object_get(json_object_get(root, "measured"), key);
	json_t *v = json_array_get(json_array_get(rows, from), to);

	ck_assert_uint_eq(json_array_size(rows), HOSTS);
	ck_assert_msg(from == to ? json_is_null(v) : json_is_number(v),
		      "%s from %zu to %zu", key, from, to);
	return json_number_value(v);
}

/* Of two islands, so that a flow is slower while all are busy. */
START_TEST(the_file_says_what_was_measured)
{
	const struct known *k = &cases[4].known;
	char text[16384];
	json_t *root;

	save(k, text, sizeof(text));
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(root);
	for (int i = 0; i < HOSTS * HOSTS; i++) {
		int from = i / HOSTS, to = i % HOSTS;
		double latency, alone, busy;

		latency =
			measured(root, "latency_us", (size_t)from, (size_t)to);
		alone = measured(root, "gbit_per_s", (size_t)from, (size_t)to);
		busy = measured(root, "together_gbit_per_s", (size_t)from,
				(size_t)to);
		if (from == to)
			continue;
		ck_assert_double_eq_tol(latency, 10 * (1 + to), 0.01);
		ck_assert_double_eq_tol(alone, 64, 0.01);
		ck_assert_double_eq_tol(busy, together(k, from, to) * 8e-9,
					0.01);
	}
	json_decref(root);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("network");
	TCase *tc = tcase_create("all");

	tcase_add_loop_test(tc, islands_are_found, 0,
			    sizeof(cases) / sizeof(*cases));
	tcase_add_test(tc, ways_of_hosts_are_no_island);
	tcase_add_test(tc, names_of_hosts_are_whole);
	tcase_add_test(tc, what_is_not_there_has_no_rate);
	tcase_add_test(tc, the_file_says_what_is_known);
	tcase_add_test(tc, hosts_of_one_name_go_by_their_order);
	tcase_add_test(tc, the_file_says_what_was_measured);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
