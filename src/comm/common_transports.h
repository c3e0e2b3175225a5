/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks agree which transports lead from each of them to each other one.
 *
 * Ranks of one host are nearly always reached alike, so each rank says that
 * once for each host. Where it is not so, they tell it again for each rank.
 */
#ifndef DICOMM_COMM_COMMON_TRANSPORTS_H
#define DICOMM_COMM_COMMON_TRANSPORTS_H

#include "src/core/comm.h"

/* Sets peers[].transports to the transports that both ranks have found to lead
 * to the other one. Of these, two ranks use the lowest one: *in_use has a bit
 * for each transport that some pair of ranks uses, equal on all ranks, and is 0
 * if some pair has none. All ranks call it. Returns DICOMM_ERR_NO_MEMORY, or an
 * error of control_allgather(). */
dicomm_result_t common_transports_agree(struct dicomm_comm *comm,
					uint8_t *in_use);

#endif
