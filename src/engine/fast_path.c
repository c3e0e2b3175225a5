/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fast path. The caller runs the steps of a plan one after the other,
 * without a schedule. This suits small messages, which are one slice, messages
 * of any length that go by reference as a whole, and those that go slice by
 * slice in one hop.
 */
#include "src/engine/fast_path.h"

#include <stdlib.h>
#include <string.h>

#include "src/accel/host/memory.h"
#include "src/base/cache.h"
#include "src/base/log.h"
#include "src/core/wait.h"
#include "src/engine/order.h"
#include "src/engine/prepare.h"
#include "src/engine/step.h"
#include "src/core/fault.h"
#include "src/core/data_path.h"
#include "src/message/receive.h"
#include "src/message/send.h"
#include "src/message/slice.h"

/* The part of a first-level cache that a slot may take */
#define FETCH_BYTES (16u << 10)

/* One run of a fast call */
struct fast_run {
	struct dicomm_comm *comm;
	const struct prepared *prep;
	uint8_t *buffers[PLAN_BUFFERS];
	uint64_t number;
	uint32_t signature;
};

/* The call, for messages that name it */
static struct call fast_call(const struct fast_run *r)
{
	return (struct call){.function = r->prep->key.function,
			     .type = (dicomm_datatype_t)r->prep->key.type,
			     .op = (dicomm_redop_t)r->prep->key.op,
			     .root = r->prep->key.root,
			     .count = r->prep->key.count};
}

/* Calls of other threads that the engine runs while this one waits come after
 * it, if they are of its queue. */
static dicomm_result_t hold_place(const struct fast_run *r)
{
	struct operation *op = r->comm->place;

	if (!op)
		op = r->comm->place = calloc(1, sizeof(*op));
	if (!op)
		return fault_own(r->comm,
				 FAIL(DICOMM_ERR_NO_MEMORY,
				      "no memory for calls of several threads"),
				 -1);
	if (op->prep)
		return DICOMM_SUCCESS;
	op->comm = r->comm;
	op->call = fast_call(r);
	op->prep = (struct prepared *)(uintptr_t)r->prep;
	op->number = r->number;
	op->prep->users++; /* no trim frees it */
	order_join(op, order_queue(op->comm, &op->call));
	return DICOMM_SUCCESS;
}

static __attribute__((noinline)) void give_place(struct operation *op)
{
	order_leave(op);
	prepare_put(op->prep);
	op->prep = NULL;
}

static dicomm_result_t fast_wait(const struct fast_run *r,
				 const struct fast_step *s, struct waiter *w)
{
	struct call call = fast_call(r);
	struct wait_for f = {.comm = r->comm,
			     .alone = true,
			     .lends = data_path_is_shared(&r->comm->path),
			     .call = &call,
			     .number = r->number,
			     .peer = s->peer->rank,
			     .sending = s->kind == STEP_SEND};

	if (f.lends)
		TRY(hold_place(r));
	return wait_more(w, &f);
}

static dicomm_result_t fast_fail(const struct fast_run *r,
				 const struct fast_step *s,
				 dicomm_result_t status)
{
	return fault_own(r->comm, status, s->peer->rank);
}

static __attribute__((noinline)) dicomm_result_t
fast_send_slow(const struct fast_run *r, const struct fast_step *s,
	       const uint8_t *src, dicomm_result_t status)
{
	struct waiter w = {0};

	while (status == DICOMM_AGAIN) {
		TRY(fast_wait(r, s, &w));
		status = message_put_seq(&s->target, r->prep->class,
					 s->channel->out_base + s->number,
					 r->signature, src, s->bytes);
	}
	return status == DICOMM_SUCCESS ? status : fast_fail(r, s, status);
}

/* The slot of the next message is in the cache of the neighbour that read an
 * old one there. This rank is about to wait, so fetch the slot for writing
 * meanwhile. */
static void fetch_next_slot(const struct fast_step *s)
{
	const struct tp_outbox *out = &s->channel->out;
	uint64_t slot = (s->channel->out_last + 1) & out->slot_mask;

	if (out->buffers && *out->buffers)
		return;
	cache_fetch_to_store(out->data + slot * out->data_stride,
			     s->bytes < FETCH_BYTES ? s->bytes : FETCH_BYTES);
}

