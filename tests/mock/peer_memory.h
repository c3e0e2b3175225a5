/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The modules by which a NIC reaches memory of devices, played for the mock
 * devices: a program that is linked with this hands their pages to the real
 * verbs library, where it is asked for an address or a dma-buf of theirs.
 * Without it the kernel refuses both.
 */
#ifndef DICOMM_TESTS_MOCK_PEER_MEMORY_H
#define DICOMM_TESTS_MOCK_PEER_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

enum { PEER_MEMORY_ADDRESS = 1, PEER_MEMORY_DMABUF = 2 };

/* Which ways work from now on; to begin with, by address. What does not is the
 * kernel's to refuse. */
void peer_memory_works(unsigned ways);
/* What NICs write to devices that are registered from now on gets there no
 * sooner than it is flushed. Such a device is written to only. */
void peer_memory_lags(bool lags);
/* Flushes so far. */
uint64_t peer_memory_flushes(void);

#endif
