/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/select/estimate_params.h"

void estimate_params_of_node(struct estimate_params *e,
			     const struct links_class *c)
{
	if (c->inside)
		e->bytes_per_s = c->inside;
	if (c->inside > e->copy_bytes_per_s)
		e->copy_bytes_per_s = c->inside;
	if (c->reduce)
		e->reduce_bytes_per_s = c->reduce;
}
