/* SPDX-License-Identifier: BSD-3-Clause */
/* The command `search`. */
#include "planner/search/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "planner/input/input.h"
#include "planner/output/report.h"
#include "planner/search/replan.h"

static void show_progress(double part, double best_s, void *ctx)
{
	(void)ctx;
	fprintf(stderr, "\rsearching: %3.0f %%, best about %.4f s  ",
		100 * (part < 1 ? part : 1), best_s);
}

static enum search_space space_of(const struct options *o)
{
	static const char *const names[] = {"type", "device", "auto", "every",
					    "random"};

	if (o->symmetric)
		return SEARCH_SYMMETRIC;
	for (int i = 0; i < 5; i++)
		if (!strcmp(o->space, names[i]))
			return (enum search_space)i;
	return SEARCH_AUTO;
}

static enum search_objective objective_of(const struct options *o)
{
	if (o->objective && !strcmp(o->objective, "price"))
		return SEARCH_PRICE;
	if (o->objective && !strcmp(o->objective, "tokens-per-price"))
		return SEARCH_TOKENS_PER_PRICE;
	return SEARCH_TIME;
}

static bool check_objective(const struct search *s)
{
	if (search_is_plain(s) || s->space != SEARCH_SYMMETRIC)
		return true;
	input_complain("--symmetric: wanted without --objective and limits: "
		       "such plans use all devices");
	return false;
}

/* Plan n, from 1. Nothing that differs from run to run: the same search, the
 * same file. */
static json_t *found_json(const struct options *o, const struct job *job,
			  const struct search_found *f, int n)
{
	const struct search_other best = {f->plan, f->cost, f->from};
	const struct search_other *k = n == 1 ? &best : &f->other[n - 2];
	json_t *j = plan_json(&k->plan);

	json_object_set_new(j, "found",
			    json_pack("{s:s, s:i, s:i}", "space", k->from,
				      "seed", o->seed, "rounds", o->rounds));
	json_object_set_new(j, "predicted",
			    report_json(job, &k->plan, &k->cost));
	return j;
}

/* The name of plan n: a.json, a.2.json, a.3.json; of a: a, a.2. Owned by the
 * caller; NULL: no memory. */
static char *name_plan(const char *out, int n)
{
	const char *end = strrchr(out, '.');
	char *name;
	int len;

	if (n == 1)
		return strdup(out);
	if (!end || strcmp(end, ".json"))
		end = out + strlen(out);
	len = asprintf(&name, "%.*s.%d%s", (int)(end - out), out, n, end);
	return len < 0 ? NULL : name;
}

/* Takes j over. */
static bool write_json(json_t *j, const char *file)
{
	bool good =
		j && !json_dump_file(j, file,
				     JSON_INDENT(1) | JSON_REAL_PRECISION(12));

	if (!good)
		input_complain("%s: could not be written: %m", file);
	json_decref(j);
	return good;
}

/* What a search has written, which nobody else's file says of itself. */
static bool is_found(const char *file)
{
	json_t *j = json_load_file(file, 0, NULL);
	bool found = json_object_get(j, "found") != NULL;

	json_decref(j);
	return found;
}

static void remove_found(const char *file)
{
	if (!is_found(file))
		return;
	if (!unlink(file))
		input_complain("%s: removed: a plan of an earlier search",
			       file);
	else if (errno != ENOENT)
		input_complain("%s: could not be removed: %m", file);
}

/* All that were asked for. With several, plans of an earlier search that would
 * stay beside them are removed. */
static bool write_plans(const struct options *o, const struct job *job,
			const struct search_found *f)
{
	int most = o->keep > 1 ? SEARCH_PLANS : 1;
	bool good = true;

	for (int n = 1; n <= most && good; n++) {
		char *file = name_plan(o->out, n);

		if (!file)
			return false;
		if (n <= o->keep && n <= f->others + 1)
			good = write_json(found_json(o, job, f, n), file);
		else
			remove_found(file);
		free(file);
	}
	return good;
}

static void print_json(const struct options *o, const struct job *job,
		       const struct search_found *f)
{
	json_t *j = found_json(o, job, f, 1);

	json_dumpf(j, stdout, JSON_INDENT(1));
	printf("\n");
	json_decref(j);
}

