/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inputs of the checks: what is announced as their result must come out
 * whatever the order, with every partial result rounded to its type; and data
 * that is wrong in any way must be seen.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/operation/verify.h"
#include "tests/support/runner.h"

#define MAX_RANKS 17

static const int rank_counts[] = {1, 2, 3, 8, 17};

static uint64_t mask(const struct type *t)
{
	return t->bytes == 8 ? ~0ull : (1ull << (8 * t->bytes)) - 1;
}

static int64_t as_signed(const struct type *t, uint64_t bits)
{
	int unused = 64 - 8 * (int)t->bytes;

	return (int64_t)(bits << unused) >> unused;
}

static uint64_t fold_integers(const struct type *t, enum reduction r,
			      uint64_t a, uint64_t b)
{
	bool less = t->is_signed ? as_signed(t, a) < as_signed(t, b) : a < b;

	switch (r) {
	case REDUCTION_PROD:
		return a * b & mask(t);
	case REDUCTION_MAX:
		return less ? b : a;
	case REDUCTION_MIN:
		return less ? a : b;
	case REDUCTION_BAND:
		return a & b;
	case REDUCTION_BOR:
		return a | b;
	case REDUCTION_BXOR:
		return a ^ b;
	default:
		return (a + b) & mask(t);
	}
}

/* Two operands, the result rounded to the type: what one hop does. */
static uint64_t fold(const struct type *t, enum reduction r, uint64_t a,
		     uint64_t b)
{
	double x = type_decode(t, a), y = type_decode(t, b);

	if (!t->is_float)
		return fold_integers(t, r, a, b);
	switch (r) {
	case REDUCTION_PROD:
		return type_encode(t, x * y);
	case REDUCTION_MAX:
		return x < y ? b : a;
	case REDUCTION_MIN:
		return y < x ? b : a;
	default:
		return type_encode(t, x + y);
	}
}

/* What a rank's element is when it enters the reduction. */
static uint64_t prepare(const struct type *t, enum reduction r, uint64_t bits,
			int rank, int ranks)
{
	if (r == REDUCTION_MULSUM && !t->is_float)
		return bits * (uint64_t)verify_scalar(rank) & mask(t);
	if (r == REDUCTION_MULSUM)
		return type_encode(t,
				   type_decode(t, bits) * verify_scalar(rank));
	if (r == REDUCTION_AVG && t->is_float && t->bytes == 8)
		return type_encode(t, type_decode(t, bits) * (1.0 / ranks));
	if (r == REDUCTION_AVG && t->is_float)
		return type_encode(t, type_decode(t, bits) *
					      (double)(1.0f / (float)ranks));
	return bits;
}

static uint64_t finish(const struct type *t, enum reduction r, uint64_t bits,
		       int ranks)
{
	if (r != REDUCTION_AVG || t->is_float)
		return bits;
	if (t->is_signed)
		return (uint64_t)(as_signed(t, bits) / ranks) & mask(t);
	return bits / (uint64_t)ranks;
}

/* Fold pairs chosen at random until one is left. */
static uint64_t fold_all(const struct type *t, enum reduction r, uint64_t *v,
			 int n, unsigned *random)
{
	while (n > 1) {
		int a = rand_r(random) % n, b;
		uint64_t x = v[a];

		v[a] = v[--n];
		b = rand_r(random) % n;
		v[b] = fold(t, r, x, v[b]);
	}
	return v[0];
}

static void check_reduction(const struct type *t, enum reduction r, int ranks)
{
	static struct verify_pattern in[MAX_RANKS], out;
	static uint64_t result[VERIFY_PERIOD];
	unsigned random = 1;
	uint64_t varied = 0;

	for (int rank = 0; rank < ranks; rank++)
		verify_input(&in[rank], t, r, 5, rank, ranks);
	verify_output(&out, t, r, 5, ranks);
	for (size_t i = 0; i < VERIFY_PERIOD; i++) {
		uint64_t v[MAX_RANKS];

		for (int rank = 0; rank < ranks; rank++) {
			uint64_t bits = type_load(t, in[rank].bits, i);

			if (t->is_float)
				ck_assert(isfinite(type_decode(t, bits)));
			v[rank] = prepare(t, r, bits, rank, ranks);
		}
		type_store(
			t, result, i,
			finish(t, r, fold_all(t, r, v, ranks, &random), ranks));
		varied |= type_load(t, result, i) ^ type_load(t, result, 0);
	}
	ck_assert_msg(verify_wrong(&out, result, 0, VERIFY_PERIOD) == 0,
		      "%s %s, %d ranks", t->name, reduction_name(r), ranks);
	/* one byte holds no average of more ranks than it has values */
	if (!(r == REDUCTION_AVG && t->bytes == 1 && !t->is_float))
		ck_assert_uint_ne(varied, 0);
}

