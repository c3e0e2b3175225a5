/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes or ends a communicator, as it is called, or as a group keeps it.
 */
#ifndef DICOMM_COMPAT_NCCL_TASK_H
#define DICOMM_COMPAT_NCCL_TASK_H

#include "compat/nccl/config.h"
#include "compat/nccl/device.h"
#include "compat/nccl/handle.h"

enum nccl_task_kind {
	NCCL_TASK_INIT,
	NCCL_TASK_SPLIT,
	NCCL_TASK_SHRINK,
	NCCL_TASK_GROW,
	NCCL_TASK_FINALIZE,
	NCCL_TASK_DESTROY,
};

struct nccl_task {
	const char *f; /* who was called */
	enum nccl_task_kind kind;
	struct ncclComm *comm; /* that it is done to; NULL: init, or to join */
	struct ncclComm *made; /* NULL: none */
	dicomm_comm_t out;     /* what the library makes for it */
	struct nccl_options options;
	char device[32];
	int nranks, rank;
	dicomm_unique_id_t id;
	bool has_id; /* to grow */
	int color, key;
	int *exclude, nexclude; /* owned */
	dicomm_result_t status; /* of its start */
	bool said;              /* by this layer, not by the library */
	struct ncclComm *held, *held_made; /* from start to finish */
};

/* Ends are done after the operations of a group, all else before. */
static inline bool nccl_task_is_end(const struct nccl_task *t)
{
	return t->kind == NCCL_TASK_FINALIZE || t->kind == NCCL_TASK_DESTROY;
}

/* Sets t->status. In a group of the library too. */
void nccl_task_start(struct nccl_task *t);
/* Waits for what was begun, where the program wants that. in_group: its handle
 * is the program's, whatever became of it. */
ncclResult_t nccl_task_finish(struct nccl_task *t, bool in_group);
/* It is not done at all, since its group has failed. */
void nccl_task_drop(struct nccl_task *t, ncclResult_t why);

#endif
