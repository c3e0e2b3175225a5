/* SPDX-License-Identifier: BSD-3-Clause */
/* Prepares calls: chooses the algorithm, makes its plan, and keeps the result
 * in the cache of the communicator. */
#include "src/engine/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/plan/schedule.h"
#include "src/accel/reduce/reciprocal.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/engine/fast_path_build.h"
#include "src/links/drift.h"
#include "src/core/paths.h"
#include "src/message/channel.h"

/* Calls in the cache of a communicator, at most. The plan of many ranks is
 * large. */
#define KEPT_MAX 128
#define WINDOW_MAX 64
/* Blocks below this size do not congest a shared link for long. */
#define INCAST_BYTES (UINT64_C(256) << 10)

static uint64_t largest(const size_t *n, uint32_t blocks, uint64_t most)
{
	for (uint32_t i = 0; i < blocks; i++)
		if (n[i] > most)
			most = n[i];
	return most;
}

/* Elements of the longest block; slices are counted in it. */
static uint64_t longest_block(const struct dicomm_comm *comm,
			      const struct call *call)
{
	uint64_t most = 0;
	uint32_t send, recv;

	if (call->function == COLL_BARRIER)
		return 1;
	if (!coll_has_counts(call->function))
		return call->count;
	if (call->counts)
		return largest(call->counts,
			       (uint32_t)call_ranks(call, comm->ranks), 0);
	call_layout(call->function, call_rank(call, comm->rank),
		    call_ranks(call, comm->ranks), call->root, &send, &recv);
	most = largest(call->send_counts, send, most);
	return largest(call->recv_counts, recv, most);
}

/* Bytes of the longer buffer, for the estimate of time. Where ranks do not
 * share all counts, the algorithm is chosen without them: else it would need an
 * exchange before each call, and these algorithms take about equally long. */
static uint64_t size_for_selection(const struct dicomm_comm *comm,
				   const struct call *call, size_t elem_bytes)
{
	uint64_t n = call->count;

	switch (call->function) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
	case COLL_BROADCAST:
		break;
	case COLL_ALLTOALLV:
	case COLL_GATHERV:
	case COLL_SCATTERV:
		n = (uint64_t)1 << 20;
		break;
	case COLL_ALLGATHERV:
	case COLL_REDUCE_SCATTERV:
		n = 0;
		for (int r = 0; r < call_ranks(call, comm->ranks); r++)
			n += call->counts[r];
		break;
	case COLL_BARRIER:
		n = 1;
		break;
	default:
		n *= (uint64_t)call_ranks(call, comm->ranks);
	}
	return n * elem_bytes;
}

/* Elements of one part of a slice; message_parts parts make one message. */
static uint64_t part_elements(const struct prepared *e,
			      const struct dicomm_comm *comm, uint64_t longest)
{
	const struct plan *p = &e->plan;
	uint64_t parts = p->message_parts ? p->message_parts : 1;
	uint64_t of = p->message_parts_of ? p->message_parts_of : 1;
	bool slotless = comm->slice_bytes &&
			(!e->algorithm || e->algorithm->scratchless);
	uint64_t most = slotless ? comm->slice_bytes : comm->slot_bytes;
	/* Ranks may not know each other's longest block. */
	uint64_t message = coll_counts_in_pairs(e->key.function)
				   ? UINT64_MAX
				   : longest / of * parts * e->elem_bytes;
	uint64_t part = schedule_slice_bytes(message, most, slotless) /
			e->elem_bytes / parts;
	/* Use only what all ranks know; their scratch may differ. */
	uint64_t blocks = e->algorithm && e->algorithm->deterministic
				  ? (uint64_t)comm->ranks
				  : 2;
	uint64_t scratch = blocks * of * e->elem_bytes;

	while (!slotless && 2 * part * scratch > PREPARED_SCRATCH &&
	       part > 2 * e->align)
		part /= 2;
	part -= part % e->align;
	return part ? part : e->align;
}

static void size_slices(struct prepared *e, const struct dicomm_comm *comm,
			uint64_t longest)
{
	const struct plan *p = &e->plan;

	if (p->whole)
		e->slice = longest ? longest : 1;
	else
		e->slice = part_elements(e, comm, longest) *
			   (p->message_parts_of ? p->message_parts_of : 1);
	e->longest = longest;
	e->slices = longest ? (longest + e->slice - 1) / e->slice : 0;
	/* A device needs the blocks of scratch at aligned distances. */
	if (e->slices == 1)
		e->slice = comm->dev && !p->whole ? (longest + e->align - 1) /
							    e->align * e->align
						  : longest;
	e->window = WINDOW_MAX;
	if (p->scratch_blocks) {
		uint64_t one = p->scratch_blocks * e->slice * e->elem_bytes;

		while (e->window > 2 && e->window * one > PREPARED_SCRATCH)
			e->window /= 2;
		if (e->window > e->slices)
			e->window = e->slices ? e->slices : 1;
		e->scratch_bytes = e->window * one;
	}
}

