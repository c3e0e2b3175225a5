/* SPDX-License-Identifier: BSD-3-Clause */
/* Slurm's host lists. */
#ifndef DICOMM_BOOT_SLURM_H
#define DICOMM_BOOT_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* Finds the first host of a list: node07 in "node[07-12,20],login". Returns
 * false if the list does not parse. */
bool slurm_first_host(const char *list, char *host, size_t len);

#endif
