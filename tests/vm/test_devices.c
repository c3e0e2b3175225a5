// SPDX-License-Identifier: BSD-3-Clause
/*
 * The devices that tests/vm/devices makes are what tests of the verbs
 * transport take them for: every pair can send, write and read, by queue
 * pairs connected by hand and by rdma_cm; what passes crosses the wire; and a
 * cut cable is an error. Runs in the virtual machines of tests/vm/run only.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/vm.h"

#define BYTES ((size_t)1 << 20)
#define PORT 7471
#define WAIT_MS 20000
#define IMM 0x1234abcd

static struct vm vm;
static int machine, machines;

/* One end of a connection. Its buffer holds what goes out, then what comes. */
struct end {
	struct rdma_cm_id *id; /* by rdma_cm only */
	struct rdma_event_channel *channel;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffer;
	union ibv_gid gid;
	int gid_index;
};

/* What the other end must know to write and read here. */
struct key {
	uint64_t address;
	uint32_t rkey;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct sockaddr_in address_of(int which, int device, int port)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(0xc0a84d00u +
					 (uint32_t)(100 * which + device + 1)),
	};

	return a;
}

static uint64_t bytes_received(const char *interface, int i)
{
	char path[80];
	unsigned long long bytes;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/%s%d/statistics/rx_bytes",
		 interface, i);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(fscanf(f, "%llu", &bytes), 1);
	fclose(f);
	return bytes;
}

static struct ibv_context *open_device(int i)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	char name[24];
	int n;

	snprintf(name, sizeof(name), "%s%d", vm.kind, i);
	list = ibv_get_device_list(&n);
	ck_assert_ptr_nonnull(list);
	for (int k = 0; k < n; k++)
		if (strcmp(ibv_get_device_name(list[k]), name) == 0)
			context = ibv_open_device(list[k]);
	ibv_free_device_list(list);
	ck_assert_msg(context != NULL, "no device %s among %d", name, n);
	return context;
}

/* The queue and the memory; the context is there already. */
static void make_queues(struct end *e)
{
	e->pd = ibv_alloc_pd(e->context);
	ck_assert_ptr_nonnull(e->pd);
	e->cq = ibv_create_cq(e->context, 16, NULL, NULL, 0);
	ck_assert_ptr_nonnull(e->cq);
	e->buffer = calloc(2, BYTES);
	ck_assert_ptr_nonnull(e->buffer);
	e->mr = ibv_reg_mr(e->pd, e->buffer, 2 * BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	ck_assert_msg(e->mr != NULL, "ibv_reg_mr: %s", strerror(errno));
}

static struct ibv_qp_init_attr queue_pair_attr(struct end *e)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return attr;
}

static struct key key_of(const struct end *e)
{
	struct key k = {
		.address = (uintptr_t)(e->buffer + BYTES),
		.rkey = e->mr->rkey,
	};

	return k;
}

static void close_end(struct end *e)
{
	if (e->id)
		rdma_destroy_qp(e->id);
	else
		ck_assert_int_eq(ibv_destroy_qp(e->qp), 0);
	ck_assert_int_eq(ibv_dereg_mr(e->mr), 0);
	ck_assert_int_eq(ibv_destroy_cq(e->cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(e->pd), 0);
	free(e->buffer);
	if (!e->id) {
		ibv_close_device(e->context);
		return;
	}
	rdma_destroy_id(e->id);
	if (e->channel)
		rdma_destroy_event_channel(e->channel);
}

/* --- connecting by hand -----------------------------------------------------
 */

/* The RoCE v2 address that is an IPv4 one. */
static void find_gid(struct end *e)
{
	const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry entry;

	for (uint32_t i = 0; i < 64; i++) {
		if (ibv_query_gid_ex(e->context, 1, i, &entry, 0) != 0)
			continue;
		if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(entry.gid.raw, v4, sizeof(v4)) != 0)
			continue;
		e->gid = entry.gid;
		e->gid_index = (int)i;
		return;
	}
	ck_abort_msg("no RoCE v2 GID with an IPv4 address");
}

