/* SPDX-License-Identifier: BSD-3-Clause */
/* Polls, which a rank repeats while it waits, and its sleep. */
#ifndef DICOMM_TRANSPORTS_VERBS_MESSAGE_POLL_H
#define DICOMM_TRANSPORTS_VERBS_MESSAGE_POLL_H

#include <stdbool.h>

struct tp_device;

/* Among this many polls that find nothing, one looks for credits. That is
 * enough: a sender that waits for credits is many messages ahead, and put()
 * looks itself. */
#define VERBS_POLLS_PER_CHECK 4

/* As in struct transport. */
bool verbs_poll(struct tp_device *dev);
bool verbs_flush(struct tp_device *dev);
/* Sleeps until a NIC reports something. */
void verbs_wait(struct tp_device *dev, unsigned us);

#endif
