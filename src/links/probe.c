/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/probe.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/operation.h"
#include "src/links/adapter_rates.h"
#include "src/links/kept_rates.h"
#include "src/links/topology.h"
#include "src/core/fault.h"
#include "src/core/paths.h"

/*
 * How much a flow keeps in flight: as much as a queue holds for QUEUE_NS at the
 * current rate, in a few messages. More would fill the queues of a slow link
 * until it drops packets; less might leave the link idle. To a distant host,
 * the first measured rate reflects the round trip of credits rather than the
 * link, so the amount grows until messages have to queue.
 */
#define QUEUE_NS UINT64_C(5000000)
/* Time after which there is a rate. */
#define RATE_NS UINT64_C(500000)
#define FEW_MESSAGES 4
#define LEAST_BYTES 4096
#define MOST_BYTES 131072
/* A flow to a distant host gets this many round trips more to reach its rate,
 * up to this time. */
#define FAR_TRIPS 8
#define FAR_MOST_NS UINT64_C(50000000)
/* Only the last message of a round has this length. */
#define LAST_BYTES 1
/* Messages in one turn, so that other flows get their turn. */
#define BUDGET 32
/* How long each of the two ranks sends. Over a slow link it sends up to
 * SLOW_ROUND_NS, until the peer has taken SLOW_BYTES. */
#define ROUND_NS UINT64_C(40000000)
#define SLOW_ROUND_NS UINT64_C(80000000)
#define SLOW_BYTES (UINT64_C(1) << 20)
/* At first, a link is faster while its queues fill. So a flow is counted only
 * after this time and this many bytes, in windows, and the median of the
 * windows is its rate. TCP may halt after a loss, and then deliver what has
 * piled up in one burst. */
#define SETTLED_NS UINT64_C(7000000)
#define SETTLED_BYTES 262144
#define WINDOW_NS UINT64_C(5000000)
/* Flows that share the link of an island take turns, or halt while others go
 * on, so only what each one carried in the same period adds up. So all flows
 * last as long as those of distant hosts, and the last part of that time
 * counts. */
#define ACROSS_ROUND_NS (SLOW_ROUND_NS + FAR_MOST_NS)
#define ACROSS_COUNTED_NS (SLOW_ROUND_NS / 4 * 3)
/* The longest time of a round, including the queues of a slow link. */
#define ROUND_MOST_MS 500
#define SIGNATURE UINT32_C(0x70726f62)

/* Never written, because the content of probes does not matter. */
static uint8_t payload[MOST_BYTES];

static int first_rank_of(const struct links *l, uint32_t node)
{
	int r = 0;

	while (l->node_of[r] != node)
		r++;
	return r;
}

void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *rates)
{
	const struct links *l = comm->links;

	*p = (struct probe){
		.messages = {.comm = comm,
			     .before = before,
			     .signature = SIGNATURE ^
					  (before ? before->signature : 0)},
		.rates = rates,
		.node = l->node_of[comm->rank],
		.rounds = comm->apart ? 1 : rates_stage_rounds(rates)};
	p->leads = first_rank_of(l, p->node) == comm->rank;
	for (uint32_t r = 0; r < RATES_FLOWS; r++)
		p->flow[r] = RATES_UNKNOWN;
}

int probe_awaits(const struct probe *p)
{
	for (uint32_t i = 0; i < p->others; i++)
		if (!p->with[i].taken_all || !p->with[i].sent_all)
			return p->with[i].rank;
	return p->others ? p->with[0].rank : -1;
}

/*
 * Finds the ranks to meet in this round. The two ranks of a pair do not send at
 * the same time. Otherwise each would wait for credits that queue behind the
 * other's data, and the one that is ahead would stay ahead, so that the other's
 * link would look slow. *found becomes false if this rank meets nobody in this
 * round.
 */
static dicomm_result_t begin_round(struct probe *p, bool *found)
{
	struct dicomm_comm *comm = p->messages.comm;
	struct rates_meeting m;

	rates_meet(p->rates, p->round, p->node, &m);
	p->begins = m.begins;
	p->others = 0;
	for (uint32_t i = 0; i < m.others; i++) {
		struct probe_flow *f = &p->with[p->others];

		*f = (struct probe_flow){
			.rank = first_rank_of(comm->links, m.other[i])};
		if (!comm->ways[f->rank])
			continue;
		TRY(internal_most(&p->messages, f->rank, &f->most));
		if (f->most > MOST_BYTES)
			f->most = MOST_BYTES;
		p->others++;
	}
	p->in = p->out = (struct probe_meter){0};
	*found = p->others > 0;
	return DICOMM_SUCCESS;
}

