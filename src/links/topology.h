/* SPDX-License-Identifier: BSD-3-Clause */
/* The links between the hosts of a communicator, as one table for all ranks. */
#ifndef DICOMM_LINKS_TOPOLOGY_H
#define DICOMM_LINKS_TOPOLOGY_H

#include "src/core/comm.h"

/*
 * Finds comm->links when the ranks know each other. The result is equal on all
 * ranks. It is the table that all ranks have inherited; otherwise from the file
 * of DICOMM_TOPO_FILE; otherwise all links count as equal until they are
 * measured (probe.h). It is NULL if all ranks are on one host, unless they
 * count as apart. Returns DICOMM_ERR_INVALID_USAGE if ranks have different
 * files, and DICOMM_ERR_INVALID_ARGUMENT for an invalid file.
 */
dicomm_result_t topology_find(struct dicomm_comm *comm);

/*
 * Proposes the parent's table, before the ranks know each other. was[rank] is
 * the rank in the parent. topology_find() checks whether all ranks propose the
 * same table. Does nothing if DICOMM_PROBE is on, or if the communicators use
 * different transports.
 */
dicomm_result_t topology_inherit(struct dicomm_comm *comm,
				 struct dicomm_comm *parent,
				 const uint32_t *was);

/* Replaces comm->links; all ranks do the same. `how` is for the log, such as
 * "measured". */
void topology_set(struct dicomm_comm *comm, struct links *links,
		  const char *how);

/* Makes the links of the first `ranks` ranks from a file. If the path is "",
 * *out is NULL, or, with `apart`, what is assumed without a file. */
dicomm_result_t topology_plan(const char *path, int ranks, bool apart,
			      struct links **out);

#endif