static void open_by_hand(struct end *e, int device)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	memset(e, 0, sizeof(*e));
	e->context = open_device(device);
	find_gid(e);
	make_queues(e);
	init = queue_pair_attr(e);
	e->qp = ibv_create_qp(e->pd, &init);
	ck_assert_ptr_nonnull(e->qp);
	ck_assert_int_eq(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
}

static void connect_by_hand(struct end *e, const struct end *to)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = to->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = to->gid,
				    .sgid_index = (uint8_t)e->gid_index,
				    .hop_limit = 1}},
	};
	/* Tries again for a second and a half. */
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 16,
		.retry_cnt = 4,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	ck_assert_int_eq(ibv_modify_qp(e->qp, &rtr,
				       IBV_QP_STATE | IBV_QP_AV |
					       IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER),
			 0);
	ck_assert_int_eq(
		ibv_modify_qp(e->qp, &rts,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void pair_by_hand(struct end *a, int i, struct end *b, int j)
{
	open_by_hand(a, i);
	open_by_hand(b, j);
	connect_by_hand(a, b);
	connect_by_hand(b, a);
}

/* --- connecting by rdma_cm --------------------------------------------------
 */

/* The next event, which must be the wanted one, but for a refusal. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
					enum rdma_cm_event_type wanted)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	ck_assert_msg(poll(&fd, 1, WAIT_MS) == 1, "no event, waiting for %s",
		      rdma_event_str(wanted));
	ck_assert_int_eq(rdma_get_cm_event(channel, &event), 0);
	if (event->event == RDMA_CM_EVENT_REJECTED)
		return event;
	ck_assert_msg(event->event == wanted, "%s (%d) instead of %s",
		      rdma_event_str(event->event), event->status,
		      rdma_event_str(wanted));
	return event;
}

static void expect_event(struct rdma_event_channel *channel,
			 enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel, wanted);

	ck_assert_msg(event->event == wanted, "refused: %d", event->status);
	rdma_ack_cm_event(event);
}

static void make_cm_queues(struct end *e)
{
	struct ibv_qp_init_attr init;

	e->context = e->id->verbs;
	make_queues(e);
	init = queue_pair_attr(e);
	ck_assert_msg(rdma_create_qp(e->id, e->pd, &init) == 0,
		      "rdma_create_qp: %s", strerror(errno));
	e->qp = e->id->qp;
}

static struct rdma_cm_id *listen_on(struct rdma_event_channel *channel,
				    struct sockaddr_in address)
{
	struct rdma_cm_id *id;

	ck_assert_int_eq(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	ck_assert_msg(rdma_bind_addr(id, (struct sockaddr *)&address) == 0,
		      "rdma_bind_addr: %s", strerror(errno));
	ck_assert_msg(rdma_listen(id, 4) == 0, "rdma_listen: %s",
		      strerror(errno));
	return id;
}

static void resolve(struct end *e, struct sockaddr_in from,
		    struct sockaddr_in to)
{
	memset(e, 0, sizeof(*e));
	e->channel = rdma_create_event_channel();
	ck_assert_ptr_nonnull(e->channel);
	ck_assert_int_eq(rdma_create_id(e->channel, &e->id, NULL, RDMA_PS_TCP),
			 0);
	ck_assert_int_eq(rdma_resolve_addr(e->id, (struct sockaddr *)&from,
					   (struct sockaddr *)&to, WAIT_MS),
			 0);
	expect_event(e->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	ck_assert_int_eq(rdma_resolve_route(e->id, WAIT_MS), 0);
	expect_event(e->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_cm_queues(e);
}

static struct rdma_conn_param parameters(const struct key *key)
{
	struct rdma_conn_param p = {
		.private_data = key,
		.private_data_len = sizeof(*key),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 4,
		.rnr_retry_count = 7,
	};

	return p;
}

static void ask(struct end *e)
{
	struct key key = key_of(e);
	struct rdma_conn_param p = parameters(&key);

	ck_assert_msg(rdma_connect(e->id, &p) == 0, "rdma_connect: %s",
		      strerror(errno));
}

static void post_receive(struct end *e);

/* Take the connection that comes next, its first receive posted. */
static struct key accept_next(struct end *e, struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event =
		next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param p;
	struct key mine, theirs;

	memset(e, 0, sizeof(*e));
	e->id = event->id;
	memcpy(&theirs, event->param.conn.private_data, sizeof(theirs));
	rdma_ack_cm_event(event);
	make_cm_queues(e);
	post_receive(e);
	mine = key_of(e);
	p = parameters(&mine);
	ck_assert_msg(rdma_accept(e->id, &p) == 0, "rdma_accept: %s",
		      strerror(errno));
	return theirs;
}

/* The key of the other end; false: refused, as nobody listens yet. */
static bool accepted(struct end *e, struct key *theirs)
{
	struct rdma_cm_event *event =
		next_event(e->channel, RDMA_CM_EVENT_ESTABLISHED);
	bool good = event->event == RDMA_CM_EVENT_ESTABLISHED;

	if (good)
		memcpy(theirs, event->param.conn.private_data, sizeof(*theirs));
	rdma_ack_cm_event(event);
	return good;
}

/* --- traffic ----------------------------------------------------------------
 */

static void fill(uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static void check_data(const uint8_t *p, size_t len, unsigned seed)
{
	size_t i = 0;

	while (i < len && p[i] == (uint8_t)(seed + i * 7 + (i >> 8)))
		i++;
	ck_assert_msg(i == len, "byte %zu of %zu is %u", i, len, p[i]);
	if (len < BYTES)
		ck_assert_msg(p[len] == 0, "byte %zu written, behind the end",
			      len);
}

static void post_receive(struct end *e)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(e->buffer + BYTES),
		.length = BYTES,
		.lkey = e->mr->lkey,
	};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	ck_assert_int_eq(ibv_post_recv(e->qp, &wr, &bad), 0);
}

static void post(struct end *e, enum ibv_wr_opcode opcode, size_t len,
		 const struct key *to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buffer +
			(opcode == IBV_WR_RDMA_READ ? BYTES : 0),
		.length = (uint32_t)len,
		.lkey = e->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(IMM),
	};
	struct ibv_send_wr *bad;

	if (to) {
		wr.wr.rdma.remote_addr = to->address;
		wr.wr.rdma.rkey = to->rkey;
	}
	ck_assert_int_eq(ibv_post_send(e->qp, &wr, &bad), 0);
}

