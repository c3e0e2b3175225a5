/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many bytes a host sends to others while tens of thousands of ranks set up
 * a communicator: by the plan of the tree and the coding of the results, with
 * what ranks over TCP tell, but without the ranks.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "src/boot/control/delta.h"
#include "src/boot/control/rank_info.h"
#include "src/boot/control/relay.h"
#include "src/boot/net/seal.h"
#include "src/core/member.h"
#include "tests/support/runner.h"
#include "transports/shm/address.h"
#include "transports/tcp/tcp.h"

#define RANKS_OF_HOST 8
#define MOST_OF_RANK 2048 /* bytes that any one host sends, for each rank */

static const int sizes[] = {1024, 4096, 16384, 65536};

/* ---- what a rank tells ---- */

static void fill_names(uint8_t *part, int rank)
{
	snprintf((char *)part, RANK_INFO_WHERE, "node%04d pid %u",
		 rank / RANKS_OF_HOST, 1000 + randombytes_uniform(4000000));
}

static void add(struct rank_address *a, const void *address, uint32_t len)
{
	uint32_t room = sizeof(a->begin) - a->len;

	ck_assert_uint_le(sizeof(len) + len, room);
	memcpy(a->begin + a->len, &len, sizeof(len));
	memcpy(a->begin + a->len + sizeof(len), address, len);
	a->len += (uint32_t)sizeof(len) + len;
}

static void listens(char *text, size_t len, int rank)
{
	int host = rank / RANKS_OF_HOST;

	snprintf(text, len, "10.%d.%d.%d:%u", host >> 12, host >> 6 & 63,
		 host & 63, 32768 + randombytes_uniform(28000));
}

static void add_shm(struct rank_address *to, int rank)
{
	uint64_t host = (uint64_t)(rank / RANKS_OF_HOST + 1) *
			UINT64_C(0x9e3779b97f4a7c15);
	struct shm_host h = {.pid_namespace = 4026531836, .host_id = host};
	struct shm_address a = {.pid = 1000 + rank, .fd = 1020};
	struct tp_blob blob;

	memcpy(h.boot_id, &host, sizeof(host));
	memcpy(h.boot_id + 8, &host, sizeof(host));
	randombytes_buf(a.nonce, sizeof(a.nonce));
	a.rank = (uint32_t)rank;
	shm_address_pack(&a, &h, &blob);
	add(to, blob.data, blob.len);
}

static void add_tcp(struct rank_address *to, int rank)
{
	struct tcp_address a;

	memset(&a, 0, sizeof(a));
	randombytes_buf(a.base.proof, sizeof(a.base.proof));
	randombytes_buf(&a.base.token, sizeof(a.base.token));
	a.base.network = (uint64_t)(rank / RANKS_OF_HOST + 1) *
			 UINT64_C(0xbf58476d1ce4e5b9);
	a.base.terms.rank = (uint32_t)rank;
	listens(a.listen, sizeof(a.listen), rank);
	add(to, &a, sizeof(a));
}

static void fill_address(uint8_t *part, int rank)
{
	struct rank_address *a = (struct rank_address *)(void *)part;

	add_shm(a, rank);
	add_tcp(a, rank);
}

static void fill_members(uint8_t *part, int rank)
{
	struct member_told *m = (struct member_told *)(void *)part;

	m->is.host = (uint64_t)(rank / RANKS_OF_HOST + 1) *
		     UINT64_C(0x94d049bb133111eb);
	m->is.pid = 1000 + rank;
	m->is.slots = 16;
	m->is.slot_bytes = 32768;
	strcpy(m->is.island, "off");
	strcpy(m->is.device, "host");
	m->is.on_host = true;
	randombytes_buf(&m->is.fresh, sizeof(m->is.fresh));
	listens(m->recovery, sizeof(m->recovery), rank);
	add_shm(&m->address, rank);
}

/* Of each host, by which transports its ranks are reached. */
static void fill_rows(uint8_t *part, int rank)
{
	part[rank / RANKS_OF_HOST] = 1;
}

/* ---- what is sent ---- */

struct told {
	const char *what;
	size_t len; /* of each rank */
	void (*fill)(uint8_t *part, int rank);
};