static uint64_t far_ns(uint64_t trip_ns)
{
	uint64_t ns = FAR_TRIPS * trip_ns;

	return ns < FAR_MOST_NS ? ns : FAR_MOST_NS;
}

/* Returns true if this rank has sent for long enough. The time counts for all
 * its flows together, from when the last peer receives. */
static bool is_over(const struct probe *p, uint64_t now)
{
	uint64_t since = 0, trip = 0, gone = 0;

	for (uint32_t i = 0; i < p->others; i++) {
		const struct probe_flow *f = &p->with[i];

		if (!f->credit_ns)
			return false;
		since = f->credit_ns > since ? f->credit_ns : since;
		trip = f->least_ns > trip ? f->least_ns : trip;
		gone += f->gone_bytes;
	}
	if (p->rates->stage == RATES_ISLANDS)
		return now - since > ACROSS_ROUND_NS;
	return now - since >
	       far_ns(trip) + (gone < SLOW_BYTES ? SLOW_ROUND_NS : ROUND_NS);
}

/* Notes which messages the peer has taken; returns their bytes. The flow counts
 * from when the peer is ready to receive. */
static uint64_t take_credits(const struct probe *p, struct probe_flow *f,
			     uint64_t now)
{
	uint64_t under_way = internal_under_way(&p->messages, f->rank),
		 bytes = 0;

	/* Older messages may be in flight, too. */
	while (f->sent - f->gone > under_way) {
		uint32_t i = f->gone++ % PROBE_MESSAGES;
		uint64_t ns = now - f->message[i].ns;

		if (!f->least_ns || ns < f->least_ns)
			f->least_ns = ns ? ns : 1;
		f->grown_bytes = ns < f->least_ns + QUEUE_NS / 2
					 ? 2 * f->message[i].under_way
					 : 0;
		f->flight_bytes -= f->message[i].bytes;
		bytes += f->message[i].bytes;
	}
	if (f->credit_ns)
		f->gone_bytes += bytes;
	else if (f->gone)
		f->credit_ns = now;
	return bytes;
}

/* Returns how many bytes to keep in flight. At first this is a few messages.
 * When there is a rate, it also grows with the bytes that were taken. It is at
 * least twice what was in flight with the message that was taken last, if that
 * one met hardly any queue. */
static uint64_t wanted(const struct probe_flow *f, uint64_t now)
{
	uint64_t ns = f->credit_ns ? now - f->credit_ns : 0;
	uint64_t most = FEW_MESSAGES * LEAST_BYTES + f->gone_bytes;
	uint64_t bytes = FEW_MESSAGES * LEAST_BYTES;

	if (ns >= f->least_ns + RATE_NS) {
		unsigned __int128 queued = (unsigned __int128)f->gone_bytes *
					   (f->least_ns + QUEUE_NS) / ns;

		bytes = queued < most ? (uint64_t)queued : most;
	}
	return bytes < f->grown_bytes ? f->grown_bytes : bytes;
}

static size_t length_of(const struct probe_flow *f, uint64_t wanted)
{
	size_t bytes = LEAST_BYTES;

	while (bytes < f->most && 2 * FEW_MESSAGES * bytes <= wanted)
		bytes *= 2;
	return bytes < f->most ? bytes : f->most;
}

/* Returns the rate in thousands of bytes per second. */
static uint32_t rate_of(uint64_t bytes, uint64_t ns)
{
	uint64_t rate = bytes * UINT64_C(1000000) / (ns ? ns : 1);

	return rate < RATES_UNKNOWN ? (uint32_t)rate : RATES_UNKNOWN - 1;
}

/* Ends a window and inserts its rate, in order. */
static void end_window(struct probe_meter *m, uint64_t now)
{
	uint32_t rate = rate_of(m->counted, now - m->window_ns);
	uint32_t i = m->windows;

	m->window_ns = now;
	m->counted = 0;
	if (i == PROBE_WINDOWS)
		return;
	for (m->windows++; i && m->rate[i - 1] > rate; i--)
		m->rate[i] = m->rate[i - 1];
	m->rate[i] = rate;
}

/* Counts the part of these bytes that arrived in the counted period, assuming
 * that they arrived evenly. */
