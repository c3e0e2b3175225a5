/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels as NVIDIA's run-time compiler makes PTX of them, executed by an
 * interpreter, against the reducers of the CPU. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/launch/rtc.h"
#include "tests/kernels/ptx.h"
#include "tests/kernels/suite.h"
#include "tests/support/runner.h"
#include "tests/support/job.h"

/* Any */
#define CUDA_MAJOR 99
/* Turing, the oldest for which CUDA 13 compiles */
#define ARCH 75

static struct rtc rtc;
static struct ptx *modules[LAUNCH_MODULES];

/* What drivers take even where they are a little older than the compiler */
START_TEST(binaries_are_for_one_device)
{
	char why[256] = "";
	char *code = rtc_cuda(&rtc, LAUNCH_F32, ARCH, false, why, sizeof(why));

	ck_assert_msg(code, "%s", why);
	ck_assert_mem_eq(code, "\177ELF", 4);
	free(code);
	ck_assert_ptr_null(
		rtc_cuda(&rtc, LAUNCH_F32, 9999, false, why, sizeof(why)));
	ck_assert_msg(strstr(why, "gpu-architecture"), "%s", why);
	ck_assert_int_eq(rtc_newest(&rtc, ARCH), ARCH);
	ck_assert_int_eq(rtc_newest(&rtc, 1), 0);
	ck_assert_int_ge(rtc_newest(&rtc, 9999), ARCH);
}
END_TEST

/* Registers do not spill; loads are of 16 bytes */
static bool is_good(const char *text)
{
	return !strstr(text, ".local") && strstr(text, "ld.global.v4.") &&
	       strstr(text, "st.global.v4.");
}

static bool compile(enum launch_module m)
{
	char why[256];
	char *text = rtc_cuda(&rtc, m, ARCH, true, why, sizeof(why));

	modules[m] = text ? ptx_load(text, why, sizeof(why)) : NULL;
	if (!modules[m])
		printf("%s: %s\n", launch_module_name(m), why);
	else if (!is_good(text))
		printf("%s: slow loads and stores\n", launch_module_name(m));
	else
		why[0] = '\0';
	free(text);
	return !why[0];
}

int main(void)
{
	struct executor e = suite_interpreter(modules);
	char why[256];
	size_t next = 0;
	Suite *s;
	TCase *t;
	int status;

	if (job_is_sanitized()) {
		printf("skipped: a sanitizer slows the interpreter down\n");
		return 77;
	}
	if (!rtc_open_nvrtc(&rtc, CUDA_MAJOR, &next, why, sizeof(why))) {
		printf("skipped: %s\n", why);
		return 77;
	}
	for (int m = 0; m < LAUNCH_MODULES; m++)
		if (!compile((enum launch_module)m))
			return EXIT_FAILURE;
	s = suite_create("nvrtc");
	t = tcase_create("binaries");
	tcase_add_test(t, binaries_are_for_one_device);
	suite_add_tcase(s, t);
	suite_add(s, &e);
	status = runner_main(s);
	for (int m = 0; m < LAUNCH_MODULES; m++)
		ptx_free(modules[m]);
	return status;
}
