/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What dicomm-perf says of data, on the host and on devices (mocks, and
 * PoCL's): it is right after a call, and wrong once any one bit differs.
 */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "perftest/run/data.h"
#include "tests/support/cast.h"
#include "tests/support/runner.h"

/* Of a buffer: more than the host looks at, and no even number of types of one
 * byte. */
#define BYTES 40001
#define SEED 5

static void open_rank(struct session_rank *r, struct job_rank *me,
		      const struct gadget *g)
{
	size_t room = BYTES + SESSION_GUARD + 8;

	*r = (struct session_rank){.rank = me->rank,
				   .comm = &me->comm,
				   .stream = g->native,
				   .on_device = g->accel->work};
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &r->send_base, room));
	JOB_TRY(dicomm_comm_mem_alloc(me->comm, &r->recv_base, room));
	if (r->on_device) {
		JOB_TRY(dicomm_comm_mem_alloc(me->comm, &r->check_base, room));
		r->send_copy = malloc(room);
		r->recv_copy = malloc(room);
		JOB_CHECK(r->send_copy && r->recv_copy, "out of memory");
	}
}

static void close_rank(struct session_rank *r)
{
	JOB_TRY(dicomm_mem_free(r->send_base));
	JOB_TRY(dicomm_mem_free(r->recv_base));
	JOB_TRY(dicomm_mem_free(r->check_base));
	free(r->send_copy);
	free(r->recv_copy);
}

static void run(const struct call *c, struct session_rank *r, bool in_place)
{
	size_t rank = (size_t)c->rank, size = c->type->bytes;
	const char *send = r->send;
	char *recv = r->recv;

	if (in_place) {
		send = recv + rank * c->geometry.send_shift * size;
		recv += rank * c->geometry.recv_shift * size;
	}
	JOB_TRY(operation_run(c, send, recv, *r->comm, r->stream));
	session_rank_wait(r);
}

static void flip(struct session_rank *r, char *at, unsigned bit)
{
	unsigned char byte;

	JOB_TRY(dicomm_comm_memcpy(*r->comm, &byte, at, 1, r->stream));
	byte ^= (unsigned char)(1u << bit);
	JOB_TRY(dicomm_comm_memcpy(*r->comm, at, &byte, 1, r->stream));
}

/* A bit of what was received, or behind it, or of what was sent. */
static void expect_noticed(struct verify_pattern *p, struct session_rank *r,
			   const struct call *c, bool in_place, char *at)
{
	unsigned bit = (unsigned)((uintptr_t)at + c->type->bytes) % 8;
	const char *what = at >= r->recv && at < r->recv + BYTES + SESSION_GUARD
				   ? "received"
				   : "sent";

	flip(r, at, bit);
	JOB_CHECK(data_wrong(p, r, c, in_place, SEED) > 0,
		  "%s of %s%s: bit %u of byte %zu %s is not noticed",
		  c->op->name, c->type->name, in_place ? " in place" : "", bit,
		  (size_t)(at - (*what == 'r' ? r->recv : r->send)), what);
	flip(r, at, bit);
}

static void check_call(struct verify_pattern *p, struct session_rank *r,
		       const struct call *c, bool in_place)
{
	size_t size = c->type->bytes, received = c->geometry.recv * size;
	size_t own = (size_t)c->rank * c->geometry.recv_shift * size;
	char *recv = r->recv + (in_place ? own : 0);
	dicomm_stats_t before = {.size = sizeof(before)}, after = before;

	data_fill(p, r, c, in_place, SEED);
	run(c, r, in_place);
	JOB_TRY(dicomm_comm_stats(*r->comm, &before));
	JOB_CHECK(data_wrong(p, r, c, in_place, SEED) == 0,
		  "%s of %s%s is found wrong", c->op->name, c->type->name,
		  in_place ? " in place" : "");
	JOB_TRY(dicomm_comm_stats(*r->comm, &after));
	JOB_CHECK(!r->on_device || after.operations > before.operations,
		  "the device did not compare");
	expect_noticed(p, r, c, in_place, recv);
	expect_noticed(p, r, c, in_place, recv + received / 2 + 1);
	expect_noticed(p, r, c, in_place, recv + received - 1);
	expect_noticed(p, r, c, in_place,
		       r->recv + (in_place ? data_bytes(c) : received));
	if (!in_place && (!c->op->rooted || c->rank == c->root))
		expect_noticed(p, r, c, in_place,
			       r->send + c->geometry.send * size - 1);
}

static void notice(struct job_rank *me, struct gadget *g)
{
	static const enum operation_id ids[] = {
		OPERATION_ALLREDUCE, OPERATION_REDUCE_SCATTER,
		OPERATION_ALLTOALL, OPERATION_BROADCAST, OPERATION_REDUCE};
	static struct verify_pattern p;
	struct session_rank r;

	open_rank(&r, me, g);
	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++)
		for (int t = 0; t < types_n; t++) {
			struct call c = {.op = &operations[ids[i]],
					 .type = &types[t],
					 .redop = DICOMM_SUM,
					 .rank = me->rank,
					 .ranks = me->ranks};
			size_t size = c.type->bytes;

			/* At an element, not at a cache line. */
			session_rank_shift(&r, t % 2 ? size : 0);
			c.geometry = operation_geometry(c.op, BYTES / size,
							size, me->ranks, NULL);
			check_call(&p, &r, &c, false);
			if (c.op->checked_in_place)
				check_call(&p, &r, &c, true);
		}
	close_rank(&r);
}

START_TEST(one_bit_is_noticed)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0", "opencl:0",
					    "hip:0", "ze:0"},
				 .run = notice},
		  5);
}
END_TEST

/* The average over three ranks is not known to the bit. */
static void round_off(struct job_rank *me, struct gadget *g)
{
	static struct verify_pattern p;
	struct call c = {.op = &operations[OPERATION_ALLREDUCE],
			 .reduction = REDUCTION_AVG,
			 .redop = DICOMM_AVG,
			 .rank = me->rank,
			 .ranks = me->ranks};
	struct session_rank r;

	open_rank(&r, me, g);
	session_rank_shift(&r, 0);
	for (int t = 0; t < types_n; t++) {
		c.type = &types[t];
		c.geometry = operation_geometry(c.op, BYTES / c.type->bytes,
						c.type->bytes, me->ranks, NULL);
		data_fill(&p, &r, &c, false, SEED);
		run(&c, &r, false);
		JOB_CHECK(data_wrong(&p, &r, &c, false, SEED) == 0,
			  "an average of %s is found wrong", c.type->name);
		flip(&r, r.recv + c.type->bytes - 1, 7);
		JOB_CHECK(data_wrong(&p, &r, &c, false, SEED) == 1,
			  "a wrong average of %s is not noticed", c.type->name);
	}
	close_rank(&r);
}

START_TEST(what_rounds_is_checked_to_its_bound)
{
	cast_play(&(struct cast){.device = {"host", "cuda:0", "hip:0"},
				 .run = round_off},
		  3);
}
END_TEST

int main(void)
{
	TCase *test_case = tcase_create("data");
	Suite *suite = suite_create("perf_data");

	tcase_set_timeout(test_case, 100);
	tcase_add_test(test_case, one_bit_is_noticed);
	tcase_add_test(test_case, what_rounds_is_checked_to_its_bound);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
