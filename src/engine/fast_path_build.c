/* SPDX-License-Identifier: BSD-3-Clause */
/* Decides which calls can take the fast path, and makes their steps. */
#include "src/engine/fast_path_build.h"

#include <stdlib.h>

#include "src/base/log.h"
#include "src/core/paths.h"
#include "src/engine/trace.h"

static bool is_whole_block(const struct span *s)
{
	return s->parts == 1 && s->nblocks == 1;
}

static bool has_whole_blocks(const struct step *s)
{
	if (s->kind != STEP_SEND && !is_whole_block(&s->dst))
		return false;
	return (s->kind == STEP_RECV || is_whole_block(&s->a)) &&
	       (s->kind != STEP_REDUCE || is_whole_block(&s->b));
}

static bool uses_scratch(const struct step *s)
{
	return (s->kind != STEP_SEND && s->dst.buffer == PLAN_SCRATCH) ||
	       (s->kind != STEP_RECV && s->a.buffer == PLAN_SCRATCH) ||
	       (s->kind == STEP_REDUCE && s->b.buffer == PLAN_SCRATCH);
}

/* Does every rank send its own blocks only, one to each neighbour? Then no
 * slice waits for what was received in another one. A block may have been
 * copied or scaled before anything is received. */
static bool is_one_hop(const struct prepared *e)
{
	const struct plan *p = &e->plan;
	uint32_t received = p->nsteps; /* the first step that receives */

	for (uint32_t i = 0; i < e->npairs; i++)
		if (!e->pairs[i].peer->transport->intra_node ||
		    e->pairs[i].peer->limits.needs_mem_reg ||
		    e->pairs[i].out > 1 || e->pairs[i].in > 1)
			return false;
	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct step *s = &p->steps[i];

		if (!has_whole_blocks(s))
			return false;
		if (i < received &&
		    (s->kind == STEP_RECV || s->kind == STEP_RECV_REDUCE))
			received = i;
		for (uint32_t d = 0; s->kind == STEP_SEND && d < s->dep_count;
		     d++)
			if (p->deps[s->dep_first + d] >= received)
				return false;
	}
	return true;
}

/* Is all that is sent there from the start? Then slices may be sent ahead. */
static bool sends_first(const struct plan *p)
{
	for (uint32_t i = 0; i < p->nsteps; i++)
		if (p->steps[i].kind == STEP_SEND && p->steps[i].dep_count)
			return false;
	return true;
}

/* May such a rank send references to everything it sends? Neighbours then read
 * memory that no step of the plan writes. */
static bool lies_ready(const struct prepared *e)
{
	const struct plan *p = &e->plan;

	for (uint32_t i = 0; i < p->nsteps; i++) {
		const struct step *s = &p->steps[i];

		if (uses_scratch(s) || (s->kind == STEP_RECV && s->dep_count))
			return false;
		for (uint32_t d = 0; d < s->dep_count; d++)
			if (p->steps[p->deps[s->dep_first + d]].kind ==
			    STEP_SEND)
				return false;
	}
	return sends_first(p);
}

/* Can such a rank take one whole message after the other, where it does not run
 * slice by slice? Meanwhile it takes nothing from its other neighbours. They
 * may run slice by slice, or have scratch for a few slices only, and one of
 * them may wait for this rank's slot while another waits for that one. */
static bool cannot_stall_peers(const struct prepared *e)
{
	uint32_t sends = 0, receives = 0;

	for (uint32_t i = 0; i < e->npairs; i++) {
		sends += e->pairs[i].out > 0;
		receives += e->pairs[i].in > 0;
	}
	return !sends || receives <= 1;
}

/* Does each slice of such a rank fit a slot? */
static bool fits_slots(const struct prepared *e)
{
	for (uint32_t i = 0; i < e->npairs; i++)
		if (e->slice * e->elem_bytes >
		    e->pairs[i].peer->limits.eager_bytes)
			return false;
	return e->plan.nsteps <= FAST_SLICED_STEPS;
}

/* All slices of a span as one extent */
static struct extent whole_extent(const struct prepared *e,
				  const struct call *call, const struct span *s)
{
	struct extent x = prepared_extent(e, call, s, 0);

	if (e->slices > 1)
		x.n = prepared_block(e, call, s);
	return x;
}

