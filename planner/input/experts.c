/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what a file says of experts. */
#include "planner/input/experts.h"

#include <stdio.h>
#include <string.h>

#define COUNT_MOST (1 << 16)
#define WIDTH_MOST (1 << 22)

/* What shared experts are told by. */
enum {
	SHARED_COUNT = 1, /* so many as wide as the others */
	SHARED_WIDTH,     /* their width */
	SHARED_ONE,       /* there is one */
};

static const struct family {
	const char *name;
	const char *count, *active, *width;
	const char *shared; /* a key of them; NULL: none, or one */
	int shared_by;
	bool router_bias, shared_gate;
} families[] = {
	{"dbrx", "moe_num_experts", "moe_top_k", "ffn_hidden_size", NULL, 0,
	 false, false},
	{"deepseek", "n_routed_experts", "num_experts_per_tok",
	 "moe_intermediate_size", "n_shared_experts", SHARED_COUNT, false,
	 false},
	{"deepseek_v2", "n_routed_experts", "num_experts_per_tok",
	 "moe_intermediate_size", "n_shared_experts", SHARED_COUNT, false,
	 false},
	{"deepseek_v3", "n_routed_experts", "num_experts_per_tok",
	 "moe_intermediate_size", "n_shared_experts", SHARED_COUNT, true,
	 false},
	{"gpt_oss", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", NULL, 0, true, false},
	{"granitemoe", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", NULL, 0, false, false},
	{"granitemoeshared", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", "shared_intermediate_size", SHARED_WIDTH, false,
	 false},
	{"hunyuan", "num_experts", "moe_topk", "moe_intermediate_size",
	 "num_shared_expert", SHARED_COUNT, false, false},
	{"hunyuan_v1_moe", "num_experts", "moe_topk", "moe_intermediate_size",
	 "num_shared_expert", SHARED_COUNT, false, false},
	{"kimi_k2", "n_routed_experts", "num_experts_per_tok",
	 "moe_intermediate_size", "n_shared_experts", SHARED_COUNT, true,
	 false},
	{"llama4_text", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", NULL, SHARED_ONE, false, false},
	{"llama_moe", "num_experts", "num_selects", "expert_width", NULL, 0,
	 false, false},
	{"mixtral", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", NULL, 0, false, false},
	{"olmoe", "num_experts", "num_experts_per_tok", "intermediate_size",
	 NULL, 0, false, false},
	{"phimoe", "num_local_experts", "num_experts_per_tok",
	 "intermediate_size", NULL, 0, false, false},
	{"qwen2_moe", "num_experts", "num_experts_per_tok",
	 "moe_intermediate_size", "shared_expert_intermediate_size",
	 SHARED_WIDTH, false, true},
	{"qwen3_moe", "num_experts", "num_experts_per_tok",
	 "moe_intermediate_size", NULL, 0, false, false},
};

/* Of a file without a family. */
static const struct family own = {
	"",
	"num_experts",
	"num_experts_per_tok",
	"moe_intermediate_size",
	"shared_expert_intermediate_size",
	SHARED_WIDTH,
	false,
	false,
};

static const char *const counts[] = {"num_local_experts", "num_experts",
				     "n_routed_experts", "moe_num_experts",
				     NULL};

#define N(list) (sizeof(list) / sizeof((list)[0]))

static const struct family *find(const char *name)
{
	if (!*name)
		return &own;
	for (size_t i = 0; i < N(families); i++)
		if (!strcmp(name, families[i].name))
			return &families[i];
	return NULL;
}

static bool is_more_than_one(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) > 1;
}

/* Of all blocks, or a list of it for each. */
static bool is_more_than_one_somewhere(const json_t *v)
{
	for (size_t i = 0; i < json_array_size(v); i++)
		if (is_more_than_one(json_array_get(v, i)))
			return true;
	return is_more_than_one(v);
}

/* DBRX has them in an object of their own. */
static const json_t *inside(struct input *in, const char *type, const char **at)
{
	*at = NULL;
	if (strcmp(type, "dbrx"))
		return in->root;
	*at = "ffn_config";
	return input_object(in, in->root, NULL, *at);
}

bool experts_are_there(struct input *in, const char *type)
{
	const struct family *f = find(type);

	for (int i = 0; counts[i]; i++)
		if (is_more_than_one_somewhere(
			    json_object_get(in->root, counts[i])))
			return true;
	return (f && f != &own) || strstr(type, "moe");
}

static bool is_count(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 0 &&
	       json_integer_value(v) <= COUNT_MOST;
}

/* What is no number, as 8.0 or "8", would pass for none: a dense model. */
static void refuse_counts(struct input *in)
{
	for (int i = 0; counts[i]; i++) {
		const json_t *v = json_object_get(in->root, counts[i]);
		bool good = !v || json_is_null(v) || is_count(v) ||
			    json_array_size(v);

		for (size_t k = 0; k < json_array_size(v); k++)
			good &= is_count(json_array_get(v, k));
		if (!good)
			input_wrong(in, counts[i], v,
				    "a whole number from 0 to %d, or a list of "
				    "it for each block",
				    COUNT_MOST);
	}
}

void experts_refuse(struct input *in, const char *type)
{
	static const char *const names[] = {"arctic", "jamba", "llama4", NULL};
	char list[400];
	size_t n = 0;
	bool named = false;

	for (int i = 0; names[i]; i++)
		named |= !strcmp(type, names[i]);
	refuse_counts(in);
	/* Of an inner model, its own family counts. */
	if (json_is_object(json_object_get(in->root, "text_config")) ||
	    find(type) || (!named && !experts_are_there(in, type)))
		return;
	for (size_t i = 0; i < N(families) && n < sizeof(list); i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
				      i ? ", " : "", families[i].name);
	input_wrong(in, "model_type", json_object_get(in->root, "model_type"),
		    "a mixture of experts of one of %s; or none, and "
		    "num_experts, num_experts_per_tok, moe_intermediate_size",
		    list);
}

/* A number, or a list of it for each block. */
static long read_each(struct input *in, const json_t *from, const char *at,
		      const char *key, long most, long fallback)
{
	const json_t *v = json_object_get(from, key);
	char path[INPUT_PATH];

	if (json_is_null(v) && fallback >= 0)
		return fallback;
	if (!json_is_array(v) || !json_array_size(v))
		return input_integer(in, from, at, key, 0, most, fallback);
	for (size_t i = 0; i < json_array_size(v); i++) {
		if (json_equal(json_array_get(v, i), json_array_get(v, 0)))
			continue;
		input_join(path, at, key);
		input_wrong(in, path, v, "the same for all blocks");
		return 0;
	}
	v = json_array_get(v, 0);
	if (json_is_integer(v) && json_integer_value(v) >= 0 &&
	    json_integer_value(v) <= most)
		return (long)json_integer_value(v);
	input_join(path, at, key);
	input_wrong(in, path, v, "whole numbers from 0 to %ld", most);
	return 0;
}

static bool is_null(const json_t *v)
{
	return !v || json_is_null(v);
}

/* One of so many blocks has experts, the last of them; of DeepSeek, those whose
 * number is a multiple, which is not planned for. */
static void read_every(struct input *in, struct experts *e)
{
	static const char *const steps[] = {"decoder_sparse_step",
					    "interleave_moe_layer_step", NULL};
	const json_t *freq = json_object_get(in->root, "moe_layer_freq");

	e->every = 1;
	for (int i = 0; steps[i]; i++)
		if (json_object_get(in->root, steps[i]))
			e->every = (int)input_integer(in, in->root, NULL,
						      steps[i], 1, 1 << 16, -1);
	if (!is_null(freq) && json_integer_value(freq) != 1)
		input_wrong(in, "moe_layer_freq", freq,
			    "1: each block behind first_k_dense_replace has "
			    "experts");
}

/* A list of dense blocks is empty; one of others is what follows anyway. */
static void refuse_lists(struct input *in, int layers, const struct experts *e)
{
	const json_t *only = json_object_get(in->root, "mlp_only_layers");
	const json_t *mixed = json_object_get(in->root, "moe_layers");
	json_t *same = json_array();

	if (!is_null(only) && (!json_is_array(only) || json_array_size(only)))
		input_wrong(in, "mlp_only_layers", only,
			    "none: dense blocks between are planned for by "
			    "first_k_dense_replace and decoder_sparse_step "
			    "only");
	for (int at = 0; at < layers; at++)
		if (experts_has(e, at))
			json_array_append_new(same, json_integer(at));
	if (!is_null(mixed) && !json_equal(mixed, same))
		input_wrong(in, "moe_layers", mixed,
			    "the %zu blocks from %d on that "
			    "interleave_moe_layer_step says, or none",
			    json_array_size(same), e->dense + e->every - 1);
	json_decref(same);
}

/* Which blocks have experts: all behind the first few, or one of some. */
static void read_blocks(struct input *in, int layers, struct experts *e)
{
	e->dense = (int)input_integer(in, in->root, NULL,
				      "first_k_dense_replace", 0, 1 << 16, 0);
	if (!e->dense)
		e->dense = (int)input_integer(in, in->root, NULL,
					      "moe_layer_num_skipped", 0,
					      1 << 16, 0);
	read_every(in, e);
	refuse_lists(in, layers, e);
}

/* LLaMA-MoE cuts the feed-forward part of a dense model. */
static long width_of(struct input *in, const struct family *f,
		     const json_t *from, const char *at, long ffn,
		     const struct experts *e)
{
	if (!strcmp(f->name, "llama_moe"))
		return e->count ? ffn / e->count : ffn;
	return read_each(in, from, at, f->width, WIDTH_MOST,
			 strncmp(f->name, "hunyuan", 7) ? -1 : ffn);
}

static void read_shared(struct input *in, const struct family *f,
			struct experts *e)
{
	if (f->shared_by == SHARED_ONE)
		e->shared = e->width;
	if (f->shared_by == SHARED_WIDTH)
		e->shared = (int)input_integer(in, in->root, NULL, f->shared, 0,
					       WIDTH_MOST, 0);
	if (f->shared_by != SHARED_COUNT ||
	    json_is_null(json_object_get(in->root, f->shared)))
		return;
	e->shared = e->width *
		    (int)read_each(in, in->root, NULL, f->shared, 256, 0);
}

void experts_read(struct input *in, const char *type, long ffn, int layers,
		  struct experts *e)
{
	const struct family *f = find(type);
	const json_t *from;
	const char *at;
	char path[INPUT_PATH];

	*e = (struct experts){.every = 1};
	if (!f || !experts_are_there(in, type))
		return;
	from = inside(in, type, &at);
	e->count = (int)read_each(in, from, at, f->count, COUNT_MOST, -1);
	e->active = (int)read_each(in, from, at, f->active, COUNT_MOST, -1);
	e->width = (int)width_of(in, f, from, at, ffn, e);
	read_shared(in, f, e);
	read_blocks(in, layers, e);
	e->router_bias = f->router_bias;
	e->shared_gate = f->shared_gate && e->shared;
	input_join(path, at, f->active);
	if (e->active < 1 || e->active > e->count)
		input_wrong(in, path, json_object_get(from, f->active),
			    "from 1 to the %d experts", e->count);
	input_join(path, at, f->width);
	if (e->width < 1)
		input_wrong(in, path, json_object_get(from, f->width),
			    "a width above 0");
}
