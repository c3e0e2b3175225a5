/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/cancel.h"

#include <pthread.h>

static _Thread_local struct {
	unsigned depth;
	int before; /* the caller's state, to be restored */
} held;

void cancel_hold(void)
{
	if (!held.depth++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held.before);
}

void cancel_release(void)
{
	if (!--held.depth)
		pthread_setcancelstate(held.before, NULL);
}
