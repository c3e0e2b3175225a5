/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures what the ways between hosts carry, by short flows: in each of a few
 * rounds (rates.h) hosts in pairs send to each other, one rank of each, first
 * one way, then the other, for 40 ms, or where that is little, up to 80. Pairs
 * do not wait for other pairs. Far hosts, to which a flow takes longer to get
 * going, have up to 50 ms more. If hosts then seem to be in islands, all ranks
 * hear of the flows, and hosts of one island meet those of another in further
 * rounds, for 130 ms each way.
 */
#ifndef DICOMM_CORE_PROBE_H
#define DICOMM_CORE_PROBE_H

#include "src/core/talk.h"
#include "src/topo/rates.h"

/* Of one round, at most */
#define PROBE_WINDOWS 16
/* Under way, at most */
#define PROBE_MESSAGES 16

struct probe {
	struct talk talk;
	const struct rates *across; /* between its islands; NULL: at first */
	uint32_t node, rounds, round;
	bool leads; /* of the ranks of its node, this one takes part */
	/* Result: what its node would add to struct rates. */
	uint32_t flow[RATES_FLOWS];
	/* The round in hand. */
	int partner; /* a rank; -1: none yet */
	size_t most; /* bytes of a message */
	/* Messages: those that the partner has taken are the first ones. */
	uint64_t sent, gone;
	struct {
		uint64_t ns, under_way; /* then, with it */
		size_t bytes;
	} message[PROBE_MESSAGES];      /* [of those under way, by number] */
	uint64_t way_bytes, gone_bytes; /* under way, taken since credit_ns */
	uint64_t least_ns;              /* from put to credit; 0: none yet */
	/* Twice what was under way with the latest that was taken; 0: it had a
	 * queue before it. */
	uint64_t grown_bytes;
	bool begins, sent_all, taken_all;
	/* When the first credit came back, the first message, the latest, and
	 * the first of the window that is counted. 0: not yet. */
	uint64_t credit_ns, first_ns, latest_ns, window_ns;
	uint64_t taken, counted;      /* bytes since the first, of the window */
	uint32_t rate[PROBE_WINDOWS]; /* of windows */
	uint32_t windows;
};

/* Call probe_turn() until it is not AGAIN. */
void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *across);
dicomm_result_t probe_turn(struct probe *p, bool *moved);
/* Whom it waits for; -1: nobody in particular. */
static inline int probe_awaits(const struct probe *p)
{
	return p->partner;
}

/* Does the time-out of this rank's operations leave time for it? */
bool probe_fits(const struct dicomm_comm *comm);

/*
 * At init, when the ranks have found their wires: put the rates of the links
 * into comm->links, the same on all ranks, where no file tells them: as
 * adapters declare them (declared.h), or where some do not, and DICOMM_PROBE
 * and the time-outs let it, measured.
 */
dicomm_result_t probe_at_init(struct dicomm_comm *comm);
/* Replace comm->links by what was measured. */
dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed);

#endif
