/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that UCX opens, and its TCP sockets. If a worker cannot be
 * destroyed, these are closed without UCX, because its peers would wait for
 * this rank.
 */
#ifndef DICOMM_TRANSPORTS_UCX_SOCKETS_H
#define DICOMM_TRANSPORTS_UCX_SOCKETS_H

#include <stddef.h>

#include "transports/ucx/device.h"

#define UCX_LISTENERS 256

/* More than UCX opens for a context and a worker. With a part of them it may
 * end the process; and when it has failed, they are closed again. */
#define UCX_FILES 12

/* Returns how many of UCX_FILES can be opened; errno says why not all. */
int ucx_try_files(void);
/* What UCX may lack that its status does not tell: "; ...", or "". */
const char *ucx_find_cause(char *text, size_t len);

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
