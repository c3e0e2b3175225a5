/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator with more ranks than its parent: the old ones, and behind them
 * ranks that had none.
 *
 * One of the old ranks makes an id and hands it to the joiners, who join by it
 * as in any init. The old ranks agree in the parent that all of them take part,
 * and hear there which id it is. Whoever does not come, dies or differs is then
 * found by the id's server, among old ranks and joiners alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/log.h"
#include "src/boot/control/id.h"
#include "src/comm/lifecycle.h"
#include "src/core/comm.h"
#include "src/core/fault.h"
#include "src/core/setup_call.h"
#include "src/stream/submit.h"

/* Where an old rank has its id from: from nowhere; from its call of
 * comm_get_unique_id(); from its caller, which counts more. */
enum source { NOWHERE, MADE, GIVEN };

struct grow_args {
	struct dicomm_comm *parent;
	int ranks;
	enum source source;
	dicomm_unique_id_t id;
	dicomm_comm_t *out;
	dicomm_config_t config; /* owned */
	struct setup_refusal refusal;
};

/* What an old rank tells the others */
struct grow_offer {
	int32_t ranks;  /* to grow to */
	int32_t source; /* enum source */
	dicomm_unique_id_t id;
	int32_t status; /* can it take part? */
	char why[200];  /* if not */
};

static void free_grow(void *arg)
{
	struct grow_args *a = arg;

	comm_config_free(&a->config);
	auth_forget(&a->id, sizeof(a->id));
	free(a);
}

/* Finds the id among those that the old ranks have. */
static dicomm_result_t find_id(const struct grow_args *a,
			       const struct grow_offer *offers,
			       dicomm_unique_id_t *id)
{
	int giver = 0;

	for (int r = 1; r < a->parent->ranks; r++)
		if (offers[r].source > offers[giver].source)
			giver = r;
	if (offers[giver].source == NOWHERE)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "comm_grow: no rank of comm has an id: one of them "
			    "has to call comm_get_unique_id()");
	for (int r = giver + 1; r < a->parent->ranks; r++)
		if (offers[r].source == offers[giver].source &&
		    memcmp(&offers[r].id, &offers[giver].id, sizeof(*id)) != 0)
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "comm_grow: ranks %d and %d have unlike "
				    "ids",
				    giver, r);
	*id = offers[giver].id;
	return DICOMM_SUCCESS;
}

/* All old ranks find the same. */
static dicomm_result_t check_offers(const struct grow_args *a,
				    const struct grow_offer *offers)
{
	struct control *c = a->parent->control;

	for (int r = 0; r < a->parent->ranks; r++) {
		const struct grow_offer *o = &offers[r];

		if (o->ranks != offers[0].ranks)
			return FAIL(DICOMM_ERR_INVALID_USAGE,
				    "comm_grow: rank 0 (%s) grows to %d ranks, "
				    "rank %d (%s) to %d",
				    control_where(c, 0), offers[0].ranks, r,
				    control_where(c, r), o->ranks);
		if (o->status != DICOMM_SUCCESS)
			return FAIL((dicomm_result_t)o->status,
				    "comm_grow: rank %d (%s) could not join: "
				    "%s",
				    r, control_where(c, r), o->why);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t agree(const struct grow_args *a, bool *heard)
{
	const uint64_t words[SETUP_WORDS] = {0};
	struct setup_part *parts;
	dicomm_result_t status =
		setup_agree(a->parent, SETUP_GROW, &a->refusal, words, &parts);

	*heard = parts != NULL;
	free(parts);
	return status;
}

/* The joiners need not wait. */
static void refuse_joiners(const struct grow_args *a, dicomm_result_t status)
{
	int joiners = a->ranks - a->parent->ranks;

	if (a->source != NOWHERE)
		id_refuse(&a->id, status, log_last_error(),
			  joiners > 0 ? joiners : 1);
}

static dicomm_result_t grow_among(struct grow_args *a,
				  struct grow_offer *offers)
{
	struct dicomm_comm *parent = a->parent;
	struct grow_offer mine;
	struct comm_start *start = NULL;
	dicomm_unique_id_t id = {.text = ""};
	dicomm_result_t status;

	memset(&mine, 0, sizeof(mine));
	mine.ranks = a->ranks;
	mine.source = (int32_t)a->source;
	mine.id = a->id;
	status = comm_start_prepare(&start, a->ranks, parent->rank, &a->config,
				    parent, NULL);
	mine.status = (int32_t)status;
	if (status != DICOMM_SUCCESS)
		snprintf(mine.why, sizeof(mine.why), "%s", log_last_error());
	status = control_allgather(parent->control, &mine, offers, sizeof(mine),
				   parent->timeout_ms);
	auth_forget(&mine, sizeof(mine));
	if (status == DICOMM_SUCCESS)
		status = check_offers(a, offers);
	if (status == DICOMM_SUCCESS)
		status = find_id(a, offers, &id);
	if (status == DICOMM_SUCCESS) {
		status = comm_start_join(start, a->out, &id);
		auth_forget(&id, sizeof(id));
		return status;
	}
	refuse_joiners(a, status);
	if (start)
		comm_start_refuse(start);
	return status;
}

static dicomm_result_t grow_now(void *arg)
{
	struct grow_args *a = arg;
	struct dicomm_comm *parent = a->parent;
	size_t n = (size_t)parent->ranks;
	struct grow_offer *offers = calloc(n, sizeof(*offers));
	dicomm_result_t status;
	bool heard;

	/* An id is for one attempt; a refused call is none. */
	status = agree(a, &heard);
	if (status == DICOMM_SUCCESS || !heard)
		auth_forget(&parent->grow_id, sizeof(parent->grow_id));
	if (status != DICOMM_SUCCESS && !heard)
		refuse_joiners(a, status);
	if (status == DICOMM_SUCCESS && offers)
		status = grow_among(a, offers);
	else if (status == DICOMM_SUCCESS)
		/* The other ranks wait for this one. */
		status = fault_raise(parent, DICOMM_ERR_NO_MEMORY, parent->rank,
				     true, "comm_grow: no memory for %zu ranks",
				     n);
	status = fault_of_parent(parent, status);
	if (offers)
		auth_forget(offers, n * sizeof(*offers));
	free(offers);
	free_grow(a);
	return status;
}

static dicomm_result_t check_id(const dicomm_unique_id_t *id)
{
	char address[SOCK_NAME];
	uint8_t key[AUTH_KEY];
	const char *why;
	bool good = id_read(id, address, key, &why);

	auth_forget(key, sizeof(key));
	if (good)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "comm_grow: id: %s", why);
}

/* The communicator was broken before this rank came to grow it: joiners need
 * not wait. */
static void refuse_early(const struct dicomm_comm *comm, int nranks,
			 const dicomm_unique_id_t *id, dicomm_result_t status)
{
	if (comm->magic != COMM_MAGIC || comm_is_child(comm) || !fault_is(comm))
		return;
	id_refuse(id ? id : &comm->grow_id, status, log_last_error(),
		  nranks - comm->ranks);
}

static dicomm_result_t check_arguments(const struct dicomm_comm *comm,
				       int nranks, const dicomm_unique_id_t *id,
				       int rank, const dicomm_comm_t *newcomm)
{
	static const char f[] = "comm_grow";

	if (!newcomm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: newcomm is NULL",
			    f);
	if (nranks <= comm->ranks || nranks > CONTROL_RANKS_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: nranks %d: not more than the %d ranks of "
			    "comm, up to %d",
			    f, nranks, comm->ranks, CONTROL_RANKS_MAX);
	if (rank != -1 && rank != comm->rank)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: rank %d: an old rank gives -1 and stays rank "
			    "%d",
			    f, rank, comm->rank);
	return id ? check_id(id) : DICOMM_SUCCESS;
}

