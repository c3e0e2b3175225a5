/* SPDX-License-Identifier: BSD-3-Clause */
/* Making calls ready for the short way. */
#ifndef DICOMM_ENGINE_FAST_PATH_BUILD_H
#define DICOMM_ENGINE_FAST_PATH_BUILD_H

#include "src/engine/prepared.h"

/* If the call can go the short way: its steps, spans resolved to bytes. */
dicomm_result_t fast_path_build(struct prepared *e, struct dicomm_comm *comm,
				const struct call *call);

#endif
