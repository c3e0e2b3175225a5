/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel of one queue pair: what a put posts, when it asks for a completion,
 * and when it refuses; and what a poll may leave out, and for how long. The NIC
 * here does nothing by itself. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/support/runner.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/message/bounce.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/memory.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/message/post.h"
#include "transports/verbs/message/put.h"
#include "transports/verbs/message/read.h"
#include "transports/verbs/message/watchdog.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/registration.h"

#define SLOTS 64
#define DEPTH 32 /* fewer than credits: the queue fills first */
#define STRIDE 4224
#define RANKS 4
#define ME 3
#define PEER 1
#define QPN 17
#define THERE 0x100000
#define KEY 77
#define INLINE 104 /* longest body that goes inline */
#define LONG 2000

/* ---- a NIC ---- */

struct posted {
	uint64_t id, addr;
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint32_t key, imm, bytes;
	uint8_t data[STRIDE];
};

static struct posted last;      /* the last request */
static int posts;               /* requests in total */
static int signals;             /* of these, with a completion */
static int silent;              /* since the last one with a completion */
static uint64_t signaled[1000]; /* their identifiers */
static int refuse;              /* errno of the next posts */
static struct ibv_wc coming;
static int n_coming;
static int receives; /* posted again */

static struct ibv_context context;
static struct ibv_comp_channel comp_channel = {.fd = -1};
static struct ibv_cq cq = {.context = &context};
static struct ibv_srq srq = {.context = &context};
static struct ibv_qp qp = {.context = &context, .qp_num = QPN};
static struct verbs_nic nic = {
	.name = "fake0", .port = 1, .bytes_per_s = 1000000000};

static void post_one(const struct ibv_send_wr *wr)
{
	last = (struct posted){.id = wr->wr_id,
			       .addr = wr->wr.rdma.remote_addr,
			       .key = wr->wr.rdma.rkey,
			       .opcode = wr->opcode,
			       .flags = wr->send_flags,
			       .imm = ntohl(wr->imm_data)};
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		/* Some drivers take 0 for 2 GiB. */
		ck_assert_uint_gt(sge->length, 0);
		if (wr->opcode != IBV_WR_RDMA_READ)
			memcpy(last.data + last.bytes, (void *)sge->addr,
			       sge->length);
		last.bytes += sge->length;
	}
	posts++;
	silent++;
	if (!(wr->send_flags & IBV_SEND_SIGNALED))
		return;
	signaled[signals++] = wr->wr_id;
	silent = 0;
}

static int post_send(struct ibv_qp *q, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	ck_assert_ptr_eq(q, &qp);
	*bad = wr;
	for (; wr && !refuse; wr = wr->next)
		post_one(wr);
	return refuse;
}

/* The GID of a port does not change here. */
int ibv_query_gid(struct ibv_context *c, uint8_t port, int index,
		  union ibv_gid *gid)
{
	(void)c;
	(void)port;
	(void)index;
	memset(gid, 0, sizeof(*gid));
	return 0;
}

static int poll_cq(struct ibv_cq *queue, int n, struct ibv_wc *wc)
{
	int count = n_coming;

	ck_assert_ptr_eq(queue, &cq);
	ck_assert_int_gt(n, 0);
	*wc = coming;
	n_coming = 0;
	return count;
}

static int post_srq_recv(struct ibv_srq *queue, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	ck_assert_ptr_eq(queue, &srq);
	for (*bad = wr; wr; wr = wr->next)
		receives++;
	return 0;
}

static int own_receives; /* posted to the queue pair itself */

static int post_recv(struct ibv_qp *queue, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	ck_assert_ptr_eq(queue, &qp);
	for (*bad = wr; wr; wr = wr->next)
		own_receives++;
	return 0;
}

