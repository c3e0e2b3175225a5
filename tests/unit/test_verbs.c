/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the verbs transport that need no NIC: which ports DICOMM_IB_HCA
 * selects, what is accepted from the network, and registrations. The libibverbs
 * here only counts those. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "tests/support/runner.h"
#include "transports/verbs/channel/address.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/channel/open.h"
#include "transports/verbs/message/post.h"
#include "transports/verbs/nic/choose.h"
#include "transports/verbs/nic/gid.h"
#include "transports/verbs/nic/nic.h"
#include "transports/verbs/nic/registration.h"

/* ---- a libibverbs that counts ---- */

static int registered; /* at present */
static int made;       /* in total */
static int refuse;     /* errno of the next registrations */
static uint32_t last_key;
static unsigned last_access;

/* A registration of this address posts a semaphore, and waits for another. */
static const void *slow;
static sem_t begun, may_end;
static bool in_vain;

static bool comes(sem_t *sem)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 20;
	return !sem_timedwait(sem, &end);
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)iova;
	if (addr == slow) {
		slow = NULL;
		sem_post(&begun);
		in_vain = !comes(&may_end);
	}
	if (refuse || !mr) {
		free(mr);
		errno = refuse;
		return NULL;
	}
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = ++last_key;
	last_access = access;
	registered++;
	made++;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr,
				(unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	registered--;
	free(mr);
	return 0;
}

static void reset(void)
{
	registered = made = refuse = 0;
}

/* ---- DICOMM_IB_HCA ---- */

static const struct {
	const char *spec, *name;
	unsigned port;
	bool matches;
} specs[] = {
	{"", "mlx5_0", 1, true},
	{"mlx5", "mlx5_0", 1, true},
	{"mlx5", "mlx5_10", 2, true},
	{"mlx5_1", "mlx5_10", 1, true}, /* a prefix */
	{"=mlx5_1", "mlx5_10", 1, false},
	{"=mlx5_1", "mlx5_1", 1, true},
	{"=mlx5_1", "mlx5_1", 2, true},
	{"mlx5_0:1", "mlx5_0", 1, true},
	{"mlx5_0:1", "mlx5_0", 2, false},
	{"mlx5_0:12", "mlx5_0", 1, false},
	{"mlx5_0:1x", "mlx5_0", 1, false},
	{"mlx5_0:", "mlx5_0", 1, false},
	{"=mlx5_0:2,mlx5_1:1", "mlx5_1", 1, true},
	{"=mlx5_0:2,mlx5_1:1", "mlx5_1", 2, false},
	{"^mlx5_0", "mlx5_0", 1, false},
	{"^mlx5_0", "mlx5_1", 1, true},
	{"^mlx5_0:1", "mlx5_0", 2, true},
	{"^=mlx5_1", "mlx5_10", 1, true},
	{"^=mlx5_1", "mlx5_1", 1, false},
	{"rxe0,mlx5_0", "mlx5_0", 1, true},
	{"rxe0,,mlx5_0", "mlx5_0", 1, true},
	{",", "mlx5_0", 1, false},
	{"siw", "rxe0", 1, false},
};

START_TEST(a_specification_lets_through_what_it_names)
{
	ck_assert_msg(verbs_choose_matches(specs[_i].spec, specs[_i].name,
					   specs[_i].port) == specs[_i].matches,
		      "%s: %s port %u", specs[_i].spec, specs[_i].name,
		      specs[_i].port);
}
END_TEST

/* ---- which ports ---- */

/* A machine with two packages of three ports each. A rank uses the ports of its
 * own package, and of the other's only one that is faster. */
static const struct verbs_port six[] = {
	{.name = "a0", .number = 1, .bytes_per_s = 50, .steps = 2},
	{.name = "a1", .number = 1, .bytes_per_s = 50, .steps = 2},
	{.name = "a2", .number = 1, .bytes_per_s = 10, .steps = 2},
	{.name = "b0", .number = 1, .bytes_per_s = 90, .steps = 8},
	{.name = "b1", .number = 1, .bytes_per_s = 50, .steps = 8},
	{.name = "b2", .number = 1, .bytes_per_s = 10, .steps = 8},
};

