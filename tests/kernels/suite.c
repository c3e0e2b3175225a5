/* SPDX-License-Identifier: BSD-3-Clause */
/* What every executor of the device kernels must do. */
#include "tests/kernels/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/reduce/reduce.h"
#include "src/base/type.h"
#include "tests/support/element.h"

static const struct executor *tested;

#define CANARY 0x5a
#define MARGIN 32

static const dicomm_redop_t ops[] = {
	DICOMM_SUM, DICOMM_PROD, DICOMM_MAX, DICOMM_MIN,
	DICOMM_AVG, DICOMM_BAND, DICOMM_BOR, DICOMM_BXOR,
};
#define OPS (sizeof(ops) / sizeof(*ops))

/* ---- operands ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t random64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static int significand_bits(dicomm_datatype_t type)
{
	switch (type) {
	case DICOMM_FLOAT16:
		return 10;
	case DICOMM_BFLOAT16:
		return 7;
	case DICOMM_FLOAT32:
		return 23;
	case DICOMM_FLOAT64:
		return 52;
	case DICOMM_FLOAT8E4M3:
	case DICOMM_FLOAT8E4M3FNUZ:
		return 3;
	case DICOMM_FLOAT8E5M2:
	case DICOMM_FLOAT8E5M2FNUZ:
		return 2;
	default:
		return 4 * (int)type_bytes(type);
	}
}

/* Bit patterns near which something happens: zeros, denormals, one, the
 * largest, infinities, NaNs with and without payload, of both signs */
#define SPECIALS 36
static uint64_t special(dicomm_datatype_t type, size_t i)
{
	int bits = 8 * (int)type_bytes(type);
	uint64_t top = 1ull << (bits - 1);
	uint64_t step = 1ull << significand_bits(type);
	uint64_t inf = top - step, one = ((top >> 1) / step - 1) * step;
	const uint64_t magnitude[SPECIALS / 2] = {
		0,        1,       2,          step - 1,       step,
		step + 1, one,     one + 1,    inf - step,     inf - 1,
		inf,      inf + 1, top - 1,    inf + step / 2, one + step,
		3,        inf / 2, one - step,
	};

	return magnitude[i % (SPECIALS / 2)] |
	       (i / (SPECIALS / 2) % 2 ? top : 0);
}

static uint64_t pick(dicomm_datatype_t type)
{
	return random64() % 4 ? random64() : special(type, random64());
}

static void put(dicomm_datatype_t type, unsigned char *at, size_t i,
		uint64_t bits)
{
	memcpy(at + i * type_bytes(type), &bits, type_bytes(type));
}

static void fill(dicomm_datatype_t type, unsigned char *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put(type, at, i, pick(type));
}

/* All pairs of 8-bit values, all 16-bit values with some others; of larger
 * types all pairs of specials and random ones, half of them near each other */
static void fill_pairs(dicomm_datatype_t type, unsigned char *a,
		       unsigned char *b, size_t n)
{
	size_t bytes = type_bytes(type);

	for (size_t i = 0; i < n; i++) {
		uint64_t x = pick(type), y = pick(type);

		if (bytes == 1) {
			x = i;
			y = i >> 8;
		} else if (bytes == 2) {
			x = i;
			y = i >> 16 < 4 ? special(type, i >> 16) : y;
		} else if (i < SPECIALS * SPECIALS) {
			x = special(type, i % SPECIALS);
			y = special(type, i / SPECIALS);
		} else if (i % 2) {
			y = x ^ (y & y >> 8 & 0x00ffffffffffffff);
		}
		put(type, a, i, x);
		put(type, b, i, y);
	}
}

/* ---- buffers ---- */

/* Exactly as long as it may be read, so that the address sanitizer sees what
 * goes beyond; off bytes behind an aligned address. */
struct buffer {
	unsigned char *all, *at;
	size_t bytes;
};

static struct buffer buffer_new(size_t bytes, size_t off, size_t margin)
{
	struct buffer b = {.bytes = bytes};

	b.all = tested->alloc(off + bytes + 2 * margin + 1);
	ck_assert_ptr_nonnull(b.all);
	memset(b.all, CANARY, off + bytes + 2 * margin + 1);
	b.at = b.all + margin + off;
	return b;
}

static void buffer_free(struct buffer *b)
{
	tested->free(b->all);
}