static dicomm_result_t find_pairs(struct prepared *e, struct dicomm_comm *comm)
{
	uint32_t n = 0;

	for (int r = 0; r < comm->ranks; r++)
		if (e->plan.sends_to[r] || e->plan.recvs_from[r])
			n++;
	e->pairs = calloc(n + 1, sizeof(*e->pairs));
	if (!e->pairs)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "call: no memory for %u peers", n);
	for (int r = 0; r < comm->ranks; r++) {
		struct pair *pair = &e->pairs[e->npairs];

		if (!e->plan.sends_to[r] && !e->plan.recvs_from[r])
			continue;
		TRY(comm_peer(comm, r, &pair->peer));
		pair->out = e->plan.sends_to[r];
		pair->in = e->plan.recvs_from[r];
		e->npairs++;
	}
	return DICOMM_SUCCESS;
}

/* Does the step send anything? Its part of the first slice may be empty while
 * its part of the last, shorter slice is not. */
static bool carries(const struct prepared *e, const struct call *call,
		    const struct step *s)
{
	uint64_t n = prepared_block(e, call, &s->a);

	return n && (prepared_extent(e, call, &s->a, 0).n ||
		     prepared_extent(e, call, &s->a, (n - 1) / e->slice).n);
}

/* Begin to connect to all peers at once, but only to those that are sent
 * something: others may have finished and left. Each step waits for its own
 * peer (step.c). */
static dicomm_result_t connect_pairs(struct prepared *e,
				     struct dicomm_comm *comm,
				     const struct call *call)
{
	const struct plan *p = &e->plan;
	dicomm_result_t status;

	for (uint32_t i = 0; i < p->nsteps && e->slices; i++) {
		const struct step *s = &p->steps[i];

		if (s->kind != STEP_SEND || !carries(e, call, s))
			continue;
		status = channel_connect_out(&comm->peers[s->peer], e->class);
		if (status != DICOMM_SUCCESS && status != DICOMM_AGAIN)
			return status;
	}
	return DICOMM_SUCCESS;
}

/* Find the steps whose result a later step reads. */
static dicomm_result_t find_readers(struct prepared *e)
{
	const struct plan *p = &e->plan;

	e->read_later = calloc(p->nsteps + 1, sizeof(bool));
	if (!e->read_later)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "call: no memory for %u steps", p->nsteps);
	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct step *s = &p->steps[i];

		for (uint32_t d = 0; d < s->dep_count; d++)
			if (s->kind != STEP_RECV)
				e->read_later[p->deps[s->dep_first + d]] = true;
	}
	return DICOMM_SUCCESS;
}

static void find_largest(struct prepared *e, const struct call *call)
{
	const struct plan *p = &e->plan;

	for (uint32_t i = 0; i < p->nsteps && e->slices; i++) {
		const struct step *s = &p->steps[i];
		size_t bytes;

		if (s->peer < 0)
			continue;
		bytes = prepared_extent(e, call,
					s->kind == STEP_SEND ? &s->a : &s->dst,
					0)
				.n *
			e->elem_bytes;
		if (bytes > e->largest_message)
			e->largest_message = bytes;
	}
}

/* May a message go by reference over a transport that needs registered memory?
 * The ranks of an alltoallv do not know whether their counts are equal, so for
 * them: yes. */
static void find_blocked(struct prepared *e)
{
	for (uint32_t i = 0; i < e->npairs; i++) {
		const struct tp_limits *l = &e->pairs[i].peer->limits;

		if (l->needs_mem_reg &&
		    (e->slices > 1 || e->largest_message > l->eager_bytes ||
		     coll_has_counts(e->key.function)))
			e->needs_mem_reg = true;
	}
}

/* Find incast: several ranks send much to this one over a link that they share.
 * Messages by reference do not need turns, as their sender waits for the
 * release. */
static void find_incast(struct prepared *e)
{
	uint32_t senders = 0;

	for (uint32_t i = 0; i < e->npairs; i++) {
		const struct tp_limits *l = &e->pairs[i].peer->limits;

		senders += e->pairs[i].in && l->congests;
		if (l->congests && e->largest_message > l->eager_bytes)
			return;
	}
	e->incast = senders > 1 && e->longest * e->elem_bytes >= INCAST_BYTES;
}

