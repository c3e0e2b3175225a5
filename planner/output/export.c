/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes plans for FlagScale, Megatron-LM and torchrun. */
#include "planner/output/export.h"

#include <string.h>

#include "planner/input/input.h"
#include "planner/output/launch.h"

static bool alike(const char *format, const struct plan *p)
{
	const struct plan_pipeline *a = &p->pipeline[0];

	for (int i = 1; i < p->pipelines; i++) {
		if (plan_chunks(&p->pipeline[i]) == plan_chunks(a))
			continue;
		input_complain("--export %s: pipelines[%d].interleave: %d: "
			       "wanted that of pipeline 0, %d",
			       format, i, plan_chunks(&p->pipeline[i]),
			       plan_chunks(a));
		return false;
	}

	for (int i = 1; i < p->pipelines; i++) {
		const struct plan_pipeline *b = &p->pipeline[i];

		if (a->stages != b->stages ||
		    a->micro_batch != b->micro_batch ||
		    a->micro_batches != b->micro_batches) {
			input_complain("--export %s: pipelines[%d]: %d stages, "
				       "%d micro-batches of %d: wanted those "
				       "of pipeline 0 (%d, %d of %d)",
				       format, i, b->stages, b->micro_batches,
				       b->micro_batch, a->stages,
				       a->micro_batches, a->micro_batch);
			return false;
		}
		for (int s = 0; s < a->stages; s++) {
			const struct plan_stage *x = &a->stage[s];
			const struct plan_stage *y = &b->stage[s];

			if (x->tp == y->tp && x->last == y->last &&
			    x->recompute == y->recompute)
				continue;
			input_complain("--export %s: pipelines[%d].stages[%d]: "
				       "tp %d, layers to %d: wanted those of "
				       "pipeline 0 (%d, %d)",
				       format, i, s, y->tp, y->last, x->tp,
				       x->last);
			return false;
		}
	}
	if (p->schedule == PLAN_ZB_H1) {
		input_complain("--export %s: schedule: zb-h1: wanted 1f1b",
			       format);
		return false;
	}
	if (p->ahead) {
		input_complain("--export %s: ahead: %d: wanted 0", format,
			       p->ahead);
		return false;
	}
	if (plan_experts(p) > 1 && !strcmp(format, "flagscale")) {
		input_complain("--export %s: expert_parallel: %d: wanted 1",
			       format, plan_experts(p));
		return false;
	}
	return true;
}

/* Transformer blocks of a stage: the embedding and the head go with the first
 * and the last of them. */
static int blocks(const struct job *j, const struct plan_stage *s)
{
	int first = s->first < 1 ? 1 : s->first;
	int last = s->last > j->model.layers ? j->model.layers : s->last;

	return last < first ? 0 : last - first + 1;
}

static bool export_flagscale(FILE *out, const struct job *j,
			     const struct plan *p)
{
	const struct plan_pipeline *l = &p->pipeline[0];
	const char *comma = "";

	if (!alike("flagscale", p))
		return false;
	if (plan_chunks(l) > 1) {
		input_complain("--export flagscale: pipelines[0].interleave: "
			       "%d: wanted 1: chips that are not alike run "
			       "1f1b there",
			       plan_chunks(l));
		return false;
	}
	fprintf(out, "# dicomm-plan: under train.system of FlagScale\n"
		     "hetero:\n  enable_hetero: True\n"
		     "  hetero_pipeline_layer_split: [");
	for (int s = 0; s < l->stages; s++)
		fprintf(out, "%s%d", s ? ", " : "", blocks(j, &l->stage[s]));
	/* Neighbours of one degree and type are one mesh. */
	fprintf(out, "]\n  # tp, cp, ep, dp, pp of each mesh\n"
		     "  hetero_process_meshes: [");
	for (int s = 0, end; s < l->stages; s = end) {
		const struct fleet_type *type =
			fleet_type(&j->fleet, l->stage[s].rank[0]);

		for (end = s + 1; end < l->stages; end++)
			if (l->stage[end].tp != l->stage[s].tp ||
			    fleet_type(&j->fleet, l->stage[end].rank[0]) !=
				    type)
				break;
		fprintf(out, "%s%d, 1, 1, %d, %d", comma, l->stage[s].tp,
			p->pipelines, end - s);
		comma = ", ";
	}
	fprintf(out, "]\n  hetero_device_types: [");
	comma = "";
	for (int s = 0; s < l->stages; s++) {
		const struct fleet_type *type =
			fleet_type(&j->fleet, l->stage[s].rank[0]);

		if (s &&
		    type == fleet_type(&j->fleet, l->stage[s - 1].rank[0]) &&
		    l->stage[s].tp == l->stage[s - 1].tp)
			continue;
		fprintf(out, "%s\"%s\"", comma, type->name);
		comma = ", ";
	}
	fprintf(out,
		"]\npipeline_model_parallel_size: %d\nmicro_batch_size: %d\n"
		"global_batch_size: %d\nseq_length: %d\n",
		l->stages, l->micro_batch, p->global_batch, p->seq);
	fprintf(out, "recompute_granularity_per_stage_micro_batch: [");
	for (int s = 0; s < l->stages; s++)
		fprintf(out, "%s[1, %d, %d]", s ? ", " : "", l->micro_batches,
			l->stage[s].recompute);
	fprintf(out, "]\nuse_distributed_optimizer: %s\n",
		p->zero ? "True" : "False");
	return true;
}

