/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions from comm_init to comm_destroy. */
#include "src/comm/create.h"
#include "src/comm/lifecycle.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cancel.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/thread.h"
#include "src/boot/control/id.h"
#include "src/boot/store/launcher.h"
#include "src/comm/setup.h"
#include "src/core/comm.h"
#include "src/core/cross_progress.h"
#include "src/core/wait.h"
#include "src/device/device.h"
#include "src/links/topology.h"
#include "src/stream/driver.h"
#include "src/stream/graph.h"
#include "src/island/hold.h"
#include "src/island/island.h"
#include "src/stream/submit.h"
#include "src/core/fault.h"
#include "src/core/paths.h"
#include "src/message/channel.h"

/* How long a rank that leaves waits before it asks a peer for the first time,
 * and between questions: most peers have told by then what they have received.
 */
#define ASK_AFTER_MS 20
#define ASK_AGAIN_MS 200
#define ASK_MS 500 /* how long to wait for an answer */
/* How long a transport may take to repeat, by another queue pair, what a lost
 * one had not told. The other rank takes part if it waits. */
#define TELL_MS 1000
/* How long credits may take to arrive. A NIC without an answer gives up
 * earlier, with the default DICOMM_IB_TIMEOUT and DICOMM_IB_RETRY_CNT. */
#define LAND_MS 30000
/* How long ranks that live may take to receive if another one has died */
#define SURVIVORS_MS 1000

struct comm_start {
	struct dicomm_comm *comm;
	dicomm_comm_t *out; /* NULL once a blocking caller has returned */
	dicomm_unique_id_t id;
	struct dicomm_comm *parent; /* waits for the end of init, or NULL */
	/* With a parent: a descriptor, to be closed for the connection by which
	 * this rank comes, or says why it cannot. Else -1. */
	int spare;
	sem_t go;     /* the helper thread waits for this */
	bool refused; /* the helper thread is to do nothing */
};

static void close_spare(struct comm_start *a)
{
	if (a->spare >= 0)
		close(a->spare);
	a->spare = -1;
}

static dicomm_result_t open_spare(struct comm_start *a)
{
	a->spare = descriptors_high(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (a->spare >= 0)
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_SYSTEM, "comm_init_rank: /dev/null: %s",
		    strerror(errno));
}

static void start_free(struct comm_start *a)
{
	close_spare(a);
	sem_destroy(&a->go);
	free(a);
}

static dicomm_result_t init_now(void *arg)
{
	struct comm_start *a = arg;
	struct dicomm_comm *comm = a->comm, *parent = a->parent;
	dicomm_result_t status;

	close_spare(a);
	log_set_rank(comm->rank);
	comm_listen(comm);
	fault_share(a->parent, comm);
	status = comm_setup(comm, &a->id, comm->join_ms);
	if (status == DICOMM_SUCCESS)
		status = recovery_serve(comm->recovery);
	fault_share(a->parent, NULL);
	comm_listen(NULL);
	log_set_rank(-1);
	if (status != DICOMM_SUCCESS)
		status = fault_of_init(comm, status);
	fault_tell_abort(comm);
	if (status != DICOMM_SUCCESS && comm->blocking) {
		*a->out = NULL;
		comm_free(comm);
	}
	start_free(a);
	return fault_of_parent(parent, status);
}

static void init_refuse(void *arg)
{
	struct comm_start *a = arg;

	*a->out = NULL;
	comm_start_refuse(a);
}

static void *init_helper(void *arg)
{
	struct comm_start *a = arg;

	while (sem_wait(&a->go))
		;
	if (!a->refused)
		init_now(a);
	return NULL;
}

static dicomm_result_t make_helper(struct comm_start *a)
{
	int err = thread_start(&a->comm->helper, "dicomm-init", init_helper, a);

	if (err)
		return FAIL(DICOMM_ERR_SYSTEM,
			    "comm_init_rank: create a thread: %s",
			    strerror(err));
	a->comm->has_helper = true;
	return DICOMM_SUCCESS;
}

