/* SPDX-License-Identifier: BSD-3-Clause */
/* A channel of two queue pairs, one of which fails: what is sent again, when,
 * and how often. And credits, on a network where a later write may arrive
 * first. The NICs here do nothing by themselves. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/support/runner.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/failure.h"
#include "transports/verbs/channel/loopback.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/connection/exchange.h"
#include "transports/verbs/message/bounce.h"
#include "transports/verbs/message/completion.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/message/memory.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/message/put.h"
#include "transports/verbs/message/read.h"
#include "transports/verbs/message/watchdog.h"
#include "transports/verbs/nic/events.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/registration.h"

#define SLOTS 8
#define STRIDE 4224
#define SHORT 40
#define LONG 2000
#define PEER 1
/* Each NIC numbers its queue pairs by itself: both have this number. */
#define QPN 17

/* ---- NICs ---- */

struct posted {
	int rail;
	uint64_t id, addr;
	enum ibv_wr_opcode opcode;
	bool signalled;
	uint32_t key, lkey, imm, bytes;
	uint8_t data[STRIDE];
};

static struct posted posted[100];
static int refusing; /* index of the NIC that refuses requests; -1: none */
static int n_posted;
static struct ibv_wc coming[2][20]; /* completions of each NIC */
static int n_coming[2];
static enum ibv_qp_state last_state[4];
static bool was_error[4];
/* A completion that the NIC still delivers after its queue pair was stopped,
 * together with the event that it was the last. */
static struct ibv_wc straggler[2];
/* The next event of the NIC. */
static struct ibv_async_event news[2];
static bool grants[2];

static struct ibv_context contexts[2];
static struct ibv_pd pds[2];
static struct ibv_cq cqs[2];
static struct ibv_srq srqs[2];
/* Queue pairs 2 and 3 are loopback queue pairs. After an error, requests on one
 * fail until another takes its place. */
#define LOOPBACK 2
static struct ibv_qp qps[4];
static bool fails[2];
static int made; /* loopback queue pairs made so far */
static struct verbs_nic nics[2];

static void post_one(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct posted *p = &posted[n_posted++];

	*p = (struct posted){.rail = (int)(qp - qps),
			     .id = wr->wr_id,
			     .addr = wr->wr.rdma.remote_addr,
			     .key = wr->wr.rdma.rkey,
			     .opcode = wr->opcode,
			     .signalled = wr->send_flags & IBV_SEND_SIGNALED,
			     .imm = wr->imm_data,
			     .lkey = wr->num_sge ? wr->sg_list[0].lkey : 0};
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (wr->opcode != IBV_WR_RDMA_READ)
			memcpy(p->data + p->bytes, (void *)sge->addr,
			       sge->length);
		p->bytes += sge->length;
	}
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	if (qp - qps == refusing) {
		*bad = wr;
		return EIO;
	}
	for (; wr; wr = wr->next)
		post_one(qp, wr);
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int rail = (int)(cq - cqs), count = n_coming[rail];

	ck_assert_int_le(count, n);
	memcpy(wc, coming[rail], (size_t)count * sizeof(*wc));
	n_coming[rail] = 0;
	return count;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	(void)srq;
	(void)wr;
	(void)bad;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int rail = (int)(qp - qps);

	(void)mask;
	was_error[rail] |= attr->qp_state == IBV_QPS_ERR;
	last_state[rail] = attr->qp_state;
	if (attr->qp_state == IBV_QPS_RESET)
		n_coming[rail] = 0;
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = &qps[LOOPBACK + (pd - pds)];

	(void)attr;
	qp->context = &contexts[pd - pds];
	qp->qp_num = QPN + (uint32_t)++made;
	fails[pd - pds] = false;
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e)
{
	int rail = (int)(context - contexts);

	if (grants[rail]) {
		*e = news[rail];
		grants[rail] = false;
		return 0;
	}
	if (!straggler[rail].wr_id || last_state[rail] != IBV_QPS_ERR)
		return -1;
	coming[rail][n_coming[rail]++] = straggler[rail];
	straggler[rail].wr_id = 0;
	e->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
	e->element.qp = &qps[rail];
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
}

/* The GID of a port does not change here. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	(void)context;
	(void)port;
	(void)index;
	memset(gid, 0, sizeof(*gid));
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	static uint32_t last_key = 1000;
	struct ibv_mr *mr;

	(void)access;
	errno = EIO;
	if (pd && atomic_load(&nics[pd - pds].removed))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = ++last_key;
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

static void complete(int rail, uint64_t id, enum ibv_wc_opcode opcode,
		     enum ibv_wc_status status, uint32_t imm)
{
	coming[rail][n_coming[rail]++] = (struct ibv_wc){.wr_id = id,
							 .status = status,
							 .opcode = opcode,
							 .imm_data = imm,
							 .vendor_err = 0x81,
							 .qp_num = QPN};
}

static void fail_over(int rail, uint64_t id)
{
	complete(rail, id, IBV_WC_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, 0);
}

/* The first request that was posted there ends in an error. */
static void lose_first(int rail)
{
	int i = 0;

	while (posted[i].rail != rail)
		ck_assert_int_lt(++i, n_posted);
	fail_over(rail, posted[i].id);
}

/* ---- a rank, and its channels with another ---- */

static struct tp_device dev;
static struct tp_peer peer;
static struct verbs_channel *out, *in;

static struct verbs_channel *open_channel(bool is_in)
{
	struct verbs_channel *channel =
		verbs_channel_new(&dev, PEER, 0, is_in, 2);
	struct verbs_connect_msg remote = {
		.qps = 2, .addr = 0x100000, .stride = STRIDE, .slots = SLOTS};

