/* SPDX-License-Identifier: BSD-3-Clause */
/* The context and the worker of a device: configured, opened, ended. */
#ifndef DICOMM_TRANSPORTS_UCX_WORKER_H
#define DICOMM_TRANSPORTS_UCX_WORKER_H

#include <stdint.h>

#include "dicomm.h"

struct tp_device;

dicomm_result_t ucx_worker_open(struct tp_device *dev);
/* Close the endpoints first .. end-1, when everything is sent. */
void ucx_worker_close_endpoints(struct tp_device *dev, uint32_t first,
				uint32_t end);
/* Abort: nothing moves any more, and dev->worker is NULL. */
void ucx_worker_stop(struct tp_device *dev);
/* Destroy the worker and the context, unless UCX would crash in that; then they
 * are leaked. */
void ucx_worker_end(struct tp_device *dev);

#endif
