/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory is given back while an adapter takes its time with other memory, no
 * stream becomes held, and what no wire carries is not registered. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "src/device/device.h"
#include "src/device/user_buffer.h"
#include "src/memory/blocked_streams.h"
#include "tests/support/runner.h"

#define BYTES ((size_t)64 << 10) /* worth to be registered */

static char first[BYTES], other[BYTES];
static _Atomic bool asked, may_answer, freed, holds;
static _Atomic int drops;

/* ---- a device, and a wire that takes its memory ---- */

static dicomm_result_t allocation(const void *ptr, struct accel_allocation *a)
{
	bool is_first = ptr == first;

	*a = (struct accel_allocation){.id = is_first ? 1 : 2,
				       .base = is_first ? first : other,
				       .bytes = BYTES};
	return DICOMM_SUCCESS;
}

static bool held(int index)
{
	(void)index;
	return false;
}

static dicomm_result_t hold_device(struct tp_device *dev,
				   const struct tp_region *region,
				   struct tp_mem **out, char *how, size_t len)
{
	(void)dev;
	(void)region;
	(void)len;
	*how = '\0';
	*out = (struct tp_mem *)first;
	atomic_store(&asked, true);
	while (!atomic_load(&may_answer))
		usleep(1000);
	return DICOMM_SUCCESS;
}

static void drop(struct tp_device *dev, struct tp_mem *hold)
{
	(void)dev;
	(void)hold;
	atomic_fetch_add(&drops, 1);
}

static const struct accel_work work = {.allocation = allocation, .held = held};
static dicomm_result_t free_it(void *at)
{
	(void)at;
	return DICOMM_SUCCESS;
}

static const struct accel device = {.free = free_it, .work = &work};
static const struct transport transport = {
	.name = "slow", .mem_reg_device = hold_device, .mem_dereg = drop};

/* ---- who registers, and who frees ---- */

static struct dicomm_comm comm;
static struct device dev = {.work = &work};
static struct peer peers[2];

/* Of two ranks, with a wire between them that reaches their devices. */
static void begin(void)
{
	peers[1].by_reference = true;
	comm.ranks = 2;
	comm.peers = peers;
	comm.dev = &dev;
	comm.transports[0].transport = &transport;
	atomic_store(&comm.transports[0].device, (struct tp_device *)first);
	ck_assert_int_eq(user_buffer_open(&comm), DICOMM_SUCCESS);
	ck_assert_int_eq(user_buffer_allocated(&device, 0, first, BYTES),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(user_buffer_allocated(&device, 0, other, BYTES),
			 DICOMM_SUCCESS);
}

static void *announce(void *arg)
{
	struct user_buffer *g = NULL;

	ck_assert_int_eq(user_buffer_add(&comm, first, BYTES, &g),
			 DICOMM_SUCCESS);
	return arg;
}

static void *give_back(void *at)
{
	ck_assert_int_eq(user_buffer_free(at), DICOMM_SUCCESS);
	atomic_store(&freed, true);
	return NULL;
}

static void *hold_stream(void *arg)
{
	streams_block_begin();
	atomic_store(&holds, true);
	streams_block_end();
	return arg;
}

START_TEST(only_streams_and_the_memory_that_is_asked_about_wait)
{
	pthread_t announces, frees, calls;

	begin();
	pthread_create(&announces, NULL, announce, NULL);
	while (!atomic_load(&asked))
		usleep(1000);
	ck_assert_int_eq(user_buffer_free(other), DICOMM_SUCCESS);
	ck_assert_int_eq(user_buffer_free(other), DICOMM_ERR_INVALID_ARGUMENT);
	pthread_create(&frees, NULL, give_back, first);
	pthread_create(&calls, NULL, hold_stream, NULL);
	usleep(50000);
	ck_assert(!atomic_load(&freed));
	ck_assert(!atomic_load(&holds));
	atomic_store(&may_answer, true);
	pthread_join(announces, NULL);
	pthread_join(frees, NULL);
	pthread_join(calls, NULL);
	ck_assert_int_eq(atomic_load(&drops), 1);
	user_buffer_close(&comm);
	ck_assert_int_eq(atomic_load(&drops), 1);
}
END_TEST

/* To register memory takes time, and room in what a NIC reaches. */
START_TEST(what_only_this_rank_uses_is_not_registered)
{
	struct call call = {.function = CALL_REDUCE_LOCAL,
			    .type = DICOMM_INT8,
			    .count = BYTES,
			    .send = first,
			    .recv = other};

	begin();
	atomic_store(&may_answer, true);
	user_buffer_find(&comm, &call);
	ck_assert(!atomic_load(&asked) && !call.transports[0] &&
		  !call.transports[1]);
	call.function = COLL_ALLREDUCE;
	user_buffer_find(&comm, &call);
	ck_assert(atomic_load(&asked) && call.transports[0] &&
		  call.transports[1]);
	user_buffer_close(&comm);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("given");
	TCase *t = tcase_create("given");

	tcase_set_timeout(t, 20);
	tcase_add_test(t, only_streams_and_the_memory_that_is_asked_about_wait);
	tcase_add_test(t, what_only_this_rank_uses_is_not_registered);
	suite_add_tcase(s, t);
	return runner_main(s);
}