/* Which blocks have experts: all, unless Megatron is told. */
static void print_mixed(FILE *out, const struct model *m)
{
	const struct experts *e = &m->experts;

	if (!e->dense && e->every == 1)
		return;
	fprintf(out, " \\\n--moe-layer-freq \"[");
	for (int at = 0; at < m->layers; at++)
		fprintf(out, "%s%d", at ? "," : "", experts_has(e, at));
	fprintf(out, "]\"");
}

/* Megatron trains experts whose matrices are split with sequence parallelism
 * only; all are as wide as a dense block, and none is shared by all tokens,
 * unless it is told. */
static void print_experts(FILE *out, const struct model *m,
			  const struct plan *p)
{
	fprintf(out,
		" \\\n--num-experts %d --moe-router-topk %d "
		"--expert-model-parallel-size %d",
		m->experts.count, m->experts.active, plan_experts(p));
	if (m->experts.width != m->ffn)
		fprintf(out, " --moe-ffn-hidden-size %d", m->experts.width);
	if (plan_experts(p) > 1 || p->capacity > 0)
		fprintf(out, " --moe-token-dispatcher-type alltoall");
	if (p->capacity > 0)
		fprintf(out, " --moe-expert-capacity-factor %g", p->capacity);
	if (m->experts.shared)
		fprintf(out, " --moe-shared-expert-intermediate-size %d%s",
			m->experts.shared,
			m->experts.shared_gate ? " --moe-shared-expert-gate"
					       : "");
	print_mixed(out, m);
	if (p->pipeline[0].stage[0].tp > 1)
		fprintf(out, " --sequence-parallel");
}

static bool export_megatron(FILE *out, const struct job *j,
			    const struct plan *p)
{
	const struct plan_pipeline *l = &p->pipeline[0];
	bool again = false, all = true;

	if (!alike("megatron", p))
		return false;
	for (int s = 0; s < l->stages; s++) {
		again |= l->stage[s].recompute;
		all &= l->stage[s].recompute;
		if (l->stage[s].tp == l->stage[0].tp)
			continue;
		input_complain("--export megatron: stages[%d].tp: %d: wanted "
			       "one degree for all stages, %d",
			       s, l->stage[s].tp, l->stage[0].tp);
		return false;
	}
	if (again && !all) {
		input_complain("--export megatron: recompute: wanted in all "
			       "stages, or none");
		return false;
	}
	fprintf(out,
		"--tensor-model-parallel-size %d \\\n"
		"--pipeline-model-parallel-size %d \\\n"
		"--pipeline-model-parallel-layout \"",
		l->stage[0].tp, plan_teams(l));
	/* Of more stages than that, Megatron runs the interleaved schedule. */
	for (int s = 0; s < l->stages; s++) {
		int n = blocks(j, &l->stage[s]);

		fprintf(out, "%s%s", s ? "|" : "", s ? "" : "E");
		if (n)
			fprintf(out, "t*%d", n);
	}
	fprintf(out,
		"L\" \\\n--micro-batch-size %d \\\n--global-batch-size %d "
		"\\\n--seq-length %d%s%s",
		l->micro_batch, p->global_batch, p->seq,
		all ? " \\\n--recompute-granularity full "
		      "--recompute-method uniform --recompute-num-layers 1"
		    : "",
		p->zero ? " \\\n--use-distributed-optimizer" : "");
	if (j->model.experts.count)
		print_experts(out, &j->model, p);
	fprintf(out, "\n");
	return true;
}

