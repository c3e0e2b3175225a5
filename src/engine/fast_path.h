/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking calls of small or mapped messages; see flat.c. */
#ifndef DICOMM_ENGINE_FAST_PATH_H
#define DICOMM_ENGINE_FAST_PATH_H

#include "src/engine/prepared.h"

/* Run a call that prepared_quick() found. False: the long way must run it;
 * nothing has happened. */
bool fast_path_run(struct dicomm_comm *comm, const struct prepared *prep,
		   const void *send, void *recv, dicomm_result_t *status);

#endif
