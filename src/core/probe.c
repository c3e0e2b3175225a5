/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/core/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/core/declared.h"
#include "src/core/engine.h"
#include "src/core/topology.h"

/*
 * What is under way is so much that queues hold QUEUE_NS of it at the rate so
 * far, in a few messages: more would fill the queues of a slow way, until it
 * loses some; less might leave the way idle. Of a far host that rate is mostly
 * the time that its credits take: it grows until there are queues.
 */
#define QUEUE_NS UINT64_C(5000000)
/* After so long there is a rate. */
#define RATE_NS UINT64_C(500000)
#define FEW_MESSAGES 4
#define LEAST_BYTES 4096
#define MOST_BYTES 131072
/* A flow to a far host takes so many of its round trips longer to get going,
 * up to so long. */
#define FAR_TRIPS 8
#define FAR_MOST_NS UINT64_C(50000000)
/* The last message of a round has this length, no other has. */
#define LAST_BYTES 1
/* Messages of one turn, so that others get theirs. */
#define BUDGET 32
/* Each of the two sends for so long, on a slow way until it has sent so much,
 * within bounds. */
#define ROUND_NS UINT64_C(40000000)
#define SLOW_ROUND_NS UINT64_C(80000000)
#define SLOW_BYTES (UINT64_C(1) << 20)
/* What a link lets through at first, and holds in its queues, is faster than
 * the rest: a flow is counted from here on, in windows, of which the median
 * tells the rate: TCP halts where it has lost something, and what has piled up
 * comes in one burst. */
#define SETTLED_NS UINT64_C(7000000)
#define SETTLED_BYTES 262144
#define WINDOW_NS UINT64_C(5000000)
/* Flows that share the way of an island take turns, or halt while others go on:
 * what came of each in the same time, and only that, adds up. So they all last
 * as long, as those of far hosts, and count the end of it. */
#define ACROSS_ROUND_NS (SLOW_ROUND_NS + FAR_MOST_NS)
#define ACROSS_COUNTED_NS (SLOW_ROUND_NS / 4 * 3)
/* What a round takes at most, with what is in the queues of a slow way. */
#define ROUND_MOST_MS 500
#define SIGNATURE UINT32_C(0x70726f62)

/* Never written: what is sent does not matter. */
static uint8_t payload[MOST_BYTES];

static int first_rank_of(const struct links *l, uint32_t node)
{
	int r = 0;

	while (l->node_of[r] != node)
		r++;
	return r;
}

void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *across)
{
	const struct links *l = comm->links;

	*p = (struct probe){
		.talk = {.comm = comm,
			 .before = before,
			 .signature =
				 SIGNATURE ^ (before ? before->signature : 0)},
		.across = across,
		.node = l->node_of[comm->rank],
		.rounds = across ? rates_across_rounds(across)
				 : rates_rounds(l->nodes),
		.partner = -1};
	p->leads = first_rank_of(l, p->node) == comm->rank;
	for (uint32_t r = 0; r < RATES_FLOWS; r++)
		p->flow[r] = RATES_UNKNOWN;
}

/* Nobody to meet in this round: on to the next one. */
static bool find_partner(struct probe *p)
{
	struct dicomm_comm *comm = p->talk.comm;
	uint32_t node;

	if (p->across)
		node = rates_across_partner(p->across, p->round, p->node);
	else
		node = rates_partner(comm->links->nodes, p->round, p->node);
	p->partner = -1;
	if (node == RATES_UNKNOWN)
		return false;
	p->partner = first_rank_of(comm->links, node);
	if (!comm->peers[p->partner].wires)
		p->partner = -1;
	return p->partner >= 0;
}

/*
 * One after the other: each would wait for its credits behind what the other
 * has in the queues, and whichever is ahead stays ahead, so that the other's
 * way looks slow. Between islands all of one send at once.
 */
static bool begins(const struct probe *p)
{
	uint32_t partner = p->talk.comm->links->node_of[p->partner];

	if (p->across)
		return p->across->island_of[p->node] <
		       p->across->island_of[partner];
	return p->node < partner;
}

