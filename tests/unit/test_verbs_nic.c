/* SPDX-License-Identifier: BSD-3-Clause */
/* What NICs of real machines have and lack: which of them are used, and what is
 * asked of their queues. The libibverbs here stands for them. */
#include <check.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "tests/support/runner.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/channel/rail.h"
#include "transports/verbs/nic/choose.h"
#include "transports/verbs/nic/device_memory.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/ports.h"

#define RANKS 20
#define MANY_RANKS 512
#define SLOTS 16
#define ME 3

/* ---- a libibverbs ---- */

static struct ibv_device device = {.name = "fake0",
				   .transport_type = IBV_TRANSPORT_IB};
static struct ibv_context context = {.device = &device, .async_fd = -1};
static bool is_locked; /* it cannot be opened */
static struct ibv_pd pd = {.context = &context};
static struct ibv_comp_channel comp_channel = {.context = &context, .fd = -1};
static struct ibv_cq cq = {.context = &context};
static struct ibv_srq srq = {.context = &context};
static int cqe;               /* of the completion queue */
static int resizes;           /* resizes that were asked for */
static bool is_short;         /* locked memory is used up */
static struct ibv_qp_cap cap; /* of the last queue pair */
static int receives, own_receives;
static int most_receives; /* of the shared queue; 0: any number */
static struct ibv_qp qp = {.context = &context, .qp_num = 17};
static struct ibv_qp_attr
	asked[8]; /* attributes of a queue pair, one change after another */
static int n_asked;
static int silent; /* how often the address of the other NIC is not found */

struct ibv_device **ibv_get_device_list(int *n)
{
	static struct ibv_device *list[2] = {&device};

	if (n)
		*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	(void)d;
	errno = EACCES;
	return is_locked ? NULL : &context;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	*attr = (struct ibv_device_attr){.max_qp_rd_atom = 16,
					 .max_qp_init_rd_atom = 16,
					 .phys_port_cnt = 3};
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *c, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	(void)c;
	(void)port;
	*(struct ibv_port_attr *)attr =
		(struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
				       .link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static int gids_error; /* 0: GIDs can be read */

/* Of all ports but the last, which is a representor's. */
ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e,
			     size_t most, uint32_t flags, size_t size)
{
	(void)c;
	(void)most;
	(void)flags;
	(void)size;
	if (gids_error)
		return -gids_error;
	for (uint32_t i = 0; i < 2; i++)
		e[i] = (struct ibv_gid_entry){.gid.raw[15] = 1,
					      .port_num = i + 1,
					      .gid_type = IBV_GID_TYPE_ROCE_V2};
	return 2;
}

static bool gid_has_left;

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index,
		  union ibv_gid *gid)
{
	(void)c;
	(void)port;
	(void)index;
	*gid = (union ibv_gid){.raw[15] = gid_has_left};
	return 0;
}

/* The port that has all addresses of this machine; 0: none has one. */
static uint8_t port_with_address;

int rdma_create_id(struct rdma_event_channel *events, struct rdma_cm_id **id,
		   void *arg, enum rdma_port_space space)
{
	static struct rdma_cm_id only;

	(void)events;
	(void)arg;
	(void)space;
	*id = &only;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	(void)address;
	id->verbs = &context;
	id->port_num = port_with_address;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int ibv_close_device(struct ibv_context *c)
{
	(void)c;
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	(void)c;
	return &comp_channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	(void)c;
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *arg,
			     struct ibv_comp_channel *events, int vector)
{
	(void)c;
	(void)arg;
	(void)events;
	(void)vector;
	errno = ENOMEM;
	if (is_short)
		return NULL;
	cqe = n;
	return &cq;
}

int ibv_resize_cq(struct ibv_cq *queue, int n)
{
	(void)queue;
	resizes++;
	cqe = n;
	return 0;
}

int ibv_destroy_cq(struct ibv_cq *queue)
{
	(void)queue;
	return 0;
}

static bool has_srq;

struct ibv_srq *ibv_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *attr)
{
	(void)p;
	(void)attr;
	ck_assert(has_srq);
	return &srq;
}

int ibv_destroy_srq(struct ibv_srq *queue)
{
	(void)queue;
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *attr)
{
	(void)p;
	ck_assert_ptr_eq(attr->srq, has_srq ? &srq : NULL);
	cap = attr->cap;
	return &qp;
}

int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	(void)q;
	(void)mask;
	ck_assert_int_lt(n_asked, 8);
	asked[n_asked++] = *attr;
	return attr->qp_state == IBV_QPS_RTR && silent-- > 0 ? ETIMEDOUT : 0;
}

