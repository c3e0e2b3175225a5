/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of redistributions: any layouts, in every way, beside a definition in
 * plain loops. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "tests/plans/redist.h"
#include "tests/support/job.h"
#include "tests/support/layouts.h"
#include "tests/support/runner.h"

static const struct estimate_params params = {
	.latency_ps = 1000000,
	.per_message_ps = 100000,
	.bytes_per_s = 10000000000,
	.reduce_bytes_per_s = 5000000000,
	.copy_bytes_per_s = 10000000000,
	.slot_bytes = 32768,
	.node_ranks = 1,
	.node_cores = 1,
};

static const int sizes[] = {1, 2, 3, 4, 6, 8};
#define SIZES 6

static void run_layouts(unsigned seed, int m, int n, unsigned most,
			dicomm_way_t way, uint64_t staging)
{
	int larger = m > n ? m : n;
	/* All disjoint, all the same, or some of both */
	int ranks = seed % 3 == 0 ? m + n
		    : seed % 3 == 1
			    ? larger
			    : larger + (int)(seed / 3) % (m + n - larger + 1);
	struct redist_request r = {.params = params,
				   .way = way,
				   .staging = staging,
				   .ranks = ranks};
	struct layouts l;
	char text[600], what[800];

	layouts_draw(&l, seed, ranks, m, n, most);
	layouts_text(&l, text, sizeof(text));
	snprintf(what, sizeof(what), "seed %u, %d to %d of %d ranks, %s", seed,
		 m, n, ranks, text);
	r.tensors = l.tensors;
	r.n = l.n;
	redist_run(&r, what);
	layouts_free(&l);
}

/* Bar: 10,000 layouts. A case has a sixth of them. */
START_TEST(random_layouts_are_as_defined)
{
	unsigned each = job_is_sanitized() || job_is_short() ? 20 : 70;

	if (job_is_long())
		each *= 10;
	for (int k = 0; k < SIZES; k++)
		for (unsigned i = 0; i < 4 * each; i++)
			run_layouts((unsigned)_i * 100000 +
					    (unsigned)k * 10000 + i,
				    sizes[_i], sizes[k], 7,
				    (dicomm_way_t)(i % WAYS), i % 5 ? 0 : 8192);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("redistribute");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, random_layouts_are_as_defined, 0, SIZES);
	suite_add_tcase(s, t);
	return runner_main(s);
}
