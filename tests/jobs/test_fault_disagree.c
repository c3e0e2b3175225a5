/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that call unlike operations: both ranks and both calls are named, on
 * every rank, and nobody hangs or takes what it got for a result. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/boot/control/members.h"
#include "src/core/call.h"
#include "tests/support/job.h"
#include "tests/support/prompt.h"
#include "tests/support/runner.h"

#define PATIENCE_S 5.0
#define MOST_RANKS 4
#define BUFFER_BYTES ((size_t)8 << 20)

enum kind {
	NONE,
	ALLREDUCE,
	BROADCAST,
	REDUCE,
	GATHER,
	SCATTER,
	ALLGATHER,
	ALLTOALL,
	REDUCE_SCATTER,
	ALLGATHERV,
	REDUCE_SCATTERV,
	ALLTOALLV,
	GATHERV,
	SCATTERV,
	BARRIER,
	SEND, /* to the next rank */
	RECV  /* from the one before */
};

struct one {
	enum kind kind;
	size_t count;
	dicomm_datatype_t type;
	dicomm_redop_t op;
	int root;
};

/* What the odd rank calls, and what all others do. With a pair the others are
 * the rank after the odd one, and who is neither calls nothing. */
struct quarrel {
	struct one odd[2], other[2];
	const char *odd_words, *other_words;
	bool pair;
};

#define F DICOMM_FLOAT32
#define I DICOMM_INT32
#define C(kind, count, type)                     \
	{                                        \
		kind, count, type, DICOMM_SUM, 0 \
	}
#define R(kind, count, op, root)         \
	{                                \
		kind, count, F, op, root \
	}

