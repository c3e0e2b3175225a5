/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0 of two, with all that reads messages of rank 1 under way: a window, a
 * get, receives and a send with a tag, a broadcast in slices, internal
 * messages. A target brings bytes of rank 1 into the inboxes by the code of its
 * transport, and has the readers look.
 */
#ifndef DICOMM_TESTS_FUZZ_READERS_H
#define DICOMM_TESTS_FUZZ_READERS_H

#include <stdbool.h>

#include "transports/transport.h"

#define READERS_SLOTS 8
#define READERS_SLOT_BYTES 4096
#define READERS_OFFER 5000 /* bytes that rank 1 may read */

/* What a target does for its transport */
struct readers_wire {
	/* False: rank 1 has not begun to send in that class. */
	bool (*inbox)(enum tp_class c, struct tp_inbox *in);
	void (*release)(enum tp_class c, uint64_t seq);
	dicomm_result_t (*read)(enum tp_class c, uint64_t seq, void *dst,
				uint64_t len);
	dicomm_result_t (*read_status)(enum tp_class c, uint64_t seq);
};

/* `maps`: references are mapped, not read. */
void readers_begin(const struct readers_wire *wire, bool maps);
/* False: one has failed, as it should where the message is malformed. */
bool readers_look(void);
void readers_end(void);

/* A good message of each kind, for seeds: its words and how many there are. */
#define READERS_SEEDS 7
struct readers_seed {
	enum tp_class class;
	uint32_t signature;
	uint64_t len;
	uint64_t word[5];
};
extern const struct readers_seed readers_seeds[READERS_SEEDS];

#endif
