/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every transport promises (transports/transport.h). Each test runs for
 * each usable transport of the build, with threads and with processes as ranks.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/job.h"
#include "tests/support/runner.h"
#include "tests/transports/ranks.h"

#define TRANSPORTS_MAX 8
#define LARGE (1u << 20)

static const struct transport *usable[TRANSPORTS_MAX];
static int usable_count;

static struct ranks_job job_of(int i, int ranks, void (*run)(struct rank *r))
{
	return (struct ranks_job){
		.t = usable[i / RANKS_KINDS],
		.kind = (enum ranks_kind)(i % RANKS_KINDS),
		.ranks = ranks,
		.run = run,
	};
}

/* Empty, around the small sizes, around the room in a line, a whole slot. */
static const uint64_t lens[] = {0,   1,   2,    3,    4,    5,   7,   8,   9,
				15,  16,  17,   24,   31,   32,  33,  39,  40,
				41,  48,  63,   64,   65,   96,  103, 104, 105,
				128, 500, 1000, 2048, 4095, 4096};
#define LENS (sizeof(lens) / sizeof(*lens))

static void receive(struct rank *r, int peer, enum tp_class c, uint64_t seq,
		    uint64_t len)
{
	const uint8_t *body;
	const struct tp_line *line = ranks_get(r, peer, c, seq, &body);
	uint64_t seed = seq + 1000u * (uint64_t)peer + 100u * c, good;

	EXPECT(r, line->kind != TP_REF && line->len == len,
	       "kind %u, %llu bytes, wanted %llu", line->kind,
	       (unsigned long long)line->len, (unsigned long long)len);
	good = ranks_check(body, len, seed);
	EXPECT(r, good == len,
	       "message %llu of %llu bytes is wrong from byte %llu",
	       (unsigned long long)seq, (unsigned long long)len,
	       (unsigned long long)good);
}

static void send(struct rank *r, int peer, enum tp_class c, uint64_t seq,
		 uint64_t len)
{
	uint8_t body[4096];

	ranks_fill(body, len, seq + 1000u * (uint64_t)r->rank + 100u * c);
	ranks_put(r, peer, c, seq, body, len);
}

static dicomm_result_t release(struct rank *r, int peer, enum tp_class c,
			       uint64_t seq)
{
	return r->t->release(r->peer[peer], c, seq);
}

static uint64_t released(struct rank *r, int peer, enum tp_class c)
{
	return atomic_load_explicit(r->out[peer][c].released,
				    memory_order_acquire);
}

/* Both ways at once, and no pause: whoever polls sees each message in the
 * moment when it is complete. */
static void run_visible(struct rank *r)
{
	const uint64_t messages = 20000;
	int peer = !r->rank;
	uint64_t sent = 0;

	ranks_connect(r, peer, TP_COLLECTIVE);
	for (uint64_t got = 1; got <= messages; got++) {
		for (; sent < messages && sent < got + 2; sent++)
			send(r, peer, TP_COLLECTIVE, sent + 1,
			     lens[sent % LENS]);
		receive(r, peer, TP_COLLECTIVE, got, lens[(got - 1) % LENS]);
		EXPECT_OK(r, release(r, peer, TP_COLLECTIVE, got));
	}
	EXPECT_OK(r, r->t->broken(r->dev, &peer));
}

START_TEST(put_is_visible_before_its_counter)
{
	struct ranks_job job = job_of(_i, 2, run_visible);

	ranks_run(&job);
}
END_TEST

/* The sender runs ahead as far as credits let it; the receiver looks at all
 * slots, out of order, and must find each counter only ever growing. */
static void run_ahead(struct rank *r)
{
	const uint64_t messages = 5000;
	uint64_t last[8] = {0}, next = 1;

	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_POINT_TO_POINT);
		for (uint64_t q = 1; q <= messages; q++)
			send(r, 1, TP_POINT_TO_POINT, q, q % 200);
		RANKS_WAIT(r, released(r, 1, TP_POINT_TO_POINT) == messages);
		return;
	}
	ranks_connect_in(r, 0, TP_POINT_TO_POINT);
	while (next <= messages) {
		const struct tp_inbox *in = &r->in[0][TP_POINT_TO_POINT];
		uint64_t newest = 0;

		for (uint64_t s = 0; s < r->config.slots; s++) {
			uint64_t seq = atomic_load_explicit(
				&tp_line(in, s)->seq, memory_order_acquire);

			EXPECT(r, seq >= last[s] && (!seq || seq % 8 == s),
			       "slot %d went from %d to %d", (int)s,
			       (int)last[s], (int)seq);
			last[s] = seq;
			newest = seq > newest ? seq : newest;
		}
		EXPECT(r, newest < next + r->config.slots, "beyond credits");
		while (atomic_load(&tp_line(in, next % 8)->seq) == next) {
			receive(r, 0, TP_POINT_TO_POINT, next, next % 200);
			next++;
		}
		EXPECT_OK(r, release(r, 0, TP_POINT_TO_POINT, next - 1));
		r->t->poll(r->dev);
		RANKS_WAIT(r,
			   next > messages ||
				   atomic_load(&tp_line(in, next % 8)->seq) ==
					   next);
	}
}

