/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From an id (or the caller's all-gather) to one connection with rank 0's hub,
 * on which all ranks have come. Runs in the thread that opens a communicator.
 */
#ifndef DICOMM_BOOT_JOIN_H
#define DICOMM_BOOT_JOIN_H

#include "src/boot/client.h"
#include "src/boot/control.h"
#include "src/boot/hello.h"
#include "src/boot/hub.h"

struct join_result {
	struct client *client;      /* not served yet; owned */
	struct hub *hub;            /* of rank 0; owned */
	char (*where)[HELLO_WHERE]; /* of each rank; owned */
};

dicomm_result_t join_all(const struct control_config *config,
			 struct join_result *out);

#endif
