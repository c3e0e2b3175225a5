/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of a model, and what follows from them. */
#include "planner/input/model.h"

#include <stdio.h>
#include <string.h>

#include "planner/input/family.h"
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

static void read_family(struct input *in, struct model *m)
{
	struct family_shape f = {.kv_heads = m->kv_heads};

	family_read(in, m->heads, &f);
	m->kv_heads = f.kv_heads;
	m->positions = f.positions;
	m->gated = f.gated;
	m->tied = f.tied;
	m->tied_said = f.tied_said;
	m->qkv_bias = f.qkv_bias;
	m->out_bias = f.out_bias;
	m->ffn_bias = f.ffn_bias;
	m->head_bias = f.head_bias;
	m->qk_norm = f.qk_norm;
	m->embed_norm = f.embed_norm;
	m->norms = f.norms;
	m->norm = f.norm;
}

static void read_name(struct input *in, struct model *m)
{
	const char *kind = input_text(in, in->root, NULL, "model_type", "");
	const char *name = input_text(in, in->root, NULL, "_name_or_path", "");

	name = input_text(in, in->root, NULL, "name", *name ? name : kind);
	snprintf(m->name, sizeof(m->name), "%s", *name ? name : in->file);
}

/* A config.json may have the text model in an object of its own. */
static void enter_text_config(struct input *in)
{
	json_t *inner = json_object_get(in->root, "text_config");

	if (!json_is_object(inner))
		return;
	json_incref(inner);
	json_decref(in->root);
	in->root = inner;
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
	family_refuse(&in);
	read_name(&in, m);
	enter_text_config(&in);
	family_refuse(&in);
	m->layers = (int)read_size(
		&in,
		NAMES("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
		MODEL_UNITS_MOST - 2, -1);
	m->hidden = (int)read_size(
		&in, NAMES("hidden_size", "n_embd", "d_model", "n_embed"),
		1 << 20, -1);
	m->embed = (int)read_size(&in, NAMES("word_embed_proj_dim"), 1 << 20,
				  m->hidden);
	m->heads = (int)read_size(
		&in,
		NAMES("num_attention_heads", "n_head", "num_heads", "n_heads"),
		1 << 14, -1);
	m->kv_heads = (int)read_size(
		&in, NAMES("num_key_value_heads", "num_kv_heads", "n_head_kv"),
		m->heads, m->heads);
	m->head_width = (int)read_size(&in, NAMES("head_dim"), 1 << 14,
				       m->heads ? m->hidden / m->heads : 1);
	m->ffn = (int)read_size(&in,
				NAMES("intermediate_size", "n_inner", "ffn_dim",
				      "ffn_hidden_size"),
				1 << 22, 4L * m->hidden);
	m->vocab = (int)read_size(&in, NAMES("vocab_size"), 1 << 26, -1);
	read_family(&in, m);
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

double model_shared_params(const struct model *m)
{
	return m->tied ? (double)m->embed * m->vocab : 0;
}

/* From the width of the embedding to that of the blocks, or back. */
static double project(const struct model *m)
{
	return m->embed == m->hidden ? 0 : (double)m->embed * m->hidden;
}

double model_split_params(const struct model *m, int unit)
{
	if (unit == 0)
		return (double)m->embed * m->vocab;
	if (unit == m->layers + 1)
		return (m->embed + (m->head_bias ? 1.0 : 0)) * m->vocab;
	/* Biases of what is split by columns are split, too. */
	return block_matrices(m) +
	       (m->qkv_bias
			? (double)m->head_width * (m->heads + 2 * m->kv_heads)
			: 0) +
	       (m->ffn_bias ? (m->gated ? 2.0 : 1.0) * m->ffn : 0);
}

double model_params(const struct model *m, int unit)
{
	double h = m->hidden, split = model_split_params(m, unit);

	if (unit == 0)
		return split + project(m) + h * m->positions +
		       (m->embed_norm ? m->norm * h : 0);
	if (unit == m->layers + 1)
		return split + project(m) + m->norm * h;
	return split + m->norms * m->norm * h + (m->out_bias ? h : 0) +
	       (m->ffn_bias ? h : 0) + (m->qk_norm ? 2.0 * m->head_width : 0);
}

double model_flops(const struct model *m, int unit, double sequences, int seq)
{
	double tokens = sequences * seq;

	if (unit == 0)
		return 0;
	if (unit == m->layers + 1)
		return 2 * tokens * m->embed * m->vocab;
	return 2 * tokens * block_matrices(m) +
	       4 * tokens * seq * (double)m->head_width * m->heads;
}
