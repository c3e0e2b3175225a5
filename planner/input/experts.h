/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mixtures of experts: blocks whose feed-forward part is many of them, of which
 * each token takes a few, as its router says.
 */
#ifndef DICOMM_PLANNER_INPUT_EXPERTS_H
#define DICOMM_PLANNER_INPUT_EXPERTS_H

#include "planner/input/input.h"

struct experts {
	int count;  /* in a block; 0: the model is dense */
	int active; /* that a token takes */
	int width;  /* of one */
	int shared; /* width of those that all tokens take, in sum; 0: none */
	int dense;  /* blocks before the first one that has experts */
	int every;  /* then one of so many, the last of them */
	bool router_bias, shared_gate;
};

/* Is it a mixture of experts, by its model_type or by its keys? */
bool experts_are_there(struct input *in, const char *type);
/* Of a family that is known, or of a file that names none; all 0 without
 * experts. ffn is the width of a dense block; blocks there are `layers`. */
void experts_read(struct input *in, const char *type, long ffn, int layers,
		  struct experts *e);
/* A mixture whose family is not known is refused by name. */
void experts_refuse(struct input *in, const char *type);

/* Has block `at`, from 0, experts? */
static inline bool experts_has(const struct experts *e, int at)
{
	return e->count && at >= e->dense &&
	       (at - e->dense) % e->every == e->every - 1;
}

#endif
