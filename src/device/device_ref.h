/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory references from and to a rank on a device (memory_ref.h): which bytes
 * a neighbour reads where they are, and what a read of a neighbour's memory by
 * this device needs. Threads: as the data path.
 */
#ifndef DICOMM_DEVICE_DEVICE_REF_H
#define DICOMM_DEVICE_DEVICE_REF_H

#include "src/device/device.h"

/* Returns true if the peer reads stages in device memory. A host rank with peer
 * access reads them in host memory, which the device writes. */
static inline bool device_ref_in_device(const struct peer *peer)
{
	return peer->has_peer_access && !peer->neighbour->maps;
}

/* The memory of a peer in this process, which also reads the user's buffers and
 * scratch; NULL if it is in another one. */
static inline struct in_process *device_ref_in_process(const struct peer *peer)
{
	return peer->has_peer_access ? peer->neighbour->in_process : NULL;
}

/* If the peer can read what is at that address in place, make the reference to
 * it. `offer` is the number of the offer that contains it, plus 1; 0: none.
 * Otherwise returns false. */
bool device_ref_in_place(const struct dicomm_comm *comm,
			 const struct peer *peer, int offer, const void *at,
			 struct memory_ref *mem_ref);
/* The reference to bytes in a stage, which are at st->at. */
struct memory_ref device_ref_to_stage(const struct device *dev,
				      const struct peer *peer,
				      const struct stage *st);

/* Call these before and after the device is given work that reads memory of the
 * peer. The first returns false if the peer has given up: then do not read.
 * `status` is what became of the work and of device_mark(dev, st). */
bool device_ref_begin(const struct peer *peer);
void device_ref_end(struct device *dev, const struct peer *peer,
		    struct stage *st, dicomm_result_t status);

#endif
