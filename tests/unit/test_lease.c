// SPDX-License-Identifier: BSD-3-Clause
/* Memory of a device that stays for those who have a lease on it. */
#include <check.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/memory/blocked_streams.h"
#include "src/memory/lease.h"
#include "tests/support/runner.h"

static _Atomic int frees;
static pid_t forked; /* in the middle of it; -1: do not */

static _Atomic bool held; /* a stream */

static bool is_held(int index)
{
	(void)index;
	return held;
}

static dicomm_result_t free_it(void *memory)
{
	(void)memory;
	frees++;
	if (forked)
		return DICOMM_SUCCESS;
	forked = fork();
	if (!forked) {
		alarm(5);
		deferred_sweep();
		_exit(frees == 1 ? 0 : 1);
	}
	return DICOMM_SUCCESS;
}

/* There is room for one allocation, until the first is freed. */
static dicomm_result_t alloc(int index, size_t bytes, void **ptr)
{
	(void)index;
	(void)bytes;
	if (!frees)
		return FAIL(DICOMM_ERR_NO_MEMORY, "device: no memory");
	*ptr = &held;
	return DICOMM_SUCCESS;
}

static const struct accel_work work = {.held = is_held};
static const struct accel device = {
	.name = "device", .alloc = alloc, .free = free_it, .work = &work};

/* A process that has the lease until the descriptor is closed */
static pid_t neighbour(const struct lease_place *place, int *keep)
{
	int taken, up[2], down[2];
	char c = 0;
	pid_t pid;

	ck_assert(!pipe(up) && !pipe(down));
	pid = fork();
	if (!pid) {
		close(down[1]);
		if (lease_take(place, &taken) || write(up[1], &c, 1) != 1)
			_exit(1);
		_exit((int)read(down[0], &c, 1));
	}
	ck_assert_int_eq(read(up[0], &c, 1), 1);
	close(up[0]);
	close(up[1]);
	close(down[0]);
	*keep = down[1];
	return pid;
}

static void await(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "status %#x", (unsigned)status);
}

/* Memory of which a process has the lease that is still there */
static void end_late(int *keep, pid_t *pid)
{
	struct lease_place place;
	struct lease *l;
	int memory;

	ck_assert(!lease_begin(&device, 0, &memory, &l));
	lease_tell(l, &place);
	*pid = neighbour(&place, keep);
	ck_assert(!lease_end(l, 2000));
	ck_assert_int_eq(frees, 0);
}

START_TEST(memory_stays_for_who_has_a_lease)
{
	pid_t pid;
	int keep;

	forked = -1;
	end_late(&keep, &pid);
	deferred_sweep();
	ck_assert_int_eq(frees, 0);
	close(keep);
	await(pid);
	deferred_sweep();
	ck_assert_int_eq(frees, 1);
}
END_TEST

START_TEST(a_child_of_a_fork_in_the_middle_goes_on)
{
	pid_t pid;
	int keep;

	end_late(&keep, &pid);
	close(keep);
	await(pid);
	deferred_sweep();
	ck_assert_int_eq(frees, 1);
	await(forked);
}
END_TEST

/* A driver could wait for that stream. */
START_TEST(nothing_is_freed_while_a_stream_is_held)
{
	struct lease *l;
	int memory[2];

	forked = -1;
	held = true;
	ck_assert(!lease_begin(&device, 0, &memory[0], &l));
	ck_assert(lease_end(l, 0));
	lease_free(&device, 0, &memory[1]);
	deferred_sweep();
	ck_assert_int_eq(frees, 0);
	held = false;
	for (int ms = 0; ms < 5000 && frees < 2; ms++)
		usleep(1000);
	ck_assert_int_eq(frees, 2);
	/* What is of its user asks nothing of the driver. */
	held = true;
	ck_assert(!lease_begin(&device, 0, NULL, &l));
	ck_assert(lease_end(l, 0));
	ck_assert_int_eq(frees, 2);
}
END_TEST

static void *let_go(void *arg)
{
	usleep(100000);
	held = false;
	return arg;
}

START_TEST(who_lacks_memory_waits_for_what_is_to_be_freed)
{
	static struct dicomm_comm comm = {
		.magic = COMM_MAGIC, .accel = &device, .state = COMM_READY};
	pthread_t thread;
	void *memory;
	int first;

	forked = -1;
	ck_assert_int_eq(dicomm_comm_mem_alloc(&comm, &memory, 1),
			 DICOMM_ERR_NO_MEMORY);
	held = true;
	lease_free(&device, 0, &first);
	pthread_create(&thread, NULL, let_go, NULL);
	ck_assert_int_eq(dicomm_comm_mem_alloc(&comm, &memory, 1),
			 DICOMM_SUCCESS);
	ck_assert_int_eq(frees, 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(dicomm_mem_free(memory), DICOMM_SUCCESS);
	ck_assert_int_eq(frees, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease");
	TCase *tcase = tcase_create("lease");

	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, memory_stays_for_who_has_a_lease);
	tcase_add_test(tcase, a_child_of_a_fork_in_the_middle_goes_on);
	tcase_add_test(tcase, nothing_is_freed_while_a_stream_is_held);
	tcase_add_test(tcase, who_lacks_memory_waits_for_what_is_to_be_freed);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
