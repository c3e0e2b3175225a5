/* SPDX-License-Identifier: BSD-3-Clause */
/* What a NIC reports asynchronously: links, GIDs, devices, queue pairs. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_EVENTS_H
#define DICOMM_TRANSPORTS_VERBS_NIC_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>

struct verbs_nic;

/* What the NIC has said of one queue pair; its qp_context points here. */
struct verbs_qp_events {
	const char *_Atomic failed; /* the event's name; NULL: it works */
	bool last_wqe; /* it delivers no more messages; with the lock */
};

/* Take all events that wait in async_fd, which is readable then. The caller
 * holds verbs_lock(). False: the device was removed, there will be no more. */
bool verbs_nic_events(struct verbs_nic *nic);

#endif