	channel->depth = 32;
	strcpy(channel->remote, "elsewhere");
	for (uint32_t i = 0; i < 2; i++) {
		channel->qp[i].rail = &dev.rail[i];
		channel->qp[i].remote_rail = i;
		channel->qp[i].ibv = &qps[i];
		channel->qp[i].qpn = qps[i].qp_num;
		remote.qp[i].rkey = 100 + i;
		remote.qp[i].bytes_per_s = 1000000000;
	}
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
	memset(&dev, 0, sizeof(dev));
	memset(&peer, 0, sizeof(peer));
	dev.config.ranks = 2;
	dev.config.slots = SLOTS;
	dev.eager_bytes = 4096;
	dev.stride = STRIDE;
	dev.max_read = 1 << 30;
	dev.channels = 2 * TP_CLASSES;
	dev.words = aligned_alloc(64, dev.channels * sizeof(*dev.words));
	memset((void *)dev.words, 0, dev.channels * sizeof(*dev.words));
	dev.in = calloc(dev.channels, sizeof(*dev.in));
	dev.out = calloc(dev.channels, sizeof(*dev.out));
	dev.rails = 2;
	for (int i = 0; i < 2; i++) {
		contexts[i].ops.post_send = post_send;
		contexts[i].ops.poll_cq = poll_cq;
		contexts[i].ops.post_srq_recv = post_srq_recv;
		cqs[i].context = srqs[i].context = qps[i].context =
			&contexts[i];
		qps[i].qp_num = QPN;
		nics[i].bytes_per_s = 1000000000;
		nics[i].context = &contexts[i];
		nics[i].port = (uint8_t)(i + 1);
		nics[i].pd = &pds[i];
		atomic_store(&nics[i].fatal, NULL);
		atomic_store(&nics[i].removed, false);
		strcpy(nics[i].name, i ? "fake1" : "fake0");
		dev.rail[i].nic = &nics[i];
		dev.rail[i].cq = &cqs[i];
		dev.rail[i].srq = &srqs[i];
		dev.rail[i].cqe = 64;
		n_coming[i] = 0;
		was_error[i] = false;
		last_state[i] = IBV_QPS_RTS;
	}
	n_posted = 0;
	refusing = -1;
	ck_assert_int_eq(verbs_pool_open(&dev), DICOMM_SUCCESS);
	peer.dev = &dev;
	peer.rank = PEER;
	dev.peers = &peer;
	out = peer.out[0] = open_channel(false);
	in = peer.in[0] = open_channel(true);
	atomic_store(&dev.out[out->id], out);
	atomic_store(&dev.in[in->id], in);
}

/* Message number q; each byte is q. */
static void put(uint64_t q, uint32_t len)
{
	uint8_t body[LONG];

	memset(body, (int)q, len);
	ck_assert_int_eq(verbs_put(&peer, 0, q, 5, TP_DATA, body, len),
			 DICOMM_SUCCESS);
}

static void check_message(const struct posted *p, uint64_t q, uint32_t len)
{
	ck_assert_uint_eq(p->bytes, sizeof(struct verbs_head) + len);
	ck_assert_uint_eq(ntohl(p->imm) & 0xff, q);
	ck_assert_uint_eq(p->addr - 0x100000, q % SLOTS * STRIDE + 8);
	ck_assert_uint_eq(p->key, 100u + (uint32_t)p->rail);
	for (uint32_t i = 0; i < len; i++)
		ck_assert_uint_eq(p->data[sizeof(struct verbs_head) + i], q);
}

static void notice(struct verbs_channel *channel, uint32_t index,
		   uint64_t received_to, uint64_t received_mask)
{
	struct verbs_connect_msg msg = {.notice_qp = index,
					.received_to = received_to,
					.received_mask = received_mask};

	verbs_lock();
	verbs_store_notice(channel, &msg);
	verbs_unlock();
}

/* Long enough for a NIC to deliver its last message. */
static void poll_some(void)
{
	for (int i = 0; i < 5 || (atomic_load(&dev.failover) && i < 500); i++) {
		verbs_poll(&dev);
		if (i >= 5)
			usleep(100);
	}
}

/* ---- tests ---- */

/* Lengths of six messages: short ones are in the replay buffer, long ones in
 * bounce buffers. */
static uint32_t length(uint64_t q)
{
	return q % 3 == 0 ? LONG : SHORT;
}

START_TEST(what_has_not_come_is_sent_again_after_the_fence)
{
	uint64_t lost[6], mask = 0;
	int n = 0, before;

	for (uint64_t q = 1; q <= 6; q++) {
		put(q, length(q));
		check_message(&posted[n_posted - 1], q, length(q));
		if (posted[n_posted - 1].rail == 0)
			lost[n++] = q;
	}
	ck_assert_int_ge(n, 2);
	ck_assert_int_lt(n, 6);
	lose_first(0);
	before = n_posted;
	poll_some();
	/* Stopped for good; but the peer may still receive what is in
	 * flight. */
	ck_assert(was_error[0]);
	ck_assert_int_eq(last_state[0], IBV_QPS_RESET);
	ck_assert_int_eq(n_posted, before);
	ck_assert_int_eq(out->why, DICOMM_SUCCESS);
	/* New messages need not wait. */
	put(7, SHORT);
	ck_assert_int_eq(posted[n_posted - 1].rail, 1);
	before = n_posted;
	/* The first of the lost messages has arrived after all. */
	for (uint64_t q = 1; q <= 7; q++) {
		bool is_lost = false;

		for (int i = 1; i < n; i++)
			is_lost |= lost[i] == q;
		mask |= (uint64_t)!is_lost << (q - 1);
	}
	notice(out, 0, 0, mask);
	poll_some();
	ck_assert_int_eq(n_posted, before + n - 1);
	for (int i = 1; i < n; i++)
		for (int k = 0; k < n - 1; k++)
			if ((ntohl(posted[before + k].imm) & 0xff) == lost[i])
				check_message(&posted[before + k], lost[i],
					      length(lost[i]));
	for (int k = before; k < n_posted; k++)
		ck_assert_int_eq(posted[k].rail, 1);
	/* In the end all bounce buffers are free. */
	complete(1, posted[n_posted - 1].id, IBV_WC_RDMA_WRITE, IBV_WC_SUCCESS,
		 0);
	for (int k = 0; k < n_posted - 1; k++)
		if (posted[k].rail == 1 && posted[k].bytes > LONG)
			complete(1, posted[k].id, IBV_WC_RDMA_WRITE,
				 IBV_WC_SUCCESS, 0);
	poll_some();
	ck_assert_uint_eq(dev.pool.nspare, dev.pool.count);
}
END_TEST

