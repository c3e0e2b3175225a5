/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who started this process: rank, number of ranks, and a way to spread the id.
 * Tried in order: our own DICOMM_RANK, DICOMM_SIZE, DICOMM_COMM_ID; PMIx (Open
 * MPI's mpirun, Slurm's srun --mpi=pmix); PMI-1 (MPICH's mpiexec); torchrun
 * (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); Slurm without either.
 */
#ifndef DICOMM_BOOT_LAUNCHER_H
#define DICOMM_BOOT_LAUNCHER_H

#include "dicomm.h"

struct launcher_info {
	const char *name; /* "torchrun" */
	int rank, ranks;
	dicomm_unique_id_t id;
};

/* ERR_INVALID_USAGE, listing what was looked for, if nobody did. Meets the
 * other ranks where the launcher's store needs it; bounded by the bootstrap
 * time-out. */
dicomm_result_t launcher_meet(struct launcher_info *info);

#endif
