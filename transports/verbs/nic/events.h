/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles what a NIC reports asynchronously: links, GIDs, devices, queue
 * pairs. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_EVENTS_H
#define DICOMM_TRANSPORTS_VERBS_NIC_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>

struct verbs_nic;

/* What the NIC has reported about one queue pair, whose qp_context points
 * here. */
struct verbs_qp_events {
	const char *_Atomic failed; /* name of the event; NULL: it works */
	/* It delivers no more messages. Guarded by verbs_lock(). */
	bool last_wqe;
};

/* Handle all events that wait in async_fd. The caller holds verbs_lock().
 * Returns false if the device was removed; there will be no more events. */
bool verbs_nic_events(struct verbs_nic *nic);

#endif
