/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of one device. */
#include "transports/ucx/progress.h"

#include "transports/ucx/device.h"
#include "transports/ucx/load.h"
#include "transports/ucx/receive.h"

bool ucx_progress(struct tp_device *dev)
{
	bool moved = ucx.ucp_worker_progress(dev->worker) != 0;

	if (dev->base.deferred)
		ucx_receive_deferred(dev);
	framed_credits_progress(&dev->base, moved);
	return moved;
}
