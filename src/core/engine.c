/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: steps of plans become messages, copies and reductions. */
#include "src/core/engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/type.h"

/* Steps started in one turn of an operation, so that others get theirs. */
#define TURN_BUDGET 64
/* A wait shorter than this reads no clock. */
#define YIELDS_PER_CHECK 64
#define SLEEP_AFTER_NS UINT64_C(20000000)
#define SLEEP_NS 50000
#define ASK_AFTER_NS UINT64_C(1000000000)
/* Polls of an inbox before the wait looks at anything else. */
#define FLAT_SPIN 128

/* ---- arrivals and credits ---- */

static inline struct tp_line *arrived(const struct dicomm_comm *comm,
				      const struct lane *lane, uint64_t seq)
{
	struct tp_line *line;

	line = &lane->lines[seq & comm->slot_mask];
	return atomic_load_explicit(&line->seq, memory_order_acquire) == seq
		       ? line
		       : NULL;
}

static inline const uint8_t *payload(const struct dicomm_comm *comm,
				     const struct lane *lane, uint64_t seq,
				     const struct tp_line *line)
{
	if (line->len <= TP_LINE_ROOM)
		return line->room;
	return lane->data + (seq & comm->slot_mask) * (size_t)comm->slot_bytes;
}

/* Credits go back in bulk, a quarter of the ring at a time; a reference at
 * once, since its sender waits. */
static inline void tell(struct dicomm_comm *comm, struct peer *peer,
			enum tp_class c, struct lane *lane, bool now)
{
	if (now || lane->in_done - lane->in_told >= comm->slots / 4) {
		peer->transport->release(peer->tp, c, lane->in_done);
		lane->in_told = lane->in_done;
	}
}

/* Message seq is done with. They may be done with out of order, up to 64
 * ahead; see may_consume(). */
static void consumed(struct dicomm_comm *comm, struct peer *peer,
		     enum tp_class c, uint64_t seq, bool now)
{
	struct lane *lane = &peer->lane[c];

	lane->in_mask |= UINT64_C(1) << (seq - lane->in_done - 1);
	while (lane->in_mask & 1) {
		lane->in_mask >>= 1;
		lane->in_done++;
	}
	if (lane->lines)
		tell(comm, peer, c, lane, now);
}

static bool may_consume(const struct lane *lane, uint64_t seq)
{
	return seq - lane->in_done <= 64;
}

/* ---- unlike calls ---- */

static uint32_t ask_class(const struct call *call)
{
	if (call->coll == COLL_SEND)
		return ASK_RECV;
	return call->coll == COLL_RECV ? ASK_SEND : ASK_COLLECTIVE;
}

/* Does that rank know the operation under another signature? Then the
 * communicator is broken, with both calls named. */
static dicomm_result_t compare_calls(struct dicomm_comm *comm,
				     const struct call *call, uint64_t number,
				     uint32_t signature, int peer, bool unlike)
{
	char mine[128], theirs[160] = "a call that it no longer knows";
	uint32_t sig = signature;
	bool known = false;

	control_query(comm->control, peer, ask_class(call), number, 500, &known,
		      &sig, theirs, sizeof(theirs));
	if (!unlike && (!known || sig == signature))
		return DICOMM_SUCCESS;
	if (unlike && known && sig == signature)
		snprintf(theirs, sizeof(theirs),
			 "a different operation at that place");
	call_text(call, mine, sizeof(mine));
	return fault_raise(comm, DICOMM_ERR_INVALID_USAGE, peer, true,
			   "ranks disagree about operation %llu: rank %d "
			   "called %s, rank %d called %s",
			   (unsigned long long)number, comm->rank, mine, peer,
			   theirs);
}

static dicomm_result_t unlike(struct dicomm_comm *comm, const struct call *call,
			      uint64_t number, uint32_t signature, int peer)
{
	return compare_calls(comm, call, number, signature, peer, true);
}

/* ---- waiting ---- */

static void poll_wires(struct dicomm_comm *comm)
{
	for (size_t i = 0; i < sizeof(comm->wires) / sizeof(*comm->wires); i++)
		if (comm->wires[i].device)
			comm->wires[i].transport->poll(comm->wires[i].device);
}

struct wait_for {
	struct dicomm_comm *comm;
	const struct call *call;
	uint64_t number;
	uint32_t signature;
	int peer; /* -1: none in particular */
	bool sending;
};

