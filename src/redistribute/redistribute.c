/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions of redistribution: checks, and agreement of the ranks.
 */
#include "src/redistribute/redistribute.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/cancel.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/device/device.h"
#include "src/redistribute/describe.h"
#include "src/stream/submit.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)

dicomm_result_t dicomm_mesh_boxes(const dicomm_mesh_t *mesh, int axes,
				  const int64_t *shape, int first_term,
				  dicomm_box_t *boxes)
{
	return boxes_of_mesh(mesh, axes, shape, first_term, boxes);
}

/* ---- plans ---- */

static struct handle_pool pool = HANDLE_POOL(struct dicomm_redistribute);

/* What a rank tells the others */
struct opinion {
	uint64_t hash, length; /* of its description */
	int64_t status;
	int64_t way; /* that its plan takes */
};

/* Finds the first number in which the descriptions of ranks 0 and `other`
 * differ, by halves; all ranks know which of the two halves it is in. */
static dicomm_result_t find_number(struct dicomm_comm *comm,
				   const struct description *d,
				   struct opinion *all, int other, uint64_t *at)
{
	uint64_t first = 0, end = all[0].length;

	if (all[other].length < end)
		end = all[other].length;
	while (first < end) {
		uint64_t middle = first + (end - first) / 2;
		struct opinion mine = {.length = 0};

		describe(d, first, middle + 1, &mine.hash);
		TRY(gather_bytes(comm, &mine, all, sizeof(mine)));
		if (all[0].hash == all[other].hash)
			first = middle + 1;
		else
			end = middle;
	}
	*at = first;
	return DICOMM_SUCCESS;
}

/* Tells all ranks in what ranks 0 and `other` differ. Every rank takes part. */
static dicomm_result_t tell_difference(struct dicomm_comm *comm,
				       const struct description *d,
				       struct opinion *all, int other)
{
	struct opinion mine = {.status = DICOMM_SUCCESS};
	char field[300], value[2][40];
	uint64_t at;
	bool weight;

	TRY(find_number(comm, d, all, other, &at));
	weight = describe_field(d, at, &mine.hash, field, sizeof(field));
	TRY(gather_bytes(comm, &mine, all, sizeof(mine)));
	for (int i = 0; i < 2; i++) {
		uint64_t bits = all[i ? other : 0].hash;
		double w;

		memcpy(&w, &bits, sizeof(w));
		if (weight)
			snprintf(value[i], sizeof(value[i]), "%.17g", w);
		else
			snprintf(value[i], sizeof(value[i]), "%" PRId64,
				 (int64_t)bits);
	}
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "redistribute: ranks 0 and %d were given different "
		    "descriptions: %s is %s on rank 0, %s on rank %d",
		    other, field, value[0], value[1], other);
}

/* All ranks go on, or none does. Ranks that were given different descriptions
 * are told so even if one of them is not valid. */
static dicomm_result_t agree(struct dicomm_comm *comm, dicomm_result_t status,
			     const struct description *d, dicomm_way_t way)
{
	struct opinion mine = {.status = (int64_t)status, .way = (int64_t)way};
	struct opinion *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t result;
	int failed = -1, other = -1, astray = -1;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory for %d ranks",
			    comm->ranks);
	mine.length = describe(d, 0, UINT64_MAX, &mine.hash);
	result = gather_bytes(comm, &mine, all, sizeof(mine));
	for (int r = comm->ranks - 1; r >= 0; r--) {
		if (all[r].status != DICOMM_SUCCESS)
			failed = r;
		if (all[r].hash != all[0].hash ||
		    all[r].length != all[0].length)
			other = r;
		if (all[r].way != all[0].way)
			astray = r;
	}
	if (result == DICOMM_SUCCESS && other >= 0)
		result = tell_difference(comm, d, all, other);
	else if (result == DICOMM_SUCCESS && status != DICOMM_SUCCESS)
		result = status;
	else if (result == DICOMM_SUCCESS && failed >= 0)
		result = FAIL((dicomm_result_t)all[failed].status,
			      "redistribute: rank %d has no plan: %s", failed,
			      dicomm_get_error_string(
				      (dicomm_result_t)all[failed].status));
	else if (result == DICOMM_SUCCESS && astray >= 0)
		result = FAIL(DICOMM_ERR_INTERNAL,
			      "redistribute: rank 0 takes way %d, rank %d way "
			      "%d",
			      (int)all[0].way, astray, (int)all[astray].way);
	free(all);
	return result;
}