static const struct {
	const char *most;
	bool places; /* are distances known? */
	unsigned turn;
	const char *names;
} takings[] = {
	{"1", true, 0, "b0 "},           {"2", true, 0, "b0 a0 "},
	{"2", true, 1, "b0 a1 "},        {"2", true, 2, "b0 a0 "},
	{"3", true, 1, "b0 a0 a1 "},     {"4", true, 0, "b0 a0 a1 a2 "},
	{"2", false, 2, "b0 b1 "},       {"3", false, 1, "b0 a0 b1 "},
	{"4", false, 0, "b0 a0 a1 b1 "}, {"4", false, 1, "b0 a0 a1 b1 "},
};

START_TEST(far_ports_are_taken_where_none_near_equals_them)
{
	struct verbs_port ports[6];
	char names[40] = "";
	unsigned n;

	/* In any order. */
	for (int i = 0; i < 6; i++) {
		ports[i] = six[(i * 5 + 2) % 6];
		if (!takings[_i].places)
			ports[i].steps = UINT32_MAX;
	}
	setenv("DICOMM_IB_NICS", takings[_i].most, 1);
	n = verbs_choose_take(ports, 6, takings[_i].turn);
	for (unsigned i = 0; i < n; i++) {
		strcat(names, ports[i].name);
		strcat(names, " ");
	}
	ck_assert_str_eq(names, takings[_i].names);
}
END_TEST

/* Which ports can be used, and what is said if the only port cannot. */
static const struct {
	enum ibv_transport_type type;
	const char *driver;
	int reads, queues; /* what the NIC supports */
	const char *why;   /* NULL: it can be used */
} kinds[] = {
	{IBV_TRANSPORT_IB, "mlx5_core", 16, 1000, NULL},
	{IBV_TRANSPORT_IWARP, "cxgb4", 16, 1000, NULL},
	{IBV_TRANSPORT_IB, "", 16, 1000, NULL},
	{IBV_TRANSPORT_UNSPECIFIED, "efa", 0, 0, "no reliable connections"},
	{IBV_TRANSPORT_USNIC_UDP, "usnic", 16, 1, "no reliable connections"},
	{IBV_TRANSPORT_IB, "mana", 16, 1000, "nothing inline"},
	{IBV_TRANSPORT_IWARP, "erdma", 16, 1000, "nothing inline"},
	{IBV_TRANSPORT_IB, "other", 0, 1000, "does not read"},
	{IBV_TRANSPORT_IB, "ice", 16, 0, NULL},
};

START_TEST(a_nic_that_cannot_be_used_is_known_by_what_it_lacks)
{
	const struct ibv_device_attr attr = {.max_qp_rd_atom = kinds[_i].reads,
					     .max_qp_init_rd_atom =
						     kinds[_i].reads,
					     .max_srq = kinds[_i].queues};
	const char *why =
		verbs_choose_objection(kinds[_i].type, kinds[_i].driver, &attr);

	ck_assert_int_eq(!why, !kinds[_i].why);
	if (why)
		ck_assert_msg(strstr(why, kinds[_i].why), "%s", why);
}
END_TEST

/* As on a cloud host: ports that cannot be used are skipped, and named. */
START_TEST(ports_of_no_use_are_passed_over)
{
	const struct verbs_port all[] = {
		{.name = "efa_0", .unfit = "it has no reliable connections"},
		{.name = "mlx5_0",
		 .number = 1,
		 .active = true,
		 .unfit = "no GID"},
		{.name = "mlx5_1", .number = 1, .gid = "none"},
		{.name = "mlx5_2", .number = 1, .active = true},
	};
	struct verbs_port ports[4];
	char why[256];

	memcpy(ports, all, sizeof(all));
	ck_assert_int_eq(verbs_choose_usable(ports, 4, why, sizeof(why)), 1);
	ck_assert_str_eq(ports[0].name, "mlx5_2");
	memcpy(ports, all, sizeof(all));
	ck_assert_int_eq(verbs_choose_usable(ports, 3, why, sizeof(why)), 0);
	ck_assert_str_eq(why, "no port can be used: "
			      "efa_0 (it has no reliable connections), "
			      "mlx5_0:1 (no GID), mlx5_1:1 InfiniBand 0.0 Gb/s "
			      "GID none (no link)");
}
END_TEST

/* ---- which GID ---- */

/* GID tables of a RoCE NIC with two ports, as kernels fill them and as an
 * administrator may extend them. */
