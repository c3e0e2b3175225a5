/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of a model, and what follows from them. */
#include "planner/input/model.h"

#include <stdio.h>
#include <string.h>

#include "planner/input/input.h"

/* Under the first of its names that is there, else the first is missed. */
static long read_size(struct input *in, const char *const *names, long most,
		      long fallback)
{
	for (int i = 0; names[i]; i++) {
		json_t *v = json_object_get(in->root, names[i]);

		if (v && !json_is_null(v))
			return input_integer(in, in->root, NULL, names[i], 1,
					     most, -1);
	}
	if (fallback >= 0)
		return fallback;
	return input_integer(in, in->root, NULL, names[0], 1, most, -1);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refuse_experts(struct input *in)
{
	static const char *const names[] = {"num_local_experts", "num_experts",
					    "n_routed_experts", NULL};

	for (int i = 0; names[i]; i++) {
		json_t *v = json_object_get(in->root, names[i]);

		if (json_is_integer(v) && json_integer_value(v) > 1)
			input_wrong(in, names[i], v,
				    "a dense model: a mixture of experts is "
				    "not planned for");
	}
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(word, list[i]))
			return true;
	return false;
}

/* What the kind of model says that no key of its file does. */
static void read_kind(struct input *in, struct model *m)
{
	static const char *const old[] = {"gpt2", "opt", "gpt_neo", "bloom",
					  NULL};
	const char *kind = input_text(in, in->root, NULL, "model_type", "");
	const char *act = input_text(
		in, in->root, NULL, "hidden_act",
		input_text(in, in->root, NULL, "activation_function", "silu"));
	const char *name;
	bool is_old = is_one_of(kind, old);

	m->gated = !is_old && (!strcmp(act, "silu") || !strcmp(act, "swish") ||
			       !strcmp(kind, "gemma"));
	m->gated = input_bool(in, in->root, NULL, "gated", m->gated);
	m->bias = is_old;
	m->tied = input_bool(in, in->root, NULL, "tie_word_embeddings", is_old);
	if (is_old && strcmp(kind, "bloom"))
		m->positions = (int)read_size(
			in, NAMES("max_position_embeddings", "n_positions"),
			1 << 24, 0);
	name = input_text(in, in->root, NULL, "_name_or_path", kind);
	name = input_text(in, in->root, NULL, "name", *name ? name : kind);
	snprintf(m->name, sizeof(m->name), "%s", *name ? name : in->file);
}

static void read_element(struct input *in, struct model *m)
{
	const char *key =
		json_object_get(in->root, "dtype") ? "dtype" : "torch_dtype";
	const char *type = input_text(in, in->root, NULL, key, "bfloat16");

	m->element = 2;
	if (!strcmp(type, "float32"))
		m->element = 4;
	else if (strcmp(type, "bfloat16") && strcmp(type, "float16"))
		input_wrong(in, key, json_object_get(in->root, key),
			    "float32, bfloat16 or float16");
}

bool model_open(struct model *m, const char *file)
{
	struct input in;
	bool good;

	memset(m, 0, sizeof(*m));
	if (!input_open(&in, file))
		return false;
	refuse_experts(&in);
	m->layers = (int)read_size(
		&in, NAMES("num_hidden_layers", "n_layer", "num_layers"),
		MODEL_UNITS_MOST - 2, -1);
	m->hidden = (int)read_size(
		&in, NAMES("hidden_size", "n_embd", "d_model"), 1 << 20, -1);
	m->heads = (int)read_size(
		&in, NAMES("num_attention_heads", "n_head", "num_heads"),
		1 << 14, -1);
	m->kv_heads = (int)read_size(&in, NAMES("num_key_value_heads"),
				     m->heads, m->heads);
	m->head_width = (int)read_size(&in, NAMES("head_dim"), 1 << 14,
				       m->heads ? m->hidden / m->heads : 1);
	m->ffn = (int)read_size(
		&in, NAMES("intermediate_size", "n_inner", "ffn_dim"), 1 << 22,
		4L * m->hidden);
	m->vocab = (int)read_size(&in, NAMES("vocab_size"), 1 << 26, -1);
	read_kind(&in, m);
	read_element(&in, m);
	m->optimizer = input_number(&in, in.root, NULL, "optimizer_bytes", 0,
				    64, m->element == 2 ? 12 : 8);
	if (m->heads > 0 && m->kv_heads > 0 && m->heads % m->kv_heads)
		input_wrong(&in, "num_key_value_heads",
			    json_object_get(in.root, "num_key_value_heads"),
			    "a divisor of the %d heads", m->heads);
	good = !in.bad;
	input_close(&in);
	return good;
}

/* Of the matrices of a block: query and output, key and value, feed-forward. */
static double block_matrices(const struct model *m)
{
	double h = m->hidden, w = m->head_width;

	return 2 * h * w * m->heads + 2 * h * w * m->kv_heads +
	       (m->gated ? 3 : 2) * h * m->ffn;
}

double model_split_params(const struct model *m, int unit)
{
	double h = m->hidden;

	if (unit == 0 || unit == m->layers + 1)
		return h * m->vocab;
	/* Biases of what is split by columns are split, too. */
	return block_matrices(m) +
	       (m->bias ? (double)m->head_width * (m->heads + 2 * m->kv_heads) +
				  m->ffn
			: 0);
}

double model_params(const struct model *m, int unit)
{
	double h = m->hidden, norm = m->bias ? 2 * h : h;

	if (unit == 0)
		return h * m->vocab + h * m->positions;
	if (unit == m->layers + 1)
		return h * m->vocab + norm;
	return model_split_params(m, unit) + 2 * norm + (m->bias ? 2 * h : 0);
}

double model_flops(const struct model *m, int unit, double sequences, int seq)
{
	double tokens = sequences * seq;

	if (unit == 0)
		return 0;
	if (unit == m->layers + 1)
		return 2 * tokens * m->hidden * m->vocab;
	return 2 * tokens * block_matrices(m) +
	       4 * tokens * seq * (double)m->head_width * m->heads;
}
