/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The devices to plan for: a topology file of the library (src/topo/cluster.h)
 * with a table of device types beside it. Each entry of "nodes" names one:
 *
 *   {"nodes": [{"count": 2, "ranks": 8, "gbit_per_s": 25, "device": "A100"}],
 *    "devices": {"A100": {"tflops": 312, "memory_gib": 80}}}
 *
 * Further values of a type: efficiency (0.45) of its peak that training
 * reaches, reserved_gib (1) that driver and libraries keep,
 * memory_gbyte_per_s (1000), vendor, price of an hour, and watts under load.
 * Read only after fleet_open(), but `off` between searches: any thread.
 */
#ifndef DICOMM_PLANNER_INPUT_FLEET_H
#define DICOMM_PLANNER_INPUT_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "src/topo/cluster.h"

struct fleet_type {
	char name[64], vendor[32];
	double flops; /* peak, FLOP/s of one device */
	double efficiency;
	double memory, reserved; /* bytes */
	double memory_per_s;     /* bytes per second */
	double price;            /* of an hour; NAN: nobody says */
	double watts;            /* under load; likewise */
};

/* Nodes that are alike in all that matters: type, links, ranks. */
struct fleet_kind {
	int type;
	uint32_t ranks; /* of one node */
	uint32_t nodes;
	struct links_class class;
};

struct fleet {
	char *file; /* owned */
	struct cluster *cluster;
	struct links *links;
	struct fleet_type *type; /* [types]: those that nodes have */
	struct fleet_kind *kind; /* [kinds] */
	int *kind_of;            /* [node] */
	uint32_t *first;         /* [node]: its lowest rank */
	bool *off;               /* [rank]: no plan may use it */
	int types, kinds;
	uint32_t ranks, nodes;
};

/* False after a message that names file, place and value. */
bool fleet_open(struct fleet *f, const char *file);
void fleet_close(struct fleet *f);
/* Those of a node that a plan may use, from rank on: how many follow each
 * other. 0: rank may not be used, or is of another node. */
uint32_t fleet_usable(const struct fleet *f, uint32_t node, uint32_t rank);
/* Of a node; "" if its entry of the file has no name. */
const char *fleet_host(const struct fleet *f, uint32_t node);

static inline const struct fleet_kind *fleet_kind(const struct fleet *f,
						  uint32_t rank)
{
	return &f->kind[f->kind_of[f->links->node_of[rank]]];
}

static inline const struct fleet_type *fleet_type(const struct fleet *f,
						  uint32_t rank)
{
	return &f->type[fleet_kind(f, rank)->type];
}

#endif