static struct ibv_wc next_completion(struct end *e)
{
	int64_t end = now_ms() + WAIT_MS;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(e->cq, 1, &wc)) == 0 && now_ms() < end)
		sched_yield();
	ck_assert_msg(n != 0, "no completion");
	ck_assert_int_eq(n, 1);
	return wc;
}

static struct ibv_wc expect(struct end *e, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_completion(e);

	ck_assert_msg(wc.status == IBV_WC_SUCCESS, "completed with %s",
		      ibv_wc_status_str(wc.status));
	ck_assert_int_eq((int)wc.opcode, (int)opcode);
	return wc;
}

/* Each needs a receive posted at b beforehand, and leaves none. */
static void send_once(struct end *a, struct end *b, size_t len)
{
	fill(a->buffer, len, 1);
	memset(b->buffer + BYTES, 0, BYTES);
	post(a, IBV_WR_SEND, len, NULL);
	expect(a, IBV_WC_SEND);
	ck_assert_uint_eq(expect(b, IBV_WC_RECV).byte_len, len);
	check_data(b->buffer + BYTES, len, 1);
}

static void write_once(struct end *a, struct end *b, const struct key *to,
		       size_t len)
{
	struct ibv_wc wc;

	fill(a->buffer, len, 2);
	memset(b->buffer + BYTES, 0, BYTES);
	if (vm.iwarp) { /* which has no immediate: what follows says so */
		post(a, IBV_WR_RDMA_WRITE, len, to);
		post(a, IBV_WR_SEND, 0, NULL);
		expect(a, IBV_WC_RDMA_WRITE);
		expect(a, IBV_WC_SEND);
		expect(b, IBV_WC_RECV);
	} else {
		post(a, IBV_WR_RDMA_WRITE_WITH_IMM, len, to);
		expect(a, IBV_WC_RDMA_WRITE);
		wc = expect(b, IBV_WC_RECV_RDMA_WITH_IMM);
		ck_assert_uint_eq(ntohl(wc.imm_data), IMM);
	}
	check_data(b->buffer + BYTES, len, 2);
}