static inline dicomm_result_t fast_send(const struct fast_run *r,
					const struct fast_step *s,
					const uint8_t *src)
{
	dicomm_result_t status = message_put_seq(
		&s->target, r->prep->class, s->channel->out_base + s->number,
		r->signature, src, s->bytes);

	s->channel->out_last = s->channel->out_base + s->number;
	if (__builtin_expect(status != DICOMM_SUCCESS, 0))
		TRY(fast_send_slow(r, s, src, status));
	if (s->bytes > TP_LINE_ROOM && s->channel->out.data)
		fetch_next_slot(s);
	return DICOMM_SUCCESS;
}

/* Number of the last message of a step; a long one has a number for each slice.
 */
static uint64_t fast_last(const struct fast_run *r, const struct fast_step *s,
			  uint64_t base)
{
	return base + s->number + r->prep->slices - 1;
}

/* Send a reference: the receiver reads the bytes where they are. */
static dicomm_result_t fast_refer(const struct fast_run *r,
				  const struct fast_step *s, const uint8_t *src)
{
	struct message_slice m = {.comm = r->comm,
				  .peer = s->peer,
				  .class = r->prep->class,
				  .signature = r->signature,
				  .seq = s->channel->out_base + s->number,
				  .bytes = s->bytes,
				  .whole = s->bytes,
				  .from = src,
				  .way = MESSAGE_REF,
				  .want = r->prep->want};
	dicomm_result_t status;
	struct waiter w = {0};
	uint64_t sent;

	while ((status = message_slice_send(&m, &sent)) == DICOMM_AGAIN)
		TRY(fast_wait(r, s, &w));
	if (status != DICOMM_IN_PROGRESS)
		return fast_fail(r, s, status);
	s->channel->out_last = fast_last(r, s, s->channel->out_base);
	return DICOMM_SUCCESS;
}

/* A send that depends on no other step can go first. */
static __attribute__((noinline)) dicomm_result_t
fast_refer_all(const struct fast_run *r)
{
	for (uint32_t i = 0; i < r->prep->nfast; i++) {
		const struct fast_step *s = &r->prep->fast_steps[i];

		if (s->kind == STEP_SEND)
			TRY(fast_refer(r, s, r->buffers[s->a_buffer] + s->a));
	}
	return DICOMM_SUCCESS;
}

/* Have all receivers read what was referred to? */
static __attribute__((noinline)) dicomm_result_t
fast_sent(const struct fast_run *r)
{
	for (uint32_t i = 0; i < r->prep->nfast; i++) {
		const struct fast_step *s = &r->prep->fast_steps[i];
		struct waiter w = {0};
		uint64_t last;
		unsigned looks = 0;

		if (s->kind != STEP_SEND)
			continue;
		last = fast_last(r, s, s->channel->out_base);
		while (!message_released(s->channel, last))
			if (++looks > s->spin)
				TRY(fast_wait(r, s, &w));
	}
	return DICOMM_SUCCESS;
}

/* Spin until the message comes. The first time, connect to its sender. */
static __attribute__((noinline)) dicomm_result_t
fast_arrival(const struct fast_run *r, const struct fast_step *s, uint64_t seq,
	     struct tp_line **out)
{
	struct waiter w = {0};
	dicomm_result_t status;

	while ((status = message_look(r->comm, s->peer, r->prep->class, seq,
				      out)) == DICOMM_AGAIN)
		TRY(fast_wait(r, s, &w));
	return status == DICOMM_SUCCESS ? status : fast_fail(r, s, status);
}

/* The bytes are at src. Copy or reduce them. */
static inline void fast_take(const struct fast_run *r,
			     const struct fast_step *s, uint8_t *dst,
			     const uint8_t *a, const void *src, size_t n,
			     size_t bytes)
{
	if (s->kind == STEP_RECV_REDUCE)
		(s->stream ? r->prep->reduce_stream : r->prep->reduce)(dst, a,
								       src, n);
	else if (s->stream && src != dst)
		reduce_copy_stream(dst, src, bytes);
	else if (src != dst)
		memcpy(dst, src, bytes);
}

