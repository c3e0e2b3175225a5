/* SPDX-License-Identifier: BSD-3-Clause */
/* What two ranks must agree on before they connect. Errors begin with the name
 * of the transport. */
#ifndef DICOMM_TRANSPORTS_TERMS_H
#define DICOMM_TRANSPORTS_TERMS_H

#include "transports/transport.h"

/* The terms of a rank, from its address. */
struct terms {
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
};

/* For open(): returns DICOMM_ERR_INVALID_ARGUMENT if a member of the config is
 * out of range. */
dicomm_result_t terms_check_config(const char *wire,
				   const struct tp_config *config);
/* For peer_open(): returns DICOMM_ERR_INVALID_ARGUMENT if the address is that
 * of another rank, DICOMM_ERR_INVALID_USAGE if its slots differ from this
 * rank's, which have slot_bytes each. */
dicomm_result_t terms_check_peer(const char *wire,
				 const struct tp_config *config,
				 uint32_t slot_bytes, int rank,
				 const struct terms *theirs);

#endif