/* What a rank has of each of the stages of its team. */
static json_t *chunks_json(const struct plan_pipeline *l, int team)
{
	json_t *list = json_array();

	for (int s = team; s < l->stages; s += plan_teams(l))
		json_array_append_new(list,
				      json_pack("{s:i, s:[i, i], s:b}", "stage",
						s, "layers", l->stage[s].first,
						l->stage[s].last, "recompute",
						l->stage[s].recompute));
	return list;
}

static json_t *rank_json(const struct plan *p, int i, int s, int r)
{
	const struct plan_pipeline *l = &p->pipeline[i];
	const struct plan_stage *st = &l->stage[s];
	json_t *group = json_array();

	for (int k = 0; k < st->tp; k++)
		json_array_append_new(group, json_integer(st->rank[k]));
	/* Without the keys of one stage: who does not know of several fails. */
	if (plan_chunks(l) > 1)
		return json_pack("{s:i, s:i, s:i, s:o, s:i, s:o, s:i, s:i, "
				 "s:f}",
				 "pipeline", i, "stages", l->stages, "tp_rank",
				 r, "tp_group", group, "interleave",
				 plan_chunks(l), "chunks", chunks_json(l, s),
				 "micro_batch", l->micro_batch, "micro_batches",
				 l->micro_batches, "weight",
				 (double)l->micro_batch * l->micro_batches /
					 p->global_batch);
	return json_pack(
		"{s:i, s:i, s:i, s:i, s:o, s:[i, i], s:b, s:i, s:i, s:f}",
		"pipeline", i, "stage", s, "stages", l->stages, "tp_rank", r,
		"tp_group", group, "layers", st->first, st->last, "recompute",
		st->recompute, "micro_batch", l->micro_batch, "micro_batches",
		l->micro_batches, "weight",
		(double)l->micro_batch * l->micro_batches / p->global_batch);
}

static bool export_torch(FILE *out, const struct job *j, const struct plan *p)
{
	json_t *ranks = json_object(), *all;
	char name[16];

	(void)j;
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < plan_teams(&p->pipeline[i]); s++) {
			const struct plan_stage *st = &p->pipeline[i].stage[s];

			for (int r = 0; r < st->tp; r++) {
				snprintf(name, sizeof(name), "%u", st->rank[r]);
				json_object_set_new(ranks, name,
						    rank_json(p, i, s, r));
			}
		}
	}
	all = json_pack("{s:i, s:i, s:i, s:s, s:o}", "version", 1,
			"global_batch", p->global_batch, "sequence", p->seq,
			"schedule", plan_schedule_name(p->schedule), "ranks",
			ranks);
	if (p->ahead)
		json_object_set_new(all, "ahead", json_integer(p->ahead));
	if (plan_experts(p) > 1)
		json_object_set_new(all, "expert_parallel",
				    json_integer(plan_experts(p)));
	if (p->capacity > 0)
		json_object_set_new(all, "capacity", json_real(p->capacity));
	json_dumpf(all, out, JSON_INDENT(1));
	fputc('\n', out);
	json_decref(all);
	return true;
}

bool export_plan(FILE *out, const char *format, const struct job *j,
		 const struct plan *p)
{
	if (!strcmp(format, "flagscale"))
		return export_flagscale(out, j, p);
	if (!strcmp(format, "megatron"))
		return export_megatron(out, j, p);
	if (!strcmp(format, "torch"))
		return export_torch(out, j, p);
	if (!strcmp(format, "hostfile"))
		return launch_hostfile(out, j);
	if (!strcmp(format, "slurm"))
		return launch_slurm(out, j);
	if (!strcmp(format, "jobset"))
		return launch_jobset(out, j, p);
	input_complain("--export: %s: wanted flagscale, megatron, torch, "
		       "hostfile, slurm or jobset",
		       format);
	return false;
}
