/* SPDX-License-Identifier: BSD-3-Clause */
/* Send to one rank. The caller holds the lock, except for ucx_bounces_make().
 */
#ifndef DICOMM_TRANSPORTS_UCX_ENDPOINT_H
#define DICOMM_TRANSPORTS_UCX_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/ucx/device.h"

struct ucx_address;

/* Make `count` bounce buffers for `bytes` each, and put them into *spare.
 * Returns their memory; NULL: there is none. */
void *ucx_bounces_make(struct ucx_bounce **spare, unsigned count, size_t bytes);
/* Create the endpoint, unless there is one. */
dicomm_result_t ucx_endpoint_open(struct ucx_endpoint *endpoint,
				  const struct ucx_address *a);
/* Send an active message. SUCCESS: the caller may change the body. AGAIN:
 * nothing happened. ERR_REMOTE: the endpoint is broken; nothing is logged, see
 * framed_link_status(). */
dicomm_result_t ucx_endpoint_send(struct ucx_endpoint *endpoint,
				  enum ucx_what what, struct ucx_head *head,
				  const void *body, uint64_t len);
/* Reply to a read: send memory that stays valid until the peer has received
 * it. */
void ucx_endpoint_reply(struct ucx_endpoint *endpoint,
			const struct ucx_head *head, const void *body,
			uint64_t len, ucs_memory_type_t type);
/* Send UCX_CLOSE, unless it was sent. */
void ucx_endpoint_say_close(struct ucx_endpoint *endpoint);
/* The peer has acknowledged the close, or is gone. */
bool ucx_endpoint_is_quiet(const struct ucx_endpoint *endpoint);
/* Returns true if the endpoint is neither broken nor still connecting. */
bool ucx_endpoint_is_sound(const struct ucx_endpoint *endpoint);
/* Begin to close: at once (force), or when everything is sent. Does nothing
 * while the endpoint connects: UCX 1.13 may end the program then. */
void ucx_endpoint_close(struct ucx_endpoint *endpoint, bool force);
bool ucx_endpoint_is_closed(struct ucx_endpoint *endpoint);

#endif