static void count_across(struct probe_meter *m, uint64_t before, uint64_t now,
			 uint64_t bytes)
{
	uint64_t end = m->first_ns + ACROSS_ROUND_NS;
	uint64_t begin = end - ACROSS_COUNTED_NS;

	if (begin < before)
		begin = before;
	if (end > now)
		end = now;
	if (begin < end)
		m->counted += bytes * (end - begin) / (now - before);
}

static void count_window(struct probe_meter *m, uint64_t now, uint64_t bytes)
{
	m->taken += bytes;
	m->counted += bytes;
	if (m->window_ns && now - m->window_ns > WINDOW_NS)
		end_window(m, now);
	if (!m->window_ns && now - m->first_ns > SETTLED_NS &&
	    m->taken > SETTLED_BYTES) {
		m->window_ns = now;
		m->counted = 0;
	}
}

/* Counts bytes that a poll has found. All of them arrived before the poll, even
 * if it was late. */
static void count(const struct probe *p, struct probe_meter *m, uint64_t bytes)
{
	uint64_t now = clock_ns(), before = m->latest_ns;

	m->latest_ns = now;
	if (!m->first_ns)
		m->first_ns = now;
	else if (p->rates->stage == RATES_ISLANDS)
		count_across(m, before, now, bytes);
	else
		count_window(m, now, bytes);
}

