/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the links between hosts by short flows.
 *
 * In each of a few rounds (rates.h), hosts form pairs. One rank of each sends
 * to the other for 40 ms, then the other way; over a slow link, up to 80 ms.
 * Pairs do not wait for other pairs. Flows between far hosts take longer to get
 * going and have up to 50 ms more. Then all ranks learn the results.
 *
 * If hosts seem to be in islands, further rounds pair hosts of one island with
 * those of another, for 130 ms each way. And a host that may be faster than
 * those it was paired with sends to several of them at once, and they to it.
 */
#ifndef DICOMM_LINKS_PROBE_H
#define DICOMM_LINKS_PROBE_H

#include "src/links/internal_message.h"
#include "src/topo/rates.h"

/* Windows of one round, at most */
#define PROBE_WINDOWS 16
/* Messages in flight, at most */
#define PROBE_MESSAGES 16

/* The flow to and from one peer of this round */
struct probe_flow {
	int rank;
	size_t most; /* bytes of the longest message */
	/* Messages sent, and taken by the peer; it takes them in order. */
	uint64_t sent, gone;
	struct {
		uint64_t ns,
			under_way; /* when it was put; bytes in flight then */
		size_t bytes;
	} message[PROBE_MESSAGES]; /* [messages in flight, by number] */
	uint64_t flight_bytes,
		gone_bytes; /* bytes in flight; bytes taken since credit_ns */
	uint64_t least_ns;  /* shortest time from put to credit; 0: none yet */
	/* Twice the bytes in flight with the latest message that was taken. 0:
	 * that one met a queue. */
	uint64_t grown_bytes;
	uint64_t credit_ns; /* when the first credit came back; 0: not yet */
	bool sent_all, taking, taken_all;
};

/* The rate of all flows in one direction together */
struct probe_meter {
	/* When the first bytes came, the latest, and the first of the current
	 * window. 0: not yet. */
	uint64_t first_ns, latest_ns, window_ns;
	uint64_t taken, counted; /* bytes since the first, and in the window */
	uint32_t rate[PROBE_WINDOWS]; /* of the windows, sorted */
	uint32_t windows;
};

struct probe {
	struct internal_messages messages;
	const struct rates
		*rates; /* the stage, and whom this rank meets in it */
	uint32_t node, rounds, round;
	bool leads; /* this rank measures for its node */
	/* Result: what its node contributes to struct rates */
	uint32_t flow[RATES_FLOWS];
	/* State of this round */
	bool begins;
	uint32_t others; /* 0: not begun */
	struct probe_flow with[RATES_FAN];
	struct probe_meter in, out;
};

/* Begin, then call probe_turn() until it does not return AGAIN. */
void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *rates);
dicomm_result_t probe_turn(struct probe *p, bool *moved);
/* The rank that it waits for; -1: none in particular. */
int probe_awaits(const struct probe *p);

/* Do this rank's time-outs leave time to measure? */
bool probe_fits(const struct dicomm_comm *comm);

/*
 * At init, after transports are open: find the rates of comm->links, equal on
 * all ranks. A topology file comes first. Then what adapters declare
 * (adapter_rates.h). If some declare nothing, the links are measured, if
 * DICOMM_PROBE and the time-outs allow it.
 */
dicomm_result_t probe_at_init(struct dicomm_comm *comm);
/* Do its links have rates: from a file, from adapters, or measured? */
bool probe_knows(const struct dicomm_comm *comm);
/* Replace comm->links by the measured ones. *changed: the rates differ. */
dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed);

#endif
