/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes inputs with known results, and counts wrong elements. */
#include <math.h>
#include <string.h>

#include "perftest/operation/verify.h"

/* The finalizer of splitmix64, over words that identify an element. */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t z = a * 0x9e3779b97f4a7c15ull + b * 0xd1342543de82ef95ull +
		     c * 0xaf251af3b0f025b5ull + 0x632be59bd9b4e019ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

int verify_scalar(int rank)
{
	return rank % 2 + 1;
}

/* One element of a pattern. What a rank contributes is a function of these
 * fields. */
struct slot {
	const struct type *type;
	enum reduction op;
	uint64_t seed, index;
	int ranks;
};

static uint64_t slot_random(const struct slot *s, uint64_t salt)
{
	return mix(s->seed, s->index, salt);
}

/* Returns a random rank. It multiplies, since a division would cost more than
 * everything else here. */
static int slot_rank(const struct slot *s, uint64_t salt)
{
	return (int)((slot_random(s, salt) >> 32) * (uint64_t)s->ranks >> 32);
}

/* Distributes `units` units to random ranks. Returns how many this rank
 * gets. */
static int units_of(const struct slot *s, int rank, int64_t units,
		    uint64_t salt)
{
	int got = 0;

	for (int64_t u = 0; u < units; u++)
		if (slot_rank(s, salt + (uint64_t)u) == rank)
			got++;
	return got;
}

/*
 * Returns an integer for each rank such that the magnitudes of all add up to at
 * most `limit`. If that leaves room for every rank, each has its own random
 * integer; otherwise the limit is distributed in units.
 */
static int64_t bounded(const struct slot *s, int rank, int64_t limit,
		       bool negative)
{
	int64_t each = limit / s->ranks;
	uint64_t draw = slot_random(s, (uint64_t)rank);

	if (each == 0)
		return units_of(s, rank, limit, 1000);
	if (negative)
		return (int64_t)(draw % (uint64_t)(2 * each + 1)) - each;
	return (int64_t)(draw % (uint64_t)(each + 1));
}

/* --- integers: all arithmetic wraps ----------------------------------------
 */

static uint64_t integer_mask(const struct type *t)
{
	return t->bytes == 8 ? ~0ull : (1ull << (8 * t->bytes)) - 1;
}

static uint64_t integer_input(const struct slot *s, int rank)
{
	uint64_t draw = slot_random(s, (uint64_t)rank);
	uint64_t common = slot_random(s, UINT64_C(1) << 44);
	int one = slot_rank(s, UINT64_C(1) << 45);
	uint64_t top = integer_mask(s->type) >> (s->type->is_signed ? 1 : 0);

	switch (s->op) {
	case REDUCTION_PROD:
		/* An even factor would soon make the product zero. */
		return draw | 1;
	case REDUCTION_AVG:
		/* The sum must not wrap, because the average would be
		 * undefined. */
		if (top > INT64_MAX / 2)
			top = INT64_MAX / 2;
		return (uint64_t)bounded(s, rank, (int64_t)top,
					 s->type->is_signed);
	case REDUCTION_BAND:
		/* One rank makes the result `common`. It is a different rank
		 * for each slot. With random bits of all ranks, nothing would
		 * be left. */
		return rank == one ? common : common | draw;
	case REDUCTION_BOR:
		return rank == one ? common : common & draw;
	default:
		return draw;
	}
}

static int64_t integer_signed(const struct type *t, uint64_t v)
{
	uint64_t sign = 1ull << (8 * t->bytes - 1);

	return (int64_t)(((v & integer_mask(t)) ^ sign) - sign);
}

static bool integer_less(const struct type *t, uint64_t a, uint64_t b)
{
	if (t->is_signed)
		return integer_signed(t, a) < integer_signed(t, b);
	return (a & integer_mask(t)) < (b & integer_mask(t));
}

static uint64_t integer_fold(const struct slot *s, uint64_t a, uint64_t b)
{
	switch (s->op) {
	case REDUCTION_PROD:
		return a * b;
	case REDUCTION_MAX:
		return integer_less(s->type, a, b) ? b : a;
	case REDUCTION_MIN:
		return integer_less(s->type, a, b) ? a : b;
	case REDUCTION_BAND:
		return a & b;
	case REDUCTION_BOR:
		return a | b;
	case REDUCTION_BXOR:
		return a ^ b;
	default:
		return a + b;
	}
}

