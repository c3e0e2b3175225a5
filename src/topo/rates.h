/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From measured flows between nodes to a table of links.
 *
 * Nodes meet in rounds of disjoint pairs, in which each sends to the other as
 * fast as it goes. A flow is as fast as the narrower of two ways; so what a way
 * carries is the fastest flow through it. Integers, the same on all ranks.
 */
#ifndef DICOMM_TOPO_RATES_H
#define DICOMM_TOPO_RATES_H

#include "src/base/links.h"

/* At most; up to that many nodes and one more, all meet all. */
#define RATES_ROUNDS 7
/* Of a flow, in 1000 bytes per second: it was not measured. */
#define RATES_UNKNOWN UINT32_MAX

uint32_t rates_rounds(uint32_t nodes);
/* Whom a node meets in a round; RATES_UNKNOWN: nobody. */
uint32_t rates_partner(uint32_t nodes, uint32_t round, uint32_t node);

/*
 * A table made from an old one; flow[node * RATES_ROUNDS + round] is what
 * reached the node from its partner. Where the old rates are `known`, those
 * that explain what was measured stay as they are, and *changed is false if all
 * do. Nodes of nearly equal rates become equal. ERR_NO_MEMORY.
 */
dicomm_result_t rates_links(const struct links *old, bool known,
			    const uint32_t *flow, struct links **out,
			    bool *changed);

#endif
