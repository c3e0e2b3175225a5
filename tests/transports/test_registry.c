/* SPDX-License-Identifier: BSD-3-Clause */
/* A list of as many transports as the library takes, in place of that of
 * transports/registry.c: the last one works, too. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "transports/defaults.h"
#include "transports/transport.h"

static bool spare_usable(char *why, size_t len)
{
	snprintf(why, len, "it only takes a place in the list");
	return false;
}

static const struct transport spare = {.name = "spare",
				       .usable = spare_usable,
				       .mem_support = defaults_mem_support};

extern const struct transport transport_shm, transport_tcp;

const struct transport *const transports[TP_TRANSPORTS + 1] = {
	&spare, &spare, &spare,         &spare,
	&spare, &spare, &transport_shm, &transport_tcp};
_Static_assert(TP_TRANSPORTS == 8, "the list above is to be full");

const struct transport *transport_find(const char *name)
{
	for (int i = 0; transports[i]; i++)
		if (!strcmp(transports[i]->name, name))
			return transports[i];
	return NULL;
}

static void use_last(struct job_rank *me)
{
	enum { N = 1 << 16 };
	float *numbers = malloc(N * sizeof(*numbers));

	JOB_CHECK(numbers, "no memory");
	for (int i = 0; i < N; i++)
		numbers[i] = (float)(me->rank + 1);
	JOB_TRY(dicomm_allreduce(numbers, numbers, N, DICOMM_FLOAT32,
				 DICOMM_SUM, me->comm, NULL));
	for (int i = 0; i < N; i++)
		JOB_CHECK(numbers[i] == 3, "[%d] is %g", i, numbers[i]);
	free(numbers);
}

START_TEST(the_last_of_a_full_list_is_used)
{
	job_run(&(struct job){.run = use_last,
			      .ranks = 2,
			      .threads = _i == 1,
			      .env = {"DICOMM_TRANSPORTS=tcp"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry");
	TCase *tcase = tcase_create("list");

	tcase_add_loop_test(tcase, the_last_of_a_full_list_is_used, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