static dicomm_result_t begin_round(struct probe *p)
{
	p->begins = begins(p);
	TRY(talk_most(&p->talk, p->partner, &p->most));
	if (p->most > MOST_BYTES)
		p->most = MOST_BYTES;
	p->sent = p->gone = p->way_bytes = p->gone_bytes = p->least_ns = 0;
	p->grown_bytes = 0;
	p->taken = p->counted = 0;
	p->windows = 0;
	p->sent_all = p->taken_all = false;
	p->credit_ns = p->first_ns = p->latest_ns = p->window_ns = 0;
	return DICOMM_SUCCESS;
}

static uint64_t far_ns(uint64_t trip_ns)
{
	uint64_t ns = FAR_TRIPS * trip_ns;

	return ns < FAR_MOST_NS ? ns : FAR_MOST_NS;
}

static bool is_over(const struct probe *p, uint64_t now)
{
	uint64_t ns = p->credit_ns ? now - p->credit_ns : 0;

	if (p->across)
		return ns > ACROSS_ROUND_NS;
	return ns >
	       far_ns(p->least_ns) +
		       (p->gone_bytes < SLOW_BYTES ? SLOW_ROUND_NS : ROUND_NS);
}

/* The round begins when the partner is there to take it. */
static void take_credits(struct probe *p, uint64_t now)
{
	uint64_t under_way = talk_under_way(&p->talk, p->partner);

	/* Of older messages, too, some may be under way. */
	while (p->sent - p->gone > under_way) {
		uint32_t i = p->gone++ % PROBE_MESSAGES;
		uint64_t ns = now - p->message[i].ns;

		if (!p->least_ns || ns < p->least_ns)
			p->least_ns = ns ? ns : 1;
		p->grown_bytes = ns < p->least_ns + QUEUE_NS / 2
					 ? 2 * p->message[i].under_way
					 : 0;
		p->way_bytes -= p->message[i].bytes;
		if (p->credit_ns)
			p->gone_bytes += p->message[i].bytes;
	}
	if (!p->credit_ns && p->gone)
		p->credit_ns = now;
}

/* Bytes that should be under way: few, until there is a rate; then as many more
 * as have been taken; and twice as many as were when the latest that was taken
 * had hardly a queue before it. */
static uint64_t wanted(const struct probe *p, uint64_t now)
{
	uint64_t ns = p->credit_ns ? now - p->credit_ns : 0;
	uint64_t most = FEW_MESSAGES * LEAST_BYTES + p->gone_bytes;
	uint64_t bytes = FEW_MESSAGES * LEAST_BYTES;

	if (ns >= p->least_ns + RATE_NS) {
		unsigned __int128 queued = (unsigned __int128)p->gone_bytes *
					   (p->least_ns + QUEUE_NS) / ns;

		bytes = queued < most ? (uint64_t)queued : most;
	}
	return bytes < p->grown_bytes ? p->grown_bytes : bytes;
}

static size_t length_of(const struct probe *p, uint64_t wanted)
{
	size_t bytes = LEAST_BYTES;

	while (bytes < p->most && 2 * FEW_MESSAGES * bytes <= wanted)
		bytes *= 2;
	return bytes < p->most ? bytes : p->most;
}

