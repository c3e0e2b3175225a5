/* SPDX-License-Identifier: BSD-3-Clause */
/* How a rank waits for another one, how long, and what it reports. */
#include "src/core/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/yield.h"
#include "src/core/cross_progress.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/core/data_path.h"
#include "src/core/wait_chain.h"

/* Shorter waits do not read the clock. */
#define YIELDS_PER_CHECK 64
#define NAP_AFTER_NS UINT64_C(20000000)
#define LOOK_NS UINT64_C(50000000)
#define NAP_US 50
#define CROWD 4 /* ranks for each core */
#define CROWD_NAP_US 20000
#define REST_US 500
#define REST_MAX_US 5000
#define REST_SHARE 16
/* Polls before a thread gives its core away that others want, too. */
#define SPIN_CROWDED 500
/* If two ranks disagree, one may notice this up to a second after the other. */
#define ASK_AFTER_NS UINT64_C(400000000)
#define ASK_MS 500  /* how long to wait for an answer */
#define OWN_LOOKS 8 /* for a rank that waits for itself */
#define LOOK_BACK_MS \
	2000 /* for all answers together, once the time-out has passed */
/* How long it holds that this rank waits; the last time, until others have
 * asked it. */
#define NOTE_MS 1000
#define NOTE_LAST_MS 3000

/* How long what a dead rank has sent may take to come over a network, unless
 * the transport says that it was all. */
#define DRAIN_NS UINT64_C(200000000)

static uint32_t ask_class(const struct call *call)
{
	if (call->function == CALL_SEND)
		return ASK_RECV;
	return call->function == CALL_RECV ? ASK_SEND : ASK_COLLECTIVE;
}

/* Two calls of the same number: this rank's and a peer's. */
struct pair_of_calls {
	uint64_t number;
	uint32_t signature; /* the peer's */
	char mine[128], theirs[160];
};

static bool find_mine(struct dicomm_comm *comm, const struct call *call,
		      uint64_t number, int peer, uint32_t *signature,
		      char *text, size_t len)
{
	const struct call_log *log = &comm->logs.collective;
	uint64_t key = number;

	if (call->function == CALL_SEND || call->function == CALL_RECV) {
		log = call->function == CALL_SEND ? comm->logs.send
						  : comm->logs.recv;
		key = call_pair_number(peer, number);
	}
	return call_log_find(log, key, signature, text, len);
}

/* Returns true if the peer says that it made another call of that number. */
static bool differs(struct dicomm_comm *comm, const struct call *call,
		    uint64_t number, int peer, int patience_ms,
		    struct pair_of_calls *out)
{
	struct pair_of_calls p = {.number = number};
	uint32_t mine, theirs;
	bool known = false;

	if (!find_mine(comm, call, number, peer, &mine, p.mine, sizeof(p.mine)))
		return false;
	if (control_query(comm->control, peer, ask_class(call), number,
			  patience_ms, &known, &theirs, p.theirs,
			  sizeof(p.theirs)) != DICOMM_SUCCESS ||
	    !known || mine == theirs)
		return false;
	p.signature = theirs;
	*out = p;
	return true;
}

/* Both calls may be the same but for a count for each rank. Writes which rank's
 * count differs, or "". `call` is this rank's, or NULL if it is over. */
static void say_count(struct dicomm_comm *comm, const struct call *call,
		      int peer, const struct pair_of_calls *p, char *out,
		      size_t len)
{
	char text[32];
	uint32_t unused;
	bool known = false;
	int rank;
	size_t count;

	*out = '\0';
	if (!call || !call->counts || strcmp(p->mine, p->theirs) != 0)
		return;
	if (control_query(comm->control, peer, ASK_COUNTS, p->number, ASK_MS,
			  &known, &unused, text,
			  sizeof(text)) != DICOMM_SUCCESS ||
	    !known)
		return;
	if (call_odd_count(call, call_ranks(call, comm->ranks),
			   strtoull(text, NULL, 16), p->signature, &rank,
			   &count))
		snprintf(out, len, ", but they give %zu and %zu for rank %d",
			 call->counts[rank], count,
			 call->among ? (int)call->among->of[rank] : rank);
	else
		snprintf(out, len, ", but the counts of several ranks differ");
}

