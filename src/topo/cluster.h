/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a description of nodes and of the network between them, as JSON:
 *
 *   {"nodes": [{"name": "a", "gbit_per_s": 8, "island": "east"},
 *              {"count": 3, "ranks": 2, "up_gbit_per_s": 4,
 *               "down_gbit_per_s": 2, "island": "west"}],
 *    "islands": [{"name": "east", "gbit_per_s": 1}, {"name": "west"}]}
 *
 * An entry of nodes stands for `count` equal nodes (default 1) with `ranks`
 * ranks each (default 1). It may also have these numbers: inside_gbit_per_s
 * between two ranks of the node; rank_gbit_per_s, the part of the node's link
 * that one rank can use (if each has one of several NICs); reduce_gbyte_per_s
 * of each rank; latency_us between nodes. "device" and "machine" are remarks. A
 * rate that is missing does not limit. Islands are parts of the network behind
 * a narrower link. All nodes that name none are in one further island.
 *
 * "measured" beside nodes and islands is a remark, too. It holds the matrices
 * latency_us, gbit_per_s of one flow alone, and together_gbit_per_s of one flow
 * while all nodes send and receive. Row is the sending node, column the
 * receiving one, in the order of nodes; null from a node to itself.
 */
#ifndef DICOMM_TOPO_CLUSTER_H
#define DICOMM_TOPO_CLUSTER_H

#include <stddef.h>

#include "src/base/links.h"

struct cluster_nodes {
	char name[64]; /* "" if the entry has no name */
	uint32_t count, ranks, island;
	struct links_class class;
};

struct cluster {
	struct cluster_nodes *nodes; /* [entries] */
	struct links_pipe *island;   /* [islands] */
	uint32_t entries, islands;
	uint32_t total_nodes, total_ranks;
	char *text; /* the JSON in one fixed form, however it was written */
	size_t len;
};

/* Returns ERR_INVALID_ARGUMENT, and logs the file, the place and what is wrong,
 * if the description is not valid. The caller frees *out with
 * cluster_free(). */
dicomm_result_t cluster_read(const char *path, struct cluster **out);
dicomm_result_t cluster_parse(const char *text, size_t len, const char *path,
			      struct cluster **out);
void cluster_free(struct cluster *c);
/* Returns the hash of the description's text, never 0. */
uint64_t cluster_hash(const struct cluster *c);

/*
 * Make the links of ranks. node_of[rank] is the node of a rank; names[node] is
 * the name of its host. If the description names its nodes, they are found by
 * name; "a" and "a.b" are the same host if nothing else fits. Returns
 * ERR_INVALID_ARGUMENT if a node is missing or several fit. Without names, node
 * i is the i-th of the file; then *out is NULL if the number of nodes differs,
 * unless the file has only one entry.
 */
dicomm_result_t cluster_links(const struct cluster *c, const char *path,
			      uint32_t ranks, const uint32_t *node_of,
			      uint32_t nodes, const char *const *names,
			      struct links **out);
/* Make the links as if all ranks of the description, or only the first `ranks`
 * of them (0: all), were there. */
dicomm_result_t cluster_plan(const struct cluster *c, uint32_t ranks,
			     struct links **out);

#endif
