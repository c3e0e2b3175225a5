/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the command line. */
#include "planner/options.h"

#include <popt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"

#define USAGE 6 /* as dicomm-perf ends */

/* Commands, as bits of a set. */
enum {
	CHECK = 1,
	COMPARE = 2,
	DETECT = 4,
	EXPLAIN = 8,
	GROUPS = 16,
	MEASURE = 32,
	SEARCH = 64,
	SIMULATE = 128,
	REPLAN = 256,
	SEARCHES = SEARCH | REPLAN,
	VIEW = EXPLAIN | SIMULATE,
	PLANS = VIEW | CHECK | COMPARE | GROUPS,
};

static const struct {
	const char *name;
	unsigned bit;
} commands[] = {
	{"check", CHECK},     {"compare", COMPARE}, {"detect", DETECT},
	{"explain", EXPLAIN}, {"groups", GROUPS},   {"measure", MEASURE},
	{"replan", REPLAN},   {"search", SEARCH},   {"simulate", SIMULATE},
};

enum {
	CLUSTER = 1,
	MODEL,
	PROFILE,
	PLAN,
	GLOBAL_BATCH,
	SEQ,
	MICRO_BATCH,
	SPACE,
	SYMMETRIC,
	BY_MEMORY,
	BUDGET,
	ROUNDS,
	SEED,
	JOBS,
	KEEP,
	SCHEDULE,
	OVERLAP,
	AHEAD,
	ZERO,
	INTERLEAVE,
	COST,
	DEVICE,
	PYTHON,
	OUT,
	JSON,
	TRACE,
	SVG,
	EXPORT,
	EXPERTS,
	LOST,
	OBJECTIVE,
	MAX_DEVICES,
	MAX_PRICE,
	MAX_POWER,
	MAX_STEP,
	IMBALANCE,
	CAPACITY,
	OPTIONS
};

/* An option that a command would not look at is none of its options. */
static const unsigned used_by[OPTIONS] = {
	[CLUSTER] = PLANS | SEARCHES | DETECT,
	[MODEL] = PLANS | SEARCHES | MEASURE,
	[PROFILE] = PLANS | SEARCHES,
	[PLAN] = PLANS | REPLAN,
	[LOST] = REPLAN,
	[GLOBAL_BATCH] = SEARCH,
	[SEQ] = SEARCH | MEASURE,
	[MICRO_BATCH] = SEARCHES | MEASURE,
	[SPACE] = SEARCHES,
	[SYMMETRIC] = SEARCH,
	[BY_MEMORY] = SEARCH,
	[BUDGET] = SEARCHES,
	[ROUNDS] = SEARCHES,
	[SEED] = SEARCHES,
	[JOBS] = SEARCHES,
	[KEEP] = SEARCH,
	[SCHEDULE] = PLANS | SEARCH,
	[OVERLAP] = PLANS | SEARCH,
	[AHEAD] = PLANS | SEARCH,
	[ZERO] = PLANS | SEARCH,
	[INTERLEAVE] = SEARCH,
	[COST] = VIEW,
	[DEVICE] = MEASURE,
	[PYTHON] = MEASURE,
	[OUT] = SEARCHES | DETECT | MEASURE | VIEW,
	[JSON] = SEARCHES | VIEW,
	[TRACE] = VIEW,
	[SVG] = VIEW,
	[EXPORT] = VIEW,
	[OBJECTIVE] = SEARCH,
	[MAX_DEVICES] = SEARCH,
	[MAX_PRICE] = SEARCH,
	[MAX_POWER] = SEARCH,
	[MAX_STEP] = SEARCH,
	[EXPERTS] = PLANS | SEARCH,
	[IMBALANCE] = PLANS | SEARCH,
	[CAPACITY] = PLANS | SEARCH,
};