static const struct quarrel quarrels[] = {
	{{C(ALLREDUCE, 11, F)},
	 {C(ALLREDUCE, 10, F)},
	 "allreduce count 11 float32 sum",
	 "allreduce count 10 float32 sum",
	 false},
	{{C(ALLREDUCE, 10, F)},
	 {C(ALLREDUCE, 10, I)},
	 "count 10 float32",
	 "count 10 int32",
	 false},
	/* One size, two encodings */
	{{C(ALLREDUCE, 10, DICOMM_FLOAT8E4M3FNUZ)},
	 {C(ALLREDUCE, 10, DICOMM_FLOAT8E4M3)},
	 "count 10 float8e4m3fnuz sum",
	 "count 10 float8e4m3 sum",
	 false},
	{{C(BROADCAST, 10, DICOMM_FLOAT8E5M2)},
	 {C(BROADCAST, 10, DICOMM_FLOAT8E5M2FNUZ)},
	 "count 10 float8e5m2 ",
	 "count 10 float8e5m2fnuz",
	 false},
	{{R(ALLREDUCE, 10, DICOMM_MAX, 0)},
	 {C(ALLREDUCE, 10, F)},
	 "float32 max",
	 "float32 sum",
	 false},
	{{C(ALLREDUCE, 300001, F)},
	 {C(ALLREDUCE, 300000, F)},
	 "count 300001",
	 "count 300000",
	 false},
	{{C(ALLREDUCE, 10, F)},
	 {C(ALLREDUCE, 300000, F)},
	 "count 10",
	 "count 300000",
	 false},
	{{C(ALLREDUCE, 300000, F)},
	 {C(ALLREDUCE, 10, F)},
	 "count 300000",
	 "count 10",
	 false},
	{{C(ALLREDUCE, 0, F)},
	 {C(ALLREDUCE, 10, F)},
	 "allreduce count 0",
	 "allreduce count 10",
	 false},
	{{R(BROADCAST, 10, DICOMM_SUM, 1)},
	 {R(BROADCAST, 10, DICOMM_SUM, 0)},
	 "root 1",
	 "root 0",
	 false},
	{{R(BROADCAST, 200000, DICOMM_SUM, 1)},
	 {R(BROADCAST, 200000, DICOMM_SUM, 0)},
	 "root 1",
	 "root 0",
	 false},
	{{R(REDUCE, 10, DICOMM_SUM, 1)},
	 {R(REDUCE, 10, DICOMM_SUM, 0)},
	 "root 1",
	 "root 0",
	 false},
	{{R(GATHER, 10, DICOMM_SUM, 1)},
	 {R(GATHER, 10, DICOMM_SUM, 0)},
	 "root 1",
	 "root 0",
	 false},
	{{R(SCATTER, 10, DICOMM_SUM, 1)},
	 {R(SCATTER, 10, DICOMM_SUM, 0)},
	 "root 1",
	 "root 0",
	 false},
	{{C(ALLREDUCE, 10, F)},
	 {C(ALLGATHER, 10, F)},
	 "allreduce",
	 "allgather",
	 false},
	{{C(BARRIER, 0, F)},
	 {C(ALLREDUCE, 100, F)},
	 "barrier",
	 "allreduce",
	 false},
	{{C(ALLTOALL, 5000, F)},
	 {C(ALLTOALL, 4000, F)},
	 "alltoall count 5000",
	 "alltoall count 4000",
	 false},
	{{C(REDUCE_SCATTER, 5000, F)},
	 {C(REDUCE_SCATTER, 4000, F)},
	 "reduce_scatter count 5000",
	 "reduce_scatter count 4000",
	 false},
	{{C(ALLREDUCE, 10, F), C(BROADCAST, 10, F)},
	 {C(BROADCAST, 10, F), C(ALLREDUCE, 10, F)},
	 "allreduce",
	 "broadcast",
	 false},
	{{C(BROADCAST, 100000, F), C(ALLREDUCE, 100000, F)},
	 {C(ALLREDUCE, 100000, F), C(BROADCAST, 100000, F)},
	 "broadcast",
	 "allreduce",
	 false},
	{{C(ALLGATHERV, 10, F)},
	 {C(ALLGATHERV, 11, F)},
	 "allgatherv",
	 "the counts of several ranks differ",
	 false},
	{{C(REDUCE_SCATTERV, 10, F)},
	 {C(REDUCE_SCATTERV, 11, F)},
	 "reduce_scatterv",
	 "reduce_scatterv",
	 false},
	{{R(ALLGATHERV, 10, DICOMM_SUM, 2)},
	 {C(ALLGATHERV, 10, F)},
	 "they give 1",
	 "for rank 1",
	 false},
	{{R(REDUCE_SCATTERV, 65536, DICOMM_SUM, 1)},
	 {C(REDUCE_SCATTERV, 65536, F)},
	 "they give 6553",
	 "for rank 0",
	 false},
	{{C(ALLTOALLV, 10, F)},
	 {C(ALLTOALLV, 11, F)},
	 "alltoallv",
	 "alltoallv",
	 false},
	{{C(GATHERV, 10, F)}, {C(GATHERV, 11, F)}, "gatherv", "gatherv", false},
	{{C(SCATTERV, 65536, F)},
	 {C(SCATTERV, 131072, F)},
	 "scatterv",
	 "scatterv",
	 false},
	{{C(GATHERV, 10, F)},
	 {C(SCATTERV, 10, F)},
	 "gatherv",
	 "scatterv",
	 false},
	{{C(ALLTOALLV, 65536, F)},
	 {C(ALLTOALLV, 131072, F)},
	 "alltoallv",
	 "alltoallv",
	 false},
	{{C(ALLTOALLV, 0, F)},
	 {C(ALLTOALLV, 7, F)},
	 "alltoallv",
	 "alltoallv",
	 false},
	{{C(SEND, 20, F)},
	 {C(RECV, 10, F)},
	 "send count 20 float32",
	 "recv count 10 float32",
	 true},
	{{C(SEND, 10, F)},
	 {C(RECV, 20, F)},
	 "send count 10",
	 "recv count 20",
	 true},
	{{C(SEND, 10, F)},
	 {C(RECV, 10, I)},
	 "send count 10 float32",
	 "recv count 10 int32",
	 true},
	{{C(SEND, 300000, F)},
	 {C(RECV, 100000, F)},
	 "send count 300000",
	 "recv count 100000",
	 true},
	{{C(SEND, 65536, F)},
	 {C(RECV, 131072, F)},
	 "send count 65536",
	 "recv count 131072",
	 true},
	{{C(SEND, 131072, F)},
	 {C(RECV, 65536, F)},
	 "send count 131072",
	 "recv count 65536",
	 true},
	{{C(SEND, 300000, F)},
	 {C(RECV, 0, F)},
	 "send count 300000",
	 "recv count 0",
	 true},
	{{C(SEND, 0, F)},
	 {C(RECV, 10, F)},
	 "send count 0",
	 "recv count 10",
	 true},
	{{C(SEND, 10, F), C(SEND, 20, F)},
	 {C(RECV, 20, F), C(RECV, 10, F)},
	 "send count",
	 "recv count",
	 true},
};

#define QUARRELS (int)(sizeof(quarrels) / sizeof(*quarrels))

