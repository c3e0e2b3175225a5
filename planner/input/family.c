/* SPDX-License-Identifier: BSD-3-Clause */
/* What a family of models has that no key of its file says. */
#include "planner/input/family.h"

#include <stdio.h>
#include <string.h>

#include "planner/input/experts.h"

enum {
	GATED = 1 << 0,
	TIED = 1 << 1,       /* unless tie_word_embeddings says otherwise */
	QKV_BIAS = 1 << 2,   /* of query, key and value */
	OUT_BIAS = 1 << 3,   /* of what leaves the attention */
	FFN_BIAS = 1 << 4,   /* of both sides of the feed-forward part */
	HEAD_BIAS = 1 << 5,  /* of the output head */
	LAYER_NORM = 1 << 6, /* with a bias; else one weight for each */
	ONE_NORM = 1 << 7,   /* of a block; else two */
	FOUR_NORMS = 1 << 8,
	QK_NORM = 1 << 9,       /* of query and key, by head */
	EMBED_NORM = 1 << 10,   /* behind the embedding */
	POSITIONS = 1 << 11,    /* learned ones */
	ONE_KV = 1 << 12,       /* multi-query, unless it is said not to be */
	WIDE_QK_NORM = 1 << 13, /* of query and key, over all heads */
	KV_PAIRS = 1 << 14,     /* of blocks, if it is said */
	BIASES = QKV_BIAS | OUT_BIAS | FFN_BIAS,
};

static const struct family {
	const char *name;
	unsigned has;
	int positions; /* if the file says nothing */
	int more;      /* positions than it says */
} families[] = {
	{"baichuan", GATED, 0, 0},
	{"bloom", TIED | BIASES | LAYER_NORM | EMBED_NORM, 0, 0},
	{"cohere", GATED | TIED | ONE_NORM, 0, 0},
	{"dbrx", GATED, 0, 0},
	{"deepseek", GATED, 0, 0},
	{"deepseek_v2", GATED, 0, 0},
	{"deepseek_v3", GATED, 0, 0},
	{"falcon", TIED | LAYER_NORM, 0, 0},
	{"gemma", GATED | TIED, 0, 0},
	{"gemma2", GATED | TIED | FOUR_NORMS, 0, 0},
	{"gemma3_text", GATED | TIED | FOUR_NORMS | QK_NORM, 0, 0},
	{"gpt2", TIED | BIASES | LAYER_NORM | POSITIONS, 1024, 0},
	{"gpt_bigcode", TIED | BIASES | LAYER_NORM | POSITIONS | ONE_KV, 1024,
	 0},
	{"gpt_neo", TIED | OUT_BIAS | FFN_BIAS | LAYER_NORM | POSITIONS, 2048,
	 0},
	{"gpt_neox", BIASES | LAYER_NORM, 0, 0},
	{"gpt_oss", GATED | BIASES, 0, 0},
	{"gptj", FFN_BIAS | HEAD_BIAS | LAYER_NORM | ONE_NORM, 0, 0},
	{"granite", GATED, 0, 0},
	{"granitemoe", GATED | TIED, 0, 0},
	{"granitemoeshared", GATED | TIED, 0, 0},
	{"hunyuan", GATED | TIED | QK_NORM | KV_PAIRS, 0, 0},
	{"hunyuan_v1_moe", GATED | TIED | QK_NORM | KV_PAIRS, 0, 0},
	{"internlm2", GATED, 0, 0},
	{"kimi_k2", GATED, 0, 0},
	{"llama", GATED, 0, 0},
	{"llama4_text", GATED, 0, 0},
	{"llama_moe", GATED, 0, 0},
	{"mistral", GATED, 0, 0},
	{"mixtral", GATED, 0, 0},
	{"mpt", TIED, 0, 0},
	{"nemotron", LAYER_NORM, 0, 0},
	{"olmoe", GATED | WIDE_QK_NORM, 0, 0},
	{"opt", TIED | BIASES | LAYER_NORM | POSITIONS, 2048, 2},
	{"phi", BIASES | HEAD_BIAS | LAYER_NORM | ONE_NORM, 0, 0},
	{"phi3", GATED, 0, 0},
	{"phimoe", GATED | LAYER_NORM | HEAD_BIAS, 0, 0},
	{"qwen2", GATED | QKV_BIAS, 0, 0},
	{"qwen2_moe", GATED | QKV_BIAS, 0, 0},
	{"qwen3", GATED | QK_NORM, 0, 0},
	{"qwen3_moe", GATED | QK_NORM, 0, 0},
	{"smollm3", GATED | TIED, 0, 0},
	{"starcoder2", TIED | BIASES | LAYER_NORM, 0, 0},
};

