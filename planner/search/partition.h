/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A multilevel partition: vertices joined by fast links are merged level by
 * level, the few that are left are spread over the parts, and on the way back
 * each level is refined by moves that improve the cut while parts stay
 * balanced. O(n^2) for each level, without a matrix.
 */
#ifndef DICOMM_PLANNER_SEARCH_PARTITION_H
#define DICOMM_PLANNER_SEARCH_PARTITION_H

#include <stdbool.h>

struct partition {
	int vertices, parts;
	const double *weight; /* [vertices] */
	/* How fast two vertices are joined. */
	double (*edge)(int a, int b, void *ctx);
	void *ctx;
	bool inside;    /* fast edges inside parts; else across them */
	double balance; /* the heaviest part beside the mean: 1.1 */
};

/* Fills in part[0 ... vertices). False: no memory. */
bool partition_run(const struct partition *p, int *part);

#endif
