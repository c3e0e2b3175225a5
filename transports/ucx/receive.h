/* SPDX-License-Identifier: BSD-3-Clause */
/* What arrives: handlers of active messages, which UCX calls during progress.
 */
#ifndef DICOMM_TRANSPORTS_UCX_RECEIVE_H
#define DICOMM_TRANSPORTS_UCX_RECEIVE_H

#include <stddef.h>
#include <stdint.h>

#include "transports/ucx/device.h"

/* Register the handlers of a new worker. */
ucs_status_t ucx_receive_register(struct tp_device *dev);
/* Create the endpoints for hellos that have arrived, which handlers may not do,
 * and send the acknowledgements that are due. */
void ucx_receive_deferred(struct tp_device *dev);

#endif
