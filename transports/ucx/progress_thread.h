/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that polls for ranks that are away from the library: their peers get
 * answers, and what they have sent gets out.
 */
#ifndef DICOMM_TRANSPORTS_UCX_PROGRESS_THREAD_H
#define DICOMM_TRANSPORTS_UCX_PROGRESS_THREAD_H

#include "dicomm.h"

struct tp_device;

dicomm_result_t ucx_thread_add(struct tp_device *dev);
/* The rank polls again. */
void ucx_thread_wake(void);
/* After it, the thread does not touch the device. */
void ucx_thread_remove(struct tp_device *dev);

#endif