/* The message is a reference to so many bytes, which fast_load() takes. */
static dicomm_result_t fast_find_ref(const struct fast_run *r,
				     const struct fast_step *s, uint64_t seq,
				     const struct tp_line *line, uint8_t *dst,
				     uint64_t bytes, struct message_receive *in)
{
	if (line->kind != TP_REF)
		return fast_fail(r, s, message_malformed(s->peer->rank, line));
	*in = (struct message_receive){.peer = s->peer,
				       .class = r->prep->class,
				       .to = dst,
				       .left = bytes,
				       .ref_bytes = bytes,
				       .seq = seq};
	memcpy(&in->ref, line->room, sizeof(in->ref));
	return DICOMM_SUCCESS;
}

/* Takes the next `bytes` of a reference; `a` is the operand of those. If the
 * transport reads into registered memory only, it reads into a bounce buffer,
 * because this path does not register the user's buffers. */
static dicomm_result_t fast_load(const struct fast_run *r,
				 const struct fast_step *s,
				 struct message_receive *in, const uint8_t *a,
				 uint64_t bytes)
{
	bool bounces =
		s->kind == STEP_RECV_REDUCE || s->peer->limits.needs_mem_reg;

	while (bytes) {
		uint64_t len,
			most = bytes < MESSAGE_PIECE ? bytes : MESSAGE_PIECE;
		struct waiter w = {0};
		dicomm_result_t status;

		while ((status = message_receive_find(
				r->comm, in, bounces ? NULL : in->to, most,
				&len)) == DICOMM_AGAIN)
			TRY(fast_wait(r, s, &w));
		if (status == DICOMM_SUCCESS) {
			fast_take(r, s, in->to, a, in->src,
				  len / r->prep->elem_bytes, len);
			status = message_receive_taken(in, len);
		}
		if (status != DICOMM_SUCCESS)
			return fast_fail(r, s, status);
		if (in->left && fault_is(r->comm))
			return fault_report(r->comm);
		a += len;
		bytes -= len;
	}
	return DICOMM_SUCCESS;
}

static __attribute__((noinline)) dicomm_result_t
fast_fetch(const struct fast_run *r, const struct fast_step *s, uint64_t seq,
	   const struct tp_line *line, uint8_t *dst, const uint8_t *a,
	   uint64_t bytes)
{
	struct message_receive in;

	TRY(fast_find_ref(r, s, seq, line, dst, bytes, &in));
	return fast_load(r, s, &in, a, bytes);
}

static inline struct tp_line *fast_spin(const struct fast_step *s, uint64_t seq)
{
	struct tp_line *line = NULL;

	if (__builtin_expect(s->channel->in.lines != NULL, 1))
		for (unsigned i = 0; i < s->spin && !line; i++)
			line = message_arrived(s->channel, seq);
	return line;
}

static inline dicomm_result_t fast_await(const struct fast_run *r,
					 const struct fast_step *s,
					 uint64_t seq, struct tp_line **out)
{
	struct tp_line *line = fast_spin(s, seq);

	if (__builtin_expect(!line, 0))
		return fast_arrival(r, s, seq, out);
	*out = line;
	return DICOMM_SUCCESS;
}

static dicomm_result_t fast_mismatch(const struct fast_run *r,
				     const struct fast_step *s)
{
	struct call call = fast_call(r);

	return wait_mismatch(r->comm, &call, r->number, s->peer->rank);
}

static uint64_t slice_bytes(const struct fast_run *r)
{
	return r->prep->slice * r->prep->elem_bytes;
}

/* Bytes of a step from offset `at` on, at most a slice */
static uint64_t slice_len(const struct fast_run *r, const struct fast_step *s,
			  uint64_t at)
{
	uint64_t slice = slice_bytes(r);

	return s->bytes - at < slice ? s->bytes - at : slice;
}

/* The slice from offset `at` on is in this line, as bytes or as a reference; it
 * goes to dst, and `a` is its operand. */
static dicomm_result_t fast_take_slice(const struct fast_run *r,
				       const struct fast_step *s, uint64_t seq,
				       const struct tp_line *line, uint8_t *dst,
				       const uint8_t *a, uint64_t at)
{
	uint64_t len = slice_len(r, s, at);
	const uint8_t *body;

	if (line->signature != r->signature || line->len != len)
		return fast_mismatch(r, s);
	body = message_payload(s->channel, seq, line);
	if (body) {
		r->comm->stats.bytes_ring += len;
		fast_take(r, s, dst, a, body, len / r->prep->elem_bytes, len);
	} else {
		TRY(fast_fetch(r, s, seq, line, dst, a, len));
	}
	message_consumed(s->peer, r->prep->class, seq);
	return DICOMM_SUCCESS;
}

