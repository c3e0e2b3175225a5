/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Families of models, by the model_type of Hugging Face: what a model of one
 * has that no key of its file says.
 */
#ifndef DICOMM_PLANNER_INPUT_FAMILY_H
#define DICOMM_PLANNER_INPUT_FAMILY_H

#include "planner/input/input.h"

struct family_shape {
	int kv_heads;  /* as the file says; changed where the family differs */
	int positions; /* learned ones; 0: none */
	bool gated, tied;
	bool tied_said; /* by its file, not by its family */
	bool qkv_bias, out_bias, ffn_bias, head_bias, embed_norm;
	int qk_norm; /* parameters of the norms of queries and keys, in heads */
	int kv_every;    /* blocks that share keys and values */
	int norms, norm; /* of a block; parameters of one, in widths */
};

/* Of a model with so many heads, whose kv_heads are set. */
void family_read(struct input *in, int heads, struct family_shape *m);
/* Whoever is no decoder, or is not known, is refused by name: before
 * sizes are asked for that such a file has not. */
void family_refuse(struct input *in);

#endif