static dicomm_result_t disagree(struct dicomm_comm *comm,
				const struct call *call, int peer,
				const struct pair_of_calls *p)
{
	char counts[96];

	say_count(comm, call, peer, p, counts, sizeof(counts));
	return fault_raise(comm, DICOMM_ERR_INVALID_USAGE, peer, true,
			   "ranks disagree about operation %llu: rank %d "
			   "called %s, rank %d called %s%s",
			   (unsigned long long)p->number, comm->rank, p->mine,
			   peer, p->theirs, counts);
}

/* Splits the name off the text of a call, and returns true if only pairs of
 * ranks share the counts of that collective. */
static bool in_pairs(const char *text, char *name, size_t len)
{
	snprintf(name, len, "%.*s", (int)strcspn(text, " "), text);
	return coll_counts_in_pairs(coll_from_name(name));
}

/* Returns true if only pairs of ranks share the counts of this call: its text
 * is the same on both ranks even if they disagree about the count of one. */
static bool may_differ(struct dicomm_comm *comm, const struct call *call,
		       uint64_t number, int peer, struct pair_of_calls *out)
{
	struct pair_of_calls p = {.number = number};
	uint32_t signature;
	char name[32];

	if (!find_mine(comm, call, number, peer, &signature, p.mine,
		       sizeof(p.mine)) ||
	    !in_pairs(p.mine, name, sizeof(name)))
		return false;
	snprintf(p.theirs, sizeof(p.theirs),
		 "%s with another count for rank %d", name, comm->rank);
	*out = p;
	return true;
}

/* The message may be left over from a much earlier call, in which this rank
 * expected none. So this looks back for the first call that differs. */
dicomm_result_t wait_mismatch(struct dicomm_comm *comm, const struct call *call,
			      uint64_t number, int peer)
{
	struct pair_of_calls p = {.number = number,
				  .theirs = "something else before"};
	uint64_t end = clock_ms() + LOOK_BACK_MS, n = number, now;
	bool found = false, suspect = false, last = false;

	call_text(call, p.mine, sizeof(p.mine));
	while (n && number - n < CALL_LOG_ENTRIES && !last) {
		if (fault_is(comm))
			return fault_report(comm);
		now = clock_ms();
		last = now >= end;
		found |= differs(comm, call, n, peer,
				 last ? ASK_MS : (int)(end - now), &p);
		if (!found && !suspect)
			suspect = may_differ(comm, call, n, peer, &p);
		/* The machine may have been suspended all that time. In that
		 * case ask once more. */
		if (clock_ms() < end)
			n--;
	}
	return disagree(comm, p.number == number ? call : NULL, peer, &p);
}

static bool is_gone(struct dicomm_comm *comm, int peer)
{
	return peer >= 0 && peer != comm->rank && comm_has_left(comm, peer);
}

static bool have_all_left(struct dicomm_comm *comm)
{
	for (int r = 0; r < comm->ranks; r++)
		if (r != comm->rank && !comm_has_left(comm, r))
			return false;
	return comm->ranks > 1;
}

/* Returns the error if a transport has given up a peer that has not closed the
 * connection. It may have died: fault_own() waits for that news. */
static dicomm_result_t broken_transport(const struct wait_for *f,
					uint64_t waited_ns)
{
	struct dicomm_comm *comm = f->comm;

	comm_each_transport (w, comm) {
		int peer = -1;
		dicomm_result_t status = w->transport->broken(w->device, &peer);

		if (status == DICOMM_SUCCESS)
			continue;
		if (peer < 0 || f->peer < 0 || peer == f->peer)
			return fault_own(comm, status, peer);
		/* It may have ended after its part of the call. The news of
		 * that, if it has, comes soon. */
		if (!comm_has_left(comm, peer) &&
		    waited_ns / 1000000 >= FAULT_NEWS_MS)
			return fault_own_late(comm, status);
	}
	return DICOMM_SUCCESS;
}

