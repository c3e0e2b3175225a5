/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who started this process, and so: its rank, the number of ranks, and the id.
 * Tried in this order: our own DICOMM_RANK, DICOMM_SIZE, DICOMM_COMM_ID; PMIx
 * (Open MPI's mpirun, Slurm's srun --mpi=pmix); PMI-1 (MPICH's mpiexec);
 * torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); Slurm without PMI.
 */
#ifndef DICOMM_BOOT_LAUNCHER_H
#define DICOMM_BOOT_LAUNCHER_H

#include "src/boot/store/store.h"

/* ERR_INVALID_USAGE, with a list of what was looked for, if no launcher is
 * found. May wait for the other ranks where the launcher needs that, bounded by
 * the bootstrap time-out. */
dicomm_result_t launcher_find(struct launcher_info *info);

#endif