/* The sender of a long message has no memory that this rank reaches, so it
 * comes slice by slice. */
static __attribute__((noinline)) dicomm_result_t
fast_recv_slices(const struct fast_run *r, const struct fast_step *s,
		 uint8_t *dst, const uint8_t *a)
{
	uint64_t seq = s->channel->in_base + s->number;
	struct tp_line *line;

	for (uint64_t at = 0; at < s->bytes; at += slice_bytes(r), seq++) {
		if (fault_is(r->comm))
			return fault_report(r->comm);
		TRY(fast_await(r, s, seq, &line));
		TRY(fast_take_slice(r, s, seq, line, dst + at, a + at, at));
	}
	return DICOMM_SUCCESS;
}

/* The sender of a reference waits for its release, so send that now. Other
 * credits go out at the end. */
static void release_reference(const struct fast_run *r,
			      const struct fast_step *s)
{
	message_consumed_all(s->peer, r->prep->class,
			     fast_last(r, s, s->channel->in_base));
	s->peer->transport->flush(s->peer->device);
}

static inline dicomm_result_t fast_recv(const struct fast_run *r,
					const struct fast_step *s, uint8_t *dst,
					const uint8_t *a)
{
	struct channel *channel = s->channel;
	uint64_t seq = channel->in_base + s->number;
	const uint8_t *body;
	struct tp_line *line;

	TRY(fast_await(r, s, seq, &line));
	if (__builtin_expect(line->signature != r->signature ||
				     line->len != s->bytes,
			     0))
		return r->prep->slices > 1 ? fast_recv_slices(r, s, dst, a)
					   : fast_mismatch(r, s);
	body = message_payload(channel, seq, line);
	if (__builtin_expect(body != NULL, 1)) {
		r->comm->stats.bytes_ring += s->bytes;
		fast_take(r, s, dst, a, body, s->n, s->bytes);
		return DICOMM_SUCCESS;
	}
	TRY(fast_fetch(r, s, seq, line, dst, a, s->bytes));
	release_reference(r, s);
	return DICOMM_SUCCESS;
}

/* A copy or reduction in pieces, so that an abort does not wait for all of a
 * long one. */
static inline __attribute__((always_inline)) dicomm_result_t
fast_local(const struct fast_run *r, const struct fast_step *s, uint8_t *dst,
	   const uint8_t *a, const uint8_t *b, uint64_t bytes)
{
	for (uint64_t at = 0, len, n; at < bytes; at += len) {
		if (at && fault_is(r->comm))
			return fault_report(r->comm);
		len = bytes - at < MESSAGE_PIECE ? bytes - at : MESSAGE_PIECE;
		n = len / r->prep->elem_bytes;
		if (s->kind == STEP_REDUCE)
			r->prep->reduce(dst + at, a + at, b + at, n);
		else
			fast_take(r, s, dst + at, a + at, a + at, n, len);
	}
	return DICOMM_SUCCESS;
}

/* ---- slice by slice ---- */

/* How far each step is */
struct fast_progress {
	/* [step]: slices that it has sent; all, if the peers have references */
	uint64_t sent[FAST_SLICED_STEPS];
	/* [step]: the reference that its sender sent for all slices; until then
	 * ref_bytes is 0. */
	struct message_receive refs[FAST_SLICED_STEPS];
};

/* Where a slice from offset `at` on lies in a span; scratch has one at a time.
 */
static uint8_t *slice_in(const struct fast_run *r, uint8_t buffer, size_t span,
			 uint64_t at)
{
	return r->buffers[buffer] + span + (buffer == PLAN_SCRATCH ? 0 : at);
}

/* Sends the next slice of step i. */
static dicomm_result_t put_slice(const struct fast_run *r,
				 struct fast_progress *progress, uint32_t i)
{
	const struct fast_step *s = &r->prep->fast_steps[i];
	uint64_t at = progress->sent[i] * slice_bytes(r);
	uint64_t seq = s->channel->out_base + s->number + progress->sent[i];
	dicomm_result_t status = message_put_seq(
		&s->target, r->prep->class, seq, r->signature,
		slice_in(r, s->a_buffer, s->a, at), slice_len(r, s, at));

