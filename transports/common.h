/* SPDX-License-Identifier: BSD-3-Clause */
/* What several wires do alike. Errors begin with the name of the wire. */
#ifndef DICOMM_TRANSPORTS_COMMON_H
#define DICOMM_TRANSPORTS_COMMON_H

#include "transports/transport.h"

/* What an address says of its rank. */
struct common_terms {
	uint32_t rank, ranks;
	uint32_t slots, slot_bytes;
};

/* For open(): DICOMM_ERR_INVALID_ARGUMENT unless it is a configuration. */
dicomm_result_t common_check_config(const char *wire,
				    const struct tp_config *config);
/* For peer_open(): DICOMM_ERR_INVALID_ARGUMENT if it is the address of another
 * rank, DICOMM_ERR_INVALID_USAGE if its inboxes are unlike mine, whose slots
 * have so many bytes. */
dicomm_result_t common_check_peer(const char *wire,
				  const struct tp_config *config,
				  uint32_t slot_bytes, int rank,
				  const struct common_terms *theirs);

/* hold() and drop() of a wire that reaches all memory as it is. */
dicomm_result_t common_hold(struct tp_device *dev, const void *addr,
			    uint64_t len, bool written, struct tp_hold **out);
/* hold_device() and takes() of a wire that reaches no device. */
dicomm_result_t common_hold_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_hold **out, char *how, size_t len);
bool common_takes(unsigned n, const struct tp_region *region,
		  const struct tp_place *place, struct tp_taker *out);
void common_drop(struct tp_device *dev, struct tp_hold *hold);

/* rest() of a wire that nobody could wake. */
void common_rest(struct tp_device *dev, unsigned us);

#endif