/* All ranks use what rank 0 measures, so that they choose alike. */
static dicomm_result_t share_memory_rates(struct dicomm_comm *comm)
{
	struct memory_rates mine = {.bytes = {0}};
	struct memory_rates *all;
	dicomm_result_t status;

	if (comm->memory_known)
		return DICOMM_SUCCESS;
	all = calloc((size_t)comm->ranks, sizeof(*all));
	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute: no memory for %d ranks",
			    comm->ranks);
	if (!comm->rank && !comm->dev)
		memory_measure(&mine);
	status = gather_bytes(comm, &mine, all, sizeof(mine));
	if (status == DICOMM_SUCCESS) {
		comm->memory = all[0];
		comm->memory_known = true;
	}
	free(all);
	return status;
}

static dicomm_result_t make(struct dicomm_redistribute *r,
			    const dicomm_tensor_t *tensors, size_t n,
			    const dicomm_redistribute_config_t *config)
{
	struct dicomm_comm *comm = r->comm;
	struct redist_request request = {
		.tensors = tensors,
		.n = n,
		.rank = comm->rank,
		.ranks = comm->ranks,
		.params = comm->table.params,
		.memory = comm->memory,
		.way = config->way,
		.staging = config->staging_bytes,
		.unwanted = config->allow_unwanted,
	};
	dicomm_result_t status;
	void *staging;

	pthread_mutex_lock(&comm->links_lock);
	request.links = comm->links;
	status = redist_plan_make(&request, &r->plan);
	pthread_mutex_unlock(&comm->links_lock);
	if (status != DICOMM_SUCCESS)
		return status;
	TRY(run_check(comm, r->plan));
	if (!r->plan->staging)
		return DICOMM_SUCCESS;
	TRY(dicomm_comm_mem_alloc(comm, &staging, r->plan->staging));
	r->staging = staging;
	return DICOMM_SUCCESS;
}

static void destroy(struct dicomm_redistribute *r)
{
	run_free_all(r);
	dicomm_mem_free(r->staging);
	redist_plan_free(r->plan);
	handle_free(&pool, r);
}

static dicomm_result_t check_config(const dicomm_redistribute_config_t *config)
{
	if (config->size != sizeof(*config))
		return BAD("redistribute_plan: config: size %zu: begin with "
			   "DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER",
			   config->size);
	if ((unsigned)config->way >= WAYS)
		return BAD("redistribute_plan: way %d: no such way",
			   (int)config->way);
	if (config->allow_unwanted != 0 && config->allow_unwanted != 1)
		return BAD("redistribute_plan: config: allow_unwanted %d: not "
			   "0 or 1",
			   config->allow_unwanted);
	if (config->local != 0 && config->local != 1)
		return BAD("redistribute_plan: config: local %d: not 0 or 1",
			   config->local);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_plan_call(dicomm_redistribute_t *plan,
				       dicomm_comm_t comm)
{
	if (!plan)
		return BAD("redistribute_plan: plan is NULL");
	*plan = NULL;
	TRY(comm_check(comm, "redistribute_plan"));
	if (group_open())
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "redistribute_plan: not in a group");
	return DICOMM_SUCCESS;
}

