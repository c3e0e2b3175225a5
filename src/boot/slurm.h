/* SPDX-License-Identifier: BSD-3-Clause */
/* Slurm's notation of host lists. */
#ifndef DICOMM_BOOT_SLURM_H
#define DICOMM_BOOT_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* "node[07-12,20],login" begins with node07; false if it does not parse. */
bool slurm_first_host(const char *list, char *host, size_t len);

#endif