START_TEST(each_counter_of_a_pair_only_grows)
{
	struct ranks_job job = job_of(_i, 2, run_ahead);

	ranks_run(&job);
}
END_TEST

/* Operations that run at the same time share a pair's numbers: within the
 * credits they are put in any order, and each goes to its own slot. */
static void run_disorder(struct rank *r)
{
	const enum tp_class c = TP_COLLECTIVE;
	const uint64_t slots = r->config.slots, messages = 600;

	if (r->rank == 1) {
		ranks_connect_in(r, 0, c);
		for (uint64_t q = 1; q <= messages; q++) {
			receive(r, 0, c, q, q % 200);
			if (q % slots == 0)
				EXPECT_OK(r, release(r, 0, c, q));
		}
		RANKS_WAIT(r, r->t->flush(r->dev));
		return;
	}
	ranks_connect_out(r, 1, c);
	for (uint64_t q = 0; q < messages; q += slots) {
		RANKS_WAIT(r, released(r, 1, c) == q);
		for (uint64_t i = slots; i > 0; i--)
			send(r, 1, c, q + i, (q + i) % 200);
	}
	RANKS_WAIT(r, released(r, 1, c) == messages);
}

START_TEST(numbers_may_be_put_in_any_order)
{
	struct ranks_job job = job_of(_i, 2, run_disorder);

	ranks_run(&job);
}
END_TEST

static void run_credits(struct rank *r)
{
	const enum tp_class c = TP_COLLECTIVE;
	uint64_t slots = r->config.slots;

	if (r->rank == 1) {
		ranks_connect_in(r, 0, c);
		for (uint64_t q = 1; q <= slots; q++)
			receive(r, 0, c, q, q);
		ranks_barrier(r); /* full */
		ranks_barrier(r); /* one too many was refused */
		for (uint64_t q = 1; q <= slots; q++)
			receive(r, 0, c, q, q);
		EXPECT_OK(r, release(r, 0, c, 1));
		receive(r, 0, c, slots + 1, 4096);
		ranks_barrier(r);
		EXPECT_OK(r, release(r, 0, c, 5)); /* several at once */
		for (uint64_t q = slots + 2; q <= slots + 5; q++)
			receive(r, 0, c, q, 64);
		return;
	}
	ranks_connect_out(r, 1, c);
	EXPECT(r, released(r, 1, c) == 0, "at the start");
	for (uint64_t q = 1; q <= slots; q++)
		send(r, 1, c, q, q);
	ranks_barrier(r);
	for (int i = 0; i < 1000; i++) {
		EXPECT(r,
		       ranks_try_put(r, 1, c, slots + 1, "x",
				     (uint64_t)(i % 2)) == DICOMM_AGAIN,
		       "put without credits");
		r->t->poll(r->dev);
	}
	ranks_barrier(r);
	send(r, 1, c, slots + 1, 4096); /* waits for release(1) */
	EXPECT(r, released(r, 1, c) == 1, "%d", (int)released(r, 1, c));
	EXPECT(r, ranks_try_put(r, 1, c, slots + 2, "x", 1) == DICOMM_AGAIN,
	       "put without credits");
	ranks_barrier(r);
	RANKS_WAIT(r, released(r, 1, c) == 5);
	for (uint64_t q = slots + 2; q <= slots + 5; q++)
		send(r, 1, c, q, 64);
	EXPECT(r, ranks_try_put(r, 1, c, slots + 6, "x", 1) == DICOMM_AGAIN,
	       "put without credits");
}

START_TEST(credits_are_respected)
{
	struct ranks_job job = job_of(_i, 2, run_credits);

	ranks_run(&job);
}
END_TEST

