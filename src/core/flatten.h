/* SPDX-License-Identifier: BSD-3-Clause */
/* Making calls ready for the short way. */
#ifndef DICOMM_CORE_FLATTEN_H
#define DICOMM_CORE_FLATTEN_H

#include "src/core/executable.h"

/* If the call can go the short way: its steps, spans resolved to bytes. */
dicomm_result_t flatten(struct executable *e, struct dicomm_comm *comm,
			const struct call *call);

#endif
