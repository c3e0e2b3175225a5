// SPDX-License-Identifier: BSD-3-Clause
/*
 * NICs that lose their link, or go, in the middle of an operation. A rank that
 * has another goes on, and all data is right; one that has none ends with an
 * error, everywhere. Runs in the virtual machines of tests/vm/run only.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"
#include "tests/support/vm.h"

#define RANKS 2
/* How many of them there are. */
#define DEVICES 4
#define ONLY_VERBS "DICOMM_TRANSPORTS=verbs"
/* The control plane must not depend on the cable that is cut. */
#define BY_LO "DICOMM_SOCKET_IFNAME=lo"
/* A NIC tries for 4.096 us * 2^TIMEOUT * (RETRY_CNT + 1): a second and a half;
 * with 7, rxe never gives up. */
#define TIMEOUT "DICOMM_IB_TIMEOUT=16"
#define RETRIES "DICOMM_IB_RETRY_CNT=4"
#define BOUND_S 30.0

static struct vm vm;

/* The cable of a device, or the device itself. */
#define NETWORK "192.168.77"
#define CABLE(i) "ip link set port" #i " down"
#define DEVICE(i) "ip link set net" #i " down"

/* Then all is as it was. */
static void mend_all(void)
{
	static const char mend[] =
		"for i in 0 1 2 3; do ip link set port$i up && "
		"ip link set net$i up && "
		"ip route replace " NETWORK ".0/24 dev net$i src " NETWORK
		".$((i + 1)) table $((100 + i)) || exit; "
		"for o in 0 1 2 3 4 5 6 7 8; do [ $o = $i ] || "
		"ip neighbour replace " NETWORK ".$((o + 1)) "
		"lladdr 02:00:00:00:00:0$o nud permanent dev net$i || exit; "
		"done; done";

	ck_assert_msg(!system(mend), "%s: failed", mend);
}

struct board {
	_Atomic int working;
	_Atomic bool done;
};

/* What is cut: at first, and so many milliseconds later. */
struct cutting {
	const char *first, *second;
	int later_ms;
	const char *timeout, *retries;
};

static void cut(const char *command)
{
	if (system(command))
		job_fail("%s: failed", command);
}

static void cut_cables(const void *arg)
{
	const struct cutting *c = arg;
	struct board *board = job_board();
	double end = job_seconds() + 60;

	while (atomic_load(&board->working) < RANKS && job_seconds() < end)
		job_sleep_ms(1);
	job_sleep_ms(150);
	cut(c->first);
	if (c->second) {
		job_sleep_ms(c->later_ms);
		cut(c->second);
	}
	atomic_store(&board->done, true);
}

static dicomm_result_t large_allreduce(struct job_rank *me, unsigned seed)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT32,
			  .op = DICOMM_SUM,
			  .count = 1 << 20,
			  .seed = seed};
	dicomm_result_t status;

	trial_fill(&t, me);
	status = trial_call(&t, NULL);
	if (status == DICOMM_SUCCESS)
		trial_check(&t);
	trial_free(&t);
	return status;
}

/* --- errors -----------------------------------------------------------------
 */

/* Names who, and by what. */
static void check_words(const struct job_rank *me, dicomm_result_t status)
{
	const char *text = dicomm_get_last_error(me->comm);

	JOB_CHECK(status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_SYSTEM,
		  "status %d: %s", (int)status, text);
	JOB_CHECK(strstr(text, "rank "), "\"%s\" names no rank", text);
	/* Who saw it itself, tells all of it. */
	if (!strncmp(text, "verbs ", 6))
		JOB_CHECK(strstr(text, vm.kind) && strstr(text, "gid") &&
				  strstr(text, "queue pair") &&
				  strstr(text, "link"),
			  "\"%s\" does not tell all", text);
}

static void work_until_the_cut(struct job_rank *me)
{
	struct board *board = job_board();
	dicomm_result_t status = DICOMM_SUCCESS;
	double begin = 0;

	JOB_TRY(large_allreduce(me, 0));
	atomic_fetch_add(&board->working, 1);
	for (unsigned i = 1; status == DICOMM_SUCCESS; i++) {
		if (atomic_load(&board->done) && begin == 0)
			begin = job_seconds();
		JOB_CHECK(begin == 0 || job_seconds() < begin + BOUND_S,
			  "still at work %.0f s after the cut", BOUND_S);
		job_doing("all-reduce %u", i);
		status = large_allreduce(me, i);
	}
	JOB_CHECK(atomic_load(&board->done) || status == DICOMM_ERR_REMOTE,
		  "before the cut: %s", dicomm_get_last_error(me->comm));
	check_words(me, status);
}