enum how { BLOCKING, STREAM, GROUP, HOWS };

/* Those of an odd rank, as every rank has to know them in part: equal blocks
 * of the given count. Without a root, the block of rank `root` - 1 is one
 * longer. */
static dicomm_result_t call_v(const struct one *o, const struct job_rank *me,
			      void *send, void *recv, dicomm_stream_t stream)
{
	size_t counts[MOST_RANKS], displs[MOST_RANKS];

	for (int r = 0; r < me->ranks; r++) {
		bool longer =
			(o->kind == ALLGATHERV || o->kind == REDUCE_SCATTERV) &&
			r + 1 == o->root;

		counts[r] = o->count + longer;
		displs[r] = (size_t)r * (o->count + 1);
	}
	if (o->kind == ALLGATHERV)
		return dicomm_allgatherv(send, recv, counts, displs, o->type,
					 me->comm, stream);
	if (o->kind == REDUCE_SCATTERV)
		return dicomm_reduce_scatterv(send, recv, counts, o->type,
					      o->op, me->comm, stream);
	if (o->kind == GATHERV)
		return dicomm_gatherv(send, o->count, recv, counts, displs,
				      o->type, o->root, me->comm, stream);
	if (o->kind == SCATTERV)
		return dicomm_scatterv(send, counts, displs, recv, o->count,
				       o->type, o->root, me->comm, stream);
	return dicomm_alltoallv(send, counts, displs, recv, counts, displs,
				o->type, me->comm, stream);
}

static dicomm_result_t call(const struct one *o, const struct job_rank *me,
			    void *send, void *recv, dicomm_stream_t s)
{
	int next = (me->rank + 1) % me->ranks;
	int before = (me->rank + me->ranks - 1) % me->ranks;

	switch (o->kind) {
	case NONE:
		return DICOMM_SUCCESS;
	case ALLREDUCE:
		return dicomm_allreduce(send, recv, o->count, o->type, o->op,
					me->comm, s);
	case BROADCAST:
		return dicomm_broadcast(send, recv, o->count, o->type, o->root,
					me->comm, s);
	case REDUCE:
		return dicomm_reduce(send, recv, o->count, o->type, o->op,
				     o->root, me->comm, s);
	case GATHER:
		return dicomm_gather(send, recv, o->count, o->type, o->root,
				     me->comm, s);
	case SCATTER:
		return dicomm_scatter(send, recv, o->count, o->type, o->root,
				      me->comm, s);
	case ALLGATHER:
		return dicomm_allgather(send, recv, o->count, o->type, me->comm,
					s);
	case ALLTOALL:
		return dicomm_alltoall(send, recv, o->count, o->type, me->comm,
				       s);
	case REDUCE_SCATTER:
		return dicomm_reduce_scatter(send, recv, o->count, o->type,
					     o->op, me->comm, s);
	case BARRIER:
		return dicomm_barrier(me->comm, s);
	case SEND:
		return dicomm_send(send, o->count, o->type, next, me->comm, s);
	case RECV:
		return dicomm_recv(recv, o->count, o->type, before, me->comm,
				   s);
	default:
		return call_v(o, me, send, recv, s);
	}
}

static void keep(dicomm_result_t *first, dicomm_result_t status)
{
	if (*first == DICOMM_SUCCESS)
		*first = status;
}

static dicomm_result_t call_both(const struct one *o, const struct job_rank *me,
				 uint8_t *memory, enum how how)
{
	dicomm_result_t first = DICOMM_SUCCESS;
	dicomm_stream_t stream = NULL;

	if (how == STREAM)
		JOB_TRY(dicomm_host_stream_create(&stream));
	if (how == GROUP)
		JOB_TRY(dicomm_group_start());
	for (size_t i = 0; i < 2 && first == DICOMM_SUCCESS; i++)
		keep(&first, call(&o[i], me, memory + 2 * i * BUFFER_BYTES,
				  memory + (2 * i + 1) * BUFFER_BYTES, stream));
	if (how == GROUP)
		keep(&first, dicomm_group_end());
	if (how == STREAM)
		keep(&first, dicomm_host_stream_synchronize(stream));
	dicomm_host_stream_destroy(stream);
	return first;
}

/* Does nobody have a result before everybody has called? */
static bool needs_all(const struct one *o)
{
	return o->count &&
	       (o->kind == ALLREDUCE || o->kind == ALLGATHER ||
		o->kind == ALLTOALL || o->kind == REDUCE_SCATTER ||
		o->kind == ALLGATHERV || o->kind == REDUCE_SCATTERV);
}

