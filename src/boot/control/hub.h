/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub: the centre of one communicator's control plane, in the process of
 * rank 0. Every rank, rank 0 included, connects to it. It carries out the
 * all-gathers, passes queries on, and tells everybody who died or left.
 */
#ifndef DICOMM_BOOT_HUB_H
#define DICOMM_BOOT_HUB_H

#include "src/boot/control/rank_info.h"
#include "src/boot/net/auth.h"
#include "src/boot/net/sock.h"

struct hub;

/* hub_open() and hub_close() take the lock. */
dicomm_result_t hub_open(const struct rank_info *self,
			 const uint8_t key[AUTH_KEY], char address[SOCK_TEXT],
			 struct hub **out);
/* Tell all other ranks of a failure that rank 0 reports. It is sent at once,
 * because rank 0 may close the hub next. With the lock held. */
void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text);
/* Say goodbye to all ranks. Before all have come, tell them instead that rank 0
 * gave up, and why. NULL is allowed. */
void hub_close(struct hub *hub, dicomm_result_t status, const char *why);

#endif
