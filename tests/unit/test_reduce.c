/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kernel of every instruction set that this machine can run. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/reduce/reciprocal.h"
#include "src/accel/reduce/reduce.h"
#include "src/accel/reduce/kernels.h"
#include "src/base/fp_state.h"
#include "src/base/type.h"
#include "tests/support/arithmetic.h"
#include "tests/support/runner.h"

static const dicomm_datatype_t types[] = {
	DICOMM_INT8,          DICOMM_UINT8,      DICOMM_INT16,
	DICOMM_UINT16,        DICOMM_INT32,      DICOMM_UINT32,
	DICOMM_INT64,         DICOMM_UINT64,     DICOMM_FLOAT16,
	DICOMM_BFLOAT16,      DICOMM_FLOAT32,    DICOMM_FLOAT64,
	DICOMM_FLOAT8E4M3,    DICOMM_FLOAT8E5M2, DICOMM_FLOAT8E4M3FNUZ,
	DICOMM_FLOAT8E5M2FNUZ};
#define TYPES ((int)(sizeof(types) / sizeof(*types)))

static const dicomm_redop_t ops[] = {
	DICOMM_SUM, DICOMM_PROD, DICOMM_MAX, DICOMM_MIN,
	DICOMM_AVG, DICOMM_BAND, DICOMM_BOR, DICOMM_BXOR,
};
#define OPS ((int)(sizeof(ops) / sizeof(*ops)))

static bool bitwise(dicomm_redop_t op)
{
	return op == DICOMM_BAND || op == DICOMM_BOR || op == DICOMM_BXOR;
}

/* What lies before and behind a result, and must stay */
#define CANARY 0x5a
static unsigned char canary[16];

static bool is_canary(const unsigned char *p)
{
	return memcmp(p, canary, sizeof(canary)) == 0;
}

static void setup(void)
{
	memset(canary, CANARY, sizeof(canary));
}

/* Operands */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Bit patterns near which something happens, in any of the types */
static uint64_t special(dicomm_datatype_t type, size_t i)
{
	int bits = 8 * (int)type_bytes(type);
	int man = type_is_float(type) ? arithmetic_man_bits(type) : bits / 2;
	uint64_t top = 1ull << (bits - 1), step = 1ull << man;
	uint64_t inf = top - step, one = ((top >> 1) / step - 1) * step;
	const uint64_t magnitude[] = {
		0,        1,          step - 1,       step,
		one,      one + 1,    inf - 1,        inf,
		inf + 1,  top - 1,    inf + step / 2, one + step,
		step + 1, inf - step, inf / 2,        3,
	};
	const size_t n = sizeof(magnitude) / sizeof(*magnitude);

	return magnitude[i % n] | (i / n % 2 ? top : 0);
}
#define SPECIALS 32

struct sample {
	dicomm_datatype_t type;
	size_t n, elem;
	unsigned char *a, *b, *expected;
};

static struct sample sample_new(dicomm_datatype_t type, size_t n)
{
	struct sample s = {.type = type, .n = n, .elem = type_bytes(type)};

	s.a = malloc(n * s.elem);
	s.b = malloc(n * s.elem);
	s.expected = malloc(n * s.elem);
	ck_assert(s.a && s.b && s.expected);
	return s;
}

static void sample_free(struct sample *s)
{
	free(s->a);
	free(s->b);
	free(s->expected);
}

static void sample_set(struct sample *s, size_t i, uint64_t a, uint64_t b)
{
	memcpy(s->a + i * s->elem, &a, s->elem);
	memcpy(s->b + i * s->elem, &b, s->elem);
}

/* All pairs of 8-bit values; all 16-bit values with some special and
 * random ones; of others, all pairs of specials and many random pairs, half
 * of them near in magnitude. */
static struct sample sample_make(dicomm_datatype_t type)
{
	size_t elem = type_bytes(type), rows = 16, n = 0;
	struct sample s = sample_new(type, elem == 2 ? rows << 16 : 65536);

	if (elem == 1) {
		for (; n < s.n; n++)
			sample_set(&s, n, n >> 8, n & 255);
	} else if (elem == 2) {
		for (size_t r = 0; r < rows; r++) {
			uint64_t b = r < 13 ? special(type, r % 2 ? r + 16 : r)
					    : random64();

			for (uint64_t a = 0; a < 65536; a++)
				sample_set(&s, n++, a, b);
		}
	} else {
		for (; n < SPECIALS * SPECIALS; n++)
			sample_set(&s, n, special(type, n % SPECIALS),
				   special(type, n / SPECIALS));
		for (; n < s.n; n++) {
			uint64_t a = random64(), b = random64();

			if (n % 2)
				b = a ^ (b & (b >> 8));
			sample_set(&s, n, a, b);
		}
	}
	return s;
}

