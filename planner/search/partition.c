/* SPDX-License-Identifier: BSD-3-Clause */
/* Multilevel graph partition. */
#include "planner/search/partition.h"

#include <stdlib.h>
#include <string.h>

#define LEVELS 16
#define PASSES 4

/* A level: each vertex stands for one or two of the level below. */
struct level {
	int n;
	double *weight; /* [n] */
	int *sample;    /* [n]: a vertex of the graph that it stands for */
	int *up;        /* [n]: its vertex a level up */
	int *part;      /* [n] */
};

static bool level_open(struct level *l, int n)
{
	size_t room = (size_t)n + 1;

	l->n = n;
	l->weight = calloc(room, sizeof(*l->weight));
	l->sample = calloc(room, sizeof(*l->sample));
	l->up = calloc(room, sizeof(*l->up));
	l->part = calloc(room, sizeof(*l->part));
	return l->weight && l->sample && l->up && l->part;
}

static void level_close(struct level *l)
{
	free(l->weight);
	free(l->sample);
	free(l->up);
	free(l->part);
}

/* Fast links across: slow ones are what is wanted inside. */
static double wish(const struct partition *p, const struct level *l, int a,
		   int b)
{
	double w = p->edge(l->sample[a], l->sample[b], p->ctx);

	return p->inside ? w : 1 / (w + 1e-30);
}

/* Heavy-edge matching; false: no pair was found, or no memory. */
static bool coarsen(const struct partition *p, struct level *l,
		    struct level *next, double most)
{
	int n = 0;

	for (int i = 0; i < l->n; i++)
		l->up[i] = -1;
	for (int i = 0; i < l->n; i++) {
		int best = -1;
		double best_wish = 0;

		if (l->up[i] >= 0)
			continue;
		for (int k = i + 1; k < l->n; k++) {
			double w;

			if (l->up[k] >= 0 || l->weight[i] + l->weight[k] > most)
				continue;
			w = wish(p, l, i, k);
			if (best < 0 || w > best_wish) {
				best = k;
				best_wish = w;
			}
		}
		l->up[i] = n;
		if (best >= 0)
			l->up[best] = n;
		n++;
	}
	if (n == l->n || !level_open(next, n))
		return false;
	for (int i = l->n - 1; i >= 0; i--) {
		next->weight[l->up[i]] += l->weight[i];
		next->sample[l->up[i]] = l->sample[i];
	}
	return true;
}

static void begin(const struct partition *p, struct level *l, double *heavy)
{
	/* Heaviest first, into the lightest part. */
	int *order = l->up;

	memset(heavy, 0, (size_t)p->parts * sizeof(*heavy));
	for (int i = 0; i < l->n; i++) {
		int k = i;

		for (; k > 0 && l->weight[order[k - 1]] < l->weight[i]; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (int i = 0; i < l->n; i++) {
		int best = 0;

		for (int q = 1; q < p->parts; q++)
			if (heavy[q] < heavy[best])
				best = q;
		l->part[order[i]] = best;
		heavy[best] += l->weight[order[i]];
	}
}

/* Moves that make the cut better and no part too heavy, or too light. */
static void refine(const struct partition *p, struct level *l, double *heavy,
		   double *to, double most)
{
	for (int pass = 0; pass < PASSES; pass++) {
		bool moved = false;

		for (int v = 0; v < l->n; v++) {
			int own = l->part[v], best = own;

			memset(to, 0, (size_t)p->parts * sizeof(*to));
			for (int u = 0; u < l->n; u++)
				if (u != v)
					to[l->part[u]] += wish(p, l, u, v);
			for (int q = 0; q < p->parts; q++)
				if (to[q] > to[best] &&
				    heavy[q] + l->weight[v] <= most)
					best = q;
			if (best == own || heavy[own] - l->weight[v] <= 0)
				continue;
			heavy[own] -= l->weight[v];
			heavy[best] += l->weight[v];
			l->part[v] = best;
			moved = true;
		}
		if (!moved)
			break;
	}
}

bool partition_run(const struct partition *p, int *part)
{
	struct level level[LEVELS] = {{0}};
	double *heavy = calloc((size_t)p->parts * 2, sizeof(*heavy));
	double sum = 0, most;
	int levels = 1;
	bool good = heavy && level_open(&level[0], p->vertices);

	for (int i = 0; good && i < p->vertices; i++) {
		level[0].weight[i] = p->weight[i];
		level[0].sample[i] = i;
		sum += p->weight[i];
	}
	most = sum / p->parts * p->balance;
	while (good && levels < LEVELS && level[levels - 1].n > 4 * p->parts &&
	       coarsen(p, &level[levels - 1], &level[levels], most / 2))
		levels++;
	if (good) {
		begin(p, &level[levels - 1], heavy);
		refine(p, &level[levels - 1], heavy, heavy + p->parts, most);
	}
	for (int i = levels - 2; good && i >= 0; i--) {
		struct level *l = &level[i];

		for (int v = 0; v < l->n; v++)
			l->part[v] = level[i + 1].part[l->up[v]];
		refine(p, l, heavy, heavy + p->parts, most);
	}
	if (good)
		memcpy(part, level[0].part,
		       (size_t)p->vertices * sizeof(*part));
	for (int i = 0; i < LEVELS; i++)
		level_close(&level[i]);
	free(heavy);
	return good;
}
