/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel says about the processors of this machine.
 */
#ifndef DICOMM_BASE_CPUINFO_H
#define DICOMM_BASE_CPUINFO_H

#include <stddef.h>

/* Copies the value of the first line "key : value" of /proc/cpuinfo, as much as
 * fits. Leaves value alone if there is none. */
void cpuinfo_value(const char *key, char *value, size_t len);

#endif
