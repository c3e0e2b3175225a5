/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the launcher that started this process, and so this process's rank, the
 * number of ranks, and the id. The launchers are tried in this order:
 * DICOMM_RANK, DICOMM_SIZE and DICOMM_COMM_ID; PMIx (Open MPI's mpirun, Slurm's
 * srun --mpi=pmix); PMI-1 (MPICH's mpiexec); torchrun (RANK, WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT); Slurm without PMI.
 */
#ifndef DICOMM_BOOT_LAUNCHER_H
#define DICOMM_BOOT_LAUNCHER_H

#include "src/boot/store/store.h"

/* Returns DICOMM_ERR_INVALID_USAGE, and logs what it has looked for, if it
 * finds no launcher. May wait for the other ranks if the launcher needs that,
 * at most for the bootstrap time-out. */
dicomm_result_t launcher_find(struct launcher_info *info);

/* Returns the time in which all ranks have to join, in seconds:
 * DICOMM_BOOTSTRAP_TIMEOUT. If it is not set, processes of a launcher have ten
 * times its default: they may start at very different times, and the launcher
 * ends them all if one fails. */
int launcher_patience_s(void);

#endif
