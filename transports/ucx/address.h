/* SPDX-License-Identifier: BSD-3-Clause */
/* The address of a rank, and the interface by which it is reached. */
#ifndef DICOMM_TRANSPORTS_UCX_ADDRESS_H
#define DICOMM_TRANSPORTS_UCX_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transports/transport.h"
#include "transports/ucx/device.h"

/* What a tp_blob holds; only the first worker_len bytes of `worker` are sent.
 */
struct ucx_address {
	struct framed_address base; /* each message carries the token */
	uint32_t loopback;          /* no other machine reaches it */
	uint32_t worker_len;
	char interface[16]; /* for messages */
	uint8_t worker[UCX_WORKER_BYTES];
};

void ucx_address_make(const struct tp_device *dev, struct tp_blob *blob);
/* False: it is damaged, or cannot be reached; the reason is in `why`. */
bool ucx_address_parse(const struct tp_device *dev, const struct tp_blob *blob,
		       struct ucx_address *a, char *why, size_t len);
void ucx_interface_find(const struct tp_config *config,
			struct ucx_interface *out);

#endif