static dicomm_result_t late(struct waiter *w, const struct wait_for *f,
			    uint64_t now)
{
	struct dicomm_comm *comm = f->comm;
	uint64_t waited = now - w->since_ns;
	char text[128];

	if (f->peer >= 0 && f->peer != comm->rank &&
	    control_gone(comm->control, f->peer)) {
		/* It may have left after its last message: look once more. */
		if (w->gone++ == 0)
			return DICOMM_SUCCESS;
		call_text(f->call, text, sizeof(text));
		return fault_raise(
			comm, DICOMM_ERR_REMOTE, f->peer, true,
			"rank %d (%s) left the communicator while "
			"rank %d waits for it in operation %llu, %s",
			f->peer, control_where(comm->control, f->peer),
			comm->rank, (unsigned long long)f->number, text);
	}
	if (waited >= ASK_AFTER_NS && w->asked < waited / ASK_AFTER_NS &&
	    f->peer >= 0 && f->peer != comm->rank) {
		w->asked = (unsigned)(waited / ASK_AFTER_NS * 2);
		TRY(compare_calls(comm, f->call, f->number, f->signature,
				  f->peer, false));
	}
	if (comm->warn_late_ms > 0 && !w->warned &&
	    waited / 1000000 >= (uint64_t)comm->warn_late_ms) {
		w->warned = true;
		call_text(f->call, text, sizeof(text));
		log_warn("%s rank %d: operation %llu, %s: rank %d is late, "
			 "waited %llu s to %s",
			 comm->name, comm->rank, (unsigned long long)f->number,
			 text, f->peer,
			 (unsigned long long)(waited / 1000000000),
			 f->sending ? "send to it" : "receive from it");
	}
	if (comm->timeout_ms > 0 &&
	    waited / 1000000 >= (uint64_t)comm->timeout_ms) {
		call_text(f->call, text, sizeof(text));
		return fault_raise(
			comm, DICOMM_ERR_TIMEOUT, f->peer, true,
			"rank %d: operation %llu, %s: timed out after %d ms "
			"waiting to %s rank %d (%s)",
			comm->rank, (unsigned long long)f->number, text,
			comm->timeout_ms,
			f->sending ? "send to" : "receive from", f->peer,
			f->peer < 0 ? ""
				    : control_where(comm->control, f->peer));
	}
	return DICOMM_SUCCESS;
}

/* One more poll without progress. */
static dicomm_result_t wait_more(struct waiter *w, const struct wait_for *f)
{
	uint64_t now;

	poll_wires(f->comm);
	if (++w->polls < f->comm->spin) {
		if (w->polls % 64 == 0 && fault_is(f->comm))
			return fault_report(f->comm);
		return DICOMM_SUCCESS;
	}
	if (fault_is(f->comm))
		return fault_report(f->comm);
	sched_yield();
	if ((w->polls - f->comm->spin) % YIELDS_PER_CHECK)
		return DICOMM_SUCCESS;
	now = clock_ns();
	if (!w->since_ns)
		w->since_ns = w->checked_ns = now;
	if (now - w->since_ns > SLEEP_AFTER_NS) {
		struct timespec t = {0, SLEEP_NS};

		nanosleep(&t, NULL);
		w->polls -= YIELDS_PER_CHECK - 1; /* sleep each time */
	}
	if (now - w->checked_ns < UINT64_C(50000000))
		return DICOMM_SUCCESS;
	w->checked_ns = now;
	return late(w, f, now);
}

void engine_pause(struct dicomm_comm *comm, struct waiter *w)
{
	poll_wires(comm);
	if (++w->polls > comm->spin)
		sched_yield();
}

/* Whom an operation waits for: the peer of its first unfinished message. */
static void blocked_on(const struct operation *op, struct wait_for *f)
{
	const struct plan *p = &op->exe->plan;
	const struct schedule *sc = &op->schedule;

	f->comm = op->comm;
	f->call = &op->call;
	f->number = op->number;
	f->signature = op->exe->signature;
	f->peer = -1;
	if (!op->started)
		return;
	for (uint32_t i = sc->first; i < p->nsteps; i++) {
		const struct step *s = &p->steps[i];
		bool ready = true;

		if (s->peer < 0 || sc->done[i] == sc->slices)
			continue;
		for (uint32_t d = 0; d < s->dep_count && ready; d++)
			ready = sc->done[p->deps[s->dep_first + d]] >
				sc->done[i];
		if (!ready)
			continue;
		f->peer = s->peer;
		f->sending = s->kind == STEP_SEND;
		if (!f->sending)
			return; /* a receive tells most */
	}
}