	if (status != DICOMM_SUCCESS)
		return status;
	s->channel->out_last = seq;
	/* fast_take_steps() counts one of each step. */
	if (progress->sent[i]++)
		r->comm->stats.messages_sent++;
	return DICOMM_SUCCESS;
}

/* Sends slice k of step i, and some ahead, unless they are sent: the peer finds
 * the next one when it has taken this one. */
static dicomm_result_t fast_send_slice(const struct fast_run *r,
				       struct fast_progress *progress,
				       uint32_t i, uint64_t k)
{
	const struct fast_step *s = &r->prep->fast_steps[i];
	struct waiter w = {0};
	dicomm_result_t status;

	while (progress->sent[i] < r->prep->slices &&
	       progress->sent[i] <= k + r->prep->ahead) {
		status = put_slice(r, progress, i);
		if (status == DICOMM_AGAIN && progress->sent[i] > k)
			return DICOMM_SUCCESS;
		if (status == DICOMM_AGAIN)
			status = fast_wait(r, s, &w);
		else if (status != DICOMM_SUCCESS)
			status = fast_fail(r, s, status);
		TRY(status);
	}
	return DICOMM_SUCCESS;
}

/* Sends all that there is room for. */
static __attribute__((noinline)) dicomm_result_t
fast_send_ahead(const struct fast_run *r, struct fast_progress *progress)
{
	for (uint32_t i = 0; i < r->prep->nfast; i++) {
		const struct fast_step *s = &r->prep->fast_steps[i];
		dicomm_result_t status = DICOMM_SUCCESS;

		while (s->kind == STEP_SEND && status == DICOMM_SUCCESS &&
		       progress->sent[i] < r->prep->slices)
			status = put_slice(r, progress, i);
		if (status != DICOMM_SUCCESS && status != DICOMM_AGAIN)
			return fast_fail(r, s, status);
	}
	return DICOMM_SUCCESS;
}

/* Waits for a slice. Where that lasts, the peer has other work or no core: then
 * this rank does not keep step with it, but sends ahead before it yields. */
static __attribute__((noinline)) dicomm_result_t
fast_await_slice(const struct fast_run *r, struct fast_progress *progress,
		 const struct fast_step *s, uint64_t seq, struct tp_line **line)
{
	struct waiter w = {0};
	dicomm_result_t status;
	bool ahead = false;

	while ((status = message_look(r->comm, s->peer, r->prep->class, seq,
				      line)) == DICOMM_AGAIN) {
		if (!ahead && r->prep->ahead &&
		    w.polls + 1 >= wait_spin(r->comm)) {
			TRY(fast_send_ahead(r, progress));
			ahead = true;
		}
		TRY(fast_wait(r, s, &w));
	}
	return status == DICOMM_SUCCESS ? status : fast_fail(r, s, status);
}

/* Receives slice k. */
static dicomm_result_t fast_recv_slice(const struct fast_run *r,
				       struct fast_progress *progress,
				       uint32_t i, uint64_t k)
{
	const struct fast_step *s = &r->prep->fast_steps[i];
	uint64_t seq = s->channel->in_base + s->number + k;
	uint64_t at = k * slice_bytes(r);
	const uint8_t *a = slice_in(r, s->a_buffer, s->a, at);
	uint8_t *dst = slice_in(r, s->dst_buffer, s->dst, at);
	struct message_receive *in = &progress->refs[i];
	struct tp_line *line;

	if (!in->ref_bytes) {
		line = fast_spin(s, seq);
		if (!line)
			TRY(fast_await_slice(r, progress, s, seq, &line));
		if (k)
			r->comm->stats.messages_received++;
		if (k || line->len != s->bytes ||
		    line->signature != r->signature)
			return fast_take_slice(r, s, seq, line, dst, a, at);
		TRY(fast_find_ref(r, s, seq, line, dst, s->bytes, in));
	}
	in->to = dst;
	TRY(fast_load(r, s, in, a, slice_len(r, s, at)));
	if (!in->left)
		release_reference(r, s);
	return DICOMM_SUCCESS;
}