static void run_classes(struct rank *r)
{
	uint64_t slots = r->config.slots;

	for (int c = 0; c < TP_CLASSES; c++)
		ranks_connect(r, !r->rank, (enum tp_class)c);
	/* One class is full; the other goes on. */
	for (uint64_t q = 1; q <= slots; q++)
		send(r, !r->rank, TP_POINT_TO_POINT, q, 40);
	for (uint64_t q = 1; q <= 10 * slots; q++) {
		send(r, !r->rank, TP_COLLECTIVE, q, 200);
		receive(r, !r->rank, TP_COLLECTIVE, q, 200);
		EXPECT_OK(r, release(r, !r->rank, TP_COLLECTIVE, q));
	}
	for (uint64_t q = 1; q <= slots; q++)
		receive(r, !r->rank, TP_POINT_TO_POINT, q, 40);
}

START_TEST(classes_do_not_wait_for_each_other)
{
	struct ranks_job job = job_of(_i, 2, run_classes);

	ranks_run(&job);
}
END_TEST

static void run_lazy(struct rank *r)
{
	if (r->rank == 0) {
		ranks_barrier(r);
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		send(r, 1, TP_COLLECTIVE, 1, 50);
		return;
	}
	for (int i = 0; i < 100; i++) {
		EXPECT(r,
		       r->t->connect_in(r->peer[0], TP_COLLECTIVE,
					&r->in[0][TP_COLLECTIVE]) ==
			       DICOMM_AGAIN,
		       "before the sender connects");
		r->t->poll(r->dev);
	}
	ranks_barrier(r);
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	receive(r, 0, TP_COLLECTIVE, 1, 50);
	/* Again: the same inbox. */
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	receive(r, 0, TP_COLLECTIVE, 1, 50);
}

START_TEST(an_inbox_waits_for_its_sender_to_connect)
{
	struct ranks_job job = job_of(_i, 2, run_lazy);

	ranks_run(&job);
}
END_TEST

static void put_ref(struct rank *r, int peer, uint64_t seq,
		    const struct tp_ref *ref, uint64_t len)
{
	dicomm_result_t status;

	RANKS_WAIT(r, (status = r->t->put(r->peer[peer], TP_COLLECTIVE, seq, 7,
					  TP_REF, ref, len)) != DICOMM_AGAIN);
	EXPECT(r, status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS,
	       "status %d", (int)status);
}

/* Where in the allocation a message lies, and how long it is. */
static const struct {
	uint64_t offset, len;
} parts[] = {{0, LARGE}, {4096, LARGE / 2}, {12345, 300001}, {1, LARGE - 1}};
#define PARTS (sizeof(parts) / sizeof(*parts))

static void ref_send(struct rank *r)
{
	static struct tp_ref ref[PARTS];
	struct tp_mem *hold;
	void *memory;

	EXPECT_OK(r, accels[0]->alloc(0, LARGE, &memory));
	EXPECT_OK(r, r->t->mem_reg(r->dev, memory, LARGE, false, &hold));
	ranks_fill(memory, LARGE, 42);
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	for (uint64_t i = 0; i < PARTS; i++) {
		const uint8_t *addr = (uint8_t *)memory + parts[i].offset;

		/* A transport may have no way to pull: an empty message. */
		if (r->t->offer(r->peer[1], addr, parts[i].len, TP_WANT_COPY,
				&ref[i]))
			put_ref(r, 1, i + 1, &ref[i], parts[i].len);
		else
			ranks_put(r, 1, TP_COLLECTIVE, i + 1, NULL, 0);
	}
	RANKS_WAIT(r, released(r, 1, TP_COLLECTIVE) == PARTS);
	r->t->mem_dereg(r->dev, hold);
	/* Everybody has let go: it may be freed, and the peer still closes. */
	EXPECT_OK(r, accels[0]->free(memory));
}

