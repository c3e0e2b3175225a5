/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the steps of calls that can take the fast path. */
#ifndef DICOMM_ENGINE_FAST_PATH_BUILD_H
#define DICOMM_ENGINE_FAST_PATH_BUILD_H

#include "src/engine/prepared.h"

/* If the call can take the fast path, makes its steps, with spans as byte
 * offsets. Returns DICOMM_ERR_NO_MEMORY if there is no memory. */
dicomm_result_t fast_path_build(struct prepared *e, struct dicomm_comm *comm,
				const struct call *call);

#endif
