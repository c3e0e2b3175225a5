/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a rank gets from an id (or the caller's all-gather) to a connection with
 * rank 0's hub. When join_all() returns, all ranks are connected. It runs in
 * the thread that opens the communicator.
 */
#ifndef DICOMM_BOOT_JOIN_H
#define DICOMM_BOOT_JOIN_H

#include "src/boot/control/config.h"
#include "src/boot/control/hub.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/control/relay.h"
#include "src/boot/net/client.h"

struct join_result {
	/* owned; the control thread does not serve it yet */
	struct client *client;
	struct hub *hub; /* owned; NULL except on rank 0 */
	/* Owned; [rank]; of this one and rank 0, unless `named`: the others
	 * are "". */
	char (*where)[RANK_INFO_WHERE];
	bool named;
	struct relay_place place;
};

dicomm_result_t join_all(const struct control_config *config,
			 struct join_result *out);

/* See control_cannot_open(). */
void join_tell_failure(const dicomm_unique_id_t *id, int rank, int ranks);

#endif
