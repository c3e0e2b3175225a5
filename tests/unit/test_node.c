/* SPDX-License-Identifier: BSD-3-Clause */
/* What is found of the machine that a process runs on. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/topo/node.h"
#include "tests/support/runner.h"

/* As in a container that has one of them. */
START_TEST(cores_are_those_that_there_are_for_us)
{
	setenv("HWLOC_SYNTHETIC", "package:1 core:1 pu:1", 1);
	ck_assert_int_eq(node_cores(), 1);
}
END_TEST

/* Nor more than there are at all. */
START_TEST(cores_are_no_more_than_are_online)
{
	setenv("HWLOC_SYNTHETIC", "package:64 core:64 pu:1", 1);
	ck_assert_int_eq(node_cores(), sysconf(_SC_NPROCESSORS_ONLN));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("node");
	Suite *suite = suite_create("node");

	tcase_add_test(tcase, cores_are_those_that_there_are_for_us);
	tcase_add_test(tcase, cores_are_no_more_than_are_online);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
