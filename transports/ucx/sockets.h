/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TCP sockets of UCX. If a worker cannot be destroyed, they are closed
 * without UCX, because its peers would wait for this rank.
 */
#ifndef DICOMM_TRANSPORTS_UCX_SOCKETS_H
#define DICOMM_TRANSPORTS_UCX_SOCKETS_H

#include <stddef.h>

#include "transports/ucx/device.h"

#define UCX_LISTENERS 256

struct ucx_sockets {
	size_t n; /* may be more than the array has room for */
	struct ucx_socket list[UCX_LISTENERS];
};

/* List the sockets that listen before a worker is opened. */
void ucx_sockets_before(struct ucx_sockets *before);
/* Find the listening socket that the worker has opened: dev->listener. */
void ucx_sockets_find(struct tp_device *dev, const struct ucx_sockets *before);
/* Close them: peers see that the rank is gone. The worker is not used any more.
 */
void ucx_sockets_close(struct tp_device *dev);

#endif
