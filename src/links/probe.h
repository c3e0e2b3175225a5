/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures what the ways between hosts carry, by short flows: in each of a few
 * rounds (rates.h) hosts in pairs send to each other, one rank of each, first
 * one way, then the other, for 40 ms, or where that is little, up to 80. Pairs
 * do not wait for other pairs. Far hosts, to which a flow takes longer to get
 * going, have up to 50 ms more. Then all ranks hear of the flows. If hosts seem
 * to be in islands, those of one island meet those of another in further
 * rounds, for 130 ms each way; and a host that might be faster than those it
 * met sends to several of them at once, and these to it.
 */
#ifndef DICOMM_LINKS_PROBE_H
#define DICOMM_LINKS_PROBE_H

#include "src/links/internal_message.h"
#include "src/topo/rates.h"

/* Of one round, at most */
#define PROBE_WINDOWS 16
/* Under way, at most */
#define PROBE_MESSAGES 16

/* To and from one that it meets in the round in hand. */
struct probe_flow {
	int rank;
	size_t most; /* bytes of a message */
	/* Messages: those that the other has taken are the first ones. */
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
	uint64_t credit_ns; /* when the first credit came back; 0: not yet */
	bool sent_all, taking, taken_all;
};

/* How fast all flows of one direction are together. */
struct probe_meter {
	/* When the first bytes came, the latest, and the first of the window
	 * that is counted. 0: not yet. */
	uint64_t first_ns, latest_ns, window_ns;
	uint64_t taken, counted;      /* bytes since the first, of the window */
	uint32_t rate[PROBE_WINDOWS]; /* of windows, in order */
	uint32_t windows;
};

struct probe {
	struct internal_messages messages;
	const struct rates *rates; /* the stage, and whom it meets there */
	uint32_t node, rounds, round;
	bool leads; /* of the ranks of its node, this one takes part */
	/* Result: what its node would add to struct rates. */
	uint32_t flow[RATES_FLOWS];
	/* The round in hand. */
	bool begins;
	uint32_t others; /* 0: not begun */
	struct probe_flow with[RATES_FAN];
	struct probe_meter in, out;
};

/* Call probe_turn() until it is not AGAIN. */
void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *rates);
dicomm_result_t probe_turn(struct probe *p, bool *moved);
/* Whom it waits for; -1: nobody in particular. */
int probe_awaits(const struct probe *p);

/* Does the time-out of this rank's operations leave time for it? */
bool probe_fits(const struct dicomm_comm *comm);

/*
 * At init, when the ranks have found their wires: put the rates of the links
 * into comm->links, the same on all ranks, where no file tells them: as
 * adapters declare them (declared.h), or where some do not, and DICOMM_PROBE
 * and the time-outs let it, measured.
 */
dicomm_result_t probe_at_init(struct dicomm_comm *comm);
/* Do its links have rates, of a file, of adapters, or measured? */
bool probe_knows(const struct dicomm_comm *comm);
/* Replace comm->links by what was measured. */
dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed);

#endif