static void disagree(const struct quarrel *q, int number, int odd,
		     struct job_rank *me, uint8_t *memory, enum how how)
{
	bool is_odd = me->rank == odd;
	bool is_next = me->rank == (odd + 1) % me->ranks;
	static const struct one nothing[2];
	const struct one *mine = is_odd                ? q->odd
				 : is_next || !q->pair ? q->other
						       : nothing;
	dicomm_result_t status;
	double begin;
	const char *text;
	char name[32];

	/* Who has not finished its init would fail in that. */
	job_barrier();
	begin = job_seconds();
	status = call_both(mine, me, memory, how);
	JOB_CHECK(status != DICOMM_SUCCESS || !needs_all(&mine[0]),
		  "quarrel %d, rank %d odd: a result nevertheless", number,
		  odd);
	while (status == DICOMM_SUCCESS && job_seconds() - begin < PATIENCE_S)
		status = dicomm_barrier(me->comm, NULL);
	text = dicomm_get_last_error(me->comm);
	JOB_CHECK(status == DICOMM_ERR_INVALID_USAGE,
		  "quarrel %d, rank %d odd: status %d, \"%s\"", number, odd,
		  (int)status, text);
	prompt_check(is_odd ? "the odd rank" : "the others",
		     job_seconds() - begin, 0);
	snprintf(name, sizeof(name), "rank %d called", odd);
	JOB_CHECK(strstr(text, name) && strstr(text, q->odd_words) &&
			  strstr(text, q->other_words),
		  "quarrel %d, rank %d odd: \"%s\" names not both calls (%s, "
		  "%s)",
		  number, odd, text, q->odd_words, q->other_words);
	JOB_REFUSED(dicomm_barrier(me->comm, NULL), DICOMM_ERR_INVALID_USAGE,
		    name);
}

/* All of them, with every rank for the odd one, in every way; or, unless there
 * is time, with one rank and in one way for each. */
static void quarrel(struct job_rank *me)
{
	uint8_t *memory = calloc(4, BUFFER_BYTES);
	int variants = me->ranks * HOWS;

	JOB_CHECK(memory, "no memory");
	for (int i = 0; i < QUARRELS; i++)
		for (int v = 0; v < variants; v++) {
			if (!job_is_long() && v != (i + me->ranks) % variants)
				continue;
			JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks,
						      job_id(), me->rank));
			disagree(&quarrels[i], i, v / HOWS, me, memory,
				 (enum how)(v % HOWS));
			JOB_TRY(dicomm_comm_destroy(me->comm));
			me->comm = NULL;
		}
	free(memory);
}

START_TEST(ranks_that_disagree_are_named)
{
	job_run(&(struct job){.run = quarrel,
			      .ranks = _i,
			      .bare = true,
			      .env = {"DICOMM_DEBUG=none"},
			      .timeout_s = job_is_long() ? 600 : 90});
}
END_TEST

/* How what was called reads for other ranks, in the largest communicator */
static void check_said(dicomm_redop_t op, const char *words)
{
	static struct call_log log;
	struct call call = {.function = COLL_REDUCE,
			    .type = DICOMM_FLOAT8E5M2FNUZ,
			    .op = op,
			    .root = CONTROL_RANKS_MAX - 1,
			    .count = SIZE_MAX};
	uint32_t signature;
	char mine[128], said[128];

	call_log_add(&log, 1, call_log_what(&call, 0xfedcba98), call.count);
	ck_assert(call_log_find(&log, 1, &signature, said, sizeof(said)));
	ck_assert_uint_eq(signature, 0xfedcba98);
	call_text(&call, mine, sizeof(mine));
	ck_assert_str_eq(said, mine);
	ck_assert_msg(strstr(said, words) != NULL, "%s", said);
}

START_TEST(what_is_said_of_a_call_is_all_of_it)
{
	check_said(DICOMM_BXOR, "bxor root 65535");
	check_said((dicomm_redop_t)0x12345, "premulsum root 65535");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_disagree");
	TCase *tcase = tcase_create("fault_disagree");

	tcase_set_timeout(tcase, job_is_long() ? 700 : 110);
	tcase_add_test(tcase, what_is_said_of_a_call_is_all_of_it);
	tcase_add_loop_test(tcase, ranks_that_disagree_are_named, 2,
			    MOST_RANKS + 1);
	suite_add_tcase(suite, tcase);
	prompt_add(suite);
	return runner_main(suite);
}