/* The next request that is posted is a credit. */
static void wait_for_notice(int rail, uint64_t seq)
{
	uint64_t granted;

	for (int i = 0; i < 3000 && !n_posted; i++)
		verbs_poll(&dev);
	ck_assert_int_eq(n_posted, 1);
	ck_assert_int_eq(posted[0].rail, rail);
	memcpy(&granted, posted[0].data, sizeof(granted));
	ck_assert_uint_eq(granted, seq);
}

/* A driver may refuse requests on a queue pair that has failed; the kernel may
 * refuse them for a NIC that was removed. */
START_TEST(what_a_nic_refuses_goes_by_the_other)
{
	static uint8_t to[100000];
	struct verbs_reference from = {.addr = 0x5000, .key = {71, 72}};
	const struct transport *verbs = transport_find("verbs");
	struct tp_mem *mem;
	struct tp_ref ref;
	uint64_t seen = 0;

	refusing = _i;
	for (uint64_t q = 1; q <= 6; q++)
		put(q, length(q));
	poll_some();
	ck_assert_int_eq(out->qp[_i].state, QP_STOPPED);
	ck_assert_int_eq(out->why, DICOMM_SUCCESS);
	ck_assert_ptr_ne(strstr(out->text, "post a request: "), NULL);
	notice(out, (uint32_t)_i, 0, 0);
	poll_some();
	ck_assert_int_eq(n_posted, 6);
	for (int i = 0; i < n_posted; i++) {
		uint64_t q = ntohl(posted[i].imm) & 0xff;

		ck_assert_int_eq(posted[i].rail, !_i);
		check_message(&posted[i], q, length(q));
		seen |= UINT64_C(1) << q;
	}
	ck_assert_uint_eq(seen, 0x7e);
	for (int i = 0; i < 6; i++)
		complete(!_i, posted[i].id, IBV_WC_RDMA_WRITE, IBV_WC_SUCCESS,
			 0);
	poll_some();
	ck_assert_uint_eq(dev.pool.nspare, dev.pool.count);

	/* The same for reads, */
	n_posted = 0;
	ck_assert_int_eq(verbs->mem_reg(&dev, to, sizeof(to), true, &mem),
			 DICOMM_SUCCESS);
	memcpy(&ref, &from, sizeof(from));
	for (uint64_t q = 1; q <= 2; q++)
		ck_assert_int_eq(
			verbs_read(&peer, 0, q, &ref, 0, to, sizeof(to)),
			DICOMM_IN_PROGRESS);
	poll_some();
	ck_assert_int_eq(n_posted, 2);
	ck_assert_int_eq(posted[0].rail, !_i);
	ck_assert_int_eq(posted[1].rail, !_i);
	ck_assert_uint_eq(atomic_load(&dev.reads), 2);
	for (int i = 0; i < 2; i++)
		complete(!_i, posted[i].id, IBV_WC_RDMA_READ, IBV_WC_SUCCESS,
			 0);
	poll_some();
	for (uint64_t q = 1; q <= 2; q++)
		ck_assert_int_eq(verbs_read_status(&peer, 0, q),
				 DICOMM_SUCCESS);
	/* and for credits. */
	notice(in, (uint32_t)_i, 0, 0);
	n_posted = 0;
	ck_assert_int_eq(verbs_release(&peer, 0, 5), DICOMM_SUCCESS);
	poll_some();
	ck_assert(verbs_flush(&dev));
	wait_for_notice(!_i, 5);
	verbs->mem_dereg(&dev, mem);
}
END_TEST

/* Credits that were refused have not been sent. */
START_TEST(credits_that_a_nic_refuses_are_sent_by_the_other)
{
	refusing = 0;
	ck_assert_int_eq(verbs_release(&peer, 0, 5), DICOMM_SUCCESS);
	verbs_flush(&dev);
	ck_assert_int_eq(n_posted, 0);
	poll_some();
	notice(in, 0, 0, 0);
	wait_for_notice(1, 5);
	/* Without the other NIC the channel fails. */
	refusing = 1;
	verbs_release(&peer, 0, 10);
	verbs_flush(&dev);
	ck_assert_int_eq(in->why, DICOMM_ERR_SYSTEM);
}
END_TEST

/* Everything that was posted has arrived, as far as this side knows. */
static void complete_all(void)
{
	for (int i = 0; i < n_posted; i++)
		if (posted[i].signalled)
			complete(posted[i].rail, posted[i].id,
				 IBV_WC_RDMA_WRITE, IBV_WC_SUCCESS, 0);
	n_posted = 0;
	poll_some();
}

