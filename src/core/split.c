/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators made from others. */
#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/queue.h"

struct split_member {
	int color, key, rank;
};

static int by_key(const void *a, const void *b)
{
	const struct split_member *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->rank < y->rank ? -1 : x->rank > y->rank;
}

struct split_args {
	struct dicomm_comm *parent;
	int color, key;
	dicomm_comm_t *out;
	dicomm_config_t config; /* owned */
};

static void free_split(void *arg)
{
	struct split_args *a = arg;

	comm_config_free(&a->config);
	free(a);
}

/* Who goes where is told over the parent; the first of each new communicator
 * makes its id, which is told likewise. */
static dicomm_result_t split_now(void *arg)
{
	struct split_args *a = arg;
	struct dicomm_comm *parent = a->parent;
	size_t n = (size_t)parent->ranks, mates = 0;
	struct split_member mine = {a->color, a->key, parent->rank}, *all;
	dicomm_unique_id_t id = {.text = ""}, *ids;
	dicomm_result_t status;
	uint32_t *was;
	int rank = 0;

	all = calloc(n, sizeof(*all));
	ids = calloc(n, sizeof(*ids));
	was = calloc(n, sizeof(*was));
	if (!all || !ids || !was) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "comm_split: no memory for %zu ranks", n);
		goto out;
	}
	status = control_allgather(parent->control, &mine, all, sizeof(mine),
				   parent->timeout_ms);
	if (status != DICOMM_SUCCESS)
		goto out;
	for (size_t i = 0; i < n; i++)
		if (all[i].color == a->color)
			all[mates++] = all[i];
	qsort(all, mates, sizeof(*all), by_key);
	while (all[rank].rank != parent->rank)
		rank++;
	for (size_t i = 0; i < mates; i++)
		was[i] = (uint32_t)all[i].rank;
	if (a->color != DICOMM_SPLIT_NOCOLOR && rank == 0)
		status = control_new_id(&id);
	if (status != DICOMM_SUCCESS)
		fault_raise(parent, status, parent->rank, true, "%s",
			    log_last_error());
	else
		status = control_allgather(parent->control, &id, ids,
					   sizeof(id), parent->timeout_ms);
	if (status == DICOMM_SUCCESS && a->color != DICOMM_SPLIT_NOCOLOR)
		status = comm_start(a->out, (int)mates, &ids[all[0].rank], rank,
				    &a->config, parent, was);
	/* What ended the parent says more than that it ended the child. */
	if (status == DICOMM_ERR_ABORTED && fault_is(parent))
		status = fault_report(parent);
out:
	free(all);
	free(ids);
	free(was);
	free_split(a);
	return status;
}

dicomm_result_t dicomm_comm_split(dicomm_comm_t comm, int color, int key,
				  dicomm_comm_t *newcomm,
				  const dicomm_config_t *config)
{
	struct split_args *a;
	dicomm_result_t status;

	TRY(comm_check_slow(comm, "comm_split"));
	if (!newcomm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_split: newcomm is NULL");
	if (color < 0 && color != DICOMM_SPLIT_NOCOLOR)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_split: color %d: neither positive, 0 nor "
			    "DICOMM_SPLIT_NOCOLOR",
			    color);
	a = malloc(sizeof(*a));
	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY, "comm_split: out of memory");
	*newcomm = NULL;
	*a = (struct split_args){comm, color, key, newcomm,
				 DICOMM_CONFIG_INITIALIZER};
	status = comm_config_copy(&a->config, config ? config : &comm->config);
	if (status != DICOMM_SUCCESS) {
		free(a);
		return status;
	}
	/* It meets by an id; the parent's all-gather spans the parent. */
	if (!config)
		a->config.bootstrap.allgather = NULL;
	return group_init(comm, split_now, free_split, a);
}
