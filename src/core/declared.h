/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the adapters of the ranks say that they carry, for links between hosts
 * that nobody has described.
 */
#ifndef DICOMM_CORE_DECLARED_H
#define DICOMM_CORE_DECLARED_H

#include "src/core/comm.h"

/*
 * Let all ranks know what the adapters of each say. If all do, it becomes the
 * rates of comm->links: the way of a host is all adapters that its ranks use,
 * each once. *known: it has. All ranks call it; ERR_NO_MEMORY, or who has died.
 */
dicomm_result_t declared_adopt(struct dicomm_comm *comm, bool *known);

#endif