static const char help[] =
	"COMMAND [options]\n\n"
	"  search    find the plan that trains fastest\n"
	"  replan    a plan like --plan for what is left of its devices\n"
	"  simulate  predict the step time and memory of a plan\n"
	"  check     does a plan make sense, and fit?\n"
	"  explain   stage by stage: time, bytes, memory, what limits\n"
	"  groups    which ranks exchange activations and sum gradients\n"
	"  compare   two plans or more, side by side\n"
	"  detect FILE...  make a cluster file of files of `dicomm-info "
	"--topo`\n"
	"            and of `dicomm-perf links --save` (--cluster)\n"
	"  measure   make a profile of this machine's device (needs PyTorch)\n";

static bool read_seconds(const char *text, double *out)
{
	char *end;
	double x = strtod(text, &end);

	if (end == text || !(x > 0 && x <= 1e6))
		return false;
	if (*end == 'm' && end[1] != 's')
		x *= 60;
	*out = x;
	return !*end || !strcmp(end, "s") || !strcmp(end, "m");
}

static bool read_zero(const char *text, int *out)
{
	bool any = !strcmp(text, "any");

	*out = any ? OPTIONS_ZERO_ANY : *text - '0';
	return any || (strlen(text) == 1 && *out >= 0 && *out <= 3);
}

static bool read_interleave(const char *text, int *out)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (!strcmp(text, "any")) {
		*out = OPTIONS_INTERLEAVE_ANY;
		return true;
	}
	if (end == text || *end || n < 1 || n > PLAN_CHUNKS_MOST)
		return false;
	*out = (int)n;
	return true;
}

static char **text_of(struct options *o, int option)
{
	switch (option) {
	case CLUSTER:
		return &o->cluster;
	case MODEL:
		return &o->model;
	case PROFILE:
		return &o->profile;
	case LOST:
		return &o->lost;
	case OBJECTIVE:
		return &o->objective;
	case SPACE:
		return &o->space;
	case COST:
		return &o->cost;
	case DEVICE:
		return &o->device;
	case PYTHON:
		return &o->python;
	case OUT:
		return &o->out;
	case TRACE:
		return &o->trace;
	case SVG:
		return &o->svg;
	case EXPORT:
		return &o->export;
	default:
		return NULL;
	}
}

/* What popt leaves to us; of an option given twice, the last. False after a
 * message. */
static bool take(struct options *o, int option, char *text)
{
	char **kept = text_of(o, option);
	bool good = true;

	if (kept) {
		free(*kept);
		*kept = text;
		return true;
	}
	switch (option) {
	case PLAN:
		if (o->plans == OPTIONS_PLANS) {
			input_complain("--plan: %s: at most %d of them", text,
				       OPTIONS_PLANS);
			free(text);
			return false;
		}
		o->plan[o->plans++] = text;
		return true;
	case SCHEDULE:
		good = o->has_schedule =
			plan_schedule_parse(text, &o->schedule);
		if (!good)
			input_complain("--schedule: %s: wanted 1f1b, gpipe, "
				       "interleaved or zb-h1",
				       text);
		break;
	case OVERLAP:
		good = o->has_overlap = plan_overlap_parse(text, &o->overlap);
		if (!good)
			input_complain(
				"--overlap: %s: wanted none, send, p2p or full",
				text);
		break;
	case BUDGET:
		good = read_seconds(text, &o->budget_s);
		if (!good)
			input_complain(
				"--budget: %s: wanted a time such as 10s "
				"or 5m",
				text);
		break;
	case ZERO:
		good = read_zero(text, &o->zero);
		if (!good)
			input_complain("--zero: %s: wanted 0, 1, 2, 3 or any",
				       text);
		o->has_zero = true;
		break;
	case INTERLEAVE:
		good = read_interleave(text, &o->interleave);
		if (!good)
			input_complain("--interleave: %s: wanted any, or a "
				       "whole number from 1 to %d",
				       text, PLAN_CHUNKS_MOST);
		break;
	}
	free(text);
	return good;
}

static bool in_range(const char *name, int value, int low, int high)
{
	if (value >= low && value <= high)
		return true;
	input_complain("%s: %d: wanted a whole number from %d to %d", name,
		       value, low, high);
	return false;
}

