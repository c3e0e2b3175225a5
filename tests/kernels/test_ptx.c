/* SPDX-License-Identifier: BSD-3-Clause */
/* The PTX that is shipped, executed by an interpreter, against the reducers of
 * the CPU; and that the interpreter refuses what it does not know. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/image.h"
#include "tests/kernels/ptx.h"
#include "tests/kernels/suite.h"
#include "tests/support/runner.h"

static struct ptx *modules[LAUNCH_MODULES];

/* Loaded by drivers from CUDA 10.0 on, for devices from Pascal on */
START_TEST(old_drivers_load_it)
{
	for (int m = 0; m < LAUNCH_MODULES; m++) {
		ck_assert_str_eq(ptx_version(modules[m]), "6.3");
		ck_assert_str_eq(ptx_target(modules[m]), "sm_60");
	}
}
END_TEST

/* ---- the interpreter itself ---- */

#define HEAD                                              \
	".version 6.3\n.target sm_60\n.address_size 64\n" \
	".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{\n"

static struct ptx *load(const char *body, char *why, size_t len)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s%s}\n", HEAD, body);
	return ptx_load(text, why, len);
}

static const struct {
	const char *body, *why;
} refused[] = {
	{"vote.all.pred %p1, %p2;\nret;\n", "vote.all.pred"},
	{"add.f32 %f1, %f2, %f3;\nret;\n", "add.f32"},
	{"add.rn.ftz.f32 %f1, %f2, %f3;\nret;\n", "add.rn.ftz.f32"},
	{"fma.rn.f32 %f1, %f2, %f3, %f4;\nret;\n", "fma.rn.f32"},
	{"ld.shared.u32 %r1, [%rd1];\nret;\n", "ld.shared.u32"},
	{"ld.global.u32 %r1, %rd1;\nret;\n", "no address"},
	{"ld.param.u64 %rd1, [k_param_2];\nret;\n", "k_param_2"},
	{"add.s32 %r1, %r2;\nret;\n", "3 operands wanted"},
	{"add.s32 %r1, %r2, %r3, %r4;\nret;\n", "too many"},
	{"add.s32 %r1, %r2, 3x;\nret;\n", "3x"},
	{"add.s32 3, %r2, %r1;\nret;\n", "no register"},
	{"cvt.rn.f32.f64 %f1, %fd1;\nret;\n", "cvt.rn.f32.f64"},
	{"cvt.f32.u32 %f1, %r1;\nret;\n", "cvt.f32.u32"},
	{"bra NOWHERE;\nret;\n", "NOWHERE"},
	{".shared .b32 x;\nret;\n", ".shared"},
	{"add.s32 %r1, %r2, %r3;\n", "ret"},
};

START_TEST(what_it_does_not_know_is_refused)
{
	char why[256] = "";

	ck_assert_msg(!load(refused[_i].body, why, sizeof(why)), "%s",
		      refused[_i].body);
	ck_assert_msg(strstr(why, refused[_i].why), "%s", why);
}
END_TEST

/* Give the second argument to an instruction, and store what comes of it. */
static const struct {
	const char *insn;
	uint64_t arg, result;
} computed[] = {
	{"bfe.u32 %r2, %r1, 4, 8;", 0xabcdef12, 0xf1},
	{"bfe.s32 %r2, %r1, 4, 4;", 0x80, 0xfffffff8},
	{"bfe.s32 %r2, %r1, 28, 8;", 0x80000000, 0xfffffff8},
	{"bfi.b32 %r2, %r1, 0xffff0000, 4, 8;", 0xabc, 0xffff0bc0},
	{"bfi.b64 %r2, %r1, 7, 32, 32;", 0x9abcdef01, 0xabcdef0100000007},
	{"bfi.b32 %r2, %r1, 7, 32, 1;", 1, 7},
	{"prmt.b32 %r2, %r1, 0x55667788, 0x0437;", 0x11223344, 0x44881155},
	{"prmt.b32 %r2, %r1, 0, 0x89ab;", 0x80017f00, 0x0000ff},
	{"shl.b32 %r2, %r1, 32;", 1, 0},
	{"shr.s32 %r2, %r1, 40;", 0x80000000, 0xffffffff},
	{"shr.u32 %r2, %r1, 31;", 0x80000000, 1},
	{"neg.s32 %r2, %r1;", 1, 0xffffffff},
	{"not.b32 %r2, %r1;", 1, 0xfffffffe},
	{"mul.wide.s32 %r2, %r1, -2;", 0xffffffff, 2},
	{"mul.wide.u32 %r2, %r1, 2;", 0xffffffff, 0x1fffffffe},
	{"div.s32 %r2, %r1, 2;", 0xfffffffd, 0xffffffff},
	{"div.u32 %r2, %r1, 2;", 0xfffffffd, 0x7ffffffe},
	{"cvt.s64.s32 %r2, %r1;", 0x80000000, 0xffffffff80000000},
	{"cvt.u64.u32 %r2, %r1;", 0xf80000000, 0x80000000},
	{"cvt.rn.f32.u32 %r2, %r1;", 0x1000001, 0x4b800000},
	{"cvt.f32.f16 %r2, %r1;", 0x8001, 0xb3800000},
	{"cvt.f32.f16 %r2, %r1;", 0xfc00, 0xff800000},
	{"cvt.rn.f16.f32 %r2, %r1;", 0x477ff000, 0x7c00},
	{"cvt.rn.f16.f32 %r2, %r1;", 0x33000000, 0},
	{"cvt.rn.f16.f32 %r2, %r1;", 0x33000001, 1},
	{"cvt.rn.f16.f32 %r2, %r1;", 0xffc00001, 0x7fff},
	{"add.rn.f32 %r2, %r1, 0f3F800000;", 0x3f800000, 0x40000000},
	{"mul.rn.f64 %r2, %r1, 0d4000000000000000;", 0x3ff0000000000000,
	 0x4000000000000000},
	{"min.s32 %r2, %r1, 1;", 0xffffffff, 0xffffffff},
	{"min.u32 %r2, %r1, 1;", 0xffffffff, 1},
	{"max.s64 %r2, %r1, 1;", ~0ull, 1},
	{"setp.lt.s32 %p1, %r1, 0;\nselp.b32 %r2, 7, 8, %p1;", 1u << 31, 7},
	{"setp.lt.u32 %p1, %r1, 0;\nselp.b32 %r2, 7, 8, %p1;", 1u << 31, 8},
	{"setp.lt.f32 %p1, %r1, %r1;\nselp.b32 %r2, 7, 8, %p1;", 0x7fc00000, 8},
	{"mov.b32 {%r3, %r2}, %r1;", 0xabcd1234, 0xabcd},
	{"mov.b32 %r2, {%r1, 2};", 0xabcd1234, 0x21234},
	{"mov.u32 %r2, 5;\nsetp.eq.s32 %p1, %r1, 3;\n@!%p1 bra L;\n"
	 "mov.u32 %r2, 6;\nL:",
	 3, 6},
	{"mov.u32 %r2, 5;\nsetp.eq.s32 %p1, %r1, 3;\n@!%p1 bra L;\n"
	 "mov.u32 %r2, 6;\nL:",
	 4, 5},
	{"ld.param.u32 %r2, [k_param_1];", 0x123456789, 0x23456789},
	{"mov.u32 %r2, %tid.x; // a comment; with a semicolon", 0, 0},
};

