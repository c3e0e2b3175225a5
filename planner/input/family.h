/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Families of models, by the model_type of Hugging Face: what a model of one
 * has that no key of its file says.
 */
#ifndef DICOMM_PLANNER_INPUT_FAMILY_H
#define DICOMM_PLANNER_INPUT_FAMILY_H

#include "planner/input/input.h"
#include "planner/input/model.h"

/* Sets gated, tied, biases, norms, positions and heads of keys and values of m,
 * whose other sizes are there. Whoever is no dense decoder, or is not known, is
 * refused by name. */
void family_read(struct input *in, struct model *m);
/* Only the refusal: before sizes are asked for that such a file has not. */
void family_refuse(struct input *in);

#endif
