/* SPDX-License-Identifier: BSD-3-Clause */
/* Who connects does not wait for the peer; who leaves has told a wire's peers
 * all that they wait for; and who waits polls the wires of other communicators.
 */
#include <check.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/comm/create.h"
#include "src/core/comm.h"
#include "src/core/cross_progress.h"
#include "src/core/wait.h"
#include "src/engine/engine.h"
#include "tests/support/runner.h"
#include "src/core/fault.h"
#include "src/message/channel.h"

static dicomm_result_t never(struct tp_peer *peer, enum tp_class c,
			     struct tp_outbox *out)
{
	(void)peer;
	(void)c;
	(void)out;
	return DICOMM_AGAIN;
}

/* There is no control plane to ask. */
bool __wrap_control_gone(struct control *c, int rank);

bool __wrap_control_gone(struct control *c, int rank)
{
	(void)c;
	(void)rank;
	return false;
}

static const struct transport silent = {.name = "silent", .connect_out = never};

START_TEST(a_connect_waits_for_nobody)
{
	struct dicomm_comm *comm;
	struct peer *peer;

	ck_assert_int_eq(comm_create(&comm, 2, 0, NULL), DICOMM_SUCCESS);
	peer = &comm->peers[1];
	peer->rank = 1;
	peer->transport = &silent;
	ck_assert_int_eq(channel_connect_out(peer, TP_COLLECTIVE),
			 DICOMM_AGAIN);
	ck_assert_ptr_null(peer->channel[TP_COLLECTIVE].out.released);
	comm_free(comm);
}
END_TEST

/* --- what could not be told ------------------------------------------------
 */

#define SLOTS 8
#define BYTES 10000

/* What the wire has yet to tell, and cannot before so many more polls. */
static int untold, polls;
static struct tp_line lines[SLOTS];
static uint8_t sent[BYTES];
static struct dicomm_comm *of; /* whose polls bring a message; or NULL */

static bool tell(struct tp_device *dev)
{
	(void)dev;
	return !untold;
}

/* What the call that waits is sent, and its sender wants back. */
static void bring(struct dicomm_comm *comm)
{
	uint64_t number = comm->peers[1].recvs;
	struct tp_line *line = &lines[number % SLOTS];

	if (!comm->prepared.all || atomic_load(&line->seq) == number)
		return;
	line->signature = prepared_signature(comm->prepared.all, number);
	line->kind = TP_REF;
	line->len = BYTES;
	atomic_store(&line->seq, number);
}

static bool poll_once(struct tp_device *dev)
{
	(void)dev;
	polls++;
	if (of)
		bring(of);
	if (untold)
		untold--;
	return false;
}

static void close_it(struct tp_device *dev)
{
	(void)dev;
}

static dicomm_result_t open_peer(struct tp_device *dev, int rank,
				 const struct tp_blob *address,
				 struct tp_peer **out)
{
	(void)dev;
	(void)rank;
	(void)address;
	*out = (struct tp_peer *)sent;
	return DICOMM_SUCCESS;
}

static void limits(const struct tp_peer *peer, struct tp_limits *out)
{
	(void)peer;
	*out = (struct tp_limits){.eager_bytes = 4096,
				  .slots = SLOTS,
				  .window = SLOTS,
				  .spin = 1};
}

static dicomm_result_t connect_in(struct tp_peer *peer, enum tp_class c,
				  struct tp_inbox *in)
{
	(void)peer;
	(void)c;
	*in = (struct tp_inbox){.lines = lines,
				.line_stride = sizeof(*lines),
				.slot_mask = SLOTS - 1};
	return DICOMM_SUCCESS;
}

static dicomm_result_t map(struct tp_peer *peer, const struct tp_ref *ref,
			   uint64_t len, const void **ptr)
{
	(void)peer;
	(void)ref;
	(void)len;
	*ptr = sent;
	return DICOMM_SUCCESS;
}

static dicomm_result_t intact(struct tp_peer *peer)
{
	(void)peer;
	return DICOMM_SUCCESS;
}

/* From then on there is something that it could not tell. */
static dicomm_result_t release(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq)
{
	(void)peer;
	(void)c;
	if (seq)
		untold = 5;
	return DICOMM_SUCCESS;
}

static const struct transport full = {.name = "full",
				      .close = close_it,
				      .peer_open = open_peer,
				      .limits = limits,
				      .connect_in = connect_in,
				      .map = map,
				      .intact = intact,
				      .release = release,
				      .flush = tell,
				      .poll = poll_once};

