/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/links.h"

#include <stdlib.h>

#include "src/base/log.h"

struct links *links_create(uint32_t ranks, uint32_t nodes, uint32_t classes,
			   uint32_t islands)
{
	struct links *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->ranks = ranks;
	l->nodes = nodes;
	l->classes = classes;
	l->islands = islands;
	l->class = calloc(classes, sizeof(*l->class));
	l->island = calloc(islands, sizeof(*l->island));
	/* All that is numbers, in one piece. */
	l->class_of = calloc(3 * (size_t)nodes + 3 * (size_t)ranks,
			     sizeof(*l->class_of));
	l->memo = calloc(LINKS_MEMOS, sizeof(*l->memo));
	if (!l->class || !l->island || !l->class_of || !l->memo) {
		links_free(l);
		return NULL;
	}
	l->island_of = l->class_of + nodes;
	l->ranks_of = l->island_of + nodes;
	l->node_of = l->ranks_of + nodes;
	l->path = l->node_of + ranks;
	l->place = l->path + ranks;
	return l;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	free(l->class);
	free(l->island);
	free(l->class_of);
	free(l->memo);
	free(l);
}

/* By island, then by node, then by rank: two rounds of counting. */
dicomm_result_t links_finish(struct links *l)
{
	uint32_t *first = calloc((size_t)l->nodes + 1, sizeof(*first));
	uint32_t at = 0;

	if (!first)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u nodes", l->nodes);
	for (uint32_t n = 0; n < l->nodes; n++)
		l->ranks_of[n] = 0;
	for (uint32_t r = 0; r < l->ranks; r++)
		l->ranks_of[l->node_of[r]]++;
	l->used_islands = 0;
	for (uint32_t i = 0; i < l->islands; i++) {
		uint32_t before = at;

		for (uint32_t n = 0; n < l->nodes; n++) {
			if (l->island_of[n] != i)
				continue;
			first[n] = at;
			at += l->ranks_of[n];
		}
		l->used_islands += at > before;
	}
	for (uint32_t r = 0; r < l->ranks; r++) {
		l->place[r] = first[l->node_of[r]]++;
		l->path[l->place[r]] = r;
	}
	free(first);
	return DICOMM_SUCCESS;
}