#define N(list) (sizeof(list) / sizeof((list)[0]))

static const struct family *find(const char *name)
{
	for (size_t i = 0; i < N(families); i++)
		if (!strcmp(name, families[i].name))
			return &families[i];
	return NULL;
}

static const char *type_of(struct input *in)
{
	return input_text(in, in->root, NULL, "model_type", "");
}

/* ---- refusals ---- */

static bool is_one_of(const char *name, const char *const *list)
{
	for (int i = 0; list[i]; i++)
		if (!strcmp(name, list[i]))
			return true;
	return false;
}

/* Half of such a model would be planned as if it were all. */
static void refuse_other_shapes(struct input *in, const char *type)
{
	static const char *const two[] = {
		"bart",   "blenderbot", "fsmt",           "led",
		"longt5", "m2m_100",    "marian",         "mbart",
		"mt5",    "mvp",        "nllb",           "pegasus",
		"plbart", "t5",         "t5gemma",        "udop",
		"umt5",   "whisper",    "xlm-prophetnet", NULL};
	static const char *const towers[] = {"vision_config", "audio_config",
					     NULL};
	json_t *both = json_object_get(in->root, "is_encoder_decoder");

	if (is_one_of(type, two))
		input_wrong(in, "model_type",
			    json_object_get(in->root, "model_type"),
			    "a decoder: an encoder with a decoder is not "
			    "planned for");
	if (json_is_true(both))
		input_wrong(in, "is_encoder_decoder", both,
			    "false: an encoder with a decoder (model_type "
			    "%.64s) is not planned for",
			    *type ? type : "not said");
	for (int i = 0; towers[i]; i++)
		if (json_is_object(json_object_get(in->root, towers[i])))
			input_wrong(in, "model_type",
				    json_object_get(in->root, "model_type"),
				    "a model of text: its %s is not planned "
				    "for; its text_config alone, in a file of "
				    "its own, is",
				    towers[i]);
}

static void refuse_unknown(struct input *in, const char *type)
{
	char list[1024];
	size_t n = 0;

	/* Of an inner model, its own family counts. */
	if (!*type || find(type) ||
	    json_is_object(json_object_get(in->root, "text_config")))
		return;
	for (size_t i = 0; i < N(families) && n < sizeof(list); i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
				      i ? ", " : "", families[i].name);
	input_wrong(in, "model_type", json_object_get(in->root, "model_type"),
		    "one of %s; or none, and what is not so by default of "
		    "gated, tie_word_embeddings, attention_bias, mlp_bias",
		    list);
}

void family_refuse(struct input *in)
{
	const char *type = type_of(in);

	experts_refuse(in, type);
	refuse_other_shapes(in, type);
	refuse_unknown(in, type);
}

/* ---- what they have ---- */

static bool flag(struct input *in, const char *key, bool otherwise)
{
	return input_bool(in, in->root, NULL, key, otherwise);
}

/* Of 7B and before one head of keys and values, unless it is said; of later
 * ones as many as are said, and two norms. */
