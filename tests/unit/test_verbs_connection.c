/* SPDX-License-Identifier: BSD-3-Clause */
/* Which connections a rank accepts, and what the connection thread does with
 * them. The NICs here do nothing. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/connection/conn.h"
#include "transports/verbs/connection/exchange.h"
#include "transports/verbs/connection/server.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"

#define RANKS 160
/* More than may be unproven, less than ranks may connect. */
#define CALLERS 200
#define ME 3
#define PEER 1
#define SLOTS 8
#define STRIDE 4224
#define RAILS 2
#define PATIENCE_MS 10000

/* ---- NICs ---- */

static struct ibv_context contexts[RAILS];
static struct ibv_cq cqs[RAILS];
static struct ibv_srq srqs[RAILS];
static struct verbs_nic nics[RAILS];
static int news[RAILS];       /* makes async_fd readable */
static _Atomic bool has_gone; /* the second NIC */
static _Atomic int asked;

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e)
{
	bool removed = atomic_load(&has_gone) && context == &contexts[1];

	(void)e;
	atomic_fetch_add(&asked, 1);
	errno = removed ? EIO : EAGAIN;
	return -1;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	(void)pd;
	qp->context = attr->send_cq->context;
	qp->qp_num = 17;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	(void)attr;
	(void)mask;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
				uint64_t iova, unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)pd;
	(void)iova;
	(void)access;
	mr->addr = addr;
	mr->length = len;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr,
				(unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/* ---- a rank that can be called ---- */

static struct tp_device dev;

static void setup(void)
{
	int ends[2];

	dev = (struct tp_device){
		.config = {.rank = ME,
			   .ranks = RANKS,
			   .slots = SLOTS,
			   .queue_pairs = 1},
		.stride = STRIDE,
		.channels = RANKS * TP_CLASSES,
		.rails = RAILS,
	};
	dev.in = calloc(dev.channels, sizeof(*dev.in));
	dev.out = calloc(dev.channels, sizeof(*dev.out));
	for (int i = 0; i < RAILS; i++) {
		ck_assert_int_eq(pipe(ends), 0);
		news[i] = ends[1];
		contexts[i] = (struct ibv_context){.async_fd = ends[0]};
		cqs[i].context = &contexts[i];
		nics[i] = (struct verbs_nic){
			.name = "fake0",
			.port = (uint8_t)(i + 1),
			.fabric = VERBS_ROCE,
			.context = &contexts[i],
			.gids = 1,
			.port_attr = {.active_mtu = IBV_MTU_4096},
			.attr = {.max_cqe = 1 << 20, .max_qp_wr = 1 << 15}};
		dev.rail[i] = (struct verbs_rail){.nic = &nics[i],
						  .cq = &cqs[i],
						  .cqe = 1 << 20,
						  .srq = &srqs[i]};
	}
	atomic_store(&asked, 0);
	ck_assert_int_eq(verbs_server_open(&dev), DICOMM_SUCCESS);
}

static void close_device(void)
{
	verbs_server_stop_listening(&dev);
	verbs_server_close(&dev);
}

static void teardown(void)
{
	close_device();
	for (int i = 0; i < RAILS; i++) {
		close(contexts[i].async_fd);
		close(news[i]);
	}
	free((void *)dev.in);
	free((void *)dev.out);
}

static int knock(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned port;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(sscanf(dev.listen, "127.0.0.1:%u", &port), 1);
	a.sin_port = htons((uint16_t)port);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Read that many bytes; 0: the connection has ended. */
static size_t hear(int fd, void *to, size_t len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	ck_assert_msg(poll(&p, 1, PATIENCE_MS) == 1, "nothing comes");
	return (size_t)recv(fd, to, len, MSG_WAITALL);
}

/* An authentic request for a rank that does not exist. */
static void say_who(int fd)
{
	struct verbs_connect_msg msg = {.type = VERBS_REQUEST, .ranks = RANKS};

	memcpy(msg.to, dev.nonce, sizeof(msg.to));
	verbs_msg_seal(&msg, dev.config.key);
	ck_assert_int_eq(send(fd, &msg, sizeof(msg), MSG_NOSIGNAL),
			 sizeof(msg));
}

static void check_is_answered(int fd)
{
	struct verbs_connect_msg msg;

	say_who(fd);
	ck_assert_uint_eq(hear(fd, &msg, sizeof(msg)), sizeof(msg));
	ck_assert_int_eq(msg.type, VERBS_REPLY);
	ck_assert_str_eq(msg.why, "no such rank");
}

/* ---- who calls ---- */

/* All connect at the same time; the first ones send their request last. */
START_TEST(all_ranks_may_connect_at_once)
{
	int fds[CALLERS];

	for (int i = 0; i < CALLERS; i++)
		fds[i] = knock();
	for (int i = CALLERS - 1; i >= 0; i--) {
		check_is_answered(fds[i]);
		close(fds[i]);
	}
}
END_TEST

START_TEST(the_program_keeps_some_descriptors)
{
	struct rlimit limit;
	rlim_t few;
	int fds[CALLERS], last;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	last = dup(0);
	few = (rlim_t)last + 300;
	close(last);
	if (limit.rlim_max < 2 * few)
		return;
	limit.rlim_cur = few;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i < CALLERS; i++)
		fds[i] = knock();
	check_is_answered(fds[CALLERS - 1]);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_gt(limit.rlim_cur, few);
	for (int i = 0; i < CALLERS; i++)
		close(fds[i]);
}
END_TEST

/* A child that outlives its parent must not keep the parent's connection
 * open. */
START_TEST(a_forked_child_keeps_no_connection)
{
	int first = knock(), second = knock();
	char byte;
	pid_t pid;

	/* Both are accepted. */
	check_is_answered(second);
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	close_device();
	ck_assert_uint_eq(hear(first, &byte, 1), 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(first);
	close(second);
	ck_assert_int_eq(verbs_server_open(&dev), DICOMM_SUCCESS);
}
END_TEST

/* ---- who is called ---- */

static struct verbs_connect_msg good_call(void)
{
	struct verbs_connect_msg msg = {.type = VERBS_REQUEST,
					.from_rank = PEER,
					.to_rank = ME,
					.ranks = RANKS,
					.slots = SLOTS,
					.stride = STRIDE,
					.qps = RAILS};

	for (uint32_t i = 0; i < RAILS; i++)
		msg.qp[i] = (struct verbs_qp_address){.gids = 1,
						      .mtu = IBV_MTU_4096,
						      .reads = 16,
						      .rail = i,
						      .remote_rail = i};
	return msg;
}

/* Is there a channel now? It has no connection. */
static bool call(const struct verbs_connect_msg *msg,
		 struct verbs_connect_msg *answer)
{
	struct verbs_conn conn = {.stage = CONN_OPEN, .msg = *msg};
	int ends[2];
	bool made;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	conn.fd = ends[0];
	verbs_lock();
	made = verbs_serve_request(&dev, &conn);
	ck_assert(made == (conn.channel != NULL));
	if (made)
		conn.channel->conn = NULL;
	verbs_unlock();
	ck_assert_uint_eq(hear(ends[1], answer, sizeof(*answer)),
			  sizeof(*answer));
	close(ends[0]);
	close(ends[1]);
	return made;
}

/* A port without a link, and a NIC that was removed, are not offered to the
 * peer. */
START_TEST(a_request_is_served_by_a_port_that_works)
{
	uint32_t id = PEER * TP_CLASSES;
	struct verbs_connect_msg msg = good_call(), answer;

	srqs[0].context = &contexts[0];
	srqs[1].context = &contexts[1];
	if (_i == 1)
		atomic_store(&nics[0].link_down_ms, 1);
	if (_i == 2)
		atomic_store(&nics[1].fatal, "a test");
	ck_assert(call(&msg, &answer));
	ck_assert_uint_eq(answer.qp[0].rail, _i == 1 ? 1 : 0);
	ck_assert_uint_eq(answer.qp[1].rail, _i == 2 ? 0 : 1);
	for (uint32_t i = 0; i < RAILS; i++)
		ck_assert_uint_eq(answer.qp[i].remote_rail, i);
	verbs_channel_close(atomic_load(&dev.in[id]));
}
END_TEST

#define FUZZED 5000

/* Authentic requests with wrong members. */
START_TEST(a_request_with_wrong_members_is_refused_or_served)
{
	static const uint32_t odd[] = {0,  1,  2,   3,          4,         7,
				       8,  9,  159, 160,        161,       255,
				       17, 64, 256, 0x7fffffff, UINT32_MAX};
	unsigned state = 1;
	int channels = 0;

	for (int i = 0; i < FUZZED; i++) {
		struct verbs_connect_msg msg = good_call(), answer;

		for (int k = rand_r(&state) % 3; k >= 0; k--) {
			size_t at = (size_t)rand_r(&state) %
				    (sizeof(msg) / sizeof(uint32_t));
			uint32_t word = odd[(size_t)rand_r(&state) %
					    (sizeof(odd) / sizeof(*odd))];

			/* Most of the members that matter come first. */
			if (k == 0)
				at %= offsetof(struct verbs_connect_msg,
					       qp[1]) /
				      sizeof(uint32_t);
			memcpy((uint8_t *)&msg + at * sizeof(word), &word,
			       sizeof(word));
		}
		if (!call(&msg, &answer)) {
			ck_assert_uint_ne(answer.status, DICOMM_SUCCESS);
			ck_assert(*answer.why);
			continue;
		}
		channels++;
		for (uint32_t id = 0; id < dev.channels; id++) {
			struct verbs_channel *channel =
				atomic_load(&dev.in[id]);

			atomic_store(&dev.in[id], NULL);
			if (channel)
				verbs_channel_close(channel);
		}
	}
	ck_assert_int_gt(channels, FUZZED / 20);
	ck_assert_int_lt(channels, FUZZED / 20 * 19);
}
END_TEST

/* Messages with a wrong bit, or cut short; and connections that send
 * nothing. */
START_TEST(connections_without_a_proof_are_closed)
{
	unsigned state = 1;

	for (int i = 0; i < CALLERS; i++) {
		struct verbs_connect_msg msg = good_call();
		size_t bit = (size_t)rand_r(&state) % (8 * sizeof(msg));
		size_t len = sizeof(msg);
		int fd = knock();
		char byte;

		memcpy(msg.to, dev.nonce, sizeof(msg.to));
		verbs_msg_seal(&msg, dev.config.key);
		if (i % 2)
			len = bit / 8;
		else
			((uint8_t *)&msg)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(send(fd, &msg, len, MSG_NOSIGNAL),
				 (ssize_t)len);
		ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
		ck_assert_uint_eq(hear(fd, &byte, 1), 0);
		close(fd);
	}
	for (uint32_t id = 0; id < dev.channels; id++)
		ck_assert_ptr_null(atomic_load(&dev.in[id]));
	check_is_answered(knock());
}
END_TEST

/* ---- what the thread sees ---- */

/* Its descriptor stays readable. */
START_TEST(a_device_that_has_gone_is_looked_at_once)
{
	atomic_store(&has_gone, true);
	close(news[1]);
	for (int i = 0; i < PATIENCE_MS && !atomic_load(&nics[1].fatal); i++)
		usleep(1000);
	ck_assert_ptr_ne(atomic_load(&nics[1].fatal), NULL);
	ck_assert(atomic_load(&nics[1].removed));
	usleep(50000);
	ck_assert_int_eq(atomic_load(&asked), 1);
	ck_assert_ptr_eq(atomic_load(&nics[0].fatal), NULL);
	news[1] = dup(0);
}
END_TEST

START_TEST(the_first_reason_counts)
{
	struct verbs_channel *channel =
		verbs_channel_new(&dev, PEER, 0, false, 1);
	struct verbs_conn conn = {.stage = CONN_AWAITING_REPLY,
				  .channel = channel};

	strcpy(conn.from, "somewhere");
	atomic_store(&channel->state, CHANNEL_CONNECTING);
	verbs_conn_expired(&conn);
	ck_assert_int_eq(channel->why, DICOMM_ERR_TIMEOUT);
	verbs_conn_ended(&conn);
	ck_assert_int_eq(channel->why, DICOMM_ERR_TIMEOUT);
	ck_assert_ptr_ne(strstr(channel->text, "no reply from somewhere"),
			 NULL);
	free(channel);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("connect");
	Suite *suite = suite_create("connect");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, all_ranks_may_connect_at_once);
	tcase_add_test(tcase, the_program_keeps_some_descriptors);
	tcase_add_test(tcase, a_forked_child_keeps_no_connection);
	tcase_add_loop_test(tcase, a_request_is_served_by_a_port_that_works, 0,
			    3);
	tcase_add_test(tcase,
		       a_request_with_wrong_members_is_refused_or_served);
	tcase_add_test(tcase, connections_without_a_proof_are_closed);
	tcase_add_test(tcase, a_device_that_has_gone_is_looked_at_once);
	tcase_add_test(tcase, the_first_reason_counts);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
