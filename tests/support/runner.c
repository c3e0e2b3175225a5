/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/runner.h"

#include <stdlib.h>

static int run(SRunner *r)
{
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int runner_main(Suite *s)
{
	return run(srunner_create(s));
}

int runner_main_here(Suite *s)
{
	SRunner *r = srunner_create(s);

	srunner_set_fork_status(r, CK_NOFORK);
	return run(r);
}
