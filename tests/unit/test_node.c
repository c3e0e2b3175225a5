/* SPDX-License-Identifier: BSD-3-Clause */
/* What is found of the machine that a process runs on. */
#include <check.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include "src/topo/node.h"
#include "tests/support/runner.h"

static cpu_set_t bound_to(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	return set;
}

static void bind_to_one(void)
{
	cpu_set_t set = bound_to(), one;

	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &set))
			CPU_SET(i, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
}

/* Other processes use the cores that this one is not bound to. */
START_TEST(cores_are_also_those_that_we_are_not_bound_to)
{
	cpu_set_t before = bound_to();

	bind_to_one();
	ck_assert_int_ge(node_cores(), CPU_COUNT(&before));
}
END_TEST

START_TEST(binding_stays_as_it_is)
{
	cpu_set_t before, after;

	bind_to_one();
	before = bound_to();
	node_cores();
	after = bound_to();
	ck_assert(CPU_EQUAL(&before, &after));
}
END_TEST

START_TEST(cores_are_no_more_than_are_online)
{
	ck_assert_int_ge(node_cores(), 1);
	ck_assert_int_le(node_cores(), sysconf(_SC_NPROCESSORS_ONLN));
}
END_TEST

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

static unsigned long long libraries_loaded(void)
{
	unsigned long long loaded = 0;

	dl_iterate_phdr(count, &loaded);
	return loaded;
}

/* As hwloc does with its plugins, which took most of the time of init. */
START_TEST(nothing_is_loaded_to_find_it)
{
	unsigned long long before = libraries_loaded();

	node_cores();
	node_identity();
	node_cache_bytes(2);
	ck_assert_uint_eq(libraries_loaded(), before);
}
END_TEST

START_TEST(caches_are_shared_among_ranks)
{
	size_t own = node_core_cache_bytes(), one = node_cache_bytes(1);

	ck_assert_uint_le(node_cache_bytes(2), one);
	ck_assert(!own || one <= 4 * own);
	ck_assert(!own || own >= 65536);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("node");
	Suite *suite = suite_create("node");

	tcase_add_test(tcase, cores_are_also_those_that_we_are_not_bound_to);
	tcase_add_test(tcase, binding_stays_as_it_is);
	tcase_add_test(tcase, cores_are_no_more_than_are_online);
	tcase_add_test(tcase, nothing_is_loaded_to_find_it);
	tcase_add_test(tcase, caches_are_shared_among_ranks);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