/* What this finds, all ranks are told. */
static dicomm_result_t check_tensors(const dicomm_tensor_t *tensors, size_t n)
{
	if (!tensors && n)
		return BAD("redistribute_plan: tensors is NULL, n is %zu", n);
	if (n > INT32_MAX)
		return BAD("redistribute_plan: n %zu: too many", n);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_redistribute_plan(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm)
{
	CANCEL_HELD();
	static const dicomm_redistribute_config_t none =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	struct description d = {.tensors = n > INT32_MAX ? NULL : tensors,
				.n = n};
	struct dicomm_redistribute *r;
	dicomm_result_t status;
	bool alone;

	TRY(check_plan_call(plan, comm));
	d.config = config = config ? config : &none;
	status = check_config(config);
	if (status == DICOMM_SUCCESS)
		status = check_tensors(tensors, n);
	alone = config->size == sizeof(*config) && config->local;
	if (!alone)
		TRY(share_memory_rates(comm));
	r = handle_alloc(&pool);
	if (!r)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "redistribute_plan: no memory");
	r->magic = REDISTRIBUTE_MAGIC;
	r->comm = comm;
	if (status == DICOMM_SUCCESS)
		status = make(r, tensors, n, config);
	if (!alone)
		status = agree(comm, status, &d,
			       r->plan ? r->plan->way : DICOMM_WAY_AUTO);
	if (status != DICOMM_SUCCESS) {
		destroy(r);
		return status;
	}
	log_info("redistribute: %zu tensors, %s, %u rounds, %zu bytes of "
		 "staging",
		 n, redist_way_name(r->plan->way), r->plan->nrounds,
		 (size_t)r->plan->staging);
	*plan = r;
	return DICOMM_SUCCESS;
}

/* ---- each its own boxes ---- */

struct gathering {
	struct dicomm_comm *comm;
	const dicomm_tensor_t *tensors;
	size_t n;
	const dicomm_redistribute_config_t *config;
	struct description number; /* of tensors, to agree on */
	uint64_t *counts;  /* [rank][2 * tensors]: boxes of sources, targets */
	dicomm_box_t *own; /* all of this rank, tensor by tensor */
	dicomm_box_t *all; /* all of rank 0, then all of rank 1 ... */
	size_t *bytes;     /* [rank] */
	dicomm_box_t *sorted;
	dicomm_tensor_t *whole;
};

