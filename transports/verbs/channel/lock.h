/* SPDX-License-Identifier: BSD-3-Clause */
/* One lock for the process: it guards the list of devices, and how channels are
 * made and closed. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_LOCK_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_LOCK_H

#include <stdbool.h>

void verbs_lock(void);
bool verbs_try_lock(void);
void verbs_unlock(void);
/* In the child of a fork: nobody holds it. */
void verbs_lock_reset(void);

#endif