dicomm_result_t engine_wait(struct waiter *w, struct operation *op)
{
	struct wait_for f = {.comm = op->comm};

	/* Only the slow part asks who is late. */
	if (w->polls + 1 >= op->comm->spin)
		blocked_on(op, &f);
	return wait_more(w, &f);
}

/* ---- one step on one slice ---- */

static inline uint8_t *buffer_of(const struct operation *op, uint8_t buffer)
{
	switch (buffer) {
	case PLAN_SEND:
		return (uint8_t *)(uintptr_t)op->call.send;
	case PLAN_RECV:
		return op->call.recv;
	default:
		return op->comm->scratch;
	}
}

struct piece {
	uint8_t *at;
	size_t n, bytes;
};

static struct piece locate(const struct operation *op, const struct span *s,
			   uint64_t k)
{
	struct extent x = executable_extent(op->exe, &op->call, s, k);

	return (struct piece){buffer_of(op, s->buffer) +
				      x.first * op->exe->elem_bytes,
			      x.n, x.n * op->exe->elem_bytes};
}

static enum schedule_result fail(struct operation *op, dicomm_result_t status)
{
	if (!fault_is(op->comm))
		fault_raise(op->comm, status, op->comm->rank, true, "%s",
			    log_last_error());
	return SCHEDULE_FAILED;
}

static enum schedule_result start_send(struct operation *op,
				       const struct step *step, uint64_t k,
				       uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	struct peer *peer = &comm->peers[step->peer];
	struct piece a = locate(op, &step->a, k);
	enum tp_kind kind = TP_DATA;
	const void *body = a.at;
	struct tp_ref ref;
	dicomm_result_t status;

	if (!a.n)
		return SCHEDULE_DONE;
	if (seq > atomic_load_explicit(peer->lane[op->exe->class].released,
				       memory_order_acquire) +
			  comm->slots)
		return SCHEDULE_AGAIN;
	if (a.bytes >= comm->map_threshold && !op->buffered &&
	    step->a.buffer != PLAN_SCRATCH &&
	    peer->transport->offer(peer->tp, a.at, a.bytes, &ref)) {
		kind = TP_REF;
		body = &ref;
	}
	status = peer->transport->put(peer->tp, op->exe->class, seq,
				      op->signature, kind, body, a.bytes);
	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		return fail(op, status);
	comm->stats.messages_sent++;
	comm->stats.bytes_sent += a.bytes;
	return kind == TP_REF || status == DICOMM_IN_PROGRESS ? SCHEDULE_POSTED
							      : SCHEDULE_DONE;
}

/* The message's bytes as memory to load from. A reference that cannot be
 * mapped is read into `into`. */
static dicomm_result_t fetch(struct operation *op, struct peer *peer,
			     uint64_t seq, const struct tp_line *line,
			     void *into, const void **src)
{
	struct dicomm_comm *comm = op->comm;
	struct tp_ref ref;
	dicomm_result_t status;

	if (line->kind == TP_DATA) {
		*src = payload(comm, &peer->lane[op->exe->class], seq, line);
		comm->stats.bytes_ring += line->len;
		return DICOMM_SUCCESS;
	}
	memcpy(&ref, line->room, sizeof(ref));
	status = peer->transport->map(peer->tp, &ref, line->len, src);
	if (status != DICOMM_ERR_UNSUPPORTED) {
		comm->stats.bytes_mapped += line->len;
		return status;
	}
	if (!into) {
		if (!op->bounce)
			op->bounce = aligned_alloc(4096, comm->slot_bytes);
		if (!op->bounce)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "receive from rank %d: no memory for %u "
				    "bytes",
				    peer->rank, comm->slot_bytes);
		into = op->bounce;
	}
	*src = into;
	comm->stats.bytes_cma += line->len;
	return peer->transport->read(peer->tp, &ref, 0, into, line->len);
}

