/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The centre of one communicator's control plane, in the process of rank 0.
 * Every rank, rank 0 too, is a guest of it; it fans gathers in and out, passes
 * queries on, and tells everybody who has died or left.
 */
#ifndef DICOMM_BOOT_HUB_H
#define DICOMM_BOOT_HUB_H

#include "src/boot/auth.h"
#include "src/boot/hello.h"
#include "src/boot/sock.h"

#define HUB_GATHER_MAX ((uint64_t)256 << 20) /* bytes of one rank */
#define HUB_GATHER_TOTAL ((uint64_t)1 << 30) /* bytes of all ranks */

struct hub;

/* Both take the lock. */
dicomm_result_t hub_open(const struct hello *self, const uint8_t key[AUTH_KEY],
			 char address[SOCK_TEXT], struct hub **out);
/* Tell all other ranks of a failure that rank 0 reports: at once, as rank 0 may
 * close the hub next. With the lock held. */
void hub_report(struct hub *hub, dicomm_result_t status, int culprit,
		const char *text);
/* Say goodbye to all, or, before all have come, that rank 0 gave up and why.
 * NULL is allowed. */
void hub_close(struct hub *hub, dicomm_result_t status, const char *why);

#endif
