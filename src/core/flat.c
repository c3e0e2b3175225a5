/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The short way: a small message is one slice, so its steps are run one after
 * the other by the caller, without a schedule.
 */
#include "src/core/flat.h"

#include <stdlib.h>
#include <string.h>

#include "src/accel/accel.h"
#include "src/base/cache.h"
#include "src/base/log.h"
#include "src/core/message.h"
#include "src/core/step.h"
#include "src/core/wait.h"

/* Of a first-level cache, what a slot may take. */
#define FETCH_BYTES (16u << 10)

/* One run of a flat executable. */
struct flat {
	struct dicomm_comm *comm;
	const struct executable *exe;
	uint64_t number;
	uint32_t signature;
};

/* The call of a flat run, as far as messages about it need it. */
static struct call flat_call(const struct flat *r)
{
	return (struct call){.coll = (enum coll)r->exe->key.coll,
			     .type = (dicomm_datatype_t)r->exe->key.type,
			     .op = (dicomm_redop_t)r->exe->key.op,
			     .root = r->exe->key.root,
			     .count = r->exe->key.count};
}

static dicomm_result_t flat_wait(const struct flat *r,
				 const struct flat_step *s, struct waiter *w)
{
	struct call call = flat_call(r);
	struct wait_for f = {.comm = r->comm,
			     .alone = true,
			     .call = &call,
			     .number = r->number,
			     .peer = s->peer->rank,
			     .sending = s->kind == STEP_SEND};

	return wait_more(w, &f);
}

static dicomm_result_t flat_fail(const struct flat *r,
				 const struct flat_step *s,
				 dicomm_result_t status)
{
	return fault_own(r->comm, status, s->peer->rank);
}

static __attribute__((noinline)) dicomm_result_t
flat_send_slow(const struct flat *r, const struct flat_step *s,
	       const uint8_t *src, dicomm_result_t status)
{
	struct waiter w = {0};

	while (status == DICOMM_AGAIN) {
		TRY(flat_wait(r, s, &w));
		status = s->put(s->tp, r->exe->class,
				s->lane->out_base + s->number, r->signature,
				TP_DATA, src, s->bytes);
	}
	return status == DICOMM_SUCCESS ? status : flat_fail(r, s, status);
}

/* The next message goes where a neighbour has read an old one. This rank is
 * about to wait for somebody, so let the slot come back meanwhile. */
static void fetch_next_slot(const struct flat_step *s)
{
	const struct tp_outbox *out = &s->lane->out;
	uint64_t slot = (s->lane->out_last + 1) & out->slot_mask;

	cache_fetch_to_store(out->data + slot * out->data_stride,
			     s->bytes < FETCH_BYTES ? s->bytes : FETCH_BYTES);
}

static inline dicomm_result_t
flat_send(const struct flat *r, const struct flat_step *s, const uint8_t *src)
{
	dicomm_result_t status =
		s->put(s->tp, r->exe->class, s->lane->out_base + s->number,
		       r->signature, TP_DATA, src, s->bytes);

	s->lane->out_last = s->lane->out_base + s->number;
	if (__builtin_expect(status != DICOMM_SUCCESS, 0))
		TRY(flat_send_slow(r, s, src, status));
	if (s->bytes > TP_LINE_ROOM && s->lane->out.data)
		fetch_next_slot(s);
	return DICOMM_SUCCESS;
}

/* Spin for the message, the first time connect to its sender. */
static __attribute__((noinline)) dicomm_result_t
flat_arrival(const struct flat *r, const struct flat_step *s, uint64_t seq,
	     struct tp_line **out)
{
	struct waiter w = {0};
	dicomm_result_t status;

	while (!s->lane->in.lines) {
		status = comm_connect_in(r->comm, s->peer, r->exe->class);
		if (status == DICOMM_SUCCESS)
			break;
		if (status != DICOMM_AGAIN)
			return flat_fail(r, s, status);
		TRY(flat_wait(r, s, &w));
	}
	while (!(*out = message_arrived(s->lane, seq)))
		TRY(flat_wait(r, s, &w));
	return DICOMM_SUCCESS;
}

/* The sender, not on the short way, left a reference. Where the wire reads held
 * memory only, what has to be read goes through such, for the user's buffers
 * are not held here. */
static dicomm_result_t flat_fetch(const struct flat *r,
				  const struct flat_step *s, uint64_t seq,
				  const struct tp_line *line, uint8_t *dst,
				  const uint8_t *a)
{
	const struct transport *t = s->peer->transport;
	enum tp_class c = r->exe->class;
	struct bounce *bounce;
	struct waiter w = {0};
	const void *src = NULL;
	void *to = NULL;
	dicomm_result_t status =
		step_look(r->comm, s->peer, c, seq, line, &src);

	if (status == DICOMM_ERR_UNSUPPORTED) {
		status = DICOMM_SUCCESS;
		if (s->kind == STEP_RECV && !s->peer->limits.wants_hold)
			to = dst;
		else if ((status = step_bounce(r->comm, &bounce)) ==
			 DICOMM_SUCCESS)
			to = bounce->at;
		while (status == DICOMM_SUCCESS &&
		       (status = step_read(r->comm, s->peer, c, seq, line,
					   to)) == DICOMM_AGAIN)
			TRY(flat_wait(r, s, &w));
		src = to;
	}
	while (status == DICOMM_IN_PROGRESS &&
	       (status = t->arrived(s->tp, c, seq)) == DICOMM_IN_PROGRESS)
		TRY(flat_wait(r, s, &w));
	if (status != DICOMM_SUCCESS)
		return flat_fail(r, s, status);
	if (s->kind == STEP_RECV_REDUCE)
		r->exe->reduce(dst, a, src, s->n);
	else if (src != dst)
		memcpy(dst, src, s->bytes);
	return DICOMM_SUCCESS;
}