static void ref_receive(struct rank *r)
{
	uint8_t *copy = malloc(LARGE), *whole = malloc(LARGE);

	ranks_fill(whole, LARGE, 42);
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	for (uint64_t i = 0; i < PARTS; i++) {
		const uint8_t *room, *wanted = whole + parts[i].offset;
		const struct tp_line *line =
			ranks_get(r, 0, TP_COLLECTIVE, i + 1, &room);
		uint64_t len = parts[i].len;
		const void *mapped = NULL;
		dicomm_result_t status;
		struct tp_ref ref;

		if (line->kind == TP_DATA)
			continue;
		EXPECT(r, line->kind == TP_REF && line->len == len, "%llu",
		       (unsigned long long)line->len);
		memcpy(&ref, room, sizeof(ref));
		status = r->t->map(r->peer[0], &ref, len, &mapped);
		EXPECT(r,
		       status == DICOMM_SUCCESS ||
			       status == DICOMM_ERR_UNSUPPORTED,
		       "status %d", (int)status);
		if (status == DICOMM_SUCCESS)
			EXPECT(r, !memcmp(mapped, wanted, len), "mapped");
		memset(copy, 0, LARGE);
		ranks_read(r, 0, TP_COLLECTIVE, i + 1, &ref, 0, copy, len);
		EXPECT(r, !memcmp(copy, wanted, len), "read");
		ranks_read(r, 0, TP_COLLECTIVE, i + 1, &ref, len / 3, copy,
			   777);
		EXPECT(r, !memcmp(copy, wanted + len / 3, 777), "part");
		EXPECT(r, copy[777] == wanted[777], "one byte too many");
	}
	EXPECT_OK(r, release(r, 0, TP_COLLECTIVE, PARTS));
	RANKS_WAIT(r, r->t->flush(r->dev));
	free(copy);
	free(whole);
}

static void run_reference(struct rank *r)
{
	if (r->rank == 0)
		ref_send(r);
	else
		ref_receive(r);
}

START_TEST(a_large_message_can_be_pulled)
{
	struct ranks_job job = job_of(_i, 2, run_reference);

	ranks_run(&job);
}
END_TEST

static void run_self(struct rank *r)
{
	static uint8_t large[LARGE];
	const void *mapped;
	const uint8_t *room;
	struct tp_mem *hold;
	struct tp_ref ref;

	ranks_connect(r, r->rank, TP_COLLECTIVE);
	for (uint64_t q = 1; q <= 3 * LENS; q++) {
		send(r, r->rank, TP_COLLECTIVE, q, lens[q % LENS]);
		receive(r, r->rank, TP_COLLECTIVE, q, lens[q % LENS]);
		EXPECT_OK(r, release(r, r->rank, TP_COLLECTIVE, q));
	}
	ranks_fill(large, LARGE, 9);
	EXPECT_OK(r, r->t->mem_reg(r->dev, large, LARGE, false, &hold));
	if (!r->t->offer(r->peer[r->rank], large, LARGE, TP_WANT_COPY, &ref))
		return;
	put_ref(r, r->rank, 3 * LENS + 1, &ref, LARGE);
	ranks_get(r, r->rank, TP_COLLECTIVE, 3 * LENS + 1, &room);
	memcpy(&ref, room, sizeof(ref));
	EXPECT_OK(r, r->t->map(r->peer[r->rank], &ref, LARGE, &mapped));
	EXPECT(r, ranks_check(mapped, LARGE, 9) == LARGE, "mapped");
}

START_TEST(a_rank_can_send_to_itself)
{
	struct ranks_job job = job_of(_i, 1, run_self);

	ranks_run(&job);
}
END_TEST

static void run_many(struct rank *r)
{
	const uint64_t rounds = 50;

	for (int c = 0; c < TP_CLASSES; c++)
		for (int k = 0; k < r->ranks; k++)
			/* Pairs meet in one order: lower ranks first. */
			ranks_connect_out(r, k, (enum tp_class)c);
	for (uint64_t q = 1; q <= rounds; q++)
		for (int c = 0; c < TP_CLASSES; c++) {
			for (int p = 0; p < r->ranks; p++)
				send(r, p, (enum tp_class)c, q,
				     lens[(q + (uint64_t)p) % LENS]);
			for (int p = 0; p < r->ranks; p++) {
				if (q == 1)
					ranks_connect_in(r, p,
							 (enum tp_class)c);
				receive(r, p, (enum tp_class)c, q,
					lens[(q + (uint64_t)r->rank) % LENS]);
				EXPECT_OK(r,
					  release(r, p, (enum tp_class)c, q));
			}
		}
}

START_TEST(many_peers_at_once)
{
	struct ranks_job job = job_of(_i, 8, run_many);

	ranks_run(&job);
}
END_TEST

static void *abort_twice(void *arg)
{
	struct rank *r = arg;

	r->t->abort(r->dev);
	r->t->abort(r->dev);
	return NULL;
}