static dicomm_result_t find_kernels(struct prepared *e,
				    struct dicomm_comm *comm,
				    const struct call *call,
				    struct shape *shape)
{
	e->op = call->op;
	e->scale = reduce_scale_kernel(call->type);
	if (!call_reduces(call->function))
		return DICOMM_SUCCESS;
	if (call->op >= 0x100) {
		e->op = DICOMM_SUM;
		shape->prescale = true;
		memcpy(e->scalar, call->scalar, sizeof(e->scalar));
		e->scalar_at = call->scalar_at;
	} else if (call->op == DICOMM_AVG) {
		shape->prescale = type_is_float(call->type);
		shape->postdivide = !shape->prescale;
		if (shape->prescale) {
			reciprocal_of(call->type, comm->ranks, e->scalar);
			e->scale = reduce_average_kernel(call->type);
		}
	}
	e->reduce = reduce_kernel(call->type, e->op, false);
	e->reduce_stream = reduce_kernel(call->type, e->op, true);
	e->divide = reduce_divide_kernel(call->type);
	if (!e->reduce)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: op %s is not defined for type %s",
			    call_name(call->function), op_name(call->op),
			    type_name(call->type));
	return DICOMM_SUCCESS;
}

/* Calls that have no algorithm: one step; an average that this library itself
 * makes of sums of several ranks is also divided. */
static dicomm_result_t plan_one_step(struct prepared *e,
				     struct dicomm_comm *comm,
				     const struct call *call,
				     const struct shape *shape)
{
	struct span send = plan_block(PLAN_SEND, 0);
	struct span recv = plan_block(PLAN_RECV, 0);

	plan_init(&e->plan, comm->ranks);
	if (call->function == CALL_SEND) {
		plan_send(&e->plan, call->root, send);
	} else if (call->function == CALL_RECV) {
		plan_recv(&e->plan, call->root, recv);
	} else {
		e->plan.whole = comm->dev; /* one kernel */
		plan_reduce(&e->plan, recv, send, recv);
		if (shape->prescale)
			plan_scale(&e->plan, recv, recv);
		if (shape->postdivide)
			plan_divide(&e->plan, recv, recv);
	}
	return plan_finish(&e->plan);
}

/* Bytes of the result on one rank, at most */
static uint64_t result_bytes(const struct prepared *e,
			     const struct dicomm_comm *comm,
			     const struct call *call)
{
	uint64_t block = longest_block(comm, call) * e->elem_bytes;

	switch (call->function) {
	case COLL_ALLGATHER:
	case COLL_ALLGATHERV:
	case COLL_ALLTOALL:
	case COLL_ALLTOALLV:
	case COLL_GATHER:
	case COLL_GATHERV:
		return block * (uint64_t)call_ranks(call, comm->ranks);
	default:
		return block;
	}
}

/* Record what prepared_quick() compares. */
static void record_buffers(struct prepared *e, const struct dicomm_comm *comm,
			   const struct call *call)
{
	size_t block = call->count * e->elem_bytes;
	uint32_t send, recv;

	e->in_place_distance = 1;
	if (coll_has_counts(call->function) || call->function == COLL_BARRIER ||
	    call->among)
		return;
	call_layout(call->function, comm->rank, comm->ranks, call->root, &send,
		    &recv);
	e->send_bytes = send * block;
	e->recv_bytes = recv * block;
	/* The distance of the two buffers for which the call is in place */
	for (int direction = 0; direction < 3; direction++) {
		struct call probe = *call;
		intptr_t d = (intptr_t)((size_t)comm->rank * block);
		char *base = (char *)(UINTPTR_MAX / 2);

		d = direction == 0 ? 0 : direction == 1 ? d : -d;
		probe.send = base;
		probe.recv = base + d;
		if (call_in_place(&probe, comm->rank, comm->ranks))
			e->in_place_distance = d;
	}
}

/* What receivers do with a message. The root of a broadcast has just written
 * what it sends, so it is in the cache of the root's core anyway. */
static enum tp_want want_of(unsigned function, enum tp_class class)
{
	if (call_reduces(function) || function == COLL_BROADCAST)
		return TP_WANT_LOAD;
	if (call_rooted(function) || class == TP_POINT_TO_POINT)
		return TP_WANT_COPY;
	return TP_WANT_EXCHANGE;
}