int ibv_destroy_qp(struct ibv_qp *q)
{
	(void)q;
	return 0;
}

static int post_srq_recv(struct ibv_srq *queue, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	(void)queue;
	for (*bad = wr; wr; wr = wr->next, receives++)
		if (most_receives && receives == most_receives)
			return ENOMEM;
	return 0;
}

static int post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	ck_assert_ptr_eq(q, &qp);
	for (*bad = wr; wr; wr = wr->next)
		own_receives++;
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *p, void *addr, size_t len,
				uint64_t iova, unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)iova;
	(void)access;
	mr->pd = p;
	mr->addr = addr;
	mr->length = len;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *p, void *addr, size_t len, int access)
{
	return ibv_reg_mr_iova2(p, addr, len, (uintptr_t)addr,
				(unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/* ---- a rank with one port ---- */

static struct verbs_nic nic;
static struct tp_device dev;

static void setup(void)
{
	context.ops.post_recv = post_recv;
	context.ops.post_srq_recv = post_srq_recv;
	context.num_comp_vectors = 1;
	nic = (struct verbs_nic){
		.name = "fake0",
		.port = 1,
		.refs = 2, /* so that it is never freed */
		.fabric = VERBS_ROCE,
		.context = &context,
		.pd = &pd,
		.gids = 1,
		.port_attr = {.active_mtu = IBV_MTU_4096},
		.attr = {.max_cqe = 1 << 22,
			 .max_qp_wr = 1 << 15,
			 .max_srq = 1,
			 .max_srq_wr = 1 << 15},
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	dev = (struct tp_device){
		.config = {.rank = ME,
			   .ranks = RANKS,
			   .slots = SLOTS,
			   .queue_pairs = 1},
		.stride = 4224,
		.channels = RANKS * TP_CLASSES,
		.rails = 1,
		.rail = {{.nic = &nic}},
	};
	dev.words = aligned_alloc(64, (dev.channels + 1) * sizeof(*dev.words));
	cqe = resizes = n_asked = silent = receives = own_receives = 0;
	has_srq = true;
	ck_assert_int_eq(verbs_rail_open(&dev, &dev.rail[0]), DICOMM_SUCCESS);
}

/* To be opened again. */
static void close_rail(void)
{
	verbs_rail_close(&dev.rail[0]);
	nic.refs++;
	dev.rail[0] = (struct verbs_rail){.nic = &nic};
}

static void teardown(void)
{
	verbs_rail_close(&dev.rail[0]);
	free(dev.words);
}

/* ---- which ---- */

static void expect_no_nic(const char *reason)
{
	char why[256];

	ck_assert(!verbs_nic_find(why, sizeof(why)));
	ck_assert_msg(strstr(why, reason), "%s", why);
}

START_TEST(a_device_that_cannot_be_opened_is_named)
{
	is_locked = true;
	expect_no_nic("fake0 (it cannot be opened: Permission denied)");
	is_locked = false;
}
END_TEST

START_TEST(gids_that_cannot_be_read_are_not_missing)
{
	gids_error = EIO;
	expect_no_nic("fake0:1 (its GIDs cannot be read: Input/output error)");
	gids_error = 0;
}
END_TEST

/* Two ports, with librdmacm and without. */
START_TEST(a_port_without_the_address_it_needs_is_passed_over)
{
	char why[256];

	ck_assert(verbs_nic_find(why, sizeof(why)));
	ck_assert_msg(strstr(why, "fake0:1") && strstr(why, "fake0:2"), "%s",
		      why);
	device.transport_type = IBV_TRANSPORT_IWARP;
	port_with_address = 2;
	ck_assert(verbs_nic_find(why, sizeof(why)));
	ck_assert_msg(!strstr(why, "fake0:1") && strstr(why, "fake0:2"), "%s",
		      why);
	port_with_address = 0;
	ck_assert(!verbs_nic_find(why, sizeof(why)));
	ck_assert_msg(strstr(why, "fake0:2 (no IPv4 address"), "%s", why);
	/* A representor is not asked. */
	ck_assert_msg(!strstr(why, "fake0:3"), "%s", why);
	device.transport_type = IBV_TRANSPORT_IB;
}
END_TEST

/* ---- completion queues ---- */

static const struct {
	enum verbs_fabric fabric;
	const char *driver;
	bool cq_grows;
} drivers[] = {
	{VERBS_ROCE, "mlx5_core", true},
	{VERBS_INFINIBAND, "mlx5_core", true},
	{VERBS_ROCE, "mlx5_core.sf", true},
	{VERBS_ROCE, "", true}, /* rxe */
	{VERBS_IWARP, "", false},
	{VERBS_ROCE, "hns3", false},
	{VERBS_ROCE, "bnxt_en", false},
	{VERBS_ROCE, "ice", false},
	{VERBS_IWARP, "ice", false},
	{VERBS_ROCE, "qede", false},
};

START_TEST(few_drivers_are_trusted_to_make_a_queue_longer)
{
	ck_assert_int_eq(
		verbs_choose_grows(drivers[_i].fabric, drivers[_i].driver),
		drivers[_i].cq_grows);
}
END_TEST

/* Both directions of both classes of all peers, as channel/qp.c asks for
 * them. */
START_TEST(a_queue_that_cannot_grow_has_room_for_all_channels)
{
	const uint32_t in = VERBS_READS + 16 + SLOTS, out = 4 * SLOTS;

	close_rail();
	nic.cq_grows = _i == 1;
	if (_i == 2) {
		dev.channels = MANY_RANKS * TP_CLASSES;
		free(dev.words);
		dev.words = aligned_alloc(64, (dev.channels + 1) *
						      sizeof(*dev.words));
	}
	ck_assert_int_eq(verbs_rail_open(&dev, &dev.rail[0]), DICOMM_SUCCESS);
	if (nic.cq_grows)
		ck_assert_int_lt(cqe, 1000);
	for (uint32_t i = 0; i < dev.channels; i++) {
		ck_assert_int_eq(verbs_rail_reserve(&dev.rail[0], in),
				 DICOMM_SUCCESS);
		ck_assert_int_eq(verbs_rail_reserve(&dev.rail[0], out),
				 DICOMM_SUCCESS);
	}
	ck_assert_uint_ge((uint32_t)cqe, dev.channels * (in + out));
	/* Then both sides have more queue pairs than they need. */
	ck_assert_int_eq(verbs_rail_reserve(&dev.rail[0], 1000),
			 nic.cq_grows ? DICOMM_SUCCESS : DICOMM_ERR_NO_PATH);
	ck_assert_int_eq(resizes > 0, nic.cq_grows);
}
END_TEST

START_TEST(a_limit_of_locked_memory_is_thought_of)
{
	close_rail();
	is_short = true;
	ck_assert_int_eq(verbs_rail_open(&dev, &dev.rail[0]),
			 DICOMM_ERR_SYSTEM);
	ck_assert_ptr_ne(strstr(log_last_error(), "ulimit -l"), NULL);
	is_short = false;
}
END_TEST

/* ---- addresses ---- */

static const struct {
	enum verbs_fabric fabric;
	uint8_t flags; /* of the port here */
	uint8_t there; /* does the other port need a GID? */
	uint8_t subnet;
	bool global;
} places[] = {
	{VERBS_INFINIBAND, 0, 0, 0, false},
	{VERBS_INFINIBAND, 0, 0, 1, true},
	/* Virtual functions, here or there. */
	{VERBS_INFINIBAND, IBV_QPF_GRH_REQUIRED, 0, 0, true},
	{VERBS_INFINIBAND, 0, 1, 0, true},
	{VERBS_ROCE, 0, 0, 0, true},
};

static struct verbs_channel *open_channel(struct verbs_connect_msg *msg)
{
	struct verbs_channel *channel = verbs_channel_new(&dev, 1, 0, true, 1);

	*msg = (struct verbs_connect_msg){.qps = 1};
	ck_assert_int_eq(verbs_channel_open(channel, msg), DICOMM_SUCCESS);
	return channel;
}

START_TEST(a_header_with_gids_is_sent_where_one_is_needed)
{
	struct verbs_connect_msg mine, theirs;
	struct verbs_channel *channel;

	nic.fabric = places[_i].fabric;
	nic.port_attr.flags = places[_i].flags;
	nic.pkey_index = 6;
	channel = open_channel(&mine);
	ck_assert_int_eq(mine.qp[0].global, !!places[_i].flags);
	theirs = mine;
	theirs.qp[0].lid = 4711;
	theirs.qp[0].global = places[_i].there;
	theirs.qp[0].gid[0][7] = places[_i].subnet;
	ck_assert_int_eq(verbs_channel_connect(channel, &theirs),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(n_asked, 3);
	ck_assert_uint_eq(asked[0].pkey_index, 6);
	ck_assert_int_eq(asked[1].qp_state, IBV_QPS_RTR);
	ck_assert_uint_eq(asked[1].ah_attr.dlid, 4711);
	ck_assert_int_eq(asked[1].ah_attr.is_global, places[_i].global);
	verbs_channel_close(channel);
}
END_TEST

/* The port may have lost its GIDs, in the kernel's table and in ours. */
START_TEST(a_gid_that_has_left_is_named)
{
	struct verbs_connect_msg msg;
	struct verbs_channel *channel = open_channel(&msg);

	gid_has_left = _i;
	silent = 3;
	ck_assert_int_eq(verbs_channel_connect(channel, &msg),
			 DICOMM_ERR_SYSTEM);
	ck_assert_ptr_ne(strstr(log_last_error(), "gid ::"), NULL);
	ck_assert_int_eq(strstr(log_last_error(), VERBS_GID_LEFT) != NULL, _i);
	verbs_channel_close(channel);
	gid_has_left = false;
}
END_TEST

START_TEST(a_change_of_its_gids_counts_for_the_next_channel)
{
	struct verbs_connect_msg msg;
	struct verbs_channel *channel;

	nic.gid[0].gid.raw[15] = 7; /* which the port had */
	atomic_store(&nic.changed, _i);
	verbs_nic_refresh(&nic);
	ck_assert(!atomic_load(&nic.changed));
	channel = open_channel(&msg);
	ck_assert_uint_eq(msg.qp[0].gids, 1);
	ck_assert_uint_eq(msg.qp[0].gid[0][15], _i ? 1 : 7);
	verbs_channel_close(channel);
}
END_TEST

START_TEST(without_a_gid_there_is_no_channel)
{
	struct verbs_connect_msg msg = {.qps = 1};
	struct verbs_channel *channel = verbs_channel_new(&dev, 1, 0, true, 1);

	nic.port = 3; /* which is not in the table */
	atomic_store(&nic.changed, true);
	verbs_nic_refresh(&nic);
	ck_assert_int_eq(verbs_channel_open(channel, &msg), DICOMM_ERR_NO_PATH);
	ck_assert_ptr_ne(strstr(log_last_error(), "no GID"), NULL);
	verbs_channel_close(channel);
}
END_TEST

START_TEST(an_address_may_be_found_late)
{
	struct verbs_connect_msg msg;
	struct verbs_channel *channel = open_channel(&msg);

	silent = 1 + _i;
	if (silent < 3) {
		ck_assert_int_eq(verbs_channel_connect(channel, &msg),
				 DICOMM_SUCCESS);
	} else {
		ck_assert_int_eq(verbs_channel_connect(channel, &msg),
				 DICOMM_ERR_SYSTEM);
		ck_assert_ptr_ne(strstr(log_last_error(), strerror(ETIMEDOUT)),
				 NULL);
	}
	verbs_channel_close(channel);
}
END_TEST

/* ---- receives ---- */

START_TEST(receives_are_a_queue_pairs_own_where_none_can_be_shared)
{
	struct verbs_connect_msg msg;
	struct verbs_channel *channel;

	close_rail();
	has_srq = _i;
	nic.attr.max_srq = _i;
	if (!has_srq)
		nic.attr.max_srq_wr = 0;
	receives = 0;
	ck_assert_int_eq(verbs_rail_open(&dev, &dev.rail[0]), DICOMM_SUCCESS);
	channel = open_channel(&msg);
	ck_assert_uint_eq(cap.max_recv_wr, has_srq ? 0 : SLOTS);
	ck_assert_int_eq(verbs_channel_inbox(channel, &msg), DICOMM_SUCCESS);
	ck_assert_int_eq(receives, has_srq ? VERBS_RECV_BATCH + SLOTS : 0);
	ck_assert_int_eq(own_receives, has_srq ? 0 : SLOTS);
	verbs_channel_close(channel);
}
END_TEST

/* More channels than receives: they share them, and if there is none for a
 * message, the NIC makes its sender try again. */
START_TEST(a_shared_queue_may_be_full)
{
	struct verbs_channel *channels[3];
	struct verbs_connect_msg msg;

	close_rail();
	receives = 0;
	most_receives = VERBS_RECV_BATCH + SLOTS + 3;
	nic.attr.max_srq_wr = most_receives;
	ck_assert_int_eq(verbs_rail_open(&dev, &dev.rail[0]), DICOMM_SUCCESS);
	for (int i = 0; i < 3; i++) {
		channels[i] = open_channel(&msg);
		ck_assert_int_eq(verbs_channel_inbox(channels[i], &msg),
				 DICOMM_SUCCESS);
	}
	ck_assert_int_eq(receives, most_receives);
	for (int i = 0; i < 3; i++)
		verbs_channel_close(channels[i]);
	most_receives = 0;
}
END_TEST

/* ---- partitions ---- */

static const struct {
	const char *wanted;
	uint16_t keys[3];
	uint16_t index;
} partitions[] = {
	{"auto", {0xffff, 0x8001, 0}, 0},   {"auto", {0x7fff, 0x8001, 0}, 1},
	{"auto", {0x8001, 0x7fff, 0}, 0},   {"auto", {0, 0x7fff, 0xffff}, 2},
	{"auto", {0, 0x7fff, 0x0001}, 1},   {"auto", {0, 0x8000, 0}, 0},
	{"2", {0xffff, 0x8001, 0x8002}, 2},
};

START_TEST(the_partition_is_one_where_all_are_heard)
{
	setenv("DICOMM_IB_PKEY", partitions[_i].wanted, 1);
	ck_assert_uint_eq(verbs_choose_pkey(partitions[_i].keys, 3),
			  partitions[_i].index);
}
END_TEST

/* ---- memory of a device ---- */

static unsigned driver_caps;

static unsigned give_caps(int index)
{
	(void)index;
	return driver_caps;
}

static const struct accel_work fake_work = {.caps = give_caps};
static const struct accel fake_accel = {.name = "fake", .work = &fake_work};

#define PEER "peer memory (no dma-buf: its driver makes none)"

/* DICOMM_IB_FLUSH, or NULL; what the driver asks for; what becomes of it */
static const struct {
	const char *wish;
	unsigned caps;
	bool flushed;
	const char *how;
} flushes[] = {
	{NULL, ACCEL_FLUSH, true, PEER ", flushed by a read"},
	{NULL, ACCEL_FLUSH_OTHERS, true, PEER ", flushed by a read"},
	{NULL, 0, false, PEER},
	{"always", 0, true, PEER ", flushed by a read"},
	{"never", 0, false, PEER},
	{"never", ACCEL_FLUSH_OTHERS, false,
	 PEER ", not flushed (DICOMM_IB_FLUSH is never)"},
};

START_TEST(what_a_driver_does_not_order_is_flushed)
{
	const struct verbs_nic fake = {.name = "fake0", .pd = &pd};
	char memory[64], how[256];
	const struct tp_region region = {
		.accel = &fake_accel, .addr = memory, .len = sizeof(memory)};
	struct ibv_mr *mr;

	if (flushes[_i].wish)
		setenv("DICOMM_IB_FLUSH", flushes[_i].wish, 1);
	driver_caps = flushes[_i].caps;
	ck_assert_int_eq(verbs_needs_flush(&region), flushes[_i].flushed);
	mr = verbs_reg_device_memory(&fake, &region, 0, how, sizeof(how));
	ck_assert(mr);
	ck_assert_str_eq(how, flushes[_i].how);
	ibv_dereg_mr(mr);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("nic");
	Suite *suite = suite_create("nic");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_device_that_cannot_be_opened_is_named);
	tcase_add_test(tcase, gids_that_cannot_be_read_are_not_missing);
	tcase_add_test(tcase,
		       a_port_without_the_address_it_needs_is_passed_over);
	tcase_add_loop_test(tcase,
			    few_drivers_are_trusted_to_make_a_queue_longer, 0,
			    (int)(sizeof(drivers) / sizeof(*drivers)));
	tcase_add_loop_test(tcase,
			    a_queue_that_cannot_grow_has_room_for_all_channels,
			    0, 3);
	tcase_add_test(tcase, a_limit_of_locked_memory_is_thought_of);
	tcase_add_loop_test(tcase,
			    a_header_with_gids_is_sent_where_one_is_needed, 0,
			    (int)(sizeof(places) / sizeof(*places)));
	tcase_add_loop_test(tcase, an_address_may_be_found_late, 0, 3);
	tcase_add_loop_test(tcase, a_gid_that_has_left_is_named, 0, 2);
	tcase_add_loop_test(
		tcase, a_change_of_its_gids_counts_for_the_next_channel, 0, 2);
	tcase_add_test(tcase, without_a_gid_there_is_no_channel);
	tcase_add_loop_test(
		tcase, receives_are_a_queue_pairs_own_where_none_can_be_shared,
		0, 2);
	tcase_add_test(tcase, a_shared_queue_may_be_full);
	tcase_add_loop_test(tcase, the_partition_is_one_where_all_are_heard, 0,
			    (int)(sizeof(partitions) / sizeof(*partitions)));
	tcase_add_loop_test(tcase, what_a_driver_does_not_order_is_flushed, 0,
			    (int)(sizeof(flushes) / sizeof(*flushes)));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
