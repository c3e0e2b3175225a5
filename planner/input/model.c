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
	struct family_shape f = {.kv_heads = m->kv_heads, .kv_every = 1};

	family_read(in, m->heads, &f);
	m->kv_heads = f.kv_heads;
	m->kv_every = f.kv_every;
	m->positions = f.positions;
	m->gated = f.gated;
	m->tied = f.tied;
	m->tied_said = f.tied_said;
	m->qkv_bias = f.qkv_bias;
	m->out_bias = f.out_bias;
	m->ffn_bias = f.ffn_bias;
	m->head_bias = f.head_bias;
	m->qk_norm = f.qk_norm * m->head_width;
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

/* Both widths of a vector may be null: no such vector. */
static long read_rank(struct input *in, const char *key)
{
	if (json_is_null(json_object_get(in->root, key)))
		return 0;
	return input_integer(in, in->root, NULL, key, 1, 1 << 20, 0);
}

static void read_latent(struct input *in, struct model *m)
{
	struct latent *l = &m->latent;

	l->key_value = (int)read_rank(in, "kv_lora_rank");
	if (!l->key_value)
		return;
	l->query = (int)read_rank(in, "q_lora_rank");
	l->plain = (int)read_size(in, NAMES("qk_nope_head_dim"), 1 << 14, -1);
	l->rope = (int)read_size(in, NAMES("qk_rope_head_dim"), 1 << 14, -1);
	l->value = (int)read_size(in, NAMES("v_head_dim"), 1 << 14, -1);
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
				NAMES("intermediate_size_mlp",
				      "intermediate_size", "n_inner", "ffn_dim",
				      "ffn_hidden_size"),
				1 << 22, 4L * m->hidden);
	m->vocab = (int)read_size(&in, NAMES("vocab_size"), 1 << 26, -1);
	read_family(&in, m);
	experts_read(&in, input_text(&in, in.root, NULL, "model_type", ""),
		     m->ffn, m->layers, &m->experts);
	read_latent(&in, m);
	read_element(&in, m);
	m->gradient = input_number(&in, in.root, NULL, "gradient_bytes", 1, 8,
				   m->element);
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

/* Query and output, key and value; of those that are split by heads. */
static double attention_matrices(const struct model *m, int unit)
{
	const struct latent *l = &m->latent;
	double h = m->hidden, w = m->head_width, heads = m->heads;

	if (l->key_value)
		return heads *
		       ((l->query ? l->query : h) * (l->plain + l->rope) +
			(double)l->key_value * (l->plain + l->value) +
			l->value * h);
	return 2 * h * w * heads +
	       ((unit - 1) % m->kv_every ? 0 : 2 * h * w * m->kv_heads);
}

/* Those that lead into the narrow vectors; each device has all of them. */
static double latent_matrices(const struct model *m)
{
	const struct latent *l = &m->latent;

	if (!l->key_value)
		return 0;
	return (double)m->hidden * (l->query + l->key_value + l->rope);
}

static double feed_forward(const struct model *m, double width)
{
	return (m->gated ? 3 : 2) * (double)m->hidden * width;
}

/* Of the feed-forward part that all tokens pass. */
static int common_width(const struct model *m, int unit)
{
	return model_is_mixed(m, unit) ? m->experts.shared : m->ffn;
}

/* Of all experts, or of those that a token takes. */
static double expert_matrices(const struct model *m, int unit, int experts)
{
	return model_is_mixed(m, unit)
		       ? experts * feed_forward(m, m->experts.width)
		       : 0;
}

static double router(const struct model *m, int unit)
{
	return model_is_mixed(m, unit) ? (double)m->hidden * m->experts.count
				       : 0;
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

/* Of one feed-forward part; of what is split, and of what is not. */
static double ffn_biases(const struct model *m, double width)
{
	return m->ffn_bias ? (m->gated ? 2 : 1) * width : 0;
}

static double out_biases(const struct model *m)
{
	return m->ffn_bias ? m->hidden : 0;
}

static double params_of_experts(const struct model *m, int unit, int experts)
{
	if (!model_is_mixed(m, unit))
		return 0;
	return expert_matrices(m, unit, experts) +
	       experts * (ffn_biases(m, m->experts.width) + out_biases(m));
}

double model_expert_params(const struct model *m, int unit)
{
	return params_of_experts(m, unit, m->experts.count);
}

double model_split_params(const struct model *m, int unit)
{
	int common;

	if (unit == 0)
		return (double)m->embed * m->vocab;
	if (unit == m->layers + 1)
		return (m->embed + (m->head_bias ? 1.0 : 0)) * m->vocab;
	common = common_width(m, unit);
	/* Biases of what is split by columns are split, too. */
	return attention_matrices(m, unit) + feed_forward(m, common) +
	       ffn_biases(m, common) +
	       (m->qkv_bias
			? (double)m->head_width * (m->heads + 2 * m->kv_heads)
			: 0) +
	       model_expert_params(m, unit);
}

/* Of a block, what no degree splits. */
static double block_copies(const struct model *m, int unit)
{
	const struct experts *e = &m->experts;
	double h = m->hidden, sum = m->norms * m->norm * h + m->qk_norm;

	if (m->latent.key_value)
		sum += latent_matrices(m) + m->latent.key_value +
		       m->latent.query;
	if (m->out_bias)
		sum += h;
	if (!model_is_mixed(m, unit))
		return sum + out_biases(m);
	return sum + router(m, unit) + (e->router_bias ? e->count : 0) +
	       (e->shared ? out_biases(m) : 0) + (e->shared_gate ? h : 0);
}

double model_params(const struct model *m, int unit)
{
	double h = m->hidden, split = model_split_params(m, unit);

	if (unit == 0)
		return split + project(m) + h * m->positions +
		       (m->embed_norm ? m->norm * h : 0);
	if (unit == m->layers + 1)
		return split + project(m) + m->norm * h;
	return split + block_copies(m, unit);
}

double model_active_params(const struct model *m, int unit)
{
	return model_params(m, unit) - model_expert_params(m, unit) +
	       params_of_experts(m, unit, m->experts.active);
}

double model_expert_flops(const struct model *m, int unit, double tokens)
{
	return 2 * tokens * expert_matrices(m, unit, m->experts.active);
}

double model_matrix_flops(const struct model *m, int unit, double sequences,
			  int seq)
{
	double tokens = sequences * seq;

	if (unit == 0)
		return 0;
	if (unit == m->layers + 1)
		return 2 * tokens * m->embed * m->vocab;
	return 2 * tokens *
		       (attention_matrices(m, unit) + latent_matrices(m) +
			feed_forward(m, common_width(m, unit)) +
			router(m, unit)) +
	       model_expert_flops(m, unit, tokens);
}

double model_flops(const struct model *m, int unit, double sequences, int seq)
{
	const struct latent *l = &m->latent;
	double flops = model_matrix_flops(m, unit, sequences, seq), score;

	if (unit == 0 || unit == m->layers + 1)
		return flops;
	/* Of a head: query by key, and what that weighs of the values. */
	score = l->key_value ? l->plain + l->rope + l->value
			     : 2.0 * m->head_width;
	return flops + 2 * sequences * seq * seq * score * m->heads;
}