dicomm_result_t comm_start_prepare(struct comm_start **out, int nranks,
				   int rank, const dicomm_config_t *config,
				   struct dicomm_comm *parent,
				   const uint32_t *was)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct comm_start *a = calloc(1, sizeof(*a));

	if (!a)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	a->spare = -1;
	sem_init(&a->go, 0, 0);
	status = config_check();
	if (status == DICOMM_SUCCESS)
		status = comm_create(&a->comm, nranks, rank, config);
	if (status == DICOMM_SUCCESS && was)
		status = topology_inherit(a->comm, parent, was);
	if (status == DICOMM_SUCCESS && parent)
		status = open_spare(a);
	if (status == DICOMM_SUCCESS && a->comm->blocking)
		a->parent = parent;
	else if (status == DICOMM_SUCCESS)
		status = make_helper(a);
	if (status == DICOMM_SUCCESS)
		*out = a;
	else
		comm_start_refuse(a);
	return status;
}

int comm_start_patience(const struct comm_start *a)
{
	return a->comm->join_ms;
}

void comm_start_refuse(struct comm_start *a)
{
	if (a->comm && a->comm->has_helper) {
		a->refused = true;
		sem_post(&a->go);
		pthread_join(a->comm->helper, NULL);
	}
	comm_free(a->comm);
	start_free(a);
}

dicomm_result_t comm_start_join(struct comm_start *a, dicomm_comm_t *out,
				const dicomm_unique_id_t *id)
{
	a->out = out;
	if (id)
		a->id = *id;
	*out = a->comm;
	if (a->comm->blocking)
		return group_init(a->comm, init_now, init_refuse, a);
	sem_post(&a->go);
	return DICOMM_IN_PROGRESS;
}

/* `from`: what has said that there are so many ranks, or NULL. */
static dicomm_result_t start(dicomm_comm_t *out, int nranks,
			     const dicomm_unique_id_t *id, int rank,
			     const dicomm_config_t *config, const char *from)
{
	struct comm_start *a;
	dicomm_result_t status;

	status = comm_start_prepare(&a, nranks, rank, config, NULL, NULL);
	if (status == DICOMM_SUCCESS) {
		a->comm->ranks_from = from;
		return comm_start_join(a, out, id);
	}
	control_cannot_open(id, rank, nranks);
	return status;
}

dicomm_result_t dicomm_get_unique_id(dicomm_unique_id_t *id)
{
	CANCEL_HELD();

	if (!id)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "get_unique_id: id is NULL");
	TRY(config_check());
	return id_create_job(id);
}

dicomm_result_t dicomm_unique_id_at(const char *address, int rank,
				    dicomm_unique_id_t *id)
{
	CANCEL_HELD();

	if (!address || !id)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "unique_id_at: %s is NULL",
			    address ? "id" : "address");
	if (rank < 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "unique_id_at: rank %d: negative", rank);
	TRY(config_check());
	return id_derive(address, "", config_string(CONFIG_COMM_KEY), rank, id);
}

dicomm_result_t dicomm_comm_init_rank_config(dicomm_comm_t *comm, int nranks,
					     dicomm_unique_id_t id, int rank,
					     const dicomm_config_t *config)
{
	CANCEL_HELD();

	if (!comm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_rank: comm is NULL");
	*comm = NULL;
	return start(comm, nranks, &id, rank, config, NULL);
}

dicomm_result_t dicomm_comm_init_rank(dicomm_comm_t *comm, int nranks,
				      dicomm_unique_id_t id, int rank)
{
	return dicomm_comm_init_rank_config(comm, nranks, id, rank, NULL);
}

dicomm_result_t dicomm_comm_init_env_config(dicomm_comm_t *comm,
					    const dicomm_config_t *config)
{
	CANCEL_HELD();
	struct launcher_info info;

	if (!comm)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_env: comm is NULL");
	*comm = NULL;
	TRY(launcher_find(&info));
	return start(comm, info.ranks, &info.id, info.rank, config,
		     info.ranks_from);
}

dicomm_result_t dicomm_comm_init_env(dicomm_comm_t *comm)
{
	return dicomm_comm_init_env_config(comm, NULL);
}

static void refuse_all(struct comm_start **starts, int n)
{
	for (int i = 0; i < n; i++)
		comm_start_refuse(starts[i]);
}

/* All of them or none: the ready ones would wait for the others. */
static dicomm_result_t prepare_all(struct comm_start **starts, int n,
				   const char *const *devices)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	int i;

	for (i = 0; i < n && status == DICOMM_SUCCESS; i++) {
		dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;

		config.device = devices ? devices[i] : NULL;
		status = comm_start_prepare(&starts[i], n, i, &config, NULL,
					    NULL);
	}
	if (status != DICOMM_SUCCESS)
		refuse_all(starts, i - 1);
	return status;
}

