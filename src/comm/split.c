/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators made from others: split and its relatives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/log.h"
#include "src/comm/lifecycle.h"
#include "src/boot/control/id.h"
#include "src/core/comm.h"
#include "src/core/setup_call.h"
#include "src/stream/submit.h"
#include "src/core/fault.h"

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
	struct setup_refusal refusal;
};

static void free_split(void *arg)
{
	struct split_args *a = arg;

	comm_config_free(&a->config);
	free(a);
}

/* What a rank of the parent tells all others */
struct split_offer {
	dicomm_unique_id_t id; /* the id, from the first rank of each color */
	int32_t status;        /* can it take part? */
	char why[200];         /* if not */
};

/* A rank that cannot take part says so, and the others of its color do not
 * wait. */
static dicomm_result_t check_offers(const struct split_offer *offers,
				    const uint32_t *was, size_t mates,
				    struct dicomm_comm *parent)
{
	for (size_t i = 0; i < mates; i++) {
		const struct split_offer *o = &offers[was[i]];

		if (o->status != DICOMM_SUCCESS)
			return FAIL((dicomm_result_t)o->status,
				    "comm_split: rank %d (%s) could not join: "
				    "%s",
				    (int)was[i],
				    control_where(parent->control, (int)was[i]),
				    o->why);
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t exchange_colors(const struct split_args *a,
				       struct split_member *all)
{
	const uint64_t words[SETUP_WORDS] = {(uint32_t)a->color,
					     (uint32_t)a->key};
	struct setup_part *parts;
	dicomm_result_t status =
		setup_agree(a->parent, SETUP_SPLIT, &a->refusal, words, &parts);

	for (int r = 0; status == DICOMM_SUCCESS && r < a->parent->ranks; r++)
		all[r] = (struct split_member){(int)parts[r].words[0],
					       (int)parts[r].words[1], r};
	free(parts);
	return status;
}

/* First, all ranks of the parent exchange their colors. Then all prepare, and
 * the first rank of each color makes an id. Then they exchange ids and results.
 */
static dicomm_result_t split_among(const struct split_args *a,
				   struct split_member *all,
				   struct split_offer *offers, uint32_t *was)
{
	struct dicomm_comm *parent = a->parent;
	struct split_offer offer;
	struct comm_start *start = NULL;
	dicomm_result_t status = DICOMM_SUCCESS;
	size_t mates = 0;
	int rank = 0;

	TRY(exchange_colors(a, all));
	for (int r = 0; r < parent->ranks; r++)
		if (all[r].color == a->color)
			all[mates++] = all[r];
	qsort(all, mates, sizeof(*all), by_key);
	while (all[rank].rank != parent->rank)
		rank++;
	for (size_t i = 0; i < mates; i++)
		was[i] = (uint32_t)all[i].rank;
	memset(&offer, 0, sizeof(offer));
	if (a->color != DICOMM_SPLIT_NOCOLOR) {
		status = comm_start_prepare(&start, (int)mates, rank,
					    &a->config, parent, was);
		if (status == DICOMM_SUCCESS && rank == 0)
			status = id_create(&offer.id);
		offer.status = (int32_t)status;
		if (status != DICOMM_SUCCESS)
			snprintf(offer.why, sizeof(offer.why), "%s",
				 log_last_error());
	}
	status = control_allgather(parent->control, &offer, offers,
				   sizeof(offer), parent->timeout_ms);
	if (a->color == DICOMM_SPLIT_NOCOLOR)
		return status;
	if (status == DICOMM_SUCCESS)
		status = check_offers(offers, was, mates, parent);
	if (status == DICOMM_SUCCESS)
		return comm_start_join(start, a->out, &offers[was[0]].id);
	if (*offer.id.text)
		id_forget(&offer.id);
	if (start)
		comm_start_refuse(start);
	return status;
}

static dicomm_result_t split_now(void *arg)
{
	struct split_args *a = arg;
	struct dicomm_comm *parent = a->parent;
	size_t n = (size_t)parent->ranks;
	struct split_member *all = calloc(n, sizeof(*all));
	struct split_offer *offers = calloc(n, sizeof(*offers));
	uint32_t *was = calloc(n, sizeof(*was));
	dicomm_result_t status;

	if (all && offers && was)
		status = split_among(a, all, offers, was);
	else
		/* The other ranks wait for this one. */
		status = fault_raise(parent, DICOMM_ERR_NO_MEMORY, parent->rank,
				     true,
				     "comm_split: no memory for %zu ranks", n);
	status = fault_of_parent(parent, status);
	free(all);
	free(offers);
	free(was);
	free_split(a);
	return status;
}

dicomm_result_t dicomm_comm_split(dicomm_comm_t comm, int color, int key,
				  dicomm_comm_t *newcomm,
				  const dicomm_config_t *config)
{
	CANCEL_HELD();
	struct split_args *a;

	if (newcomm)
		*newcomm = NULL;
	TRY(comm_check_slow(comm, "comm_split"));
	a = malloc(sizeof(*a));
	if (!a)
		return fault_raise(comm, DICOMM_ERR_NO_MEMORY, comm->rank, true,
				   "comm_split: out of memory");
	*a = (struct split_args){
		comm, color, key, newcomm, DICOMM_CONFIG_INITIALIZER, {0}};
	if (!newcomm)
		setup_refuse(&a->refusal, FAIL(DICOMM_ERR_INVALID_ARGUMENT,
					       "comm_split: newcomm is NULL"));
	if (color < 0 && color != DICOMM_SPLIT_NOCOLOR)
		setup_refuse(&a->refusal,
			     FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				  "comm_split: color %d: neither positive, 0 "
				  "nor DICOMM_SPLIT_NOCOLOR",
				  color));
	setup_refuse(
		&a->refusal,
		comm_config_copy(&a->config, config ? config : &comm->config));
	/* The new communicator meets by an id; only the exchange uses the
	 * parent. */
	if (!config)
		a->config.bootstrap.allgather = NULL;
	return group_init(comm, split_now, free_split, a);
}
