/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans in memory and in files. */
#include "planner/input/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"

#define MOST (1L << 20)

static const char *const schedules[] = {"1f1b", "gpipe", "interleaved",
					"zb-h1"};
static const char *const overlaps[] = {"none", "send", "p2p", "full"};

const char *plan_schedule_name(enum plan_schedule s)
{
	return schedules[s];
}

const char *plan_overlap_name(enum plan_overlap o)
{
	return overlaps[o];
}

bool plan_schedule_parse(const char *text, enum plan_schedule *out)
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(text, schedules[i])) {
			*out = (enum plan_schedule)i;
			return true;
		}
	return false;
}

bool plan_overlap_parse(const char *text, enum plan_overlap *out)
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(text, overlaps[i])) {
			*out = (enum plan_overlap)i;
			return true;
		}
	return false;
}

struct plan_pipeline *plan_add_pipeline(struct plan *p)
{
	size_t n = (size_t)p->pipelines + 1;
	struct plan_pipeline *list = realloc(p->pipeline, n * sizeof(*list));

	if (!list)
		return NULL;
	p->pipeline = list;
	p->pipelines++;
	list[n - 1] = (struct plan_pipeline){.weight = -1};
	return &list[n - 1];
}

struct plan_stage *plan_add_stage(struct plan_pipeline *l, int tp)
{
	size_t n = (size_t)l->stages + 1;
	struct plan_stage *list = realloc(l->stage, n * sizeof(*list));

	if (!list)
		return NULL;
	l->stage = list;
	list[n - 1] = (struct plan_stage){.tp = tp};
	list[n - 1].rank = calloc((size_t)tp, sizeof(uint32_t));
	if (!list[n - 1].rank)
		return NULL;
	l->stages++;
	return &list[n - 1];
}

void plan_close(struct plan *p)
{
	for (int i = 0; i < p->pipelines; i++) {
		for (int s = 0; s < p->pipeline[i].stages; s++)
			free(p->pipeline[i].stage[s].rank);
		free(p->pipeline[i].stage);
	}
	free(p->pipeline);
	free(p->file);
	*p = (struct plan){0};
}

static void read_stage(struct input *in, const char *at, json_t *v,
		       struct plan_pipeline *l)
{
	static const char *const keys[] = {"ranks",     "tp",     "layers",
					   "recompute", "remark", "predicted",
					   NULL};
	json_t *ranks = input_array(in, v, at, "ranks"), *layers;
	struct plan_stage *s;
	char path[INPUT_PATH];

	input_keys(in, v, at, keys);
	if (in->bad)
		return;
	s = plan_add_stage(l, (int)json_array_size(ranks));
	if (!s) {
		in->bad = true;
		return;
	}
	for (size_t i = 0; i < json_array_size(ranks); i++) {
		json_t *r = json_array_get(ranks, i);

		snprintf(path, sizeof(path), "%.200s.ranks[%zu]", at, i);
		if (!json_is_integer(r) || json_integer_value(r) < 0 ||
		    json_integer_value(r) >= MOST)
			input_wrong(in, path, r, "a rank of the cluster");
		s->rank[i] = (uint32_t)json_integer_value(r);
	}
	if (input_integer(in, v, at, "tp", 1, MOST, s->tp) != s->tp) {
		input_join(path, at, "tp");
		input_wrong(in, path, json_object_get(v, "tp"),
			    "the number of its ranks, %d", s->tp);
	}
	layers = input_array(in, v, at, "layers");
	input_join(path, at, "layers");
	if (layers && (json_array_size(layers) != 2 ||
		       !json_is_integer(json_array_get(layers, 0)) ||
		       !json_is_integer(json_array_get(layers, 1))))
		input_wrong(in, path, layers, "its first and its last layer");
	s->first = (int)json_integer_value(json_array_get(layers, 0));
	s->last = (int)json_integer_value(json_array_get(layers, 1));
	s->recompute = input_bool(in, v, at, "recompute", false);
}

static void read_pipeline(struct input *in, size_t i, json_t *v,
			  struct plan_pipeline *l)
{
	static const char *const keys[] = {
		"micro_batch", "micro_batches", "weight",    "stages",
		"interleave",  "remark",        "predicted", NULL};
	char at[64], path[INPUT_PATH];
	json_t *stages;

	snprintf(at, sizeof(at), "pipelines[%zu]", i);
	input_keys(in, v, at, keys);
	l->micro_batch =
		(int)input_integer(in, v, at, "micro_batch", 1, MOST, -1);
	l->micro_batches =
		(int)input_integer(in, v, at, "micro_batches", 1, MOST, -1);
	l->weight = input_number(in, v, at, "weight", 0, 1, -1);
	l->interleave = (int)input_integer(in, v, at, "interleave", 1,
					   PLAN_CHUNKS_MOST, 1);
	stages = input_array(in, v, at, "stages");
	for (size_t s = 0; s < json_array_size(stages) && !in->bad; s++) {
		snprintf(path, sizeof(path), "%s.stages[%zu]", at, s);
		read_stage(in, path, json_array_get(stages, s), l);
	}
}