/* If there are more streams than hardware queues, streams share queues. Then a
 * stream that waits for the host blocks the streams behind it. */
static const char *queue_hint(const struct dicomm_comm *comm, char *text,
			      size_t len)
{
	const char *queues = comm->dev ? comm->accel->work->queues : NULL;

	*text = '\0';
	if (queues)
		snprintf(text, len,
			 " (%s may leave too few queues: a stream that waits "
			 "then "
			 "blocks those of the library)",
			 queues);
	return text;
}

/* What this rank cannot do before the peer does its part */
static const char *doing(const struct wait_for *f)
{
	const struct channel *channel = f->comm->peers[f->peer].channel;

	if (!f->sending)
		return "receive from";
	for (int c = 0; c < TP_CLASSES; c++)
		if (channel[c].out.released)
			return "send to";
	return "connect to";
}

/* Is it a receive from any source? */
static bool waits_for_any(const struct wait_for *f)
{
	return f->peer < 0 && f->call->function == CALL_RECV &&
	       f->call->root < 0;
}

/* Who receives from any source without a time-out may do so for others, who
 * need not come, and leave when they like. */
static bool is_server(const struct wait_for *f)
{
	return waits_for_any(f) && f->comm->timeout_ms <= 0;
}

/* A rank takes signals once it has registered a window or waits for some. */
static const char *signal_hint(const struct wait_for *f, char *text, size_t len)
{
	bool known = false;
	uint32_t signature;
	char answer[64];

	*text = '\0';
	if (f->call->function == CALL_SIGNAL && f->peer >= 0 &&
	    control_query(f->comm->control, f->peer, ASK_SIGNALS, 0, ASK_MS,
			  &known, &signature, answer,
			  sizeof(answer)) == DICOMM_SUCCESS &&
	    !known)
		snprintf(text, len,
			 ", which has neither registered a window nor waited "
			 "for a signal");
	return text;
}

/* "rank 3: operation 7, allreduce(...)" */
static void say_operation(const struct wait_for *f, char *out, size_t len)
{
	char text[128];

	call_text(f->call, text, sizeof(text));
	snprintf(out, len, "rank %d: operation %llu, %s", f->comm->rank,
		 (unsigned long long)f->number, text);
}

/* Warns that a peer is late; if no message is missing, that the device has not
 * finished its queue. */
static void warn_late(const struct wait_for *f, uint64_t waited_ns)
{
	struct dicomm_comm *comm = f->comm;
	unsigned long long s = waited_ns / 1000000000;
	char text[192], why[160], what[256];

	comm_listen(comm);
	say_operation(f, text, sizeof(text));
	if (waits_for_any(f))
		snprintf(
			what, sizeof(what),
			"all ranks are late, waited %llu s to receive from any",
			s);
	else if (f->peer >= 0)
		snprintf(what, sizeof(what),
			 "rank %d is late, waited %llu s to %s it%s", f->peer,
			 s, doing(f), signal_hint(f, why, sizeof(why)));
	else
		snprintf(what, sizeof(what),
			 "%s is late, waited %llu s for it%s", comm->device, s,
			 queue_hint(comm, why, sizeof(why)));
	log_warn("%s %s: %s", comm->name, text, what);
	comm_listen(NULL);
}

static void note(const struct wait_for *f, uint64_t waited_ms,
		 uint64_t valid_ms)
{
	struct wait_note n = {.peer = f->peer,
			      .waited_ms = waited_ms,
			      .number = f->number,
			      .what = call_log_what(f->call, 0),
			      .count = f->call->count};

	wait_chain_note(f->comm, &n, valid_ms);
}

