/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs of the units of a model on groups of devices. */
#include "planner/cost/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"
#include "src/base/hash.h"

bool job_open(struct job *j, const char *cluster, const char *model,
	      const char *profile, int seq, int global_batch)
{
	memset(j, 0, sizeof(*j));
	j->seq = seq;
	j->global_batch = global_batch;
	j->imbalance = 1;
	j->profile = profile_none();
	pthread_mutex_init(&j->lock, NULL);
	if (!fleet_open(&j->fleet, cluster) || !model_open(&j->model, model) ||
	    !wire_open(&j->wire, &j->fleet))
		goto close;
	j->measured = profile != NULL;
	if (profile &&
	    !profile_open(&j->profile, profile, &j->fleet, &j->model, seq))
		goto close;
	return true;
close:
	job_close(j);
	return false;
}

void job_close(struct job *j)
{
	for (size_t i = 0; i < j->table_room; i++)
		free(j->table[i]);
	free(j->table);
	wire_close(&j->wire);
	profile_close(&j->profile);
	fleet_close(&j->fleet);
	pthread_mutex_destroy(&j->lock);
	memset(j, 0, sizeof(*j));
}

void table_state_bytes(const struct job *j, double out[3])
{
	out[0] = j->model.element;
	out[1] = j->model.gradient;
	out[2] = j->model.optimizer;
}

double table_boundary_bytes(const struct job *j, int micro_batch)
{
	return (double)micro_batch * j->seq * j->model.hidden *
	       j->model.element;
}

double table_send_room(const struct job *j, int micro_batch, int senders,
		       int receivers)
{
	double bytes = table_boundary_bytes(j, micro_batch);

	return fmin(1, j->profile.buffer * fmin(senders, receivers) / bytes);
}

/* ---- without a profile ---- */

/*
 * Bytes that the backward pass of a block needs, after Korthikanti et al.
 * (2205.05198): s b h (10 + 24 / t) with two-byte elements, the scores of the
 * attention not kept (as FlashAttention does). Of the 24, 16 are of a
 * feed-forward part of 4 h.
 */
static double block_bytes(const struct model *m, int unit, double tokens,
			  int tp)
{
	double h = m->hidden, wide = m->gated ? 3 : 2;

	wide *= model_is_mixed(m, unit) ? m->experts.shared : m->ffn;
	return tokens * (m->element / 2.0) * (10 * h + (8 * h + 2 * wide) / tp);
}

/* Of its experts: the same of each, what comes in and goes out of them, and
 * what the router says, in 32 bits. */
static double expert_bytes(const struct model *m, int unit, double tokens,
			   int tp, double load)
{
	const struct experts *e = &m->experts;
	double h = m->hidden, wide = (double)e->width * (m->gated ? 3 : 2);

	if (!model_is_mixed(m, unit))
		return 0;
	return load * tokens * e->active * (m->element / 2.0) *
		       (4 * h + 2 * wide / tp) +
	       tokens * 8 * e->count;
}

static double unit_bytes(const struct model *m, int unit, double tokens, int tp,
			 double load)
{
	if (unit == 0)
		return 0;
	if (unit == m->layers + 1) /* logits, and their softmax, in 32 bits */
		return tokens *
		       (8.0 * m->vocab / tp + 2.0 * m->element * m->hidden);
	return block_bytes(m, unit, tokens, tp) +
	       expert_bytes(m, unit, tokens, tp, load);
}

/* Its backward pass has gradients of what it keeps; that of the head has the
 * logits' in 32 bits, and its activations are two such copies. */
static double unit_work(const struct model *m, int unit, double bytes,
			double tokens, int tp)
{
	return unit == m->layers + 1 ? tokens * 4.0 * m->vocab / tp : bytes;
}

/* Four in a block, two each way; the embedding and the head need one each. */
static double tp_seconds(struct job *j, int kind, int tp, double tokens)
{
	uint32_t node = 0, *rank;
	double seconds;

	/* Wider than a node: planner/cost/cost.c adds what its links make of
	 * it. */
	if (tp < 2 || tp > (int)j->fleet.kind[kind].ranks)
		return 0;
	while (j->fleet.kind_of[node] != kind)
		node++;
	rank = calloc((size_t)tp, sizeof(*rank));
	if (!rank)
		return NAN;
	for (int i = 0; i < tp; i++)
		rank[i] = j->fleet.first[node] + (uint32_t)i;
	seconds =
		wire_collective(&j->wire, WIRE_ALLREDUCE, rank, NULL, NULL, tp,
				tokens * j->model.hidden * j->model.element);
	free(rank);
	return seconds;
}