static dicomm_result_t make(struct prepared *e, struct dicomm_comm *comm,
			    const struct call *call)
{
	struct shape shape = {.coll = (enum coll)call->function,
			      .rank = call_rank(call, comm->rank),
			      .ranks = call_ranks(call, comm->ranks),
			      .root = call->root,
			      .in_place = e->key.in_place,
			      .links = call->among ? call->among->links
						   : comm->links};
	uint64_t bytes = 0;

	e->elem_bytes = call_elem_bytes(call);
	e->align = e->elem_bytes > 64 ? 1 : 64 / e->elem_bytes;
	e->signature = call_signature(call, call_ranks(call, comm->ranks));
	TRY(find_kernels(e, comm, call, &shape));
	if (call->function >= COLL_KINDS) {
		e->class = TP_POINT_TO_POINT;
		TRY(plan_one_step(e, comm, call, &shape));
	} else {
		e->class = TP_COLLECTIVE;
		bytes = size_for_selection(comm, call, e->elem_bytes);
		TRY(select_algorithm(&comm->table, &shape, bytes,
				     &e->algorithm));
		TRY(algorithm_plan(e->algorithm, &shape, &e->plan));
	}
	e->want = want_of(call->function, e->class);
	if (call->among)
		TRY(plan_among(&e->plan, call->among->of, comm->ranks));
	else if (call->function < COLL_KINDS)
		TRY(drift_expected(comm, call, &shape, bytes, e->algorithm,
				   &e->expected_ns));
	record_buffers(e, comm, call);
	e->log_what = call_log_what(call, e->signature);
	e->log_count = call_log_count(call, call_ranks(call, comm->ranks));
	size_slices(e, comm, longest_block(comm, call));
	/* The result of a broadcast is read again soon, so keep it in the
	 * caches. */
	e->stream_out = call->function != COLL_BROADCAST &&
			result_bytes(e, comm, call) >= comm->stream_bytes;
	TRY(find_pairs(e, comm));
	TRY(connect_pairs(e, comm, call));
	TRY(find_readers(e));
	find_largest(e, call);
	find_incast(e);
	if (!comm->device_memory)
		find_blocked(e);
	/* prepared_quick() knows calls of all ranks only. */
	return call->among ? DICOMM_SUCCESS : fast_path_build(e, comm, call);
}

static void destroy(struct prepared *e)
{
	if (!e)
		return;
	plan_free(&e->plan);
	free(e->pairs);
	free(e->fast_steps);
	free(e->read_later);
	free(e);
}

/* Remove it from the list and the cache. No operation uses it. */
static void drop(struct dicomm_comm *comm, struct prepared **at)
{
	struct prepared *e = *at;

	*at = e->next;
	for (unsigned i = 0; i < COMM_CACHE; i++)
		if (comm->prepared.cache[i] == e)
			comm->prepared.cache[i] = NULL;
	comm->prepared.n--;
	destroy(e);
}

static bool drop_oldest(struct dicomm_comm *comm)
{
	struct prepared **at, **oldest = NULL;

	for (at = &comm->prepared.all; *at; at = &(*at)->next)
		if (!(*at)->users && (!oldest || (*at)->used < (*oldest)->used))
			oldest = at;
	if (oldest)
		drop(comm, oldest);
	return oldest;
}

static bool matches(const struct prepared *e, const struct call_key *k)
{
	return e && e->key.count == k->count &&
	       e->key.function == k->function && e->key.type == k->type &&
	       e->key.op == k->op && e->key.root == k->root &&
	       e->key.in_place == k->in_place && e->key.epoch == k->epoch &&
	       e->key.among == k->among;
}

dicomm_result_t prepare_get(struct dicomm_comm *comm, const struct call *call,
			    struct prepared **out)
{
	struct call_key key = {
		.function = (uint8_t)call->function,
		.type = (uint8_t)call->type,
		.in_place = call_in_place(call, call_rank(call, comm->rank),
					  call_ranks(call, comm->ranks)),
		.among = call->among,
		.op = (int32_t)call->op,
		.root = call->root,
		.epoch = comm->links_epoch,
		.count = call->count};
	unsigned slot = prepared_slot(call->function, call->type, call->op,
				      call->root, call->count);
	struct prepared *e;
	dicomm_result_t status;

	if (!coll_has_counts(call->function)) {
		for (e = comm->prepared.all; e; e = e->next)
			if (matches(e, &key))
				goto found;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: no memory for its plan",
			    call_name(call->function));
	e->key = key;
	status = make(e, comm, call);
	if (status != DICOMM_SUCCESS) {
		destroy(e);
		return status;
	}
	if (coll_has_counts(call->function)) {
		*out = e;
		return DICOMM_SUCCESS;
	}
	e->kept = true;
	e->next = comm->prepared.all;
	comm->prepared.all = e;
	comm->prepared.n++;
found:
	e->used = comm->stats.operations;
	e->users++;
	comm->prepared.cache[slot] = e;
	*out = e;
	return DICOMM_SUCCESS;
}

void prepare_put(struct prepared *prep)
{
	if (prep && prep->kept)
		prep->users--;
	else
		destroy(prep);
}

void prepare_trim(struct dicomm_comm *comm)
{
	while (comm->prepared.n > KEPT_MAX && drop_oldest(comm))
		;
}

void prepare_forget_op(struct dicomm_comm *comm, dicomm_redop_t op)
{
	struct prepared **at = &comm->prepared.all;

	while (*at)
		if ((*at)->key.op == (int32_t)op)
			drop(comm, at);
		else
			at = &(*at)->next;
}

void prepare_free_all(struct dicomm_comm *comm)
{
	while (comm->prepared.all)
		drop(comm, &comm->prepared.all);
}
