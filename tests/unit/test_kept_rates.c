/* SPDX-License-Identifier: BSD-3-Clause */
/* What was measured between hosts, for later communicators of some of them. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/links/kept_rates.h"
#include "tests/support/runner.h"

/* Links of one rank on each host. Host h has rate x of up, x + 1 of down. */
static struct links *make(const uint64_t *hosts, uint32_t n, uint64_t x)
{
	struct links *l = links_create(n, n, n, 1);

	ck_assert_ptr_nonnull(l);
	for (uint32_t i = 0; i < n; i++) {
		l->node_of[i] = l->class_of[i] = i;
		l->class[i].nic = (struct links_pipe){x, x + 1};
		l->class[i].host = hosts[i];
	}
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	return l;
}

static void keep(const uint64_t *hosts, uint32_t n, uint64_t x)
{
	struct links *l = make(hosts, n, x);

	kept_rates_add(l);
	links_free(l);
}

#define KEEP(x, ...)                          \
	keep((const uint64_t[]){__VA_ARGS__}, \
	     sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), x)

/* The rate up of these hosts; 0: they are not all known. */
static uint64_t rate(const uint64_t *hosts, uint32_t n)
{
	struct kept_rate *of = calloc(n, sizeof(*of));
	struct links *l = make(hosts, n, 0);
	uint64_t x = 0;

	ck_assert_ptr_nonnull(of);
	if (kept_rates_look(l, of)) {
		x = of[0].nic.up;
		for (uint32_t i = 0; i < n; i++) {
			ck_assert_uint_eq(of[i].host, hosts[i]);
			ck_assert_uint_eq(of[i].nic.up, x);
			ck_assert_uint_eq(of[i].nic.down, x + 1);
		}
	}
	links_free(l);
	free(of);
	return x;
}