START_TEST(every_result_is_exact_in_any_order)
{
	for (int t = 0; t < types_n; t++)
		for (int r = 0; r < REDUCTIONS; r++) {
			if (!reduction_serves((enum reduction)r, &types[t]))
				continue;
			check_reduction(&types[t], (enum reduction)r,
					rank_counts[_i]);
		}
}
END_TEST

/* Fold all ranks but one: what an algorithm that forgets a rank delivers. */
static size_t wrong_without(const struct type *t, enum reduction r, int ranks,
			    int missing)
{
	static struct verify_pattern in, out;
	static uint64_t sum[VERIFY_PERIOD];
	bool first = true;

	for (int rank = 0; rank < ranks; rank++) {
		if (rank == missing)
			continue;
		verify_input(&in, t, r, 9, rank, ranks);
		for (size_t i = 0; i < VERIFY_PERIOD; i++) {
			uint64_t x = prepare(t, r, type_load(t, in.bits, i),
					     rank, ranks);

			type_store(t, sum, i,
				   first ? x
					 : fold(t, r, type_load(t, sum, i), x));
		}
		first = false;
	}
	for (size_t i = 0; i < VERIFY_PERIOD; i++)
		type_store(t, sum, i,
			   finish(t, r, type_load(t, sum, i), ranks));
	verify_output(&out, t, r, 9, ranks);
	return verify_wrong(&out, sum, 0, VERIFY_PERIOD);
}

START_TEST(a_missing_rank_is_seen)
{
	for (int t = 0; t < types_n; t++)
		for (int r = 0; r < REDUCTIONS; r++)
			for (int missing = 0; missing < 5; missing++) {
				enum reduction op = (enum reduction)r;

				if (!reduction_serves(op, &types[t]))
					continue;
				ck_assert_msg(wrong_without(&types[t], op, 5,
							    missing) > 20,
					      "%s %s without rank %d",
					      types[t].name, reduction_name(op),
					      missing);
			}
}
END_TEST

#define COUNT ((size_t)(5 * VERIFY_PERIOD + 3))

START_TEST(what_was_filled_is_right_from_any_base)
{
	static struct verify_pattern p;
	static uint64_t whole[COUNT], part[COUNT];

	for (int t = 0; t < types_n; t++) {
		size_t bytes = types[t].bytes;

		verify_data(&p, &types[t], 3);
		verify_fill(&p, whole, 0, COUNT);
		ck_assert_uint_eq(verify_wrong(&p, whole, 0, COUNT), 0);
		for (size_t base = 0; base < COUNT; base += 611) {
			verify_fill(&p, part, base, COUNT - base);
			ck_assert_int_eq(memcmp((char *)whole + base * bytes,
						part, (COUNT - base) * bytes),
					 0);
		}
	}
}
END_TEST

START_TEST(each_wrong_element_is_counted)
{
	static struct verify_pattern p;
	static uint64_t data[COUNT];

	for (int t = 0; t < types_n; t++) {
		size_t bytes = types[t].bytes;
		size_t changed = 0;

		verify_data(&p, &types[t], 3);
		verify_fill(&p, data, 0, COUNT);
		for (size_t i = 0; i < COUNT; i += 97) {
			((char *)data)[i * bytes + bytes - 1] ^= 1;
			changed++;
		}
		ck_assert_uint_eq(verify_wrong(&p, data, 0, COUNT), changed);
	}
}
END_TEST

/* Ranks, chunks and periods all move data by some distance. */
START_TEST(data_in_the_wrong_place_is_seen)
{
	static const size_t distances[] = {
		1,    2,    16,   64,   256,  1000,  VERIFY_PERIOD,
		1024, 2048, 2042, 4096, 5105, 65536, 1 << 20,
	};
	static struct verify_pattern p;
	static float data[COUNT];
	const struct type *t = type_find("float");

	verify_data(&p, t, 3);
	verify_fill(&p, data, 0, COUNT);
	for (size_t i = 0; i < sizeof(distances) / sizeof(distances[0]); i++)
		ck_assert_uint_gt(verify_wrong(&p, data, distances[i], COUNT),
				  COUNT / 4);
	verify_data(&p, t, 4);
	ck_assert_uint_gt(verify_wrong(&p, data, 0, COUNT), COUNT - 10);
}
END_TEST