static void sample_expect(struct sample *s, dicomm_redop_t op)
{
	for (size_t i = 0; i < s->n * s->elem; i += s->elem)
		arithmetic_expect(s->type, op, s->expected + i, s->a + i,
				  s->b + i);
}

static void check_result(const struct sample *s, dicomm_redop_t op,
			 const unsigned char *result, const char *what)
{
	if (memcmp(result, s->expected, s->n * s->elem) == 0)
		return;
	for (size_t i = 0; i < s->n; i++) {
		size_t at = i * s->elem;

		if (memcmp(result + at, s->expected + at, s->elem) == 0)
			continue;
		ck_abort_msg(
			"%s %s %s %s: element %zu: %#llx and %#llx "
			"give %#llx and should %#llx",
			reduce_isa(), what, type_name(s->type), op_name(op), i,
			(unsigned long long)arithmetic_bits(s->type, s->a + at),
			(unsigned long long)arithmetic_bits(s->type, s->b + at),
			(unsigned long long)arithmetic_bits(s->type,
							    result + at),
			(unsigned long long)arithmetic_bits(s->type,
							    s->expected + at));
	}
}

/* Call with each instruction set in turn. */
static bool next_isa(int *i)
{
	const struct reduce_kernels *k = reduce_kernels_usable((*i)++);

	reduce_kernels_force(k);
	return k;
}

START_TEST(every_operator_matches_its_definition)
{
	struct sample s = sample_make(types[_i]);
	unsigned char *dst = malloc(s.n * s.elem);

	ck_assert_ptr_nonnull(dst);
	for (int o = 0; o < OPS; o++) {
		if (type_is_float(s.type) && bitwise(ops[o]))
			continue;
		sample_expect(&s, ops[o]);
		for (int isa = 0; next_isa(&isa);)
			for (int stream = 0; stream < 2; stream++) {
				reduce_fn fn =
					reduce_kernel(s.type, ops[o], stream);

				ck_assert_ptr_nonnull(fn);
				memset(dst, 0xa5, s.n * s.elem);
				fn(dst, s.a, s.b, s.n);
				check_result(&s, ops[o], dst,
					     stream ? "streamed" : "plain");
			}
	}
	free(dst);
	sample_free(&s);
}
END_TEST

/* Where the operands lie, and whether dst is one of them */

#define SHORT 100
#define LONG 5003
#define MARGIN 80

static unsigned char room[3][LONG * 8 + 2 * MARGIN];

enum alias { APART, DST_IS_A, DST_IS_B, ALL_ONE, ALIASES };

static void check_place(struct sample s, dicomm_redop_t op, reduce_fn fn,
			enum alias alias, size_t shift, const char *what)
{
	size_t len = s.n * s.elem;
	unsigned char *a = room[0] + MARGIN / 2 + shift % 64 / 2;
	unsigned char *b = room[1] + MARGIN / 2 + shift * 7 % 64 / 2;
	unsigned char *d = room[2] + MARGIN / 2 + shift * 11 % 64 / 2;

	if (alias == ALL_ONE)
		b = a;
	if (alias != APART)
		d = alias == DST_IS_B ? b : a;
	memset(d - sizeof(canary), CANARY, len + 2 * sizeof(canary));
	memcpy(a, s.a, len);
	memcpy(b, alias == ALL_ONE ? s.a : s.b, len);
	fn(d, a, b, s.n);
	check_result(&s, op, d, what);
	if (!is_canary(d - sizeof(canary)) || !is_canary(d + len))
		ck_abort_msg("%s %s %s %s: wrote beyond %zu elements",
			     reduce_isa(), what, type_name(s.type), op_name(op),
			     s.n);
}

static void check_places(const struct sample *s, dicomm_redop_t op,
			 enum alias alias)
{
	static const char *const names[] = {"apart", "dst is a", "dst is b",
					    "all one"};
	struct sample part = *s;

	for (int isa = 0; next_isa(&isa);)
		for (int stream = 0; stream < 2; stream++) {
			reduce_fn fn = reduce_kernel(s->type, op, stream);

			for (part.n = 0; part.n <= SHORT; part.n++)
				check_place(part, op, fn, alias, part.n,
					    names[alias]);
			part.n = LONG;
			for (size_t shift = 0; shift < 12; shift++)
				check_place(part, op, fn, alias, shift,
					    names[alias]);
		}
}

START_TEST(any_length_at_any_address)
{
	struct sample s = sample_new(types[_i], LONG);

	for (size_t i = 0; i < s.n; i++)
		sample_set(&s, i, random64(), random64());
	for (int o = 0; o < OPS; o++) {
		if (type_is_float(s.type) && bitwise(ops[o]))
			continue;
		sample_expect(&s, ops[o]);
		for (int alias = APART; alias < ALL_ONE; alias++)
			check_places(&s, ops[o], (enum alias)alias);
		for (size_t i = 0; i < s.n * s.elem; i += s.elem)
			arithmetic_expect(s.type, ops[o], s.expected + i,
					  s.a + i, s.a + i);
		check_places(&s, ops[o], ALL_ONE);
	}
	sample_free(&s);
}
END_TEST

