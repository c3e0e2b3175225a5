/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits: tell senders how many of their messages were released. Lock held. */
#ifndef DICOMM_TRANSPORTS_UCX_CREDITS_H
#define DICOMM_TRANSPORTS_UCX_CREDITS_H

#include <stdbool.h>

#include "transports/ucx/device.h"

/* Send them now; if that cannot be, in a later poll. */
void ucx_credits_send(struct ucx_in *in);
void ucx_credits_send_all(struct tp_device *dev);
/* Send them when polls find nothing else to do. */
void ucx_credits_defer(struct ucx_in *in);
/* Do not send them any more. */
void ucx_credits_cancel(struct ucx_in *in);
/* After each progress of the worker; moved: it did something. */
void ucx_credits_progress(struct tp_device *dev, bool moved);

#endif