static bool check_limits(const struct options *o)
{
	const struct {
		const char *name;
		double value;
	} limit[] = {{"--max-price", o->max_price},
		     {"--max-power", o->max_power},
		     {"--max-step", o->max_step}};

	for (size_t i = 0; i < sizeof(limit) / sizeof(limit[0]); i++) {
		if (limit[i].value >= 0 && limit[i].value <= 1e12)
			continue;
		input_complain("%s: %g: wanted a number from 0 to 1e12",
			       limit[i].name, limit[i].value);
		return false;
	}
	if (o->objective && strcmp(o->objective, "time") &&
	    strcmp(o->objective, "price") &&
	    strcmp(o->objective, "tokens-per-price")) {
		input_complain("--objective: %s: wanted time, price or "
			       "tokens-per-price",
			       o->objective);
		return false;
	}
	return in_range("--max-devices", o->max_devices, 0, 1 << 20);
}

static bool check(const struct options *o)
{
	static const char *const spaces[] = {"type", "device", "auto", "every",
					     "random"};
	bool known = false;

	for (int i = 0; i < 5; i++)
		known |= !strcmp(o->space, spaces[i]);
	if (!known) {
		input_complain("--space: %s: wanted type, device or auto",
			       o->space);
		return false;
	}
	if (o->cost && strcmp(o->cost, "flashflex")) {
		input_complain("--cost: %s: wanted flashflex", o->cost);
		return false;
	}
	if (o->cost && (o->trace || o->svg || o->export)) {
		input_complain("--cost: %s: wanted without --trace, --svg and "
			       "--export: it has no timeline",
			       o->cost);
		return false;
	}
	if (o->zero == OPTIONS_ZERO_ANY && strcmp(o->command, "search")) {
		input_complain("--zero: any: wanted 0, 1, 2 or 3 with %s",
			       o->command);
		return false;
	}
	if (!(o->imbalance >= 1 && o->imbalance <= 1e6)) {
		input_complain("--imbalance: %g: wanted 1 to 1e6",
			       o->imbalance);
		return false;
	}
	if (o->capacity != 0 && !(o->capacity >= 1 && o->capacity <= 1e6)) {
		input_complain("--capacity: %g: wanted 1 to 1e6, or 0 for that "
			       "of the plan",
			       o->capacity);
		return false;
	}
	if (!check_limits(o))
		return false;
	if (o->export && o->json) {
		input_complain("--export: %s: wanted without --json",
			       o->export);
		return false;
	}
	return in_range("--global-batch", o->global_batch, 0, 1 << 24) &&
	       in_range("--seq", o->seq, 0, 1 << 24) &&
	       in_range("--micro-batch", o->micro_batch, 0, 1 << 16) &&
	       in_range("--rounds", o->rounds, 1, 1 << 20) &&
	       in_range("--ahead", o->ahead, -1, 1024) &&
	       in_range("--expert-parallel", o->experts, 0, 1 << 16) &&
	       in_range("--seed", o->seed, 0, 1 << 30) &&
	       in_range("--jobs", o->jobs, 1, 256);
}

/* What is given is of use to the command; main() knows if that exists. */
static bool is_used(const struct options *o, const struct poptOption *option,
		    const bool *given)
{
	unsigned bit = 0, by = used_by[option->val];
	char text[128] = "";

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(o->command, commands[i].name))
			bit = commands[i].bit;
	if (!given[option->val] || !bit || by & bit)
		return true;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (!(by & commands[i].bit))
			continue;
		if (*text)
			strcat(text, ", ");
		strcat(text, commands[i].name);
	}
	input_complain("--%s: not an option of %s, but of %s", option->longName,
		       o->command, text);
	return false;
}

static bool add_argument(struct options *o, const char *text)
{
	size_t n = (size_t)o->arguments + 1;
	char **list = realloc(o->argument, n * sizeof(*list));

	if (!list)
		return false;
	o->argument = list;
	list[n - 1] = strdup(text);
	o->arguments++;
	return list[n - 1] != NULL;
}

