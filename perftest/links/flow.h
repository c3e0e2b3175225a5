/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flows between processes, and how long they take. All calls are collective:
 * every process of the exchange, with the same flows.
 */
#ifndef DICOMM_PERFTEST_LINKS_FLOW_H
#define DICOMM_PERFTEST_LINKS_FLOW_H

#include "perftest/base/exchange.h"

/* However fast a link is. */
#define FLOW_MOST_BYTES ((size_t)256 << 20)

struct flow {
	int from, to; /* processes */
	size_t bytes;
	double seconds; /* until the last byte is there; 0 before */
};

struct flow_bench {
	struct exchange *exchange; /* borrowed */
	char *out, *in;            /* owned */
	size_t out_room, in_room;
	dicomm_stream_t *stream; /* [flow]; owned */
	int streams;
};

void flow_open(struct flow_bench *b, struct exchange *exchange);
void flow_close(struct flow_bench *b);

/* All at the same time; those of a process that receives several end when the
 * last one does. Fills in their seconds, on every process. */
void flow_run(struct flow_bench *b, struct flow *flow, int n);
/* One alone, of as many bytes as take about so long. Bytes per second. */
double flow_rate(struct flow_bench *b, int from, int to, double seconds);
/* Of a few bytes, one way, in seconds. */
double flow_latency(struct flow_bench *b, int from, int to);

#endif
