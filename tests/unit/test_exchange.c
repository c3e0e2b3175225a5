// SPDX-License-Identifier: BSD-3-Clause
/* Exchange buffers of shm: at any time one of two ranks has each of them. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "transports/shm/exchange.h"

#define BYTES 256
#define SLOTS 16

/* One direction between two ranks, as its receiver sees it */
struct way {
	uint8_t buffers[SHM_EXCHANGE_BUFFERS][BYTES], slots[SLOTS][BYTES];
	struct tp_line lines[SLOTS];
	uint64_t sent, found, released;
};

static struct way ways[2]; /* of the messages of each rank */
static struct shm_exchange exchange[2];
static struct tp_inbox inbox[2];

static void setup(void)
{
	memset(ways, 0, sizeof(ways));
	memset(exchange, 0, sizeof(exchange));
	for (int r = 0; r < 2; r++) {
		shm_exchange_ours(&exchange[r], ways[r].buffers[0], BYTES);
		shm_exchange_theirs(&exchange[r], ways[!r].buffers[0], BYTES);
		inbox[r] = (struct tp_inbox){.lines = ways[!r].lines,
					     .data = ways[!r].slots[0],
					     .line_stride = TP_LINE_BYTES,
					     .data_stride = BYTES,
					     .slot_mask = SLOTS - 1,
					     .buffers = &exchange[r].buffers};
	}
}

static uint8_t mark(int rank, uint64_t seq)
{
	return (uint8_t)(seq + (rank ? 100 : 0));
}

/* Returns true if the message went in an exchange buffer. */
static bool put(int rank)
{
	struct way *w = &ways[rank];
	uint64_t seq = ++w->sent;
	struct tp_line *line = &w->lines[seq % SLOTS];
	uint8_t *at = shm_exchange_take(&exchange[rank], ways[!rank].released,
					line->room);

	line->kind = at ? TP_BUFFER : TP_DATA;
	line->len = BYTES;
	memset(at ? at : w->slots[seq % SLOTS], mark(rank, seq), BYTES);
	return at;
}

static const uint8_t *find(int rank)
{
	uint64_t seq = ++ways[!rank].found;

	return tp_payload(&inbox[rank], seq, &ways[!rank].lines[seq % SLOTS]);
}

START_TEST(who_has_received_sends_in_the_same_memory)
{
	const uint8_t *first, *second;

	ck_assert(put(0));
	first = find(1);
	ck_assert_ptr_nonnull(first);
	ways[0].released = 1;
	for (int i = 0; i < 100; i++) {
		ck_assert(put(!(i % 2)));
		second = find(i % 2);
		ck_assert_ptr_eq(second, first);
		ways[!(i % 2)].released++;
	}
}
END_TEST

START_TEST(what_is_not_released_is_not_sent_in)
{
	const uint8_t *first;

	ck_assert(put(0));
	first = find(1);
	for (int i = 0; i < SHM_EXCHANGE_BUFFERS; i++) {
		ck_assert(put(1));
		ck_assert_ptr_ne(find(0), first);
	}
	ck_assert(!put(1));
	ways[0].released = 1;
	ck_assert(put(1));
}
END_TEST

START_TEST(who_only_sends_sends_in_slots_in_the_end)
{
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(put(0), i < SHM_EXCHANGE_BUFFERS);
		ck_assert_ptr_nonnull(find(1));
		ways[0].released++;
	}
	/* All are the other one's now. */
	for (int i = 0; i < TP_BUFFERS; i++)
		ck_assert(put(1));
	ck_assert(!put(1));
}
END_TEST

/* Whatever the traffic, nobody writes where something lies that has not been
 * released. */
START_TEST(nothing_is_overwritten)
{
	srand((unsigned)_i);
	for (int i = 0; i < 20000; i++) {
		int r = rand() % 2;
		struct way *w = &ways[r];

		if (rand() % 2 && w->sent - w->released < SLOTS) {
			put(r);
		} else if (w->found < w->sent && w->found == w->released) {
			const uint8_t *at = find(!r);

			ck_assert_ptr_nonnull(at);
			ck_assert_uint_eq(at[BYTES - 1], mark(r, w->found));
			if (rand() % 2)
				w->released = w->found;
		} else {
			w->released = w->found;
		}
	}
}
END_TEST

START_TEST(a_line_with_a_bad_buffer_has_no_bytes)
{
	struct tp_line line = {.kind = TP_BUFFER, .len = BYTES};

	line.room[0] = TP_BUFFERS;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
	line.room[0] = 255;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
	line.room[0] = 0;
	ck_assert_ptr_nonnull(tp_payload(&inbox[0], 1, &line));
	line.len = BYTES + 1;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
	line.len = UINT64_MAX;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
	line.len = BYTES;
	inbox[0].buffers->at[0] = NULL;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
	inbox[0].buffers = NULL;
	ck_assert_ptr_null(tp_payload(&inbox[0], 1, &line));
}
END_TEST

/* Then two messages lie in it, which is the peer's own loss. */
START_TEST(a_peer_that_sends_in_one_buffer_for_ever_fills_nothing)
{
	struct tp_line line = {.kind = TP_BUFFER, .len = BYTES};
	uint8_t number;

	for (uint64_t seq = 1; seq < 1000; seq++) {
		line.room[0] = (uint8_t)(seq % TP_BUFFERS);
		ck_assert_ptr_nonnull(tp_payload(&inbox[0], seq, &line));
		if (seq % 7)
			shm_exchange_take(&exchange[0], seq, &number);
		ck_assert_uint_le(exchange[0].count, TP_BUFFERS);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exchange");
	TCase *tcase = tcase_create("exchange");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, who_has_received_sends_in_the_same_memory);
	tcase_add_test(tcase, what_is_not_released_is_not_sent_in);
	tcase_add_test(tcase, who_only_sends_sends_in_slots_in_the_end);
	tcase_add_loop_test(tcase, nothing_is_overwritten, 0, 8);
	tcase_add_test(tcase, a_line_with_a_bad_buffer_has_no_bytes);
	tcase_add_test(tcase,
		       a_peer_that_sends_in_one_buffer_for_ever_fills_nothing);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