static dicomm_result_t send_last(struct probe *p, bool *moved)
{
	dicomm_result_t status =
		talk_put(&p->talk, p->partner, payload, LAST_BYTES);

	p->sent_all = status == DICOMM_SUCCESS;
	*moved |= p->sent_all;
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

static dicomm_result_t send_some(struct probe *p, bool *moved)
{
	uint64_t now = clock_ns(), most;
	size_t bytes;

	if (p->sent_all || (!p->begins && !p->taken_all))
		return DICOMM_SUCCESS;
	take_credits(p, now);
	if (is_over(p, now))
		return send_last(p, moved);
	most = wanted(p, now);
	bytes = length_of(p, most);
	while (p->sent - p->gone < FEW_MESSAGES ||
	       (p->sent - p->gone < PROBE_MESSAGES &&
		p->way_bytes + bytes <= most)) {
		dicomm_result_t status =
			talk_put(&p->talk, p->partner, payload, bytes);
		uint32_t i = p->sent % PROBE_MESSAGES;

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		p->sent++;
		p->way_bytes += bytes;
		p->message[i].ns = now;
		p->message[i].bytes = bytes;
		p->message[i].under_way = p->way_bytes;
		*moved = true;
	}
	return DICOMM_SUCCESS;
}

/* Thousands of bytes per second */
static uint32_t rate_of(uint64_t bytes, uint64_t ns)
{
	uint64_t rate = bytes * UINT64_C(1000000) / (ns ? ns : 1);

	return rate < RATES_UNKNOWN ? (uint32_t)rate : RATES_UNKNOWN - 1;
}

/* Kept in order. */
static void end_window(struct probe *p, uint64_t now)
{
	uint32_t rate = rate_of(p->counted, now - p->window_ns);
	uint32_t i = p->windows;

	p->window_ns = now;
	p->counted = 0;
	if (i == PROBE_WINDOWS)
		return;
	for (p->windows++; i && p->rate[i - 1] > rate; i--)
		p->rate[i] = p->rate[i - 1];
	p->rate[i] = rate;
}

/* As much of it as came in the time that counts, if it came evenly. */
static void count_across(struct probe *p, uint64_t before, uint64_t now,
			 uint64_t bytes)
{
	uint64_t end = p->first_ns + ACROSS_ROUND_NS;
	uint64_t begin = end - ACROSS_COUNTED_NS;

	if (begin < before)
		begin = before;
	if (end > now)
		end = now;
	if (begin < end)
		p->counted += bytes * (end - begin) / (now - before);
}

/* What a look has found; all of it came in the time before, however late the
 * look. */
static void count(struct probe *p, uint64_t bytes)
{
	uint64_t now = clock_ns(), before = p->latest_ns;

	p->latest_ns = now;
	if (!p->first_ns) {
		p->first_ns = now;
		return;
	}
	if (p->across) {
		count_across(p, before, now, bytes);
		return;
	}
	p->taken += bytes;
	p->counted += bytes;
	if (p->window_ns && now - p->window_ns > WINDOW_NS)
		end_window(p, now);
	if (!p->window_ns && now - p->first_ns > SETTLED_NS &&
	    p->taken > SETTLED_BYTES) {
		p->window_ns = now;
		p->counted = 0;
	}
}

static dicomm_result_t take_some(struct probe *p, bool *moved)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	uint64_t found = 0;
	size_t bytes;

	for (int i = 0; i < BUDGET && !p->taken_all; i++) {
		status = talk_take(&p->talk, p->partner, NULL, &bytes);
		if (status != DICOMM_SUCCESS)
			break;
		*moved = true;
		p->taken_all = bytes == LAST_BYTES;
		if (!p->taken_all)
			found += bytes;
	}
	if (found)
		count(p, found);
	/* The sender waits for it, and the next turn may come late. */
	if (*moved)
		comm_flush(p->talk.comm);
	return status == DICOMM_AGAIN ? DICOMM_SUCCESS : status;
}

static void end_round(struct probe *p)
{
	uint32_t rate = 0;

	if (p->across)
		rate = rate_of(p->counted, ACROSS_COUNTED_NS);
	/* On a very slow way little has come, and all of it counts. */
	else if (p->windows)
		rate = p->rate[(p->windows - 1) / 2];
	else if (p->taken)
		rate = rate_of(p->taken, p->latest_ns - p->first_ns);
	if (rate)
		p->flow[p->across ? RATES_ROUNDS + p->round : p->round] = rate;
	p->partner = -1;
	p->round++;
}

dicomm_result_t probe_turn(struct probe *p, bool *moved)
{
	while (p->leads && p->round < p->rounds) {
		if (p->partner < 0) {
			if (!find_partner(p)) {
				p->round++;
				continue;
			}
			TRY(begin_round(p));
		}
		TRY(send_some(p, moved));
		TRY(take_some(p, moved));
		/* What is under way would slow down the next round. */
		if (!p->sent_all || !p->taken_all ||
		    talk_under_way(&p->talk, p->partner))
			return DICOMM_AGAIN;
		end_round(p);
	}
	return DICOMM_SUCCESS;
}

