/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/links/flow.h"

#include <stdlib.h>
#include <string.h>

#include "perftest/base/clock.h"
#include "perftest/base/failure.h"

#define FIRST_BYTES (size_t)65536
/* Each try has at most this many times the bytes of the one before: the first
 * bytes of a flow arrive faster than its rate. */
#define GROWTH 16
#define PING_BYTES 8
#define PINGS 40

void flow_open(struct flow_bench *b, struct exchange *exchange)
{
	*b = (struct flow_bench){.exchange = exchange};
}

void flow_close(struct flow_bench *b)
{
	for (int i = 0; i < b->streams; i++)
		CHECK_DICOMM(NULL, dicomm_host_stream_destroy(b->stream[i]));
	free(b->stream);
	free(b->out);
	free(b->in);
}

/* Writes to the buffer, so that its pages exist when the clock runs. */
static void grow(char **buffer, size_t *room, size_t bytes)
{
	if (bytes <= *room)
		return;
	free(*buffer);
	*buffer = malloc(bytes);
	if (!*buffer)
		failure_end(FAILURE_INTERNAL, "out of memory");
	memset(*buffer, 1, bytes);
	*room = bytes;
}

static void prepare(struct flow_bench *b, const struct flow *flow, int n)
{
	size_t out = 0, in = 0;
	int me = b->exchange->proc;

	for (int i = 0; i < n; i++) {
		if (flow[i].from == me && flow[i].bytes > out)
			out = flow[i].bytes;
		if (flow[i].to == me)
			in += flow[i].bytes;
	}
	grow(&b->out, &b->out_room, out);
	grow(&b->in, &b->in_room, in);
	if (b->streams >= n)
		return;
	b->stream = realloc(b->stream, (size_t)n * sizeof(*b->stream));
	if (!b->stream)
		failure_end(FAILURE_INTERNAL, "out of memory");
	while (b->streams < n)
		CHECK_DICOMM(NULL, dicomm_host_stream_create(
					   &b->stream[b->streams++]));
}

static void start(struct flow_bench *b, const struct flow *flow, int n)
{
	dicomm_comm_t comm = b->exchange->comm;
	int me = b->exchange->proc;
	char *in = b->in;

	for (int i = 0; i < n; i++) {
		const struct flow *f = &flow[i];

		if (f->to == me) {
			CHECK_DICOMM(comm,
				     dicomm_recv(in, f->bytes, DICOMM_UINT8,
						 f->from, comm, b->stream[i]));
			in += f->bytes;
		}
		if (f->from == me)
			CHECK_DICOMM(comm,
				     dicomm_send(b->out, f->bytes, DICOMM_UINT8,
						 f->to, comm, b->stream[i]));
	}
}

/* Waits for the received flows first, because their time counts. */
static void finish(struct flow_bench *b, struct flow *flow, int n, double begin)
{
	int me = b->exchange->proc;
	double last = 0;

	for (int i = 0; i < n; i++) {
		if (flow[i].to != me)
			continue;
		CHECK_DICOMM(b->exchange->comm,
			     dicomm_host_stream_synchronize(b->stream[i]));
		last = clock_s() - begin;
	}
	for (int i = 0; i < n; i++) {
		if (flow[i].to == me)
			flow[i].seconds = last;
		if (flow[i].from == me)
			CHECK_DICOMM(
				b->exchange->comm,
				dicomm_host_stream_synchronize(b->stream[i]));
	}
}

/* Tells all processes the times, which each process knows for the flows that it
 * receives. */
static void share(struct flow_bench *b, struct flow *flow, int n)
{
	size_t procs = (size_t)b->exchange->procs;
	double mine = 0;
	double *all = failure_alloc(procs, sizeof(*all));

	for (int i = 0; i < n; i++)
		if (flow[i].to == b->exchange->proc)
			mine = flow[i].seconds;
	exchange_gather(b->exchange, &mine, sizeof(mine), all);
	for (int i = 0; i < n; i++)
		flow[i].seconds = all[flow[i].to];
	free(all);
}

void flow_run(struct flow_bench *b, struct flow *flow, int n)
{
	double begin;

	prepare(b, flow, n);
	exchange_barrier(b->exchange, 0);
	begin = clock_s();
	start(b, flow, n);
	finish(b, flow, n, begin);
	share(b, flow, n);
}

double flow_rate(struct flow_bench *b, int from, int to, double seconds)
{
	struct flow f = {.from = from, .to = to, .bytes = FIRST_BYTES};
	double factor;

	for (;;) {
		flow_run(b, &f, 1);
		if (f.seconds > seconds / 2 || f.bytes >= FLOW_MOST_BYTES)
			return (double)f.bytes / f.seconds;
		factor = seconds / f.seconds;
		if (factor > GROWTH)
			factor = GROWTH;
		f.bytes = (size_t)((double)f.bytes * factor);
		if (f.bytes > FLOW_MOST_BYTES)
			f.bytes = FLOW_MOST_BYTES;
	}
}

static double ping_s(dicomm_comm_t comm, int peer, bool first)
{
	char bytes[PING_BYTES] = "";
	double begin = clock_s();

	if (first)
		CHECK_DICOMM(comm, dicomm_send(bytes, PING_BYTES, DICOMM_UINT8,
					       peer, comm, NULL));
	CHECK_DICOMM(comm, dicomm_recv(bytes, PING_BYTES, DICOMM_UINT8, peer,
				       comm, NULL));
	if (!first)
		CHECK_DICOMM(comm, dicomm_send(bytes, PING_BYTES, DICOMM_UINT8,
					       peer, comm, NULL));
	return (clock_s() - begin) / 2;
}

double flow_latency(struct flow_bench *b, int from, int to)
{
	int me = b->exchange->proc, peer = me == from ? to : from;
	double least = 1e9;

	exchange_barrier(b->exchange, 0);
	for (int i = 0; (me == from || me == to) && i < PINGS; i++) {
		double s = ping_s(b->exchange->comm, peer, me == from);

		if (s < least)
			least = s;
	}
	return exchange_combine(b->exchange, 0, me == from ? least : 1e9,
				EXCHANGE_MIN);
}