static const struct {
	uint32_t port;
	enum ibv_gid_type type;
	const char *text;
} listed[] = {
	{1, IBV_GID_TYPE_ROCE_V1, "fe80::1"},
	{1, IBV_GID_TYPE_ROCE_V2, "fe80::1"},
	{1, IBV_GID_TYPE_ROCE_V1, "::ffff:10.0.0.1"},
	{1, IBV_GID_TYPE_ROCE_V2, "fd00::1"},
	{1, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.0.1"},
	{1, IBV_GID_TYPE_ROCE_V2, "::ffff:10.0.1.1"},
	{2, IBV_GID_TYPE_ROCE_V1, "fd00::2"},
	{2, IBV_GID_TYPE_ROCE_V1, "fe80::2"},
};
#define LISTED ((int)(sizeof(listed) / sizeof(listed[0])))

static const struct {
	const char *wanted;
	int n; /* of those entries */
	uint8_t port;
	enum verbs_fabric fabric;
	uint32_t count; /* expected: of one type, best first */
	uint8_t index[4];
} gids[] = {
	{"auto", LISTED, 1, VERBS_ROCE, 4, {4, 5, 3, 1}},
	{"auto", 4, 1, VERBS_ROCE, 2, {3, 1}}, /* v2, even before IPv4 */
	{"auto", 3, 1, VERBS_ROCE, 1, {1}},
	{"auto", 1, 1, VERBS_ROCE, 1, {0}},
	{"auto", LISTED, 2, VERBS_ROCE, 2, {6, 7}},
	{"auto", LISTED, 3, VERBS_ROCE, 0, {0}},
	{"auto", 0, 1, VERBS_ROCE, 0, {0}},
	{"auto", LISTED, 1, VERBS_INFINIBAND, 1, {0}},
	{"5", LISTED, 1, VERBS_ROCE, 1, {5}},
	{"0", LISTED, 1, VERBS_ROCE, 1, {0}},
	{"5", LISTED, 2, VERBS_ROCE, 0, {0}},
	{"2", LISTED, 1, VERBS_INFINIBAND, 1, {2}},
};

static const uint8_t no_prefix[VERBS_GIDS + LISTED];

START_TEST(the_gids_are_those_that_others_reach)
{
	struct verbs_gid found[VERBS_GIDS];
	struct ibv_gid_entry e[LISTED];
	uint32_t n;

	for (int i = 0; i < LISTED; i++) {
		e[i] = (struct ibv_gid_entry){.gid_index = (uint32_t)i,
					      .port_num = listed[i].port,
					      .gid_type = listed[i].type};
		ck_assert_int_eq(
			inet_pton(AF_INET6, listed[i].text, e[i].gid.raw), 1);
	}
	setenv("DICOMM_IB_GID_INDEX", gids[_i].wanted, 1);
	n = verbs_choose_gids(e, no_prefix, gids[_i].n, gids[_i].port,
			      gids[_i].fabric, found);
	ck_assert_uint_eq(n, gids[_i].count);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_eq(found[i].index, gids[_i].index[i]);
		ck_assert_mem_eq(&found[i].gid, &e[found[i].index].gid,
				 sizeof(found[i].gid));
	}
}
END_TEST

/* More GIDs of one type than an address holds: the first ones. */
START_TEST(a_port_is_known_by_a_few_gids)
{
	struct verbs_gid found[VERBS_GIDS + 1] = {[VERBS_GIDS] = {.index = 99}};
	struct ibv_gid_entry e[VERBS_GIDS + 3];
	uint32_t n = sizeof(e) / sizeof(*e);

	for (uint32_t i = 0; i < n; i++) {
		e[i] = (struct ibv_gid_entry){.gid_index = i,
					      .port_num = 1,
					      .gid_type = IBV_GID_TYPE_ROCE_V2};
		e[i].gid.raw[15] = (uint8_t)(i + 1);
	}
	setenv("DICOMM_IB_GID_INDEX", "auto", 1);
	ck_assert_uint_eq(
		verbs_choose_gids(e, no_prefix, n, 1, VERBS_ROCE, found),
		VERBS_GIDS);
	for (uint32_t i = 0; i < VERBS_GIDS; i++)
		ck_assert_uint_eq(found[i].index, i);
	ck_assert_uint_eq(found[VERBS_GIDS].index, 99);
}
END_TEST

/* A container sees the addresses of all others on its NIC; its own may come
 * last. */