static void expect(const struct buffer *got, const unsigned char *wanted,
		   dicomm_datatype_t type, const char *what, size_t n,
		   const unsigned char *a, const unsigned char *b)
{
	size_t bytes = type_bytes(type);

	/* Not by ck_assert, which writes to a file each time */
	for (int i = 1; i <= MARGIN; i++)
		if (got->at[-i] != CANARY ||
		    got->at[n * bytes + (size_t)i - 1] != CANARY)
			ck_abort_msg("%s %s: %zu elements: wrote beyond the "
				     "result",
				     what, type_name(type), n);
	for (size_t i = 0; i < n; i++) {
		uint64_t x = 0, y = 0, r = 0, w = 0;

		if (!memcmp(got->at + i * bytes, wanted + i * bytes, bytes))
			continue;
		memcpy(&x, a + i * bytes, bytes);
		memcpy(&y, b + i * bytes, bytes);
		memcpy(&r, got->at + i * bytes, bytes);
		memcpy(&w, wanted + i * bytes, bytes);
		ck_abort_msg("%s %s: element %zu of %zu: of %#lx and %#lx "
			     "came %#lx instead of %#lx",
			     what, type_name(type), i, n, (unsigned long)x,
			     (unsigned long)y, (unsigned long)r,
			     (unsigned long)w);
	}
}

/* ---- single operations ---- */

static bool defined(dicomm_datatype_t type, dicomm_redop_t op)
{
	return (!tested->has || tested->has(type)) &&
	       reduce_kernel(type, op, false);
}

/* alias: 1, 2 for dst being an operand */
static void check_reduce(dicomm_datatype_t type, dicomm_redop_t op, size_t n,
			 size_t off_dst, size_t off_a, size_t off_b, int alias)
{
	size_t bytes = n * type_bytes(type);
	struct buffer a = buffer_new(bytes, alias == 1 ? off_dst : off_a,
				     alias == 1 ? MARGIN : 0);
	struct buffer b = buffer_new(bytes, alias == 2 ? off_dst : off_b,
				     alias == 2 ? MARGIN : 0);
	struct buffer own = buffer_new(bytes, off_dst, MARGIN);
	struct buffer *dst = alias == 1 ? &a : alias == 2 ? &b : &own;
	unsigned char *wanted = malloc(bytes + 1);
	unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);

	ck_assert(wanted && x && y);
	if (n >= 65536)
		fill_pairs(type, a.at, b.at, n);
	else
		fill(type, a.at, n), fill(type, b.at, n);
	memcpy(x, a.at, bytes);
	memcpy(y, b.at, bytes);
	reduce_kernel(type, op, false)(wanted, x, y, n);
	ck_assert_msg(tested->reduce(type, op, dst->at, a.at, b.at, n),
		      "%s %s: cannot run", op_name(op), type_name(type));
	expect(dst, wanted, type, op_name(op), n, x, y);
	buffer_free(&a);
	buffer_free(&b);
	buffer_free(&own);
	free(wanted);
	free(x);
	free(y);
}

static void check_fold(dicomm_datatype_t type, dicomm_redop_t op, int nsrc,
		       size_t n, size_t off_dst, size_t off_src, size_t gap,
		       int alias)
{
	enum { LIMIT = 24 };
	size_t bytes = n * type_bytes(type);
	/* One after the other, at a distance that is a multiple of 16 where
	 * there are too many to lie anywhere */
	size_t pitch =
		nsrc > LAUNCH_SOURCES ? (bytes + 31) / 16 * 16 : bytes + gap;
	struct buffer all =
		buffer_new(pitch * ((size_t)nsrc - 1) + bytes, off_src, 0);
	struct buffer own = buffer_new(bytes, off_dst, MARGIN);
	unsigned char *wanted = malloc(bytes + 1);
	const void *src[LIMIT];

	ck_assert(wanted && nsrc <= LIMIT);
	for (int i = 0; i < nsrc; i++) {
		src[i] = all.at + (size_t)i * pitch;
		fill(type, all.at + (size_t)i * pitch, n);
	}
	if (alias) {
		memcpy(own.at, src[nsrc / 2], bytes);
		src[nsrc / 2] = own.at;
	}
	reduce_fold(type, op, wanted, src, nsrc, n);
	ck_assert_msg(tested->fold(type, op, own.at, src, nsrc, n),
		      "fold %s %s: cannot run", op_name(op), type_name(type));
	expect(&own, wanted, type, op_name(op), n, src[0], src[1]);
	buffer_free(&all);
	buffer_free(&own);
	free(wanted);
}

