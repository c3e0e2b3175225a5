/* SPDX-License-Identifier: BSD-3-Clause */
/* Parse Slurm's host lists. */
#ifndef DICOMM_BOOT_SLURM_HOSTS_H
#define DICOMM_BOOT_SLURM_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

/* The first host of a list: node07 of "node[07-12,20],login". False if the list
 * does not parse. */
bool slurm_first_host(const char *list, char *host, size_t len);

#endif