START_TEST(addresses_of_this_namespace_come_first)
{
	static const char *const texts[] = {"fe80::1", "::ffff:10.0.0.1",
					    "fd00::1", "fd00::2",
					    "::ffff:10.0.0.2"};
	const uint8_t prefix[] = {0, 0, 0, 64, 120};
	const uint8_t order[] = {4, 3, 1, 2, 0};
	struct verbs_gid found[VERBS_GIDS];
	struct ibv_gid_entry e[5];

	for (uint32_t i = 0; i < 5; i++) {
		e[i] = (struct ibv_gid_entry){.gid_index = i,
					      .port_num = 1,
					      .gid_type = IBV_GID_TYPE_ROCE_V2};
		ck_assert_int_eq(inet_pton(AF_INET6, texts[i], e[i].gid.raw),
				 1);
	}
	setenv("DICOMM_IB_GID_INDEX", "auto", 1);
	ck_assert_uint_eq(verbs_choose_gids(e, prefix, 5, 1, VERBS_ROCE, found),
			  5);
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(found[i].index, order[i]);
		ck_assert_uint_eq(found[i].prefix, prefix[order[i]]);
	}
}
END_TEST

/* My GIDs with their prefixes, their GIDs, both best first; and which two are
 * used. */
#define V4(bits) (96 + (bits))
static const struct {
	struct {
		const char *text;
		uint8_t prefix;
	} mine[3];
	const char *theirs[3];
	uint32_t my_gid, their_gid;
} pairs[] = {
	{{{"::ffff:10.0.0.1", V4(24)}}, {"::ffff:10.0.0.2"}, 0, 0},
	/* Only the second GIDs are in one subnet. */
	{{{"::ffff:10.0.0.1", V4(24)}, {"::ffff:10.0.1.1", V4(24)}},
	 {"::ffff:10.0.2.2", "::ffff:10.0.1.2"},
	 1,
	 1},
	/* Prefixes that end within a byte: the longer common prefix is no
	 * subnet. */
	{{{"::ffff:10.0.0.1", V4(30)}, {"::ffff:10.0.64.1", V4(18)}},
	 {"::ffff:10.0.0.5", "::ffff:10.0.127.9"},
	 1,
	 1},
	{{{"::ffff:10.0.0.1", V4(30)}, {"::ffff:10.0.64.1", V4(18)}},
	 {"::ffff:10.0.0.2", "::ffff:10.0.127.9"},
	 0,
	 0},
	/* No subnet in common: the first of the same family, by a router. */
	{{{"::ffff:10.0.0.1", V4(24)}, {"fd00::1", 64}},
	 {"::ffff:10.1.0.1", "fd00:0:0:1::1"},
	 0,
	 0},
	{{{"::ffff:10.0.0.1", V4(24)}, {"fd00::1", 64}},
	 {"fd00:0:0:1::1", "fe80::2"},
	 1,
	 0},
	{{{"::ffff:10.0.0.1", V4(24)}, {"fe80::1", 0}}, {"fe80::2"}, 1, 0},
	/* A common subnet is preferred to a better type. */
	{{{"::ffff:10.0.0.1", V4(24)}, {"fd00::1", 64}},
	 {"::ffff:10.1.0.1", "fd00::2"},
	 1,
	 1},
	/* Nothing in common, and nothing known: the first. */
	{{{"::ffff:10.0.0.1", 0}}, {"fd00::1"}, 0, 0},
	{{{"::ffff:10.0.0.1", 0}, {"::ffff:10.0.1.1", 0}},
	 {"::ffff:10.0.1.2"},
	 0,
	 0},
};

START_TEST(gids_of_one_subnet_go_together)
{
	struct verbs_gid mine[3] = {{.index = 0}};
	uint8_t theirs[3][16];
	uint32_t n = 0, their_n = 0, my_gid = 9, their_gid = 9;

	for (; n < 3 && pairs[_i].mine[n].text; n++) {
		mine[n].prefix = pairs[_i].mine[n].prefix;
		ck_assert_int_eq(inet_pton(AF_INET6, pairs[_i].mine[n].text,
					   mine[n].gid.raw),
				 1);
	}
	for (; their_n < 3 && pairs[_i].theirs[their_n]; their_n++)
		ck_assert_int_eq(inet_pton(AF_INET6, pairs[_i].theirs[their_n],
					   theirs[their_n]),
				 1);
	verbs_choose_pair(mine, n, theirs, their_n, &my_gid, &their_gid);
	ck_assert_uint_eq(my_gid, pairs[_i].my_gid);
	ck_assert_uint_eq(their_gid, pairs[_i].their_gid);
}
END_TEST

/* ---- what comes from the network ---- */