static uint64_t integer_output(const struct slot *s)
{
	uint64_t all = 0;

	for (int r = 0; r < s->ranks; r++) {
		uint64_t x = integer_input(s, r);

		if (s->op == REDUCTION_MULSUM)
			x *= (uint64_t)verify_scalar(r);
		all = r == 0 ? x : integer_fold(s, all, x);
	}
	if (s->op == REDUCTION_AVG && s->type->is_signed)
		all = (uint64_t)(integer_signed(s->type, all) / s->ranks);
	else if (s->op == REDUCTION_AVG)
		all = (all & integer_mask(s->type)) / (uint64_t)s->ranks;
	return all & integer_mask(s->type);
}

/* --- floats ----------------------------------------------------------------
 */

/* Returns 2^-2 ... 2^2, the same for all ranks. Integers times this stay
 * exact. */
static double float_scale(const struct slot *s)
{
	return ldexp(1, (int)(slot_random(s, 1ull << 40) % 5) - 2);
}

/* Returns a limit such that sums of integers up to it are exact, however they
 * are grouped. */
static int64_t float_limit(const struct slot *s)
{
	int64_t limit = INT64_C(1) << type_precision(s->type);

	return s->op == REDUCTION_MULSUM ? limit / 2 : limit;
}

/* Returns true if the average is exact: the number of ranks is a power of two,
 * and the quotients are not below the smallest number. */
static bool average_is_exact(int ranks)
{
	return (ranks & (ranks - 1)) == 0 && ranks <= 64;
}

/*
 * If the average is rounded: in every other slot only one rank contributes, so
 * that the bound is tight. In the others all ranks contribute, and no inputs
 * cancel each other.
 */
static bool average_has_one(const struct slot *s)
{
	return s->index % 2 == 1;
}

static double average_input(const struct slot *s, int rank)
{
	int64_t limit = float_limit(s);
	uint64_t draw = slot_random(s, (uint64_t)rank);
	double x;

	if (average_has_one(s) && slot_rank(s, 1ull << 41) != rank)
		return 0;
	x = (double)(limit / 2 + (int64_t)(draw % (uint64_t)(limit / 2)));
	return x * float_scale(s);
}

static double product_input(const struct slot *s, int rank)
{
	uint64_t draw = slot_random(s, 1ull << 42);
	int exponent = units_of(s, rank, 3, 2000) - units_of(s, rank, 3, 3000);
	double x = ldexp(1, exponent);

	/* One rank has a full mantissa, which the others only shift. */
	if (slot_rank(s, 1ull << 46) == rank)
		x *= 1 + ldexp((double)(draw >> 12 &
					((1ull << s->type->mantissa_bits) - 1)),
			       -s->type->mantissa_bits);
	return slot_random(s, (uint64_t)rank) & 1 ? -x : x;
}

static double extreme_input(const struct slot *s, int rank)
{
	int64_t limit = float_limit(s) - 1;
	uint64_t draw = slot_random(s, (uint64_t)rank);

	return (double)((int64_t)(draw % (uint64_t)(2 * limit + 1)) - limit) *
	       float_scale(s);
}

static double float_input(const struct slot *s, int rank)
{
	switch (s->op) {
	case REDUCTION_PROD:
		return product_input(s, rank);
	case REDUCTION_MAX:
	case REDUCTION_MIN:
		return extreme_input(s, rank);
	case REDUCTION_AVG:
		if (!average_is_exact(s->ranks))
			return average_input(s, rank);
		/* fall through */
	default:
		return (double)bounded(s, rank, float_limit(s), true) *
		       float_scale(s);
	}
}

static double float_fold(enum reduction op, double a, double b)
{
	switch (op) {
	case REDUCTION_PROD:
		return a * b;
	case REDUCTION_MAX:
		return a < b ? b : a;
	case REDUCTION_MIN:
		return b < a ? b : a;
	default:
		return a + b;
	}
}

static double float_output(const struct slot *s)
{
	double all = 0;

	for (int r = 0; r < s->ranks; r++) {
		double x = float_input(s, r);

		if (s->op == REDUCTION_MULSUM)
			x *= verify_scalar(r);
		all = r == 0 ? x : float_fold(s->op, all, x);
	}
	return s->op == REDUCTION_AVG ? all / s->ranks : all;
}