static void computed_unit(struct job *j, const struct table *t, int unit,
			  double reduce_s, double out[3])
{
	const struct fleet_type *type =
		&j->fleet.type[j->fleet.kind[t->kind].type];
	const struct model *m = &j->model;
	double more = table_load(j, t->experts) - 1;
	double flops = model_flops(m, unit, t->micro_batch, j->seq) +
		       more * model_expert_flops(
				      m, unit, (double)t->micro_batch * j->seq);
	double forward = flops / (type->flops * type->efficiency * t->tp);
	double experts = model_expert_params(m, unit);
	bool block = unit > 0 && unit <= m->layers;
	double state[3];

	table_state_bytes(j, state);
	out[0] = forward + (block ? 2 : 1) * reduce_s * (unit <= m->layers);
	out[1] = 2 * forward + (block ? 2 : 1) * reduce_s * (unit > 0);
	/* Each byte of state is read and written once. */
	out[2] = 2 * (model_params(m, unit) - experts + experts / t->experts) /
		 t->tp * (state[0] + state[1] + state[2]) / type->memory_per_s;
}

/* Of a backward pass, which has twice the operations of the one forward and the
 * messages of the group: they do not wait for gradients of weights. */
static double weight_part(const struct model *m, int unit, double sequences,
			  int seq, double backward_s, double reduce_s)
{
	double flops = model_flops(m, unit, sequences, seq);
	double messages = (unit <= m->layers ? 2 : 1) * reduce_s;

	if (flops <= 0 || backward_s <= messages)
		return 0;
	return model_matrix_flops(m, unit, sequences, seq) / (2 * flops) *
	       (1 - messages / backward_s);
}

double table_load(const struct job *j, int experts)
{
	double load = experts > 1 ? j->imbalance : 1;

	return j->capacity > 0 ? fmin(load, j->capacity) : load;
}

static double device_params(const struct model *m, int unit, int tp,
			    int experts)
{
	double split = model_split_params(m, unit);
	double apart = model_expert_params(m, unit);

	return model_params(m, unit) - split +
	       (split - apart + apart / experts) / tp;
}

/* ---- a table ---- */

bool table_is_whole(const struct table *t, int first, int last)
{
	return first == 0 && last == t->units - 1;
}

double table_params(const struct table *t, int first, int last)
{
	return t->params[last + 1] - t->params[first] -
	       (table_is_whole(t, first, last) ? t->shared : 0);
}

double table_whole(const struct table *t, int first, int last)
{
	return t->whole[last + 1] - t->whole[first] -
	       (table_is_whole(t, first, last) ? t->shared_whole : 0);
}

double table_experts(const struct table *t, int first, int last)
{
	return t->expert[last + 1] - t->expert[first];
}

double table_experts_whole(const struct table *t, int first, int last)
{
	return t->expert_whole[last + 1] - t->expert_whole[first];
}

double table_spread(const struct table *t, int first, int last, int pipelines)
{
	double experts = table_experts(t, first, last);

	return (table_params(t, first, last) + experts * (t->experts - 1)) /
	       pipelines;
}

double table_part(const struct table *t, int first, int last, int pipelines)
{
	double all = table_params(t, first, last);

	/* A profile may say that there are none. */
	return all > 0 ? table_spread(t, first, last, pipelines) / all : 1;
}

double table_work(const struct table *t, int first, int last, bool recompute)
{
	double most = 0;

	for (int u = last; u >= first; u = t->run[u] - 1) {
		double again = recompute ? t->active[u + 1] - t->active[u] : 0;

		most = fmax(most, t->work[u] + again);
	}
	return most;
}

int table_mixed(const struct table *t, int first, int last)
{
	return t->mixed[last + 1] - t->mixed[first];
}

double table_update(const struct table *t, int first, int last)
{
	return t->update[last + 1] - t->update[first] -
	       (table_is_whole(t, first, last) ? t->shared_update : 0);
}

/* A profile that has sizes tells what each unit holds, maybe of the shared
 * matrix only one: where it and a family's habit differ, it is right. */
static void find_shared(const struct model *m, bool sized, struct table *t)
{
	double head = t->params[t->units] - t->params[t->units - 1];
	double update = t->update[t->units] - t->update[t->units - 1];
	double shared = model_shared_params(m);

	if (sized && !m->tied_said)
		return;
	t->shared = fmin(shared / t->tp, fmin(head, t->params[1]));
	t->shared_whole = t->shared * t->tp;
	t->shared_update = head > 0 ? update * t->shared / head : 0;
}

