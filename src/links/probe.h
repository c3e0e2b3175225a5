/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the links between hosts by short flows.
 *
 * In each of a few rounds (rates.h), hosts form pairs. One rank of each host
 * sends to the other for 40 ms, then they swap roles; over a slow link, up to
 * 80 ms. Pairs do not wait for other pairs. Flows between distant hosts take
 * longer to reach their rate and have up to 50 ms more. Then all ranks learn
 * the results.
 *
 * If hosts seem to be in islands, further rounds pair hosts of one island with
 * hosts of another, for 130 ms each way. A host that may be faster than those
 * it was paired with also sends to several of them at once, and they send to
 * it.
 */
#ifndef DICOMM_LINKS_PROBE_H
#define DICOMM_LINKS_PROBE_H

#include "src/links/internal_message.h"
#include "src/topo/rates.h"

/* Most windows of one round. */
#define PROBE_WINDOWS 16
/* Most messages in flight. */
#define PROBE_MESSAGES 16

/* The flow to and from one peer of this round. */
struct probe_flow {
	int rank;
	size_t most; /* bytes of the longest message */
	/* Messages that were sent, and messages that the peer has taken. It
	 * takes them in order. */
	uint64_t sent, gone;
	struct {
		/* When the message was sent, and the bytes in flight at that
		 * time. */
		uint64_t ns, under_way;
		size_t bytes;
	} message[PROBE_MESSAGES]; /* [number % PROBE_MESSAGES] */
	/* Bytes in flight, and bytes taken since credit_ns. */
	uint64_t flight_bytes, gone_bytes;
	uint64_t least_ns; /* shortest time from put to credit; 0: none yet */
	/* Twice the bytes that were in flight with the message that was taken
	 * last. 0: that message had to queue. */
	uint64_t grown_bytes;
	uint64_t credit_ns; /* when the first credit arrived; 0: not yet */
	bool sent_all, taking, taken_all;
};

/* The rate of all flows in one direction together. */
struct probe_meter {
	/* When the first bytes arrived, the latest bytes, and the first of the
	 * current window. 0: not yet. */
	uint64_t first_ns, latest_ns, window_ns;
	/* Bytes since the first ones, and in the window. */
	uint64_t taken, counted;
	uint32_t rate[PROBE_WINDOWS]; /* of each window, sorted */
	uint32_t windows;
};

struct probe {
	struct internal_messages messages;
	/* The current stage, and the pairs of hosts in it. */
	const struct rates *rates;
	uint32_t node, rounds, round;
	bool leads; /* this rank measures for its node */
	/* Out: what this node contributes to struct rates. */
	uint32_t flow[RATES_FLOWS];
	/* State of the current round. */
	bool begins;
	uint32_t others; /* number of peers; 0: the round has not begun */
	struct probe_flow with[RATES_FAN];
	struct probe_meter in, out;
};

/* To use it, call probe_begin(), then probe_turn() until that does not return
 * DICOMM_AGAIN. probe_turn() sets *moved to true if it made progress. */
void probe_begin(struct probe *p, struct dicomm_comm *comm,
		 const struct operation *before, const struct rates *rates);
dicomm_result_t probe_turn(struct probe *p, bool *moved);
/* Returns the rank for which it waits; -1 for none in particular. */
int probe_awaits(const struct probe *p);

/* Returns true if this rank's time-out leaves time to measure. */
bool probe_fits(const struct dicomm_comm *comm);

/*
 * Finds the rates of comm->links, equal on all ranks. To be called during
 * initialization, when transports are open. A topology file takes precedence,
 * then what adapters declare (adapter_rates.h). If some of them declare
 * nothing, and no rates are kept (kept_rates.h), the links are measured, if
 * DICOMM_PROBE and the time-outs allow it.
 */
dicomm_result_t probe_at_init(struct dicomm_comm *comm);
/* Returns true if the links have rates: from a file, from adapters, or
 * measured. */
bool probe_knows(const struct dicomm_comm *comm);
/* Replaces comm->links by the measured links. *changed becomes true if the
 * rates differ. */
dicomm_result_t probe_adopt(struct dicomm_comm *comm, const struct rates *rates,
			    bool *changed);

#endif