/* One of the old ranks. */
static dicomm_result_t grow(struct dicomm_comm *comm, int nranks,
			    const dicomm_unique_id_t *id, int rank,
			    dicomm_comm_t *newcomm,
			    const dicomm_config_t *config)
{
	static const char f[] = "comm_grow";
	struct grow_args *a;
	dicomm_result_t status;

	status = comm_check_slow(comm, f);
	if (status != DICOMM_SUCCESS) {
		refuse_early(comm, nranks, id, status);
		return status;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return fault_raise(comm, DICOMM_ERR_NO_MEMORY, comm->rank, true,
				   "%s: out of memory", f);
	a->parent = comm;
	a->ranks = nranks;
	a->out = newcomm;
	setup_refuse(&a->refusal,
		     check_arguments(comm, nranks, id, rank, newcomm));
	if (a->refusal.status == DICOMM_SUCCESS && id) {
		a->source = GIVEN;
		a->id = *id;
	} else if (*comm->grow_id.text) {
		a->source = MADE;
		a->id = comm->grow_id;
	}
	setup_refuse(
		&a->refusal,
		comm_config_copy(&a->config, config ? config : &comm->config));
	/* Joiners have no such all-gather: all meet by the id. */
	a->config.bootstrap.allgather = NULL;
	return group_init(comm, grow_now, free_grow, a);
}

dicomm_result_t dicomm_comm_grow(dicomm_comm_t comm, int nranks,
				 const dicomm_unique_id_t *id, int rank,
				 dicomm_comm_t *newcomm,
				 const dicomm_config_t *config)
{
	CANCEL_HELD();
	static const char f[] = "comm_grow";
	dicomm_config_t own = DICOMM_CONFIG_INITIALIZER;
	dicomm_result_t status;

	if (newcomm)
		*newcomm = NULL;
	if (comm)
		return grow(comm, nranks, id, rank, newcomm, config);
	if (!newcomm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT, "%s: newcomm is NULL",
			    f);
	if (!id)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: comm and id are NULL: a rank that joins needs "
			    "the id",
			    f);
	TRY(check_id(id));
	TRY(comm_config_copy(&own, config));
	own.bootstrap.allgather = NULL;
	status = dicomm_comm_init_rank_config(newcomm, nranks, *id, rank, &own);
	comm_config_free(&own);
	return status;
}

dicomm_result_t dicomm_comm_get_unique_id(dicomm_comm_t comm,
					  dicomm_unique_id_t *id)
{
	CANCEL_HELD();

	TRY(comm_check_slow(comm, "comm_get_unique_id"));
	if (!id)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_get_unique_id: id is NULL");
	TRY(id_create(id));
	comm->grow_id = *id;
	return DICOMM_SUCCESS;
}
