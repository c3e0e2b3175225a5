/* SPDX-License-Identifier: BSD-3-Clause */
/* What completes, and polls, which look for that. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_POLL_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_POLL_H

#include <stdbool.h>

struct tp_device;

/* Polls that find nothing, to one that looks for credits: who waits for them is
 * many messages ahead, and put() looks itself. */
#define VERBS_POLLS_PER_CHECK 4

/* As in struct transport. */
bool verbs_poll(struct tp_device *dev);
bool verbs_flush(struct tp_device *dev);

#endif