static bool may_be_fast(const struct prepared *e,
			const struct dicomm_comm *comm, const struct call *call)
{
	/* Messages of an incast operation take turns, which only the engine
	 * does. */
	if (comm->dev || !e->slices || coll_has_counts(call->function) ||
	    e->expected_ns || e->incast || trace_on)
		return false;
	for (uint32_t i = 0; i < e->npairs; i++)
		if (e->pairs[i].peer->has_peer_access ||
		    e->pairs[i].out > e->pairs[i].peer->limits.window ||
		    e->pairs[i].in > e->pairs[i].peer->limits.window)
			return false;
	for (uint32_t i = 0; i < e->plan.nsteps; i++)
		if (e->plan.steps[i].kind == STEP_FOLD)
			return false;
	return true;
}

/* Resolve the spans of step i to byte offsets. */
static dicomm_result_t resolve(const struct prepared *e,
			       struct dicomm_comm *comm,
			       const struct call *call, uint32_t i,
			       struct fast_step *f)
{
	const struct step *s = &e->plan.steps[i];
	struct extent x;

	f->kind = s->kind;
	f->number = s->pair_index + 1;
	f->stream = e->stream_out && !e->read_later[i];
	if (s->peer >= 0) {
		TRY(comm_peer(comm, s->peer, &f->peer));
		f->channel = &f->peer->channel[e->class];
		f->target = message_target_of(f->peer);
		f->spin = f->peer->limits.spin;
	}
	if (s->kind != STEP_RECV) {
		x = whole_extent(e, call, &s->a);
		f->a_buffer = s->a.buffer;
		f->a = x.at;
		f->n = x.n;
	}
	if (s->kind == STEP_REDUCE) {
		x = whole_extent(e, call, &s->b);
		f->b_buffer = s->b.buffer;
		f->b = x.at;
	}
	if (s->kind != STEP_SEND) {
		x = whole_extent(e, call, &s->dst);
		f->dst_buffer = s->dst.buffer;
		f->dst = x.at;
		f->n = x.n;
	}
	if (s->kind == STEP_RECV) {
		/* A receive has no operand, but code may compute the address of
		 * one. */
		f->a_buffer = f->dst_buffer;
		f->a = f->dst;
	}
	f->bytes = f->n * e->elem_bytes;
	return DICOMM_SUCCESS;
}

static void count(struct prepared *e, const struct fast_step *f)
{
	if (f->kind == STEP_SEND) {
		e->fast_sent++;
		e->fast_sent_bytes += f->bytes;
	} else if (f->peer) {
		e->fast_received++;
		e->fast_received_bytes += f->bytes;
		if (f->peer->staged)
			e->fast_staged_bytes += f->bytes;
	}
}

dicomm_result_t fast_path_build(struct prepared *e, struct dicomm_comm *comm,
				const struct call *call)
{
	const struct plan *p = &e->plan;
	bool one_hop;

	if (!may_be_fast(e, comm, call))
		return DICOMM_SUCCESS;
	one_hop = is_one_hop(e);
	e->may_slice = e->slices > 1 && one_hop && fits_slots(e);
	e->ahead = sends_first(p) ? FAST_AHEAD : 0;
	e->may_refer =
		one_hop && lies_ready(e) &&
		(e->slices == 1 || e->may_slice || cannot_stall_peers(e));
	if (e->slices > 1 && !e->may_refer && !e->may_slice)
		return DICOMM_SUCCESS;
	e->fast_steps = calloc(p->nsteps + 1, sizeof(*e->fast_steps));
	if (!e->fast_steps)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "call: no memory for %u steps", p->nsteps);
	for (uint32_t i = 0; i < p->nsteps; i++) {
		struct fast_step *f = &e->fast_steps[e->nfast];

		*f = (struct fast_step){.peer = NULL};
		TRY(resolve(e, comm, call, i, f));
		if (f->peer && e->slices == 1 &&
		    f->bytes > f->peer->limits.eager_bytes) {
			e->nfast = 0;
			return DICOMM_SUCCESS;
		}
		if (!f->n)
			continue;
		e->nfast++;
		count(e, f);
	}
	e->may_be_fast = true;
	return DICOMM_SUCCESS;
}