static dicomm_result_t check_own(const struct gathering *g)
{
	TRY(check_config(g->config));
	if (g->config->local)
		return BAD("redistribute_plan_own: config: local is 1, but the "
			   "boxes of other ranks have to be gathered");
	TRY(check_tensors(g->tensors, g->n));
	for (size_t i = 0; i < g->n; i++) {
		const dicomm_tensor_t *t = &g->tensors[i];

		for (size_t b = 0; b < t->sources + t->targets; b++) {
			bool target = b >= t->sources;
			const dicomm_box_t *box =
				target ? t->target : t->source;

			if (!box)
				return BAD("redistribute_plan_own: tensor %zu: "
					   "%s is NULL",
					   i, target ? "target" : "source");
			box += target ? b - t->sources : b;
			if (box->rank != g->comm->rank)
				return BAD("redistribute_plan_own: tensor %zu: "
					   "a %s box of rank %d, by rank %d",
					   i, target ? "target" : "source",
					   box->rank, g->comm->rank);
		}
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t out_of_memory(void)
{
	return FAIL(DICOMM_ERR_NO_MEMORY, "redistribute_plan_own: no memory");
}

/* Boxes of this rank in a row */
static dicomm_result_t collect_own(struct gathering *g, uint64_t *counts)
{
	size_t n = 0, at = 0;

	for (size_t i = 0; i < g->n; i++) {
		counts[2 * i] = g->tensors[i].sources;
		counts[2 * i + 1] = g->tensors[i].targets;
		n += g->tensors[i].sources + g->tensors[i].targets;
	}
	g->own = malloc((n + 1) * sizeof(*g->own));
	if (!g->own)
		return out_of_memory();
	for (size_t i = 0; i < g->n; i++) {
		const dicomm_tensor_t *t = &g->tensors[i];

		if (t->sources)
			memcpy(g->own + at, t->source,
			       t->sources * sizeof(*g->own));
		at += t->sources;
		if (t->targets)
			memcpy(g->own + at, t->target,
			       t->targets * sizeof(*g->own));
		at += t->targets;
	}
	return DICOMM_SUCCESS;
}

/* Boxes of all ranks, tensor by tensor */
static dicomm_result_t sort_boxes(struct gathering *g, size_t total)
{
	size_t ranks = (size_t)g->comm->ranks, row = 2 * g->n, at = 0;
	size_t *next = calloc(ranks, sizeof(*next)), begin = 0;

	g->sorted = malloc((total + 1) * sizeof(*g->sorted));
	g->whole = malloc((g->n + 1) * sizeof(*g->whole));
	if (!next || !g->sorted || !g->whole) {
		free(next);
		return out_of_memory();
	}
	for (size_t r = 0; r < ranks; r++) {
		next[r] = begin;
		begin += g->bytes[r] / sizeof(*g->all);
	}
	for (size_t i = 0; i < row; i++) {
		dicomm_tensor_t *t = &g->whole[i / 2];
		size_t first = at;

		for (size_t r = 0; r < ranks; r++) {
			size_t k = g->counts[r * row + i];

			memcpy(g->sorted + at, g->all + next[r],
			       k * sizeof(*g->all));
			next[r] += k;
			at += k;
		}
		if (i % 2 == 0) {
			*t = g->tensors[i / 2];
			t->source = g->sorted + first;
			t->sources = at - first;
		} else {
			t->target = g->sorted + first;
			t->targets = at - first;
		}
	}
	free(next);
	return DICOMM_SUCCESS;
}

static dicomm_result_t gather_boxes(struct gathering *g)
{
	/* No more than the check allows */
	size_t row = g->n > INT32_MAX ? 0 : 2 * g->n, total = 0;
	size_t ranks = (size_t)g->comm->ranks;
	uint64_t *counts = calloc(row + 1, sizeof(*counts));
	dicomm_result_t status = check_own(g);

	g->counts = calloc(ranks * row + 1, sizeof(*g->counts));
	g->bytes = calloc(ranks, sizeof(*g->bytes));
	if (!counts || !g->counts || !g->bytes)
		status = out_of_memory();
	if (status == DICOMM_SUCCESS)
		status = collect_own(g, counts);
	/* Ranks that cannot take part say so, before the others wait. */
	status = agree(g->comm, status, &g->number, DICOMM_WAY_AUTO);
	if (status == DICOMM_SUCCESS)
		status = gather_bytes(g->comm, counts, g->counts,
				      row * sizeof(*counts));
	free(counts);
	TRY(status);
	for (size_t r = 0; r < ranks; r++)
		for (size_t i = 0; i < row; i++) {
			g->bytes[r] += g->counts[r * row + i] * sizeof(*g->all);
			total += g->counts[r * row + i];
		}
	g->all = malloc((total + 1) * sizeof(*g->all));
	status = agree(g->comm, g->all ? DICOMM_SUCCESS : out_of_memory(),
		       &g->number, DICOMM_WAY_AUTO);
	TRY(status);
	TRY(gather_blocks(g->comm, g->own, g->all, g->bytes));
	return sort_boxes(g, total);
}

dicomm_result_t dicomm_redistribute_plan_own(
	dicomm_redistribute_t *plan, const dicomm_tensor_t *tensors, size_t n,
	const dicomm_redistribute_config_t *config, dicomm_comm_t comm)
{
	CANCEL_HELD();
	static const dicomm_redistribute_config_t none =
		DICOMM_REDISTRIBUTE_CONFIG_INITIALIZER;
	struct gathering g = {.comm = comm,
			      .tensors = tensors,
			      .n = n,
			      .config = config ? config : &none};
	dicomm_result_t status;

	TRY(check_plan_call(plan, comm));
	g.number = (struct description){.n = n, .config = g.config};
	status = gather_boxes(&g);
	if (status == DICOMM_SUCCESS)
		status = dicomm_redistribute_plan(plan, g.whole, n, config,
						  comm);
	free(g.counts);
	free(g.bytes);
	free(g.own);
	free(g.all);
	free(g.sorted);
	free(g.whole);
	return status;
}

/* ---- runs ---- */

static dicomm_result_t check_handle(const char *f,
				    const struct dicomm_redistribute *r)
{
	if (!r || r->magic != REDISTRIBUTE_MAGIC)
		return BAD("%s: plan %p is not a plan", f, (const void *)r);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_pointer(const struct dicomm_redistribute *r,
				     const char *name, size_t i, const void *at)
{
	if (!at)
		return BAD("redistribute_run: %s of tensor %zu is NULL, but "
			   "rank %d has a part of it",
			   name, i, r->comm->rank);
	return device_check(r->comm, "redistribute_run", name, at);
}

dicomm_result_t dicomm_redistribute_run(dicomm_redistribute_t plan,
					const void *const *source,
					void *const *target,
					dicomm_stream_t stream)
{
	CANCEL_HELD();
	static const char f[] = "redistribute_run";

	TRY(check_handle(f, plan));
	TRY(comm_check(plan->comm, f));
	if (group_open())
		return FAIL(DICOMM_ERR_INVALID_USAGE, "%s: not in a group", f);
	TRY(stream_check(stream, plan->comm, f));
	for (size_t i = 0; i < plan->plan->ntensors; i++) {
		if (redist_plan_reads(plan->plan, i))
			TRY(check_pointer(plan, "source", i,
					  source ? source[i] : NULL));
		if (redist_plan_writes(plan->plan, i))
			TRY(check_pointer(plan, "target", i,
					  target ? target[i] : NULL));
	}
	return run_start(plan, source, target, stream);
}

/* ---- queries ---- */

dicomm_result_t dicomm_redistribute_info(dicomm_redistribute_t plan,
					 dicomm_redistribute_info_t *info)
{
	const struct redist_plan *p;

	TRY(check_handle("redistribute_info", plan));
	if (!info)
		return BAD("redistribute_info: info is NULL");
	if (info->size != sizeof(*info))
		return BAD("redistribute_info: size %zu: not %zu", info->size,
			   sizeof(*info));
	p = plan->plan;
	*info = (dicomm_redistribute_info_t){
		.size = sizeof(*info),
		.way = p->way,
		.seconds = (double)p->cost[p->way].ps / 1e12,
		.messages_sent = p->messages_sent,
		.messages_received = p->messages_received,
		.bytes_of_all = p->cost[p->way].bytes,
		.bytes_between_hosts = p->cost[p->way].between_nodes,
		.rounds = p->nrounds,
		.staging_bytes = p->staging,
		.plan_bytes = p->bytes,
	};
	for (int w = 0; w < WAYS; w++)
		info->seconds_of[w] = p->cost[w].ps == COST_UNKNOWN
					      ? (double)NAN
					      : (double)p->cost[w].ps / 1e12;
	for (int r = 0; r < p->ranks; r++) {
		info->bytes_sent += p->sent[r];
		info->bytes_received += p->received[r];
	}
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_redistribute_link(dicomm_redistribute_t plan, int peer,
					 uint64_t *sent, uint64_t *received)
{
	static const char f[] = "redistribute_link";

	TRY(check_handle(f, plan));
	if (peer < 0 || peer >= plan->plan->ranks)
		return BAD("%s: peer %d: not in 0 .. %d", f, peer,
			   plan->plan->ranks - 1);
	if (!sent || !received)
		return BAD("%s: %s is NULL", f, sent ? "received" : "sent");
	*sent = plan->plan->sent[peer];
	*received = plan->plan->received[peer];
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_redistribute_explain(dicomm_redistribute_t plan,
					    char *text, size_t len)
{
	TRY(check_handle("redistribute_explain", plan));
	if (!text || !len)
		return BAD("redistribute_explain: text is %p, len is %zu",
			   (void *)text, len);
	redist_plan_explain(plan->plan, text, len);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_redistribute_free(dicomm_redistribute_t plan)
{
	CANCEL_HELD();

	if (!plan)
		return DICOMM_SUCCESS;
	TRY(check_handle("redistribute_free", plan));
	if (run_pending(plan) && comm_usable(plan->comm))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "redistribute_free: a run is under way");
	destroy(plan);
	return DICOMM_SUCCESS;
}