static void run_abort(struct rank *r)
{
	uint64_t value = 1;
	pthread_t thread;

	ranks_connect(r, !r->rank, TP_COLLECTIVE);
	send(r, !r->rank, TP_COLLECTIVE, 1, 8);
	receive(r, !r->rank, TP_COLLECTIVE, 1, 8);
	ranks_barrier(r);
	EXPECT(r, !pthread_create(&thread, NULL, abort_twice, r), "thread");
	pthread_join(thread, NULL);
	for (uint64_t q = 2; q < 20; q++)
		EXPECT(r,
		       ranks_try_put(r, !r->rank, TP_COLLECTIVE, q, &value,
				     8) == DICOMM_ERR_ABORTED,
		       "put %d after abort", (int)q);
	ranks_barrier(r);
	/* And so nothing has come. */
	EXPECT(r,
	       atomic_load(&tp_line(&r->in[!r->rank][TP_COLLECTIVE], 2)->seq) ==
		       0,
	       "arrived");
	EXPECT(r,
	       r->t->connect_out(r->peer[!r->rank], TP_POINT_TO_POINT,
				 &r->out[!r->rank][TP_POINT_TO_POINT]) ==
		       DICOMM_ERR_ABORTED,
	       "connect after abort");
}

START_TEST(abort_makes_put_fail)
{
	struct ranks_job job = job_of(_i, 2, run_abort);

	ranks_run(&job);
}
END_TEST

/* Puts as fast as it can while another thread aborts: it must come to an end,
 * without a message that is not whole. */
static void *put_until_aborted(void *arg)
{
	struct rank *r = arg;
	dicomm_result_t status = DICOMM_SUCCESS;

	for (uint64_t q = 1; status != DICOMM_ERR_ABORTED; q++) {
		RANKS_WAIT(r,
			   (status = ranks_try_put(r, !r->rank, TP_COLLECTIVE,
						   q, &q, 8)) != DICOMM_AGAIN);
		atomic_store(&r->area->flag[r->rank], q);
	}
	return NULL;
}

static void run_abort_midway(struct rank *r)
{
	const uint8_t *body;
	pthread_t thread;

	if (r->rank == 1) {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		for (uint64_t q = 1; q <= 5000; q++) {
			ranks_get(r, 0, TP_COLLECTIVE, q, &body);
			EXPECT(r, !memcmp(body, &q, 8), "message %d", (int)q);
			EXPECT_OK(r, release(r, 0, TP_COLLECTIVE, q));
		}
		ranks_barrier(r);
		return;
	}
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	EXPECT(r, !pthread_create(&thread, NULL, put_until_aborted, r),
	       "thread");
	while (atomic_load(&r->area->flag[0]) < 4000 &&
	       !atomic_load(&r->area->failed))
		usleep(100);
	/* The receiver needs 5000; with credits for more, it has them. */
	while (atomic_load(&r->area->flag[0]) < 5000 + r->config.slots &&
	       !atomic_load(&r->area->failed))
		usleep(100);
	r->t->abort(r->dev);
	pthread_join(thread, NULL);
	ranks_barrier(r);
}

START_TEST(abort_stops_a_sender_midway)
{
	struct ranks_job job = job_of(_i, 2, run_abort_midway);

	ranks_run(&job);
}
END_TEST

/* Rank 0 offers pages, aborts while rank 1 loads from them, and unmaps them:
 * whoever still loads then ends in a fault. */
static void run_abort_offered(struct rank *r)
{
	const enum tp_class c = TP_COLLECTIVE;
	_Atomic uint64_t *flag = r->area->flag;
	const volatile uint8_t *bytes;
	const uint8_t *room;
	const void *mapped;
	struct tp_mem *hold;
	struct tp_ref ref;
	uint8_t *pages;

	if (r->rank == 0) {
		ranks_connect_out(r, 1, c);
		pages = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		EXPECT(r, pages != MAP_FAILED, "out of memory");
		memset(pages, 1, LARGE);
		EXPECT_OK(r, r->t->mem_reg(r->dev, pages, LARGE, false, &hold));
		if (r->t->offer(r->peer[1], pages, LARGE, TP_WANT_COPY, &ref))
			put_ref(r, 1, 1, &ref, LARGE);
		else /* no way to pull from there: nothing to wait for */
			ranks_put(r, 1, c, 1, NULL, 0);
		RANKS_WAIT(r, atomic_load(&flag[1]));
		r->t->abort(r->dev);
		munmap(pages, LARGE);
		atomic_store(&flag[0], 1);
		return;
	}
	ranks_connect_in(r, 0, c);
	if (ranks_get(r, 0, c, 1, &room)->kind == TP_DATA) {
		atomic_store(&flag[1], 1);
		return;
	}
	memcpy(&ref, room, sizeof(ref));
	if (r->t->map(r->peer[0], &ref, LARGE, &mapped) != DICOMM_SUCCESS) {
		atomic_store(&flag[1], 1); /* to be read() only */
		return;
	}
	bytes = mapped;
	atomic_store(&flag[1], 1);
	/* So that abort() is there, and waits; but not until it gives up. */
	for (uint64_t end = clock_ms() + 50; clock_ms() < end; usleep(500))
		for (size_t i = 0; i < LARGE; i += 4096)
			EXPECT(r, bytes[i] == 1, "byte %d", (int)i);
	EXPECT_OK(r, release(r, 0, c, 1));
	RANKS_WAIT(r, atomic_load(&flag[0]));
	capture_nothing();
	EXPECT(r, r->t->map(r->peer[0], &ref, LARGE, &mapped) != DICOMM_SUCCESS,
	       "mapped what is gone");
	EXPECT(r,
	       r->t->read(r->peer[0], c, 1, &ref, 0, (uint8_t[8]){0}, 8) !=
		       DICOMM_SUCCESS,
	       "read what is gone");
}

