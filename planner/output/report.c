/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints what plans cost. */
#include "planner/output/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIB 0x1p30

static const char *device_of(const struct job *j, const struct plan_stage *s)
{
	return fleet_type(&j->fleet, s->rank[0])->name;
}

static void print_ranks(FILE *out, const struct plan_stage *s)
{
	for (int i = 0; i < s->tp; i++) {
		int run = i;

		while (run + 1 < s->tp && s->rank[run + 1] == s->rank[run] + 1)
			run++;
		fprintf(out, "%s%u", i ? "," : "", s->rank[i]);
		if (run > i)
			fprintf(out, "-%u", s->rank[run]);
		i = run;
	}
}

/* ---- one plan ---- */

static void print_share(FILE *out, const char *what, double part, double all)
{
	fprintf(out, "  %-38s %10.4f s  %5.1f %%\n", what, part,
		100 * part / all);
}

/* The pipeline that is ready last, and in it the stage with most work. */
static void find_slowest(const struct plan *p, const struct cost *c,
			 int *pipeline, int *stage)
{
	*pipeline = *stage = 0;
	for (int i = 1; i < c->pipelines; i++)
		if (c->pipeline[i].seconds > c->pipeline[*pipeline].seconds)
			*pipeline = i;
	for (int s = 1; s < p->pipeline[*pipeline].stages; s++) {
		const struct cost_stage *x = &c->pipeline[*pipeline].stage[s];
		const struct cost_stage *y =
			&c->pipeline[*pipeline].stage[*stage];

		if (x->busy + x->moving > y->busy + y->moving)
			*stage = s;
	}
}

static void print_memory(FILE *out, const struct job *j, const struct plan *p,
			 const struct cost *c)
{
	for (int t = 0; t < j->fleet.types; t++) {
		const struct memory *most = NULL;
		int at = 0, in = 0;

		for (int i = 0; i < c->pipelines; i++) {
			for (int s = 0; s < p->pipeline[i].stages; s++) {
				const struct memory *m =
					&c->pipeline[i].stage[s].memory;

				if (fleet_type(
					    &j->fleet,
					    p->pipeline[i].stage[s].rank[0]) !=
				    &j->fleet.type[t])
					continue;
				if (!most || m->total > most->total) {
					most = m;
					in = i;
					at = s;
				}
			}
		}
		if (most)
			fprintf(out,
				"  %-20s %7.2f of %7.2f GiB  (pipeline %d, "
				"stage %d)%s\n",
				j->fleet.type[t].name, most->total / GIB,
				most->limit / GIB, in, at,
				most->total > most->limit ? "  DOES NOT FIT"
							  : "");
	}
}

/* ---- devices that have nothing to do ---- */

#define RUNS_SHOWN 16

/* used[rank], or off; NULL: no memory. Free it. */
static bool *find_used(const struct job *j, const struct plan *p)
{
	bool *used = calloc(j->fleet.ranks, sizeof(*used));

	if (used)
		memcpy(used, j->fleet.off, j->fleet.ranks * sizeof(*used));

	for (int i = 0; used && i < p->pipelines; i++) {
		for (int s = 0; s < p->pipeline[i].stages; s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];

			for (int r = 0; r < st->tp; r++)
				used[st->rank[r]] = true;
		}
	}
	return used;
}

static const char *host_of(const struct job *j, uint32_t rank)
{
	return fleet_host(&j->fleet, j->fleet.links->node_of[rank]);
}

static bool are_alike(const struct job *j, uint32_t a, uint32_t b)
{
	return fleet_type(&j->fleet, a) == fleet_type(&j->fleet, b) &&
	       !strcmp(host_of(j, a), host_of(j, b));
}

static void print_idle(FILE *out, const struct job *j, const struct plan *p)
{
	bool *used = find_used(j, p);
	uint32_t idle = 0, off = 0, ranks = j->fleet.ranks;
	int runs = 0;

	for (uint32_t r = 0; used && r < ranks; r++) {
		idle += !used[r];
		off += j->fleet.off[r];
	}
	if (idle)
		fprintf(out, "idle: %u of %u devices\n", idle, ranks - off);
	for (uint32_t r = 0, end; idle && r < ranks; r = end) {
		const char *host = host_of(j, r);

		end = r + 1;
		if (used[r])
			continue;
		while (end < ranks && !used[end] && are_alike(j, r, end))
			end++;
		if (runs++ == RUNS_SHOWN)
			fprintf(out, "  and more\n");
		if (runs > RUNS_SHOWN)
			continue;
		fprintf(out, "  %-20s rank%s %u",
			fleet_type(&j->fleet, r)->name, end - r > 1 ? "s" : "",
			r);
		if (end - r > 1)
			fprintf(out, "-%u", end - 1);
		fprintf(out, "%s%s\n", *host ? " of " : "", host);
	}
	free(used);
}

