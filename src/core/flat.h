/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocking calls of small or mapped messages; see flat.c. */
#ifndef DICOMM_CORE_FLAT_H
#define DICOMM_CORE_FLAT_H

#include "src/core/executable.h"

/* Run a call that executable_quick() found. False: the long way must run it;
 * nothing has happened. */
bool flat_quick(struct dicomm_comm *comm, const struct executable *exe,
		const void *send, void *recv, dicomm_result_t *status);

#endif
