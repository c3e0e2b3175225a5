/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of a buffer become the runs that wires hold. */
#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/core/block_runs.h"
#include "src/core/comm.h"
#include "tests/support/runner.h"

#define MANY ((size_t)64 << 20)

/* Of blocks of bytes, as an alltoallv sends or receives them */
static struct block_runs runs_of(const uint8_t *base, int ranks,
				 const size_t *counts, const size_t *displs,
				 enum plan_buffer buffer)
{
	struct call call = {.function = COLL_ALLTOALLV,
			    .type = DICOMM_UINT8,
			    .root = -1,
			    .send = base,
			    .recv = (void *)(uintptr_t)base,
			    .send_counts = counts,
			    .send_displs = displs,
			    .recv_counts = counts,
			    .recv_displs = displs};
	struct block_runs runs;

	ck_assert(block_runs_apply(&call, buffer));
	ck_assert_int_eq(block_runs_find(&call, 0, ranks, buffer, &runs),
			 DICOMM_SUCCESS);
	return runs;
}

static void check_run(const struct block_runs *runs, size_t i,
		      const uint8_t *at, size_t len)
{
	ck_assert_uint_lt(i, runs->n);
	ck_assert_uint_eq(runs->run[i].at, (uintptr_t)at);
	ck_assert_uint_eq(runs->run[i].len, len);
	ck_assert_uint_eq(runs->run[i].handles.transports, 0);
}

static uint8_t *map(size_t bytes)
{
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

/* Only such a kernel says whether pages between blocks are there. */
static bool kernel_tells(void)
{
	uint8_t *at = map(1);
	bool tells = !madvise(at, 1, 22 /* MADV_POPULATE_READ */);

	munmap(at, 1);
	return tells;
}

START_TEST(blocks_are_sorted_and_those_near_each_other_are_one_run)
{
	uint8_t *at = map(MANY);
	const size_t counts[] = {100, 200, 300, 50};
	const size_t displs[] = {MANY - 100, 1000, 1200, 40};

	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		struct block_runs runs = runs_of(at, 4, counts, displs, b);

		ck_assert_uint_eq(runs.n, 2);
		check_run(&runs, 0, at + 40, 1460);
		check_run(&runs, 1, at + MANY - 100, 100);
		block_runs_free(&runs);
		ck_assert_ptr_null(runs.run);
		ck_assert_uint_eq(runs.n, 0);
	}
	munmap(at, MANY);
}
END_TEST

START_TEST(empty_blocks_touch_nothing)
{
	const size_t displs[] = {0, SIZE_MAX, 7};
	const size_t none[] = {0, 0, 0}, one[] = {0, 0, 1};
	uint8_t here[8];
	struct block_runs runs = runs_of(NULL, 3, none, displs, PLAN_RECV);

	ck_assert_uint_eq(runs.n, 0);
	block_runs_free(&runs);
	runs = runs_of(here, 3, one, displs, PLAN_RECV);
	ck_assert_uint_eq(runs.n, 1);
	check_run(&runs, 0, here + 7, 1);
	block_runs_free(&runs);
}
END_TEST

/* The second one ends in the first, the third begins where that ends. */
START_TEST(blocks_that_are_sent_may_overlap)
{
	uint8_t *at = map(MANY);
	const size_t counts[] = {1000, 10, 1000, 1000};
	const size_t displs[] = {0, 500, 999, 0};
	struct block_runs runs = runs_of(at, 4, counts, displs, PLAN_SEND);

	ck_assert_uint_eq(runs.n, 1);
	check_run(&runs, 0, at, 1999);
	block_runs_free(&runs);
	munmap(at, MANY);
}
END_TEST

/* Two blocks with some pages between them, of which one may be touched so. */
static size_t runs_around(int protection, enum plan_buffer buffer)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t counts[] = {100, 100}, displs[] = {3 * page + 10, 0};
	uint8_t *at = map(4 * page);
	struct block_runs runs;
	size_t n;

	ck_assert_int_eq(mprotect(at + page, page, protection), 0);
	runs = runs_of(at, 2, counts, displs, buffer);
	n = runs.n;
	if (n == 1)
		check_run(&runs, 0, at, 3 * page + 110);
	block_runs_free(&runs);
	munmap(at, 4 * page);
	return n;
}