START_TEST(abort_waits_for_who_loads_what_was_offered)
{
	struct ranks_job job = job_of(_i, 2, run_abort_offered);

	ranks_run(&job);
}
END_TEST

static void run_close_full(struct rank *r)
{
	uint64_t slots = r->config.slots;

	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		for (uint64_t q = 1; q <= slots; q++)
			send(r, 1, TP_COLLECTIVE, q, 4096);
		ranks_barrier(r);
		r->t->peer_close(r->peer[1]);
		r->peer[1] = NULL;
		ranks_barrier(r);
		return;
	}
	ranks_connect_in(r, 0, TP_COLLECTIVE);
	receive(r, 0, TP_COLLECTIVE, slots, 4096);
	ranks_barrier(r);
	ranks_barrier(r);
	/* What has arrived stays readable, and may be released. */
	for (uint64_t q = 1; q <= slots; q++)
		receive(r, 0, TP_COLLECTIVE, q, 4096);
	EXPECT_OK(r, release(r, 0, TP_COLLECTIVE, slots));
}

START_TEST(close_with_a_full_ring)
{
	struct ranks_job job = job_of(_i, 2, run_close_full);

	ranks_run(&job);
}
END_TEST

static void run_reader_closes(struct rank *r)
{
	uint64_t slots = r->config.slots;

	if (r->rank == 1) {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		receive(r, 0, TP_COLLECTIVE, 1, 4096);
		r->t->peer_close(r->peer[0]);
		r->peer[0] = NULL;
		ranks_barrier(r);
		ranks_barrier(r);
		return;
	}
	ranks_connect_out(r, 1, TP_COLLECTIVE);
	send(r, 1, TP_COLLECTIVE, 1, 4096);
	ranks_barrier(r);
	/* Nobody reads; that is the sender's credits' end, not its own. */
	for (uint64_t q = 2; q <= slots; q++) {
		dicomm_result_t status =
			ranks_try_put(r, 1, TP_COLLECTIVE, q, "x", 1);

		EXPECT(r, status != DICOMM_ERR_INTERNAL, "%d", (int)status);
	}
	EXPECT(r,
	       ranks_try_put(r, 1, TP_COLLECTIVE, slots + 1, "x", 1) !=
		       DICOMM_SUCCESS,
	       "no credits");
	ranks_barrier(r);
}

START_TEST(a_sender_survives_a_reader_that_closes)
{
	struct ranks_job job = job_of(_i, 2, run_reader_closes);

	ranks_run(&job);
}
END_TEST

static bool has_come(struct rank *r, int peer, enum tp_class c, uint64_t seq)
{
	const struct tp_line *line =
		tp_line(&r->in[peer][c], seq % r->config.slots);

	for (int i = 0; i < 64 && r->t->poll(r->dev); i++)
		;
	return atomic_load_explicit(&line->seq, memory_order_acquire) == seq;
}

static void run_killed(struct rank *r)
{
	const enum tp_class c = TP_POINT_TO_POINT;
	uint64_t q = 1;

	ranks_connect(r, !r->rank, c);
	if (r->rank == 1)
		for (;; q++) /* until rank 0 kills it, wherever it is then */
			send(r, 0, c, q, 3000);
	for (; q <= 500; q++) {
		receive(r, 1, c, q, 3000);
		EXPECT_OK(r, release(r, 1, c, q));
	}
	kill(r->area->pid[1], SIGKILL);
	RANKS_WAIT(r, ranks_is_dead(r, 1));
	/* What has arrived is whole. */
	for (; has_come(r, 1, c, q); q++)
		receive(r, 1, c, q, 3000);
	EXPECT(r, q <= 501 + r->config.slots, "%d", (int)q);
	(void)release(r, 1, c, q - 1);
	/* Whatever a put says now, it returns. */
	for (q = 1; q < 100; q++) {
		(void)ranks_try_put(r, 1, c, q, "x", 1);
		r->t->poll(r->dev);
	}
}