static json_t *idle_json(const struct job *j, const struct plan *p)
{
	bool *used = find_used(j, p);
	json_t *list = json_array();

	for (uint32_t r = 0; used && r < j->fleet.ranks; r++)
		if (!used[r])
			json_array_append_new(list, json_integer(r));
	free(used);
	return list;
}

/* Of an hour of the devices in use; NAN if one has no price. */
static double price_of(const struct job *j, const struct plan *p)
{
	double sum = 0;

	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];

			for (int r = 0; r < st->tp; r++)
				sum += fleet_type(&j->fleet, st->rank[r])
					       ->price;
		}
	}
	return sum;
}

static void print_price(FILE *out, const struct job *j, const struct plan *p,
			const struct cost *c)
{
	double price = price_of(j, p);

	if (!isnan(price))
		fprintf(out,
			"price of the devices in use: %.4g an hour, %.4g a "
			"million tokens\n",
			price, price / 3600 / c->tokens_per_s * 1e6);
}

/* ---- the step ---- */

/* What of the passes is messages; and how many parameters there are. */
static void print_experts(FILE *out, const struct job *j, const struct plan *p,
			  const struct cost *c, int i, int s)
{
	const struct plan_pipeline *l = &p->pipeline[i];
	double route = 0;

	/* Of all that the devices of this stage hold. */
	for (s %= plan_teams(l); s < l->stages; s += plan_teams(l)) {
		const struct cost_stage *st = &c->pipeline[i].stage[s];

		route += st->route * st->routes * l->micro_batches;
	}
	if (j->model.experts.count)
		print_share(out, "  of these, tokens to experts and back",
			    route, c->step);
}

static void print_params(FILE *out, const struct model *m)
{
	double all = -model_shared_params(m), active = all;

	for (int u = 0; u < model_units(m); u++) {
		all += model_params(m, u);
		active += model_active_params(m, u);
	}
	fprintf(out, "%s: %.4g parameters", m->name, all);
	if (m->experts.count)
		fprintf(out, ", of which a token meets %.4g", active);
	if (m->tied)
		fprintf(out,
			"; in files that hold the shared matrix twice %.4g",
			all + model_shared_params(m));
	fprintf(out, "\n");
}

void report_cost(FILE *out, struct job *j, const struct plan *p,
		 const struct cost *c)
{
	const struct cost_pipeline *slow;
	const struct cost_stage *st;
	int i, s;

	find_slowest(p, c, &i, &s);
	slow = &c->pipeline[i];
	st = &slow->stage[s];
	fprintf(out,
		"step %.4f s, likely %.4f to %.4f (%s)\n"
		"%.0f tokens/s, MFU %.1f %%, HFU %.1f %%; %s, overlap %s, "
		"ZeRO %d, %d pipeline%s\n",
		c->step, c->step * (1 - c->error), c->step * (1 + c->error),
		j->measured ? "from measured times"
			    : "from peak rates and efficiencies: measure for a "
			      "narrower band",
		c->tokens_per_s, 100 * c->mfu, 100 * c->hfu,
		plan_schedule_name(p->schedule), plan_overlap_name(p->overlap),
		p->zero, c->pipelines, c->pipelines == 1 ? "" : "s");
	if (plan_experts(p) > 1)
		fprintf(out, "each %d pipelines share the experts of a block\n",
			plan_experts(p));
	if (p->capacity > 0)
		fprintf(out,
			"each expert takes at most %g times the mean of its "
			"tokens\n",
			p->capacity);
	print_params(out, &j->model);
	fprintf(out, "where it goes (pipeline %d, stage %d on %s):\n", i, s,
		device_of(j, &p->pipeline[i].stage[s]));
	print_share(out, "passes", st->busy, c->step);
	print_experts(out, j, p, c, i, s);
	print_share(out, "messages, until both sides are through", st->moving,
		    c->step);
	print_share(out, "waits for other stages (bubble)", st->idle, c->step);
	if (c->pipe > slow->seconds)
		print_share(out, "waits for the last message",
			    c->pipe - slow->seconds, c->step);
	print_share(out, "gradients, not overlapped", c->sync, c->step);
	print_share(out, "update", c->update, c->step);
	fprintf(out, "memory of the fullest device of each type:\n");
	print_memory(out, j, p, c);
	print_idle(out, j, p);
	print_price(out, j, p, c);
}

