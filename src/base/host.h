/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The name of the host that this process runs on.
 */
#ifndef DICOMM_BASE_HOST_H
#define DICOMM_BASE_HOST_H

#include <stdint.h>

/* Of DICOMM_HOSTID, or where that is not set of the host's name: containers of
 * one machine that call themselves hosts are taken for such, as by others. */
uint64_t host_name_hash(void);

#endif