START_TEST(a_tolerant_check_refuses_nan_and_zero)
{
	static struct verify_pattern p;
	static float data[VERIFY_PERIOD];
	const struct type *t = type_find("float");

	verify_output(&p, t, REDUCTION_AVG, 5, 3);
	ck_assert(!p.exact);
	for (size_t i = 0; i < VERIFY_PERIOD; i++)
		data[i] = NAN;
	ck_assert_uint_eq(verify_wrong(&p, data, 0, VERIFY_PERIOD),
			  VERIFY_PERIOD);
	memset(data, 0, sizeof(data));
	ck_assert_uint_eq(verify_wrong(&p, data, 0, VERIFY_PERIOD),
			  VERIFY_PERIOD);
}
END_TEST

/* --- bit patterns ------------------------------------------------------------
 */

START_TEST(narrow_floats_decode_to_what_they_stand_for)
{
	static const struct {
		const char *type;
		uint64_t bits;
		double value;
	} cases[] = {
		{"half", 0x3c00, 1},
		{"half", 0x7bff, 65504},
		{"half", 0x0001, 0x1p-24},
		{"half", 0xc000, -2},
		{"bfloat16", 0x3f80, 1},
		{"bfloat16", 0x4049, 3.140625},
		{"f8e4m3", 0x38, 1},
		{"f8e4m3", 0x7e, 448},
		{"f8e4m3", 0x01, 0x1p-9},
		{"f8e5m2", 0x3c, 1},
		{"f8e5m2", 0x7b, 57344},
		{"f8e5m2", 0x01, 0x1p-16},
		{"f8e4m3uz", 0x40, 1},
		{"f8e4m3uz", 0x7f, 240},
		{"f8e4m3uz", 0x01, 0x1p-10},
		{"f8e5m2uz", 0x40, 1},
		{"f8e5m2uz", 0x7f, 57344},
		{"f8e5m2uz", 0x01, 0x1p-17},
		{"float", 0x40490fdb, 3.1415927410125732},
		{"double", 0x3ff8000000000000, 1.5},
		{"half", 0x7c00, INFINITY},
		{"f8e5m2", 0xfc, -INFINITY},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct type *t = type_find(cases[i].type);

		ck_assert_double_eq(type_decode(t, cases[i].bits),
				    cases[i].value);
		if (isfinite(cases[i].value))
			ck_assert_uint_eq(type_encode(t, cases[i].value),
					  cases[i].bits);
	}
	ck_assert(isnan(type_decode(type_find("f8e4m3"), 0x7f)));
	ck_assert(isnan(type_decode(type_find("f8e4m3uz"), 0x80)));
	ck_assert(isnan(type_decode(type_find("half"), 0x7e00)));
	ck_assert(isnan(type_decode(type_find("f8e5m2"), 0x7d)));
}
END_TEST

START_TEST(encoding_undoes_decoding)
{
	for (int k = 0; k < types_n; k++) {
		const struct type *t = &types[k];

		for (uint64_t bits = 0; t->bytes <= 2 && bits <= mask(t);
		     bits++) {
			double v = type_decode(t, bits);

			if (isfinite(v))
				ck_assert_uint_eq(type_encode(t, v), bits);
		}
	}
}
END_TEST

START_TEST(encoding_rounds_to_nearest_even)
{
	const struct type *t = type_find("f8e4m3");

	ck_assert_double_eq(type_decode(t, type_encode(t, 17)), 16);
	ck_assert_double_eq(type_decode(t, type_encode(t, 19)), 20);
	ck_assert_double_eq(type_decode(t, type_encode(t, 17.01)), 18);
	ck_assert_double_eq(type_decode(t, type_encode(t, 15.9)), 16);
	ck_assert_double_eq(type_decode(t, type_encode(t, 0x1p-10)), 0);
	ck_assert_double_eq(type_decode(t, type_encode(t, 0x1.8p-9)), 0x1p-8);
	ck_assert(isnan(type_decode(t, type_encode(t, 500))));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("perf_verify");
	TCase *tests = tcase_create("verify");

	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, every_result_is_exact_in_any_order, 0,
			    sizeof(rank_counts) / sizeof(rank_counts[0]));
	tcase_add_test(tests, a_missing_rank_is_seen);
	tcase_add_test(tests, what_was_filled_is_right_from_any_base);
	tcase_add_test(tests, each_wrong_element_is_counted);
	tcase_add_test(tests, data_in_the_wrong_place_is_seen);
	tcase_add_test(tests, a_tolerant_check_refuses_nan_and_zero);
	tcase_add_test(tests, narrow_floats_decode_to_what_they_stand_for);
	tcase_add_test(tests, encoding_undoes_decoding);
	tcase_add_test(tests, encoding_rounds_to_nearest_even);
	suite_add_tcase(suite, tests);
	return runner_main(suite);
}