static const char *limit_of(const struct cost_stage *c)
{
	if (c->idle > c->busy && c->idle > c->moving)
		return "waits for other stages";
	if (c->moving > c->busy)
		return "messages";
	return c->memory.total > 0.95 * c->memory.limit ? "compute; memory full"
							: "compute";
}

void report_stages(FILE *out, struct job *j, const struct plan *p,
		   const struct cost *c)
{
	for (int i = 0; i < c->pipelines; i++) {
		const struct plan_pipeline *l = &p->pipeline[i];

		fprintf(out,
			"pipeline %d: %d micro-batches of %d, %.1f %% of the "
			"batch, %.4f s, bubble %.1f %%\n",
			i, l->micro_batches, l->micro_batch,
			100.0 * l->micro_batches * l->micro_batch /
				p->global_batch,
			c->pipeline[i].seconds, 100 * c->pipeline[i].bubble);
		if (plan_chunks(l) > 1)
			fprintf(out,
				"  interleave %d: stages s and s + %d are on "
				"the same devices, whose memory is told\n",
				plan_chunks(l), plan_teams(l));
		fprintf(out,
			"  %-5s %-14s %-3s %-9s %9s %9s %9s %8s %8s %8s  %s\n",
			"stage", "device", "tp", "layers", "forward ms",
			"back ms", "send ms", "sync ms", "GiB", "free",
			"limit");
		for (int s = 0; s < l->stages; s++) {
			const struct cost_stage *x = &c->pipeline[i].stage[s];
			const struct plan_stage *st = &l->stage[s];
			char layers[24];

			snprintf(layers, sizeof(layers), "%d-%d%s", st->first,
				 st->last, st->recompute ? "r" : "");
			fprintf(out,
				"  %-5d %-14s %-3d %-9s %9.3f %9.3f %9.3f "
				"%8.2f %8.2f %8.2f  %s, ranks ",
				s, device_of(j, st), st->tp, layers,
				x->forward * 1e3, x->backward * 1e3,
				x->send_s * 1e3, x->sync * 1e3,
				x->memory.total / GIB,
				(x->memory.limit - x->memory.total) / GIB,
				limit_of(x));
			print_ranks(out, st);
			fprintf(out, "\n");
		}
	}
}

/* ---- groups ---- */

/* Gradients of experts meet where the same experts are. */
static void print_expert_sums(FILE *out, const struct plan *p)
{
	int experts = plan_experts(p);

	if (experts < 2)
		return;
	fprintf(out, "of these, experts:");
	for (int e = 0; e < experts && p->pipelines > experts; e++) {
		fprintf(out, " pipelines ");
		for (int i = e; i < p->pipelines; i += experts)
			fprintf(out, "%s%d", i > e ? "+" : "", i);
	}
	fprintf(out, "%s\n",
		p->pipelines > experts ? "" : " no two have the same ones");
}

void report_groups(FILE *out, struct job *j, const struct plan *p)
{
	struct cost_group group[MODEL_UNITS_MOST];
	int n = cost_groups(p, &j->model, group);

	fprintf(out, "activations and their gradients, replicated to "
		     "replicated:\n");
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s + 1 < p->pipeline[i].stages; s++) {
			const struct plan_stage *a = &p->pipeline[i].stage[s];
			double bytes = table_boundary_bytes(
				j, p->pipeline[i].micro_batch);
			struct wire_transfer t =
				wire_boundary(&j->wire, a->rank, a->tp,
					      a[1].rank, a[1].tp, bytes);

			fprintf(out, "  pipeline %d, %d to %d: ranks ", i, s,
				s + 1);
			print_ranks(out, a);
			fprintf(out, " to ");
			print_ranks(out, a + 1);
			fprintf(out, ", %.2f MB, %.3f ms, %s\n", bytes / 1e6,
				t.seconds * 1e3,
				t.spread ? "scatter and all-gather"
					 : "leader to leader");
		}
	}
	if (plan_experts(p) > 1)
		fprintf(out,
			"tokens, to experts and back: stages of pipelines "
			"0-%d, "
			"and of each %d that follow\n",
			plan_experts(p) - 1, plan_experts(p));
	if (p->pipelines == 1)
		fprintf(out, "no gradients: there is one pipeline\n");
	else
		fprintf(out, "gradients, weighted by each pipeline's part of "
			     "the batch:\n");
	for (int g = 0; g < n && p->pipelines > 1; g++) {
		fprintf(out, "  layers %d-%d: ", group[g].first, group[g].last);
		for (int i = 0; i < p->pipelines; i++) {
			const struct plan_pipeline *l = &p->pipeline[i];
			const struct plan_stage *s =
				&l->stage[cost_stage_of(l, group[g].first)];

			fprintf(out, "%s{", i ? " + " : "");
			print_ranks(out, s);
			fprintf(out, "} x %.4f",
				(double)l->micro_batch * l->micro_batches /
					p->global_batch);
		}
		fprintf(out, "\n");
	}
	print_expert_sums(out, p);
}