static unsigned falcon(struct input *in, int heads, struct family_shape *m)
{
	bool later = flag(in, "new_decoder_architecture", false);
	unsigned has = 0;

	if (!later && flag(in, "multi_query", true))
		m->kv_heads = 1;
	else if (!later)
		m->kv_heads = heads;
	if (flag(in, "bias", false))
		has |= BIASES;
	if (!later && flag(in, "parallel_attn", true))
		has |= ONE_NORM;
	if (later && input_integer(in, in->root, NULL,
				   "num_ln_in_parallel_attn", 1, 2, 2) == 1)
		has |= ONE_NORM;
	return has;
}

/* MPT and DBRX say it in an object of their own. */
static void grouped(struct input *in, int heads, struct family_shape *m)
{
	const json_t *attention = json_object_get(in->root, "attn_config");
	const char *type;

	if (!json_is_object(attention))
		return;
	type = input_text(in, attention, "attn_config", "attn_type", "");
	m->kv_heads = (int)input_integer(in, attention, "attn_config",
					 "kv_n_heads", 1, heads, m->kv_heads);
	if (!strcmp(type, "multiquery_attention"))
		m->kv_heads = 1;
}

/* Of a file without a family: by its activation. */
static unsigned unnamed(struct input *in)
{
	const char *act = input_text(
		in, in->root, NULL, "hidden_act",
		input_text(in, in->root, NULL, "activation_function", "silu"));

	return !strcmp(act, "silu") || !strcmp(act, "swish") ? GATED : 0;
}

static unsigned biases(struct input *in, unsigned has)
{
	const unsigned attention = QKV_BIAS | OUT_BIAS;

	if (json_object_get(in->root, "attention_bias"))
		has = (has & ~attention) |
		      (flag(in, "attention_bias", false) ? attention : 0);
	if (json_object_get(in->root, "mlp_bias"))
		has = (has & ~(unsigned)FFN_BIAS) |
		      (flag(in, "mlp_bias", false) ? FFN_BIAS : 0);
	return has;
}

static int positions(struct input *in, const struct family *f)
{
	static const char *const keys[] = {"max_position_embeddings",
					   "n_positions", NULL};

	for (int i = 0; keys[i]; i++)
		if (json_object_get(in->root, keys[i]))
			return f->more + (int)input_integer(in, in->root, NULL,
							    keys[i], 1, 1 << 24,
							    -1);
	return f->more + f->positions;
}

void family_read(struct input *in, int heads, struct family_shape *m)
{
	const char *type = type_of(in);
	const struct family *f = find(type);
	unsigned has = f ? f->has : unnamed(in);

	if (!strcmp(type, "falcon"))
		has |= falcon(in, heads, m);
	grouped(in, heads, m);
	if (has & ONE_KV && flag(in, "multi_query", true))
		m->kv_heads = 1;
	has = biases(in, has);
	m->gated = flag(in, "gated", has & GATED);
	m->tied = flag(in, "tie_word_embeddings", has & TIED);
	m->tied_said = json_object_get(in->root, "tie_word_embeddings");
	m->qkv_bias = has & QKV_BIAS;
	m->out_bias = has & OUT_BIAS;
	m->ffn_bias = has & FFN_BIAS;
	m->head_bias = has & HEAD_BIAS;
	if (has & QK_NORM)
		m->qk_norm = 2;
	if (has & WIDE_QK_NORM)
		m->qk_norm = heads + m->kv_heads;
	if (has & KV_PAIRS && flag(in, "use_cla", false))
		m->kv_every = (int)input_integer(
			in, in->root, NULL, "cla_share_factor", 1, 1024, 2);
	m->embed_norm = has & EMBED_NORM;
	m->norm = has & LAYER_NORM ? 2 : 1;
	m->norms = has & ONE_NORM ? 1 : has & FOUR_NORMS ? 4 : 2;
	m->positions = f && has & POSITIONS ? positions(in, f) : 0;
}
