/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided calls: how they begin, go on, wait and end. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/memory.h"
#include "src/message/channel.h"
#include "src/core/wait.h"
#include "src/device/device.h"
#include "src/engine/step.h"
#include "src/window/window.h"

/* Long messages are offered, and may be read from, or into, where they are. */
static dicomm_result_t register_buffer(struct window_call *c)
{
	const struct peer *peer = &c->comm->peers[c->peer];
	bool get = c->function == CALL_GET;
	const void *at = get ? c->into : c->out.from;
	uint64_t bytes = c->out.head.bytes;

	if (!peer->limits.needs_mem_reg || bytes <= peer->limits.eager_bytes ||
	    device_has_memory(c->comm->dev))
		return DICOMM_SUCCESS;
	return comm_mem_register(c->comm, at, bytes, get, &c->handles);
}

static dicomm_result_t begin(struct window_call *c)
{
	struct partner *to = partner_of(c->comm, c->peer);
	struct window_call **at = &to->gets;

	TRY(outgoing_connect(c->comm, c->peer));
	TRY(register_buffer(c));
	c->begun = true;
	c->out.on_device = c->function == CALL_PUT_SIGNAL &&
			   c->out.head.bytes && device_has_memory(c->comm->dev);
	if (c->function == CALL_GET) {
		c->out.head.get = ++c->comm->windows->gets;
		while (*at)
			at = &(*at)->next;
		c->next = NULL;
		*at = c;
	}
	outgoing_add(to, &c->out);
	return DICOMM_SUCCESS;
}

/* Take what has come from a rank, if it has sent anything at all. */
static dicomm_result_t look(struct dicomm_comm *comm, int rank, bool *moved)
{
	dicomm_result_t status = windows_know(comm, rank);

	if (status == DICOMM_AGAIN)
		return DICOMM_SUCCESS;
	TRY(status);
	return incoming_turn(comm, rank, moved);
}

static dicomm_result_t turn_transfer(struct window_call *c, bool *moved)
{
	if (!c->begun)
		TRY(begin(c));
	TRY(outgoing_turn(c->comm, c->peer, moved));
	if (c->function == CALL_GET && !c->arrived)
		TRY(look(c->comm, c->peer, moved));
	if (!c->out.done || (c->function == CALL_GET && !c->arrived))
		return DICOMM_AGAIN;
	comm_mem_deregister(c->comm, &c->handles);
	return DICOMM_SUCCESS;
}

static bool is_there(struct dicomm_comm *comm, const struct window_want *want)
{
	const struct signal_count *row =
		partner_of(comm, want->peer)->signals[want->context];

	return row && row[want->signal].arrived - row[want->signal].taken >=
			      want->count;
}

/* They are there. */
static void take(struct dicomm_comm *comm, const struct window_want *want)
{
	struct partner *from = partner_of(comm, want->peer);

	from->signals[want->context][want->signal].taken += want->count;
}

static dicomm_result_t turn_wait(struct window_call *c, bool *moved)
{
	struct dicomm_comm *comm = c->comm;
	bool all = true;

	for (int i = 0; i < c->n; i++) {
		const struct window_want *want = &c->wants[i];

		if (!is_there(comm, want))
			TRY(look(comm, want->peer, moved));
		all &= is_there(comm, want);
	}
	if (!all)
		return DICOMM_AGAIN;
	for (int i = 0; i < c->n; i++)
		take(comm, &c->wants[i]);
	return DICOMM_SUCCESS;
}

dicomm_result_t window_call_turn(struct window_call *c, bool *moved)
{
	TRY(windows_begin(c->comm));
	TRY(windows_look_at_device(c->comm, moved));
	return c->function == CALL_WAIT_SIGNAL ? turn_wait(c, moved)
					       : turn_transfer(c, moved);
}