static enum schedule_result start_recv(struct operation *op,
				       const struct step *step, uint32_t s,
				       uint64_t k, uint64_t seq)
{
	struct dicomm_comm *comm = op->comm;
	const struct executable *exe = op->exe;
	struct peer *peer = &comm->peers[step->peer];
	struct lane *lane = &peer->lane[exe->class];
	struct piece dst = locate(op, &step->dst, k), a;
	struct tp_line *line;
	const void *src;
	dicomm_result_t status;
	bool by_reference;

	if (!may_consume(lane, seq))
		return SCHEDULE_AGAIN;
	if (!dst.n) {
		consumed(comm, peer, exe->class, seq, false);
		return SCHEDULE_DONE;
	}
	if (!lane->lines) {
		status = comm_connect_in(comm, peer, exe->class);
		if (status == DICOMM_AGAIN)
			return SCHEDULE_AGAIN;
		if (status != DICOMM_SUCCESS)
			return fail(op, status);
	}
	line = arrived(comm, lane, seq);
	if (!line)
		return SCHEDULE_AGAIN;
	if (line->signature != op->signature || line->len != dst.bytes) {
		unlike(comm, &op->call, op->number, exe->signature, peer->rank);
		return SCHEDULE_FAILED;
	}
	status = fetch(op, peer, seq, line,
		       step->kind == STEP_RECV ? dst.at : NULL, &src);
	if (status != DICOMM_SUCCESS)
		return fail(op, status);
	if (step->kind == STEP_RECV_REDUCE) {
		a = locate(op, &step->a, k);
		(exe->stream_out && !exe->read_later[s]
			 ? exe->reduce_stream
			 : exe->reduce)(dst.at, a.at, src, dst.n);
	} else if (src != dst.at) {
		if (exe->stream_out && !exe->read_later[s])
			reduce_copy_stream(dst.at, src, dst.bytes);
		else
			memcpy(dst.at, src, dst.bytes);
	}
	by_reference = line->kind == TP_REF;
	comm->stats.messages_received++;
	comm->stats.bytes_received += dst.bytes;
	consumed(comm, peer, exe->class, seq, by_reference);
	return SCHEDULE_DONE;
}

static void fold(struct operation *op, const struct step *step, uint64_t k)
{
	const struct executable *exe = op->exe;
	struct piece dst = locate(op, &step->dst, k);
	struct piece own = locate(op, &step->a, k);
	const void *src[step->nfold];

	for (uint32_t i = 0; i < step->nfold; i++) {
		struct span s = step->b;

		s.block += i;
		src[i] = (int)i == op->comm->rank ? own.at
						  : locate(op, &s, k).at;
	}
	reduce_fold(op->call.type, exe->op, dst.at, src, (int)step->nfold,
		    dst.n);
}

static void do_local(struct operation *op, const struct step *step, uint32_t s,
		     uint64_t k)
{
	const struct executable *exe = op->exe;
	struct piece dst = locate(op, &step->dst, k);
	struct piece a = locate(op, &step->a, k);

	if (!dst.n)
		return;
	switch (step->kind) {
	case STEP_COPY:
		if (exe->stream_out && !exe->read_later[s])
			reduce_copy_stream(dst.at, a.at, dst.bytes);
		else
			memcpy(dst.at, a.at, dst.bytes);
		break;
	case STEP_REDUCE:
		exe->reduce(dst.at, a.at, locate(op, &step->b, k).at, dst.n);
		break;
	case STEP_SCALE:
		exe->scale(dst.at, a.at, exe->scalar, dst.n);
		break;
	case STEP_DIVIDE:
		exe->divide(dst.at, a.at, op->comm->ranks, dst.n);
		break;
	case STEP_FOLD:
		fold(op, step, k);
		break;
	}
}

/* Slices that a message step of alltoallv has: each pair its own number. */
static bool beyond(const struct operation *op, const struct step *step,
		   uint64_t k)
{
	const size_t *n;

	if (op->call.coll != COLL_ALLTOALLV || step->peer < 0)
		return false;
	n = step->kind == STEP_SEND ? op->call.send_counts
				    : op->call.recv_counts;
	return k * op->exe->slice >= n[step->peer];
}

static enum schedule_result start(void *ctx, const struct step *step,
				  uint32_t s, uint64_t slice, uint64_t number)
{
	struct operation *op = ctx;
	const struct lane *lane;

	if (step->peer < 0) {
		do_local(op, step, s, slice);
		return SCHEDULE_DONE;
	}
	if (beyond(op, step, slice))
		return SCHEDULE_DONE;
	lane = &op->comm->peers[step->peer].lane[op->exe->class];
	if (step->kind == STEP_SEND)
		return start_send(op, step, slice, lane->out_base + number + 1);
	return start_recv(op, step, s, slice, lane->in_base + number + 1);
}