static dicomm_result_t join_all(struct comm_start **starts, int n,
				dicomm_comm_t *comms)
{
	dicomm_result_t status = DICOMM_SUCCESS, s;
	dicomm_unique_id_t id;

	s = id_create_job(&id);
	if (s != DICOMM_SUCCESS) {
		refuse_all(starts, n);
		return s;
	}
	dicomm_group_start();
	for (int i = 0; i < n; i++) {
		s = comm_start_join(starts[i], &comms[i], &id);
		if (status == DICOMM_SUCCESS)
			status = s;
	}
	s = dicomm_group_end();
	return status != DICOMM_SUCCESS ? status : s;
}

dicomm_result_t dicomm_comm_init_all(dicomm_comm_t *comms, int ndev,
				     const char *const *devices)
{
	CANCEL_HELD();
	struct comm_start **starts;
	dicomm_result_t status;
	char why[256] = "no name";
	int index;

	if (!comms)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_all: comms is NULL");
	if (ndev < 1)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_all: ndev %d: not positive", ndev);
	if (ndev > CONTROL_RANKS_MAX)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_init_all: ndev %d: more than %d", ndev,
			    CONTROL_RANKS_MAX);
	memset(comms, 0, (size_t)ndev * sizeof(dicomm_comm_t));
	for (int i = 0; i < ndev && devices; i++)
		if (!devices[i] ||
		    !accel_find(devices[i], &index, why, sizeof(why)))
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "comm_init_all: devices[%d] %s: %s", i,
				    devices[i] ? devices[i] : "NULL", why);
	starts = calloc((size_t)ndev, sizeof(*starts));
	if (!starts)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_all: out of memory");
	status = prepare_all(starts, ndev, devices);
	if (status == DICOMM_SUCCESS)
		status = join_all(starts, ndev, comms);
	free(starts);
	return status;
}

/* ---- public: end ---- */

/* Has the peer received everything that was sent to it? */
static bool delivered(const struct peer *peer)
{
	for (int c = 0; c < TP_CLASSES; c++) {
		const struct channel *channel = &peer->channel[c];

		if (channel->out.released &&
		    atomic_load_explicit(channel->out.released,
					 memory_order_acquire) <
			    channel->out_last)
			return false;
	}
	return true;
}

static bool says_yes(struct dicomm_comm *comm, int peer, uint32_t class,
		     uint64_t number)
{
	char text[64];
	uint32_t signature;
	bool known = false;

	return control_query(comm->control, peer, class, number, ASK_MS, &known,
			     &signature, text,
			     sizeof(text)) == DICOMM_SUCCESS &&
	       known;
}

/* If the peer says so, it has. The credit may not have come yet, because a rank
 * that computes sends none. */
static bool has_received(struct dicomm_comm *comm, const struct peer *peer)
{
	for (int c = 0; c < TP_CLASSES; c++) {
		uint64_t last = peer->channel[c].out_last;

		if (last && !says_yes(comm, peer->rank, ASK_RECEIVED,
				      last * TP_CLASSES + (uint64_t)c))
			return false;
	}
	return true;
}

/* Has the peer left too, so that it will never receive? */
static bool is_leaving(struct dicomm_comm *comm, int peer)
{
	/* A number that no call reaches. Only a rank that makes no more calls
	 * knows it. */
	return comm_has_left(comm, peer) ||
	       says_yes(comm, peer, ASK_COLLECTIVE, UINT64_MAX);
}

/* Check once more, for a peer that has received since then. */
static void pause_leaving(struct dicomm_comm *comm, struct waiter *w,
			  uint64_t begin_ms)
{
	wait_pause(comm, w);
	if (wait_is_due(w))
		cross_progress_poll();
	/* A rank that computes may take long. */
	if (clock_ms() > begin_ms + ASK_AFTER_MS)
		usleep(50);
}

/* Credits that were sent have not arrived yet. If a NIC or its link fails now,
 * this rank sends them again by another one. Peers must not hear before that it
 * has left, or they would give it up while they wait for the credits. */
static void land_all(struct dicomm_comm *comm)
{
	bool is_shorter = comm->timeout_ms > 0 && comm->timeout_ms < LAND_MS;
	uint64_t most = is_shorter ? (uint64_t)comm->timeout_ms : LAND_MS;
	uint64_t begin = clock_ms();
	struct waiter w = {0};

	while (!comm_landed(comm) && !fault_is(comm) &&
	       clock_ms() - begin < most)
		pause_leaving(comm, &w, begin);
}