static struct verbs_nic fake_nic = {
	.name = "fake0", .port = 1, .lock = PTHREAD_MUTEX_INITIALIZER};

static struct verbs_nic other_nic = {.name = "fake1", .port = 2};

static struct tp_blob good_address(void)
{
	static struct tp_device dev = {
		.config = {.rank = 3, .ranks = 5, .slots = 16},
		.rails = 2,
		.rail = {{.nic = &fake_nic}, {.nic = &other_nic}},
		.eager_bytes = 4096,
		.listen = "192.168.77.1:4711",
		.host = "here",
	};
	struct tp_blob blob;

	transport_find("verbs")->address(&dev, &blob);
	return blob;
}

START_TEST(an_address_arrives_as_it_was_made)
{
	struct tp_blob blob = good_address();
	struct verbs_address a;
	char why[160];

	ck_assert(verbs_address_parse(&blob, &a, why, sizeof(why)));
	ck_assert_uint_eq(a.rank, 3);
	ck_assert_uint_eq(a.ranks, 5);
	ck_assert_uint_eq(a.eager_bytes, 4096);
	ck_assert_str_eq(a.listen, "192.168.77.1:4711");
	ck_assert_uint_eq(a.rails, 2);
	ck_assert_str_eq(a.nic, "fake0:1,fake1:2");
}
END_TEST

START_TEST(each_wrong_bit_of_an_address_is_noticed)
{
	const struct tp_blob good = good_address();

	for (uint32_t bit = 0; bit < 8 * good.len; bit++) {
		struct tp_blob bad = good;
		struct verbs_address a;
		char why[160] = "";

		bad.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_msg(!verbs_address_parse(&bad, &a, why, sizeof(why)),
			      "bit %u", bit);
		ck_assert_str_ne(why, "");
	}
}
END_TEST

START_TEST(an_address_of_another_length_is_refused)
{
	struct tp_blob blob = good_address();
	const uint32_t right = blob.len;

	for (uint32_t len = 0; len <= sizeof(blob.data); len++) {
		struct verbs_address a;
		char why[160] = "";

		blob.len = len;
		ck_assert(verbs_address_parse(&blob, &a, why, sizeof(why)) ==
			  (len == right));
	}
}
END_TEST