void window_call_drop(struct window_call *c)
{
	struct window_call **at;
	struct partner *to;

	comm_mem_deregister(c->comm, &c->handles);
	if (!c->begun)
		return;
	to = partner_of(c->comm, c->peer);
	outgoing_remove(to, &c->out);
	for (at = &to->gets; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	/* Its reply may be half here. */
	if (c->function == CALL_GET)
		to->in.left = to->later = 0;
}

/* The rank that it waits for, or -1 */
static int awaits(const struct window_call *c)
{
	if (c->function != CALL_WAIT_SIGNAL)
		return c->peer;
	for (int i = 0; i < c->n; i++)
		if (!c->comm->windows || !is_there(c->comm, &c->wants[i]))
			return c->wants[i].peer;
	return -1;
}

/* ---- operations ---- */

/* It waits for no other operation. */
static dicomm_result_t post_operation(struct operation *op)
{
	struct transfer *out = &op->call.window->out;
	enum plan_buffer b =
		op->call.function == CALL_GET ? PLAN_RECV : PLAN_SEND;

	out->reach = (struct buffer_reach){op->call.transports[b],
					   op->call.offers[b]};
	op->number = ++op->comm->stats.operations;
	return DICOMM_SUCCESS;
}

static enum schedule_result turn_operation(struct operation *op, bool *moved)
{
	dicomm_result_t status = window_call_turn(op->call.window, moved);

	if (status == DICOMM_AGAIN)
		return SCHEDULE_AGAIN;
	return status == DICOMM_SUCCESS
		       ? SCHEDULE_DONE
		       : step_fail(op, status, awaits(op->call.window));
}

static void operation_awaits(const struct operation *op, struct wait_for *f)
{
	const struct dicomm_comm *comm = op->comm;
	enum call_function function = op->call.function;

	f->peer = awaits(op->call.window);
	f->sending = function != CALL_WAIT_SIGNAL;
	/* The peer has done its part, and the device copies the bytes. */
	if ((function == CALL_WAIT_SIGNAL || function == CALL_GET) &&
	    f->peer >= 0 && comm->windows && partner_of(comm, f->peer)->lands)
		f->peer = -1;
}

static void drop_operation(struct operation *op)
{
	window_call_drop(op->call.window);
}

const struct operation_kind one_sided_kind = {.name = "one-sided",
					      .post = post_operation,
					      .turn = turn_operation,
					      .awaits = operation_awaits,
					      .drop = drop_operation};

/* ---- blocking calls ---- */

/* Before the slow way of waiting */
static bool comes_soon(const struct dicomm_comm *comm, int rank)
{
	const struct peer *peer = &comm->peers[rank];
	const struct channel *channel = &peer->channel[TP_WINDOW];

	if (!channel->in.lines)
		return false;
	for (unsigned i = 0; i < peer->limits.spin; i++)
		if (message_arrived(channel, channel->in_base + 1))
			return true;
	return false;
}

static dicomm_result_t run(struct window_call *c, const struct call *call)
{
	struct dicomm_comm *comm = c->comm;
	struct wait_for f = {.comm = comm,
			     .call = call,
			     .number = ++comm->stats.operations,
			     .sending = c->function != CALL_WAIT_SIGNAL,
			     .alone = true,
			     .lends = true};
	struct waiter w = {0};
	dicomm_result_t status;

	for (;;) {
		bool moved = false;

		status = window_call_turn(c, &moved);
		if (status != DICOMM_AGAIN)
			break;
		if (fault_is(comm))
			return fault_report(comm);
		f.peer = awaits(c);
		if (moved)
			wait_moved(&w);
		else if (f.peer < 0 || f.sending || !comes_soon(comm, f.peer))
			TRY(wait_more(&w, &f));
	}
	if (status != DICOMM_SUCCESS)
		return fault_own(comm, status, awaits(c));
	return DICOMM_SUCCESS;
}

/* It did not come while this thread spun. */
static __attribute__((noinline)) dicomm_result_t
wait_longer(struct waiter *w, struct dicomm_comm *comm, int peer)
{
	struct call call = {
		.function = CALL_WAIT_SIGNAL, .type = DICOMM_INT8, .root = -1};
	struct wait_for f = {.comm = comm,
			     .call = &call,
			     .number = comm->stats.operations,
			     .peer = peer,
			     .alone = true,
			     .lends = true};

	return fault_is(comm) ? fault_report(comm) : wait_more(w, &f);
}

/* Polls between which a wait spins. If nothing has come by then, it polls more
 * often, so that it gives its core away as early as other calls do. */
#define POLLS_WITH_SPIN 16
/* A look with a pause takes as long as so many without */
#define LOOKS_PER_PAUSE 8

static inline bool is_next_there(const struct peer *peer)
{
	const struct channel *channel = &peer->channel[TP_WINDOW];

	return message_arrived(channel, channel->in_base + 1);
}

/* Look for the next message, for a while; over tcp and ucx, whose polls
 * receive, once. The peer is known. Without the pause a core begins many looks
 * at once, and takes all of them back when the peer writes: measured, that
 * costs 15 ns of 90. */
static inline bool spin(const struct peer *peer)
{
	const struct channel *channel = &peer->channel[TP_WINDOW];
	uint64_t seq = channel->in_base + 1;
	unsigned left = peer->limits.spin;

	while (!message_arrived(channel, seq)) {
		if (left < LOOKS_PER_PAUSE)
			return false;
		left -= LOOKS_PER_PAUSE;
		cpu_relax();
	}
	return true;
}

static dicomm_result_t take_one(struct dicomm_comm *comm,
				const struct window_want *want)
{
	const struct peer *peer = &comm->peers[want->peer];
	struct partner *from = partner_of(comm, want->peer);
	struct waiter w = {0};

	comm->stats.operations++;
	while (!is_there(comm, want)) {
		bool moved = false, more;
		dicomm_result_t status;

		if (!from->in.seq &&
		    !(w.polls < POLLS_WITH_SPIN ? spin(peer)
						: is_next_there(peer))) {
			TRY(wait_longer(&w, comm, want->peer));
			continue;
		}
		status = incoming_one(comm, want->peer, &moved, &more);
		if (__builtin_expect(status != DICOMM_SUCCESS, 0))
			return fault_own(comm, status, want->peer);
		if (moved)
			wait_moved(&w);
		else
			TRY(wait_longer(&w, comm, want->peer));
	}
	take(comm, want);
	return DICOMM_SUCCESS;
}

dicomm_result_t window_wait_one(struct dicomm_comm *comm,
				const struct window_want *want)
{
	dicomm_result_t status;

	if (!comm->windows || !data_path_enter_briefly(&comm->path))
		return DICOMM_AGAIN;
	if (partner_of(comm, want->peer)->known)
		status = take_one(comm, want);
	else
		status = DICOMM_AGAIN;
	if (__builtin_expect(status != DICOMM_SUCCESS, 0) &&
	    status != DICOMM_AGAIN)
		fault_stop_transports(comm);
	data_path_leave(&comm->path);
	return status;
}

dicomm_result_t window_call_run(struct window_call *c, const struct call *call)
{
	struct dicomm_comm *comm = c->comm;
	dicomm_result_t status;

	switch (data_path_enter(&comm->path)) {
	case DATA_PATH_BUSY:
		return DICOMM_AGAIN;
	case DATA_PATH_BROKEN:
		return fault_report(comm);
	case DATA_PATH_ENTERED:
		break;
	}
	status = run(c, call);
	/* From here on, nobody may read the call's buffer. */
	if (status != DICOMM_SUCCESS) {
		fault_stop_transports(comm);
		window_call_drop(c);
	}
	data_path_leave(&comm->path);
	return status;
}