static dicomm_result_t fast_local_slice(const struct fast_run *r,
					const struct fast_step *s, uint64_t k)
{
	uint64_t at = k * slice_bytes(r), len = slice_len(r, s, at);
	uint8_t *dst = slice_in(r, s->dst_buffer, s->dst, at);
	uint8_t *a = slice_in(r, s->a_buffer, s->a, at);
	uint64_t n = len / r->prep->elem_bytes;

	if (s->kind == STEP_SCALE)
		r->prep->scale(dst, a, r->prep->scalar, n);
	else if (s->kind == STEP_DIVIDE)
		r->prep->divide(dst, a, r->comm->ranks, n);
	else
		return fast_local(r, s, dst, a,
				  slice_in(r, s->b_buffer, s->b, at), len);
	return DICOMM_SUCCESS;
}

/* Each rank takes all steps of a slice, then those of the next one. So both
 * cores of a pair copy at the same time, a few slices apart. */
static __attribute__((noinline)) dicomm_result_t
fast_slices(const struct fast_run *r, bool refer)
{
	const struct prepared *prep = r->prep;
	struct fast_progress progress;

	for (uint32_t i = 0; i < prep->nfast; i++) {
		progress.sent[i] = refer ? prep->slices : 0;
		progress.refs[i].ref_bytes = 0;
	}
	for (uint64_t k = 0; k < prep->slices; k++) {
		if (fault_is(r->comm))
			return fault_report(r->comm);
		for (uint32_t i = 0; i < prep->nfast; i++) {
			const struct fast_step *s = &prep->fast_steps[i];

			if (s->kind == STEP_SEND)
				TRY(fast_send_slice(r, &progress, i, k));
			else if (s->kind == STEP_RECV ||
				 s->kind == STEP_RECV_REDUCE)
				TRY(fast_recv_slice(r, &progress, i, k));
			else
				TRY(fast_local_slice(r, s, k));
		}
	}
	return DICOMM_SUCCESS;
}

/* ---- whole messages ---- */

/*
 * Why this cannot deadlock: each rank takes its steps in plan order and blocks
 * on each. Among the blocked ranks, take those in the earliest operation. All
 * messages of earlier operations are consumed. In a call of one slice, a pair
 * has fewer messages than slots (fast_path_build() checks this), so no sender
 * lacks a credit. In a call of several slices, a sender has put all its
 * references before it waits, and a receiver of slices releases each one. Ranks
 * that run slice by slice have consumed all slices before their own, so one
 * that is in the earliest slice does not wait for a credit. Who takes whole
 * messages of several slices, one after the other, either sends nothing or
 * receives from one rank (cannot_stall_peers()). So a rank waits only for a
 * message that another rank has yet to send in plan order, and plan order ends
 * (plan.h). Memory that is referred to stays unchanged until all have read it,
 * because no step of such a plan writes it.
 */
static inline __attribute__((always_inline)) dicomm_result_t
fast_whole(const struct fast_run *r, bool refer)
{
	const struct prepared *prep = r->prep;

	for (uint32_t i = 0; i < prep->nfast; i++) {
		const struct fast_step *s = &prep->fast_steps[i];
		uint8_t *a = r->buffers[s->a_buffer] + s->a;
		uint8_t *dst = r->buffers[s->dst_buffer] + s->dst;

		switch (s->kind) {
		case STEP_SEND:
			if (!refer)
				TRY(fast_send(r, s, a));
			break;
		case STEP_RECV:
		case STEP_RECV_REDUCE:
			TRY(fast_recv(r, s, dst, a));
			break;
		case STEP_COPY:
		case STEP_REDUCE:
			TRY(fast_local(r, s, dst, a,
				       r->buffers[s->b_buffer] + s->b,
				       s->bytes));
			break;
		case STEP_SCALE:
			prep->scale(dst, a, prep->scalar, s->n);
			break;
		case STEP_DIVIDE:
			prep->divide(dst, a, r->comm->ranks, s->n);
			break;
		}
	}
	return DICOMM_SUCCESS;
}

/* Several slices, or references. Not inlined into fast_take_steps(), so that a
 * short call saves no registers. */
static __attribute__((noinline)) dicomm_result_t
fast_long(const struct fast_run *r, bool refer)
{
	if (refer)
		TRY(fast_refer_all(r));
	if (r->prep->may_slice)
		TRY(fast_slices(r, refer));
	else
		TRY(fast_whole(r, refer));
	return refer ? fast_sent(r) : DICOMM_SUCCESS;
}