START_TEST(only_ranks_with_the_key_make_a_message)
{
	const uint8_t key[VERBS_KEY] = {1, 2, 3}, other[VERBS_KEY] = {1, 2, 4};
	struct verbs_connect_msg msg = {.type = VERBS_REQUEST,
					.qp = {{.qpn = 17}}};

	verbs_msg_seal(&msg, key);
	ck_assert(verbs_msg_is_genuine(&msg, key));
	ck_assert(!verbs_msg_is_genuine(&msg, other));
	for (size_t bit = 0; bit < 8 * sizeof(msg); bit++) {
		struct verbs_connect_msg bad = msg;

		((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_msg(!verbs_msg_is_genuine(&bad, key), "bit %zu", bit);
	}
}
END_TEST

/* ---- queue pairs ---- */

/* Two rails: rates of the ports of each side, in MB/s. */
static const struct {
	uint32_t qps, here[2], there[2];
	unsigned first_percent; /* of all bytes, over the first rail */
} rates[] = {
	{2, {100, 100}, {100, 100}, 50}, {2, {200, 100}, {200, 100}, 66},
	{2, {300, 100}, {100, 100}, 50}, {2, {100, 100}, {10, 100}, 9},
	{4, {200, 100}, {200, 100}, 66}, {8, {100, 100}, {100, 100}, 50},
};

START_TEST(traffic_is_shared_by_rate)
{
	static struct verbs_nic nics[2];
	static struct tp_device dev = {
		.rails = 2, .rail = {{.nic = &nics[0]}, {.nic = &nics[1]}}};
	const uint32_t n = rates[_i].qps;
	struct verbs_channel *channel = verbs_channel_new(&dev, 1, 0, false, n);
	struct verbs_connect_msg remote = {.qps = n};
	uint64_t bytes[2] = {0, 0}, percent;
	unsigned state = 1;

	channel->depth = 16;
	for (uint32_t i = 0; i < n; i++) {
		channel->qp[i].rail = &dev.rail[i % 2];
		channel->qp[i].remote_rail = i % 2;
		nics[i % 2].bytes_per_s = rates[_i].here[i % 2] * 1000000u;
		remote.qp[i].bytes_per_s = rates[_i].there[i % 2] * 1000000u;
	}
	verbs_channel_balance(channel, &remote);
	for (int i = 0; i < 10000; i++) {
		uint64_t len = 1u << (rand_r(&state) % 20);

		bytes[verbs_pick_qp(channel, len)->rail - dev.rail] += len;
	}
	percent = 100 * bytes[0] / (bytes[0] + bytes[1]);
	ck_assert_uint_ge(percent + 2, rates[_i].first_percent);
	ck_assert_uint_le(percent, rates[_i].first_percent + 2);
	/* A full queue pair is passed over. */
	for (uint32_t i = 1; i < n; i++)
		channel->qp[i].posted = 16;
	for (int i = 0; i < 100; i++)
		ck_assert_ptr_eq(verbs_pick_qp(channel, 1), &channel->qp[0]);
	free(channel);
}
END_TEST

/* ---- registrations ---- */

static struct verbs_mr *get(void *addr, size_t len, bool written)
{
	struct verbs_mr *mr;

	ck_assert_int_eq(verbs_mr_get(&fake_nic, addr, len, written, &mr),
			 DICOMM_SUCCESS);
	return mr;
}

START_TEST(memory_of_others_is_registered_while_it_is_used)
{
	static uint8_t memory[10000];
	struct verbs_mr *all = get(memory, sizeof(memory), true);
	struct verbs_mr *part = get(memory + 100, 50, false), *beyond;

	ck_assert_ptr_eq(all, part);
	ck_assert_int_eq(made, 1);
	beyond = get(memory + 9999, 2, false);
	ck_assert_ptr_ne(beyond, all);
	verbs_mr_put(&fake_nic, all);
	ck_assert_int_eq(registered, 2);
	verbs_mr_put(&fake_nic, part);
	verbs_mr_put(&fake_nic, beyond);
	/* The memory may be freed now, and the library is not told. */
	ck_assert_int_eq(registered, 0);
	verbs_mr_put(&fake_nic, get(memory, 1, false));
	ck_assert_int_eq(made, 3);
	ck_assert_int_eq(registered, 0);
}
END_TEST

START_TEST(what_is_only_read_is_not_registered_for_writing)
{
	static uint8_t memory[100];
	struct verbs_mr *read = get(memory, 100, false), *written;

	ck_assert(!(last_access & IBV_ACCESS_LOCAL_WRITE));
	ck_assert(!(last_access & IBV_ACCESS_REMOTE_WRITE));
	written = get(memory, 100, true);
	ck_assert_ptr_ne(read, written);
	ck_assert(last_access & IBV_ACCESS_LOCAL_WRITE);
	ck_assert(!(last_access & IBV_ACCESS_REMOTE_WRITE));
	verbs_mr_put(&fake_nic, read);
	verbs_mr_put(&fake_nic, written);
}
END_TEST

START_TEST(order_is_relaxed_unless_that_is_forbidden)
{
	static uint8_t memory[100];

	if (_i)
		setenv("DICOMM_IB_PCI_RELAXED_ORDERING", "0", 1);
	verbs_mr_put(&fake_nic, get(memory, 100, true));
	ck_assert_int_eq(!(last_access & IBV_ACCESS_RELAXED_ORDERING), _i);
}
END_TEST

static void *allocate(size_t bytes)
{
	void *memory;

	ck_assert_int_eq(accels[0]->alloc(0, bytes, &memory), DICOMM_SUCCESS);
	return memory;
}

static void release(void *memory)
{
	ck_assert_int_eq(accels[0]->free(memory), DICOMM_SUCCESS);
}

START_TEST(our_own_memory_stays_registered)
{
	uint8_t *memory = allocate(1 << 20);
	struct verbs_mr *mr = get(memory + 4096, 10, false);
	uint32_t key = mr->mr->rkey;

	/* All of it, for reads and writes. */
	ck_assert_ptr_eq((void *)mr->base, memory);
	ck_assert_uint_ge(mr->len, 1 << 20);
	verbs_mr_put(&fake_nic, mr);
	ck_assert_int_eq(registered, 1);
	for (int i = 0; i < 10; i++) {
		mr = get(memory, 1 << 20, i % 2);
		ck_assert_uint_eq(mr->mr->rkey, key);
		verbs_mr_put(&fake_nic, mr);
	}
	ck_assert_int_eq(made, 1);
	release(memory);
	verbs_mr_free_all(&fake_nic);
	ck_assert_int_eq(registered, 0);
}
END_TEST

/* The next allocation has the address of the last. The old key would be
 * accepted, and reach pages that are not used any more. */
START_TEST(memory_that_was_replaced_gets_a_new_key)
{
	uint32_t key = 0;
	void *before = NULL;
	int same = 0;

	for (int i = 0; i < 50; i++) {
		void *memory = allocate(1 << 20);
		struct verbs_mr *mr = get(memory, 1 << 20, true);

		same += memory == before;
		ck_assert_uint_ne(mr->mr->rkey, key);
		ck_assert_int_eq(registered, 1);
		key = mr->mr->rkey;
		before = memory;
		verbs_mr_put(&fake_nic, mr);
		release(memory);
	}
	ck_assert_int_gt(same, 0);
	verbs_mr_free_all(&fake_nic);
}
END_TEST

START_TEST(memory_freed_while_in_use_goes_with_its_last_user)
{
	void *memory = allocate(1 << 20), *resend;
	struct verbs_mr *mr = get(memory, 100, true), *other;
	uint32_t key = mr->mr->rkey;

	release(memory);
	resend = allocate(1 << 20);
	other = get(resend, 100, true);
	ck_assert_uint_ne(other->mr->rkey, key);
	ck_assert_int_eq(registered, 2);
	verbs_mr_put(&fake_nic, mr);
	ck_assert_int_eq(registered, 1);
	verbs_mr_put(&fake_nic, other);
	release(resend);
	verbs_mr_free_all(&fake_nic);
	ck_assert_int_eq(registered, 0);
}
END_TEST

/* More than the list of freed allocations holds: everything unused is
 * dropped. */
START_TEST(many_frees_at_once_are_noticed)
{
	void *memory = allocate(1 << 16), *resend;
	struct verbs_mr *mr = get(memory, 100, true);
	uint32_t key = mr->mr->rkey;

	verbs_mr_put(&fake_nic, mr);
	release(memory);
	for (int i = 0; i < 10000; i++)
		release(allocate(4096));
	resend = allocate(1 << 16);
	mr = get(resend, 100, true);
	ck_assert_uint_ne(mr->mr->rkey, key);
	ck_assert_int_eq(registered, 1);
	verbs_mr_put(&fake_nic, mr);
	release(resend);
	verbs_mr_free_all(&fake_nic);
}
END_TEST

START_TEST(a_refusal_says_what_and_why)
{
	static uint8_t memory[5000];
	struct verbs_mr *mr = NULL;

	refuse = ENOMEM;
	ck_assert_int_eq(verbs_mr_get(&fake_nic, memory, 5000, true, &mr),
			 DICOMM_ERR_NO_MEMORY);
	ck_assert_ptr_eq(mr, NULL);
	ck_assert_ptr_ne(strstr(log_last_error(), "fake0"), NULL);
	ck_assert_ptr_ne(strstr(log_last_error(), "5000 bytes"), NULL);
	ck_assert_ptr_ne(strstr(log_last_error(), "ulimit -l"), NULL);
	refuse = EFAULT;
	ck_assert_int_eq(verbs_mr_get(&fake_nic, memory, 5000, true, &mr),
			 DICOMM_ERR_SYSTEM);
	ck_assert_ptr_ne(strstr(log_last_error(), strerror(EFAULT)), NULL);
	refuse = 0;
	verbs_mr_put(&fake_nic, get(memory, 5000, true));
	ck_assert_int_eq(registered, 0);
}
END_TEST

/* ---- memory of devices ---- */

static unsigned no_caps(int index)
{
	(void)index;
	return 0;
}

static const struct accel_work fake_work = {.caps = no_caps};
static const struct accel fake_accel = {.name = "fake", .work = &fake_work};

static uint8_t on_device[4096];
static const struct tp_region region = {.accel = &fake_accel,
					.addr = on_device,
					.len = sizeof(on_device),
					.id = 77};

struct getter {
	dicomm_result_t status;
	struct verbs_mr *mr;
	char how[256];
};

static void *get_region(void *arg)
{
	struct getter *g = arg;

	g->status = verbs_mr_get_device(&fake_nic, &region, &g->mr, g->how,
					sizeof(g->how));
	return NULL;
}

/* A driver may wait for another thread. Meanwhile that thread can register the
 * same region; and the first registration may fail. */
START_TEST(a_slow_registration_holds_nobody_up)
{
	static uint8_t other[100];
	struct getter first = {.mr = NULL}, second = {.mr = NULL};
	pthread_t thread;

	sem_init(&begun, 0, 0);
	sem_init(&may_end, 0, 0);
	slow = on_device;
	ck_assert_int_eq(pthread_create(&thread, NULL, get_region, &first), 0);
	ck_assert(comes(&begun));
	verbs_mr_put(&fake_nic, get(other, 100, true));
	get_region(&second);
	ck_assert_int_eq(second.status, DICOMM_SUCCESS);
	refuse = _i ? ENOMEM : 0;
	sem_post(&may_end);
	pthread_join(thread, NULL);
	refuse = 0;
	ck_assert(!in_vain);
	ck_assert_int_eq(first.status, DICOMM_SUCCESS);
	ck_assert_ptr_eq(first.mr, second.mr);
	ck_assert_str_eq(first.how, second.how);
	ck_assert_ptr_ne(strstr(first.how, "peer memory"), NULL);
	ck_assert_int_eq(made, _i ? 2 : 3);
	ck_assert_int_eq(registered, 1);
	verbs_mr_put(&fake_nic, first.mr);
	ck_assert_int_eq(registered, 1);
	verbs_mr_put(&fake_nic, second.mr);
	ck_assert_int_eq(registered, 0);
	ck_assert_ptr_eq(fake_nic.mrs, NULL);
}
END_TEST

START_TEST(a_region_that_is_refused_is_forgotten)
{
	struct getter g = {.mr = NULL};

	refuse = EFAULT;
	get_region(&g);
	ck_assert_int_eq(g.status, DICOMM_ERR_UNSUPPORTED);
	ck_assert_ptr_ne(strstr(g.how, strerror(EFAULT)), NULL);
	ck_assert_ptr_eq(fake_nic.mrs, NULL);
	refuse = 0;
	get_region(&g);
	ck_assert_int_eq(g.status, DICOMM_SUCCESS);
	verbs_mr_put(&fake_nic, g.mr);
	ck_assert_int_eq(registered, 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("verbs");
	Suite *suite = suite_create("verbs");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, reset, NULL);
	tcase_add_loop_test(tcase, a_specification_lets_through_what_it_names,
			    0, (int)(sizeof(specs) / sizeof(*specs)));
	tcase_add_loop_test(tcase,
			    far_ports_are_taken_where_none_near_equals_them, 0,
			    (int)(sizeof(takings) / sizeof(*takings)));
	tcase_add_loop_test(tcase,
			    a_nic_that_cannot_be_used_is_known_by_what_it_lacks,
			    0, (int)(sizeof(kinds) / sizeof(*kinds)));
	tcase_add_test(tcase, ports_of_no_use_are_passed_over);
	tcase_add_loop_test(tcase, the_gids_are_those_that_others_reach, 0,
			    (int)(sizeof(gids) / sizeof(*gids)));
	tcase_add_test(tcase, a_port_is_known_by_a_few_gids);
	tcase_add_test(tcase, addresses_of_this_namespace_come_first);
	tcase_add_loop_test(tcase, gids_of_one_subnet_go_together, 0,
			    (int)(sizeof(pairs) / sizeof(*pairs)));
	tcase_add_test(tcase, an_address_arrives_as_it_was_made);
	tcase_add_test(tcase, each_wrong_bit_of_an_address_is_noticed);
	tcase_add_test(tcase, an_address_of_another_length_is_refused);
	tcase_add_test(tcase, only_ranks_with_the_key_make_a_message);
	tcase_add_loop_test(tcase, traffic_is_shared_by_rate, 0,
			    (int)(sizeof(rates) / sizeof(*rates)));
	tcase_add_test(tcase, memory_of_others_is_registered_while_it_is_used);
	tcase_add_test(tcase, what_is_only_read_is_not_registered_for_writing);
	tcase_add_loop_test(tcase, order_is_relaxed_unless_that_is_forbidden, 0,
			    2);
	tcase_add_test(tcase, our_own_memory_stays_registered);
	tcase_add_test(tcase, memory_that_was_replaced_gets_a_new_key);
	tcase_add_test(tcase,
		       memory_freed_while_in_use_goes_with_its_last_user);
	tcase_add_test(tcase, many_frees_at_once_are_noticed);
	tcase_add_test(tcase, a_refusal_says_what_and_why);
	tcase_add_loop_test(tcase, a_slow_registration_holds_nobody_up, 0, 2);
	tcase_add_test(tcase, a_region_that_is_refused_is_forgotten);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