static void work_afterwards(struct job_rank *me)
{
	trial_run_some(me, 0);
}

static void try_cut(const struct cutting *c, const char *nics,
		    void (*work)(struct job_rank *me), void (*mend)(void))
{
	struct job job = {.run = work,
			  .disturb = cut_cables,
			  .arg = c,
			  .ranks = RANKS,
			  .env = {ONLY_VERBS, BY_LO, nics, c->timeout,
				  c->retries, "DICOMM_DEBUG=none"},
			  .timeout_s = 100};
	char text[2000] = "";
	bool good = job_try(&job, text, sizeof(text));

	mend();
	ck_assert_msg(good, "%s: %s", c->first, text);
	job.run = work_afterwards;
	job.disturb = NULL;
	job_run(&job);
}

static void run_cut(const struct cutting *c, const char *nics,
		    void (*work)(struct job_rank *me))
{
	try_cut(c, nics, work, mend_all);
}

/* Rank 0 is on rxe0, rank 1 on rxe1. */
static const struct cutting cuttings[] = {
	{CABLE(1), NULL, 0, TIMEOUT, RETRIES},
	{DEVICE(1), NULL, 0, TIMEOUT, RETRIES},
	{CABLE(1), NULL, 0, "DICOMM_IB_TIMEOUT=14", "DICOMM_IB_RETRY_CNT=7"},
};

START_TEST(a_cut_cable_is_an_error_on_every_rank)
{
	run_cut(&cuttings[_i], "DICOMM_IB_NICS=1", work_until_the_cut);
}
END_TEST

/* --- two NICs ---------------------------------------------------------------
 */

/* Rank 0 is on rxe0 and rxe1, rank 1 on rxe2 and rxe3. */
#define TWO "DICOMM_IB_NICS=2"

/* Until the cut has been felt, and some more; some channels are made only
 * then. */
static void work_beyond_the_cut(struct job_rank *me)
{
	struct board *board = job_board();
	unsigned after = 0;

	JOB_TRY(large_allreduce(me, 0));
	atomic_fetch_add(&board->working, 1);
	for (unsigned i = 1; after < 3; i++) {
		int32_t done = atomic_load(&board->done), all;

		job_doing("all-reduce %u", i);
		JOB_TRY(large_allreduce(me, i));
		if (after)
			/* Each message that is lost, or comes twice, shows. */
			trial_run_some(me, 10 * i);
		JOB_TRY(dicomm_allreduce(&done, &all, 1, DICOMM_INT32,
					 DICOMM_MIN, me->comm, NULL));
		after += all != 0;
	}
}

static const struct cutting survived[] = {
	{DEVICE(1), NULL, 0, TIMEOUT, RETRIES},
	{CABLE(3), NULL, 0, TIMEOUT, RETRIES},
};

START_TEST(the_loss_of_one_of_two_nics_is_survived)
{
	run_cut(&survived[_i], TWO, work_beyond_the_cut);
}
END_TEST

/* Few enough to go before any is received, over both NICs. */
#define FEW 4

static void send_few(dicomm_comm_t comm, int to, int32_t first)
{
	for (int32_t i = first; i < first + FEW; i++)
		JOB_TRY(dicomm_send(&i, 1, DICOMM_INT32, to, comm, NULL));
}

static void recv_few(dicomm_comm_t comm, int from, int32_t first)
{
	for (int32_t i = first, got; i < first + FEW; i++) {
		JOB_TRY(dicomm_recv(&got, 1, DICOMM_INT32, from, comm, NULL));
		JOB_CHECK(got == i, "%d, not %d", (int)got, (int)i);
	}
}

/* After the cut rank 0 has sent, as far as it knows, and waits for rank 1 on
 * another communicator; where rank 1 comes once it has all, which only rank 0
 * can send again. */
static void work_elsewhere(struct job_rank *me)
{
	struct board *board = job_board();
	dicomm_comm_t other;

	JOB_TRY(dicomm_comm_split(me->comm, 0, me->rank, &other, NULL));
	for (int32_t first = 0; first <= 100; first += 100) {
		if (me->rank == 0) {
			send_few(me->comm, 1, first);
			recv_few(other, 1, first);
		} else {
			recv_few(me->comm, 0, first);
			send_few(other, 0, first);
		}
		atomic_fetch_add(&board->working, 1);
		while (!atomic_load(&board->done))
			job_sleep_ms(1);
	}
	JOB_TRY(dicomm_comm_destroy(other));
}

