/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank gets from an id (or the caller's all-gather) to one connection
 * with rank 0's hub, at a moment when all ranks are there. Runs in the thread
 * that opens the communicator.
 */
#ifndef DICOMM_BOOT_JOIN_H
#define DICOMM_BOOT_JOIN_H

#include "src/boot/control/config.h"
#include "src/boot/control/hub.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/net/client.h"

struct join_result {
	struct client *client;          /* owned; not served yet */
	struct hub *hub;                /* owned; NULL but on rank 0 */
	char (*where)[RANK_INFO_WHERE]; /* owned; of each rank */
};

dicomm_result_t join_all(const struct control_config *config,
			 struct join_result *out);

/* See control_cannot_open(). */
void join_tell_failure(const dicomm_unique_id_t *id, int rank, int ranks);

#endif