static int req_notify_cq(struct ibv_cq *queue, int solicited)
{
	(void)queue;
	(void)solicited;
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = 5;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

/* The next poll finds this completion. */
static void complete(uint64_t id, enum ibv_wc_opcode opcode, uint32_t imm)
{
	coming = (struct ibv_wc){.wr_id = id,
				 .status = IBV_WC_SUCCESS,
				 .opcode = opcode,
				 .imm_data = htonl(imm),
				 .qp_num = QPN};
	n_coming = 1;
}

/* ---- a rank, and its channels with another ---- */

static struct tp_device dev;
static struct tp_peer peer;
static struct verbs_channel *out, *in;

static struct verbs_channel *open_channel(bool is_in)
{
	struct verbs_channel *channel =
		verbs_channel_new(&dev, PEER, 0, is_in, 1);
	struct verbs_connect_msg remote = {
		.qps = 1,
		.addr = THERE,
		.stride = STRIDE,
		.slots = SLOTS,
		.qp = {{.rkey = KEY, .bytes_per_s = 1000000000}}};

	channel->depth = DEPTH;
	channel->max_inline = sizeof(struct verbs_head) + INLINE;
	channel->qp[0].rail = &dev.rail[0];
	channel->qp[0].ibv = &qp;
	channel->qp[0].qpn = qp.qp_num;
	if (!is_in)
		verbs_credits_track(channel);
	ck_assert_int_eq(verbs_channel_set_remote(channel, &remote),
			 DICOMM_SUCCESS);
	if (is_in) {
		channel->stride = STRIDE;
		channel->slots = calloc(SLOTS, STRIDE);
	}
	atomic_store(&channel->state, CHANNEL_READY);
	return channel;
}

static void setup(void)
{
	dev.config.ranks = RANKS;
	dev.config.rank = ME;
	dev.config.slots = SLOTS;
	dev.eager_bytes = 4096;
	dev.stride = STRIDE;
	dev.max_read = 1 << 30;
	dev.channels = RANKS * TP_CLASSES;
	dev.words = aligned_alloc(64, dev.channels * sizeof(*dev.words));
	dev.in = calloc(dev.channels, sizeof(*dev.in));
	dev.out = calloc(dev.channels, sizeof(*dev.out));
	dev.rails = 1;
	context.ops.post_send = post_send;
	context.ops.poll_cq = poll_cq;
	context.ops.post_recv = post_recv;
	context.ops.post_srq_recv = post_srq_recv;
	context.ops.req_notify_cq = req_notify_cq;
	dev.rail[0].nic = &nic;
	dev.rail[0].cq = &cq;
	dev.rail[0].srq = &srq;
	dev.rail[0].comp_channel = &comp_channel;
	dev.rail[0].batch_room = VERBS_RECV_BATCH;
	for (int i = 1; i < VERBS_RECV_BATCH; i++)
		dev.rail[0].batch[i - 1].next = &dev.rail[0].batch[i];
	ck_assert_int_eq(verbs_pool_open(&dev), DICOMM_SUCCESS);
	peer.dev = &dev;
	peer.rank = PEER;
	dev.peers = &peer;
	out = peer.out[0] = open_channel(false);
	in = peer.in[0] = open_channel(true);
	atomic_store(&dev.out[out->id], out);
	atomic_store(&dev.in[in->id], in);
}

static const uint8_t *bytes_of(uint64_t q)
{
	static uint8_t body[4096];

	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(q * 7 + i);
	return body;
}

static dicomm_result_t put(uint64_t q, uint64_t len)
{
	return verbs_put(&peer, 0, q, 0x5eed, TP_DATA, bytes_of(q), len);
}

static void land_credits(unsigned word, uint64_t seq)
{
	atomic_store(&out->words->word[word % VERBS_CREDIT_WORDS], seq);
}

/* The first i requests that asked for a completion have it, so all before them
 * are complete. */
static void finish(int i)
{
	complete(signaled[i - 1], IBV_WC_RDMA_WRITE, 0);
	ck_assert(verbs_complete(&dev));
}

/* ---- put ---- */

static const uint32_t lengths[] = {8, 1, INLINE, INLINE + 1, 0, LONG, 4096};
#define LENGTHS ((int)(sizeof(lengths) / sizeof(*lengths)))

/* The first message, which takes another path than the next ones, and these. */
START_TEST(a_message_is_posted_as_it_was_put)
{
	const uint64_t numbers[] = {
		1, 2, 63, 64, 300, 70000, UINT32_MAX + 2ull};
	uint32_t len = lengths[_i];

	for (int i = 0; i < 7; i++) {
		uint64_t q = numbers[i];
		struct verbs_head head;

		land_credits((unsigned)i, q);
		ck_assert_int_eq(put(q, len), DICOMM_SUCCESS);
		ck_assert_int_eq(posts, i + 1);
		memcpy(&head, last.data, sizeof(head));
		ck_assert_uint_eq(head.signature, 0x5eed);
		ck_assert_uint_eq(head.kind, TP_DATA | ((uint32_t)q & ~0xffu));
		ck_assert_uint_eq(head.len, len);
		ck_assert_uint_eq(last.bytes, sizeof(head) + len);
		ck_assert_mem_eq(last.data + sizeof(head), bytes_of(q), len);
		ck_assert_uint_eq(last.imm, (ME * TP_CLASSES) << 8 |
						    ((uint32_t)q & 0xff));
		ck_assert_uint_eq(last.addr, THERE + q % SLOTS * STRIDE + 8);
		ck_assert_uint_eq(last.key, KEY);
		ck_assert_int_eq(last.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
		ck_assert_int_eq(!!(last.flags & IBV_SEND_INLINE),
				 len <= INLINE);
		/* A bounce buffer is free only after a completion. */
		ck_assert_int_eq(!!(last.flags & IBV_SEND_SIGNALED),
				 len > INLINE);
	}
}
END_TEST

/* Long messages, references and messages without bytes between short ones: no
 * fields are left over from one to the next. */
START_TEST(messages_of_all_kinds_do_not_disturb_each_other)
{
	unsigned state = 1;
	struct tp_ref ref;

	memset(&ref, 0xab, sizeof(ref));
	for (uint64_t q = 1; q <= 3000; q++) {
		uint32_t len = lengths[rand_r(&state) % LENGTHS];
		bool refers = rand_r(&state) % 5 == 0;
		struct verbs_head head;

		land_credits((unsigned)q, q - 1);
		if (refers)
			ck_assert_int_eq(verbs_put(&peer, 0, q, 0x5eed, TP_REF,
						   &ref, 1 << 20),
					 DICOMM_SUCCESS);
		else
			ck_assert_int_eq(put(q, len), DICOMM_SUCCESS);
		memcpy(&head, last.data, sizeof(head));
		ck_assert_uint_eq(head.kind & 0xff, refers ? TP_REF : TP_DATA);
		ck_assert_uint_eq(head.kind & ~0xffu, q & ~0xffu);
		ck_assert_uint_eq(head.len, refers ? 1 << 20 : len);
		if (refers)
			len = sizeof(struct verbs_reference);
		ck_assert_uint_eq(last.bytes, sizeof(head) + len);
		ck_assert_mem_eq(last.data + sizeof(head),
				 refers ? ref.bytes : bytes_of(q), len);
		ck_assert_uint_eq(last.addr, THERE + q % SLOTS * STRIDE + 8);
		if (signals)
			finish(1);
		signals = 0;
	}
	ck_assert_uint_eq(dev.pool.nspare, dev.pool.count);
}
END_TEST

/* Nothing completes: a full queue is never posted to. */
START_TEST(a_full_queue_is_noticed)
{
	uint64_t q = 0;
	int asked;

	land_credits(0, 1000);
	while (put(q + 1, 8) == DICOMM_SUCCESS) {
		ck_assert_int_lt((int)++q, DEPTH);
		ck_assert_int_le(silent, DEPTH / 4);
	}
	ck_assert_int_eq(put(q + 1, 8), DICOMM_AGAIN);
	ck_assert_int_ge((int)q, DEPTH - 2);
	ck_assert_int_ge(signals, 3);
	asked = posts;
	/* As much as has completed is posted, and no more. */
	finish(1);
	for (int i = 0; i < DEPTH / 4; i++)
		ck_assert_int_eq(put(++q, 8), DICOMM_SUCCESS);
	ck_assert_int_eq(put(q + 1, 8), DICOMM_AGAIN);
	ck_assert_int_eq(posts, asked + DEPTH / 4);
}
END_TEST

/* As if the last look had been so long ago. */
static dicomm_result_t look_after_ms(uint64_t ms)
{
	int rank = -1;
	dicomm_result_t status;

	dev.watched_ms = clock_ms() - ms;
	status = verbs_broken(&dev, &rank);
	ck_assert_int_eq(rank, status == DICOMM_SUCCESS ? -1 : PEER);
	return status;
}

/* Over iWARP a request may complete before its data has arrived. */
START_TEST(who_waits_over_iwarp_asks)
{
	struct ibv_mr words = {.lkey = 9};
	bool iwarp = _i;
	int credit_checks = 0;

	nic.fabric = iwarp ? VERBS_IWARP : VERBS_ROCE;
	dev.rail[0].words_mr = &words;
	ck_assert_int_eq(look_after_ms(600), DICOMM_SUCCESS);
	ck_assert_int_eq(posts, 0);
	ck_assert_int_eq(look_after_ms(600), DICOMM_SUCCESS);
	ck_assert_int_eq(posts, iwarp ? 2 : 0); /* in both directions */
	if (iwarp) {
		ck_assert_int_eq(last.opcode, IBV_WR_RDMA_READ);
		ck_assert_uint_eq(last.addr, THERE);
		ck_assert_uint_eq(last.key, KEY);
		ck_assert_int_eq(signals, 2);
		/* One is answered, and asks again; the other is not. */
		finish(1);
	}
	while (credit_checks < 1000 && look_after_ms(900) == DICOMM_SUCCESS)
		credit_checks++;
	ck_assert(iwarp ? credit_checks < 60 : credit_checks == 1000);
	ck_assert(!iwarp || strstr(log_last_error(), "have not ended"));
	nic.fabric = VERBS_ROCE;
}
END_TEST

/* All kinds of requests, in any order: there is always room, and of four
 * requests in a row, each a quarter of the queue apart, one has a
 * completion. */
START_TEST(the_queue_is_never_overrun)
{
	struct verbs_qp *first = &out->qp[0];
	unsigned state = (unsigned)_i;
	int done = 0, granted = 0, most = 0;
	int after[1000] = {0}; /* posts, when that completion was asked for */
	uint64_t q = 0;

	while (signals < 900) {
		int was = signals, choice = rand_r(&state) % 20;

		land_credits((unsigned)rand_r(&state), q);
		if (choice == 0)
			verbs_probe(first);
		else if (put(q + 1, choice < 3 ? 0 : 8) == DICOMM_SUCCESS)
			q++;
		for (int i = was; i < signals; i++)
			after[i] = posts;
		ck_assert_int_le(silent, DEPTH / 4);
		ck_assert_int_eq(verbs_has_unsignaled(first), silent > 0);
		ck_assert_int_le(posts - done, DEPTH);
		most = posts - done > most ? posts - done : most;
		ck_assert_int_eq((int)first->posted, posts);
		/* Mostly the queue is full, sometimes it gets empty. */
		if (rand_r(&state) % 16 || granted == signals)
			continue;
		granted += 1 + rand_r(&state) % (signals - granted);
		done = after[granted - 1];
		finish(granted);
		ck_assert_int_eq((int)first->done, done);
	}
	ck_assert_int_ge(most, DEPTH - 2);
}
END_TEST

START_TEST(credits_are_looked_at_when_they_are_needed)
{
	out->depth = 4 * SLOTS;
	for (uint64_t q = 1; q <= SLOTS; q++)
		ck_assert_int_eq(put(q, 8), DICOMM_SUCCESS);
	ck_assert_int_eq(put(SLOTS + 1, 8), DICOMM_AGAIN);
	ck_assert_int_eq(posts, SLOTS);
	/* The next credit, or a later one that has overtaken it. */
	land_credits(_i ? 5 : 0, 2);
	ck_assert_int_eq(put(SLOTS + 3, 8), DICOMM_AGAIN);
	ck_assert_int_eq(put(SLOTS + 2, 8), DICOMM_SUCCESS);
	ck_assert_int_eq(put(SLOTS + 1, 8), DICOMM_SUCCESS);
	ck_assert_uint_eq(atomic_load(&out->released), 2);
	/* All credits after it. */
	for (unsigned i = 1; i <= 3; i++)
		land_credits((_i ? 5 : 0) + i, 2 + i);
	ck_assert_int_eq(put(SLOTS + 5, 8), DICOMM_SUCCESS);
	ck_assert_uint_eq(atomic_load(&out->released), 5);
	/* A late older credit changes nothing. */
	land_credits(7, 1);
	ck_assert_int_eq(put(SLOTS + 6, 8), DICOMM_AGAIN);
	ck_assert_uint_eq(atomic_load(&out->released), 5);
}
END_TEST

/* As verbs_abort() does. */
static void abort_it(void)
{
	atomic_store(&dev.aborted, true);
	atomic_store(&out->limit, 0);
}

static void break_it(void)
{
	struct ibv_wc wc = {.status = IBV_WC_RETRY_EXC_ERR};

	verbs_qp_completion_error(&out->qp[0], &wc, "write", 8);
}

static void give_it_up(void)
{
	verbs_qp_fail(&out->qp[0], DICOMM_ERR_SYSTEM, "a test", "");
}

static const struct {
	void (*happens)(void);
	dicomm_result_t status;
} ends[] = {
	{abort_it, DICOMM_ERR_ABORTED},
	{break_it, DICOMM_ERR_REMOTE},
	{give_it_up, DICOMM_ERR_SYSTEM},
};

/* Though there are credits, and more arrive. */
START_TEST(after_the_end_nothing_is_posted)
{
	const uint32_t len = lengths[_i / 3];

	for (uint64_t q = 1; q <= 3; q++)
		ck_assert_int_eq(put(q, 8), DICOMM_SUCCESS);
	ends[_i % 3].happens();
	ck_assert_int_eq(put(4, len), ends[_i % 3].status);
	land_credits(0, 3);
	verbs_poll(&dev);
	ck_assert_int_eq(put(4, len), ends[_i % 3].status);
	ck_assert_int_eq(posts, 3);
}
END_TEST

/* The abort comes while a channel becomes ready, or while its credits are
 * looked for. */
START_TEST(a_channel_after_an_abort_carries_nothing)
{
	abort_it();
	ck_assert(!verbs_channel_allow(out, SLOTS));
	ck_assert_int_eq(put(1, 8), DICOMM_ERR_ABORTED);
	ck_assert_int_eq(posts, 0);
}
END_TEST

START_TEST(who_has_left_gets_what_credits_allow)
{
	atomic_store(&out->peer_closed, true);
	ck_assert_int_eq(put(1, 8), DICOMM_SUCCESS);
	ck_assert_int_eq(put(SLOTS + 1, 8), DICOMM_ERR_REMOTE);
	ck_assert_ptr_ne(strstr(log_last_error(), "has closed its side"), NULL);
	ck_assert_int_eq(put(2, 8), DICOMM_ERR_REMOTE);
	ck_assert_int_eq(posts, 1);
}
END_TEST

/* Not even to wait for it, in either direction. */
START_TEST(who_has_left_is_not_reached)
{
	const struct transport *verbs = transport_find("verbs");
	struct tp_blob blob;
	char why[160];

	dev.config.rank = PEER;
	verbs->address(&dev, &blob);
	dev.config.rank = ME;
	ck_assert(verbs->reaches(&dev, &blob, why, sizeof(why)));
	atomic_store(_i ? &in->peer_closed : &out->peer_closed, true);
	ck_assert(!verbs->reaches(&dev, &blob, why, sizeof(why)));
	ck_assert_ptr_ne(strstr(why, "closed its side"), NULL);
}
END_TEST

/* It was not posted, so no completion is awaited. */
START_TEST(a_refusal_is_reported)
{
	ck_assert_int_eq(put(1, 8), DICOMM_SUCCESS);
	refuse = ENOMEM;
	ck_assert_int_eq(put(2, lengths[_i]), DICOMM_ERR_SYSTEM);
	ck_assert_ptr_ne(strstr(log_last_error(), "post a request"), NULL);
	ck_assert_ptr_ne(strstr(log_last_error(), strerror(ENOMEM)), NULL);
	ck_assert_uint_eq(out->qp[0].posted, 1);
	/* After an abort that is expected. */
	atomic_store(&dev.aborted, true);
	ck_assert_int_eq(put(3, 8), DICOMM_ERR_ABORTED);
}
END_TEST

START_TEST(nothing_is_sent_before_there_is_a_channel)
{
	peer.out[1] = &verbs_no_channel;
	ck_assert_int_eq(verbs_put(&peer, 1, 1, 5, TP_DATA, "x", 1),
			 DICOMM_ERR_INTERNAL);
	ck_assert_int_eq(put(1, 4097), DICOMM_ERR_INTERNAL);
	ck_assert_int_eq(posts, 0);
}
END_TEST

/* ---- poll ---- */

/* So that the next polls leave out what is rare. */
static void settle(void)
{
	for (int i = 0; i < 3; i++)
		ck_assert(!verbs_poll(&dev));
	ck_assert_int_gt(dev.credit_checks, 1);
}

START_TEST(the_next_credits_are_seen_at_once)
{
	settle();
	for (unsigned i = 0; i < 3 * VERBS_CREDIT_WORDS; i++) {
		land_credits(i, i + 1);
		for (int n = 0; n < VERBS_POLLS_PER_CHECK; n++)
			verbs_poll(&dev);
		ck_assert_uint_eq(atomic_load(&out->released), i + 1);
	}
}
END_TEST

START_TEST(credits_that_overtook_others_are_seen_soon)
{
	settle();
	land_credits((unsigned)_i, 9);
	for (int i = 0; i < VERBS_CREDIT_CHECKS * VERBS_POLLS_PER_CHECK; i++)
		verbs_poll(&dev);
	ck_assert_uint_eq(atomic_load(&out->released), 9);
}
END_TEST

static void see_message(uint64_t q)
{
	struct tp_line *line =
		(struct tp_line *)(in->slots + q % SLOTS * STRIDE);

	line->kind = TP_DATA | ((uint32_t)q & ~0xffu);
	complete(q, IBV_WC_RECV_RDMA_WITH_IMM,
		 in->id << 8 | ((uint32_t)q & 0xff));
	ck_assert(verbs_poll(&dev));
	ck_assert_uint_eq(atomic_load(&line->seq), q);
	ck_assert_uint_eq(line->kind, TP_DATA);
}

/* At every poll; then credits are sent at once. */
START_TEST(a_message_is_seen_at_once)
{
	settle();
	for (uint64_t q = 1; q <= 3 * SLOTS; q++) {
		see_message(q);
		if (q % 3 == 0)
			settle();
	}
}
END_TEST

/* For all messages, also for those that no channel takes. */
START_TEST(a_receive_that_was_used_is_posted_again)
{
	for (uint64_t q = 1; q <= 10 * VERBS_RECV_BATCH; q++) {
		if (q % 3 == 0) {
			complete(q, IBV_WC_RECV_RDMA_WITH_IMM,
				 q % 2 ? UINT32_MAX : in->id << 8);
			coming.qp_num = q % 2 ? QPN : QPN + 1;
			ck_assert(verbs_poll(&dev));
		} else {
			see_message(q);
		}
		ck_assert_int_eq(receives, (int)(q / VERBS_RECV_BATCH *
						 VERBS_RECV_BATCH));
	}
}
END_TEST

/* Without a shared queue, each queue pair has only its own receives. */
START_TEST(a_queue_pair_of_its_own_receives_again_at_once)
{
	int before;

	dev.rail[0].srq = NULL;
	dev.rail[0].batch_room = 1;
	for (uint64_t q = 1; q <= 3 * VERBS_RECV_BATCH; q++) {
		see_message(q);
		ck_assert_int_eq(own_receives, (int)q);
	}
	/* Of no channel, and of one that has stopped. */
	before = own_receives;
	complete(1, IBV_WC_RECV_RDMA_WITH_IMM, UINT32_MAX);
	ck_assert(verbs_poll(&dev));
	complete(1, IBV_WC_RECV_RDMA_WITH_IMM, in->id << 8);
	coming.qp_num = QPN + 1;
	ck_assert(verbs_poll(&dev));
	in->qp[0].state = QP_STOPPED;
	complete(1, IBV_WC_RECV_RDMA_WITH_IMM, in->id << 8);
	ck_assert(verbs_poll(&dev));
	ck_assert_int_eq(own_receives, before);
	in->qp[0].state = QP_GOOD;
	see_message(3 * VERBS_RECV_BATCH + 1);
	ck_assert_int_eq(own_receives, before + 1);
}
END_TEST

/* While messages arrive all the time. */
START_TEST(who_is_busy_looks_around)
{
	uint64_t q = 0;

	settle();
	atomic_store(&dev.failover, true);
	land_credits(3, 9);
	while (q < 2ull * SLOTS)
		see_message(++q);
	ck_assert(!atomic_load(&dev.failover));
	for (; q < 6ull * SLOTS; q++)
		see_message(q + 1);
	ck_assert_uint_eq(atomic_load(&out->released), 9);
}
END_TEST

/* A sender that waits gets its credit from the next poll that finds nothing;
 * others after many such polls. */
START_TEST(credits_are_sent_though_nothing_is_rare)
{
	settle();
	in->last_read = _i ? 1 : 0;
	ck_assert_int_eq(verbs_release(&peer, 0, 1), DICOMM_SUCCESS);
	ck_assert_int_eq(posts, 0);
	verbs_poll(&dev);
	ck_assert_int_eq(posts, _i);
	for (int i = 0; i < 2000; i++)
		verbs_poll(&dev);
	ck_assert_int_eq(posts, 1);
	settle();
}
END_TEST

/* It is stored by the connection thread; only a poll can see it. */
START_TEST(a_notice_is_seen_soon)
{
	settle();
	atomic_store(&dev.failover, true);
	for (int i = 0; i < 100; i++)
		verbs_poll(&dev);
	ck_assert(!atomic_load(&dev.failover));
	settle();
	/* At once by a rank that has polled in vain for long. */
	atomic_store(&dev.failover, true);
	verbs_wait(&dev, 1);
	ck_assert(!atomic_load(&dev.failover));
}
END_TEST

/* The ring of channels to look at for credits is empty. */
START_TEST(without_a_channel_a_poll_finds_nothing)
{
	settle();
	verbs_credits_untrack(out);
	for (int i = 0; i < 200; i++)
		ck_assert(!verbs_poll(&dev));
	verbs_credits_track(out);
	settle();
}
END_TEST

/* ---- reads ---- */

static uint8_t read_to[5000];

/* Memory for reads. */
static void hold_memory(void)
{
	static struct ibv_mr m = {.lkey = 9};
	static struct verbs_mr mr = {.base = (uintptr_t)read_to,
				     .len = sizeof(read_to),
				     .written = true,
				     .mr = &m};
	static struct tp_mem mem = {.mr = {&mr}};

	dev.mems = &mem;
}

/* Begin to read a piece; returns the number of its request. */
static uint64_t begin_read(uint64_t q)
{
	struct verbs_reference from = {.addr = 0x5000, .key = {71}};
	struct tp_ref ref;

	memcpy(&ref, &from, sizeof(from));
	ck_assert_int_eq(
		verbs_read(&peer, 0, q, &ref, 0, read_to, sizeof(read_to)),
		DICOMM_IN_PROGRESS);
	ck_assert_int_eq(last.opcode, IBV_WR_RDMA_READ);
	return last.id;
}

static void end_read(uint64_t id)
{
	complete(id, IBV_WC_RDMA_READ, 0);
	ck_assert(verbs_poll(&dev));
}

static void watch_channel(int polls)
{
	for (int i = 0; i < polls; i++)
		ck_assert(!verbs_poll(&dev));
}

/* A message that is read in pieces covers more numbers than there are slots.
 * The credit of the message itself is sent at once; those of later pieces in
 * bulk, whatever else there is to do; those of the last piece at once if they
 * are many, else by the next poll that finds nothing. */
START_TEST(credits_for_pieces_of_a_message_are_sent_in_bulk)
{
	const bool many = _i & 1;
	const uint64_t bulk = VERBS_READS, ahead = 4;
	const uint64_t pieces = 1 + 4 * bulk + (many ? 11 : 3);
	uint64_t id[VERBS_READS];

	dev.config.slots = 16;
	hold_memory();
	see_message(1);
	for (uint64_t q = 1; q <= ahead; q++)
		id[q] = begin_read(q);
	for (uint64_t q = 1; q <= pieces; q++) {
		int before;

		end_read(id[q % VERBS_READS]);
		ck_assert_int_eq(verbs_read_status(&peer, 0, q),
				 DICOMM_SUCCESS);
		before = posts;
		ck_assert_int_eq(verbs_release(&peer, 0, q), DICOMM_SUCCESS);
		ck_assert_int_eq(posts - before, (q > 1 && q % bulk == 1) ||
							 (q == pieces && many));
		if (q + ahead <= pieces)
			id[(q + ahead) % VERBS_READS] = begin_read(q + ahead);
		before = posts;
		watch_channel(_i & 2 ? 2000 : 1);
		ck_assert_int_eq(posts - before,
				 q == 1 || (q == pieces && !many));
	}
	ck_assert_uint_eq(in->granted, pieces);
}
END_TEST

/* The sender may lack these credits, so as many as ever are sent at once. */
START_TEST(messages_between_the_pieces_have_credits_as_ever)
{
	uint64_t next = 2;

	dev.config.slots = 16;
	hold_memory();
	see_message(1);
	in->granted = in->consumed = 1;
	begin_read(35);
	for (uint64_t q = 2; q <= 33; q++) {
		int before;

		for (; next <= in->granted + dev.config.slots; next += 2)
			see_message(next);
		before = posts;
		ck_assert_int_eq(verbs_release(&peer, 0, q), DICOMM_SUCCESS);
		ck_assert_int_eq(posts - before, (q - 1) % 8 == 0);
	}
}
END_TEST

/* The sender of each may wait for its credit before it sends the next. */
START_TEST(each_message_that_is_read_has_a_credit)
{
	uint64_t id[3];

	hold_memory();
	for (uint64_t q = 1; q <= 2; q++) {
		see_message(q);
		id[q] = begin_read(q);
	}
	for (uint64_t q = 1; q <= 2; q++) {
		end_read(id[q]);
		ck_assert_int_eq(verbs_release(&peer, 0, q), DICOMM_SUCCESS);
		watch_channel(1);
		ck_assert_uint_eq(in->granted, q);
	}
}
END_TEST

/* A rank that sleeps, or ends its operation, may read no further piece. */
START_TEST(who_sleeps_tells_what_it_has_read)
{
	uint64_t id;

	hold_memory();
	see_message(1);
	in->granted = in->consumed = 1;
	id = begin_read(2);
	begin_read(3);
	end_read(id);
	ck_assert_int_eq(verbs_release(&peer, 0, 2), DICOMM_SUCCESS);
	watch_channel(1);
	ck_assert_uint_eq(in->granted, 1);
	if (_i)
		verbs_wait(&dev, 1);
	else
		verbs_flush(&dev);
	ck_assert_uint_eq(in->granted, 2);
}
END_TEST

/* While all credit words are in flight, no other can be sent: a rank that will
 * not poll for a while has to know that. A peer that has closed is not waited
 * for. */
START_TEST(who_could_not_tell_all_knows_that)
{
	uint64_t q = 0;

	do {
		ck_assert_uint_lt(q, VERBS_CREDIT_WORDS + 1);
		ck_assert_int_eq(verbs_release(&peer, 0, ++q), DICOMM_SUCCESS);
	} while (verbs_flush(&dev));
	ck_assert_uint_eq(q, VERBS_CREDIT_WORDS + 1);
	ck_assert(!verbs_flush(&dev));
	ck_assert_uint_eq(in->granted, q - 1);
	if (_i)
		atomic_store(&in->peer_closed, true);
	else
		complete(signaled[signals - 1], IBV_WC_RDMA_WRITE, 0);
	ck_assert(verbs_flush(&dev));
	ck_assert_uint_eq(in->granted, _i ? q - 1 : q);
}
END_TEST

/* An abort waits for it to end; but it is not complete. */
START_TEST(a_read_that_ends_after_an_abort_is_only_counted)
{
	uint64_t id;

	hold_memory();
	id = begin_read(1);
	ck_assert_uint_eq(atomic_load(&dev.reads), 1);
	settle();
	atomic_store(&dev.aborted, true);
	complete(id, IBV_WC_RDMA_READ, 0);
	/* By the thread that uses the device, or the one that aborts. */
	if (_i)
		ck_assert(verbs_complete_aborted(&dev));
	else
		ck_assert(!verbs_poll(&dev));
	ck_assert_uint_eq(atomic_load(&dev.reads), 0);
	ck_assert_int_eq(in->reads[1].status, DICOMM_IN_PROGRESS);
	/* Nor does a message arrive any more. */
	complete(1, IBV_WC_RECV_RDMA_WITH_IMM, in->id << 8 | 1);
	ck_assert(!verbs_poll(&dev));
	ck_assert(!verbs_has_arrived(in, 1));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("traffic");
	Suite *suite = suite_create("traffic");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, a_message_is_posted_as_it_was_put, 0,
			    LENGTHS);
	tcase_add_test(tcase, messages_of_all_kinds_do_not_disturb_each_other);
	tcase_add_test(tcase, a_full_queue_is_noticed);
	tcase_add_loop_test(tcase, the_queue_is_never_overrun, 0, 4);
	tcase_add_loop_test(tcase, credits_are_looked_at_when_they_are_needed,
			    0, 2);
	tcase_add_loop_test(tcase, after_the_end_nothing_is_posted, 0,
			    3 * LENGTHS);
	tcase_add_test(tcase, a_channel_after_an_abort_carries_nothing);
	tcase_add_test(tcase, who_has_left_gets_what_credits_allow);
	tcase_add_loop_test(tcase, who_has_left_is_not_reached, 0, 2);
	tcase_add_loop_test(tcase, a_refusal_is_reported, 0, LENGTHS);
	tcase_add_test(tcase, nothing_is_sent_before_there_is_a_channel);
	tcase_add_test(tcase, the_next_credits_are_seen_at_once);
	tcase_add_loop_test(tcase, credits_that_overtook_others_are_seen_soon,
			    1, VERBS_CREDIT_WORDS);
	tcase_add_test(tcase, a_message_is_seen_at_once);
	tcase_add_test(tcase, a_receive_that_was_used_is_posted_again);
	tcase_add_test(tcase, a_queue_pair_of_its_own_receives_again_at_once);
	tcase_add_test(tcase, who_is_busy_looks_around);
	tcase_add_loop_test(tcase, credits_are_sent_though_nothing_is_rare, 0,
			    2);
	tcase_add_test(tcase, a_notice_is_seen_soon);
	tcase_add_loop_test(tcase, who_waits_over_iwarp_asks, 0, 2);
	tcase_add_test(tcase, without_a_channel_a_poll_finds_nothing);
	tcase_add_loop_test(
		tcase, credits_for_pieces_of_a_message_are_sent_in_bulk, 0, 4);
	tcase_add_test(tcase, messages_between_the_pieces_have_credits_as_ever);
	tcase_add_test(tcase, each_message_that_is_read_has_a_credit);
	tcase_add_loop_test(tcase, who_sleeps_tells_what_it_has_read, 0, 2);
	tcase_add_loop_test(tcase, who_could_not_tell_all_knows_that, 0, 2);
	tcase_add_loop_test(
		tcase, a_read_that_ends_after_an_abort_is_only_counted, 0, 2);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
