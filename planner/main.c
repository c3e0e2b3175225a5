/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-plan: which device computes what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/cost/check.h"
#include "planner/input/detect.h"
#include "planner/cost/flashflex.h"
#include "planner/input/input.h"
#include "planner/options.h"
#include "planner/input/measure.h"
#include "planner/output/export.h"
#include "planner/output/report.h"
#include "planner/output/timeline.h"
#include "planner/search/command.h"

/* Exit statuses, those of dicomm-perf. */
enum { DONE = 0, FAILED = 1, USAGE = 6, NO_GOOD = 7 };

static bool need(const char *option, const void *value)
{
	if (!value)
		input_complain("%s is needed", option);
	return value != NULL;
}

static bool open_job(const struct options *o, struct job *j, int seq, int batch)
{
	if (!need("--cluster", o->cluster) || !need("--model", o->model) ||
	    !job_open(j, o->cluster, o->model, o->profile, seq, batch))
		return false;
	j->imbalance = o->imbalance;
	j->capacity = j->model.experts.count ? o->capacity : 0;
	return true;
}

/* The job of a plan. */
static bool open_job_of(const struct options *o, struct job *j,
			const struct plan *p)
{
	if (!open_job(o, j, p->seq, p->global_batch))
		return false;
	j->capacity = p->capacity;
	return true;
}

/* What the command line says goes before what the file says. */
static bool open_plan(const struct options *o, int i, struct plan *p)
{
	if (!need("--plan", o->plans > i ? o->plan[i] : NULL) ||
	    !plan_open(p, o->plan[i]))
		return false;
	if (o->has_schedule)
		p->schedule = o->schedule;
	if (o->has_overlap)
		p->overlap = o->overlap;
	if (o->has_zero)
		p->zero = o->zero;
	if (o->ahead >= 0)
		p->ahead = o->ahead;
	if (o->experts)
		p->experts = o->experts;
	if (o->capacity > 0)
		p->capacity = o->capacity;
	return true;
}

static void print_line(const char *text, void *ctx)
{
	fprintf(ctx, "%s\n", text);
}

/* Memory alone is no reason not to tell how long a step would take. */
static void print_unless_memory(const char *text, void *ctx)
{
	int *wrong = ctx;

	if (strstr(text, " GiB on each device"))
		return;
	(*wrong)++;
	input_complain("%s", text);
}

static int write_json(json_t *j, const char *file)
{
	FILE *out = file ? fopen(file, "we") : stdout;
	int status = DONE;

	if (!out) {
		input_complain("%s: %m", file);
		json_decref(j);
		return FAILED;
	}
	if (!j || json_dumpf(j, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12)))
		status = FAILED;
	fputc('\n', out);
	if (file && fclose(out))
		status = FAILED;
	if (status)
		input_complain("%s: could not be written",
			       file ? file : "output");
	json_decref(j);
	return status;
}

enum view { SIMULATE, CHECK, EXPLAIN, GROUPS };

static void print_flashflex(FILE *out, struct job *j, const struct plan *p)
{
	struct flashflex f;

	flashflex_cost(j, p, &f);
	fprintf(out,
		"step %.4f s by the cost model of FlashFlex: 1.8 x %.4f s of "
		"the slowest pipeline + 1.1 x %.4f s of gradients\nHFU %.1f "
		"%%, %.2f GiB on the fullest device\n",
		f.seconds, f.pipe, f.sync, 100 * f.hfu, f.most_memory);
}

static json_t *view_json(const struct options *o, struct job *j,
			 const struct plan *p, const struct cost *c)
{
	struct flashflex f;

	if (!o->cost)
		return report_json(j, p, c);
	flashflex_cost(j, p, &f);
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "step_s", f.seconds,
			 "pipe_s", f.pipe, "sync_s", f.sync, "hfu", f.hfu,
			 "memory_gib", f.most_memory);
}

/* To --out, or to the screen. */
static int print_cost(const struct options *o, struct job *j,
		      const struct plan *p, const struct cost *c,
		      enum view view)
{
	FILE *out = o->out ? fopen(o->out, "we") : stdout;
	int status = DONE;

	if (!out) {
		input_complain("%s: %m", o->out);
		return FAILED;
	}
	if (o->cost) {
		print_flashflex(out, j, p);
	} else if (o->export) {
		status = export_plan(out, o->export, j, p) ? DONE : NO_GOOD;
	} else {
		report_cost(out, j, p, c);
		if (view == EXPLAIN)
			report_stages(out, j, p, c);
	}
	if (o->out && fclose(out)) {
		input_complain("%s: could not be written: %m", o->out);
		status = FAILED;
	}
	return status;
}

static int view_job(const struct options *o, struct job *j, struct plan *p,
		    enum view view)
{
	struct timeline t = {0};
	struct cost c;
	int wrong = 0, status = DONE;

	if (view == CHECK) {
		wrong = check_plan(j, p, print_line, stdout);
		if (!wrong)
			printf("%s: good\n", o->plan[0]);
		return wrong ? NO_GOOD : DONE;
	}
	if (o->cost && j->model.experts.count) {
		input_complain("--cost: %s: wanted a dense model, not %s",
			       o->cost, j->model.name);
		return NO_GOOD;
	}
	if (o->cost && p->schedule != PLAN_1F1B && p->schedule != PLAN_GPIPE) {
		input_complain("--cost: %s: wanted the schedule 1f1b or "
			       "gpipe, not %s",
			       o->cost, plan_schedule_name(p->schedule));
		return NO_GOOD;
	}
	check_plan(j, p, print_unless_memory, &wrong);
	if (wrong)
		return NO_GOOD;
	if (view == GROUPS) {
		report_groups(stdout, j, p);
		return DONE;
	}
	if (!cost_of(j, p, timeline_add, &t, &c)) {
		timeline_free(&t);
		return FAILED;
	}
	if (o->json)
		status = write_json(view_json(o, j, p, &c), o->out);
	else
		status = print_cost(o, j, p, &c, view);
	if (o->trace && !timeline_trace(&t, j, p, o->trace))
		status = FAILED;
	if (o->svg && !timeline_svg(&t, j, p, &c, o->svg))
		status = FAILED;
	timeline_free(&t);
	cost_free(&c);
	return status;
}