static void print_written(const struct options *o, const struct search_found *f)
{
	int n = f->others + 1 < o->keep ? f->others + 1 : o->keep;
	char *last = name_plan(o->out, n);

	printf("written to %s%s%s", o->out, n > 1 ? " to " : "",
	       n > 1 && last ? last : "");
	for (int i = 0; i < n && n > 1; i++)
		printf("%s %.4f", i ? "," : ", steps of",
		       i ? f->other[i - 1].cost.step : f->cost.step);
	printf("%s\n", n > 1 ? " s" : "");
	if (n < o->keep)
		printf("no more than %d plans of unlike steps were found, %d "
		       "were wanted\n",
		       n, o->keep);
	free(last);
}

static void print_found(const struct options *o, struct job *j,
			const struct search_found *f)
{
	const struct report_entry both[] = {
		{"best", j, &f->plan, &f->cost},
		{"runner-up", j, &f->other[0].plan, &f->other[0].cost}};

	printf("%ld drafts in %.2f s, the first possible one after %.3f s; "
	       "best of space %s\n",
	       f->drafts, f->all_s, f->first_s, f->from);
	if (f->sets)
		printf("by %s, of %d sets of devices\n",
		       o->objective ? o->objective : "time", f->sets);
	report_cost(stdout, j, &f->plan, &f->cost);
	report_stages(stdout, j, &f->plan, &f->cost);
	if (f->others) {
		printf("why the runner-up lost:\n");
		report_compare(stdout, both, 2);
	}
	if (o->out)
		print_written(o, f);
}

static bool check_keep(const struct options *o, const struct search *s)
{
	if (o->keep < 1 || o->keep > SEARCH_PLANS)
		input_complain("--keep: %d: wanted a whole number from 1 to %d",
			       o->keep, SEARCH_PLANS);
	else if (o->keep > 1 && !o->out)
		input_complain("--keep: %d: wanted with --out", o->keep);
	else if (o->keep > 1 && !search_is_plain(s))
		input_complain("--keep: %d: wanted without --objective and "
			       "limits: others are kept by time",
			       o->keep);
	else
		return true;
	return false;
}

/* A search finds by itself which pipelines are interleaved. */
static bool check_schedule(const struct search *s)
{
	if (s->schedule == PLAN_ZB_H1 && s->overlap == PLAN_BLOCKING) {
		input_complain("--schedule: zb-h1: wanted 1f1b or gpipe with "
			       "the overlap none");
		return false;
	}
	if (s->schedule != PLAN_INTERLEAVED)
		return true;
	input_complain("--schedule: interleaved: wanted 1f1b, gpipe or zb-h1 "
		       "with search: --interleave tries it");
	return false;
}

static bool check_interleave(const struct options *o, const struct search *s)
{
	char asked[16] = "any";

	if (!search_has_chunks(s))
		return true;
	if (s->interleave > 0)
		snprintf(asked, sizeof(asked), "%d", s->interleave);
	if (s->schedule != PLAN_1F1B)
		input_complain("--interleave: %s: wanted 1 with the schedule "
			       "%s",
			       asked, plan_schedule_name(s->schedule));
	else if (s->overlap == PLAN_BLOCKING)
		input_complain("--interleave: %s: wanted 1 with the overlap "
			       "none",
			       asked);
	else if (s->ahead)
		input_complain("--interleave: %s: wanted 1 with --ahead %d",
			       asked, s->ahead);
	else if (o->symmetric)
		input_complain("--interleave: %s: wanted 1 with --symmetric",
			       asked);
	else
		return true;
	return false;
}

static bool check_ahead(const struct search *s)
{
	if (!s->ahead ||
	    (s->schedule == PLAN_1F1B && s->overlap != PLAN_BLOCKING &&
	     s->overlap != PLAN_EAGER))
		return true;
	input_complain("--ahead: %d: wanted 0 with the %s %s", s->ahead,
		       s->schedule == PLAN_1F1B ? "overlap" : "schedule",
		       s->schedule == PLAN_1F1B
			       ? plan_overlap_name(s->overlap)
			       : plan_schedule_name(s->schedule));
	return false;
}

static bool check_experts(const struct search *s)
{
	const struct model *m = &s->job->model;

	if (s->experts < 2)
		return true;
	if (m->experts.count && m->experts.count % s->experts == 0 &&
	    !s->job->measured)
		return true;
	if (s->job->measured)
		input_complain("--expert-parallel: %d: wanted 1 with a profile",
			       s->experts);
	else
		input_complain("--expert-parallel: %d: wanted a divisor of the "
			       "%d experts of %s",
			       s->experts, m->experts.count, m->name);
	return false;
}