static dicomm_result_t fast_take_steps(struct fast_run *r, bool refer)
{
	struct dicomm_comm *comm = r->comm;
	const struct prepared *prep = r->prep;

	r->number = order_number(comm, prep);
	r->signature = prepared_signature(prep, r->number);
	if (__builtin_expect(refer || prep->may_slice, 0))
		TRY(fast_long(r, refer));
	else
		TRY(fast_whole(r, false));
	for (uint32_t i = 0; i < prep->npairs; i++) {
		struct peer *peer = prep->pairs[i].peer;
		struct channel *channel = &peer->channel[prep->class];

		channel->out_base += prep->pairs[i].out * prep->slices;
		channel->in_base += prep->pairs[i].in * prep->slices;
		/* More: another thread receives from there. */
		if (message_done(channel) < channel->in_base)
			message_consumed_all(peer, prep->class,
					     channel->in_base);
	}
	comm->stats.messages_sent += prep->fast_sent;
	comm->stats.bytes_sent += prep->fast_sent_bytes;
	comm->stats.messages_received += prep->fast_received;
	comm->stats.bytes_received += prep->fast_received_bytes;
	comm->stats.bytes_staged += prep->fast_staged_bytes;
	return DICOMM_SUCCESS;
}

/* Would the peers rather read what is sent than get a copy? */
static bool prefers_reference(const struct fast_run *r)
{
	const struct prepared *prep = r->prep;
	uint64_t threshold = r->comm->map_threshold;
	struct accel_export where;
	bool found = false;
	size_t offset;

	if (prep->largest_message < threshold || !prep->fast_sent ||
	    prep->pairs[0].peer->limits.needs_mem_reg)
		return false;
	for (uint32_t i = 0; i < prep->nfast; i++) {
		const struct fast_step *s = &prep->fast_steps[i];
		const uint8_t *a = r->buffers[s->a_buffer] + s->a;

		/* Scratch is not referred to. */
		if (s->kind != STEP_SEND || s->a_buffer == PLAN_SCRATCH)
			continue;
		if (s->bytes < threshold)
			return false;
		if (prep->key.function != CALL_SEND &&
		    !host_memory_find(a, s->bytes, &where, &offset))
			return false;
		if (!message_may_refer(s->peer, a, s->bytes, prep->want))
			return false;
		found = true;
	}
	return found;
}

/* Would the engine send some of it by references? It copies scratch. */
static __attribute__((noinline)) bool engine_refers(const struct fast_run *r)
{
	const struct prepared *prep = r->prep;

	for (uint32_t i = 0; i < prep->nfast; i++) {
		const struct fast_step *s = &prep->fast_steps[i];

		if (s->kind == STEP_SEND && s->a_buffer != PLAN_SCRATCH &&
		    s->bytes >= r->comm->map_threshold &&
		    message_may_refer(s->peer, r->buffers[s->a_buffer] + s->a,
				      s->bytes, prep->want))
			return true;
	}
	return false;
}

bool fast_path_run(struct dicomm_comm *comm, const struct prepared *prep,
		   const void *send, void *recv, dicomm_result_t *status)
{
	struct fast_run r;
	bool refer;

	/* The rest is filled in when it is sure that it runs. */
	r.comm = comm;
	r.prep = prep;
	r.buffers[PLAN_SEND] = (uint8_t *)(uintptr_t)send;
	r.buffers[PLAN_RECV] = recv;
	r.buffers[PLAN_SCRATCH] = comm->scratch.at;
	refer = prefers_reference(&r);
	if (comm->scratch.bytes < prep->scratch_bytes)
		return false;
	if (refer ? !prep->may_refer
		  : prep->slices > 1 && prep->fast_sent &&
			    (!prep->may_slice || engine_refers(&r)))
		return false;
	*status = fast_take_steps(&r, refer);
	if (__builtin_expect(comm->place != NULL, 0) && comm->place->prep)
		give_place(comm->place);
	/* From here on, nobody may read the call's buffers. */
	if (__builtin_expect(refer && *status != DICOMM_SUCCESS, 0))
		fault_stop_transports(comm);
	return true;
}
