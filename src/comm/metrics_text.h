/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of communicators in Prometheus' text format. */
#ifndef DICOMM_COMM_METRICS_TEXT_H
#define DICOMM_COMM_METRICS_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include "src/core/comm.h"

struct metrics_counts {
	/* These only grow. */
	uint64_t operations, messages_sent, messages_received;
	uint64_t sent_bytes, received_bytes, staged_bytes;
	uint64_t faults;
	uint64_t retransmits[TP_TRANSPORTS];
	/* These are of the moment. */
	uint64_t communicators, waiting_ms;
	uint64_t peers[TP_TRANSPORTS];
	/* Bit i: the array of that name has a number of transport i. */
	unsigned has_retransmits, has_peers;
};

/* All communicators of a name in which this process has that rank. No two are
 * of one name and rank. */
struct metrics_series {
	struct metrics_series *next;
	char name[COMM_NAME_BYTES]; /* in UTF-8 */
	int rank;                   /* -1: several */
	struct metrics_counts ended, now;
};

/* Copies text, with a question mark for each byte that is not UTF-8, as much as
 * there is room for. */
void metrics_text_copy(char *to, size_t room, const char *from);
/* Writes `now` of all series. The caller looks for errors of the file. */
void metrics_text_write(FILE *f, const struct metrics_series *first,
			const char *host);

#endif