START_TEST(what_is_not_defined_is_null)
{
	for (int isa = 0; next_isa(&isa);) {
		for (int t = -1; t <= TYPE_LIMIT; t++) {
			dicomm_datatype_t type = (dicomm_datatype_t)t;
			bool valid = op_fits(DICOMM_AVG, type);

			ck_assert_int_eq(!!reduce_scale_kernel(type), valid);
			ck_assert_int_eq(!!reduce_divide_kernel(type), valid);
			ck_assert_int_eq(!!reduce_average_kernel(type),
					 valid && type_is_float(type));
			for (int o = -1; o < 0x101; o++) {
				dicomm_redop_t op = (dicomm_redop_t)o;
				bool defined = op_fits(op, type);

				ck_assert_int_eq(
					!!reduce_kernel(type, op, false),
					defined);
				ck_assert_int_eq(
					!!reduce_kernel(type, op, true),
					defined);
			}
		}
	}
}
END_TEST

/* Folds */

#define MAX_SOURCES 6

static void expect_fold(dicomm_datatype_t type, dicomm_redop_t op, void *r,
			unsigned char *const *src, int nsrc, size_t at)
{
	size_t elem = type_bytes(type);
	double acc;

	memcpy(r, src[0] + at, elem);
	if (nsrc == 1)
		return;
	if (!type_is_float(type) || !type_is_narrow_float(type)) {
		for (int s = 1; s < nsrc; s++)
			arithmetic_expect(type, op, r, r, src[s] + at);
		return;
	}
	acc = arithmetic_load(type, r);
	for (int s = 1; s < nsrc; s++)
		acc = arithmetic_float(DICOMM_FLOAT32, op, acc,
				       arithmetic_load(type, src[s] + at));
	if (op == DICOMM_AVG)
		acc = arithmetic_saturate(type, acc);
	arithmetic_store(type, r, acc);
}

/* Of floats, mostly ordinary numbers, or all folds would end in NaN */
static void fill_source(dicomm_datatype_t type, unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t u = random64();

		if (type_is_float(type) && i % 8)
			arithmetic_store(
				type, p + i * type_bytes(type),
				(double)(int64_t)(u >> 8) *
						ldexp(1, -50 - (int)(u % 8)) -
					8);
		else
			memcpy(p + i * type_bytes(type), &u, type_bytes(type));
	}
}

static void check_fold(struct sample *s, dicomm_redop_t op,
		       unsigned char *const *src, int nsrc, int dst)
{
	unsigned char *copies[MAX_SOURCES + 1];
	size_t len = s->n * s->elem;

	for (int i = 0; i <= nsrc; i++) {
		copies[i] = malloc(len + sizeof(canary));
		if (!copies[i])
			ck_abort_msg("out of memory");
		if (i < nsrc)
			memcpy(copies[i], src[i], len);
		memcpy(copies[i] + len, canary, sizeof(canary));
	}
	reduce_fold(s->type, op, copies[dst], (const void *const *)copies, nsrc,
		    s->n);
	check_result(s, op, copies[dst], "fold");
	for (int i = 0; i <= nsrc; i++) {
		if (!is_canary(copies[i] + len) ||
		    (i < nsrc && i != dst && memcmp(copies[i], src[i], len)))
			ck_abort_msg("a fold changed more than its result");
		free(copies[i]);
	}
}

static void check_folds(struct sample *s, dicomm_redop_t op,
			unsigned char *const *src, int nsrc)
{
	for (size_t i = 0; i < s->n * s->elem; i += s->elem)
		expect_fold(s->type, op, s->expected + i, src, nsrc, i);
	for (int isa = 0; next_isa(&isa);)
		for (int dst = 0; dst <= nsrc; dst++)
			check_fold(s, op, src, nsrc, dst);
}

START_TEST(a_fold_goes_in_order_and_rounds_once)
{
	static const size_t counts[] = {1, 17, 256, 257, 700};
	unsigned char *src[MAX_SOURCES];
	struct sample s = sample_new(types[_i], 700);

	for (int i = 0; i < MAX_SOURCES; i++) {
		src[i] = malloc(s.n * s.elem);
		ck_assert_ptr_nonnull(src[i]);
		fill_source(s.type, src[i], s.n);
	}
	memcpy(s.a, src[0], s.n * s.elem);
	memcpy(s.b, src[1], s.n * s.elem);
	for (int o = 0; o < OPS; o++) {
		if (type_is_float(s.type) && bitwise(ops[o]))
			continue;
		for (int c = 0; c < 5; c++) {
			s.n = counts[c];
			for (int nsrc = 1; nsrc <= MAX_SOURCES; nsrc++)
				check_folds(&s, ops[o], src, nsrc);
		}
	}
	reduce_fold(s.type, DICOMM_SUM, s.a, (const void *const *)src, 3, 0);
	ck_assert_mem_eq(s.a, src[0], 700 * s.elem);
	for (int i = 0; i < MAX_SOURCES; i++)
		free(src[i]);
	sample_free(&s);
}
END_TEST

