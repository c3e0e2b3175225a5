/* SPDX-License-Identifier: BSD-3-Clause */
/* What the NICs do not tell by a completion. */
#ifndef DICOMM_TRANSPORTS_VERBS_WATCH_H
#define DICOMM_TRANSPORTS_VERBS_WATCH_H

#include <stdbool.h>

#include "dicomm.h"

struct tp_device;
struct verbs_nic;

/* Events of a NIC, when its async_fd is readable; with the lock. False: there
 * will be no more. */
bool verbs_watch_events(struct verbs_nic *nic);
/* As in struct transport; now and then while nothing moves. */
dicomm_result_t verbs_broken(struct tp_device *dev, int *peer);

#endif
