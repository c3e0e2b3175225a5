/* SPDX-License-Identifier: BSD-3-Clause */
/* The links between the hosts of a communicator: one table for all ranks. */
#ifndef DICOMM_LINKS_TOPOLOGY_H
#define DICOMM_LINKS_TOPOLOGY_H

#include "src/core/comm.h"

/*
 * Find comm->links, alike on all ranks, when they have met: what all have
 * inherited, else by the file of DICOMM_TOPO_FILE, else all alike, until
 * measured (probe.h). NULL if all are on one host, and not apart there.
 * ERR_INVALID_USAGE if ranks were given unlike files, ERR_INVALID_ARGUMENT for
 * a bad one.
 */
dicomm_result_t topology_find(struct dicomm_comm *comm);

/*
 * Before its ranks meet: propose what its parent knows of the links, was[rank]
 * being the rank there. Ranks whose parents' tables have drifted apart find out
 * in topology_find(). Nothing where DICOMM_PROBE is on, or other transports are
 * to be used.
 */
dicomm_result_t topology_inherit(struct dicomm_comm *comm,
				 struct dicomm_comm *parent,
				 const uint32_t *was);

/* Replace comm->links, on all ranks alike; `how` do they know: "measured". */
void topology_set(struct dicomm_comm *comm, struct links *links,
		  const char *how);

/* Those of the first so many ranks of a file. If its path is "", NULL, or where
 * they are apart, what is assumed. */
dicomm_result_t topology_plan(const char *path, int ranks, bool apart,
			      struct links **out);

#endif