/* Would notice another order, and rounding at each step. */
START_TEST(order_and_rounding_of_a_fold_show)
{
	float big = 1e8f, one = 1, minus = -1e8f, r;
	const void *forward[] = {&big, &minus, &one};
	const void *backward[] = {&one, &big, &minus};
	uint16_t b256 = 0x4380, b1 = 0x3f80, sum;
	const void *bf16[] = {&b256, &b1, &b1};

	for (int isa = 0; next_isa(&isa);) {
		reduce_fold(DICOMM_FLOAT32, DICOMM_SUM, &r, forward, 3, 1);
		ck_assert_float_eq(r, 1);
		reduce_fold(DICOMM_FLOAT32, DICOMM_SUM, &r, backward, 3, 1);
		ck_assert_float_eq(r, 0);
		/* 256 + 1 + 1: each step alone would round back to 256 */
		reduce_fold(DICOMM_BFLOAT16, DICOMM_SUM, &sum, bf16, 3, 1);
		ck_assert_int_eq(sum, 0x4381);
	}
}
END_TEST

/* What a fold of narrow floats ends with: any float32 may come out of it. */
static const dicomm_datatype_t narrow[] = {
	DICOMM_FLOAT16,    DICOMM_BFLOAT16,       DICOMM_FLOAT8E4M3,
	DICOMM_FLOAT8E5M2, DICOMM_FLOAT8E4M3FNUZ, DICOMM_FLOAT8E5M2FNUZ,
};
#define NARROW ((int)(sizeof(narrow) / sizeof(*narrow)))

/* Both signs of x and of the floats next to it */
static size_t add_around(float *in, double x)
{
	float f = (float)x;
	const float near[] = {f, nextafterf(f, INFINITY),
			      nextafterf(f, -INFINITY)};

	for (int i = 0; i < 3; i++) {
		in[2 * i] = near[i];
		in[2 * i + 1] = -near[i];
	}
	return 6;
}

/* Each value of the type, each tie between two, the tie above the largest,
 * and floats of every magnitude */
static size_t add_spots(dicomm_datatype_t type, float *in)
{
	double below = 0, value, step = 0;
	uint32_t bits = 0, code = 0;
	size_t n = 0;

	for (;; code++) {
		value = arithmetic_load(type, &code);
		if (!isfinite(value) || value < 0 ||
		    code >> (8 * type_bytes(type) - 1))
			break;
		n += add_around(in + n, value);
		n += add_around(in + n, (below + value) / 2);
		step = value - below;
		below = value;
	}
	n += add_around(in + n, below + step / 2);
	do
		memcpy(&in[n++], &bits, sizeof(bits));
	while ((bits += 9973) >= 9973);
	for (bits = 0x7f800000; bits < 0x7f800003; bits++)
		memcpy(&in[n++], &bits, sizeof(bits));
	return n;
}

START_TEST(float32_rounds_to_the_nearest_narrow_value)
{
	dicomm_datatype_t type = narrow[_i];
	size_t bytes = type_bytes(type), n, limit = 1u << 20;
	float *in = malloc(limit * sizeof(*in));
	unsigned char *out = malloc(limit * bytes), want[8];

	ck_assert(in && out);
	n = add_spots(type, in);
	ck_assert_uint_le(n, limit);
	for (int isa = 0; next_isa(&isa);) {
		reduce_kernels_usable(isa - 1)->pack[type](out, in, n);
		for (size_t i = 0; i < n; i++) {
			arithmetic_store(type, want, (double)in[i]);
			if (memcmp(out + i * bytes, want, bytes))
				ck_abort_msg("%s %s: %a", reduce_isa(),
					     type_name(type), (double)in[i]);
		}
	}
	free(in);
	free(out);
}
END_TEST

/* Averages and premultiplied sums */

static void check_scale(struct sample *s, const unsigned char *scalar)
{
	scale_fn fn;

	for (size_t i = 0; i < s->n * s->elem; i += s->elem) {
		memcpy(s->b + i, scalar, s->elem);
		arithmetic_expect(s->type, DICOMM_PROD, s->expected + i,
				  s->a + i, s->b + i);
	}
	for (int isa = 0; next_isa(&isa);) {
		unsigned char *in_place = malloc(s->n * s->elem + 1);

		fn = reduce_scale_kernel(s->type);
		ck_assert_ptr_nonnull(in_place);
		memcpy(in_place + 1, s->a, s->n * s->elem);
		fn(in_place + 1, in_place + 1, scalar, s->n);
		check_result(s, DICOMM_PROD, in_place + 1, "scale");
		free(in_place);
	}
}