static void read_once(struct end *a, struct end *b, const struct key *from,
		      size_t len)
{
	memset(a->buffer + BYTES, 0, BYTES);
	fill(b->buffer + BYTES, len, 3);
	post(a, IBV_WR_RDMA_READ, len, from);
	expect(a, IBV_WC_RDMA_READ);
	check_data(a->buffer + BYTES, len, 3);
}

/* A first receive is posted at b. */
static void all_operations(struct end *a, struct end *b)
{
	const size_t sizes[] = {1, 4097, BYTES};
	struct key to = key_of(b);

	for (int i = 0; i < 3; i++) {
		send_once(a, b, sizes[i]);
		post_receive(b);
		write_once(a, b, &to, sizes[i]);
		post_receive(b);
		read_once(a, b, &to, sizes[i]);
	}
}

/* --- tests ------------------------------------------------------------------
 */

START_TEST(devices_are_there_with_their_ports_up)
{
	struct ibv_port_attr port;
	struct ibv_context *context;
	int n;

	ibv_free_device_list(ibv_get_device_list(&n));
	ck_assert_int_eq(n, vm.devices);
	for (int i = 0; i < vm.devices; i++) {
		context = open_device(i);
		ck_assert_int_eq(ibv_query_port(context, 1, &port), 0);
		ck_assert_int_eq((int)port.state, (int)IBV_PORT_ACTIVE);
		ck_assert_int_eq((int)context->device->transport_type,
				 (int)(vm.iwarp ? IBV_TRANSPORT_IWARP
						: IBV_TRANSPORT_IB));
		ibv_close_device(context);
	}
}
END_TEST

START_TEST(every_pair_connects_by_hand)
{
	struct end a, b;

	for (int i = 0; i < vm.devices; i++)
		for (int j = 0; j < vm.devices; j++) {
			pair_by_hand(&a, i, &b, j);
			post_receive(&b);
			all_operations(&a, &b);
			close_end(&a);
			close_end(&b);
		}
}
END_TEST

START_TEST(every_pair_connects_by_rdma_cm)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct end a, b;
	struct key key;

	ck_assert_ptr_nonnull(channel);
	for (int i = 0; i < vm.devices; i++)
		for (int j = 0; j < vm.devices; j++) {
			if (i == j)
				continue;
			listener = listen_on(channel,
					     address_of(machine, j, PORT));
			resolve(&a, address_of(machine, i, 0),
				address_of(machine, j, PORT));
			ask(&a);
			accept_next(&b, channel);
			ck_assert(accepted(&a, &key));
			expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
			ck_assert_uint_eq(key.rkey, b.mr->rkey);
			all_operations(&a, &b);
			rdma_disconnect(a.id);
			expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
			close_end(&a);
			close_end(&b);
			rdma_destroy_id(listener);
		}
	rdma_destroy_event_channel(channel);
}
END_TEST

/* A device that took a short cut would never notice a cut cable. */
START_TEST(data_crosses_the_wire)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	uint64_t before;
	struct end a, b;
	struct key key;

	listener = listen_on(channel, address_of(machine, 1, PORT));
	resolve(&a, address_of(machine, 0, 0), address_of(machine, 1, PORT));
	ask(&a);
	accept_next(&b, channel);
	ck_assert(accepted(&a, &key));
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	before = bytes_received("net", 1);
	write_once(&a, &b, &key, BYTES);
	ck_assert_uint_ge(bytes_received("net", 1) - before, BYTES);
	close_end(&a);
	close_end(&b);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}
END_TEST

