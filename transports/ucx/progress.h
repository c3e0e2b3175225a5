/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of one device. */
#ifndef DICOMM_TRANSPORTS_UCX_PROGRESS_H
#define DICOMM_TRANSPORTS_UCX_PROGRESS_H

#include <stdbool.h>

struct tp_device;

/* Progress the worker, then do what handlers have deferred, and send credits.
 * Lock held. True: something moved. */
bool ucx_progress(struct tp_device *dev);

#endif
