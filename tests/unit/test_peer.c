/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a peer to connect ends when its communicator does. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "tests/support/runner.h"

static dicomm_result_t never(struct tp_peer *peer, enum tp_class c,
			     struct tp_outbox *out)
{
	(void)peer;
	(void)c;
	(void)out;
	return DICOMM_AGAIN;
}

/* There is no control plane to ask. */
bool __wrap_control_gone(struct control *c, int rank);

bool __wrap_control_gone(struct control *c, int rank)
{
	(void)c;
	(void)rank;
	return false;
}

static const struct transport silent = {.name = "silent", .connect_out = never};

/* As comm_destroy() does while the ranks still meet. */
static void *cancel(void *arg)
{
	const struct timespec moment = {0, 50000000};
	struct dicomm_comm *comm = arg;

	nanosleep(&moment, NULL);
	atomic_store(&comm->cancelled, true);
	return NULL;
}

/* As comm_abort() does. */
static void *raise_fault(void *arg)
{
	const struct timespec moment = {0, 50000000};

	nanosleep(&moment, NULL);
	fault_raise(arg, DICOMM_ERR_ABORTED, 0, false, "aborted");
	return NULL;
}

/* Else it would take until DICOMM_BOOTSTRAP_TIMEOUT, which Check does not wait
 * for. */
START_TEST(connecting_is_cut_short)
{
	struct dicomm_comm *comm;
	struct peer *peer;
	pthread_t thread;

	ck_assert_int_eq(comm_create(&comm, 2, 0, NULL), DICOMM_SUCCESS);
	peer = &comm->peers[1];
	peer->rank = 1;
	peer->transport = &silent;
	ck_assert_int_eq(
		pthread_create(&thread, NULL, _i ? raise_fault : cancel, comm),
		0);
	ck_assert_int_eq(comm_connect_out(comm, peer, TP_COLLECTIVE),
			 DICOMM_ERR_ABORTED);
	ck_assert_ptr_null(peer->lane[TP_COLLECTIVE].out.released);
	pthread_join(thread, NULL);
	comm_free(comm);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("peer");
	TCase *tc = tcase_create("all");

	setenv("DICOMM_DEBUG", "none", 1);
	setenv("DICOMM_BOOTSTRAP_TIMEOUT", "600", 1);
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, connecting_is_cut_short, 0, 2);
	suite_add_tcase(suite, tc);
	return runner_main(suite);
}