/* Returns the bytes of the result as they travel to one rank. */
static uint64_t result_bytes(const struct told *t, int ranks)
{
	uint8_t *part[2] = {calloc(1, t->len), calloc(1, t->len)};
	struct delta_writer w = {.data = NULL};
	uint64_t frames;

	for (int r = 0; r < ranks; r++) {
		uint8_t *mine = part[r & 1];

		memset(mine, 0, t->len);
		t->fill(mine, r);
		delta_add(&w, r ? part[!(r & 1)] : NULL, mine, t->len);
	}
	ck_assert(delta_end(&w));
	free(w.data);
	free(part[0]);
	free(part[1]);
	frames = w.len / FRAME_MAX + 1;
	return w.len + frames * (FRAME_HEADER + 8 + 2 * SEAL_TAG);
}

/* Returns the ranks of other hosts to which ranks of that host pass results.
 * Those that have no parent get them from rank 0. */
static int copies(const int *parent, int ranks, int host)
{
	int n = 0;

	for (int r = 0; r < ranks; r++) {
		int from = parent[r] < 0 ? 0 : parent[r];

		n += from / RANKS_OF_HOST == host && r / RANKS_OF_HOST != host;
	}
	return n;
}

/* Returns what the hub sends to each rank, whatever the others tell. */
static uint64_t hub_bytes(size_t gathers)
{
	struct frame_writer tree, coming;
	const uint8_t key[AUTH_KEY] = {0};

	frame_begin(&tree, FRAME_TREE);
	frame_put_text(&tree, "node0000 pid 4000000");
	frame_put_u32(&tree, 1);
	frame_put_u32(&tree, 1);
	frame_put_bytes(&tree, key, sizeof(key));
	frame_begin(&coming, FRAME_COMING);
	frame_put_u64(&coming, 1);
	/* The handshake; then the place in the tree, the start, where the
	 * parent listens; and a frame for each result. */
	return 3 * HANDSHAKE_LIMIT / 2 + SEAL_START + tree.len + FRAME_HEADER +
	       FRAME_HEADER + SOCK_TEXT + 6 * SEAL_TAG +
	       gathers * (coming.len + 2 * SEAL_TAG);
}

static int *make_plan(int ranks)
{
	size_t n = (size_t)ranks;
	uint64_t *host = calloc(n, sizeof(*host));
	int *parent = calloc(n, sizeof(*parent));
	int *children = calloc(n, sizeof(*children));

	for (int r = 0; r < ranks; r++)
		host[r] = (uint64_t)(r / RANKS_OF_HOST + 1);
	ck_assert(relay_plan(host, ranks, parent, children));
	for (int r = 0; r < ranks; r++)
		ck_assert_int_le(children[r], RANKS_OF_HOST + RELAY_HOSTS);
	free(children);
	free(host);
	return parent;
}

START_TEST(no_host_sends_more_than_a_little_for_each_rank)
{
	int ranks = sizes[_i], hosts = ranks / RANKS_OF_HOST, most = 0;
	const struct told told[] = {
		{"names", RANK_INFO_WHERE, fill_names},
		{"members", sizeof(struct member_told), fill_members},
		{"addresses", sizeof(struct rank_address), fill_address},
		{"rows", (size_t)hosts + 1, fill_rows}};
	const size_t gathers = sizeof(told) / sizeof(*told);
	uint64_t all = 0, bytes;
	int *parent = make_plan(ranks);

	ck_assert_int_ge(sodium_init(), 0);
	for (size_t i = 0; i < gathers; i++) {
		bytes = result_bytes(&told[i], ranks);
		printf("# %d ranks: %s: %.1f bytes of each\n", ranks,
		       told[i].what, (double)bytes / ranks);
		all += bytes;
	}
	ck_assert_int_eq(copies(parent, ranks, 0), RELAY_HOSTS);
	for (int h = 1; h < hosts; h += hosts / 32) {
		int n = copies(parent, ranks, h);

		most = n > most ? n : most;
	}
	free(parent);
	ck_assert_int_le(most, RELAY_HOSTS);
	bytes = RELAY_HOSTS * all + (uint64_t)ranks * hub_bytes(gathers + 2);
	printf("# %d ranks: rank 0's host sends %.1f MB, %.0f bytes for each; "
	       "others at most %.1f MB\n",
	       ranks, (double)bytes / 1e6, (double)bytes / ranks,
	       (double)most * (double)all / 1e6);
	ck_assert_uint_le(bytes, (uint64_t)ranks * MOST_OF_RANK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("control bytes");
	TCase *tcase = tcase_create("control bytes");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase,
			    no_host_sends_more_than_a_little_for_each_rank, 0,
			    (int)(sizeof(sizes) / sizeof(*sizes)));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