static dicomm_result_t send_last(struct probe *p, struct probe_flow *f,
				 bool *moved)
{
	dicomm_result_t status =
		internal_put(&p->messages, f->rank, payload, LAST_BYTES);

	f->sent_all = status == DICOMM_SUCCESS;
	*moved |= f->sent_all;
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

static dicomm_result_t send_some(struct probe *p, struct probe_flow *f,
				 uint64_t now, bool *moved)
{
	uint64_t most = wanted(f, now);
	size_t bytes = length_of(f, most);

	while (f->sent - f->gone < FEW_MESSAGES ||
	       (f->sent - f->gone < PROBE_MESSAGES &&
		f->flight_bytes + bytes <= most)) {
		dicomm_result_t status =
			internal_put(&p->messages, f->rank, payload, bytes);
		uint32_t i = f->sent % PROBE_MESSAGES;

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		f->sent++;
		f->flight_bytes += bytes;
		f->message[i].ns = now;
		f->message[i].bytes = bytes;
		f->message[i].under_way = f->flight_bytes;
		*moved = true;
	}
	return DICOMM_SUCCESS;
}

/* Sends to all peers of this round. Their common rate counts from when all of
 * them receive. */
static dicomm_result_t send_to_all(struct probe *p, bool *moved)
{
	uint64_t now = clock_ns(), gone = 0;
	bool all = true, over;

	for (uint32_t i = 0; i < p->others; i++) {
		struct probe_flow *f = &p->with[i];

		if (f->sent_all)
			all = false;
		else if (p->begins || f->taken_all)
			gone += take_credits(p, f, now);
		all = all && f->credit_ns;
	}
	if (gone && all)
		count(p, &p->out, gone);
	over = is_over(p, now);
	for (uint32_t i = 0; i < p->others; i++) {
		struct probe_flow *f = &p->with[i];

		if (f->sent_all || (!p->begins && !f->taken_all))
			continue;
		TRY(over ? send_last(p, f, moved)
			 : send_some(p, f, now, moved));
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t take_some(struct probe *p, struct probe_flow *f,
				 uint64_t *found)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	size_t bytes;

	for (int i = 0; i < BUDGET && !f->taken_all; i++) {
		status = internal_take(&p->messages, f->rank, NULL, &bytes);
		if (status != DICOMM_SUCCESS)
			break;
		f->taking = true;
		f->taken_all = bytes == LAST_BYTES;
		*found += bytes;
	}
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

/* Receives from all peers of this round. Bytes count that arrive while all of
 * them send. */
static dicomm_result_t take_from_all(struct probe *p, bool *moved)
{
	uint64_t found = 0;
	bool all = true;

	for (uint32_t i = 0; i < p->others; i++) {
		struct probe_flow *f = &p->with[i];

		TRY(take_some(p, f, &found));
		all = all && f->taking && !f->taken_all;
	}
	if (!found)
		return DICOMM_SUCCESS;
	*moved = true;
	if (all)
		count(p, &p->in, found);
	/* Flush now: the sender waits for the credit, and the next turn may be
	 * late. */
	comm_flush(p->messages.comm);
	return DICOMM_SUCCESS;
}

static uint32_t rate_found(const struct probe *p, const struct probe_meter *m)
{
	if (p->rates->stage == RATES_ISLANDS)
		return rate_of(m->counted, ACROSS_COUNTED_NS);
	/* Over a very slow link few bytes have arrived, and all of them
	 * count. */
	if (m->windows)
		return m->rate[(m->windows - 1) / 2];
	return m->taken ? rate_of(m->taken, m->latest_ns - m->first_ns) : 0;
}

static void record(struct probe *p, uint32_t slot, const struct probe_meter *m)
{
	uint32_t rate = rate_found(p, m);

	if (rate)
		p->flow[slot] = rate;
}

static void end_round(struct probe *p)
{
	if (p->rates->stage != RATES_FANS) {
		record(p, rates_slot(p->rates, p->round), &p->in);
	} else if (p->begins) {
		record(p, RATES_FAN_UP, &p->out);
		record(p, RATES_FAN_DOWN, &p->in);
	}
	p->others = 0;
	p->round++;
}

/* Returns true if nothing is in flight. Otherwise it would slow down the next
 * round, and after the last one nobody polls to send the last credits. */
static bool is_done(const struct probe *p)
{
	for (uint32_t i = 0; i < p->others; i++) {
		const struct probe_flow *f = &p->with[i];

		if (!f->sent_all || !f->taken_all ||
		    internal_under_way(&p->messages, f->rank))
			return false;
	}
	return comm_flush(p->messages.comm);
}

dicomm_result_t probe_turn(struct probe *p, bool *moved)
{
	bool found;

	while (p->leads && p->round < p->rounds) {
		if (!p->others) {
			TRY(begin_round(p, &found));
			if (!found) {
				p->round++;
				continue;
			}
		}
		TRY(send_to_all(p, moved));
		TRY(take_from_all(p, moved));
		if (!is_done(p))
			return DICOMM_AGAIN;
		end_round(p);
	}
	return DICOMM_SUCCESS;
}

bool probe_knows(const struct dicomm_comm *comm)
{
	return comm->links_known || comm->links_declared;
}

static int most_ms(const struct dicomm_comm *comm)
{
	uint32_t rounds =
		comm->apart ? 1 : rates_most_rounds(comm->links->nodes);

	return (int)rounds * ROUND_MOST_MS;
}

bool probe_fits(const struct dicomm_comm *comm)
{
	return comm->timeout_ms <= 0 || comm->timeout_ms >= most_ms(comm);
}

/* ---- the new table ---- */

/* If `made` is NULL, the new table equals the old one. */
static void adopt(struct dicomm_comm *comm, struct links *made)
{
	if (made)
		topology_set(comm, made, "measured");
	pthread_mutex_lock(&comm->links_lock);
	comm->links_known = true;
	pthread_mutex_unlock(&comm->links_lock);
	kept_rates_add(comm->links);
}

dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed)
{
	struct links *made;

	TRY(rates_links(rates, comm->links, probe_knows(comm), &made, changed));
	if (!*changed) {
		links_free(made);
		made = NULL;
	}
	adopt(comm, made);
	return DICOMM_SUCCESS;
}

/* ---- at init ---- */

static dicomm_result_t run(struct dicomm_comm *comm, struct probe *p,
			   const struct rates *rates)
{
	uint64_t end = clock_ms() + (uint64_t)comm->join_ms;
	dicomm_result_t status;
	struct waiter w = {0};
	bool moved;

	probe_begin(p, comm, NULL, rates);
	for (;;) {
		moved = false;
		status = probe_turn(p, &moved);
		if (status != DICOMM_AGAIN)
			return status;
		TRY(fault_settle(comm));
		if (atomic_load(&comm->cancelled))
			return FAIL(DICOMM_ERR_ABORTED,
				    "comm_init_rank: aborted");
		if (comm->join_ms && clock_ms() > end)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "comm_init_rank: measuring the link to "
				    "rank %d: timed out",
				    probe_awaits(p));
		if (moved)
			wait_moved(&w);
		else
			wait_pause(comm, &w);
	}
}

/* What each rank allows, and what it has measured. */
struct part {
	uint32_t too_short; /* true: its time-outs are too short */
	uint32_t flow[RATES_FLOWS];
};

static void say_too_short(const struct dicomm_comm *comm, int rank)
{
	if (comm->rank == 0)
		log_info("%s: the links between hosts are not measured: that "
			 "may take %d ms, and the time-out of rank %d is "
			 "shorter: timeout_ms, or DICOMM_BOOTSTRAP_TIMEOUT",
			 comm->name, most_ms(comm), rank);
}

/* Returns true if a time-out, of operations or of initialization, is too
 * short. */
static bool is_too_short(const struct dicomm_comm *comm)
{
	return !probe_fits(comm) ||
	       (comm->join_ms > 0 && comm->join_ms < most_ms(comm));
}

static dicomm_result_t find_time(struct dicomm_comm *comm, struct part *all,
				 bool *found)
{
	struct part mine = {.too_short = is_too_short(comm)};

	TRY(control_allgather(comm->control, &mine, all, sizeof(mine),
			      comm->join_ms));
	*found = true;
	for (int r = 0; *found && r < comm->ranks; r++)
		if (all[r].too_short) {
			*found = false;
			say_too_short(comm, r);
		}
	return DICOMM_SUCCESS;
}

/* Exchanges what all ranks have measured. */
static dicomm_result_t share(struct dicomm_comm *comm, const struct probe *p,
			     struct part *all, struct rates *rates)
{
	struct part mine = {.too_short = 0};

	memcpy(mine.flow, p->flow, sizeof(mine.flow));
	TRY(control_allgather(comm->control, &mine, all, sizeof(mine),
			      comm->join_ms));
	for (int r = 0; r < comm->ranks; r++)
		rates_add(rates, comm->links->node_of[r], all[r].flow);
	return DICOMM_SUCCESS;
}

/* Gives all nodes the same rate. The ranks of one machine share one link; which
 * of them got more of it depended on the cores. */
static dicomm_result_t level(struct dicomm_comm *comm,
			     const struct rates *rates)
{
	uint64_t most = rates_most(rates);
	struct links *l;

	TRY(links_part(comm->links, comm->links->ranks, NULL, &l));
	for (uint32_t n = 0; most && n < l->nodes; n++)
		l->class[n].nic = (struct links_pipe){most, most};
	adopt(comm, l);
	return DICOMM_SUCCESS;
}

static dicomm_result_t measure(struct dicomm_comm *comm, struct part *all,
			       struct rates *rates)
{
	struct probe p;
	bool found, changed;

	TRY(find_time(comm, all, &found));
	if (!found)
		return DICOMM_SUCCESS;
	/* A measurement that the user asked for takes precedence. */
	comm->links_declared = comm->links_summed = false;
	while (rates->stage != RATES_DONE) {
		TRY(run(comm, &p, rates));
		TRY(share(comm, &p, all, rates));
		if (comm->apart)
			return level(comm, rates);
		TRY(rates_proceed(rates, comm->links, probe_knows(comm)));
	}
	return probe_adopt(comm, rates, &changed);
}

static dicomm_result_t open_and_measure(struct dicomm_comm *comm)
{
	struct part *all = calloc((size_t)comm->ranks, sizeof(*all));
	dicomm_result_t status;
	struct rates rates;

	if (!all)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	status = rates_open(&rates, comm->links->nodes);
	if (status == DICOMM_SUCCESS)
		status = measure(comm, all, &rates);
	rates_close(&rates);
	free(all);
	return status;
}

/* Finds the rates, if no topology file tells them. way[rank] has room. */
static dicomm_result_t find_rates(struct dicomm_comm *comm, uint64_t *way)
{
	const char *how = config_string(CONFIG_PROBE);
	bool asked = !strcmp(how, "on"), known, found = false;

	TRY(adapter_rates_adopt(comm, &known, way));
	if (!strcmp(how, "off") || (!asked && (known || comm->links_summed)))
		return DICOMM_SUCCESS;
	TRY(kept_rates_identify(comm, way));
	if (!asked)
		TRY(kept_rates_take(comm, &found));
	return found ? DICOMM_SUCCESS : open_and_measure(comm);
}

dicomm_result_t probe_at_init(struct dicomm_comm *comm)
{
	dicomm_result_t status;
	uint64_t *way;

	if (!links_matter(comm->links) || comm->links_known)
		return DICOMM_SUCCESS;
	way = calloc((size_t)comm->ranks, sizeof(*way));
	if (!way)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for %d ranks",
			    comm->ranks);
	status = find_rates(comm, way);
	free(way);
	return status;
}