static int view_plan(const struct options *o, enum view view)
{
	struct plan p;
	struct job j;
	int status = USAGE;

	if (!open_plan(o, 0, &p))
		return USAGE;
	if (open_job_of(o, &j, &p)) {
		status = view_job(o, &j, &p, view);
		job_close(&j);
	}
	plan_close(&p);
	return status;
}

static int simulate(const struct options *o)
{
	return view_plan(o, SIMULATE);
}

static int check(const struct options *o)
{
	return view_plan(o, CHECK);
}

static int explain(const struct options *o)
{
	return view_plan(o, EXPLAIN);
}

static int groups(const struct options *o)
{
	return view_plan(o, GROUPS);
}

/* Each by its own sequence and batch. */
struct compared {
	struct plan plan;
	struct job job;
	struct cost cost;
};

static int compare_add(const struct options *o, int i, struct compared *c)
{
	int wrong = 0;

	if (!open_plan(o, i, &c->plan))
		return USAGE;
	if (!open_job_of(o, &c->job, &c->plan)) {
		plan_close(&c->plan);
		return USAGE;
	}
	check_plan(&c->job, &c->plan, print_unless_memory, &wrong);
	if (!wrong && cost_of(&c->job, &c->plan, NULL, NULL, &c->cost))
		return DONE;
	job_close(&c->job);
	plan_close(&c->plan);
	return NO_GOOD;
}

static int compare(const struct options *o)
{
	struct compared *c = calloc(OPTIONS_PLANS, sizeof(*c));
	struct report_entry entry[OPTIONS_PLANS];
	int status = c ? DONE : FAILED, n = 0;

	if (o->plans < 2) {
		input_complain("compare: --plan: at least two are needed");
		status = USAGE;
	}
	while (!status && n < o->plans) {
		status = compare_add(o, n, &c[n]);
		if (status)
			break;
		entry[n] = (struct report_entry){o->plan[n], &c[n].job,
						 &c[n].plan, &c[n].cost};
		n++;
	}
	if (!status)
		report_compare(stdout, entry, n);
	while (n-- > 0) {
		cost_free(&c[n].cost);
		job_close(&c[n].job);
		plan_close(&c[n].plan);
	}
	free(c);
	return status;
}

static int search(const struct options *o)
{
	struct job j;
	int status;

	if (!o->global_batch || !o->seq) {
		input_complain("search: %s is needed",
			       o->seq ? "--global-batch" : "--seq");
		return USAGE;
	}
	if (!open_job(o, &j, o->seq, o->global_batch))
		return USAGE;
	status = search_command(o, &j);
	job_close(&j);
	return status;
}

static int replan(const struct options *o)
{
	struct plan p;
	struct job j;
	int status = USAGE;

	if (!need("--lost", o->lost) || !open_plan(o, 0, &p))
		return USAGE;
	if (open_job_of(o, &j, &p)) {
		int wrong = 0;

		check_plan(&j, &p, print_unless_memory, &wrong);
		status = wrong ? NO_GOOD : search_replan_command(o, &j, &p);
		job_close(&j);
	}
	plan_close(&p);
	return status;
}

static int detect(const struct options *o)
{
	json_t *cluster;

	if (!o->arguments) {
		input_complain("detect: which files of `dicomm-info --topo`?");
		return USAGE;
	}
	cluster = detect_cluster(o->argument, o->arguments, o->cluster);
	return cluster ? write_json(cluster, o->out) : USAGE;
}

static int measure(const struct options *o)
{
	struct model m;

	if (!need("--model", o->model) || !need("--device", o->device) ||
	    !need("--out", o->out) || !need("--seq", o->seq ? o : NULL) ||
	    !model_open(&m, o->model))
		return USAGE;
	if (m.experts.count || m.latent.key_value) {
		input_complain("measure: --model: %s: wanted a dense model "
			       "with keys and values of each head",
			       m.name);
		return USAGE;
	}
	return measure_profile(&m, o->seq, o->micro_batch ? o->micro_batch : 8,
			       o->device, o->python ? o->python : "python3",
			       o->out)
		       ? DONE
		       : FAILED;
}

static const struct {
	const char *name;
	int (*run)(const struct options *o);
} commands[] = {
	{"check", check},     {"compare", compare}, {"detect", detect},
	{"explain", explain}, {"groups", groups},   {"measure", measure},
	{"replan", replan},   {"search", search},   {"simulate", simulate},
};

int main(int argc, char **argv)
{
	struct options o;
	int status = USAGE;

	if (options_read(&o, argc, argv, &status)) {
		size_t i = 0, n = sizeof(commands) / sizeof(commands[0]);

		while (i < n && strcmp(o.command, commands[i].name))
			i++;
		if (i < n && o.arguments && commands[i].run != detect)
			input_complain("%s: one argument too many",
				       o.argument[0]);
		else if (i < n)
			status = commands[i].run(&o);
		else
			input_complain("%s: no such command; --help lists them",
				       o.command);
	}
	options_free(&o);
	if (fflush(stdout) || ferror(stdout))
		status = status ? status : FAILED;
	return status;
}
