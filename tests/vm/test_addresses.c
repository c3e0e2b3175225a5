// SPDX-License-Identifier: BSD-3-Clause
/*
 * Addresses that come and go while a job runs: RDMA ports are known by them. A
 * rank goes on with those that it has when a connection is made, and where it
 * cannot, the error says so. Runs in the virtual machines of tests/vm/run only.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/trial.h"
#include "tests/support/vm.h"

/* For the kernel to tell the device. */
#define SETTLE_MS 500

/* Of net1, which is rank 1's. Packets from its address leave through it; its
 * routes go with it. */
#define NETWORK "192.168.77"
#define OLD NETWORK ".2"
#define NEW NETWORK ".22"
#define LINK_LOCAL "fe80::ff:fe00:1"
#define RULES(verb, address)                                              \
	"ip rule " verb " pref 50 from " address " to " address           \
	" iif lo lookup local && ip rule " verb " pref 100 from " address \
	" to " NETWORK ".0/24 iif lo lookup 101"
#define TAKE(address) "ip address del " address "/24 dev net1"
#define GIVE(address)                                                         \
	"ip address add " address "/24 dev net1 && ip route replace " NETWORK \
	".0/24 dev net1 src " address " table 101"
#define TAKE_ALL "ip address flush dev net1"

struct change {
	const char *command;
	bool late;         /* there are connections already */
	const char *words; /* of the error; NULL: there is none */
};

static const struct change changes[] = {
	{TAKE(OLD) " && " GIVE(NEW) " && " RULES("add", NEW), false, NULL},
	/* IPv6 is left. */
	{TAKE(OLD), false, NULL},
	/* A GID of that is left, but no way. */
	{TAKE_ALL, false, "gid " LINK_LOCAL},
	{TAKE_ALL, true, "gid " OLD},
};

/* As it was. */
static void mend(void)
{
	static const char text[] =
		"{ " RULES("del", NEW) "; } 2>/dev/null; " TAKE_ALL
				       " && ip address add " LINK_LOCAL
				       "/64 dev net1 && " GIVE(OLD);

	ck_assert_msg(!system(text), "%s: failed", text);
}

static void fail_after_a_change(const struct job_rank *me, const char *words)
{
	struct trial t = {.kind = TRIAL_ALLREDUCE,
			  .type = DICOMM_INT32,
			  .op = DICOMM_SUM,
			  .count = 1000};
	dicomm_result_t status;
	const char *text;

	trial_fill(&t, me);
	status = trial_call(&t, NULL);
	trial_free(&t);
	text = dicomm_get_last_error(me->comm);
	JOB_CHECK(status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_SYSTEM,
		  "status %d: %s", (int)status, text);
	JOB_CHECK(strstr(text, words), "no \"%s\" in \"%s\"", words, text);
}

static void work_after_a_change(struct job_rank *me)
{
	const struct change *c = me->arg;

	if (c->late)
		trial_run_some(me, 0);
	job_barrier();
	if (me->rank == 1) {
		if (system(c->command))
			job_fail("%s: failed", c->command);
		job_sleep_ms(SETTLE_MS);
	}
	job_barrier();
	if (c->words)
		fail_after_a_change(me, c->words);
	else
		trial_run_some(me, 1);
}

START_TEST(a_port_is_known_by_the_addresses_that_it_has)
{
	const struct change *c = &changes[_i];
	struct job job = {.run = work_after_a_change,
			  .arg = c,
			  .ranks = 2,
			  .env = {"DICOMM_TRANSPORTS=verbs",
				  "DICOMM_SOCKET_IFNAME=lo", "DICOMM_IB_NICS=1",
				  "DICOMM_DEBUG=none", "DICOMM_IB_TIMEOUT=16",
				  /* So only rank 1's NIC knows at once. */
				  "DICOMM_IB_RETRY_CNT=7"},
			  .timeout_s = 100};
	char text[2000] = "";
	bool good = job_try(&job, text, sizeof(text));

	mend();
	ck_assert_msg(good, "%s: %s", c->command, text);
}
END_TEST

int main(void)
{
	TCase *test_case = tcase_create("addresses");
	Suite *suite = suite_create("addresses");
	struct vm vm;

	if (!vm_find(&vm))
		return 77;
	if (vm.iwarp || vm.devices < 2) {
		printf("skipped: the virtual machine has no rxe:2\n");
		return 77;
	}
	tcase_set_timeout(test_case, 60);
	tcase_add_loop_test(test_case,
			    a_port_is_known_by_the_addresses_that_it_has, 0,
			    sizeof(changes) / sizeof(*changes));
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
