/* SPDX-License-Identifier: BSD-3-Clause */
/* In deterministic mode a sum has the bits of the float32 sum in rank order,
 * rounded once, however it is called; and in any mode all ranks have the same
 * bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"

#define COUNT 40007

static const dicomm_datatype_t types[] = {DICOMM_FLOAT32, DICOMM_BFLOAT16,
					  DICOMM_FLOAT16};

/* As many significant bits as the type has, of magnitudes so unlike that sums
 * are rounded; of float16 they stay clear of the subnormal numbers. */
static double awkward(dicomm_datatype_t type, int rank, size_t i)
{
	uint64_t h = (i * 5 + (size_t)rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
	int bits = type == DICOMM_FLOAT32   ? 24
		   : type == DICOMM_FLOAT16 ? 11
					    : 8;
	int spread = type == DICOMM_FLOAT16 ? 10 : 40;
	int64_t m;

	h = (h ^ (h >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
	h ^= h >> 32;
	m = (int64_t)(1u << (bits - 1) | (h & ((1u << (bits - 1)) - 1)));
	return ldexp((double)(h >> 60 & 1 ? -m : m),
		     (int)(h >> 40 & 0xffff) % (spread + 1) - spread);
}

static float fold(dicomm_datatype_t type, int ranks, size_t i)
{
	volatile float sum = (float)awkward(type, 0, i);

	for (int r = 1; r < ranks; r++)
		sum = sum + (float)awkward(type, r, i);
	return sum;
}

struct data {
	dicomm_datatype_t type;
	size_t bytes;
	uint8_t *in, *out, *work;
};

static void make(struct data *d, dicomm_datatype_t type, int rank)
{
	d->type = type;
	d->bytes = element_bytes(type);
	d->in = malloc(COUNT * d->bytes);
	d->out = malloc(COUNT * d->bytes);
	d->work = malloc(COUNT * d->bytes);
	JOB_CHECK(d->in && d->out && d->work, "out of memory");
	for (size_t i = 0; i < COUNT; i++)
		element_put_double(type, d->in + i * d->bytes,
				   awkward(type, rank, i));
}

static void release(struct data *d)
{
	free(d->in);
	free(d->out);
	free(d->work);
}

/* Elements [first, first + n) of the sum are at `at`. */
static void check(const struct data *d, int ranks, const uint8_t *at,
		  size_t first, size_t n, const char *how)
{
	uint8_t want[8];

	for (size_t i = 0; i < n; i++) {
		element_put_double(d->type, want,
				   fold(d->type, ranks, first + i));
		JOB_CHECK(!memcmp(at + i * d->bytes, want, d->bytes),
			  "%s, %zu %s: element %zu is %g, rank order gives %g",
			  how, n, element_name(d->type), i,
			  element_get(d->type, at + i * d->bytes),
			  element_get(d->type, want));
	}
}

static void sum(const struct data *d, const uint8_t *in, uint8_t *out,
		size_t first, size_t n, dicomm_comm_t comm,
		dicomm_stream_t stream)
{
	JOB_TRY(dicomm_allreduce(in + first * d->bytes, out + first * d->bytes,
				 n, d->type, DICOMM_SUM, comm, stream));
}

/* Any cut of the message, any placement. */
static void cuts(const struct data *d, const struct job_rank *me)
{
	static const size_t lens[] = {1, 7, 64, 1000, 8191, 30000, COUNT};

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		size_t n = lens[i], first = (COUNT - n) / 2;

		memset(d->out, 0, COUNT * d->bytes);
		sum(d, d->in, d->out, first, n, me->comm, NULL);
		check(d, me->ranks, d->out + first * d->bytes, first, n,
		      "allreduce");
		memcpy(d->work, d->in, COUNT * d->bytes);
		if (me->rank % 2)
			sum(d, d->in, d->work, first, n, me->comm, NULL);
		else
			sum(d, d->work, d->work, first, n, me->comm, NULL);
		check(d, me->ranks, d->work + first * d->bytes, first, n,
		      "allreduce in place");
	}
}

/* Two halves in one group, on a stream or not. */
static void halves(const struct data *d, const struct job_rank *me)
{
	dicomm_stream_t stream;
	size_t half = COUNT / 2;

	JOB_TRY(dicomm_host_stream_create(&stream));
	for (int s = 0; s < 2; s++) {
		memset(d->out, 0, COUNT * d->bytes);
		JOB_TRY(dicomm_group_start());
		sum(d, d->in, d->out, 0, half, me->comm, s ? stream : NULL);
		sum(d, d->in, d->out, half, COUNT - half, me->comm,
		    s ? stream : NULL);
		JOB_TRY(dicomm_group_end());
		JOB_TRY(dicomm_host_stream_synchronize(stream));
		check(d, me->ranks, d->out, 0, COUNT, "allreduce in a group");
	}
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

/* The other reductions. */
static void others(const struct data *d, const struct job_rank *me)
{
	size_t n = COUNT / (size_t)me->ranks, mine = n * (size_t)me->rank;
	size_t counts[8], from = 0;

	for (int root = 0; root < me->ranks; root++) {
		JOB_TRY(dicomm_reduce(d->in, d->out, COUNT, d->type, DICOMM_SUM,
				      root, me->comm, NULL));
		if (me->rank == root)
			check(d, me->ranks, d->out, 0, COUNT, "reduce");
	}
	JOB_TRY(dicomm_reduce_scatter(d->in, d->out, n, d->type, DICOMM_SUM,
				      me->comm, NULL));
	check(d, me->ranks, d->out, mine, n, "reduce_scatter");
	for (int r = 0; r < me->ranks; r++) {
		counts[r] = (size_t)(r + 1) * 2000;
		if (r < me->rank)
			from += counts[r];
	}
	JOB_TRY(dicomm_reduce_scatterv(d->in, d->out, counts, d->type,
				       DICOMM_SUM, me->comm, NULL));
	check(d, me->ranks, d->out, from, counts[me->rank], "reduce_scatterv");
}

static void run(struct job_rank *me)
{
	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
		struct data d;

		if (job_is_short() && t != (size_t)me->ranks % 3)
			continue;
		make(&d, types[t], me->rank);
		cuts(&d, me);
		halves(&d, me);
		others(&d, me);
		release(&d);
	}
}

/* The operators whose bits the definition does not tell so plainly: the same
 * whatever the cut and the placement. */
static void repeatable(struct job_rank *me)
{
	static const dicomm_redop_t ops[] = {DICOMM_AVG, DICOMM_PROD};
	struct data d;

	make(&d, *(const dicomm_datatype_t *)me->arg, me->rank);
	for (int o = 0; o < 2; o++) {
		JOB_TRY(dicomm_allreduce(d.in, d.out, COUNT, d.type, ops[o],
					 me->comm, NULL));
		memcpy(d.work, d.in, COUNT * d.bytes);
		for (size_t at = 0, n = 1; at < COUNT; at += n, n = 3 * n + 1) {
			if (n > COUNT - at)
				n = COUNT - at;
			JOB_TRY(dicomm_allreduce(
				d.work + at * d.bytes, d.work + at * d.bytes, n,
				d.type, ops[o], me->comm, NULL));
		}
		JOB_CHECK(!memcmp(d.out, d.work, COUNT * d.bytes),
			  "%s of %s: other bits in pieces",
			  element_op_name(ops[o]), element_name(d.type));
	}
	release(&d);
}

START_TEST(a_sum_has_the_bits_of_rank_order)
{
	job_run(&(struct job){
		.run = run, .ranks = _i, .env = {"DICOMM_DETERMINISTIC=1"}});
}
END_TEST

/* Slices of all sizes; the ordered algorithms need a scratch block for each
 * rank, some ranks only. */
START_TEST(slots_do_not_matter)
{
	static const char *const slots[] = {"DICOMM_SHM_SLOT_BYTES=4096",
					    "DICOMM_SHM_SLOT_BYTES=8M"};

	job_run(&(struct job){.run = run,
			      .ranks = 3,
			      .env = {"DICOMM_DETERMINISTIC=1",
				      "DICOMM_SHM_SLOTS=4", slots[_i]}});
}
END_TEST

START_TEST(pieces_have_the_same_bits)
{
	for (int n = 2; n <= 5; n++) {
		if (job_is_short() && n != 2 + _i)
			continue;
		job_run(&(struct job){.run = repeatable,
				      .arg = &types[_i],
				      .ranks = n,
				      .env = {"DICOMM_DETERMINISTIC=1"}});
	}
}
END_TEST

/* ---- by option; any mode ---- */

static void by_config(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	struct job_rank as = *me;

	config.deterministic = 1;
	JOB_TRY(dicomm_comm_split(me->comm, 0, 0, &as.comm, &config));
	run(&as);
	JOB_TRY(dicomm_comm_destroy(as.comm));
}

START_TEST(an_option_of_the_communicator_does_the_same)
{
	job_run(&(struct job){.run = by_config, .ranks = 3});
}
END_TEST

static void alike(struct job_rank *me)
{
	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (size_t n = 1; n <= COUNT; n = 6 * n + 1) {
			struct data d;
			uint8_t *all;

			make(&d, types[t], me->rank);
			all = malloc(n * d.bytes * (size_t)me->ranks);
			JOB_CHECK(all, "out of memory");
			sum(&d, d.in, d.out, 0, n, me->comm, NULL);
			JOB_TRY(dicomm_allgather(d.out, all, n, d.type,
						 me->comm, NULL));
			for (int r = 0; r < me->ranks; r++)
				JOB_CHECK(!memcmp(d.out,
						  all + n * d.bytes * (size_t)r,
						  n * d.bytes),
					  "%zu %s: rank %d has other bits", n,
					  element_name(d.type), r);
			free(all);
			release(&d);
		}
}

START_TEST(all_ranks_have_the_same_bits)
{
	job_run(&(struct job){.run = alike, .ranks = _i});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("deterministic");
	TCase *tcase = tcase_create("deterministic");
	int least = job_is_short() ? 2 : 1, most = job_is_short() ? 4 : 5;

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, a_sum_has_the_bits_of_rank_order, least,
			    most + 1);
	if (!job_is_short())
		tcase_add_loop_test(tcase, slots_do_not_matter, 0, 2);
	tcase_add_loop_test(tcase, pieces_have_the_same_bits, 0, 3);
	tcase_add_test(tcase, an_option_of_the_communicator_does_the_same);
	tcase_add_loop_test(tcase, all_ranks_have_the_same_bits, 2, most + 1);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