static int most_ms(const struct dicomm_comm *comm)
{
	return (int)rates_most_rounds(comm->links->nodes) * ROUND_MOST_MS;
}

bool probe_fits(const struct dicomm_comm *comm)
{
	return comm->timeout_ms <= 0 || comm->timeout_ms >= most_ms(comm);
}

/* ---- at init ---- */

static dicomm_result_t run(struct dicomm_comm *comm, struct probe *p,
			   const struct rates *across)
{
	uint64_t end = clock_ms() + (uint64_t)comm->meet_ms;
	dicomm_result_t status;
	struct waiter w = {0};
	bool moved;

	probe_begin(p, comm, NULL, across);
	for (;;) {
		moved = false;
		status = probe_turn(p, &moved);
		if (status != DICOMM_AGAIN)
			return status;
		if (fault_is(comm))
			return fault_report(comm);
		if (atomic_load(&comm->cancelled))
			return FAIL(DICOMM_ERR_ABORTED,
				    "comm_init_rank: aborted");
		if (comm->meet_ms && clock_ms() > end)
			return FAIL(DICOMM_ERR_TIMEOUT,
				    "comm_init_rank: measuring the link to "
				    "rank %d: timed out",
				    p->partner);
		if (moved)
			wait_moved(&w);
		else
			wait_pause(comm, &w);
	}
}

/* What each rank may do, and what it has measured. */
struct part {
	uint32_t hurried; /* its time-out leaves no time */
	uint32_t flow[RATES_FLOWS];
};

static void tell_hurry(const struct dicomm_comm *comm, int rank)
{
	if (comm->rank == 0)
		log_info("%s: the links between hosts are not measured: that "
			 "may take %d ms, and the time-out of rank %d is "
			 "shorter",
			 comm->name, most_ms(comm), rank);
}

static dicomm_result_t find_time(struct dicomm_comm *comm, struct part *all,
				 bool *found)
{
	struct part mine = {.hurried = !probe_fits(comm)};

	TRY(control_allgather(comm->control, &mine, all, sizeof(mine),
			      comm->meet_ms));
	*found = true;
	for (int r = 0; *found && r < comm->ranks; r++)
		if (all[r].hurried) {
			*found = false;
			tell_hurry(comm, r);
		}
	return DICOMM_SUCCESS;
}

/* Let all ranks know what each has measured. */
static dicomm_result_t share(struct dicomm_comm *comm, const struct probe *p,
			     struct part *all, struct rates *rates)
{
	struct part mine = {.hurried = 0};

	memcpy(mine.flow, p->flow, sizeof(mine.flow));
	TRY(control_allgather(comm->control, &mine, all, sizeof(mine),
			      comm->meet_ms));
	for (int r = 0; r < comm->ranks; r++)
		rates_add(rates, comm->links->node_of[r], all[r].flow);
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
	TRY(run(comm, &p, NULL));
	TRY(share(comm, &p, all, rates));
	TRY(rates_find_islands(rates, comm->links));
	if (rates->islands > 1) {
		TRY(run(comm, &p, rates));
		TRY(share(comm, &p, all, rates));
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

dicomm_result_t probe_at_init(struct dicomm_comm *comm)
{
	const char *how = config_string(CONFIG_PROBE);
	bool known;

	if (!links_matter(comm->links) || comm->links_known)
		return DICOMM_SUCCESS;
	TRY(declared_adopt(comm, &known));
	if (!strcmp(how, "off") || (known && strcmp(how, "on") != 0))
		return DICOMM_SUCCESS;
	/* What was asked for counts more. */
	comm->links_declared = comm->links_summed = false;
	return open_and_measure(comm);
}

/* ---- the new table ---- */

dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed)
{
	struct links *made;

	bool known = comm->links_known || comm->links_declared;

	TRY(rates_links(rates, comm->links, known, &made, changed));
	if (*changed)
		topology_set(comm, made, "measured");
	else
		links_free(made);
	pthread_mutex_lock(&comm->links_lock);
	comm->links_known = true;
	pthread_mutex_unlock(&comm->links_lock);
	return DICOMM_SUCCESS;
}