static void check_scalar(dicomm_datatype_t type, bool divide, uint64_t scalar,
			 bool in_memory, size_t n, size_t off_dst, size_t off_a,
			 bool alias)
{
	size_t bytes = n * type_bytes(type);
	struct buffer a =
		buffer_new(bytes, alias ? off_dst : off_a, alias ? MARGIN : 0);
	struct buffer own = buffer_new(bytes, off_dst, MARGIN);
	struct buffer at = buffer_new(type_bytes(type), 3, 0);
	struct buffer *dst = alias ? &a : &own;
	unsigned char *wanted = malloc(bytes + 1), *x = malloc(bytes + 1);
	bool ran;

	ck_assert(wanted && x);
	memcpy(at.at, &scalar, type_bytes(type));
	fill(type, a.at, n);
	memcpy(x, a.at, bytes);
	if (divide) {
		reduce_divide_kernel(type)(wanted, x, (long)scalar, n);
		ran = tested->divide(type, dst->at, a.at, scalar, n);
	} else {
		reduce_scale_kernel(type)(wanted, x, &scalar, n);
		ran = tested->scale(type, dst->at, a.at,
				    in_memory ? at.at : NULL,
				    in_memory ? 0 : scalar, n);
	}
	ck_assert_msg(ran, "%s %s: cannot run", divide ? "divide" : "scale",
		      type_name(type));
	expect(dst, wanted, type, divide ? "divide" : "scale", n, x, x);
	buffer_free(&a);
	buffer_free(&own);
	buffer_free(&at);
	free(wanted);
	free(x);
}

/* ---- the cases ---- */

static const size_t counts[] = {1,  2,  3,  4,  7,   8,   15,  16,   17,  31,
				33, 47, 64, 65, 100, 255, 257, 1000, 4099};
#define COUNTS (sizeof(counts) / sizeof(*counts))

/* Of the destination and two operands: alike, alike by 16 bytes, by elements
 * of 2, 4 and 8 bytes, not even by elements */
static const size_t offsets[][3] = {
	{0, 0, 0}, {8, 8, 8},  {4, 20, 4},   {1, 1, 1}, {0, 8, 0},
	{0, 0, 4}, {0, 2, 12}, {8, 12, 6},   {0, 1, 0}, {0, 3, 5},
	{2, 7, 9}, {3, 0, 15}, {15, 14, 13},
};
#define OFFSETS (sizeof(offsets) / sizeof(*offsets))

START_TEST(all_operands)
{
	dicomm_datatype_t type = element_types[_i];

	for (size_t o = 0; o < OPS; o++)
		if (defined(type, ops[o]))
			check_reduce(type, ops[o], 65536 * tested->rows, 0, 0,
				     0, 0);
}
END_TEST

START_TEST(any_count_and_alignment)
{
	dicomm_datatype_t type = element_types[_i];

	for (size_t o = 0; o < OPS; o++)
		for (size_t c = 0; c < COUNTS && defined(type, ops[o]); c++)
			for (size_t k = 0; k < OFFSETS; k++)
				check_reduce(type, ops[o], counts[c],
					     offsets[k][0], offsets[k][1],
					     offsets[k][2], (int)(c + k) % 3);
}
END_TEST

START_TEST(folds_in_order_and_rounds_once)
{
	dicomm_datatype_t type = element_types[_i];
	const int nsrcs[] = {2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17};

	for (size_t o = 0; o < OPS; o++)
		for (size_t s = 0; s < sizeof(nsrcs) / sizeof(*nsrcs); s++) {
			int nsrc = nsrcs[s];

			if (!defined(type, ops[o]))
				break;
			check_fold(type, ops[o], nsrc, 3001, 0, 0, 0, 0);
			check_fold(type, ops[o], nsrc, 77, 4, 4, 16,
				   nsrc <= LAUNCH_SOURCES);
			check_fold(type, ops[o], nsrc, 78, 8, 1, 3, 0);
			check_fold(type, ops[o], nsrc, 9, 1, 2, 0, 0);
		}
}
END_TEST