START_TEST(who_waits_elsewhere_sends_again_what_was_lost)
{
	setenv("DICOMM_TIMEOUT_MS", "30000", 1);
	run_cut(&survived[0], TWO, work_elsewhere);
}
END_TEST

/* Over iWARP, a channel ends with the first of its connections. */
START_TEST(the_loss_of_one_of_two_nics_is_an_error_on_every_rank)
{
	run_cut(&survived[_i], TWO, work_until_the_cut);
}
END_TEST

/* The second one goes at once, and while what was lost is sent again. */
static const struct cutting fatal[] = {
	{DEVICE(1), DEVICE(0), 0, TIMEOUT, RETRIES},
	{CABLE(3), DEVICE(0), 1500, TIMEOUT, RETRIES},
};

START_TEST(the_loss_of_the_second_nic_is_an_error_on_every_rank)
{
	run_cut(&fatal[_i], TWO, work_until_the_cut);
}
END_TEST

/* --- taken out --------------------------------------------------------------
 */

/* The interface goes for good, and its RDMA device once nobody uses it; who
 * removes them waits for that. The last tests, for neither comes back. */
#define REMOVE(i) "ip link del net" #i " &"

/* Over iWARP both see no more than the end of a connection, of which it is rank
 * 1's NIC that has gone. */
static void work_until_a_nic_goes(struct job_rank *me)
{
	const char *text;

	work_until_the_cut(me);
	text = dicomm_get_last_error(me->comm);
	JOB_CHECK(!vm.iwarp || strstr(text, "siw1"), "\"%s\" names another",
		  text);
}

static const struct {
	struct cutting cutting;
	const char *nics;
	void (*work)(struct job_rank *me);
} removals[] = {
	{{REMOVE(3), NULL, 0, TIMEOUT, RETRIES}, TWO, work_beyond_the_cut},
	{{REMOVE(1), NULL, 0, TIMEOUT, RETRIES},
	 "DICOMM_IB_NICS=1",
	 work_until_a_nic_goes},
};

/* All who used it have let it go. */
static void await_removal(void)
{
	static const char gone[] =
		"for i in $(seq 100); do pgrep -x ip >/dev/null || exit 0; "
		"sleep 0.1; done; exit 1";

	ck_assert_msg(!system(gone), "the NIC is still in use");
}

START_TEST(a_nic_is_taken_out)
{
	try_cut(&removals[_i].cutting, removals[_i].nics, removals[_i].work,
		await_removal);
}
END_TEST

/* ----------------------------------------------------------------------------
 */

static void add_iwarp_tests(Suite *suite)
{
	TCase *test_case = tcase_create("iWARP cuts");

	tcase_set_timeout(test_case, 60);
	tcase_add_loop_test(test_case, a_cut_cable_is_an_error_on_every_rank, 0,
			    1);
	tcase_add_loop_test(
		test_case,
		the_loss_of_one_of_two_nics_is_an_error_on_every_rank, 1, 2);
	tcase_add_loop_test(test_case, a_nic_is_taken_out, 1, 2);
	suite_add_tcase(suite, test_case);
}

static void add_tests(Suite *suite)
{
	TCase *test_case = tcase_create("cuts"), *last = tcase_create("gone");

	tcase_set_timeout(test_case, 60);
	tcase_add_loop_test(test_case, a_cut_cable_is_an_error_on_every_rank, 0,
			    sizeof(cuttings) / sizeof(*cuttings));
	tcase_add_loop_test(test_case, the_loss_of_one_of_two_nics_is_survived,
			    0, sizeof(survived) / sizeof(*survived));
	tcase_add_test(test_case,
		       who_waits_elsewhere_sends_again_what_was_lost);
	tcase_add_loop_test(
		test_case, the_loss_of_the_second_nic_is_an_error_on_every_rank,
		0, sizeof(fatal) / sizeof(*fatal));
	suite_add_tcase(suite, test_case);
	tcase_set_timeout(last, 60);
	tcase_add_loop_test(last, a_nic_is_taken_out, 0,
			    sizeof(removals) / sizeof(*removals));
	suite_add_tcase(suite, last);
}

int main(void)
{
	Suite *suite = suite_create("cuts");

	if (!vm_find(&vm))
		return 77;
	if (vm.devices != DEVICES) {
		printf("skipped: the virtual machine has not %d devices\n",
		       DEVICES);
		return 77;
	}
	(vm.iwarp ? add_iwarp_tests : add_tests)(suite);
	return runner_main(suite);
}