static void read_words(struct plan *p, struct input *in)
{
	const char *schedule =
		input_text(in, in->root, NULL, "schedule", "1f1b");
	const char *overlap = input_text(in, in->root, NULL, "overlap", "p2p");
	const char *by = input_text(in, in->root, NULL, "collectives", "auto");

	if (!plan_schedule_parse(schedule, &p->schedule))
		input_wrong(in, "schedule",
			    json_object_get(in->root, "schedule"),
			    "1f1b, gpipe, interleaved or zb-h1");
	if (!plan_overlap_parse(overlap, &p->overlap))
		input_wrong(in, "overlap", json_object_get(in->root, "overlap"),
			    "none, send, p2p or full");
	p->rings = !strcmp(by, "ring");
	if (!p->rings && strcmp(by, "auto"))
		input_wrong(in, "collectives",
			    json_object_get(in->root, "collectives"),
			    "auto or ring");
	snprintf(p->model, sizeof(p->model), "%s",
		 input_text(in, in->root, NULL, "model", ""));
}

bool plan_open(struct plan *p, const char *file)
{
	static const char *const keys[] = {
		"version",      "model",        "sequence",
		"global_batch", "schedule",     "overlap",
		"zero",         "collectives",  "pipelines",
		"predicted",    "measured",     "found",
		"remark",       "ahead",        "expert_parallel",
		"capacity",     "bucket_bytes", NULL};
	struct input in;
	json_t *list;
	bool good;

	*p = (struct plan){0};
	if (!input_open(&in, file))
		return false;
	p->file = strdup(file);
	in.bad |= !p->file;
	input_keys(&in, in.root, NULL, keys);
	input_integer(&in, in.root, NULL, "version", 1, 1, 1);
	p->seq = (int)input_integer(&in, in.root, NULL, "sequence", 1, 1 << 24,
				    -1);
	p->global_batch = (int)input_integer(&in, in.root, NULL, "global_batch",
					     1, 1 << 24, -1);
	p->zero = (int)input_integer(&in, in.root, NULL, "zero", 0, 3, 0);
	p->ahead = (int)input_integer(&in, in.root, NULL, "ahead", 0, 1024, 0);
	p->experts = (int)input_integer(&in, in.root, NULL, "expert_parallel",
					1, MOST, 1);
	p->capacity = input_number(&in, in.root, NULL, "capacity", 0, 1e6, 0);
	if (p->capacity > 0 && p->capacity < 1)
		input_wrong(&in, "capacity",
			    json_object_get(in.root, "capacity"),
			    "a number from 1 on, or 0 for all that come");
	p->bucket =
		input_number(&in, in.root, NULL, "bucket_bytes", 0, 1e15, 0);
	if (p->bucket > 0 && p->bucket < 1024)
		input_wrong(&in, "bucket_bytes",
			    json_object_get(in.root, "bucket_bytes"),
			    "a number from 1024 on, or 0 for none");
	read_words(p, &in);
	list = input_array(&in, in.root, NULL, "pipelines");
	for (size_t i = 0; i < json_array_size(list) && !in.bad; i++) {
		struct plan_pipeline *l = plan_add_pipeline(p);

		if (l)
			read_pipeline(&in, i, json_array_get(list, i), l);
		in.bad |= !l;
	}
	good = !in.bad;
	input_close(&in);
	if (!good)
		plan_close(p);
	return good;
}

static json_t *stage_json(const struct plan_stage *s)
{
	json_t *ranks = json_array();

	for (int i = 0; i < s->tp; i++)
		json_array_append_new(ranks, json_integer(s->rank[i]));
	return json_pack("{s:o, s:i, s:[i, i], s:b}", "ranks", ranks, "tp",
			 s->tp, "layers", s->first, s->last, "recompute",
			 s->recompute);
}

json_t *plan_json(const struct plan *p)
{
	json_t *list = json_array(), *out;

	for (int i = 0; i < p->pipelines; i++) {
		const struct plan_pipeline *l = &p->pipeline[i];
		json_t *stages = json_array(), *one;

		for (int s = 0; s < l->stages; s++)
			json_array_append_new(stages, stage_json(&l->stage[s]));
		one = json_pack("{s:i, s:i, s:f, s:o}", "micro_batch",
				l->micro_batch, "micro_batches",
				l->micro_batches, "weight",
				(double)l->micro_batch * l->micro_batches /
					p->global_batch,
				"stages", stages);
		if (one && plan_chunks(l) > 1)
			json_object_set_new(one, "interleave",
					    json_integer(plan_chunks(l)));
		json_array_append_new(list, one);
	}
	out = json_pack(
		"{s:i, s:s, s:i, s:i, s:s, s:s, s:i, s:s, s:o}", "version", 1,
		"model", p->model, "sequence", p->seq, "global_batch",
		p->global_batch, "schedule", plan_schedule_name(p->schedule),
		"overlap", plan_overlap_name(p->overlap), "zero", p->zero,
		"collectives", p->rings ? "ring" : "auto", "pipelines", list);
	if (out && p->ahead)
		json_object_set_new(out, "ahead", json_integer(p->ahead));
	if (out && p->experts > 1)
		json_object_set_new(out, "expert_parallel",
				    json_integer(p->experts));
	if (out && p->capacity > 0)
		json_object_set_new(out, "capacity", json_real(p->capacity));
	if (out && p->bucket > 0)
		json_object_set_new(out, "bucket_bytes", json_real(p->bucket));
	return out;
}
