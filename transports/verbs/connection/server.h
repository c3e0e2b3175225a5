/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that serves all connections of the process. */
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

/* Listen for requests to that device. Sets dev->nonce and dev->listen. Starts
 * the thread for the first device. */
dicomm_result_t verbs_server_open(struct tp_device *dev);
/* Accept no further requests for that device. */
void verbs_server_stop_listening(struct tp_device *dev);
/* Call this when the device has closed all of its channels. Stops the thread
 * with the last device. */
void verbs_server_close(struct tp_device *dev);

#endif
