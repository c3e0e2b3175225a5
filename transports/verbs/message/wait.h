/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeps until a NIC reports something. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_WAIT_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_WAIT_H

#include "dicomm.h"

struct tp_device;

/* As in struct transport. */
void verbs_wait(struct tp_device *dev, unsigned us);

#endif
