/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers questions about a plan. */
#include <inttypes.h>
#include <stdio.h>

#include "collectives/redistribute/plan.h"

void redist_shape(const struct redist_plan *p, const struct redist_copy *c,
		  struct strided *s)
{
	const int64_t *at = &p->axes[c->shape];

	*s = (struct strided){.naxes = (int)*at++, .n = 1};
	for (int i = 0; i < s->naxes; i++, at += 3) {
		s->axis[i] = (struct strided_axis){at[0], at[1], at[2]};
		s->n *= (uint64_t)at[0];
	}
}

bool redist_plan_reads(const struct redist_plan *p, size_t tensor)
{
	return p->reads[tensor / 8] >> tensor % 8 & 1;
}

bool redist_plan_writes(const struct redist_plan *p, size_t tensor)
{
	return p->writes[tensor / 8] >> tensor % 8 & 1;
}

double redist_weight(const struct redist_plan *p, size_t tensor, uint32_t term)
{
	uint32_t first = p->weights_at[tensor];

	return first == p->weights_at[tensor + 1] ? 1
						  : p->weights[first + term];
}

bool redist_weighted(const struct redist_plan *p, size_t tensor)
{
	for (uint32_t i = p->weights_at[tensor]; i < p->weights_at[tensor + 1];
	     i++)
		if (p->weights[i] != 1)
			return true;
	return false;
}

const char *redist_way_name(dicomm_way_t way)
{
	static const char *const names[WAYS] = {[DICOMM_WAY_AUTO] = "auto",
						[DICOMM_WAY_DIRECT] = "direct",
						[DICOMM_WAY_SCATTER] =
							"scatter",
						[DICOMM_WAY_LEADER] = "leader"};

	return (unsigned)way < WAYS ? names[way] : "?";
}

void redist_plan_explain(const struct redist_plan *p, char *text, size_t len)
{
	int n = snprintf(text, len,
			 "redistribute %zu tensors: rank %d sends %" PRIu64
			 " messages in %u rounds\n"
			 "    way           us    most sent  most received"
			 "    all ranks  between hosts\n",
			 p->ntensors, p->rank, p->messages_sent, p->nrounds);

	for (int w = DICOMM_WAY_DIRECT; w < WAYS; w++) {
		const struct cost *c = &p->cost[w];

		if (n < 0 || (size_t)n >= len)
			return;
		n += snprintf(text + n, len - (size_t)n,
			      "  %c %-8s %9.1f %12" PRIu64 " %14" PRIu64
			      " %12" PRIu64 " %14" PRIu64 "\n",
			      (int)p->way == w ? '*' : ' ',
			      redist_way_name((dicomm_way_t)w),
			      (double)c->ps / 1e6, c->most_sent,
			      c->most_received, c->bytes, c->between_nodes);
	}
}