static enum schedule_result finished(void *ctx, const struct step *step,
				     uint32_t s, uint64_t slice,
				     uint64_t number)
{
	struct operation *op = ctx;
	const struct lane *lane =
		&op->comm->peers[step->peer].lane[op->exe->class];

	(void)s;
	(void)slice;
	return atomic_load_explicit(lane->released, memory_order_acquire) >=
			       lane->out_base + number + 1
		       ? SCHEDULE_DONE
		       : SCHEDULE_AGAIN;
}

static const struct schedule_io io = {.start = start, .finished = finished};

/* ---- operations ---- */

static uint32_t operation_signature(const struct executable *exe,
				    uint64_t number)
{
	return exe->signature ^ (uint32_t)(number * 0x9e3779b1u);
}

/* Number the call and note it for those who ask. */
static inline uint64_t number_call(struct dicomm_comm *comm,
				   const struct executable *exe)
{
	int other = exe->key.root;
	uint64_t n;

	comm->stats.operations++;
	switch (exe->key.coll) {
	case COLL_SEND:
		n = ++comm->peers[other].sends;
		call_log_add(comm->send_log, call_pair_number(other, n),
			     exe->log_what, exe->key.count);
		return n;
	case COLL_RECV:
		n = ++comm->peers[other].recvs;
		call_log_add(comm->recv_log, call_pair_number(other, n),
			     exe->log_what, exe->key.count);
		return n;
	default:
		n = ++comm->collectives;
		call_log_add(&comm->collective_log, n, exe->log_what,
			     exe->key.count);
		return n;
	}
}

static dicomm_result_t grow_scratch(struct dicomm_comm *comm, size_t bytes)
{
	uint8_t *more;

	if (bytes <= comm->scratch_bytes)
		return DICOMM_SUCCESS;
	more = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (!more)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "operation: no memory for %zu bytes of scratch",
			    bytes);
	free(comm->scratch);
	comm->scratch = more;
	comm->scratch_bytes = bytes;
	return DICOMM_SUCCESS;
}

void engine_release(struct operation *op)
{
	executable_put(op->exe);
	op->exe = NULL;
	op->next = op->comm->spare;
	op->comm->spare = op;
}

/* The last operation in the queue that op belongs to. */
static struct operation **queue_of(struct operation *op)
{
	switch (op->call.coll) {
	case COLL_SEND:
		return &op->comm->peers[op->call.root].last_send;
	case COLL_RECV:
		return &op->comm->peers[op->call.root].last_recv;
	default:
		return &op->comm->last_collective;
	}
}

static void enqueue(struct operation *op)
{
	struct operation **last = queue_of(op);

	op->before = *last;
	if (*last)
		(*last)->after = op;
	*last = op;
}

static void dequeue(struct operation *op)
{
	struct operation **last = queue_of(op);

	if (op->before)
		op->before->after = op->after;
	if (op->after)
		op->after->before = op->before;
	if (*last == op)
		*last = op->before;
	op->before = op->after = NULL;
	op->done = true;
}

dicomm_result_t engine_prepare(struct dicomm_comm *comm,
			       const struct call *call, struct operation **out)
{
	struct operation *op = comm->spare;
	dicomm_result_t status;

	if (op) {
		comm->spare = op->next;
	} else {
		op = calloc(1, sizeof(*op));
		if (!op)
			return FAIL(DICOMM_ERR_NO_MEMORY,
				    "%s: no memory for the operation",
				    coll_name(call->coll));
		op->comm = comm;
	}
	op->call = *call;
	op->exe = NULL;
	op->before = op->after = op->next = NULL;
	op->started = op->done = false;
	status = executable_get(comm, &op->call, &op->exe);
	if (status != DICOMM_SUCCESS)
		goto release;
	/* A rank that receives into the block it sends from must not wait for
	 * its peer, who waits for the same: such blocks go by copy. */
	op->buffered = op->exe->key.in_place && call->coll == COLL_ALLTOALL;
	op->number = number_call(comm, op->exe);
	op->signature = operation_signature(op->exe, op->number);
	enqueue(op);
	*out = op;
	return DICOMM_SUCCESS;

release:
	engine_release(op);
	return status;
}

