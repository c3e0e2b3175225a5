/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The name of the host that this process runs on.
 */
#ifndef DICOMM_BASE_HOST_H
#define DICOMM_BASE_HOST_H

#include <stdint.h>

/* Returns the hash of DICOMM_HOSTID, or if that is not set, of the host name.
 * Containers on one machine that have different host names count as different
 * hosts, as in other libraries. */
uint64_t host_name_hash(void);

#endif