static struct dicomm_comm *open_full(void)
{
	struct dicomm_comm *comm;

	ck_assert_int_eq(comm_create(&comm, 2, 0, NULL), DICOMM_SUCCESS);
	comm->transports[0].transport = &full;
	atomic_store(&comm->transports[0].device, (struct tp_device *)sent);
	comm->ways[1] = 1;
	atomic_store(&comm->state, COMM_READY);
	return comm;
}

START_TEST(who_leaves_tells_all)
{
	struct dicomm_comm *comm = open_full();

	untold = 3;
	ck_assert_int_eq(dicomm_comm_finalize(comm), DICOMM_SUCCESS);
	ck_assert_int_eq(polls, 3);
	ck_assert_int_eq(untold, 0);
	comm_free(comm);
}
END_TEST

/* But not for ever. */
START_TEST(who_leaves_may_be_unable_to_tell)
{
	struct dicomm_comm *comm = open_full();

	untold = INT_MAX;
	ck_assert_int_eq(dicomm_comm_finalize(comm), DICOMM_SUCCESS);
	ck_assert_int_gt(untold, 0);
	comm_free(comm);
}
END_TEST

static int in_flight; /* polls before all that was told is there */

static bool land(struct tp_device *dev)
{
	(void)dev;
	return !in_flight;
}

static bool poll_on(struct tp_device *dev)
{
	(void)dev;
	in_flight -= in_flight > 0;
	return false;
}

/* Told is not there yet. */
START_TEST(who_leaves_waits_until_all_is_there)
{
	struct dicomm_comm *comm = open_full();
	struct transport lands = full;

	lands.delivered = land;
	lands.poll = poll_on;
	comm->transports[0].transport = &lands;
	untold = 0;
	in_flight = 1000;
	ck_assert_int_eq(dicomm_comm_finalize(comm), DICOMM_SUCCESS);
	ck_assert_int_eq(in_flight, 0);
	comm_free(comm);
}
END_TEST

/* Its sender waits, also when this rank does something else next. 1: what the
 * transport maps stays, so it has no intact(). */
START_TEST(who_has_taken_what_was_referred_to_tells_so)
{
	struct dicomm_comm *comm = open_full();
	struct transport stays = full;
	static uint8_t buffer[BYTES];

	stays.intact = NULL;
	if (_i)
		comm->transports[0].transport = &stays;
	of = comm;
	for (int i = 0; i < BYTES; i++)
		sent[i] = (uint8_t)(i * 7);
	ck_assert_int_eq(dicomm_recv(buffer, BYTES, DICOMM_INT8, 1, comm, NULL),
			 DICOMM_SUCCESS);
	ck_assert_mem_eq(buffer, sent, BYTES);
	ck_assert_int_eq(untold, 0);
	of = NULL;
	comm_free(comm);
}
END_TEST

/* --- two communicators -----------------------------------------------------
 */

/* Of the other one: how often its wire was polled. */
#define ENOUGH 20
#define LOOKS 100 /* whether somebody uses it meanwhile */
static _Atomic int polls_there;
static _Atomic bool is_used, is_polled, both;

static bool poll_there(struct tp_device *dev)
{
	(void)dev;
	atomic_store(&is_polled, true);
	for (int i = 0; i < LOOKS; i++)
		if (atomic_load(&is_used))
			atomic_store(&both, true);
	atomic_fetch_add(&polls_there, 1);
	atomic_store(&is_polled, false);
	return false;
}

static const struct transport there = {.name = "there",
				       .abort = close_it,
				       .close = close_it,
				       .flush = tell,
				       .poll = poll_there};
static const struct transport near = {.name = "near",
				      .intra_node = true,
				      .close = close_it,
				      .flush = tell,
				      .poll = poll_there};

static struct dicomm_comm *open_other(const struct transport *t)
{
	struct dicomm_comm *comm = open_full();

	comm->transports[0].transport = t;
	atomic_store(&polls_there, 0);
	cross_progress_add(comm);
	return comm;
}

static dicomm_result_t is_whole(struct tp_device *dev, int *peer)
{
	(void)dev;
	(void)peer;
	return DICOMM_SUCCESS;
}

