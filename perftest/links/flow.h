/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flows between processes, and how long they take. All calls are collective:
 * every process of the exchange makes them with the same flows.
 */
#ifndef DICOMM_PERFTEST_LINKS_FLOW_H
#define DICOMM_PERFTEST_LINKS_FLOW_H

#include "perftest/base/exchange.h"

/* The longest flow, however fast a link is. */
#define FLOW_MOST_BYTES ((size_t)256 << 20)

struct flow {
	int from, to; /* processes */
	size_t bytes;
	double seconds; /* until the last byte has arrived; 0: not run yet */
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

/* Runs all flows at the same time. The flows that one process receives all end
 * when the last of them does. Sets their seconds, on every process. */
void flow_run(struct flow_bench *b, struct flow *flow, int n);
/* Runs one flow alone, with as many bytes as take about `seconds`. Returns
 * bytes per second. */
double flow_rate(struct flow_bench *b, int from, int to, double seconds);
/* Returns the one-way latency of a few bytes, in seconds. */
double flow_latency(struct flow_bench *b, int from, int to);

#endif