static dicomm_result_t time_out(const struct wait_for *f, uint64_t waited_ms)
{
	struct dicomm_comm *comm = f->comm;
	char text[192], why[160], chain[320], what[560];
	int culprit = comm->rank;

	say_operation(f, text, sizeof(text));
	if (waits_for_any(f)) {
		snprintf(what, sizeof(what), "to receive from any rank");
	} else if (f->peer < 0) {
		snprintf(what, sizeof(what), "for %s%s", comm->device,
			 queue_hint(comm, why, sizeof(why)));
	} else {
		note(f, waited_ms, NOTE_LAST_MS);
		culprit = wait_chain_follow(comm, f->peer, waited_ms, chain,
					    sizeof(chain));
		snprintf(what, sizeof(what), "to %s rank %d%s%s", doing(f),
			 f->peer, chain, signal_hint(f, why, sizeof(why)));
	}
	return fault_raise(comm, DICOMM_ERR_TIMEOUT, culprit, true,
			   "%s: timed out after %d ms waiting %s", text,
			   comm->timeout_ms, what);
}

/* Returns true if this rank waits for itself, since nobody else makes calls for
 * it meanwhile. A transport may still hold the message, so count checks rather
 * than time: the process may have been suspended. */
static bool waits_for_itself(struct waiter *w, const struct wait_for *f)
{
	return f->alone && !data_path_is_shared(&f->comm->path) &&
	       f->peer == f->comm->rank && ++w->own >= OWN_LOOKS;
}

static bool is_due(struct waiter *w, uint64_t now)
{
	if (!w->since_ns)
		w->since_ns = w->checked_ns = now;
	if (now - w->checked_ns < LOOK_NS)
		return false;
	w->checked_ns = now;
	return true;
}

/* Returns true if no more comes from a rank that is gone. `waited` is how long
 * nothing has come. */
static bool is_drained(struct dicomm_comm *comm, int peer, uint64_t waited)
{
	const struct peer *p = &comm->peers[peer];

	return !p->transport || p->transport->intra_node ||
	       waited >= DRAIN_NS || !comm_is_reached(comm, peer);
}

static bool has_stopped(struct dicomm_comm *comm, int peer)
{
	return comm->peers[peer].transport && !comm_is_reached(comm, peer);
}

/* Counts a look that found the rank to be gone, and returns how many did
 * before. What a rank sent last is looked for in between. The engine's waits
 * change from one rank to another. */
static unsigned found_gone(struct waiter *w, int peer)
{
	if (w->gone_peer != peer)
		w->gone = 0;
	w->gone_peer = peer;
	return w->gone++;
}

/* How long a call may make no progress while a death is pending. A rank that
 * lives may only lack a core, as this one does then. */
static uint64_t pending_patience(const struct waiter *w)
{
	uint64_t starved = core_starved_ns() - w->starved_ns;

	return PENDING_NS + (starved < PENDING_NS ? starved : PENDING_NS);
}

/* The death of a rank is pending. Does the call need more of that rank, or of
 * one that has failed for this reason? Whoever waits has looked for messages
 * again before the second time. */
static dicomm_result_t wait_pending(struct waiter *w, const struct wait_for *f,
				    uint64_t now)
{
	struct dicomm_comm *comm = f->comm;
	uint64_t since = atomic_load(&comm->fault.pending.since_ns);
	uint64_t waited;
	bool lost, timed_out;

	if (!w->pending) {
		w->pending = true;
		w->starved_ns = core_starved_ns();
	}

	if (!w->since_ns)
		w->since_ns = w->checked_ns = now;
	if (since < w->since_ns)
		since = w->since_ns;
	waited = now > since ? now - since : 0;
	timed_out = comm->timeout_ms > 0 &&
		    waited / 1000000 >= (uint64_t)comm->timeout_ms;
	lost = is_gone(comm, f->peer) && is_drained(comm, f->peer, waited);
	/* What the last look found holds until the next one. */
	if (!lost && f->peer >= 0 && f->peer != comm->rank)
		lost = is_due(w, now) ? has_stopped(comm, f->peer)
				      : w->gone && w->gone_peer == f->peer;
	if (waits_for_any(f))
		lost = have_all_left(comm);
	if (!lost)
		w->gone = 0;
	if ((lost && found_gone(w, f->peer)) || timed_out ||
	    (waited >= PENDING_NS && waited >= pending_patience(w)))
		return fault_settle(comm);
	return DICOMM_SUCCESS;
}