/*
 * Each of N inputs is scaled and rounded, and each of N - 1 partial sums is
 * rounded, each by at most half a unit in the last place of a number no larger
 * than the result. Half as much again covers the products of these errors. With
 * one contributor, only its scaling is rounded.
 */
static double average_tolerance(const struct slot *s, double result)
{
	double unit = ldexp(1, -type_precision(s->type));
	double smallest = type_smallest(s->type);

	if (average_has_one(s))
		return 3 * unit * fabs(result) + smallest;
	return 1.5 * (s->ranks + 2) * unit * result + s->ranks * smallest;
}

/* --- patterns ---------------------------------------------------------------
 */

static void pattern_set(struct verify_pattern *p, size_t i, uint64_t bits)
{
	type_store(p->type, p->bits, i, bits);
	type_store(p->type, p->bits, i + VERIFY_PERIOD, bits);
}

void verify_data(struct verify_pattern *p, const struct type *t, uint64_t seed)
{
	p->type = t;
	p->exact = true;
	for (size_t i = 0; i < VERIFY_PERIOD; i++)
		pattern_set(p, i, mix(seed, i, 1ull << 43));
}

void verify_input(struct verify_pattern *p, const struct type *t,
		  enum reduction r, uint64_t seed, int rank, int ranks)
{
	struct slot s = {.type = t, .op = r, .seed = seed, .ranks = ranks};

	p->type = t;
	p->exact = true;
	for (size_t i = 0; i < VERIFY_PERIOD; i++) {
		s.index = i;
		pattern_set(p, i,
			    t->is_float ? type_encode(t, float_input(&s, rank))
					: integer_input(&s, rank));
	}
}

void verify_output(struct verify_pattern *p, const struct type *t,
		   enum reduction r, uint64_t seed, int ranks)
{
	struct slot s = {.type = t, .op = r, .seed = seed, .ranks = ranks};

	p->type = t;
	p->exact =
		!t->is_float || r != REDUCTION_AVG || average_is_exact(ranks);
	for (size_t i = 0; i < VERIFY_PERIOD; i++) {
		double result;

		s.index = i;
		if (!t->is_float) {
			pattern_set(p, i, integer_output(&s));
			continue;
		}
		result = float_output(&s);
		pattern_set(p, i, type_encode(t, result));
		if (!p->exact)
			p->tolerance[i] = average_tolerance(&s, result);
	}
}

/*
 * Returns where in the table element `at` of a buffer is. *run becomes the
 * number of elements from there on that are contiguous in the doubled table.
 */
static size_t pattern_find(size_t at, size_t *run)
{
	size_t phase =
		(size_t)((uint64_t)(at / VERIFY_PERIOD) * 389 % VERIFY_PERIOD);

	*run = VERIFY_PERIOD - at % VERIFY_PERIOD;
	return phase + at % VERIFY_PERIOD;
}

void verify_fill(const struct verify_pattern *p, void *at, size_t base,
		 size_t count)
{
	const char *table = (const char *)p->bits;
	size_t bytes = p->type->bytes;
	size_t run;

	for (size_t i = 0; i < count; i += run) {
		size_t slot = pattern_find(base + i, &run);

		if (run > count - i)
			run = count - i;
		memcpy((char *)at + i * bytes, table + slot * bytes,
		       run * bytes);
	}
}

static bool element_is_wrong(const struct verify_pattern *p, const void *at,
			     size_t i, size_t slot)
{
	uint64_t got = type_load(p->type, at, i);
	uint64_t want = type_load(p->type, p->bits, slot);
	double off;

	if (got == want)
		return false;
	if (p->exact)
		return true;
	off = fabs(type_decode(p->type, got) - type_decode(p->type, want));
	/* Not "off >", so that a NaN counts as wrong. */
	return !(off <= p->tolerance[slot % VERIFY_PERIOD]);
}

size_t verify_wrong(const struct verify_pattern *p, const void *at, size_t base,
		    size_t count)
{
	const char *table = (const char *)p->bits;
	size_t bytes = p->type->bytes;
	size_t wrong = 0;
	size_t run;

	for (size_t i = 0; i < count; i += run) {
		size_t slot = pattern_find(base + i, &run);

		if (run > count - i)
			run = count - i;
		if (memcmp((const char *)at + i * bytes, table + slot * bytes,
			   run * bytes) == 0)
			continue;
		for (size_t k = 0; k < run; k++)
			if (element_is_wrong(p, at, i + k, slot + k))
				wrong++;
	}
	return wrong;
}
