/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and poll of the verbs transport, and beside them loops that do the least
 * that a program can: "bare" fills and posts the same request, or asks the same
 * queue; of a message that has come it sets the counter and posts its receive
 * again. It is called from elsewhere, and finds in memory what no compiler can
 * know: queue pair, remote address, key. "folded" has that as constants, with
 * the length of the message, and does not look at what the NIC says. The NIC
 * does nothing, in two instructions. For tests/bench/counts.sh, which counts
 * them.
 *
 * tests/bench/verbs_counts WHAT|bare-WHAT|folded-WHAT TIMES
 * WHAT: put; poll, that finds nothing; message, a poll that finds one
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/message/put.h"
#include "transports/verbs/nic/nic.h"

#define SLOTS 16
#define STRIDE 4224
#define COMPLETIONS 16
#define DEPTH 64
#define BATCH 32 /* of receives */
#define QPN 17

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

/* Which message comes next; then each poll finds one. */
static uint64_t coming;

static int poll_one(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	wc->qp_num = QPN;
	wc->imm_data = htonl((1 * TP_CLASSES) << 8 | (coming & 0xff));
	return 1;
}

static int post_receives(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	(void)srq;
	(void)wr;
	(void)bad;
	return 0;
}

static struct ibv_context context = {.ops = {.post_send = post_send,
					     .poll_cq = poll_cq,
					     .post_srq_recv = post_receives}};
static struct ibv_cq cq = {.context = &context};
static struct ibv_srq srq = {.context = &context};
static struct ibv_qp qp = {.context = &context, .qp_num = QPN};
static struct verbs_nic nic = {.bytes_per_s = 1000000000};
static struct verbs_channel *_Atomic channels_in[2 * TP_CLASSES];
static uint8_t inbox[SLOTS * STRIDE] __attribute__((aligned(TP_LINE_BYTES)));
static struct tp_device dev = {
	.config = {.ranks = 2, .slots = SLOTS},
	.eager_bytes = 4096,
	.stride = STRIDE,
	.channels = 2 * TP_CLASSES,
	.in = channels_in,
	.rails = 1,
	.rail = {{.nic = &nic,
		  .cq = &cq,
		  .srq = &srq,
		  .batch_room = VERBS_RECV_BATCH}},
};
static struct tp_peer peer = {.dev = &dev, .rank = 1};

static struct verbs_channel *open_channel(bool in)
{
	struct verbs_channel *channel = verbs_channel_new(&dev, 1, 0, in, 1);
	struct verbs_connect_msg remote = {
		.qps = 1,
		.addr = 0x100000,
		.stride = STRIDE,
		.slots = SLOTS,
		.qp = {{.rkey = 7, .bytes_per_s = 1000000000}}};

	if (!channel)
		exit(1);
	channel->depth = DEPTH;
	channel->max_inline = VERBS_INLINE;
	channel->qp[0].rail = &dev.rail[0];
	channel->qp[0].ibv = &qp;
	channel->qp[0].qpn = qp.qp_num;
	if (!in)
		verbs_credits_track(channel);
	if (verbs_channel_set_remote(channel, &remote) != DICOMM_SUCCESS)
		exit(1);
	if (in) {
		channel->slots = inbox;
		channel->stride = STRIDE;
		atomic_store(&channels_in[channel->id], channel);
	}
	atomic_store(&channel->state, CHANNEL_READY);
	return channel;
}

static void open_channels(void)
{
	dev.words = aligned_alloc(64, dev.channels * sizeof(*dev.words));
	if (!dev.words)
		exit(1);
	peer.out[0] = open_channel(false);
	peer.in[0] = open_channel(true);
	dev.peers = &peer;
}

/* ---- the least ---- */

/* What is called must know no more than its arguments say. */
#if __has_attribute(noipa)
#define OPAQUE __attribute__((noipa))
#else
#define OPAQUE __attribute__((noinline))
#endif

struct least {
	struct ibv_sge sge[2];
	struct ibv_send_wr wr;
	struct verbs_head head;
	uint32_t posted;
	/* what a connection is made with */
	struct ibv_qp *qp;
	uint64_t remote_addr, stride, slot_mask;
	uint32_t rkey;
	uint8_t *inbox;
	unsigned received;
	struct ibv_recv_wr batch[BATCH];
};

static struct least least = {
	.qp = &qp,
	.remote_addr = 0x100000,
	.stride = STRIDE,
	.slot_mask = SLOTS - 1,
	.rkey = 7,
	.inbox = inbox,
};

static inline __attribute__((always_inline)) int
fill_and_post(struct least *l, struct ibv_qp *to, uint64_t remote_addr,
	      uint32_t rkey, uint64_t seq, uint32_t signature, const void *body,
	      uint32_t len)
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
	l->wr.wr.rdma.remote_addr = remote_addr;
	l->wr.wr.rdma.rkey = rkey;
	return ibv_post_send(to, &l->wr, &bad);
}

static OPAQUE int bare_put(struct least *l, uint64_t seq, uint32_t signature,
			   const void *body, uint32_t len)
{
	return fill_and_post(l, l->qp,
			     l->remote_addr + (seq & l->slot_mask) * l->stride,
			     l->rkey, seq, signature, body, len);
}

