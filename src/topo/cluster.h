/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A description of nodes and of the network between them, as JSON:
 *
 *   {"nodes": [{"name": "a", "gbit_per_s": 8, "island": "east"},
 *              {"count": 3, "ranks": 2, "up_gbit_per_s": 4,
 *               "down_gbit_per_s": 2, "island": "west"}],
 *    "islands": [{"name": "east", "gbit_per_s": 1}, {"name": "west"}]}
 *
 * An entry of nodes stands for `count` (1) alike, each with so many ranks (1).
 * Further numbers: inside_gbit_per_s between two of its ranks,
 * rank_gbit_per_s that each of them may have of the node's link (each has a NIC
 * of several), reduce_gbyte_per_s of each, latency_us between nodes; "device"
 * and "machine" are remarks.
 * What is not given does not limit. Islands are parts of the network behind a
 * narrower link; nodes that name none share one.
 *
 * "measured" beside nodes and islands is a remark, too: the matrices
 * latency_us, gbit_per_s of one flow alone, and together_gbit_per_s of one
 * while all nodes send and receive; from the node of the row to that of the
 * column, in the order of nodes, and null from one to itself.
 */
#ifndef DICOMM_TOPO_CLUSTER_H
#define DICOMM_TOPO_CLUSTER_H

#include <stddef.h>

#include "src/base/links.h"

struct cluster_nodes {
	char name[64]; /* "" if it has none */
	uint32_t count, ranks, island;
	struct links_class class;
};

struct cluster {
	struct cluster_nodes *nodes; /* [entries] */
	struct links_pipe *island;   /* [islands] */
	uint32_t entries, islands;
	uint32_t total_nodes, total_ranks;
	char *text; /* the JSON, however it was written */
	size_t len;
};

/* ERR_INVALID_ARGUMENT names the file, the place and what is wrong. */
dicomm_result_t cluster_read(const char *path, struct cluster **out);
dicomm_result_t cluster_parse(const char *text, size_t len, const char *path,
			      struct cluster **out);
void cluster_free(struct cluster *c);
/* Of its text; never 0. */
uint64_t cluster_hash(const struct cluster *c);

/*
 * The links of ranks of whom it is known on which node each is, and what those
 * are called. Nodes that have names are found by them, "a" and "a.b" being one
 * if no other is called so (ERR_INVALID_ARGUMENT if one is not there, or may be
 * several), else they are those of the file in its order: then *out is NULL
 * where their numbers differ, unless the file has one entry only.
 */
dicomm_result_t cluster_links(const struct cluster *c, const char *path,
			      uint32_t ranks, const uint32_t *node_of,
			      uint32_t nodes, const char *const *names,
			      struct links **out);
/* As if all its ranks, or the first so many (0: all), were there. */
dicomm_result_t cluster_plan(const struct cluster *c, uint32_t ranks,
			     struct links **out);

#endif