/*
 * What this rank has sent stays in its memory until it is received. The other
 * ranks need not leave at the same time. But a rank that leaves without having
 * received it will never do so.
 */
static dicomm_result_t deliver_all(struct dicomm_comm *comm)
{
	struct waiter w = {0};
	uint64_t begin = clock_ms();
	uint64_t received_ms = begin + ASK_AFTER_MS;
	uint64_t leaving_ms = begin + ASK_AGAIN_MS;

	/* Peers wait here too: send them the last credits before they hear that
	 * this rank has left. */
	channel_flush_all(comm, TELL_MS);
	for (int r = 0; r < comm->ranks; r++) {
		struct peer *peer = &comm->peers[r];

		while (peer->tp && !delivered(peer)) {
			uint64_t now = clock_ms();

			if (fault_is(comm))
				return fault_report(comm);
			/* Who has died receives no more; who lives may. */
			if (fault_is_pending(comm) &&
			    (comm_has_left(comm, r) ||
			     !comm_is_reached(comm, r)))
				break;
			if (fault_is_pending(comm) &&
			    now - begin > SURVIVORS_MS)
				return fault_settle(comm);
			if (now > received_ms) {
				if (has_received(comm, peer))
					break; /* ask the next rank now */
				received_ms = now + ASK_AGAIN_MS;
			}
			if (now > leaving_ms) {
				leaving_ms = now + ASK_AGAIN_MS;
				if (is_leaving(comm, r) && !delivered(peer)) {
					comm_listen(comm);
					log_warn("%s rank %d: rank %d leaves "
						 "without having received all "
						 "that was sent to it",
						 comm->name, comm->rank, r);
					comm_listen(NULL);
					break;
				}
			}
			if (comm->timeout_ms > 0 &&
			    now - begin > (uint64_t)comm->timeout_ms)
				return fault_raise(
					comm, DICOMM_ERR_TIMEOUT, r, true,
					"comm_finalize: rank %d has not "
					"received all that rank %d sent within "
					"%d ms",
					r, comm->rank, comm->timeout_ms);
			pause_leaving(comm, &w, begin);
		}
	}
	land_all(comm);
	return DICOMM_SUCCESS;
}

static dicomm_result_t finalize_now(struct dicomm_comm *comm)
{
	dicomm_result_t status;

	/* Bounded, because the operations are. */
	while (comm_is_used(comm))
		usleep(50);
	island_finalize(comm);
	cross_progress_remove(comm);
	status = fault_is(comm) ? fault_report(comm) : deliver_all(comm);
	atomic_store(&comm->state, COMM_FINALIZED);
	return status;
}

/* This would wait for the call that it has interrupted. */
static dicomm_result_t check_outside(struct dicomm_comm *comm,
				     const char *function)
{
	if (!data_path_is_inside(&comm->path) && !driver_has(comm) &&
	    !island_is_inside(comm))
		return DICOMM_SUCCESS;
	return FAIL(DICOMM_ERR_INVALID_USAGE,
		    "%s: this thread is inside a call on comm (in a signal "
		    "handler, or in log_fn?): only comm_abort is possible",
		    function);
}

static dicomm_result_t finalize_item(void *arg)
{
	return finalize_now(arg);
}

static void finalize_refuse(void *arg)
{
	struct dicomm_comm *comm = arg;

	atomic_store(&comm->state, COMM_READY);
}

static void *finalize_helper(void *arg)
{
	finalize_now(arg);
	return NULL;
}

static void join_helper(struct dicomm_comm *comm)
{
	if (comm->has_helper)
		pthread_join(comm->helper, NULL);
	comm->has_helper = false;
}

dicomm_result_t dicomm_comm_finalize(dicomm_comm_t comm)
{
	CANCEL_HELD();
	int err;

	TRY(comm_check_slow(comm, "comm_finalize"));
	TRY(group_check_end(comm, "comm_finalize"));
	TRY(check_outside(comm, "comm_finalize"));
	atomic_store(&comm->state, COMM_FINALIZING);
	if (comm->blocking)
		return group_init(comm, finalize_item, finalize_refuse, comm);
	join_helper(comm);
	err = thread_start(&comm->helper, "dicomm-finalize", finalize_helper,
			   comm);
	if (err) {
		finalize_refuse(comm);
		return FAIL(DICOMM_ERR_SYSTEM,
			    "comm_finalize: create a thread: %s",
			    strerror(err));
	}
	comm->has_helper = true;
	return DICOMM_IN_PROGRESS;
}

