/* SPDX-License-Identifier: BSD-3-Clause */
/* The links between the hosts of a communicator: one table for all ranks. */
#ifndef DICOMM_LINKS_TOPOLOGY_H
#define DICOMM_LINKS_TOPOLOGY_H

#include "src/core/comm.h"

/*
 * Find comm->links after the ranks have met; equal on all ranks. The order is:
 * a table that all have inherited; the file of DICOMM_TOPO_FILE; else all links
 * count as equal until they are measured (probe.h). NULL if all ranks are on
 * one host, unless they count as apart. Errors: INVALID_USAGE if ranks have
 * different files, INVALID_ARGUMENT for a bad file.
 */
dicomm_result_t topology_find(struct dicomm_comm *comm);

/*
 * Before the ranks meet: propose the parent's table. was[rank] is the rank
 * there. If the tables of the parents differ, topology_find() finds out. Does
 * nothing if DICOMM_PROBE is on, or if other transports are used.
 */
dicomm_result_t topology_inherit(struct dicomm_comm *comm,
				 struct dicomm_comm *parent,
				 const uint32_t *was);

/* Replace comm->links, on all ranks alike. `how` is for the log: "measured". */
void topology_set(struct dicomm_comm *comm, struct links *links,
		  const char *how);

/* The links of the first `ranks` ranks of a file. If the path is "": NULL, or,
 * if `apart`, what is assumed without a file. */
dicomm_result_t topology_plan(const char *path, int ranks, bool apart,
			      struct links **out);

#endif