START_TEST(write_by_a_wrong_key_is_refused)
{
	struct end a, b;
	struct key key;

	pair_by_hand(&a, 0, &b, 1);
	key = key_of(&b);
	key.rkey ^= 0x5500;
	fill(a.buffer, 64, 5);
	post(&a, IBV_WR_RDMA_WRITE, 64, &key);
	ck_assert_str_eq(ibv_wc_status_str(next_completion(&a).status),
			 ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
	check_data(b.buffer + BYTES, 0, 5);
	close_end(&a);
	close_end(&b);
}
END_TEST

/* Setting port1 down takes the carrier from net1; and up again is up again. */
START_TEST(cut_cable_is_an_error)
{
	struct end a, b;
	struct key key;

	pair_by_hand(&a, 0, &b, 1);
	key = key_of(&b);
	ck_assert_int_eq(system("ip link set port1 down"), 0);
	post(&a, IBV_WR_RDMA_WRITE, 64, &key);
	ck_assert_str_eq(ibv_wc_status_str(next_completion(&a).status),
			 ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
	ck_assert_int_eq(system("ip link set port1 up"), 0);
	close_end(&a);
	close_end(&b);

	pair_by_hand(&a, 0, &b, 1);
	post_receive(&b);
	all_operations(&a, &b);
	close_end(&a);
	close_end(&b);
}
END_TEST

/* --- two machines -----------------------------------------------------------
 */

/* The first machine listens; a write comes, with the end of the connection. */
static void be_written(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener =
		listen_on(channel, address_of(0, 0, PORT));
	struct end e;

	accept_next(&e, channel);
	expect_event(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(&e, vm.iwarp ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
	check_data(e.buffer + BYTES, BYTES, 6);
	expect_event(channel, RDMA_CM_EVENT_DISCONNECTED);
	close_end(&e);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

/* The first may not listen yet. */
static void connect_to_first(struct end *e, struct key *key)
{
	int64_t end = now_ms() + WAIT_MS;

	for (;;) {
		resolve(e, address_of(1, 0, 0), address_of(0, 0, PORT));
		ask(e);
		if (accepted(e, key))
			return;
		ck_assert_msg(now_ms() < end, "the first does not listen");
		close_end(e);
		usleep(100000);
	}
}

static void write_to_first(void)
{
	struct end e;
	struct key key;

	connect_to_first(&e, &key);
	fill(e.buffer, BYTES, 6);
	post(&e, vm.iwarp ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
	     BYTES, &key);
	expect(&e, IBV_WC_RDMA_WRITE);
	if (vm.iwarp) {
		post(&e, IBV_WR_SEND, 0, NULL);
		expect(&e, IBV_WC_SEND);
	}
	post(&e, IBV_WR_RDMA_READ, BYTES, &key);
	expect(&e, IBV_WC_RDMA_READ);
	check_data(e.buffer + BYTES, BYTES, 6);
	rdma_disconnect(e.id);
	close_end(&e);
}

START_TEST(machines_reach_each_other)
{
	if (machine == 0)
		be_written();
	else
		write_to_first();
}
END_TEST

static int number(const char *name)
{
	const char *value = getenv(name);

	return value ? atoi(value) : 0;
}

int main(void)
{
	TCase *test_case = tcase_create("devices");
	Suite *suite = suite_create("devices");

	if (!vm_find(&vm))
		return 77;
	machine = number("DICOMM_TEST_VM");
	machines = number("DICOMM_TEST_VMS");

	tcase_set_timeout(test_case, 60);
	tcase_add_test(test_case, devices_are_there_with_their_ports_up);
	if (!vm.iwarp)
		tcase_add_test(test_case, every_pair_connects_by_hand);
	if (vm.devices >= 2) {
		tcase_add_test(test_case, every_pair_connects_by_rdma_cm);
		tcase_add_test(test_case, data_crosses_the_wire);
	}
	if (vm.devices >= 2 && !vm.iwarp) {
		tcase_add_test(test_case, write_by_a_wrong_key_is_refused);
		tcase_add_test(test_case, cut_cable_is_an_error);
	}
	if (machines == 2)
		tcase_add_test(test_case, machines_reach_each_other);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