static dicomm_result_t destroy_now(void *arg)
{
	struct dicomm_comm *comm = arg;

	fault_complete(comm);
	/* Cut a running init short; wait for a running finalize. */
	if (atomic_load(&comm->state) == COMM_STARTING)
		atomic_store(&comm->cancelled, true);
	join_helper(comm);
	if ((comm->leaving || atomic_load(&comm->state) == COMM_READY) &&
	    !fault_is(comm)) {
		atomic_store(&comm->state, COMM_FINALIZING);
		finalize_now(comm);
	}
	fault_wait(comm);
	graph_close(comm);
	comm_free(comm);
	return DICOMM_SUCCESS;
}

static void destroy_refuse(void *arg)
{
	struct dicomm_comm *comm = arg;

	if (comm->leaving)
		atomic_store(&comm->state, COMM_READY);
	comm->leaving = false;
	atomic_store(&comm->ending, false);
}

dicomm_result_t dicomm_comm_destroy(dicomm_comm_t comm)
{
	CANCEL_HELD();
	int ready = COMM_READY;

	if (!comm)
		return DICOMM_SUCCESS;
	if (comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_destroy: comm %p is not a communicator",
			    (void *)comm);
	if (comm_is_child(comm))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "comm_destroy: comm belongs to the parent of this "
			    "process");
	TRY(group_check_end(comm, "comm_destroy"));
	TRY(check_outside(comm, "comm_destroy"));
	if (atomic_exchange(&comm->ending, true))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "comm_destroy: comm %p is being destroyed already",
			    (void *)comm);
	/* From now on, calls of this group on it would come after its end. */
	if (group_open())
		comm->leaving = atomic_compare_exchange_strong(
			&comm->state, &ready, COMM_FINALIZING);
	return group_init(comm, destroy_now, destroy_refuse, comm);
}

dicomm_result_t dicomm_comm_abort(dicomm_comm_t comm)
{
	CANCEL_HELD();
	bool starting;

	if (!comm || comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_abort: comm %p is not a communicator",
			    (void *)comm);
	if (comm_is_child(comm))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "comm_abort: comm belongs to the parent of this "
			    "process");
	if (data_path_is_inside(&comm->path) || driver_has(comm) ||
	    island_is_inside(comm)) {
		fault_mark_abort(comm);
		if (comm->on_broken)
			comm->on_broken(comm);
		return DICOMM_IN_PROGRESS;
	}
	starting = atomic_load(&comm->state) == COMM_STARTING;
	fault_raise(comm, DICOMM_ERR_ABORTED, comm->rank, !starting,
		    "rank %d aborted the communicator", comm->rank);
	/* Otherwise the running init tells the others when it has ended. */
	if (starting && atomic_load(&comm->state) != COMM_STARTING)
		fault_tell_abort(comm);
	island_hold_abort(comm);
	fault_wait(comm);
	/* Peers read and write windows while this rank has no operation whose
	 * end would do this. */
	if (comm->service && comm->dev)
		device_quiesce(comm);
	graph_abort(comm);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_set_timeout(dicomm_comm_t comm, int timeout_ms)
{
	TRY(comm_check_handle(comm, "comm_set_timeout"));
	if (timeout_ms < 0)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_set_timeout: timeout_ms %d: negative",
			    timeout_ms);
	atomic_store(&comm->timeout_ms, timeout_ms);
	graph_set_timeout(comm, timeout_ms);
	return DICOMM_SUCCESS;
}

dicomm_result_t dicomm_comm_get_async_error(dicomm_comm_t comm,
					    dicomm_result_t *async_error)
{
	int state;

	if (!comm || comm->magic != COMM_MAGIC)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_get_async_error: comm %p is not a "
			    "communicator",
			    (void *)comm);
	if (!async_error)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "comm_get_async_error: async_error is NULL");
	if (comm_is_child(comm))
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "comm_get_async_error: comm belongs to the parent "
			    "of this process");
	state = atomic_load(&comm->state);
	if (fault_is(comm))
		*async_error =
			(dicomm_result_t)atomic_load(&comm->fault.status);
	else if (fault_pends_idle(comm))
		*async_error = DICOMM_ERR_REMOTE;
	else if (state == COMM_STARTING || state == COMM_FINALIZING)
		*async_error = DICOMM_IN_PROGRESS;
	else
		*async_error = DICOMM_SUCCESS;
	return DICOMM_SUCCESS;
}
