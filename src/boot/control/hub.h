/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hub: the centre of one communicator's control plane, in the process of
 * rank 0. Every rank, rank 0 included, connects to it. It carries out the
 * all-gathers, passes queries on, and tells everybody who died or left.
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
/* Takes over all ranks with their connections, and starts them. Leaves the list
 * empty. The caller holds the lock. */
void hub_adopt(struct hub *hub, struct members *members);
/* Tells all other ranks about a failure that rank 0 reports. The caller holds
 * the lock. */
void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text);
/* Says goodbye to all ranks. If ranks are still missing, tells those that are
 * connected that rank 0 gave up, and why. hub may be NULL. */
void hub_close(struct hub *hub, dicomm_result_t status, const char *why);

#endif
