/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub: the centre of one communicator's control plane, in the process of
 * rank 0. Every rank, rank 0 included, connects to it. It runs the all-gathers,
 * forwards queries, and sends the news of ranks that died or left to all ranks.
 */
#ifndef DICOMM_BOOT_HUB_H
#define DICOMM_BOOT_HUB_H

#include "src/boot/control/members.h"
#include "src/boot/control/rank_info.h"
#include "src/base/auth.h"
#include "src/boot/net/sock.h"

struct hub;

/* Opens the hub. `address` becomes the address where it listens. hub_open() and
 * hub_close() take the lock of the loop. */
dicomm_result_t hub_open(const struct rank_info *self,
			 const uint8_t key[AUTH_KEY], char address[SOCK_TEXT],
			 struct hub **out);
/* Makes a hub that does not listen: hub_adopt() will give it its ranks. Takes
 * the lock. */
dicomm_result_t hub_open_idle(struct hub **out);
/* Takes over all ranks with their connections, and starts them; and the
 * listener at which they met. Leaves the list empty. The caller holds the lock.
 */
void hub_adopt(struct hub *hub, struct members *members, struct listener *l);
/* Sends a failure that rank 0 reports to all other ranks. The caller holds the
 * lock. */
void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text);
/* Announces to all ranks that rank 0 leaves. If ranks are still missing, sends
 * the connected ones the reason why rank 0 gave up. hub may be NULL. */
void hub_close(struct hub *hub, dicomm_result_t status, const char *why);

#endif
