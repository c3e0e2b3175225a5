/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and poll of the verbs transport, and loops that do the least that a
 * program can do for the same: fill and post the same request, ask the same
 * queue. The NIC does nothing, in two instructions. For tests/bench/counts.sh,
 * which counts them.
 *
 * tests/bench/verbs_counts put|bare-put|poll|bare-poll TIMES
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/verbs.h"

#define SLOTS 16
#define STRIDE 4224
#define COMPLETIONS 16

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return 0;
}

static struct ibv_context context = {
	.ops = {.post_send = post_send, .poll_cq = poll_cq}};
static struct ibv_cq cq = {.context = &context};
static struct ibv_qp qp = {.context = &context};
static struct verbs_nic nic = {.bytes_per_s = 1000000000};
static struct tp_device dev = {
	.config = {.ranks = 2, .slots = SLOTS},
	.eager_bytes = 4096,
	.stride = STRIDE,
	.lanes = 2 * TP_CLASSES,
	.rails = 1,
	.rail = {{.nic = &nic, .cq = &cq}},
};
static struct tp_peer peer = {.dev = &dev, .rank = 1};

static struct verbs_lane *open_lane(void)
{
	struct verbs_lane *lane = verbs_lane_new(&dev, 1, 0, false, 1);
	struct verbs_card remote = {
		.strands = 1,
		.addr = 0x100000,
		.stride = STRIDE,
		.slots = SLOTS,
		.end = {{.rkey = 7, .bytes_per_s = 1000000000}}};

	dev.words = aligned_alloc(64, dev.lanes * sizeof(*dev.words));
	if (!lane || !dev.words)
		exit(1);
	lane->depth = 64;
	lane->strand[0].rail = &dev.rail[0];
	lane->strand[0].qp = &qp;
	verbs_credits_begin(lane);
	if (verbs_lane_meet(lane, &remote) != DICOMM_SUCCESS)
		exit(1);
	atomic_store(&lane->state, LANE_READY);
	peer.out[0] = lane;
	dev.peers = &peer;
	return lane;
}

/* ---- the least ---- */

struct least {
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;
	uint32_t posted;
	struct verbs_head head;
};

static __attribute__((noinline)) int bare_put(struct least *l, uint64_t seq,
					      uint32_t signature,
					      const void *body, uint32_t len)
{
	struct ibv_send_wr *bad;

	l->head.signature = signature;
	l->head.kind = (uint32_t)seq & ~0xffu;
	l->head.len = len;
	l->sge[0].addr = (uintptr_t)&l->head;
	l->sge[0].length = sizeof(l->head);
	l->sge[1].addr = (uintptr_t)body;
	l->sge[1].length = len;
	l->wr.wr_id = l->posted++;
	l->wr.next = NULL;
	l->wr.sg_list = l->sge;
	l->wr.num_sge = 2;
	l->wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	l->wr.send_flags = IBV_SEND_INLINE;
	l->wr.imm_data = htonl((uint32_t)seq & 0xff);
	l->wr.wr.rdma.remote_addr = 0x100000 + seq % SLOTS * STRIDE;
	l->wr.wr.rdma.rkey = 7;
	return ibv_post_send(&qp, &l->wr, &bad);
}

static __attribute__((noinline)) uint64_t bare_poll(struct ibv_cq *queue)
{
	struct ibv_wc wc[COMPLETIONS];
	int n = ibv_poll_cq(queue, COMPLETIONS, wc);
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += wc[i].wr_id;
	return sum;
}

/* ---- as often as it is asked for ---- */

/* Credits come for eight at a time, and so do completions. */
static void put(struct verbs_lane *lane, uint64_t n)
{
	uint64_t body = 1;
	unsigned word = 0;

	for (uint64_t seq = 1; seq <= n; seq++) {
		if (seq > SLOTS && seq % 8 == 1) {
			atomic_store_explicit(
				&lane->words->word[word++ % VERBS_WORDS],
				seq - 1 - 8, memory_order_relaxed);
			lane->strand[0].done = lane->strand[0].posted;
		}
		if (verbs_put(&peer, 0, seq, 5, TP_DATA, &body, sizeof(body)) !=
		    DICOMM_SUCCESS)
			exit(1);
	}
}

int main(int argc, char **argv)
{
	uint64_t n = argc == 3 ? strtoull(argv[2], NULL, 10) : 0, body = 1;
	struct verbs_lane *lane = open_lane();
	const char *what = n ? argv[1] : "";
	struct least least = {.posted = 0};

	if (!strcmp(what, "put")) {
		put(lane, n);
	} else if (!strcmp(what, "bare-put")) {
		for (uint64_t seq = 1; seq <= n; seq++)
			bare_put(&least, seq, 5, &body, sizeof(body));
	} else if (!strcmp(what, "poll")) {
		for (uint64_t i = 0; i < n; i++)
			verbs_poll(&dev);
	} else if (!strcmp(what, "bare-poll")) {
		for (uint64_t i = 0; i < n; i++)
			bare_poll(&cq);
	} else {
		fprintf(stderr, "usage: %s put|bare-put|poll|bare-poll TIMES\n",
			argv[0]);
		return 2;
	}
	free(lane->kept);
	free(lane);
	free(dev.words);
	return 0;
}
