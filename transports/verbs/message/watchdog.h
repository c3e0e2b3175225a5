/* SPDX-License-Identifier: BSD-3-Clause */
/* What the NICs do not tell by a completion. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_WATCHDOG_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_WATCHDOG_H

#include <stdbool.h>

#include "dicomm.h"

struct tp_device;
struct verbs_nic;

/* As in struct transport; now and then while nothing moves. */
dicomm_result_t verbs_broken(struct tp_device *dev, int *peer);

#endif
