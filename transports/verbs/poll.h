/* SPDX-License-Identifier: BSD-3-Clause */
/* What completes, and polls, which look for that. */
#ifndef DICOMM_TRANSPORTS_VERBS_POLL_H
#define DICOMM_TRANSPORTS_VERBS_POLL_H

#include <stdbool.h>

struct tp_device;

/* Polls that find nothing, to one that looks for credits: who waits for them is
 * many messages ahead, and put() looks itself. */
#define VERBS_POLLS_PER_LOOK 4

/* What has completed; to poll() without what else that does. True: something
 * has. */
bool verbs_complete(struct tp_device *dev);
/* The same after an abort, by any thread, with the lock: lanes stay. */
bool verbs_complete_aborted(struct tp_device *dev);

/* As in struct transport. */
bool verbs_poll(struct tp_device *dev);

#endif
