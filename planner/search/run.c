/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks what is asked, searches, and says why nothing was found. */
#include "planner/input/input.h"
#include "planner/search/search.h"

/* Any, whatever the limits. */
static bool has_plan(const struct search *s)
{
	struct search any = *s;
	struct search_found found;
	bool has;

	any.rounds = 1;
	has = search_spaces(&any, &found) && found.plan.pipelines;
	search_free(&found);
	return has;
}

bool search_run(const struct search *s, struct search_found *out)
{
	int batch[SEARCH_SIZES];
	bool good;

	if (s->space == SEARCH_EVERY && s->job->fleet.ranks > 8) {
		input_complain("--space every: %u devices: wanted at most 8",
			       s->job->fleet.ranks);
		return false;
	}
	if (!search_batches(s, batch)) {
		input_complain("--micro-batch: %d: wanted a divisor of the "
			       "global batch, %d",
			       s->micro_batch, s->job->global_batch);
		return false;
	}
	good = search_is_plain(s) ? search_each(s, out)
				  : search_objective(s, out);
	if (good && out->plan.pipelines)
		return true;
	if (good && !search_is_plain(s) && has_plan(s))
		input_complain("there are plans, but none within the limits of "
			       "devices, price, power and step");
	else if (good)
		search_why(s);
	search_free(out);
	return false;
}
