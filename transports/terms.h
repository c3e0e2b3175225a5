/* SPDX-License-Identifier: BSD-3-Clause */
/* What both sides of a wire must agree on. Errors begin with its name. */
#ifndef DICOMM_TRANSPORTS_TERMS_H
#define DICOMM_TRANSPORTS_TERMS_H

#include "transports/transport.h"

/* What an address says of its rank. */
struct terms {
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
};

/* For open(): DICOMM_ERR_INVALID_ARGUMENT unless it is a configuration. */
dicomm_result_t terms_check_config(const char *wire,
				   const struct tp_config *config);
/* For peer_open(): DICOMM_ERR_INVALID_ARGUMENT if it is the address of another
 * rank, DICOMM_ERR_INVALID_USAGE if its inboxes are unlike mine, whose slots
 * have so many bytes. */
dicomm_result_t terms_check_peer(const char *wire,
				 const struct tp_config *config,
				 uint32_t slot_bytes, int rank,
				 const struct terms *theirs);

#endif
