/* SPDX-License-Identifier: BSD-3-Clause */
/* The fast path: blocking calls of small messages, or of mapped memory. */
#ifndef DICOMM_ENGINE_FAST_PATH_H
#define DICOMM_ENGINE_FAST_PATH_H

#include "src/engine/prepared.h"

/* Run a call that prepared_quick() found. False: nothing has happened, and the
 * engine must run it. */
bool fast_path_run(struct dicomm_comm *comm, const struct prepared *prep,
		   const void *send, void *recv, dicomm_result_t *status);

#endif