static struct search search_of(const struct options *o, struct job *j)
{
	return (struct search){
		.job = j,
		.space = space_of(o),
		.schedule = o->has_schedule ? o->schedule : PLAN_1F1B,
		.overlap = o->has_overlap ? o->overlap : PLAN_OVERLAP_P2P,
		.zero = o->zero,
		.ahead = o->ahead > 0 ? o->ahead : 0,
		.interleave = o->interleave,
		.micro_batch = o->micro_batch,
		.experts = o->experts,
		.rounds = o->rounds,
		.budget_s = o->budget_s,
		.seed = o->seed,
		.keep = o->keep > 1 ? o->keep : 2,
		.jobs = o->jobs,
		.by_memory = o->by_memory,
		.objective = objective_of(o),
		.devices_most = o->max_devices,
		.price_most = o->max_price,
		.watts_most = o->max_power,
		.step_most_s = o->max_step,
		.progress = isatty(STDERR_FILENO) ? show_progress : NULL};
}

int search_command(const struct options *o, struct job *j)
{
	struct search s = search_of(o, j);
	struct search_found f;
	int status = 0;

	if (!check_keep(o, &s) || !check_schedule(&s) || !check_ahead(&s) ||
	    !check_interleave(o, &s) || !check_experts(&s) ||
	    !check_objective(&s) || !search_has_prices(&s))
		return 6;
	if (!search_run(&s, &f))
		return 7;
	if (s.progress)
		fprintf(stderr, "\n");
	if (o->out && !write_plans(o, j, &f))
		status = 1;
	else if (o->json)
		print_json(o, j, &f);
	else
		print_found(o, j, &f);
	search_free(&f);
	return status;
}

static void print_replan(const struct options *o, struct job *j,
			 const struct plan *old, const struct search_found *f,
			 const struct replan *r)
{
	struct cost c;

	printf("from %s; ", f->from);
	if (cost_of(j, old, NULL, NULL, &c)) {
		printf("a step took %.4f s before; ", c.step);
		cost_free(&c);
	}
	printf("%.2f GiB of weights and optimizer move%s", r->moved / 0x1p30,
	       old->zero ? ", if each pipeline has all of it" : "");
	if (r->fastest_moved > r->moved)
		printf(" (%.2f for the fastest plan, %.4f s)",
		       r->fastest_moved / 0x1p30, r->fastest_s);
	printf("\n");
	if (r->gone > 0)
		printf("%.2f GiB were on lost devices only: they come from a "
		       "checkpoint\n",
		       r->gone / 0x1p30);
	report_cost(stdout, j, &f->plan, &f->cost);
	report_stages(stdout, j, &f->plan, &f->cost);
	if (o->out)
		printf("written to %s\n", o->out);
}

int search_replan_command(const struct options *o, struct job *j,
			  const struct plan *old)
{
	struct search s = search_of(o, j);
	struct search_found f;
	struct replan r = {0};
	int status = 0;

	if (plan_experts(old) > 1) {
		input_complain("replan: %s: expert_parallel: %d: wanted 1",
			       old->file, plan_experts(old));
		return 7;
	}
	s.schedule = old->schedule;
	/* Who ran chunks may have them again. */
	if (old->schedule == PLAN_INTERLEAVED) {
		s.schedule = PLAN_1F1B;
		s.interleave = -1;
	}
	s.overlap = old->overlap;
	s.ahead = old->ahead;
	s.experts = 1;
	s.zero = old->zero;
	if (s.space == SEARCH_SYMMETRIC) {
		input_complain("--symmetric: wanted without replan: such plans "
			       "use all devices");
		return 6;
	}
	if (!search_has_prices(&s) || !replan_lose(j, o->lost))
		return 6;
	if (!replan_run(&s, old, &f, &r))
		return 7;
	if (s.progress)
		fprintf(stderr, "\n");
	if (o->out && !write_plans(o, j, &f))
		status = 1;
	else if (o->json)
		print_json(o, j, &f);
	else
		print_replan(o, j, old, &f, &r);
	search_free(&f);
	return status;
}
