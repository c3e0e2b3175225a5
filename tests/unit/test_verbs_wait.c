/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that waits for its NICs: two that deliver completions and events when
 * the test says so. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "tests/support/runner.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/message/poll.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/message/credits.h"
#include "transports/verbs/nic/nic.h"

/* Longer than any test may take: whatever ends a wait earlier is no timeout. */
#define LONG_US 100000000
#define SHORT_US 20000

static struct ibv_context context;
static struct nic {
	struct verbs_nic nic;
	struct ibv_cq cq;
	struct ibv_comp_channel comp_channel;
	int event; /* makes the completion channel readable */
	int coming, polled;
	bool asked;          /* an event was asked for */
	bool comes_as_asked; /* a completion comes just before that */
	int taken, acknowledged, calls;
} nics[2];

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct nic *nic = cq->cq_context;
	int coming = nic->coming;

	ck_assert_int_le(coming, n);
	/* Of no channel: ignored. */
	for (int i = 0; i < coming; i++)
		wc[i] = (struct ibv_wc){.wr_id = UINT64_MAX,
					.status = IBV_WC_WR_FLUSH_ERR};
	nic->coming = 0;
	nic->polled += coming;
	return coming;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	struct nic *nic = cq->cq_context;

	ck_assert(!solicited);
	nic->asked = true;
	nic->coming += nic->comes_as_asked;
	return 0;
}

static void tell(const struct nic *nic)
{
	ck_assert_int_eq(write(nic->event, "", 1), 1);
}

int ibv_get_cq_event(struct ibv_comp_channel *comp_channel, struct ibv_cq **cq,
		     void **cq_context)
{
	struct nic *nic = &nics[comp_channel != &nics[0].comp_channel];
	char byte;

	ck_assert_int_eq(read(comp_channel->fd, &byte, 1), 1);
	nic->taken++;
	*cq = &nic->cq;
	*cq_context = NULL;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	struct nic *nic = cq->cq_context;

	nic->acknowledged += (int)n;
	nic->calls++;
}

static struct tp_device dev;

static void setup(void)
{
	int ends[2];

	context.ops.poll_cq = poll_cq;
	context.ops.req_notify_cq = req_notify_cq;
	memset(&dev, 0, sizeof(dev));
	memset(nics, 0, sizeof(nics));
	dev.rails = 2;
	for (int i = 0; i < 2; i++) {
		struct nic *nic = &nics[i];

		ck_assert_int_eq(pipe(ends), 0);
		nic->comp_channel.fd = ends[0];
		nic->event = ends[1];
		nic->cq.context = &context;
		nic->cq.cq_context = nic;
		dev.rail[i].nic = &nic->nic;
		dev.rail[i].cq = &nic->cq;
		dev.rail[i].comp_channel = &nic->comp_channel;
	}
}

static void teardown(void)
{
	for (int i = 0; i < 2; i++) {
		close(nics[i].comp_channel.fd);
		close(nics[i].event);
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *tell_later(void *arg)
{
	const struct nic *nic = arg;

	usleep(100000);
	tell(nic);
	return NULL;
}

START_TEST(an_event_of_any_nic_ends_it)
{
	struct nic *nic = &nics[_i];
	uint64_t start = clock_ns(), cpu = cpu_ns();
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, tell_later, nic), 0);
	verbs_wait(&dev, LONG_US);
	cpu = cpu_ns() - cpu;
	start = clock_ns() - start;
	pthread_join(thread, NULL);
	ck_assert(nics[0].asked && nics[1].asked);
	ck_assert_int_eq(nic->taken, 1);
	ck_assert_int_eq(nics[!_i].taken, 0);
	ck_assert_uint_lt(cpu, start / 2);
}
END_TEST

START_TEST(it_ends_by_itself)
{
	uint64_t start = clock_ns();

	verbs_wait(&dev, SHORT_US);
	ck_assert_uint_ge(clock_ns() - start, SHORT_US * 1000u);
	ck_assert_int_eq(nics[0].taken + nics[1].taken, 0);
}
END_TEST

/* Its completion channel stays readable, but has no event. */
START_TEST(a_nic_that_has_gone_keeps_nobody_awake)
{
	struct nic *nic = &nics[_i];
	uint64_t start = clock_ns();

	close(nic->event);
	atomic_store(&nic->nic.removed, true);
	verbs_wait(&dev, SHORT_US);
	ck_assert_uint_ge(clock_ns() - start, SHORT_US * 1000u);
	nic->event = dup(0);
}
END_TEST

/* What arrives between the last look and the request for an event has no
 * event. */
START_TEST(what_came_before_it_is_not_slept_over)
{
	nics[_i].comes_as_asked = true;
	verbs_wait(&dev, LONG_US);
	ck_assert_int_eq(nics[_i].polled, 1);
}
END_TEST

/* Each is a system call or a lock; and queues are not destroyed before. */
START_TEST(events_are_acknowledged_many_at_a_time)
{
	for (int i = 0; i < 200; i++) {
		tell(&nics[1]);
		verbs_wait(&dev, LONG_US);
	}
	ck_assert_int_eq(nics[1].taken, 200);
	ck_assert_int_le(nics[1].calls, 10);
	verbs_rail_ack_events(&dev.rail[0]);
	verbs_rail_ack_events(&dev.rail[1]);
	ck_assert_int_eq(nics[0].calls, 0);
	ck_assert_int_eq(nics[1].acknowledged, 200);
}
END_TEST

static uint64_t granted;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	memcpy(&granted, (const void *)wr->sg_list->addr, sizeof(granted));
	return 0;
}

/* The sender may wait for them, and the receiver for its next message. */
START_TEST(credits_are_sent_first)
{
	struct tp_peer peer = {.dev = &dev};
	struct verbs_channel *channel = verbs_channel_new(&dev, 0, 0, true, 1);
	struct ibv_qp qp = {.context = &context};

	context.ops.post_send = post_send;
	dev.config.slots = 64;
	channel->depth = 32;
	channel->qp[0].ibv = &qp;
	channel->qp[0].qpn = qp.qp_num;
	channel->qp[0].rail = &dev.rail[0];
	peer.in[0] = channel;
	ck_assert_int_eq(verbs_release(&peer, 0, 3), DICOMM_SUCCESS);
	ck_assert_uint_eq(granted, 0);
	verbs_wait(&dev, SHORT_US);
	ck_assert_uint_eq(granted, 3);
	free(channel);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("rest");
	Suite *suite = suite_create("rest");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 20);
	tcase_add_loop_test(tcase, an_event_of_any_nic_ends_it, 0, 2);
	tcase_add_test(tcase, it_ends_by_itself);
	tcase_add_loop_test(tcase, a_nic_that_has_gone_keeps_nobody_awake, 0,
			    2);
	tcase_add_loop_test(tcase, what_came_before_it_is_not_slept_over, 0, 2);
	tcase_add_test(tcase, events_are_acknowledged_many_at_a_time);
	tcase_add_test(tcase, credits_are_sent_first);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
