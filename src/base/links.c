/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/links.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
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
	/* One allocation for all arrays of numbers. */
	l->class_of = calloc(5 * (size_t)nodes + 3 * (size_t)ranks + 2,
			     sizeof(*l->class_of));
	l->memos = calloc(1, sizeof(*l->memos));
	if (l->memos)
		pthread_mutex_init(&l->memos->lock, NULL);
	l->groups = calloc(LINKS_GROUPS, sizeof(*l->groups));
	if (!l->class || !l->island || !l->class_of || !l->memos ||
	    !l->groups) {
		links_free(l);
		return NULL;
	}
	l->island_of = l->class_of + nodes;
	l->ranks_of = l->island_of + nodes;
	l->node_of = l->ranks_of + nodes;
	l->path = l->node_of + ranks;
	l->place = l->path + ranks;
	l->node_begin = l->place + ranks;
	l->island_begin = l->node_begin + nodes + 1;
	return l;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	free(l->class);
	free(l->island);
	free(l->class_of);
	if (l->memos)
		pthread_mutex_destroy(&l->memos->lock);
	free(l->memos);
	for (int i = 0; l->groups && i < LINKS_GROUPS; i++)
		free(l->groups[i]);
	free(l->groups);
	free(l);
}

struct place {
	uint32_t island, node;
	uint64_t rate;
};

static uint64_t least_rate(const struct links_pipe *nic)
{
	uint64_t up = nic->up ? nic->up : UINT64_MAX;
	uint64_t down = nic->down ? nic->down : UINT64_MAX;

	return up < down ? up : down;
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->island != y->island)
		return x->island < y->island ? -1 : 1;
	if (x->rate != y->rate)
		return x->rate > y->rate ? -1 : 1;
	return x->node < y->node ? -1 : 1;
}

/* Numbers the islands again without those that have no node; the others keep
 * their order. */
static void find_begins(struct links *l, const struct place *places)
{
	uint32_t at = 0, islands = 0;

	for (uint32_t i = 0; i < l->nodes; i++) {
		if (!i || places[i].island != places[i - 1].island) {
			l->island[islands] = l->island[places[i].island];
			l->island_begin[islands++] = i;
		}
		l->island_of[places[i].node] = islands - 1;
		l->node_begin[i] = at;
		at += l->ranks_of[places[i].node];
	}
	l->node_begin[l->nodes] = at;
	l->island_begin[islands] = l->nodes;
	l->islands = islands;
}

/* The path is sorted by island, then by node with fast nodes first, then by
 * rank. */
dicomm_result_t links_finish(struct links *l, struct links **out)
{
	struct place *places = calloc((size_t)l->nodes + 1, sizeof(*places));
	uint32_t *next = calloc((size_t)l->nodes + 1, sizeof(*next));
	uint32_t nodes;

	if (!places || !next) {
		free(places);
		free(next);
		nodes = l->nodes;
		links_free(l);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u nodes", nodes);
	}
	for (uint32_t n = 0; n < l->nodes; n++) {
		places[n] = (struct place){
			.island = l->island_of[n],
			.node = n,
			.rate = least_rate(&links_node(l, n)->nic)};
		l->ranks_of[n] = 0;
	}
	for (uint32_t r = 0; r < l->ranks; r++)
		l->ranks_of[l->node_of[r]]++;
	qsort(places, l->nodes, sizeof(*places), compare_places);
	find_begins(l, places);
	for (uint32_t i = 0; i < l->nodes; i++)
		next[places[i].node] = l->node_begin[i];
	for (uint32_t r = 0; r < l->ranks; r++) {
		l->place[r] = next[l->node_of[r]]++;
		l->path[l->place[r]] = r;
	}
	free(places);
	free(next);
	*out = l;
	return DICOMM_SUCCESS;
}

/* Returns the node in `whole` of a rank of the part. */
static uint32_t node_there(const struct links *whole, const uint32_t *was,
			   uint32_t rank)
{
	return whole->node_of[was ? was[rank] : rank];
}

/* Returns the new number of each node; UINT32_MAX if it is left out. Returns
 * NULL if there is no memory. */
static uint32_t *renumber(const struct links *whole, uint32_t ranks,
			  const uint32_t *was, uint32_t *nodes)
{
	uint32_t *now = malloc(whole->nodes * sizeof(*now));

	*nodes = 0;
	for (uint32_t n = 0; now && n < whole->nodes; n++)
		now[n] = UINT32_MAX;
	for (uint32_t r = 0; now && r < ranks; r++) {
		uint32_t node = node_there(whole, was, r);

		if (now[node] == UINT32_MAX)
			now[node] = (*nodes)++;
	}
	return now;
}

dicomm_result_t links_part(const struct links *whole, uint32_t ranks,
			   const uint32_t *was, struct links **out)
{
	uint32_t nodes, *now = renumber(whole, ranks, was, &nodes);
	struct links *l = NULL;

	if (now)
		l = links_create(ranks, nodes, nodes, whole->islands);
	if (!l) {
		free(now);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u nodes", whole->nodes);
	}
	for (uint32_t n = 0; n < whole->nodes; n++) {
		if (now[n] == UINT32_MAX)
			continue;
		l->class[now[n]] = *links_node(whole, n);
		l->class_of[now[n]] = now[n];
		l->island_of[now[n]] = whole->island_of[n];
	}
	memcpy(l->island, whole->island, l->islands * sizeof(*l->island));
	for (uint32_t r = 0; r < ranks; r++)
		l->node_of[r] = now[node_there(whole, was, r)];
	free(now);
	return links_finish(l, out);
}

uint64_t links_hash(const struct links *l)
{
	uint64_t h = hash_bytes(HASH_START, &l->ranks, sizeof(l->ranks));

	h = hash_bytes(h, l->node_of, l->ranks * sizeof(*l->node_of));
	h = hash_bytes(h, l->island_of, l->nodes * sizeof(*l->island_of));
	h = hash_bytes(h, l->island, l->islands * sizeof(*l->island));
	for (uint32_t n = 0; n < l->nodes; n++)
		h = hash_bytes(h, links_node(l, n), sizeof(*l->class));
	return h ? h : 1;
}