/* ---- several ---- */

/* Parts of a step are compared of steps that do the same. */
static void print_why(FILE *out, const struct report_entry *best,
		      const struct report_entry *other)
{
	const struct cost *a = best->cost, *b = other->cost;
	const struct plan *p = other->plan;

	if (best->plan->seq != p->seq ||
	    best->plan->global_batch != p->global_batch)
		fprintf(out,
			"    of %d sequences of %d tokens, not %d of %d: time "
			"of a token beside time of a token%s\n",
			p->global_batch, p->seq, best->plan->global_batch,
			best->plan->seq,
			b->fits ? "" : "; does not fit into memory");
	else
		fprintf(out,
			"    %+.4f s: pipelines %+.4f, gradients %+.4f, update "
			"%+.4f%s\n",
			b->step - a->step, b->pipe - a->pipe, b->sync - a->sync,
			b->update - a->update,
			b->fits ? "" : "; does not fit into memory");
}

void report_compare(FILE *out, const struct report_entry *entry, int n)
{
	int order[64];

	if (n > 64)
		n = 64;
	for (int i = 0; i < n; i++) {
		int k = i;

		for (; k > 0 && entry[order[k - 1]].cost->tokens_per_s <
					entry[i].cost->tokens_per_s;
		     k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (int i = 0; i < n; i++) {
		const struct report_entry *best = &entry[order[0]];
		const struct report_entry *e = &entry[order[i]];
		int p, s;

		find_slowest(e->plan, e->cost, &p, &s);
		fprintf(out,
			"%-24s %10.4f s  x %.3f  %.0f tokens/s, %s, slowest "
			"pipeline %d, stage %d on %s\n",
			e->name, e->cost->step,
			best->cost->tokens_per_s / e->cost->tokens_per_s,
			e->cost->tokens_per_s,
			e->cost->fits ? "fits" : "DOES NOT FIT", p, s,
			device_of(e->job, &e->plan->pipeline[p].stage[s]));
		if (i > 0)
			print_why(out, best, e);
	}
}

json_t *report_json(const struct job *j, const struct plan *p,
		    const struct cost *c)
{
	json_t *list = json_array(), *out;
	double params = -model_shared_params(&j->model);
	double price = price_of(j, p);

	for (int i = 0; i < c->pipelines; i++) {
		json_t *stages = json_array();

		for (int s = 0; s < p->pipeline[i].stages; s++) {
			const struct cost_stage *x = &c->pipeline[i].stage[s];

			json_array_append_new(
				stages,
				json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f,"
					  " s:f, s:f, s:i}",
					  "forward_s", x->forward, "backward_s",
					  x->backward, "busy_s", x->busy,
					  "moving_s", x->moving, "idle_s",
					  x->idle, "sync_s", x->sync,
					  "send_bytes", x->send_bytes,
					  "memory_bytes", x->memory.total,
					  "limit_bytes", x->memory.limit,
					  "in_flight", x->memory.in_flight));
		}
		json_array_append_new(list,
				      json_pack("{s:f, s:f, s:o}", "seconds",
						c->pipeline[i].seconds,
						"bubble", c->pipeline[i].bubble,
						"stages", stages));
	}
	out = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:o, "
			"s:o}",
			"step_s", c->step, "pipe_s", c->pipe, "sync_s", c->sync,
			"update_s", c->update, "error", c->error,
			"tokens_per_s", c->tokens_per_s, "mfu", c->mfu, "hfu",
			c->hfu, "fits", (int)c->fits, "pipelines", list, "idle",
			idle_json(j, p));
	for (int u = 0; u < model_units(&j->model); u++)
		params += model_params(&j->model, u);
	if (out)
		json_object_set_new(out, "parameters", json_real(params));
	if (out && !isnan(price))
		json_object_set_new(out, "price_per_hour", json_real(price));
	return out;
}
