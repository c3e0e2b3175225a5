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
/* Make the receiver's side of a channel; NULL: no memory. */
struct ucx_in *ucx_inbox_make(struct ucx_endpoint *endpoint, uint16_t class);
/* Free it; it is not in dev->in any more. If UCX still receives pieces for it,
 * the last of these frees it. */
void ucx_inbox_free(struct ucx_in *in);
/* Write a message into the inbox: into its line, or if it is longer than that,
 * into the slot's data. */
void ucx_inbox_deliver(struct ucx_in *in, const struct ucx_head *head,
		       const void *body, size_t bytes);
/* The seal of a reference that this rank offers. */
uint64_t ucx_ref_seal(const struct tp_device *dev, const struct ucx_ref *ref);
/* Handlers may not create endpoints. Create those that hellos asked for, and
 * send the acknowledgements that are due. */
void ucx_receive_deferred(struct tp_device *dev);

#endif
