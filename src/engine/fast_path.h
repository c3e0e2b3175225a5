/* SPDX-License-Identifier: BSD-3-Clause */
/* The fast path: blocking calls on small messages, on mapped memory, or of one
 * hop within a machine. */
#ifndef DICOMM_ENGINE_FAST_PATH_H
#define DICOMM_ENGINE_FAST_PATH_H

#include "src/engine/prepared.h"

/* Runs a call that prepared_quick() has found, of a thread that has entered the
 * communicator. Returns false if nothing has happened, so that the engine must
 * run it. */
bool fast_path_run(struct dicomm_comm *comm, const struct prepared *prep,
		   const void *send, void *recv, dicomm_result_t *status);

#endif