static dicomm_result_t begin(struct operation *op)
{
	TRY(grow_scratch(op->comm, op->exe->scratch_bytes));
	TRY(schedule_begin(&op->schedule, &op->exe->plan, op->exe->slices,
			   op->exe->window));
	op->started = true;
	return DICOMM_SUCCESS;
}

static uint64_t messages_of(const struct operation *op, const struct pair *pair,
			    bool out)
{
	const struct executable *e = op->exe;
	const size_t *n = out ? op->call.send_counts : op->call.recv_counts;
	uint32_t each = out ? pair->out : pair->in;

	if (op->call.coll != COLL_ALLTOALLV || !each)
		return each * e->slices;
	return (n[pair->peer->rank] + e->slice - 1) / e->slice;
}

/* All steps have finished: the next operation numbers its messages from
 * here. */
static void end(struct operation *op)
{
	struct executable *e = op->exe;

	for (uint32_t i = 0; i < e->npairs; i++) {
		struct pair *pair = &e->pairs[i];
		struct lane *lane = &pair->peer->lane[e->class];

		lane->out_base += messages_of(op, pair, true);
		lane->in_base += messages_of(op, pair, false);
	}
	dequeue(op);
}

void engine_drop(struct operation *op)
{
	dequeue(op);
}

enum schedule_result engine_turn(struct operation *op, bool *progressed)
{
	enum schedule_result r;
	dicomm_result_t status;

	if (!op->started) {
		status = begin(op);
		if (status != DICOMM_SUCCESS)
			return fail(op, status);
	}
	r = schedule_turn(&op->schedule, &io, op, TURN_BUDGET, progressed);
	if (r == SCHEDULE_DONE)
		end(op);
	return r;
}

dicomm_result_t engine_run(struct operation **ops, size_t n)
{
	struct waiter w = {0};
	dicomm_result_t first = DICOMM_SUCCESS;
	size_t left = n, low = 0;

	while (left) {
		bool moved = false;
		struct operation *waiting = NULL;

		for (size_t i = low; i < n; i++) {
			struct operation *op = ops[i];
			enum schedule_result r;

			if (op->done) {
				if (i == low)
					low++;
				continue;
			}
			if (fault_is(op->comm)) {
				first = first ? first : fault_report(op->comm);
				engine_drop(op);
				moved = true;
				left--;
				continue;
			}
			if (op->before)
				continue;
			r = engine_turn(op, &moved);
			if (r == SCHEDULE_DONE) {
				left--;
				moved = true;
			} else if (!waiting) {
				waiting = op;
			}
		}
		if (moved || !waiting) {
			engine_moved(&w);
			continue;
		}
		/* A failure shows in the fault of the communicator. */
		engine_wait(&w, waiting);
	}
	return first;
}

void engine_free_spare(struct dicomm_comm *comm)
{
	while (comm->spare) {
		struct operation *op = comm->spare;

		comm->spare = op->next;
		schedule_free(&op->schedule);
		free(op->bounce);
		free(op);
	}
}

/* ---- the short way: one slice, step by step ---- */

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
			     .call = &call,
			     .number = r->number,
			     .signature = r->exe->signature,
			     .peer = s->peer->rank,
			     .sending = s->kind == STEP_SEND};

	return wait_more(w, &f);
}

static dicomm_result_t flat_fail(const struct flat *r, dicomm_result_t status)
{
	if (fault_is(r->comm))
		return fault_report(r->comm);
	return fault_raise(r->comm, status, r->comm->rank, true, "%s",
			   log_last_error());
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
	return status == DICOMM_SUCCESS ? status : flat_fail(r, status);
}

static inline dicomm_result_t
flat_send(const struct flat *r, const struct flat_step *s, const uint8_t *src)
{
	dicomm_result_t status =
		s->put(s->tp, r->exe->class, s->lane->out_base + s->number,
		       r->signature, TP_DATA, src, s->bytes);

	if (__builtin_expect(status == DICOMM_SUCCESS, 1))
		return DICOMM_SUCCESS;
	return flat_send_slow(r, s, src, status);
}

/* Spin for the message, the first time connect to its sender. */
static __attribute__((noinline)) dicomm_result_t
flat_arrival(const struct flat *r, const struct flat_step *s, uint64_t seq,
	     struct tp_line **out)
{
	struct waiter w = {0};
	dicomm_result_t status;