START_TEST(who_waits_polls_other_communicators)
{
	struct dicomm_comm *comm = open_full();
	struct dicomm_comm *other = open_other(&there);
	struct transport whole = full;
	struct call call = {.function = COLL_BARRIER};
	struct wait_for f = {.comm = comm, .call = &call, .peer = -1};
	struct waiter w = {0};

	whole.abort = close_it;
	whole.broken = is_whole;
	comm->transports[0].transport = &whole;
	comm->timeout_ms = 10000;
	while (atomic_load(&polls_there) < ENOUGH)
		ck_assert_int_eq(wait_more(&w, &f), DICOMM_SUCCESS);
	comm_free(other);
	comm_free(comm);
}
END_TEST

/* Not where somebody is, nor what is queued, broken, near, or gone. */
START_TEST(others_are_polled_only_where_nobody_is)
{
	struct dicomm_comm *other = open_other(&there);

	cross_progress_poll();
	ck_assert_int_gt(atomic_exchange(&polls_there, 0), 0);
	ck_assert_int_eq(data_path_enter(&other->path), DATA_PATH_ENTERED);
	cross_progress_poll();
	ck_assert(!fault_is(other));
	data_path_leave(&other->path);
	data_path_queue(&other->path);
	cross_progress_poll();
	data_path_dequeue(&other->path);
	ck_assert_int_eq(atomic_load(&polls_there), 0);
	cross_progress_poll();
	ck_assert_int_gt(atomic_exchange(&polls_there, 0), 0);
	atomic_store(&other->fault.status, DICOMM_ERR_REMOTE);
	cross_progress_poll();
	ck_assert_int_eq(atomic_load(&other->fault.status), DICOMM_ERR_REMOTE);
	atomic_store(&other->fault.status, DICOMM_SUCCESS);
	ck_assert_int_eq(dicomm_comm_finalize(other), DICOMM_SUCCESS);
	cross_progress_poll();
	comm_free(other);
	other = open_other(&near);
	cross_progress_poll();
	ck_assert_int_eq(atomic_load(&polls_there), 0);
	comm_free(other);
}
END_TEST

static _Atomic bool enough;

static void *poll_others(void *arg)
{
	while (!atomic_load(&enough))
		cross_progress_poll();
	return arg;
}

/* Who comes while another thread polls waits until it has gone. */
START_TEST(nobody_is_there_while_another_polls)
{
	struct dicomm_comm *other = open_other(&there);
	uint64_t end = clock_ms() + 1000;
	pthread_t thread;

	atomic_store(&enough, false);
	atomic_store(&both, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, poll_others, NULL), 0);
	while (clock_ms() < end || atomic_load(&polls_there) < 100) {
		ck_assert_int_eq(data_path_enter(&other->path),
				 DATA_PATH_ENTERED);
		atomic_store(&is_used, true);
		for (int i = 0; i < LOOKS; i++)
			if (atomic_load(&is_polled))
				atomic_store(&both, true);
		atomic_store(&is_used, false);
		data_path_leave(&other->path);
		/* Let the other one in, too. */
		for (int i = 0; i < 10 * LOOKS; i++)
			cpu_relax();
	}
	/* One that breaks stays so, and nobody is there any more. */
	fault_raise(other, DICOMM_ERR_REMOTE, 1, false, "broken");
	fault_wait(other);
	ck_assert(!atomic_load(&is_polled));
	ck_assert_int_eq(data_path_enter(&other->path), DATA_PATH_BROKEN);
	ck_assert_int_eq(atomic_load(&other->fault.status), DICOMM_ERR_REMOTE);
	atomic_store(&enough, true);
	pthread_join(thread, NULL);
	ck_assert(!atomic_load(&both));
	comm_free(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer");
	TCase *tc = tcase_create("all");

	setenv("DICOMM_DEBUG", "none", 1);
	setenv("DICOMM_BOOTSTRAP_TIMEOUT", "600", 1);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_connect_waits_for_nobody);
	tcase_add_test(tc, who_leaves_tells_all);
	tcase_add_test(tc, who_leaves_may_be_unable_to_tell);
	tcase_add_test(tc, who_leaves_waits_until_all_is_there);
	tcase_add_loop_test(tc, who_has_taken_what_was_referred_to_tells_so, 0,
			    2);
	tcase_add_test(tc, who_waits_polls_other_communicators);
	tcase_add_test(tc, others_are_polled_only_where_nobody_is);
	tcase_add_test(tc, nobody_is_there_while_another_polls);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