START_TEST(scaling_multiplies_and_rounds_once)
{
	struct sample s = sample_make(types[_i]);
	unsigned char scalar[8];

	s.n = s.n < 65536 ? s.n : 65536;
	for (size_t i = 0; i < s.n; i++)
		if (s.elem == 1)
			s.a[i] = (unsigned char)i;
	for (size_t i = 0; i < SPECIALS; i++) {
		uint64_t u = special(s.type, i);
		size_t all = s.n;

		s.n = s.elem == 1 ? 256 : i < 2 ? all : 3000;
		memcpy(scalar, &u, sizeof(u));
		check_scale(&s, scalar);
		s.n = all;
	}
	sample_free(&s);
}
END_TEST

START_TEST(dividing_rounds_toward_zero)
{
	static const long divisors[] = {1,
					2,
					3,
					7,
					10,
					127,
					128,
					255,
					256,
					300,
					641,
					65535,
					65537,
					16777217,
					2147483647,
					1l << 31,
					(1l << 53) + 1,
					INT64_MAX};
	struct sample s = sample_make(types[_i]);
	unsigned char *dst = malloc(s.n * s.elem);

	ck_assert_ptr_nonnull(dst);
	s.n = 65536;
	if (s.elem == 1)
		s.n = 256;
	for (size_t i = 0; i < s.n && s.elem == 1; i++)
		s.a[i] = (unsigned char)i;
	for (size_t d = 0; d < sizeof(divisors) / sizeof(*divisors); d++) {
		for (size_t i = 0; i < s.n * s.elem; i += s.elem) {
			__int128 q = arithmetic_integer(s.type, s.a + i) /
				     divisors[d];

			memcpy(s.expected + i, &q, s.elem);
		}
		for (int isa = 0; next_isa(&isa);) {
			memcpy(dst, s.a, s.n * s.elem);
			reduce_divide_kernel(s.type)(dst, dst, divisors[d],
						     s.n);
			check_result(&s, DICOMM_AVG, dst, "divide");
		}
	}
	free(dst);
	sample_free(&s);
}
END_TEST

START_TEST(the_reciprocal_is_the_nearest_value)
{
	for (int ranks = 1; ranks < 3000; ranks++) {
		double f64 = 0;
		float f32 = 0;

		reciprocal_of(DICOMM_FLOAT64, ranks, &f64);
		ck_assert(f64 == 1.0 / ranks);
		for (int t = 0; t < NARROW; t++) {
			reciprocal_of(narrow[t], ranks, &f32);
			ck_assert(f32 == (float)(1.0 / ranks));
		}
	}
}
END_TEST

/* In float32, rounded once: by the definition, and as the divide kernel of
 * devices is compared with. */
static void check_average(struct sample *s, int ranks)
{
	unsigned char *got = malloc(s->n * s->elem);
	double by = s->type == DICOMM_FLOAT64 ? 1.0 / ranks
					      : (double)(float)(1.0 / ranks);
	uint64_t scalar = 0;

	ck_assert_ptr_nonnull(got);
	reciprocal_of(s->type, ranks, &scalar);
	for (size_t i = 0; i < s->n * s->elem; i += s->elem) {
		double x = arithmetic_load(s->type, s->a + i);

		arithmetic_store(s->type, s->expected + i,
				 arithmetic_float(s->type, DICOMM_PROD, x, by));
	}
	for (int isa = 0; next_isa(&isa);) {
		reduce_average_kernel(s->type)(got, s->a, &scalar, s->n);
		check_result(s, DICOMM_AVG, got, "average");
		reduce_divide_kernel(s->type)(got, s->a, ranks, s->n);
		check_result(s, DICOMM_AVG, got, "divide");
	}
	free(got);
}

START_TEST(averages_scale_in_float32_and_round_once)
{
	static const int ranks[] = {1, 2, 3, 7, 10, 13, 100, 1000};
	struct sample s = sample_make(types[_i]);

	s.n = 65536;
	for (size_t i = 0; i < s.n && s.elem == 1; i++)
		s.a[i] = (unsigned char)i;
	for (size_t r = 0; r < sizeof(ranks) / sizeof(*ranks); r++)
		check_average(&s, ranks[r]);
	sample_free(&s);
}
END_TEST

/* Of the largest value, by any number of ranks, one after the other and in one
 * fold: 448, 448, 448 in e4m3 once gave NaN. */