/* A rank that leaves may have to send its credits again. */
START_TEST(credits_have_arrived_when_a_nic_says_so)
{
	bool (*landed)(struct tp_device *) = transport_find("verbs")->delivered;

	ck_assert(landed(&dev));
	ck_assert_int_eq(verbs_release(&peer, 0, 5), DICOMM_SUCCESS);
	ck_assert(verbs_flush(&dev));
	ck_assert_int_eq(n_posted, 1);
	/* It posts a request, as no completion would tell. */
	ck_assert(!landed(&dev));
	ck_assert(!landed(&dev));
	ck_assert_int_eq(n_posted, 2);
	ck_assert(posted[1].signalled);
	if (_i) {
		fail_over(0, posted[0].id);
		n_posted = 0;
		poll_some();
		ck_assert_int_eq(in->qp[0].state, QP_STOPPED);
		/* Flushed, but there is no queue pair to send on: not
		 * delivered. */
		ck_assert(verbs_flush(&dev));
		ck_assert(!landed(&dev));
		notice(in, 0, 0, 0);
		wait_for_notice(1, 5);
		ck_assert(!landed(&dev));
	}
	complete_all();
	ck_assert(landed(&dev));
	/* A failed channel is not waited for. */
	ck_assert_int_eq(verbs_release(&peer, 0, 10), DICOMM_SUCCESS);
	verbs_flush(&dev);
	ck_assert(!landed(&dev));
	atomic_store(&in->peer_closed, true);
	ck_assert(landed(&dev));
}
END_TEST