bool options_read(struct options *o, int argc, char **argv, int *status)
{
	*o = (struct options){.rounds = 64,
			      .keep = 1,
			      .seed = 1,
			      .jobs = 1,
			      .ahead = -1,
			      .imbalance = 1};
	const struct poptOption table[] = {
		{"cluster", 'c', POPT_ARG_STRING, NULL, CLUSTER,
		 "devices and links", "FILE.json"},
		{"model", 'm', POPT_ARG_STRING, NULL, MODEL,
		 "sizes; a config.json of Hugging Face will do", "FILE.json"},
		{"profile", 'p', POPT_ARG_STRING, NULL, PROFILE,
		 "measured times of its layers", "FILE.json"},
		{"plan", '\0', POPT_ARG_STRING, NULL, PLAN,
		 "the plan (compare: several times)", "FILE.json"},
		{"global-batch", 'g', POPT_ARG_INT, &o->global_batch,
		 GLOBAL_BATCH, "sequences of a step", "N"},
		{"seq", 's', POPT_ARG_INT, &o->seq, SEQ, "tokens of a sequence",
		 "N"},
		{"micro-batch", '\0', POPT_ARG_INT, &o->micro_batch,
		 MICRO_BATCH, "this micro-batch only (else several are tried)",
		 "N"},
		{"space", '\0', POPT_ARG_STRING, NULL, SPACE,
		 "type: one device type a stage; device: any; auto: both",
		 "NAME"},
		{"symmetric", '\0', POPT_ARG_NONE, &o->symmetric, SYMMETRIC,
		 "equal pipelines and stages only, as Megatron runs them",
		 NULL},
		{"layers-by-memory", '\0', POPT_ARG_NONE, &o->by_memory,
		 BY_MEMORY,
		 "split layers by memory, not by time, to compare with", NULL},
		{"budget", '\0', POPT_ARG_STRING, NULL, BUDGET,
		 "search so long (else for --rounds)", "TIME"},
		{"rounds", '\0', POPT_ARG_INT, &o->rounds, ROUNDS,
		 "rounds of local moves for each start (64)", "N"},
		{"lost", '\0', POPT_ARG_STRING, NULL, LOST,
		 "replan: ranks such as 4,8-11, or names of hosts", "LIST"},
		{"objective", '\0', POPT_ARG_STRING, NULL, OBJECTIVE,
		 "time of a step, price of the devices in use, or "
		 "tokens-per-price",
		 "NAME"},
		{"max-devices", '\0', POPT_ARG_INT, &o->max_devices,
		 MAX_DEVICES, "so many in use at most", "N"},
		{"max-price", '\0', POPT_ARG_DOUBLE, &o->max_price, MAX_PRICE,
		 "of an hour of these", "X"},
		{"max-power", '\0', POPT_ARG_DOUBLE, &o->max_power, MAX_POWER,
		 "of these, by their watts", "WATTS"},
		{"max-step", '\0', POPT_ARG_DOUBLE, &o->max_step, MAX_STEP,
		 "of a step", "SECONDS"},
		{"seed", '\0', POPT_ARG_INT, &o->seed, SEED,
		 "of random choices", "N"},
		{"jobs", 'j', POPT_ARG_INT, &o->jobs, JOBS, "threads (1)", "N"},
		{"keep", '\0', POPT_ARG_INT, &o->keep, KEEP,
		 "write the N best plans: FILE.json, FILE.2.json and so on",
		 "N"},
		{"schedule", '\0', POPT_ARG_STRING, NULL, SCHEDULE,
		 "1f1b, gpipe, interleaved or zb-h1 (that of the plan)",
		 "NAME"},
		{"overlap", '\0', POPT_ARG_STRING, NULL, OVERLAP,
		 "of messages and passes: none, send, p2p or full", "NAME"},
		{"ahead", '\0', POPT_ARG_INT, &o->ahead, AHEAD,
		 "1f1b: so many more micro-batches in flight for "
		 "each later stage, to hide messages",
		 "N"},
		{"zero", '\0', POPT_ARG_STRING, NULL, ZERO,
		 "what replicas share: 0 to 3 (that of the plan; search: 0); "
		 "any: search tries all",
		 "N"},
		{"interleave", '\0', POPT_ARG_STRING, NULL, INTERLEAVE,
		 "chunks of layers that each device may have, if that is "
		 "faster (1); any: 2, 4, ... are tried",
		 "N"},
		{"expert-parallel", '\0', POPT_ARG_INT, &o->experts, EXPERTS,
		 "pipelines that share the experts of each block (that of the "
		 "plan; search tries all)",
		 "N"},
		{"imbalance", '\0', POPT_ARG_DOUBLE, &o->imbalance, IMBALANCE,
		 "of devices that share experts, what the busiest one has to "
		 "do, times the mean (1)",
		 "X"},
		{"capacity", '\0', POPT_ARG_DOUBLE, &o->capacity, CAPACITY,
		 "what experts take at most, times the mean; the rest is "
		 "dropped (that of the plan; search: nothing is)",
		 "X"},
		{"cost", '\0', POPT_ARG_STRING, NULL, COST,
		 "flashflex: predict by the cost model of FlashFlex", "NAME"},
		{"device", '\0', POPT_ARG_STRING, NULL, DEVICE,
		 "measure: the device type's name in the cluster file", "NAME"},
		{"python", '\0', POPT_ARG_STRING, NULL, PYTHON,
		 "measure: a Python that has PyTorch (python3)", "PROGRAM"},
		{"out", 'o', POPT_ARG_STRING, NULL, OUT,
		 "write here, not to the screen", "FILE"},
		{"json", '\0', POPT_ARG_NONE, &o->json, JSON,
		 "print results as JSON", NULL},
		{"trace", '\0', POPT_ARG_STRING, NULL, TRACE,
		 "write a timeline for chrome://tracing or Perfetto",
		 "FILE.json"},
		{"svg", '\0', POPT_ARG_STRING, NULL, SVG, "draw the pipelines",
		 "FILE.svg"},
		{"export", '\0', POPT_ARG_STRING, NULL, EXPORT,
		 "print the plan for flagscale, megatron or torch, or a "
		 "hostfile, slurm script or jobset that starts it",
		 "NAME"},
		POPT_AUTOHELP POPT_TABLEEND,
	};
	poptContext context =
		poptGetContext(NULL, argc, (const char **)argv, table, 0);
	const char *text;
	bool good = true, given[OPTIONS] = {false};
	int option;

	poptSetOtherOptionHelp(context, help);
	*status = USAGE;
	while (good && (option = poptGetNextOpt(context)) > 0) {
		given[option] = true;
		good = take(o, option, poptGetOptArg(context));
	}
	if (good && option < -1) {
		input_complain("%s: %s", poptBadOption(context, 0),
			       poptStrerror(option));
		good = false;
	}
	if (!o->space)
		o->space = strdup("auto");
	text = good ? poptGetArg(context) : NULL;
	o->command = text ? argv[0] : NULL;
	for (int i = 1; text && i < argc; i++)
		if (!strcmp(argv[i], text))
			o->command = argv[i];
	while (good && o->command && (text = poptGetArg(context)))
		good = add_argument(o, text);
	if (good && !o->command) {
		poptPrintHelp(context, stderr, 0);
		good = false;
	}
	for (int i = 0; good && table[i].longName; i++)
		good = is_used(o, &table[i], given);
	poptFreeContext(context);
	return good && o->space && check(o);
}

void options_free(struct options *o)
{
	for (int i = 0; i < o->plans; i++)
		free(o->plan[i]);
	free(o->cluster);
	free(o->model);
	free(o->profile);
	free(o->out);
	free(o->trace);
	free(o->svg);
	free(o->export);
	free(o->cost);
	free(o->objective);
	free(o->lost);
	for (int i = 0; i < o->arguments; i++)
		free(o->argument[i]);
	free(o->argument);
	free(o->device);
	free(o->python);
	free(o->space);
}
