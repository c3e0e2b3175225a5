/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of devices, compiled by the C compiler, against the reducers of
 * the CPU; and how a reduction becomes a launch. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "src/accel/launch/launch.h"
#include "src/accel/reduce/kernels.h"
#include "tests/kernels/suite.h"
#include "tests/support/runner.h"
#include "tests/kernels/twin.h"

static bool run(const struct launch *l, uint32_t blocks)
{
	ck_assert_uint_eq(l->args[l->nargs - 1], blocks * LAUNCH_BLOCK);
	return twin_run(l->kernel, l->args, l->nargs);
}

static const dicomm_datatype_t codec_types[] = {
	DICOMM_FLOAT16,    DICOMM_BFLOAT16,       DICOMM_FLOAT8E4M3,
	DICOMM_FLOAT8E5M2, DICOMM_FLOAT8E4M3FNUZ, DICOMM_FLOAT8E5M2FNUZ,
};

/* Every exponent, and every significand near the places where rounding
 * changes; the rest in steps that meet all of their bits */
START_TEST(conversions_agree_with_the_cpu)
{
	const struct reduce_kernels *k = reduce_kernels_usable(0);
	const struct twin_codec *codec = &twin_codecs[_i];
	dicomm_datatype_t type = codec_types[_i];

	for (uint32_t x = 0; x < 65536; x++) {
		float f = codec->decode(type_bytes(type) == 1 ? x & 255 : x);
		float wanted;

		k->unpack[type](&wanted, &x, 1);
		if (memcmp(&f, &wanted, 4) != 0 && !(isnan(f) && isnan(wanted)))
			ck_abort_msg("%s: %#x", codec->name, x);
	}
	for (uint64_t bits = 0; bits < 1ull << 32; bits += 331) {
		for (uint32_t near = 0; near < 2; near++) {
			uint32_t u = (uint32_t)bits, got, wanted = 0;
			float f;

			if (near)
				u = (u & ~0xfffu) + 0x801 -
				    (uint32_t)(bits / 331 % 3);
			memcpy(&f, &u, 4);
			got = codec->encode(f);
			k->pack[type](&wanted, &f, 1);
			if (got != wanted)
				ck_abort_msg("%s: of %#x came %#x, not %#x",
					     codec->name, u, got, wanted);
		}
	}
}
END_TEST

/* A pointer that is only looked at */
static void *at(uintptr_t address)
{
	return (void *)address;
}

static bool folds(int nsrc, uintptr_t distance, uintptr_t last)
{
	const void *src[LAUNCH_SOURCES + 3];
	struct launch l;

	for (int i = 0; i < nsrc; i++)
		src[i] = at((uintptr_t)i * distance);
	src[nsrc - 1] = at(last);
	return launch_fold(&l, DICOMM_INT8, DICOMM_SUM, NULL, src, nsrc, 1);
}

START_TEST(what_no_kernel_does_is_refused)
{
	const dicomm_datatype_t no_type = (dicomm_datatype_t)12;
	struct launch l;

	ck_assert(!launch_reduce(&l, DICOMM_FLOAT16, DICOMM_BAND, NULL, NULL,
				 NULL, 1));
	ck_assert(!launch_reduce(&l, no_type, DICOMM_SUM, NULL, NULL, NULL, 1));
	ck_assert(!launch_reduce(&l, DICOMM_INT8, (dicomm_redop_t)0x100, NULL,
				 NULL, NULL, 1));
	ck_assert(!launch_divide(&l, DICOMM_FLOAT32, NULL, NULL, 0, 1));
	ck_assert(!launch_divide(&l, DICOMM_INT32, NULL, NULL, 0, 1));
	ck_assert(!launch_divide(&l, DICOMM_INT32, NULL, NULL, 1ull << 31, 1));
	ck_assert(!launch_scale(&l, no_type, NULL, NULL, NULL, 0, 1));
	ck_assert(!folds(1, 40, 0));
	/* Up to 8 sources lie anywhere; those beyond, at one distance */
	ck_assert(folds(8, 40, 3));
	ck_assert(folds(9, 40, 320));
	ck_assert(!folds(9, 40, 321));
	ck_assert(folds(11, 40, 400));
	ck_assert(!folds(11, 40, 416));
	ck_assert(!folds(11, 41, 410));
}
END_TEST

START_TEST(a_grid_fits_its_work)
{
	const void *const src[2] = {at(2), at(3)};
	const size_t million = 1u << 20;
	struct launch l;

	ck_assert(launch_reduce(&l, DICOMM_FLOAT32, DICOMM_SUM, at(1), at(2),
				at(3), 1));
	ck_assert_str_eq(l.kernel, "reduce_sum_f32");
	ck_assert_int_eq(l.nargs, 5);
	ck_assert_uint_eq(l.args[1], 2);
	ck_assert_uint_eq(launch_grid(&l, 256, 100), 1);
	ck_assert_uint_eq(l.args[4], 256);
	ck_assert(launch_reduce(&l, DICOMM_FLOAT32, DICOMM_SUM, at(1), at(2),
				at(3), million));
	/* Three rounds of four vectors for each thread, and few to spare */
	ck_assert_uint_eq(launch_grid(&l, 256, 100), 86);
	ck_assert_uint_eq(launch_grid(&l, 256, 1000), 257);
	ck_assert_uint_ge(launch_grid(&l, 256, 1u << 30), 1024);
	/* Bytes, whatever the type */
	ck_assert(launch_reduce(&l, DICOMM_INT64, DICOMM_BXOR, at(1), at(2),
				at(3), 5));
	ck_assert_str_eq(l.kernel, "reduce_bxor");
	ck_assert_uint_eq(l.args[3], 40);
	/* The sign, where it matters */
	ck_assert(launch_fold(&l, DICOMM_INT16, DICOMM_MAX, at(1), src, 2, 5));
	ck_assert_str_eq(l.kernel, "fold_max_i16");
	ck_assert(launch_fold(&l, DICOMM_INT16, DICOMM_AVG, at(1), src, 2, 5));
	ck_assert_str_eq(l.kernel, "fold_sum_u16");
	/* Averages of floats do not overflow: they have kernels of their own */
	ck_assert(launch_fold(&l, DICOMM_FLOAT8E4M3FNUZ, DICOMM_AVG, at(1), src,
			      2, 5));
	ck_assert_str_eq(l.kernel, "fold_avg_e4m3fnuz");
	ck_assert(launch_divide(&l, DICOMM_FLOAT16, at(1), at(2), 3, 5));
	ck_assert_str_eq(l.kernel, "divide_f16");
	ck_assert_uint_eq(l.args[3], 0x3eaaaaab);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("twin");
	TCase *t = tcase_create("launch");
	struct executor e = suite_launcher(run, 4);

	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, conversions_agree_with_the_cpu, 0, 6);
	tcase_add_test(t, what_no_kernel_does_is_refused);
	tcase_add_test(t, a_grid_fits_its_work);
	suite_add_tcase(s, t);
	suite_add(s, &e);
	return runner_main(s);
}