START_TEST(a_killed_peer_leaves_the_survivor_able_to_close)
{
	struct ranks_job job = job_of(_i, 2, run_killed);

	if (job.kind == RANKS_THREADS)
		return; /* nobody can kill a thread */
	job.killed = 2;
	ranks_run(&job);
}
END_TEST

static void run_adapters(struct rank *r)
{
	struct tp_adapter a[TP_ADAPTERS];
	unsigned n = r->t->adapters(r->dev, a);

	EXPECT(r, n && n <= TP_ADAPTERS, "%u", n);
	for (unsigned i = 0; i < n; i++) {
		EXPECT(r, a[i].bytes_per_s >= 1000000, "%llu B/s",
		       (unsigned long long)a[i].bytes_per_s);
		EXPECT(r, a[i].latency_ps && a[i].latency_ps < 1000000000u,
		       "latency %llu ps", (unsigned long long)a[i].latency_ps);
		for (unsigned k = 0; k < i; k++)
			EXPECT(r, a[k].id != a[i].id, "%u is %u", k, i);
	}
}

START_TEST(adapters_say_what_they_carry)
{
	struct ranks_job job = job_of(_i, 2, run_adapters);

	ranks_run(&job);
}
END_TEST

static void run_memory(struct rank *r)
{
	ranks_connect(r, !r->rank, TP_COLLECTIVE);
	EXPECT(r, r->t->memory(r->dev) >= 4096, "holds a ring, says %llu",
	       (unsigned long long)r->t->memory(r->dev));
}

START_TEST(it_tells_its_memory)
{
	struct ranks_job job = job_of(_i, 2, run_memory);

	ranks_run(&job);
}
END_TEST

/* The address, with one thing wrong, must be refused in words. */
static void refused(struct rank *r, const struct tp_blob *bad, const char *what)
{
	char why[256] = "";

	EXPECT(r, !r->t->reaches(r->dev, bad, why, sizeof(why)), "%s", what);
	EXPECT(r, strlen(why) > 10, "no reason for: %s", what);
}

static void run_bad_address(struct rank *r)
{
	const struct tp_blob good = r->area->address[!r->rank];
	struct tp_blob bad = good;
	struct tp_peer *peer;

	capture_nothing();
	for (bad.len = 0; bad.len <= sizeof(bad.data); bad.len++)
		if (bad.len != good.len)
			refused(r, &bad, "truncated or padded");
	bad.len = UINT32_MAX;
	refused(r, &bad, "longer than a blob");
	for (uint32_t i = 0; i < good.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			bad = good;
			bad.data[i] ^= (uint8_t)(1 << bit);
			refused(r, &bad, "a bit is wrong");
		}
	ranks_fill(bad.data, good.len, 3);
	refused(r, &bad, "noise");
	memset(bad.data, 0, good.len);
	refused(r, &bad, "zero");
	EXPECT(r,
	       r->t->peer_open(r->dev, !r->rank, &bad, &peer) != DICOMM_SUCCESS,
	       "opened a peer at no address");
	EXPECT(r,
	       r->t->peer_open(r->dev, r->rank, &good, &peer) != DICOMM_SUCCESS,
	       "opened one rank at the address of another");
}

START_TEST(a_bad_address_is_refused)
{
	struct ranks_job job = job_of(_i, 2, run_bad_address);

	ranks_run(&job);
}
END_TEST

static void run_nothing(struct rank *r)
{
	(void)r;
}

START_TEST(unused_peers_open_and_close)
{
	struct ranks_job job = job_of(_i, 16, run_nothing);

	for (int i = 0; i < 5; i++)
		ranks_run(&job);
}
END_TEST