START_TEST(scales)
{
	dicomm_datatype_t type = element_types[_i];

	for (size_t i = 0; i < SPECIALS + 8 && defined(type, DICOMM_SUM); i++) {
		uint64_t scalar = i < SPECIALS ? special(type, i) : random64();

		check_scalar(type, false, scalar, i % 2, 3000 + i, 0, 0, false);
		check_scalar(type, false, scalar, i % 3 == 0, 60 + i, i % 16,
			     i % 5, i % 2);
	}
}
END_TEST

START_TEST(divides)
{
	dicomm_datatype_t type = element_types[_i];
	const uint64_t divisors[] = {
		1,   2,    3,     7,     10,    127,   128,     255,
		256, 1000, 32767, 32768, 65535, 65536, 1000003, 0x7fffffff};

	if (!defined(type, DICOMM_SUM))
		return;
	for (size_t i = 0; i < sizeof(divisors) / sizeof(*divisors); i++) {
		check_scalar(type, true, divisors[i], false, 4000, 0, 0, false);
		check_scalar(type, true, divisors[i], false, 61, i, 2 * i % 16,
			     i % 2);
	}
}
END_TEST

START_TEST(no_elements)
{
	dicomm_datatype_t type = element_types[_i];

	if (defined(type, DICOMM_SUM))
		check_reduce(type, DICOMM_SUM, 0, 0, 0, 0, 0);
}
END_TEST

/* ---- launches ---- */

static bool (*launcher)(const struct launch *l, uint32_t blocks);

/* Few enough that threads have several vectors to do */
#define MAX_BLOCKS 3

static bool start(struct launch *l)
{
	uint32_t blocks = launch_grid(l, LAUNCH_BLOCK, MAX_BLOCKS);

	return launcher(l, blocks);
}

static bool run_reduce(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		       const void *a, const void *b, size_t n)
{
	struct launch l;

	return launch_reduce(&l, type, op, dst, a, b, n) && start(&l);
}

static bool run_fold(dicomm_datatype_t type, dicomm_redop_t op, void *dst,
		     const void *const *src, int nsrc, size_t n)
{
	struct launch l;

	return launch_fold(&l, type, op, dst, src, nsrc, n) && start(&l);
}

static bool run_scale(dicomm_datatype_t type, void *dst, const void *a,
		      const void *scalar_at, uint64_t scalar, size_t n)
{
	struct launch l;

	return launch_scale(&l, type, dst, a, scalar_at, scalar, n) &&
	       start(&l);
}

static bool run_divide(dicomm_datatype_t type, void *dst, const void *a,
		       uint64_t divisor, size_t n)
{
	struct launch l;

	return launch_divide(&l, type, dst, a, divisor, n) && start(&l);
}

static void *plain_alloc(size_t bytes)
{
	void *p;

	return posix_memalign(&p, 64, bytes) ? NULL : p;
}

struct executor suite_launcher(bool (*run)(const struct launch *l,
					   uint32_t blocks),
			       size_t rows)
{
	launcher = run;
	return (struct executor){
		.alloc = plain_alloc,
		.free = free,
		.reduce = run_reduce,
		.fold = run_fold,
		.scale = run_scale,
		.divide = run_divide,
		.rows = rows,
	};
}

static struct ptx *const *interpreted;

static bool interpret(const struct launch *l, uint32_t blocks)
{
	char why[256];

	if (ptx_run(interpreted[l->module], l->kernel, l->args, l->nargs,
		    blocks, LAUNCH_BLOCK, NULL, why, sizeof(why)))
		return true;
	printf("%s\n", why);
	return false;
}

struct executor suite_interpreter(struct ptx *const *modules)
{
	interpreted = modules;
	return suite_launcher(interpret, 1);
}

void suite_add(Suite *s, const struct executor *e)
{
	TCase *t = tcase_create("kernels");

	tested = e;
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, all_operands, 0, element_ntypes);
	tcase_add_loop_test(t, any_count_and_alignment, 0, element_ntypes);
	tcase_add_loop_test(t, folds_in_order_and_rounds_once, 0,
			    element_ntypes);
	tcase_add_loop_test(t, scales, 0, element_ntypes);
	tcase_add_loop_test(t, divides, 0, element_ntypes);
	tcase_add_loop_test(t, no_elements, 0, element_ntypes);
	suite_add_tcase(s, t);
}