START_TEST(it_computes_as_the_manual_says)
{
	char body[512], why[256] = "";
	uint64_t result = 0,
		 args[2] = {(uint64_t)(uintptr_t)&result, computed[_i].arg};
	struct ptx *p;

	snprintf(body, sizeof(body),
		 "ld.param.u64 %%rd1, [k_param_0];\n"
		 "ld.param.u64 %%r1, [k_param_1];\n%s\n"
		 "st.global.u64 [%%rd1+0], %%r2;\nret;\n",
		 computed[_i].insn);
	p = load(body, why, sizeof(why));
	ck_assert_msg(p, "%s: %s", computed[_i].insn, why);
	ck_assert_msg(ptx_run(p, "k", args, 2, 1, 1, NULL, why, sizeof(why)),
		      "%s", why);
	ck_assert_msg(result == computed[_i].result, "%s: %#lx",
		      computed[_i].insn, (unsigned long)result);
	ptx_free(p);
}
END_TEST

START_TEST(bad_accesses_and_endless_loops_fail)
{
	const struct {
		const char *body, *why;
		uint64_t at;
	} cases[] = {
		{"ld.param.u64 %rd1, [k_param_0];\n"
		 "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];\nret;\n",
		 "16 bytes", 8},
		{"ld.param.u64 %rd1, [k_param_0];\n"
		 "st.global.u8 [%rd1], %rd1;\nret;\n",
		 "1 bytes", 0},
		{"L:\nbra.uni L;\nret;\n", "does not end", 0},
		{"ld.param.u64 %rd1, [k_param_1];\n"
		 "div.u64 %rd2, %rd1, 0;\nret;\n",
		 "division", 0},
	};
	char why[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ptx *p = load(cases[i].body, why, sizeof(why));
		uint64_t args[2] = {cases[i].at, 1};

		ck_assert_ptr_nonnull(p);
		ck_assert(!ptx_run(p, "k", args, 2, 1, 1, NULL, why,
				   sizeof(why)));
		ck_assert_msg(strstr(why, cases[i].why), "%s", why);
		ck_assert(!ptx_run(p, "no", args, 2, 1, 1, NULL, why,
				   sizeof(why)));
		ck_assert(!ptx_run(p, "k", args, 3, 1, 1, NULL, why,
				   sizeof(why)));
		ptx_free(p);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ptx");
	TCase *t = tcase_create("interpreter");
	struct executor e = suite_interpreter(modules);
	int status;

	for (int m = 0; m < LAUNCH_MODULES; m++) {
		const char *name = launch_module_name((enum launch_module)m);
		char image_name[32], why[256];
		const struct image *image;

		snprintf(image_name, sizeof(image_name), "ptx_%s", name);
		image = image_find(image_name);
		if (!image) {
			printf("skipped: this build has no PTX\n");
			return 77;
		}
		modules[m] =
			ptx_load((const char *)image->data, why, sizeof(why));
		if (!modules[m]) {
			printf("%s: %s\n", image_name, why);
			return EXIT_FAILURE;
		}
	}
	tcase_set_timeout(t, 60);
	tcase_add_test(t, old_drivers_load_it);
	tcase_add_loop_test(t, what_it_does_not_know_is_refused, 0,
			    sizeof(refused) / sizeof(*refused));
	tcase_add_loop_test(t, it_computes_as_the_manual_says, 0,
			    sizeof(computed) / sizeof(*computed));
	tcase_add_test(t, bad_accesses_and_endless_loops_fail);
	suite_add_tcase(s, t);
	suite_add(s, &e);
	status = runner_main(s);
	for (int m = 0; m < LAUNCH_MODULES; m++)
		ptx_free(modules[m]);
	return status;
}