#define RATE(...)                             \
	rate((const uint64_t[]){__VA_ARGS__}, \
	     sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

START_TEST(some_of_the_hosts_are_known_in_any_order)
{
	ck_assert_uint_eq(RATE(7, 5), 0);
	KEEP(100, 7, 5, 9);
	ck_assert_uint_eq(RATE(7, 5, 9), 100);
	ck_assert_uint_eq(RATE(9, 7), 100);
	ck_assert_uint_eq(RATE(5), 100);
	ck_assert_uint_eq(RATE(9, 6), 0);
	ck_assert_uint_eq(RATE(9, 5, 7, 6), 0);
}
END_TEST

/* Rates of two measurements say nothing about islands. */
START_TEST(two_tables_are_not_combined)
{
	KEEP(100, 1, 2);
	KEEP(200, 2, 3);
	ck_assert_uint_eq(RATE(1, 2), 100);
	ck_assert_uint_eq(RATE(2, 3), 200);
	ck_assert_uint_eq(RATE(1, 3), 0);
	ck_assert_uint_eq(RATE(1, 2, 3), 0);
}
END_TEST

START_TEST(the_newest_rates_count)
{
	KEEP(100, 1, 2, 3);
	KEEP(200, 3, 1);
	ck_assert_uint_eq(RATE(1, 3), 200);
	ck_assert_uint_eq(RATE(1, 2, 3), 100);
	KEEP(300, 2, 3, 1);
	ck_assert_uint_eq(RATE(1, 3), 300);
	ck_assert_uint_eq(RATE(1, 2, 3), 300);
}
END_TEST

START_TEST(hosts_that_are_not_identified_are_not_kept)
{
	KEEP(100, 1, 0);
	ck_assert_uint_eq(RATE(1), 0);
	ck_assert_uint_eq(RATE(1, 0), 0);
}
END_TEST

/* Ranks of one machine that do not share memory each count as a host. */
START_TEST(a_host_may_be_there_several_times)
{
	KEEP(100, 4, 4, 4);
	ck_assert_uint_eq(RATE(4, 4), 100);
	ck_assert_uint_eq(RATE(4, 4, 4, 4), 100);
}
END_TEST

/* Hosts 1, 2 and 3, 4 are in islands; of each one alone there is no island, and
 * their rates are in the table of any of them. */
START_TEST(islands_are_kept)
{
	static const uint64_t whole[] = {1, 2, 3, 4}, some[] = {4, 2, 3};
	struct links *l = make(whole, 4, 100), *old, *made;
	struct kept_rate of[3];

	free(l->island);
	l->islands = 2;
	l->island = calloc(2, sizeof(*l->island));
	ck_assert_ptr_nonnull(l->island);
	l->island[0] = (struct links_pipe){10, 11};
	l->island[1] = (struct links_pipe){20, 21};
	l->island_of[2] = l->island_of[3] = 1;
	ck_assert_int_eq(links_finish(l, &l), DICOMM_SUCCESS);
	kept_rates_add(l);
	links_free(l);

	old = make(some, 3, 5);
	ck_assert(kept_rates_look(old, of));
	/* By hosts that are among these, as another table might say it. */
	ck_assert_uint_eq(of[0].island_of, 4);
	ck_assert_uint_eq(of[1].island_of, 2);
	ck_assert_uint_eq(of[2].island_of, 4);
	ck_assert_int_eq(kept_rates_links(old, of, &made), DICOMM_SUCCESS);
	ck_assert_uint_eq(made->islands, 2);
	ck_assert_uint_eq(made->island_of[0], made->island_of[2]);
	ck_assert_uint_ne(made->island_of[0], made->island_of[1]);
	ck_assert_uint_eq(made->island[made->island_of[0]].up, 20);
	ck_assert_uint_eq(made->island[made->island_of[1]].down, 11);
	for (uint32_t n = 0; n < 3; n++) {
		ck_assert_uint_eq(links_node(made, n)->nic.up, 100);
		ck_assert_uint_eq(links_node(made, n)->host, some[n]);
	}
	links_free(made);
	links_free(old);
}
END_TEST

/* A new table drives out the oldest one. */
START_TEST(memory_is_bounded)
{
	const uint32_t n = KEPT_RATES_HOSTS - 2;
	uint64_t *hosts = calloc(n, sizeof(*hosts));

	ck_assert_ptr_nonnull(hosts);
	for (uint32_t i = 0; i < n; i++)
		hosts[i] = 1000 + i;
	KEEP(100, 1, 2);
	KEEP(200, 3, 4);
	keep(hosts, n, 300);
	ck_assert_uint_eq(RATE(1, 2), 0);
	ck_assert_uint_eq(RATE(3, 4), 200);
	ck_assert_uint_eq(RATE(1000, 1001), 300);
	free(hosts);
}
END_TEST

START_TEST(a_child_of_fork_knows_nothing_and_may_learn)
{
	int status;
	pid_t child;

	KEEP(100, 1, 2);
	child = fork();
	if (child == 0) {
		bool right = !RATE(1, 2);

		KEEP(200, 1, 2);
		_exit(right && RATE(1, 2) == 200 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(RATE(1, 2), 100);
}
END_TEST

#define THREADS 4

static void *use(void *arg)
{
	uint64_t own = 10 + (uint64_t)(uintptr_t)arg;

	for (int i = 0; i < 200; i++) {
		KEEP(100, 1, 2);
		KEEP(100, own, 1);
		ck_assert_uint_eq(RATE(2, 1), 100);
		ck_assert_uint_eq(RATE(1, own), 100);
	}
	return NULL;
}

START_TEST(several_threads_make_communicators)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, use, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kept_rates");
	TCase *tc = tcase_create("all");

	tcase_add_test(tc, some_of_the_hosts_are_known_in_any_order);
	tcase_add_test(tc, two_tables_are_not_combined);
	tcase_add_test(tc, the_newest_rates_count);
	tcase_add_test(tc, hosts_that_are_not_identified_are_not_kept);
	tcase_add_test(tc, a_host_may_be_there_several_times);
	tcase_add_test(tc, islands_are_kept);
	tcase_add_test(tc, memory_is_bounded);
	tcase_add_test(tc, a_child_of_fork_knows_nothing_and_may_learn);
	tcase_add_test(tc, several_threads_make_communicators);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
