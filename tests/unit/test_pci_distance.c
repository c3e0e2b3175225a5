/* SPDX-License-Identifier: BSD-3-Clause */
/* How far things are apart, on the machine of tests/topo/two_sockets.xml. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/topo/pci_distance.h"
#include "tests/support/runner.h"

#define GPU "0000:17:00.0"
#define NIC_AT_ITS_SWITCH "0000:18:00.0"
#define NIC_OF_ITS_PACKAGE "0000:31:00.0"
#define GPU_BY_ITSELF "0000:b1:00.0"
#define NIC_FAR_AWAY "0000:c1:00.0"
#define UNKNOWN UINT32_MAX

static void setup(void)
{
	const char *folder = getenv("srcdir");
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/topo/two_sockets.xml",
		 folder ? folder : ".");
	setenv("HWLOC_XMLFILE", path, 1);
}

static const struct {
	const char *from, *to;
	uint32_t steps;
} ways[] = {
	{GPU, GPU, 0},
	{GPU, NIC_AT_ITS_SWITCH, 2},
	{NIC_AT_ITS_SWITCH, GPU, 2},
	{GPU, NIC_OF_ITS_PACKAGE, 5},
	{GPU, NIC_FAR_AWAY, 8},
	{GPU_BY_ITSELF, NIC_FAR_AWAY, 5},
	{GPU_BY_ITSELF, NIC_OF_ITS_PACKAGE, 6},
	{GPU_BY_ITSELF, NIC_AT_ITS_SWITCH, 7},
	{GPU, "0000:99:00.0", UNKNOWN},
	{GPU, "", UNKNOWN},
	{GPU, "rubbish", UNKNOWN},
	/* Some of all cores are there. */
	{"", NIC_AT_ITS_SWITCH, 0},
	{"", NIC_OF_ITS_PACKAGE, 0},
	{"", NIC_FAR_AWAY, 0},
};

START_TEST(steps_are_counted_on_the_buses)
{
	uint32_t steps = pci_distance_steps(ways[_i].from, ways[_i].to);

	ck_assert_msg(steps == ways[_i].steps, "\"%s\" to \"%s\": %u, not %u",
		      ways[_i].from, ways[_i].to, steps, ways[_i].steps);
}
END_TEST

/* Core 0 is of the first package, as far as hwloc knows. */
START_TEST(a_thread_is_where_its_cores_are)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first))
		return; /* not given to this process */
	setenv("HWLOC_THISSYSTEM", "1", 1);
	ck_assert_uint_eq(pci_distance_steps("", NIC_AT_ITS_SWITCH), 2);
	ck_assert_uint_eq(pci_distance_steps("", NIC_OF_ITS_PACKAGE), 2);
	ck_assert_uint_eq(pci_distance_steps("", NIC_FAR_AWAY), 4);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("place");
	Suite *suite = suite_create("place");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, steps_are_counted_on_the_buses, 0,
			    (int)(sizeof(ways) / sizeof(*ways)));
	tcase_add_test(tcase, a_thread_is_where_its_cores_are);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