static void add(double *sum, int unit, double x)
{
	sum[unit + 1] = sum[unit] + x;
}

static void add_active(struct table *t, int unit, double bytes, double before,
		       double work)
{
	bool same = unit && bytes == before && work == t->work[unit - 1];

	add(t->active, unit, bytes);
	t->work[unit] = work;
	t->run[unit] = same ? t->run[unit - 1] : (int16_t)unit;
}

static void fill(struct job *j, struct table *t)
{
	const struct model *m = &j->model;
	const struct profile_size *size =
		j->measured ? profile_size(&j->profile, t->tp) : NULL;
	double tokens = (double)t->micro_batch * j->seq, s[3] = {0};
	double bytes = 0, before = 0;
	double reduce_s =
		j->measured ? 0 : tp_seconds(j, t->kind, t->tp, tokens);

	if (isnan(reduce_s)) {
		t->missing = true;
		snprintf(t->why, sizeof(t->why), "out of memory");
		return;
	}
	t->units = model_units(m);
	for (int u = 0; u < t->units; u++) {
		double kept = u == 0 ? 0 : tokens * m->hidden * m->element;
		double experts = model_expert_params(m, u) / t->experts;

		if (!j->measured)
			computed_unit(j, t, u, reduce_s, s);
		else if (!profile_seconds(&j->profile, &j->fleet,
					  j->fleet.kind[t->kind].type, t->tp,
					  t->micro_batch, u, s, t->why,
					  sizeof(t->why)))
			t->missing = true;
		add(t->forward, u, s[0]);
		add(t->backward, u, s[1]);
		add(t->weight, u,
		    s[1] * weight_part(m, u, t->micro_batch, j->seq, s[1],
				       reduce_s));
		add(t->update, u, s[2]);
		t->mixed[u + 1] = t->mixed[u] + model_is_mixed(m, u);
		if (size) {
			add(t->params, u, size->of[u][0]);
			add(t->whole, u, size->of[u][0] * t->tp);
			bytes = size->of[u][1] * t->micro_batch;
			add_active(t, u, bytes, before,
				   j->profile.work * bytes);
			add(t->kept, u, size->of[u][2] * t->micro_batch);
			before = bytes;
			continue;
		}
		add(t->params, u, device_params(m, u, t->tp, t->experts));
		add(t->expert, u, experts / t->tp);
		add(t->whole, u,
		    model_params(m, u) - model_expert_params(m, u) + experts);
		add(t->expert_whole, u, experts);
		bytes = unit_bytes(m, u, tokens, t->tp,
				   table_load(j, t->experts));
		add_active(t, u, bytes, before,
			   unit_work(m, u, bytes, tokens, t->tp));
		before = bytes;
		add(t->kept, u, kept);
	}
	find_shared(m, size, t);
}

/* Its place, or the one that is free for it. */
static size_t place_of(struct table *const *list, size_t room, int kind, int tp,
		       int micro_batch, int experts)
{
	int key[4] = {kind, tp, micro_batch, experts};
	size_t i = hash_bytes(HASH_START, key, sizeof(key)) % room;

	while (list[i] && (list[i]->kind != kind || list[i]->tp != tp ||
			   list[i]->micro_batch != micro_batch ||
			   list[i]->experts != experts))
		i = (i + 1) % room;
	return i;
}

static bool grow(struct job *j)
{
	size_t room = j->table_room ? 2 * j->table_room : 64;
	struct table **larger = calloc(room, sizeof(struct table *));

	if (!larger)
		return false;
	for (size_t i = 0; i < j->table_room; i++) {
		struct table *t = j->table[i];

		if (t)
			larger[place_of(larger, room, t->kind, t->tp,
					t->micro_batch, t->experts)] = t;
	}
	free(j->table);
	j->table = larger;
	j->table_room = room;
	return true;
}

const struct table *table_of(struct job *j, int kind, int tp, int micro_batch,
			     int experts)
{
	struct table *t = NULL;
	size_t at;

	pthread_mutex_lock(&j->lock);
	if (2 * (size_t)j->tables >= j->table_room && !grow(j))
		goto unlock;
	at = place_of(j->table, j->table_room, kind, tp, micro_batch, experts);
	t = j->table[at];
	if (t)
		goto unlock;
	t = calloc(1, sizeof(*t));
	if (!t)
		goto unlock;
	t->kind = kind;
	t->tp = tp;
	t->micro_batch = micro_batch;
	t->experts = experts;
	fill(j, t);
	j->table[at] = t;
	j->tables++;
unlock:
	pthread_mutex_unlock(&j->lock);
	if (!t)
		input_complain("out of memory");
	return t;
}