static dicomm_result_t late(struct waiter *w, const struct wait_for *f,
			    uint64_t now)
{
	struct dicomm_comm *comm = f->comm;
	uint64_t waited = now - w->since_ns;
	struct pair_of_calls pair;
	char text[128];

	note(f, waited / 1000000, NOTE_MS);
	if (fault_is_pending(comm))
		return wait_pending(w, f, now);
	if (is_gone(comm, f->peer)) {
		/* The peer may have left after its last message, so check once
		 * more. */
		if (!found_gone(w, f->peer))
			return DICOMM_SUCCESS;
		call_text(f->call, text, sizeof(text));
		return fault_raise(
			comm, DICOMM_ERR_REMOTE, f->peer, true,
			"rank %d (%s) left the communicator while "
			"rank %d waits for it in operation %llu, %s",
			f->peer, control_where(comm->control, f->peer),
			comm->rank, (unsigned long long)f->number, text);
	}
	if (waits_for_any(f) && have_all_left(comm) && found_gone(w, f->peer))
		return fault_all_left(comm, !is_server(f));
	TRY(broken_transport(f, waited));
	if (waits_for_itself(w, f)) {
		call_text(f->call, text, sizeof(text));
		return fault_raise(
			comm, DICOMM_ERR_INVALID_USAGE, comm->rank, true,
			"rank %d waits for itself in operation %llu, %s: its "
			"send and its receive belong into one group",
			comm->rank, (unsigned long long)f->number, text);
	}
	if (waited >= ASK_AFTER_NS && w->asked < waited / ASK_AFTER_NS &&
	    f->peer >= 0 && f->peer != comm->rank && !f->call->tag &&
	    f->call->function < CALL_PUT_SIGNAL) {
		w->asked = (unsigned)(waited / ASK_AFTER_NS * 2);
		if (differs(comm, f->call, f->number, f->peer, ASK_MS, &pair))
			return disagree(comm, f->call, f->peer, &pair);
	}
	if (comm->warn_late_ms > 0 && !w->warned && !is_server(f) &&
	    waited / 1000000 >= (uint64_t)comm->warn_late_ms) {
		w->warned = true;
		warn_late(f, waited);
	}
	if (comm->timeout_ms > 0 &&
	    waited / 1000000 >= (uint64_t)comm->timeout_ms)
		return time_out(f, waited / 1000000);
	return DICOMM_SUCCESS;
}

unsigned wait_spin(const struct dicomm_comm *comm)
{
	return cores_crowded() && comm->spin > SPIN_CROWDED ? SPIN_CROWDED
							    : comm->spin;
}

/* Naps where nothing wakes this thread. Where many ranks share a core, each
 * naps longer, else they would do nothing but wake. */
static void nap_briefly(const struct dicomm_comm *comm)
{
	long us = NAP_US;
	struct timespec t = {0, 0};

	if (comm->node_ranks > CROWD * comm->node_cores)
		us = us * comm->node_ranks / comm->node_cores;
	t.tv_nsec = (us < CROWD_NAP_US ? us : CROWD_NAP_US) * 1000;
	nanosleep(&t, NULL);
}

/* Gives the core away. Messages that pass through the kernel need this thread
 * to sleep. If neighbours could not wake it, or it has other work, it sleeps
 * only briefly. */