	while (!s->lane->lines) {
		status = comm_connect_in(r->comm, s->peer, r->exe->class);
		if (status == DICOMM_SUCCESS)
			break;
		if (status != DICOMM_AGAIN)
			return flat_fail(r, status);
		TRY(flat_wait(r, s, &w));
	}
	while (!(*out = arrived(r->comm, s->lane, seq)))
		TRY(flat_wait(r, s, &w));
	return DICOMM_SUCCESS;
}

/* The sender, not on the short way, left a reference. */
static dicomm_result_t flat_fetch(const struct flat *r,
				  const struct flat_step *s, uint64_t seq,
				  const struct tp_line *line, uint8_t *dst,
				  const uint8_t *a)
{
	struct operation op = {.comm = r->comm,
			       .exe = (struct executable *)(uintptr_t)r->exe};
	const void *src;
	dicomm_result_t status = fetch(&op, s->peer, seq, line,
				       s->kind == STEP_RECV ? dst : NULL, &src);

	if (status == DICOMM_SUCCESS && s->kind == STEP_RECV_REDUCE)
		r->exe->reduce(dst, a, src, s->n);
	else if (status == DICOMM_SUCCESS && src != dst)
		memcpy(dst, src, s->bytes);
	free(op.bounce);
	return status == DICOMM_SUCCESS ? status : flat_fail(r, status);
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

	if (__builtin_expect(lane->lines != NULL, 1))
		for (unsigned i = 0; i < FLAT_SPIN && !line; i++)
			line = arrived(r->comm, lane, seq);
	if (__builtin_expect(!line, 0))
		TRY(flat_arrival(r, s, seq, &line));
	if (__builtin_expect(line->signature != r->signature ||
				     line->len != s->bytes,
			     0)) {
		struct call call = flat_call(r);

		return unlike(r->comm, &call, r->number, r->exe->signature,
			      s->peer->rank);
	}
	reference = line->kind != TP_DATA;
	if (__builtin_expect(reference, 0)) {
		TRY(flat_fetch(r, s, seq, line, dst, a));
	} else {
		src = payload(r->comm, lane, seq, line);
		r->comm->stats.bytes_ring += s->bytes;
		if (s->kind == STEP_RECV_REDUCE)
			r->exe->reduce(dst, a, src, s->n);
		else
			memcpy(dst, src, s->bytes);
	}
	lane->in_done = seq;
	tell(r->comm, s->peer, r->exe->class, lane, reference);
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
		.comm = comm, .exe = exe, .number = number_call(comm, exe)};
	uint8_t *buffers[PLAN_BUFFERS] = {(uint8_t *)(uintptr_t)send, recv,
					  comm->scratch};

	r.signature = operation_signature(exe, r.number);
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
		case STEP_SCALE:
			exe->scale(dst, a, exe->scalar, s->n);
			break;
		case STEP_DIVIDE:
			exe->divide(dst, a, comm->ranks, s->n);
			break;
		}
	}
	for (uint32_t i = 0; i < exe->npairs; i++) {
		struct lane *lane = &exe->pairs[i].peer->lane[exe->class];

		lane->out_base += exe->pairs[i].out;
		lane->in_base += exe->pairs[i].in;
		lane->in_done = lane->in_base;
	}
	comm->stats.messages_sent += exe->flat_sent;
	comm->stats.bytes_sent += exe->flat_sent_bytes;
	comm->stats.messages_received += exe->flat_received;
	comm->stats.bytes_received += exe->flat_received_bytes;
	return DICOMM_SUCCESS;
}

/* Would a peer rather pull from this buffer than have it copied? */
static bool prefers_reference(const struct dicomm_comm *comm,
			      const struct executable *exe, const void *send)
{
	struct accel_export where;
	size_t offset;

	return exe->largest_message >= comm->map_threshold && send &&
	       accels[0]->find(send, 1, &where, &offset);
}

static dicomm_result_t run_one(struct dicomm_comm *comm,
			       const struct call *call)
{
	struct operation *op;
	dicomm_result_t status;

	TRY(engine_prepare(comm, call, &op));
	status = engine_run(&op, 1);
	engine_release(op);
	executable_trim(comm);
	return status;
}

dicomm_result_t engine_call(struct dicomm_comm *comm, const struct call *call)
{
	dicomm_result_t status;

	if (comm_enter(comm))
		status = run_one(comm, call);
	else
		status = fault_report(comm);
	comm_leave(comm);
	return status;
}

bool engine_quick(struct dicomm_comm *comm, const struct executable *exe,
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
