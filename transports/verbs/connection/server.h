/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by TCP, and the thread that serves them. */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECTION_SERVER_H
#define DICOMM_TRANSPORTS_VERBS_CONNECTION_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/channel/address.h"

struct tp_device;
struct verbs_channel;
struct verbs_nic;
struct verbs_qp;

/* Listen for calls; fills in nonce and listen. */
dicomm_result_t verbs_server_open(struct tp_device *dev);
/* No call comes in any more. */
void verbs_server_stop_listening(struct tp_device *dev);
/* The last channel of a device is closed. */
void verbs_server_close(struct tp_device *dev);

#endif
