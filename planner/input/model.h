/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model to train, by its sizes: a config.json of Hugging Face, or the same
 * keys in a file of one's own.
 *
 * A plan cuts it into units: 0 the embedding, 1 to layers the transformer
 * blocks, layers + 1 the output head.
 */
#ifndef DICOMM_PLANNER_INPUT_MODEL_H
#define DICOMM_PLANNER_INPUT_MODEL_H

#include <stdbool.h>

#include "planner/input/experts.h"

#define MODEL_UNITS_MOST 1026

/* Attention whose keys and values are kept as one narrow vector, and whose
 * queries may come from another one. */
struct latent {
	int key_value, query; /* widths; 0: none */
	int plain, rope;      /* of a query and key head: without and with
			       * positions */
	int value;            /* of a value head */
};

struct model {
	char name[64];
	int layers, hidden, heads, kv_heads, head_width, ffn, vocab;
	struct experts experts;
	struct latent latent;
	int kv_every;   /* blocks that share keys and values; as a rule 1 */
	int embed;      /* width of the embedding; as a rule hidden */
	int positions;  /* learned ones; 0: none */
	bool gated;     /* three matrices in the feed-forward part, not two */
	bool tied;      /* embedding and head share their matrix */
	bool tied_said; /* by its file, not by its family */
	bool qkv_bias, out_bias, ffn_bias, head_bias, embed_norm;
	int qk_norm;     /* parameters of the norms of queries and keys */
	int norms, norm; /* of a block; parameters of one, in widths */
	int element;     /* bytes of a weight and an activation: 2, 4 */
	/* Of a gradient that is kept and summed; as a rule as of a weight. */
	double gradient;
	/* Of what the optimizer keeps of a parameter. Adam: two moments of
	 * four, and a copy of a narrow weight; "optimizer_bytes" of the file.
	 */
	double optimizer;
};

/* False after a message. */
bool model_open(struct model *m, const char *file);

/* Has a unit experts? */
static inline bool model_is_mixed(const struct model *m, int unit)
{
	return unit > 0 && unit <= m->layers &&
	       experts_has(&m->experts, unit - 1);
}

static inline int model_units(const struct model *m)
{
	return m->layers + 2;
}

/* Parameters of a unit; of these the ones that tensor parallelism splits. A
 * matrix that embedding and head share is counted by both: whoever holds both
 * of them has model_shared_params() less. */
double model_shared_params(const struct model *m);
double model_params(const struct model *m, int unit);
double model_split_params(const struct model *m, int unit);
/* Of the latter, those of experts that not all tokens take. */
double model_expert_params(const struct model *m, int unit);
/* Of the first, those that one token passes through. */
double model_active_params(const struct model *m, int unit);
/* Floating-point operations of a forward pass over so many sequences. */
double model_flops(const struct model *m, int unit, double sequences, int seq);
/* Of these, those with a matrix of the model: as many as the gradients of its
 * weights take in the backward pass. */
double model_matrix_flops(const struct model *m, int unit, double sequences,
			  int seq);
/* Of the first, those of experts, which have as much to do as each other. */
double model_expert_flops(const struct model *m, int unit, double tokens);

#endif
