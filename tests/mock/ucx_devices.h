/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A UCX that knows memory of devices, played for the mock ones, where the real
 * UCX is built without: it gets the pages behind their addresses, as memory of
 * the host. What a UCX with such transports does with a device is not shown by
 * that; but that it is asked rightly: for memory that it maps, by its type, and
 * by rendezvous. What is handed to it otherwise is read by the host, which
 * dies.
 */
#ifndef DICOMM_TESTS_MOCK_UCX_DEVICES_H
#define DICOMM_TESTS_MOCK_UCX_DEVICES_H

#include <stdbool.h>

/* From now on, also in processes that are forked then. Or it says so, but maps
 * nothing. */
void ucx_devices_play(bool maps);

#endif
