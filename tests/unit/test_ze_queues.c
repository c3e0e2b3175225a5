/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of Level Zero with few queues for all lists, on a mock driver, which
 * says nothing about a GPU. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/accel/ze/api.h"
#include "src/base/log.h"
#include "tests/support/runner.h"

extern const struct accel accel_ze;

/* In a process of its own, for a driver starts once. The driver */
static void *load(const char *queues)
{
	const char *top = getenv("top_builddir");
	char path[4096];
	void *lib;

	setenv("MOCK_QUEUES", queues, 1);
	snprintf(path, sizeof(path), "%s/tests/mock/libze.so", top ? top : ".");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(lib != NULL, "%s", dlerror());
	return lib;
}

#define FUNCTION(type, name, symbol, ...)     \
	type(*name) __VA_ARGS__;              \
	*(void **)&name = dlsym(lib, symbol); \
	ck_assert_ptr_nonnull(*(void **)&name)

/* A command list of a user, on that queue of device 0 */
static ze_command_list list_on(void *lib, uint32_t queue)
{
	ze_queue_desc desc = {.type = ZE_QUEUE_DESC,
			      .ordinal = 1,
			      .index = queue,
			      .mode = ZE_MODE_ASYNCHRONOUS};
	ze_context_desc of = {.type = ZE_CONTEXT_DESC};
	ze_context context = NULL;
	ze_driver driver = NULL;
	ze_device device[8];
	ze_command_list list = NULL;
	uint32_t n = 1;

	FUNCTION(ze_result, drivers, "zeDriverGet", (uint32_t *, ze_driver *));
	FUNCTION(ze_result, devices, "zeDeviceGet",
		 (ze_driver, uint32_t *, ze_device *));
	FUNCTION(ze_result, make_context, "zeContextCreate",
		 (ze_driver, const ze_context_desc *, ze_context *));
	FUNCTION(ze_result, make_list, "zeCommandListCreateImmediate",
		 (ze_context, ze_device, const ze_queue_desc *,
		  ze_command_list *));
	ck_assert_uint_eq(drivers(&n, &driver), ZE_SUCCESS);
	n = sizeof(device) / sizeof(*device);
	ck_assert_uint_eq(devices(driver, &n, device), ZE_SUCCESS);
	ck_assert_uint_eq(make_context(driver, &of, &context), ZE_SUCCESS);
	ck_assert_uint_eq(make_list(context, device[0], &desc, &list),
			  ZE_SUCCESS);
	return list;
}

#define OK(call) ck_assert_int_eq(call, DICOMM_SUCCESS)

START_TEST(ours_go_on_on_a_queue_of_their_own)
{
	const struct accel_work *work = accel_ze.work;
	struct accel_stream *users, *ours;
	struct accel_event *event;
	struct accel_stream_wait *stream_wait;
	int tries = 0;

	load("2");
	OK(work->open(0, NULL, &users));
	OK(work->open_beside(users, &ours));
	OK(work->stream_wait_create(0, &stream_wait));
	OK(work->event_create(0, &event));
	OK(work->stream_wait_queue(stream_wait, users));
	OK(work->event_record(event, ours));
	while (work->event_query(event) == DICOMM_AGAIN && tries++ < 5000)
		usleep(1000);
	OK(work->event_query(event));
	work->stream_wait_release(stream_wait);
	work->event_destroy(event);
	work->stream_wait_destroy(stream_wait);
	work->close(ours);
	work->close(users);
}
END_TEST

/* It would wait for what waits for it. */
START_TEST(a_list_on_the_queue_of_ours_is_refused)
{
	void *lib = load("2");
	struct accel_stream *users, *more;

	OK(accel_ze.work->open(0, NULL, &users));
	OK(accel_ze.work->open(0, list_on(lib, 0), &more));
	accel_ze.work->close(more);
	ck_assert_int_ne(accel_ze.work->open(0, list_on(lib, 1), &more),
			 DICOMM_SUCCESS);
	accel_ze.work->close(users);
}
END_TEST

/* It would hang sooner or later. */
START_TEST(a_device_with_one_queue_is_refused)
{
	void *p = NULL;

	load("1");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(accel_ze.alloc(0, 64, &p),
				 DICOMM_ERR_UNSUPPORTED);
		ck_assert_ptr_nonnull(
			strstr(log_last_error(), "holds up all others"));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ze queues");
	TCase *t = tcase_create("ze queues");

	tcase_set_timeout(t, 100);
	tcase_add_test(t, ours_go_on_on_a_queue_of_their_own);
	tcase_add_test(t, a_list_on_the_queue_of_ours_is_refused);
	tcase_add_test(t, a_device_with_one_queue_is_refused);
	suite_add_tcase(s, t);
	return runner_main(s);
}