START_TEST(transports_are_found_by_name)
{
	/* In every build, in this order: by their numbers ranks of unlike
	 * builds know them. */
	static const char *const names[] = {"shm", "verbs", "ucx", "tcp"};
	char why[256] = "";
	size_t n = 0;

	for (int i = 0; transports[i]; i++) {
		const struct transport *t = transports[i];

		if (n < sizeof(names) / sizeof(*names) &&
		    !strcmp(t->name, names[n]))
			n++;
		ck_assert_ptr_eq(transport_find(t->name), t);
		if (!t->open)
			ck_assert(!t->usable(why, sizeof(why)) && why[0]);
	}
	ck_assert_uint_eq(n, sizeof(names) / sizeof(*names));
	ck_assert_ptr_null(transport_find("pigeon"));
	ck_assert_ptr_null(transport_find(""));
}
END_TEST

START_TEST(a_bad_configuration_is_refused)
{
	const struct tp_config bad[] = {
		{.rank = -1, .ranks = 2, .slots = 8, .slot_bytes = 4096},
		{.rank = 2, .ranks = 2, .slots = 8, .slot_bytes = 4096},
		{.rank = 0, .ranks = 0, .slots = 8, .slot_bytes = 4096},
		{.rank = 0, .ranks = 2, .slots = 0, .slot_bytes = 4096},
		{.rank = 0, .ranks = 2, .slots = 6, .slot_bytes = 4096},
		{.rank = 0, .ranks = 2, .slots = 8, .slot_bytes = 0},
		{.rank = 0, .ranks = 2, .slots = 8, .slot_bytes = 4000},
	};
	struct tp_device *dev = NULL;

	capture_nothing();
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_int_eq(usable[_i]->open(&bad[i], &dev),
				 DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_ptr_null(dev);
	usable[_i]->close(NULL);
}
END_TEST

/* DICOMM_TEST_TRANSPORT names the only one to be tested. */
static void find_usable(void)
{
	const char *only = getenv("DICOMM_TEST_TRANSPORT");

	for (int i = 0; transports[i]; i++) {
		char why[256] = "";

		if (only && strcmp(only, transports[i]->name))
			continue;
		if (job_has_thread_sanitizer() &&
		    !strcmp(transports[i]->name, "ucx"))
			printf("ucx is not tested: the thread sanitizer does "
			       "not see its locks\n");
		else if (transports[i]->usable(why, sizeof(why)))
			usable[usable_count++] = transports[i];
		else
			printf("%s is not tested: %s\n", transports[i]->name,
			       why);
	}
}

int main(void)
{
	Suite *suite = suite_create("conformance");
	TCase *tcase = tcase_create("conformance");
	int n;

	find_usable();
	if (!usable_count)
		return 77;
	n = usable_count * RANKS_KINDS;
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, put_is_visible_before_its_counter, 0, n);
	tcase_add_loop_test(tcase, each_counter_of_a_pair_only_grows, 0, n);
	tcase_add_loop_test(tcase, numbers_may_be_put_in_any_order, 0, n);
	tcase_add_loop_test(tcase, credits_are_respected, 0, n);
	tcase_add_loop_test(tcase, classes_do_not_wait_for_each_other, 0, n);
	tcase_add_loop_test(tcase, an_inbox_waits_for_its_sender_to_connect, 0,
			    n);
	tcase_add_loop_test(tcase, a_large_message_can_be_pulled, 0, n);
	tcase_add_loop_test(tcase, a_rank_can_send_to_itself, 0, n);
	tcase_add_loop_test(tcase, many_peers_at_once, 0, n);
	tcase_add_loop_test(tcase, abort_makes_put_fail, 0, n);
	tcase_add_loop_test(tcase, abort_stops_a_sender_midway, 0, n);
	tcase_add_loop_test(tcase, abort_waits_for_who_loads_what_was_offered,
			    0, n);
	tcase_add_loop_test(tcase, close_with_a_full_ring, 0, n);
	tcase_add_loop_test(tcase, a_sender_survives_a_reader_that_closes, 0,
			    n);
	tcase_add_loop_test(
		tcase, a_killed_peer_leaves_the_survivor_able_to_close, 0, n);
	for (int i = 0; i < n; i++)
		if (job_of(i, 2, run_adapters).t->adapters)
			tcase_add_loop_test(tcase, adapters_say_what_they_carry,
					    i, i + 1);
	tcase_add_loop_test(tcase, it_tells_its_memory, 0, n);
	tcase_add_loop_test(tcase, a_bad_address_is_refused, 0, n);
	tcase_add_loop_test(tcase, unused_peers_open_and_close, 0, n);
	tcase_add_test(tcase, transports_are_found_by_name);
	tcase_add_loop_test(tcase, a_bad_configuration_is_refused, 0,
			    usable_count);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