START_TEST(an_average_of_the_largest_value_does_not_overflow)
{
	dicomm_datatype_t type = types[_i];
	unsigned char most[8], part[8], sum[8], fold[8];
	double largest = type == DICOMM_FLOAT64
				 ? 0x1.fffffffffffffp1023
				 : arithmetic_saturate(type, 1e300);
	double eps = ldexp(1, -arithmetic_man_bits(type));
	const void *src[64];
	uint64_t scalar = 0;

	arithmetic_store(type, most, largest);
	for (int isa = 0; next_isa(&isa);)
		for (int n = 2; n <= 64; n++) {
			/* A fold rounds once; of wide types, each time. */
			int folds = type_is_narrow_float(type) ? 2 : n;
			double s, f;

			reciprocal_of(type, n, &scalar);
			reduce_average_kernel(type)(part, most, &scalar, 1);
			memcpy(sum, part, 8);
			for (int r = 1; r < n; r++)
				reduce_kernel(type, DICOMM_AVG, false)(sum, sum,
								       part, 1);
			for (int r = 0; r < n; r++)
				src[r] = part;
			reduce_fold(type, DICOMM_AVG, fold, src, n, 1);
			s = arithmetic_load(type, sum);
			f = arithmetic_load(type, fold);
			ck_assert_msg(isfinite(s) && s <= largest &&
					      s >= largest * (1 - n * eps),
				      "%s %s: %d ranks, one by one: %g",
				      reduce_isa(), type_name(type), n, s);
			ck_assert_msg(isfinite(f) && f <= largest &&
					      f >= largest * (1 - folds * eps),
				      "%s %s: %d ranks, folded: %g",
				      reduce_isa(), type_name(type), n, f);
		}
}
END_TEST

/* The largest number of a type, what is lost when it is added, and the least
 * that is not: as include/dicomm.h says. */
START_TEST(sums_beyond_the_largest_number_are_infinity_or_nan)
{
	static const struct {
		dicomm_datatype_t type;
		uint16_t most, lost, more, beyond;
	} of[] = {{DICOMM_FLOAT8E4M3, 0x7e, 0x58, 0x59, 0x7f},
		  {DICOMM_FLOAT8E5M2, 0x7b, 0x6b, 0x6c, 0x7c},
		  {DICOMM_FLOAT8E4M3FNUZ, 0x7f, 0x57, 0x58, 0x80},
		  {DICOMM_FLOAT8E5M2FNUZ, 0x7f, 0x6f, 0x70, 0x80},
		  {DICOMM_FLOAT16, 0x7bff, 0x4bff, 0x4c00, 0x7c00},
		  {DICOMM_BFLOAT16, 0x7f7f, 0x7aff, 0x7b00, 0x7f80}};

	for (int isa = 0; next_isa(&isa);)
		for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
			dicomm_datatype_t type = of[i].type;
			uint16_t sign = type_bytes(type) == 1 ? 0x80 : 0x8000;
			uint16_t most = of[i].most | sign;
			uint16_t more = of[i].more | sign;
			uint16_t zero = 0, r = 0;
			const void *src[] = {&most, &more, &zero};
			double x;

			reduce_kernel(type, DICOMM_SUM, false)(&r, &of[i].most,
							       &of[i].lost, 1);
			ck_assert_uint_eq(r, of[i].most);
			reduce_kernel(type, DICOMM_SUM, false)(&r, &of[i].most,
							       &of[i].more, 1);
			ck_assert_uint_eq(r, of[i].beyond);
			reduce_fold(type, DICOMM_SUM, &r, src, 3, 1);
			x = arithmetic_load(type, &r);
			ck_assert_msg(type == DICOMM_FLOAT8E5M2 ||
						      type_bytes(type) == 2
					      ? isinf(x) && x < 0
					      : isnan(x),
				      "%s: below the least: %g",
				      type_name(type), x);
		}
}
END_TEST

/* An infinite input is no overflow. */
START_TEST(an_average_with_infinity_is_infinite)
{
	static const struct {
		dicomm_datatype_t type;
		uint64_t inf, one;
	} with[] = {{DICOMM_FLOAT16, 0x7c00, 0x3c00},
		    {DICOMM_BFLOAT16, 0xff80, 0x3f80},
		    {DICOMM_FLOAT8E5M2, 0x7c, 0x3c},
		    {DICOMM_FLOAT32, 0x7f800000, 0x3f800000},
		    {DICOMM_FLOAT64, 0xfff0000000000000, 0x3ff0000000000000}};

	for (int isa = 0; next_isa(&isa);)
		for (int i = 0; i < 5; i++) {
			const void *src[] = {&with[i].one, &with[i].inf,
					     &with[i].one};
			uint64_t r = 0;

			reduce_kernel(with[i].type, DICOMM_AVG,
				      false)(&r, &with[i].inf, &with[i].one, 1);
			ck_assert_uint_eq(r, with[i].inf);
			reduce_fold(with[i].type, DICOMM_AVG, &r, src, 3, 1);
			ck_assert_uint_eq(r, with[i].inf);
		}
}
END_TEST