static void rest(struct dicomm_comm *comm, bool alone)
{
	struct comm_transport *w = comm->slow_transport;
	bool brief = false;

	if (!w) {
		if (core_yield())
			return;
		w = comm->only_transport;
		brief = !alone;
	}
	if (!w)
		nap_briefly(comm);
	else
		w->transport->wait(
			w->device,
			w == comm->only_transport && !brief ? REST_US : NAP_US);
}

/* Returns how long to sleep on a transport, in microseconds. Credits and faults
 * do not wake the thread, so they may be noticed late, by a fraction of the
 * time that it has waited already. */
static unsigned rest_us(const struct wait_for *f, uint64_t waited_ns)
{
	uint64_t us = waited_ns / 1000 / REST_SHARE;

	if (!f->alone || us < REST_US)
		return REST_US;
	return us < REST_MAX_US ? (unsigned)us : REST_MAX_US;
}

/* Sleeps after a long wait, unless the poll has slept already. If nothing could
 * wake this thread, it sleeps only briefly. */
static void nap(const struct wait_for *f, uint64_t waited_ns)
{
	struct comm_transport *w = f->comm->only_transport;

	if (!w)
		nap_briefly(f->comm);
	else if (!w->transport->slow_poll)
		w->transport->wait(w->device, rest_us(f, waited_ns));
}

/* The same for a thread that others of this process need: it lends the data
 * path meanwhile. */
static void nap_lending(const struct wait_for *f, uint64_t waited_ns)
{
	uint64_t us = waited_ns / 1000 / REST_SHARE;

	data_path_lend(&f->comm->path, us < REST_US ? (unsigned)us : REST_US);
}

bool wait_is_due(struct waiter *w)
{
	return is_due(w, clock_ns());
}

/* A fault, or a death that is pending */
static bool is_troubled(const struct dicomm_comm *comm)
{
	return fault_is(comm) || fault_is_pending(comm);
}

static dicomm_result_t trouble(struct waiter *w, const struct wait_for *f)
{
	if (fault_is(f->comm))
		return fault_report(f->comm);
	return wait_pending(w, f, clock_ns());
}

dicomm_result_t wait_more(struct waiter *w, const struct wait_for *f)
{
	uint64_t now;
	bool due, lends = f->lends && data_path_is_shared(&f->comm->path);
	bool alone = f->alone && !lends;
	unsigned spin;

	if (lends && data_path_queued(&f->comm->path))
		data_path_lend(&f->comm->path, 0);
	comm_poll(f->comm);
	spin = wait_spin(f->comm);
	if (++w->polls < spin) {
		if (w->polls % 64 == 0 && is_troubled(f->comm))
			return trouble(w, f);
		return DICOMM_SUCCESS;
	}
	data_path_hold_cancel(&f->comm->path);
	if (is_troubled(f->comm))
		TRY(trouble(w, f));
	rest(f->comm, alone);
	if ((w->polls - spin) % YIELDS_PER_CHECK)
		return DICOMM_SUCCESS;
	now = clock_ns();
	due = is_due(w, now);
	if (now - w->since_ns > NAP_AFTER_NS) {
		if (lends)
			nap_lending(f, now - w->since_ns);
		else
			nap(f, now - w->since_ns);
		/* Sleep after each poll from now on, unless another thread may
		 * need the communicator. */
		w->polls -= alone ? 1 : YIELDS_PER_CHECK - 1;
	}
	if (!due)
		return DICOMM_SUCCESS;
	cross_progress_poll();
	return late(w, f, now);
}

dicomm_result_t wait_look(struct waiter *w, const struct wait_for *f)
{
	if (fault_is(f->comm))
		return fault_report(f->comm);
	return late(w, f, clock_ns());
}

void wait_pause(struct dicomm_comm *comm, struct waiter *w)
{
	comm_poll(comm);
	if (++w->polls > wait_spin(comm)) {
		data_path_hold_cancel(&comm->path);
		rest(comm, false);
	}
}
