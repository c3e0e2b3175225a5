/* SPDX-License-Identifier: BSD-3-Clause */
/* A watchdog for failures that no completion reports. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_WATCHDOG_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_WATCHDOG_H

#include <stdbool.h>

#include "dicomm.h"

struct tp_device;
struct verbs_nic;

/* As in struct transport. The engine calls it now and then while nothing
 * moves. */
dicomm_result_t verbs_broken(struct tp_device *dev, int *peer);

#endif