/* ---- the floating-point state of the calling thread ---- */

#if defined(__x86_64__)
/* Flush to zero and denormals are zero; up; down; toward zero; traps */
static const fp_state states[] = {0x9fc0, 0x5f80, 0x3f80, 0x7f80, 0x1000};
#else
/* The same of FPCR, but traps, which most processors lack */
static const fp_state states[] = {1u << 24, 1u << 22, 2u << 22, 3u << 22,
				  1u << 25};
#endif
#define STATES ((int)(sizeof(states) / sizeof(*states)))

static void compute(const struct sample *s, dicomm_redop_t op,
		    unsigned char *all)
{
	size_t len = s->n * s->elem;
	const void *src[] = {s->a, s->b, s->a};

	reduce_kernel(s->type, op, false)(all, s->a, s->b, s->n);
	reduce_kernel(s->type, op, true)(all + len, s->a, s->b, s->n);
	reduce_scale_kernel(s->type)(all + 2 * len, s->a, s->b, s->n);
	reduce_divide_kernel(s->type)(all + 3 * len, s->a, 7, s->n);
	reduce_fold(s->type, op, all + 4 * len, src, 3, s->n);
	if (type_is_float(s->type)) {
		uint64_t scalar = 0;

		reciprocal_of(s->type, 3, &scalar);
		reduce_average_kernel(s->type)(all + 5 * len, s->a, &scalar,
					       s->n);
	} else {
		memset(all + 5 * len, 0, len);
	}
}

START_TEST(the_state_of_the_caller_does_not_show)
{
	struct sample s = sample_make(types[_i]);
	unsigned char *want, *got;

	s.n = 4096;
	if (s.elem == 1) /* not only zeros in the one operand */
		for (size_t i = 0; i < s.n; i++)
			s.a[i] = (unsigned char)random64();
	want = malloc(6 * s.n * s.elem);
	got = malloc(6 * s.n * s.elem);
	ck_assert(want && got);
	for (int isa = 0; next_isa(&isa);)
		for (int o = 0; o < OPS; o++) {
			if (type_is_float(s.type) && bitwise(ops[o]))
				continue;
			compute(&s, ops[o], want);
			for (int i = 0; i < STATES; i++) {
				fp_state was = fp_state_read(), after;

				fp_state_write(states[i]);
				compute(&s, ops[o], got);
				after = fp_state_read();
				fp_state_write(was);
				ck_assert_uint_eq(after, states[i]);
				if (memcmp(want, got, 6 * s.n * s.elem))
					ck_abort_msg("%s %s %s: state %#lx",
						     reduce_isa(),
						     type_name(s.type),
						     op_name(ops[o]),
						     (unsigned long)states[i]);
			}
		}
	free(want);
	free(got);
	sample_free(&s);
}
END_TEST

START_TEST(a_streamed_copy_copies)
{
	unsigned char *from = room[0], *to = room[1];

	for (size_t i = 0; i < sizeof(room[0]); i++)
		from[i] = (unsigned char)random64();
	for (int isa = 0; next_isa(&isa);)
		for (size_t len = 0; len < 4000; len += 1 + len / 9)
			for (size_t at = 0; at < 64; at += 1 + at / 3) {
				size_t src = at * 5 % 64;

				unsigned char *dst = to + 16 + at;

				memset(to, CANARY, len + 128);
				reduce_copy_stream(dst, from + src, len);
				if (memcmp(dst, from + src, len) ||
				    !is_canary(dst - 16) ||
				    !is_canary(dst + len))
					ck_abort_msg("%s: %zu bytes to %zu",
						     reduce_isa(), len, at);
			}
}
END_TEST

START_TEST(averages_of_integers_are_sums_here)
{
	for (int t = 0; t < 8; t++)
		for (int stream = 0; stream < 2; stream++)
			ck_assert(reduce_kernel(types[t], DICOMM_AVG, stream) ==
				  reduce_kernel(types[t], DICOMM_SUM, stream));
}
END_TEST

