/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls of setup: how their ranks agree. */
#include "src/core/setup_call.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/fault.h"

static const char *const names[] = {
	[SETUP_GROW] = "comm_grow",
	[SETUP_SPLIT] = "comm_split",
	[SETUP_WINDOW_DEREGISTER] = "window_deregister",
	[SETUP_WINDOW_REGISTER] = "window_register"};
#define KINDS (sizeof(names) / sizeof(*names))

static const char *name_of(uint32_t kind)
{
	return kind < KINDS ? names[kind] : "something else";
}

void setup_refuse(struct setup_refusal *refusal, dicomm_result_t status)
{
	if (status == DICOMM_SUCCESS || refusal->status != DICOMM_SUCCESS)
		return;
	refusal->status = status;
	snprintf(refusal->why, sizeof(refusal->why), "%s", log_last_error());
}

/* The others wait for this rank. */
static dicomm_result_t out_of_memory(struct dicomm_comm *comm,
				     enum setup_kind kind)
{
	return fault_raise(comm, DICOMM_ERR_NO_MEMORY, comm->rank, true,
			   "%s: no memory for %d ranks", name_of(kind),
			   comm->ranks);
}

static dicomm_result_t gather(struct dicomm_comm *comm, const void *mine,
			      void *all, size_t len)
{
	assert(!data_path_is_inside(&comm->path));
	return control_allgather(comm->control, mine, all, len,
				 atomic_load(&comm->timeout_ms));
}

static dicomm_result_t compare_kinds(struct dicomm_comm *comm,
				     const struct setup_part *all)
{
	for (int r = 1; r < comm->ranks; r++)
		if (all[r].kind != all[0].kind)
			return fault_raise(
				comm, DICOMM_ERR_INVALID_USAGE, r, false,
				"ranks disagree: rank 0 called %s, "
				"rank %d called %s",
				name_of(all[0].kind), r, name_of(all[r].kind));
	return DICOMM_SUCCESS;
}

/* The text of an error begins with the name of its function, mostly. */
static const char *without_name(const char *text, const char *name)
{
	size_t n = strlen(name);

	return strncmp(text, name, n) || strncmp(text + n, ": ", 2)
		       ? text
		       : text + n + 2;
}

/* Texts are long, so only ranks that have to tell one exchange them. */
static dicomm_result_t tell_refusals(struct dicomm_comm *comm,
				     enum setup_kind kind,
				     const struct setup_refusal *mine,
				     const struct setup_part *all, int first)
{
	struct setup_refusal *r = calloc((size_t)comm->ranks, sizeof(*r));
	dicomm_result_t status;

	if (!r)
		return out_of_memory(comm, kind);
	status = gather(comm, mine, r, sizeof(*r));
	if (mine->status != DICOMM_SUCCESS) {
		log_set_last_error(mine->why);
		status = mine->status;
	} else if (status == DICOMM_SUCCESS) {
		r[first].why[sizeof(r->why) - 1] = '\0';
		status = FAIL((dicomm_result_t)all[first].status,
			      "%s: rank %d (%s): %s", name_of(kind), first,
			      control_where(comm->control, first),
			      without_name(r[first].why, name_of(kind)));
	}
	free(r);
	return status;
}

dicomm_result_t setup_agree(struct dicomm_comm *comm, enum setup_kind kind,
			    const struct setup_refusal *refusal,
			    const uint64_t *words, struct setup_part **parts)
{
	struct setup_part *all = calloc((size_t)comm->ranks, sizeof(*all));
	struct setup_part mine = {.kind = kind,
				  .status = (int32_t)refusal->status};
	dicomm_result_t status;
	int first = 0;

	*parts = NULL;
	if (!all)
		return out_of_memory(comm, kind);
	memcpy(mine.words, words, sizeof(mine.words));
	status = gather(comm, &mine, all, sizeof(mine));
	if (status == DICOMM_SUCCESS)
		status = compare_kinds(comm, all);
	if (status != DICOMM_SUCCESS) {
		free(all);
		return status;
	}
	*parts = all;
	while (first < comm->ranks && all[first].status == DICOMM_SUCCESS)
		first++;
	return first < comm->ranks
		       ? tell_refusals(comm, kind, refusal, all, first)
		       : DICOMM_SUCCESS;
}
