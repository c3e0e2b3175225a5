/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock of the verbs transport, one for the process. It guards the list of
 * devices, and making and closing channels. */
#ifndef DICOMM_TRANSPORTS_VERBS_CHANNEL_LOCK_H
#define DICOMM_TRANSPORTS_VERBS_CHANNEL_LOCK_H

#include <stdbool.h>

void verbs_lock(void);
bool verbs_try_lock(void);
void verbs_unlock(void);
/* Reset it in the child of a fork, where nobody holds it. */
void verbs_lock_reset(void);

#endif