/* A write and its announcement: both, in this order, or none. */
static void check_pair(const struct posted *p, uint64_t q)
{
	ck_assert_int_eq(p[0].opcode, IBV_WR_RDMA_WRITE);
	ck_assert_uint_eq(p[0].bytes, sizeof(struct verbs_head) + LONG);
	ck_assert_uint_eq(p[0].addr - 0x100000, q % SLOTS * STRIDE + 8);
	ck_assert_int_eq(p[1].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	ck_assert_uint_eq(p[1].bytes, 0);
	ck_assert_uint_eq(ntohl(p[1].imm) & 0xff, q);
	ck_assert_int_eq(p[0].rail, p[1].rail);
	ck_assert_uint_eq(p[1].key, 100u + (uint32_t)p[1].rail);
}

START_TEST(a_message_announced_by_a_second_write_is_sent_again_with_it)
{
	int first;

	out->notify_above = LONG - 1;
	put(1, LONG);
	ck_assert_int_eq(n_posted, 2);
	check_pair(posted, 1);
	put(2, SHORT);
	ck_assert_int_eq(n_posted, 3);
	ck_assert_int_eq(posted[2].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	check_message(&posted[2], 2, SHORT);
	first = posted[0].rail;
	ck_assert_int_eq(posted[2].rail, !first);
	fail_over(first, posted[0].id);
	poll_some();
	notice(out, (uint32_t)first, 0, 2);
	poll_some();
	ck_assert_int_eq(n_posted, 5);
	check_pair(&posted[3], 1);
	ck_assert_int_eq(posted[3].rail, !first);
	complete(!first, posted[4].id, IBV_WC_RDMA_WRITE, IBV_WC_SUCCESS, 0);
	poll_some();
	ck_assert_uint_eq(dev.pool.nspare, dev.pool.count);
	ck_assert_uint_eq(out->qp[!first].posted, out->qp[!first].done);
}
END_TEST

START_TEST(the_last_queue_pair_takes_the_channel_with_it)
{
	for (uint64_t q = 1; q <= 6; q++)
		put(q, length(q));
	lose_first(0);
	poll_some();
	notice(out, 0, 0, 0);
	poll_some();
	fail_over(1, posted[n_posted - 1].id);
	poll_some();
	ck_assert_int_eq(out->why, DICOMM_ERR_REMOTE);
	ck_assert_str_eq(
		out->text,
		"verbs fake1 port 2 gid ::: rank 1 (elsewhere): queue pair "
		"0x11: write of 2000 bytes: transport retry counter exceeded "
		"(vendor error 0x81): no answer: is the other rank alive, its "
		"link up, and RoCE's UDP port 4791 open between them? "
		"DICOMM_IB_TIMEOUT and DICOMM_IB_RETRY_CNT say how long to "
		"try");
	ck_assert_int_eq(verbs_put(&peer, 0, 7, 5, TP_DATA, "x", 1),
			 DICOMM_ERR_REMOTE);
}
END_TEST

START_TEST(a_fault_of_this_side_is_no_loss)
{
	put(1, SHORT);
	complete(posted[0].rail, posted[0].id, IBV_WC_RDMA_WRITE,
		 IBV_WC_LOC_PROT_ERR, 0);
	poll_some();
	ck_assert_int_eq(out->why, DICOMM_ERR_SYSTEM);
}
END_TEST

static void tell(int rail, enum ibv_event_type type)
{
	news[rail] = (struct ibv_async_event){.event_type = type};
	if (type != IBV_EVENT_DEVICE_FATAL)
		news[rail].element.qp = &qps[rail];
	grants[rail] = true;
	verbs_nic_events(&nics[rail]);
}

static const enum ibv_event_type faults[] = {
	IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
	IBV_EVENT_CQ_ERR,   IBV_EVENT_SRQ_ERR,    IBV_EVENT_DEVICE_FATAL};
#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

/* A NIC reports that it was removed, or cannot go on. */
START_TEST(what_a_nic_tells_of_itself_ends_what_uses_it)
{
	const char *text = ibv_event_type_str(faults[_i]);
	int rank = -1;

	for (int i = 0; i < 2; i++)
		qps[i].qp_context = &out->qp[i].events;
	for (uint64_t q = 1; q <= 6; q++)
		put(q, length(q));
	tell(0, faults[_i]);
	ck_assert_int_eq(verbs_broken(&dev, &rank), DICOMM_SUCCESS);
	ck_assert_int_eq(out->qp[0].state, QP_FAILED);
	ck_assert_int_eq(out->qp[1].state, QP_GOOD);
	ck_assert_int_eq(out->why, DICOMM_SUCCESS);
	ck_assert_ptr_ne(strstr(out->text, "verbs fake0 port 1 "), NULL);
	ck_assert_ptr_ne(strstr(out->text, text), NULL);
	tell(1, faults[_i]);
	/* The peer's close might arrive first. */
	ck_assert_int_eq(verbs_broken(&dev, &rank), DICOMM_SUCCESS);
	ck_assert_int_eq(verbs_broken(&dev, &rank), DICOMM_ERR_SYSTEM);
	ck_assert_int_eq(rank, PEER);
	ck_assert_ptr_ne(strstr(out->text, "verbs fake1 port 2 "), NULL);
	ck_assert_ptr_ne(strstr(out->text, text), NULL);
	ck_assert_int_eq(verbs_put(&peer, 0, 7, 5, TP_DATA, "x", 1),
			 DICOMM_ERR_SYSTEM);
}
END_TEST

/* Destination of reads, and the parts that they are read in. */
static uint8_t target[100000];
static struct verbs_mr target_mrs[2];
static struct tp_mem target_hold;
static const struct verbs_reference source = {.addr = 0x5000, .key = {71, 72}};

static void hold_both(struct tp_ref *ref)
{
	for (int i = 0; i < 2; i++) {
		target_mrs[i] = (struct verbs_mr){
			.base = (uintptr_t)target,
			.len = sizeof(target),
			.written = true,
			.mr = ibv_reg_mr(NULL, target, sizeof(target), 0)};
		target_hold.mr[i] = &target_mrs[i];
	}
	dev.mems = &target_hold;
	memcpy(ref, &source, sizeof(source));
}

START_TEST(a_read_begins_anew_at_once)
{
	struct tp_ref ref;
	int first;

	hold_both(&ref);
	ck_assert_int_eq(
		verbs_read(&peer, 0, 1, &ref, 64, target, sizeof(target)),
		DICOMM_IN_PROGRESS);
	first = posted[0].rail;
	ck_assert_uint_eq(posted[0].key, source.key[first]);
	fail_over(first, posted[0].id);
	poll_some();
	ck_assert_int_eq(n_posted, 2);
	ck_assert_int_eq(posted[1].rail, !first);
	ck_assert_uint_eq(posted[1].key, source.key[!first]);
	ck_assert_uint_eq(posted[1].lkey, target_mrs[!first].mr->lkey);
	ck_assert_uint_eq(posted[1].addr, 0x5000 + 64);
	ck_assert_uint_eq(posted[1].bytes, sizeof(target));
	ck_assert_int_eq(verbs_read_status(&peer, 0, 1), DICOMM_IN_PROGRESS);
	/* Later completions of the failed queue pair are ignored. */
	complete(first, posted[0].id, IBV_WC_RDMA_READ, IBV_WC_SUCCESS, 0);
	poll_some();
	ck_assert_int_eq(verbs_read_status(&peer, 0, 1), DICOMM_IN_PROGRESS);
	complete(!first, posted[1].id, IBV_WC_RDMA_READ, IBV_WC_SUCCESS, 0);
	poll_some();
	ck_assert_int_eq(verbs_read_status(&peer, 0, 1), DICOMM_SUCCESS);
	ck_assert_uint_eq(atomic_load(&dev.reads), 0);
}
END_TEST

/* What NIC `rail` completes next: reads, posted in turn, and their flushes. */
static void complete_reads(void)
{
	for (int i = 0; i < n_posted; i++) {
		const struct posted *p = &posted[i];
		int rail = p->rail % LOOPBACK;
		bool bad = p->rail >= LOOPBACK && fails[rail];

		ck_assert_int_eq(p->opcode, IBV_WR_RDMA_READ);
		complete(rail, p->id, IBV_WC_RDMA_READ,
			 bad ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS, 0);
		coming[rail][n_coming[rail] - 1].qp_num = qps[p->rail].qp_num;
	}
	n_posted = 0;
	poll_some();
}

static dicomm_result_t read_flushed(enum tp_class c, uint64_t seq)
{
	struct tp_ref ref;

	memcpy(&ref, &source, sizeof(source));
	n_posted = 0;
	ck_assert_int_eq(
		verbs_read(&peer, c, seq, &ref, 0, target, sizeof(target)),
		DICOMM_IN_PROGRESS);
	for (int i = 0; i < 20 && n_posted; i++)
		complete_reads();
	return verbs_read_status(&peer, c, seq);
}

/* A NIC that reads also flushes, over its loopback queue pair. If that fails,
 * another NIC reads again; the next channel has a new loopback queue pair. In
 * the second round, requests are refused instead. */
START_TEST(a_nic_that_could_not_flush_is_connected_to_itself_again)
{
	struct verbs_channel *other = open_channel(true);
	struct tp_ref ref;

	made = 0;
	other->id++;
	other->request = verbs_request_base(other);
	peer.in[1] = other;
	atomic_store(&dev.in[other->id], other);
	hold_both(&ref);
	target_hold.flushed = true;
	for (int i = 0; i < 2; i++) {
		nics[i].gids = 1;
		nics[i].port_attr.active_mtu = IBV_MTU_1024;
		nics[i].attr.max_qp_wr = nics[i].attr.max_cqe = 1024;
		dev.rail[i].cqe = 1024;
		dev.rail[i].words_mr = target_mrs[i].mr;
		ck_assert_int_eq(verbs_loopback_open(&dev, &dev.rail[i]),
				 DICOMM_SUCCESS);
	}
	ck_assert_int_eq(made, 2);
	for (uint64_t q = 1; q <= 4; q++)
		ck_assert_int_eq(read_flushed(0, q), DICOMM_SUCCESS);
	ck_assert_ptr_eq(verbs_good_qp(in), &in->qp[0]);

	if (_i)
		refusing = LOOPBACK;
	else
		fails[0] = true;
	for (uint64_t q = 5; q <= 8; q++)
		ck_assert_int_eq(read_flushed(0, q), DICOMM_SUCCESS);
	ck_assert_int_eq(in->qp[0].state, QP_STOPPED);
	ck_assert_int_eq(in->why, DICOMM_SUCCESS);
	ck_assert_int_eq(made, 3);
	ck_assert_int_eq(last_state[LOOPBACK], IBV_QPS_RTS);

	refusing = -1;
	for (uint64_t q = 1; q <= 4; q++)
		ck_assert_int_eq(read_flushed(1, q), DICOMM_SUCCESS);
	ck_assert_int_eq(other->qp[0].state, QP_GOOD);
	ck_assert_uint_eq(atomic_load(&dev.reads), 0);
	ck_assert_int_eq(made, 3);
}
END_TEST

/* Nothing can be registered with the removed NIC; the other one works. */
START_TEST(memory_is_held_for_those_nics_that_are_there)
{
	const struct transport *verbs = transport_find("verbs");
	struct verbs_reference from = {.addr = 0x5000, .key = {71, 72}}, to;
	static uint8_t memory[100000];
	struct tp_mem *mem;
	struct tp_ref ref;

	tell(_i, IBV_EVENT_DEVICE_FATAL);
	ck_assert_int_eq(
		verbs->mem_reg(&dev, memory, sizeof(memory), true, &mem),
		DICOMM_SUCCESS);
	ck_assert(
		verbs_offer(&peer, memory, sizeof(memory), TP_WANT_COPY, &ref));
	memcpy(&to, &ref, sizeof(to));
	ck_assert_uint_eq(to.key[!_i], mem->mr[!_i]->mr->rkey);
	/* Beyond the registered memory. */
	ck_assert(!verbs_offer(&peer, memory + 1, sizeof(memory), TP_WANT_COPY,
			       &ref));
	verbs_qp_fail(&in->qp[_i], DICOMM_ERR_SYSTEM, "a test", "");
	memcpy(&ref, &from, sizeof(from));
	ck_assert_int_eq(
		verbs_read(&peer, 0, 1, &ref, 0, memory, sizeof(memory)),
		DICOMM_IN_PROGRESS);
	ck_assert_int_eq(posted[0].rail, !_i);
	ck_assert_uint_eq(posted[0].lkey, mem->mr[!_i]->mr->lkey);
	verbs->mem_dereg(&dev, mem);
	ck_assert_ptr_null(dev.mems);
	/* Without any NIC, nothing works. */
	tell(!_i, IBV_EVENT_DEVICE_FATAL);
	ck_assert_int_ne(
		verbs->mem_reg(&dev, memory, sizeof(memory), true, &mem),
		DICOMM_SUCCESS);
}
END_TEST

/* A message is in its slot; its completion comes next. */
static void land(int rail, uint64_t q)
{
	struct tp_line *line =
		(struct tp_line *)(in->slots + q % SLOTS * STRIDE);

	line->kind = TP_DATA;
	complete(rail, 1, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS,
		 htonl(in->id << 8 | (uint32_t)q));
}

static void arrive(int rail, uint64_t q)
{
	land(rail, q);
	poll_some();
}

/* Otherwise its receive would be lost, and others like it. */
START_TEST(what_a_stopped_queue_pair_brings_at_last_counts)
{
	uint32_t room = dev.rail[0].batch_room;

	arrive(0, 1);
	land(0, 2);
	straggler[0] = coming[0][--n_coming[0]];
	qps[0].qp_context = &in->qp[0].events;
	verbs_qp_fail(&in->qp[0], DICOMM_ERR_SYSTEM, "a test", "");
	poll_some();
	ck_assert_int_eq(last_state[0], IBV_QPS_RESET);
	ck_assert(verbs_has_arrived(in, 2));
	ck_assert_uint_eq(dev.rail[0].batch_room, room - 2);
	/* Nothing after that. */
	arrive(0, 3);
	ck_assert(!verbs_has_arrived(in, 3));
}
END_TEST

START_TEST(the_other_one_goes_on_while_a_queue_pair_ends)
{
	verbs_qp_fail(&in->qp[0], DICOMM_ERR_SYSTEM, "a test", "");
	verbs_poll(&dev);
	ck_assert(was_error[0]);
	ck_assert_int_eq(last_state[0], IBV_QPS_ERR);
	land(1, 1);
	verbs_poll(&dev);
	ck_assert(verbs_has_arrived(in, 1));
	poll_some();
	ck_assert_int_eq(last_state[0], IBV_QPS_RESET);
}
END_TEST

/* At the sender, a late write would undo a later credit. */
START_TEST(credits_wait_for_the_fence_too)
{
	for (uint64_t q = 1; q <= 3; q++)
		arrive((int)q % 2, q);
	ck_assert(verbs_has_arrived(in, 3));
	verbs_qp_fail(&in->qp[0], DICOMM_ERR_SYSTEM, "a test", "");
	poll_some();
	ck_assert_int_eq(last_state[0], IBV_QPS_RESET);
	n_posted = 0;
	for (uint64_t q = 4; q <= 6; q++)
		arrive(1, q);
	ck_assert_int_eq(verbs_release(&peer, 0, 6), DICOMM_SUCCESS);
	poll_some();
	ck_assert_int_eq(n_posted, 0);
	/* The notice said that this message had not arrived. */
	arrive(0, 7);
	ck_assert(!verbs_has_arrived(in, 7));
	notice(in, 0, 0, 0);
	wait_for_notice(1, 6);
}
END_TEST

/* ---- credits on a network where packets overtake each other ---- */

static void release(uint64_t q)
{
	ck_assert_int_eq(verbs_release(&peer, 0, q), DICOMM_SUCCESS);
	verbs_flush(&dev);
}

/* The peer's receiver writes credits. */
static void land_credits(const struct posted *p)
{
	ck_assert_int_eq(p->opcode, IBV_WR_RDMA_WRITE);
	memcpy((uint8_t *)out->words + (p->addr - in->remote_addr), p->data,
	       p->bytes);
}

static void check_limit(uint64_t seq)
{
	ck_assert_int_eq(verbs_put(&peer, 0, seq, 5, TP_DATA, "x", 1),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(verbs_put(&peer, 0, seq + 1, 5, TP_DATA, "x", 1),
			 DICOMM_AGAIN);
}

/* Messages without bytes are counted, but not sent, so numbers may leap. */
static const uint64_t released[] = {1, 2, 3, 300, 70000, 70003};
#define TOLD ((int)(sizeof(released) / sizeof(*released)))

START_TEST(credits_may_overtake_each_other)
{
	const int orders[][TOLD] = {{0, 1, 2, 3, 4, 5},
				    {5, 4, 3, 2, 1, 0},
				    {3, 0, 5, 1, 4, 2},
				    {1, 2, 0, 5, 3, 4}};

	for (int i = 0; i < TOLD; i++)
		release(released[i]);
	ck_assert_int_eq(n_posted, TOLD);
	for (int i = 0; i < TOLD; i++)
		land_credits(&posted[orders[_i][i]]);
	poll_some();
	ck_assert_uint_eq(atomic_load(&out->released), released[TOLD - 1]);
	check_limit(released[TOLD - 1] + SLOTS);
}
END_TEST

/* A thousand credits on a network that delays some as long as it may: until
 * their completion. */
START_TEST(a_late_credit_undoes_none)
{
	struct posted closing[VERBS_CREDIT_WORDS];
	unsigned state = (unsigned)_i;
	int n_late = 0, most = 0;

	for (uint64_t q = 1; q <= 1000; q++) {
		n_posted = 0;
		release(q);
		ck_assert_int_le(n_posted, 1);
		if (!n_posted || rand_r(&state) % 8 == 0) {
			/* They arrive in any order; then they complete. */
			while (n_late) {
				int i = rand_r(&state) % n_late;

				land_credits(&closing[i]);
				if (closing[i].signalled)
					complete(0, closing[i].id,
						 IBV_WC_RDMA_WRITE,
						 IBV_WC_SUCCESS, 0);
				closing[i] = closing[--n_late];
			}
			verbs_complete(&dev);
		}
		if (n_posted)
			closing[n_late++] = posted[0];
		most = n_late > most ? n_late : most;
	}
	ck_assert_int_eq(most, VERBS_CREDIT_WORDS);
	while (n_late)
		land_credits(&closing[--n_late]);
	n_posted = 0;
	verbs_flush(&dev);
	if (n_posted)
		land_credits(&posted[0]);
	poll_some();
	check_limit(1000 + SLOTS);
}
END_TEST

/* Credits that could not be sent are sent later. */
START_TEST(credits_wait_for_those_that_have_not_landed)
{
	for (uint64_t q = 1; q <= VERBS_CREDIT_WORDS + 4; q++)
		release(q);
	ck_assert_int_eq(n_posted, VERBS_CREDIT_WORDS);
	poll_some();
	ck_assert_int_eq(n_posted, VERBS_CREDIT_WORDS);
	for (int i = 0; i < VERBS_CREDIT_WORDS; i++)
		if (posted[i].signalled)
			complete(0, posted[i].id, IBV_WC_RDMA_WRITE,
				 IBV_WC_SUCCESS, 0);
	poll_some();
	ck_assert_int_eq(n_posted, VERBS_CREDIT_WORDS + 1);
	ck_assert_uint_eq(posted[VERBS_CREDIT_WORDS].addr, posted[0].addr);
	for (int i = 0; i <= VERBS_CREDIT_WORDS; i++)
		land_credits(&posted[i]);
	check_limit(VERBS_CREDIT_WORDS + 4 + SLOTS);
}
END_TEST

static void poll_times(int n)
{
	while (n--)
		verbs_poll(&dev);
}

/* The next credit word is looked at often. */
START_TEST(the_next_credits_are_seen_at_once)
{
	for (uint64_t q = 1; q <= 3 * VERBS_CREDIT_WORDS; q++) {
		n_posted = 0;
		release(q);
		ck_assert_int_eq(n_posted, 1);
		verbs_poll(&dev);
		ck_assert_uint_eq(atomic_load(&out->released), q - 1);
		land_credits(&posted[0]);
		poll_times(VERBS_POLLS_PER_CHECK);
		ck_assert_uint_eq(atomic_load(&out->released), q);
		if (posted[0].signalled)
			complete(0, posted[0].id, IBV_WC_RDMA_WRITE,
				 IBV_WC_SUCCESS, 0);
		verbs_complete(&dev);
	}
}
END_TEST

/* Credits before them are late, or never come. */
START_TEST(credits_that_overtook_others_are_seen_soon)
{
	uint64_t newest = (uint64_t)_i + 1;

	for (uint64_t q = 1; q <= newest; q++)
		release(q);
	ck_assert_int_eq(n_posted, _i + 1);
	land_credits(&posted[_i]);
	poll_times(VERBS_CREDIT_CHECKS * VERBS_POLLS_PER_CHECK);
	ck_assert_uint_eq(atomic_load(&out->released), newest);
	for (int i = 0; i < _i; i++)
		land_credits(&posted[i]);
	poll_times(VERBS_CREDIT_CHECKS * VERBS_POLLS_PER_CHECK);
	ck_assert_uint_eq(atomic_load(&out->released), newest);
	/* Then the next word is the right one. */
	for (int i = 0; i <= _i; i++)
		if (posted[i].signalled)
			complete(0, posted[i].id, IBV_WC_RDMA_WRITE,
				 IBV_WC_SUCCESS, 0);
	verbs_complete(&dev);
	n_posted = 0;
	release(newest + 1);
	ck_assert_int_eq(n_posted, 1);
	land_credits(&posted[0]);
	poll_times(VERBS_POLLS_PER_CHECK);
	ck_assert_uint_eq(atomic_load(&out->released), newest + 1);
}
END_TEST

/* The first credit of another queue pair is in the first word. */
START_TEST(credits_of_another_queue_pair_are_seen_soon)
{
	for (uint64_t q = 1; q <= 3; q++) {
		release(q);
		land_credits(&posted[q - 1]);
	}
	poll_some();
	ck_assert_uint_eq(atomic_load(&out->released), 3);
	verbs_qp_fail(&in->qp[0], DICOMM_ERR_SYSTEM, "a test", "");
	poll_some();
	n_posted = 0;
	notice(in, 0, 0, 0);
	poll_some();
	release(4);
	ck_assert_int_gt(n_posted, 0);
	ck_assert_int_le(n_posted, 2);
	ck_assert_uint_eq(posted[0].addr, in->remote_addr);
	for (int i = 0; i < n_posted; i++)
		land_credits(&posted[i]);
	poll_times(VERBS_CREDIT_CHECKS * VERBS_POLLS_PER_CHECK);
	ck_assert_uint_eq(atomic_load(&out->released), 4);
}
END_TEST

#define CROWD 40 /* more than one poll looks at */
#define LAST 5   /* index of the last one */

/* The rarer looks, at all words, also reach each channel; channels may end in
 * any order. */
START_TEST(credits_of_many_channels_are_seen_soon)
{
	struct verbs_channel *channels[CROWD];
	ptrdiff_t next;

	free(dev.words);
	dev.words = aligned_alloc(64, CROWD * sizeof(*dev.words));
	verbs_credits_untrack(out);
	ck_assert_ptr_null(dev.credit_cursor);
	for (int i = 0; i < CROWD; i++) {
		channels[i] =
			verbs_channel_new(&dev, i / TP_CLASSES,
					  (uint32_t)(i % TP_CLASSES), false, 1);
		verbs_credits_track(channels[i]);
		atomic_store(&channels[i]->words->word[3], 100 + (uint64_t)i);
	}
	poll_times((VERBS_CREDIT_CHECKS * 3 + CROWD) * VERBS_POLLS_PER_CHECK);
	for (int i = 0; i < CROWD; i++)
		ck_assert_uint_eq(atomic_load(&channels[i]->released),
				  100 + (uint64_t)i);
	for (int i = 0; i < CROWD - 1; i++) {
		int k = i * 7 % CROWD;

		/* The one where the last poll stopped, and others. */
		if (i % 2)
			k = (int)(dev.credit_cursor->id);
		if (!channels[k] || k == LAST)
			continue;
		verbs_credits_untrack(channels[k]);
		free(channels[k]);
		channels[k] = NULL;
		next = channels[LAST]->next_word - channels[LAST]->words->word;
		atomic_store(&channels[LAST]->words->word[next],
			     1000 + (uint64_t)i);
		poll_times(CROWD);
		ck_assert_uint_eq(atomic_load(&channels[LAST]->released),
				  1000 + (uint64_t)i);
	}
	for (int i = 0; i < CROWD; i++) {
		if (!channels[i])
			continue;
		verbs_credits_untrack(channels[i]);
		free(channels[i]);
	}
	ck_assert_ptr_null(dev.credit_cursor);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("loss");
	Suite *suite = suite_create("loss");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, what_has_not_come_is_sent_again_after_the_fence);
	tcase_add_loop_test(tcase, what_a_nic_refuses_goes_by_the_other, 0, 2);
	tcase_add_test(tcase, credits_that_a_nic_refuses_are_sent_by_the_other);
	tcase_add_loop_test(tcase, credits_have_arrived_when_a_nic_says_so, 0,
			    2);
	tcase_add_test(
		tcase,
		a_message_announced_by_a_second_write_is_sent_again_with_it);
	tcase_add_test(tcase, the_last_queue_pair_takes_the_channel_with_it);
	tcase_add_test(tcase, a_fault_of_this_side_is_no_loss);
	tcase_add_loop_test(tcase, what_a_nic_tells_of_itself_ends_what_uses_it,
			    0, FAULTS);
	tcase_add_test(tcase, a_read_begins_anew_at_once);
	tcase_add_loop_test(
		tcase, a_nic_that_could_not_flush_is_connected_to_itself_again,
		0, 2);
	tcase_add_loop_test(tcase, memory_is_held_for_those_nics_that_are_there,
			    0, 2);
	tcase_add_test(tcase, what_a_stopped_queue_pair_brings_at_last_counts);
	tcase_add_test(tcase, the_other_one_goes_on_while_a_queue_pair_ends);
	tcase_add_test(tcase, credits_wait_for_the_fence_too);
	tcase_add_loop_test(tcase, credits_may_overtake_each_other, 0, 4);
	tcase_add_loop_test(tcase, a_late_credit_undoes_none, 0, 4);
	tcase_add_test(tcase, credits_wait_for_those_that_have_not_landed);
	tcase_add_test(tcase, the_next_credits_are_seen_at_once);
	tcase_add_loop_test(tcase, credits_that_overtook_others_are_seen_soon,
			    1, VERBS_CREDIT_WORDS);
	tcase_add_test(tcase, credits_of_another_queue_pair_are_seen_soon);
	tcase_add_test(tcase, credits_of_many_channels_are_seen_soon);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