static inline dicomm_result_t flat_recv(const struct flat *r,
					const struct flat_step *s, uint8_t *dst,
					const uint8_t *a)
{
	struct lane *lane = s->lane;
	uint64_t seq = lane->in_base + s->number;
	struct tp_line *line = NULL;
	const uint8_t *src;
	bool reference;

	if (__builtin_expect(lane->in.lines != NULL, 1))
		for (unsigned i = 0; i < s->spin && !line; i++)
			line = message_arrived(lane, seq);
	if (__builtin_expect(!line, 0))
		TRY(flat_arrival(r, s, seq, &line));
	if (__builtin_expect(line->signature != r->signature ||
				     line->len != s->bytes,
			     0)) {
		struct call call = flat_call(r);

		return wait_unlike(r->comm, &call, r->number, s->peer->rank);
	}
	reference = line->kind != TP_DATA;
	if (__builtin_expect(reference, 0)) {
		TRY(flat_fetch(r, s, seq, line, dst, a));
	} else {
		src = message_payload(lane, seq, line);
		r->comm->stats.bytes_ring += s->bytes;
		if (s->kind == STEP_RECV_REDUCE)
			r->exe->reduce(dst, a, src, s->n);
		else
			memcpy(dst, src, s->bytes);
	}
	/* The sender of a reference waits; others learn at the end. */
	if (__builtin_expect(reference, 0)) {
		s->peer->transport->release(s->tp, r->exe->class, seq);
		s->peer->transport->flush(s->peer->device);
	}
	return DICOMM_SUCCESS;
}

/*
 * Every rank takes its steps in plan order and blocks on each. No deadlock:
 * among the blocked ranks, take those in the earliest operation; all messages
 * of earlier operations are consumed, and a pair has fewer messages in one
 * operation than slots (flatten() saw to it), so nobody lacks a credit, and
 * who waits for a message waits for a rank that has yet to send it in plan
 * order, which ends (plan.h).
 */
static dicomm_result_t flat_run(struct dicomm_comm *comm,
				const struct executable *exe, const void *send,
				void *recv)
{
	struct flat r = {
		.comm = comm, .exe = exe, .number = engine_number(comm, exe)};
	uint8_t *buffers[PLAN_BUFFERS] = {(uint8_t *)(uintptr_t)send, recv,
					  comm->scratch};

	r.signature = engine_signature(exe, r.number);
	for (uint32_t i = 0; i < exe->nflat; i++) {
		const struct flat_step *s = &exe->flat[i];
		uint8_t *a = buffers[s->a_buffer] + s->a;
		uint8_t *dst = buffers[s->dst_buffer] + s->dst;

		switch (s->kind) {
		case STEP_SEND:
			TRY(flat_send(&r, s, a));
			break;
		case STEP_RECV:
		case STEP_RECV_REDUCE:
			TRY(flat_recv(&r, s, dst, a));
			break;
		case STEP_COPY:
			memcpy(dst, a, s->bytes);
			break;
		case STEP_REDUCE:
			exe->reduce(dst, a, buffers[s->b_buffer] + s->b, s->n);
			break;
		case STEP_SCALE:
			exe->scale(dst, a, exe->scalar, s->n);
			break;
		case STEP_DIVIDE:
			exe->divide(dst, a, comm->ranks, s->n);
			break;
		}
	}
	for (uint32_t i = 0; i < exe->npairs; i++) {
		struct peer *peer = exe->pairs[i].peer;
		struct lane *lane = &peer->lane[exe->class];

		lane->out_base += exe->pairs[i].out;
		if (!exe->pairs[i].in)
			continue;
		lane->in_base += exe->pairs[i].in;
		lane->in_done = lane->in_base;
		if (lane->in.lines)
			peer->transport->release(peer->tp, exe->class,
						 lane->in_done);
	}
	comm->stats.messages_sent += exe->flat_sent;
	comm->stats.bytes_sent += exe->flat_sent_bytes;
	comm->stats.messages_received += exe->flat_received;
	comm->stats.bytes_received += exe->flat_received_bytes;
	comm->stats.bytes_staged += exe->flat_staged_bytes;
	return DICOMM_SUCCESS;
}

/* Would a peer rather pull from this buffer than have it copied? */
static bool prefers_reference(const struct dicomm_comm *comm,
			      const struct executable *exe, const void *send)
{
	const struct peer *peer = exe->npairs ? exe->pairs[0].peer : NULL;
	struct accel_export where;
	struct tp_ref ref;
	size_t offset;

	if (!peer || exe->largest_message < comm->map_threshold || !send ||
	    peer->limits.wants_hold)
		return false;
	if (accels[0]->find(send, 1, &where, &offset))
		return true;
	return exe->key.coll == COLL_SEND &&
	       peer->transport->offer(peer->tp, send, exe->largest_message,
				      TP_WANT_COPY, &ref);
}

bool flat_quick(struct dicomm_comm *comm, const struct executable *exe,
		const void *send, void *recv, dicomm_result_t *status)
{
	if (comm->scratch_bytes < exe->scratch_bytes ||
	    prefers_reference(comm, exe, send))
		return false;
	if (comm_enter(comm))
		*status = flat_run(comm, exe, send, recv);
	else
		*status = fault_report(comm);
	comm_leave(comm);
	return true;
}