static __attribute__((noinline)) void folded_put(struct least *l, uint64_t seq,
						 const void *body)
{
	fill_and_post(l, &qp, 0x100000 + seq % SLOTS * STRIDE, 7, seq, 5, body,
		      sizeof(uint64_t));
}

/* Only one channel: nothing has to be found by the completion. */
static void on_message(struct least *l, const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);
	struct tp_line *line =
		(struct tp_line *)(l->inbox + (imm & l->slot_mask) * l->stride);
	uint64_t seq = (line->kind & ~0xffu) | (imm & 0xff);
	struct ibv_recv_wr *bad;

	line->kind &= 0xff;
	atomic_store_explicit(&line->seq, seq, memory_order_release);
	if (++l->received < BATCH)
		return;
	l->received = 0;
	ibv_post_srq_recv(&srq, l->batch, &bad);
}

static OPAQUE uint64_t bare_poll(struct ibv_cq *queue)
{
	struct ibv_wc wc[COMPLETIONS];
	int n = ibv_poll_cq(queue, COMPLETIONS, wc);
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += wc[i].wr_id;
	return sum;
}

static OPAQUE bool bare_message(struct least *l, struct ibv_cq *queue)
{
	struct ibv_wc wc[COMPLETIONS];
	int n = ibv_poll_cq(queue, COMPLETIONS, wc);

	for (int i = 0; i < n; i++)
		if (wc[i].status == IBV_WC_SUCCESS &&
		    wc[i].opcode & IBV_WC_RECV)
			on_message(l, &wc[i]);
	return n > 0;
}

static __attribute__((noinline)) void folded_poll(void)
{
	struct ibv_wc wc[COMPLETIONS];

	ibv_poll_cq(&cq, COMPLETIONS, wc);
}

/* ---- as often as it is asked for ---- */

/* Credits come for eight at a time, and so do completions. All that precede
 * seq. */
static void allow(uint64_t seq)
{
	static unsigned word;

	if (seq <= SLOTS)
		return;
	atomic_store_explicit(
		&peer.out[0]->words->word[word++ % VERBS_CREDIT_WORDS],
		seq - 1 - 8, memory_order_relaxed);
	peer.out[0]->qp[0].done = peer.out[0]->qp[0].posted;
}

static void check(bool good)
{
	if (!good)
		exit(1);
}

static void put_ours(uint64_t n)
{
	uint64_t body = 1;

	for (uint64_t first = 1; first <= n; first += 8) {
		allow(first);
		for (uint64_t seq = first; seq < first + 8; seq++)
			check(verbs_put(&peer, 0, seq, 5, TP_DATA, &body,
					sizeof(body)) == DICOMM_SUCCESS);
	}
}

static void put_bare(uint64_t n)
{
	uint64_t body = 1;

	for (uint64_t first = 1; first <= n; first += 8) {
		allow(first);
		for (uint64_t seq = first; seq < first + 8; seq++)
			check(bare_put(&least, seq, 5, &body, sizeof(body)) ==
			      0);
	}
}

static void put_folded(uint64_t n)
{
	uint64_t body = 1;

	for (uint64_t seq = 1; seq <= n; seq++)
		folded_put(&least, seq, &body);
}

static void poll_ours(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		check(!verbs_poll(&dev));
}

static void poll_bare(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		check(!bare_poll(&cq));
}

static void poll_folded(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		folded_poll();
}

/* What the NIC has written before it tells. */
static struct tp_line *next_line(void)
{
	struct tp_line *line =
		(struct tp_line *)(inbox + ++coming % SLOTS * STRIDE);

	line->kind = TP_DATA | ((uint32_t)coming & ~0xffu);
	return line;
}

static void message_ours(uint64_t n)
{
	context.ops.poll_cq = poll_one;
	while (coming < n) {
		const struct tp_line *line = next_line();

		check(verbs_poll(&dev) && atomic_load(&line->seq) == coming);
	}
}

static void message_bare(uint64_t n)
{
	context.ops.poll_cq = poll_one;
	while (coming < n) {
		const struct tp_line *line = next_line();

		check(bare_message(&least, &cq) &&
		      atomic_load(&line->seq) == coming);
	}
}

static const struct {
	const char *name;
	void (*run)(uint64_t n);
} runs[] = {
	{"put", put_ours},          {"bare-put", put_bare},
	{"folded-put", put_folded}, {"poll", poll_ours},
	{"bare-poll", poll_bare},   {"folded-poll", poll_folded},
	{"message", message_ours},  {"bare-message", message_bare},
};

int main(int argc, char **argv)
{
	uint64_t n = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;

	open_channels();
	for (size_t i = 0; n && i < sizeof(runs) / sizeof(*runs); i++) {
		if (strcmp(argv[1], runs[i].name) != 0)
			continue;
		runs[i].run(n);
		return 0;
	}
	fprintf(stderr, "usage: %s [bare-|folded-]put|poll|message TIMES\n",
		argv[0]);
	return 2;
}