START_TEST(what_may_not_be_touched_between_blocks_is_in_no_run)
{
	size_t one = kernel_tells() ? 1 : 2;

	for (enum plan_buffer b = PLAN_SEND; b <= PLAN_RECV; b++) {
		ck_assert_uint_eq(runs_around(PROT_READ | PROT_WRITE, b), one);
		ck_assert_uint_eq(runs_around(PROT_NONE, b), 2);
	}
	ck_assert_uint_eq(runs_around(PROT_READ, PLAN_SEND), one);
	ck_assert_uint_eq(runs_around(PROT_READ, PLAN_RECV), 2);
}
END_TEST

/* Pages of which blocks have bytes are there. */
START_TEST(neighbouring_pages_need_not_be_asked_for)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t counts[] = {1, 1}, displs[] = {0, 2 * page - 1};
	uint8_t *at = map(2 * page);
	struct block_runs runs = runs_of(at, 2, counts, displs, PLAN_RECV);

	ck_assert_uint_eq(runs.n, 1);
	check_run(&runs, 0, at, 2 * page);
	block_runs_free(&runs);
	munmap(at, 2 * page);
}
END_TEST

/* ---- a wire that counts what it holds, and fails in time ---- */

static int holds, fails_at;

static dicomm_result_t hold(struct tp_device *dev, const void *addr,
			    uint64_t len, bool written, struct tp_mem **out)
{
	(void)dev;
	ck_assert_uint_eq(len, 1);
	ck_assert(written);
	if (holds == fails_at)
		return FAIL(DICOMM_ERR_SYSTEM, "hold %d fails", holds);
	*out = (struct tp_mem *)(uintptr_t)addr;
	holds++;
	return DICOMM_SUCCESS;
}

static void drop(struct tp_device *dev, struct tp_mem *held)
{
	(void)dev;
	ck_assert_ptr_nonnull(held);
	holds--;
}

static const struct transport counting = {.mem_reg = hold, .mem_dereg = drop};

START_TEST(all_runs_are_held_or_none)
{
	const size_t counts[] = {1, 1, 1}, displs[] = {MANY, 0, MANY / 2};
	struct dicomm_comm *comm = calloc(1, sizeof(*comm));
	uint8_t *at = map(MANY + 1);
	const struct call call = {.function = COLL_ALLTOALLV,
				  .type = DICOMM_UINT8,
				  .recv = at,
				  .recv_counts = counts,
				  .recv_displs = displs};

	ck_assert_ptr_nonnull(comm);
	comm->ranks = 3;
	comm->transports[0].transport = &counting;
	comm->transports[0].device = (struct tp_device *)at;
	for (fails_at = 0; fails_at <= 3; fails_at++) {
		struct block_runs runs = {NULL, 0};
		dicomm_result_t status =
			block_runs_register(comm, &call, PLAN_RECV, &runs);

		ck_assert_int_eq(status, fails_at < 3 ? DICOMM_ERR_SYSTEM
						      : DICOMM_SUCCESS);
		ck_assert_int_eq(holds, fails_at < 3 ? 0 : 3);
		block_runs_deregister(comm, &runs);
		ck_assert_int_eq(holds, 0);
		ck_assert_ptr_null(runs.run);
	}
	munmap(at, MANY + 1);
	free(comm);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("runs");
	TCase *tcase = tcase_create("runs");

	tcase_add_test(tcase,
		       blocks_are_sorted_and_those_near_each_other_are_one_run);
	tcase_add_test(tcase, empty_blocks_touch_nothing);
	tcase_add_test(tcase, blocks_that_are_sent_may_overlap);
	tcase_add_test(tcase,
		       what_may_not_be_touched_between_blocks_is_in_no_run);
	tcase_add_test(tcase, neighbouring_pages_need_not_be_asked_for);
	tcase_add_test(tcase, all_runs_are_held_or_none);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