/* Complex numbers are pairs of floats, and bools are bytes. */
START_TEST(pairs_are_reduced_as_twice_as_many_floats)
{
	static const dicomm_datatype_t of[][2] = {
		{DICOMM_COMPLEX64, DICOMM_FLOAT32},
		{DICOMM_COMPLEX128, DICOMM_FLOAT64}};
	const double weights[3] = {0.5, -1, 3};
	static unsigned char src[3][16 * LONG], got[16 * LONG], want[16 * LONG];
	const void *from[3] = {src[0], src[1], src[2]};

	for (size_t i = 0; i < 2; i++) {
		dicomm_datatype_t pair = of[i][0], single = of[i][1];
		size_t bytes = LONG * type_bytes(pair);

		for (size_t s = 0; s < 3; s++)
			for (size_t k = 0; k < 16 * LONG; k += 8) {
				uint64_t x = random64();

				memcpy(src[s] + k, &x, 8);
			}
		for (int n = 1; n <= 3; n++) {
			reduce_fold(pair, DICOMM_SUM, got, from, n, LONG);
			reduce_fold(single, DICOMM_SUM, want, from, n,
				    2 * LONG);
			ck_assert_mem_eq(got, want, bytes);
		}
		reduce_weighted(pair, got, from, weights, 3, LONG);
		reduce_weighted(single, want, from, weights, 3, 2 * LONG);
		ck_assert_mem_eq(got, want, bytes);
		for (int stream = 0; stream < 2; stream++) {
			reduce_kernel(pair, DICOMM_AVG, stream)(got, src[0],
								src[1], LONG);
			reduce_kernel(single, DICOMM_AVG,
				      stream)(want, src[0], src[1], 2 * LONG);
			ck_assert_mem_eq(got, want, bytes);
		}
		reduce_divide_kernel(pair)(got, src[0], 3, LONG);
		reduce_divide_kernel(single)(want, src[0], 3, 2 * LONG);
		ck_assert_mem_eq(got, want, bytes);
	}
}
END_TEST

START_TEST(the_best_instruction_set_is_chosen)
{
	int n = 0;

	ck_assert_str_eq(reduce_isa(), reduce_kernels_usable(0)->isa);
	while (reduce_kernels_usable(n))
		n++;
	ck_assert_str_eq(reduce_kernels_usable(n - 1)->isa, "base");
}
END_TEST

/* Without fused multiply-add, and with weights in the type that it computes
 * in: as include/dicomm.h says. */
START_TEST(weighted_sums_round_products_and_sums)
{
	static const double weights[] = {1.0 / 3, -0.7, 1e-3};
	static const dicomm_datatype_t of[] = {DICOMM_FLOAT64, DICOMM_FLOAT32,
					       DICOMM_BFLOAT16,
					       DICOMM_FLOAT8E4M3};

	for (int isa = 0; next_isa(&isa);)
		for (int i = 0; i < 4000; i++) {
			dicomm_datatype_t type = of[i % 4];
			uint64_t in[3] = {0}, want = 0, got = 0;
			const void *src[] = {&in[0], &in[1], &in[2]};
			volatile double sum = 0, product;
			volatile float short_sum = 0, part;

			for (int k = 0; k < 3; k++) {
				double x = (double)(int64_t)random64() / 0x1p63;

				arithmetic_store(type, &in[k], x);
				x = arithmetic_load(type, &in[k]);
				product = weights[k] * x;
				part = (float)weights[k] * (float)x;
				sum = k ? sum + product : product;
				short_sum = k ? short_sum + part : part;
			}
			arithmetic_store(type, &want,
					 type == DICOMM_FLOAT64
						 ? sum
						 : (double)short_sum);
			reduce_weighted(type, &got, src, weights, 3, 1);
			ck_assert_msg(got == want, "%s %s: %#llx, not %#llx",
				      reduce_isa(), type_name(type),
				      (unsigned long long)got,
				      (unsigned long long)want);
		}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reduce");
	TCase *c = tcase_create("reduce");

	tcase_add_checked_fixture(c, setup, NULL);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, pairs_are_reduced_as_twice_as_many_floats);
	tcase_add_test(c, the_best_instruction_set_is_chosen);
	tcase_add_loop_test(c, every_operator_matches_its_definition, 0, TYPES);
	tcase_add_loop_test(c, any_length_at_any_address, 0, TYPES);
	tcase_add_test(c, what_is_not_defined_is_null);
	tcase_add_loop_test(c, a_fold_goes_in_order_and_rounds_once, 0, TYPES);
	tcase_add_test(c, order_and_rounding_of_a_fold_show);
	tcase_add_loop_test(c, float32_rounds_to_the_nearest_narrow_value, 0,
			    NARROW);
	tcase_add_loop_test(c, scaling_multiplies_and_rounds_once, 0, TYPES);
	tcase_add_loop_test(c, dividing_rounds_toward_zero, 0, 8);
	tcase_add_test(c, the_reciprocal_is_the_nearest_value);
	tcase_add_test(c, a_streamed_copy_copies);
	tcase_add_test(c, averages_of_integers_are_sums_here);
	tcase_add_loop_test(c, averages_scale_in_float32_and_round_once, 8,
			    TYPES);
	tcase_add_loop_test(
		c, an_average_of_the_largest_value_does_not_overflow, 8, TYPES);
	tcase_add_test(c, an_average_with_infinity_is_infinite);
	tcase_add_test(c, sums_beyond_the_largest_number_are_infinity_or_nan);
	tcase_add_test(c, weighted_sums_round_products_and_sums);
	tcase_add_loop_test(c, the_state_of_the_caller_does_not_show, 0, TYPES);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return runner_main(suite());
}
