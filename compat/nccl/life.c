/* SPDX-License-Identifier: BSD-3-Clause */
/* From ncclGetUniqueId() to ncclCommDestroy(), as programs call them. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compat/nccl/group.h"
#include "compat/nccl/other.h"

/* For other threads to leave what was aborted, at most */
#define ABORT_MS 30000
/* For the peers of a program that ends to receive what it has sent them */
#define EXIT_MS 2000
/* For the peers of a rank that aborts with nothing under way to do so */
#define LEAVE_S 10

/* Now, or at the end of the group. *out: the handle, as long as there is one.
 */
static ncclResult_t submit(struct nccl_task *t, ncclComm_t *out)
{
	ncclResult_t result;

	if (out)
		*out = t->made;
	if (nccl_group_open())
		return nccl_group_task(t);
	nccl_task_start(t);
	result = nccl_task_finish(t, false);
	if (out && result != ncclSuccess && result != ncclInProgress)
		*out = NULL;
	return result;
}

static bool is_going_on(struct ncclComm *c)
{
	dicomm_result_t error = DICOMM_SUCCESS;

	return dicomm_comm_get_async_error(c->comm, &error) == DICOMM_SUCCESS &&
	       error == DICOMM_IN_PROGRESS;
}

/* Of this process, ready, and in no call: to be left in good order. */
static bool is_left(struct ncclComm *c)
{
	dicomm_result_t error = DICOMM_ERR_INTERNAL;

	if (c->pid != (int)getpid() || atomic_load(&c->state) != NCCL_LIVE ||
	    !c->comm || atomic_exchange(&c->busy, 1))
		return false;
	dicomm_comm_get_async_error(c->comm, &error);
	return error == DICOMM_SUCCESS;
}

/* Many programs end without ncclCommDestroy(). What their last operations have
 * sent may still lie in their memory, where the peers read it; and who is gone
 * without a word has died. */
static void leave_all(void)
{
	int n = 0, left = EXIT_MS;

	while (n < NCCL_HANDLES && nccl_handles[n].pid) {
		struct ncclComm *c = &nccl_handles[n++];

		c->leaves = is_left(c);
		if (c->leaves)
			dicomm_comm_finalize(c->comm);
	}
	for (int i = 0; i < n; i++) {
		struct ncclComm *c = &nccl_handles[i];

		if (!c->leaves)
			continue;
		while (is_going_on(c) && left-- > 0)
			usleep(1000);
		if (!is_going_on(c) &&
		    nccl_turn(c, NCCL_IN(NCCL_LIVE), NCCL_DYING) &&
		    nccl_handle_drain(c, 0, false, 0))
			dicomm_comm_destroy(c->comm);
	}
}

static void leave_at_exit(void)
{
	atexit(leave_all);
}

static bool make_handle(struct nccl_task *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, leave_at_exit);
	t->made = nccl_handle_new(t->f, NCCL_PENDING);
	if (!t->made)
		return false;
	t->made->blocking = t->options.blocking;
	return true;
}

/* With NCCL_COMM_ID each rank asks for the id itself, before it tells its
 * number. So this is the address only, and init() makes an id of it. */
#define AT "dicomm-at:"

/* The variable may also have a whole id, as DICOMM_COMM_ID may. */
static ncclResult_t given_id(const char *f, const char *given, ncclUniqueId *id)
{
	const char *prefix = strncmp(given, "dicomm1:", 8) ? AT : "";

	memset(id, 0, sizeof(*id));
	if (snprintf(id->internal, sizeof(id->internal), "%s%s", prefix,
		     given) < (int)sizeof(id->internal))
		return ncclSuccess;
	return nccl_refuse(ncclInvalidArgument,
			   "%s: NCCL_COMM_ID is too long: %zu characters", f,
			   strlen(given));
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	const char *given = getenv("NCCL_COMM_ID");
	dicomm_unique_id_t made;
	dicomm_result_t status;

	nccl_look_around();
	if (!id)
		return nccl_refuse(ncclInvalidArgument, "%s: id is NULL",
				   __func__);
	if (given && *given)
		return given_id(__func__, given, id);
	status = dicomm_get_unique_id(&made);
	if (status == DICOMM_SUCCESS)
		memcpy(id, &made, sizeof(*id));
	return nccl_from(status);
}
NCCL_ALIAS(ncclGetUniqueId);

static ncclResult_t read_id(const ncclUniqueId *id, int rank,
			    dicomm_unique_id_t *out)
{
	if (strncmp(id->internal, AT, strlen(AT))) {
		memcpy(out, id, sizeof(*out));
		return ncclSuccess;
	}
	return nccl_from(
		dicomm_unique_id_at(id->internal + strlen(AT), rank, out));
}

/* An id of NCCL's begins with a random number, and then says where to meet. */
static void tell_address(const char *id, char *text, size_t room)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four;
	char host[INET6_ADDRSTRLEN] = "";
	sa_family_t family;

	text[0] = '\0';
	memcpy(&family, id + 8, sizeof(family));
	memcpy(&four, id + 8, sizeof(four));
	memcpy(&six, id + 8, sizeof(six));
	if (family == AF_INET &&
	    inet_ntop(AF_INET, &four.sin_addr, host, sizeof(host)))
		snprintf(text, room, " (that listens at %s:%d)", host,
			 ntohs(four.sin_port));
	if (family == AF_INET6 &&
	    inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof(host)))
		snprintf(text, room, " (that listens at [%s]:%d)", host,
			 ntohs(six.sin6_port));
}

/* The words of the library would be about an id that its own users made. */
static ncclResult_t check_id(const char *f, const ncclUniqueId *id)
{
	static const char zero[sizeof(ncclUniqueId)];
	char where[96], text[768];

	if (!memcmp(id->internal, "dicomm", 6))
		return ncclSuccess;
	if (!memcmp(id->internal, zero, sizeof(zero)))
		return nccl_refuse(ncclInvalidArgument,
				   "%s: the unique id is all zeros: it was not "
				   "handed over from the process that called "
				   "ncclGetUniqueId()",
				   f);
	tell_address(id->internal, where, sizeof(where));
	snprintf(text, sizeof(text),
		 "%s: this id was made by NCCL or RCCL, not by libdicomm: "
		 "another process of the job%s runs the real one; start all of "
		 "them with dicomm-run, or none",
		 f, where);
	nccl_tell_other(text, sizeof(text));
	return nccl_refuse(ncclInvalidArgument, "%s", text);
}

static ncclResult_t init(const char *f, ncclComm_t *comm, int nranks,
			 const ncclUniqueId *id, int rank, const void *config)
{
	struct nccl_task t = {
		.f = f, .kind = NCCL_TASK_INIT, .nranks = nranks, .rank = rank};
	struct nccl_device device;
	ncclResult_t result;

	nccl_look_around();
	if (!comm)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: comm is NULL", f));
	*comm = NULL;
	if (nranks < 1)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: nranks %d: not positive",
						f, nranks));
	if (rank < 0 || rank >= nranks)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: rank %d: not in 0 .. %d",
						f, rank, nranks - 1));
	result = check_id(f, id);
	if (result == ncclSuccess)
		result = nccl_config_read(f, config, &t.options);
	if (result != ncclSuccess)
		return nccl_refused(result);
	nccl_device_current(&device);
	memcpy(t.device, device.name, sizeof(t.device));
	result = read_id(id, rank, &t.id);
	if (result != ncclSuccess)
		return nccl_refused(result);
	if (!make_handle(&t))
		return nccl_refused(ncclSystemError);
	return submit(&t, comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id,
			      int rank)
{
	return init(__func__, comm, nranks, &id, rank, NULL);
}
NCCL_ALIAS(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
				    ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	return init(__func__, comm, nranks, &id, rank, config);
}
NCCL_ALIAS(ncclCommInitRankConfig);

/* One id is enough: the meeting is a tree of its own. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int rank,
				      int nids, ncclUniqueId *ids,
				      ncclConfig_t *config)
{
	ncclResult_t result = ncclSuccess;

	if (!ids || nids < 1 || nids > nranks)
		return nccl_refused(nccl_refuse(
			ncclInvalidArgument, "%s: %s: not 1 to nranks ids",
			__func__, ids ? "nids" : "ids is NULL"));
	for (int i = 0; i < nids && result == ncclSuccess; i++)
		result = check_id(__func__, &ids[i]);
	if (result != ncclSuccess)
		return nccl_refused(result);
	return init(__func__, newcomm, nranks, ids, rank, config);
}
NCCL_ALIAS(ncclCommInitRankScalable);

/* As a group of inits, whose ranks have the devices that are named. */
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices)
{
	struct nccl_task t = {
		.f = __func__, .kind = NCCL_TASK_INIT, .nranks = ndev};
	struct nccl_device device;
	ncclResult_t result = ncclSuccess;

	nccl_look_around();
	if (!comms || ndev < 1)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: comms %p, ndev %d: not room for one "
				   "communicator or more",
				   __func__, (void *)comms, ndev);
	memset(comms, 0, (size_t)ndev * sizeof(*comms));
	for (int i = 0; i < ndev && devices; i++)
		if (devices[i] < 0)
			return nccl_refuse(ncclInvalidArgument,
					   "%s: devlist[%d] is %d", __func__, i,
					   devices[i]);
	result = nccl_from(dicomm_get_unique_id(&t.id));
	if (result == ncclSuccess)
		result = nccl_config_read(__func__, NULL, &t.options);
	if (result != ncclSuccess)
		return result;
	t.options.blocking = true;
	ncclGroupStart();
	for (int i = 0; i < ndev && result == ncclSuccess; i++) {
		nccl_device_nth(devices ? devices[i] : i, &device);
		memcpy(t.device, device.name, sizeof(t.device));
		t.rank = i;
		result = make_handle(&t) ? submit(&t, &comms[i])
					 : nccl_group_fail(ncclSystemError);
	}
	result = ncclGroupEnd();
	for (int i = 0; i < ndev && result != ncclSuccess; i++) {
		if (comms[i])
			ncclCommAbort(comms[i]);
		comms[i] = NULL;
	}
	return result;
}
NCCL_ALIAS(ncclCommInitAll);

/* The device is that of the old communicator, which is always told, since the
 * options of a program do not have it. False: it has refused. */
static bool inherit(struct nccl_task *t, struct ncclComm *comm, unsigned states,
		    const void *config, ncclResult_t *result)
{
	const char *device;

	*result = nccl_config_read(t->f, config, &t->options);
	if (*result != ncclSuccess)
		return false;
	if (!nccl_enter_shared(comm, states)) {
		*result = nccl_handle_refuse(t->f, comm);
		return false;
	}
	if (!t->options.given)
		t->options.blocking = comm->blocking;
	*result = nccl_from(dicomm_comm_device(comm->comm, &device));
	if (*result == ncclSuccess)
		snprintf(t->device, sizeof(t->device), "%s", device);
	nccl_leave_shared(comm);
	return *result == ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
			   ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct nccl_task t = {.f = __func__,
			      .kind = NCCL_TASK_SPLIT,
			      .comm = comm,
			      .color = color,
			      .key = key};
	ncclResult_t result;

	if (!newcomm)
		return nccl_refused(nccl_refuse(
			ncclInvalidArgument, "%s: newcomm is NULL", __func__));
	*newcomm = NULL;
	if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
		return nccl_refused(
			nccl_refuse(ncclInvalidArgument,
				    "%s: color %d: negative, and not "
				    "NCCL_SPLIT_NOCOLOR",
				    __func__, color));
	if (!inherit(&t, comm, NCCL_IN(NCCL_LIVE), config, &result))
		return nccl_refused(result);
	if (color != NCCL_SPLIT_NOCOLOR && !make_handle(&t))
		return nccl_refused(ncclSystemError);
	return submit(&t, newcomm);
}
NCCL_ALIAS(ncclCommSplit);

/* Nothing goes on any more; what is left is to shrink, or to end. */
static ncclResult_t make_rest(const char *f, struct ncclComm *comm)
{
	dicomm_result_t status;

	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_handle_refuse(f, comm);
	status = dicomm_comm_abort(comm->comm);
	if (status == DICOMM_SUCCESS)
		nccl_turn(comm, NCCL_THERE, NCCL_REVOKED);
	nccl_leave_shared(comm);
	return nccl_from(status);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
	if (!comm)
		return ncclSuccess;
	if (flags != NCCL_REVOKE_DEFAULT)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: flags 0x%x: not NCCL_REVOKE_DEFAULT",
				   __func__, (unsigned)flags);
	return make_rest(__func__, comm);
}
NCCL_ALIAS(ncclCommRevoke);

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int nexclude,
			    ncclComm_t *newcomm, ncclConfig_t *config,
			    int flags)
{
	const unsigned states = NCCL_IN(NCCL_LIVE) | NCCL_IN(NCCL_REVOKED);
	struct nccl_task t = {.f = __func__,
			      .kind = NCCL_TASK_SHRINK,
			      .comm = comm,
			      .nexclude = nexclude};
	ncclResult_t result;

	if (!newcomm)
		return nccl_refused(nccl_refuse(
			ncclInvalidArgument, "%s: newcomm is NULL", __func__));
	*newcomm = NULL;
	if (nexclude < 0 || (nexclude && !exclude))
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: excludeRanksCount %d, "
						"excludeRanksList %p",
						__func__, nexclude,
						(void *)exclude));
	if (flags & ~NCCL_SHRINK_ABORT)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: flags 0x%x: unknown",
						__func__, (unsigned)flags));
	if (!inherit(&t, comm, states, config, &result))
		return nccl_refused(result);
	t.exclude = malloc(((size_t)nexclude + 1) * sizeof(int));
	if (!t.exclude)
		return nccl_refused(nccl_refuse(ncclSystemError,
						"%s: out of memory", __func__));
	if (nexclude)
		memcpy(t.exclude, exclude, (size_t)nexclude * sizeof(int));
	if (flags & NCCL_SHRINK_ABORT)
		result = make_rest(__func__, comm);
	if (result == ncclSuccess && !make_handle(&t))
		result = ncclSystemError;
	if (result != ncclSuccess) {
		free(t.exclude);
		return nccl_refused(result);
	}
	return submit(&t, newcomm);
}
NCCL_ALIAS(ncclCommShrink);

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
	dicomm_unique_id_t made;
	dicomm_result_t status;

	if (!id)
		return nccl_refuse(ncclInvalidArgument, "%s: id is NULL",
				   __func__);
	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	status = dicomm_comm_get_unique_id(comm->comm, &made);
	nccl_leave(comm);
	if (status == DICOMM_SUCCESS)
		memcpy(id, &made, sizeof(*id));
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommGetUniqueId);

/* Who joins has no communicator, but an id, and the device of its thread. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id,
			  int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct nccl_task t = {.f = __func__,
			      .kind = NCCL_TASK_GROW,
			      .comm = comm,
			      .nranks = nranks,
			      .rank = rank,
			      .has_id = id != NULL};
	struct nccl_device device;
	ncclResult_t result = ncclSuccess;

	nccl_look_around();
	if (!newcomm)
		return nccl_refused(nccl_refuse(
			ncclInvalidArgument, "%s: newcomm is NULL", __func__));
	*newcomm = NULL;
	if (!comm && !id)
		return nccl_refused(
			nccl_refuse(ncclInvalidArgument,
				    "%s: comm and uniqueId are NULL: a "
				    "rank that joins needs the id",
				    __func__));
	if (id)
		result = check_id(__func__, id);
	if (result != ncclSuccess)
		return nccl_refused(result);
	if (id)
		memcpy(&t.id, id, sizeof(t.id));
	if (comm) {
		if (!inherit(&t, comm, NCCL_IN(NCCL_LIVE), config, &result))
			return nccl_refused(result);
	} else {
		result = nccl_config_read(__func__, config, &t.options);
		if (result != ncclSuccess)
			return nccl_refused(result);
		nccl_device_current(&device);
		memcpy(t.device, device.name, sizeof(t.device));
	}
	if (!make_handle(&t))
		return nccl_refused(ncclSystemError);
	return submit(&t, newcomm);
}
NCCL_ALIAS(ncclCommGrow);

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	struct nccl_task t = {
		.f = __func__, .kind = NCCL_TASK_FINALIZE, .comm = comm};
	bool again;

	if (!comm)
		return ncclSuccess;
	if (!nccl_enter(comm))
		return nccl_refused(nccl_handle_refuse(__func__, comm));
	again = comm->finalized;
	comm->finalized = true;
	nccl_leave(comm);
	if (again)
		return nccl_refused(nccl_refuse(ncclInvalidArgument,
						"%s: comm %p is finalized "
						"already",
						__func__, (void *)comm));
	return submit(&t, NULL);
}
NCCL_ALIAS(ncclCommFinalize);

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	struct nccl_task t = {
		.f = __func__, .kind = NCCL_TASK_DESTROY, .comm = comm};

	/* As NCCL has it: there is nothing to destroy. */
	if (!comm)
		return ncclSuccess;
	if (nccl_is_handle(comm) &&
	    nccl_turn(comm, NCCL_IN(NCCL_FAILED), NCCL_DYING)) {
		nccl_handle_free(comm);
		return ncclSuccess;
	}
	if (!nccl_enter_shared(comm, NCCL_THERE))
		return nccl_refused(nccl_handle_refuse(__func__, comm));
	nccl_leave_shared(comm);
	return submit(&t, NULL);
}
NCCL_ALIAS(ncclCommDestroy);

/* One that works, and has nothing under way */
static bool is_idle(struct ncclComm *c)
{
	dicomm_result_t error = DICOMM_ERR_INTERNAL;
	dicomm_stats_t stats = {.size = sizeof(stats)};

	if (!c->comm || !nccl_handle_drain(c, 0, true, 0))
		return false;
	dicomm_comm_get_async_error(c->comm, &error);
	return error == DICOMM_SUCCESS &&
	       dicomm_comm_stats(c->comm, &stats) == DICOMM_SUCCESS &&
	       !stats.under_way;
}

/*
 * Many programs end by ncclCommAbort(), and with NCCL no peer hears of it. So a
 * rank that has nothing to abort leaves in good order: its peers receive what
 * it has sent them, if they do so in time. It is then finalized.
 */
static bool leave(struct ncclComm *c)
{
	struct timespec begin, now;
	dicomm_result_t error = DICOMM_ERR_INTERNAL;

	if (!is_idle(c))
		return false;
	if (c->finalized)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (dicomm_comm_finalize(c->comm) != DICOMM_IN_PROGRESS)
		return false;
	while (is_going_on(c)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begin.tv_sec > LEAVE_S)
			return false;
		usleep(200);
	}
	dicomm_comm_get_async_error(c->comm, &error);
	return error == DICOMM_SUCCESS;
}

/* At once, also in a group: it waits for nobody but threads of this process
 * that are about to leave, and, with nothing under way, for peers to receive.
 */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	bool lives, left = false;

	if (!comm)
		return ncclSuccess;
	if (nccl_is_handle(comm) &&
	    nccl_turn(comm, NCCL_IN(NCCL_PENDING) | NCCL_IN(NCCL_FAILED),
		      NCCL_DYING)) {
		nccl_handle_free(comm);
		return ncclSuccess;
	}
	if (!nccl_is_handle(comm))
		return nccl_handle_refuse(__func__, comm);
	lives = nccl_turn(comm, NCCL_IN(NCCL_LIVE), NCCL_DYING);
	if (!lives && !nccl_turn(comm, NCCL_THERE, NCCL_DYING))
		return nccl_handle_refuse(__func__, comm);
	if (lives)
		left = leave(comm);
	if (comm->comm && !left)
		status = dicomm_comm_abort(comm->comm);
	if (!nccl_handle_drain(comm, ABORT_MS, true, 0))
		return nccl_refuse(ncclInternalError,
				   "%s: comm %p: a thread is still in a call "
				   "on it after %d ms; its memory is kept",
				   __func__, (void *)comm, ABORT_MS);
	/* It may have come about meanwhile. */
	if (comm->comm && !left)
		dicomm_comm_abort(comm->comm);
	nccl_memory_forget(comm);
	if (status == DICOMM_SUCCESS)
		status = dicomm_comm_destroy(comm->comm);
	nccl_redop_forget(comm);
	nccl_handle_free(comm);
	return nccl_from(status);
}
NCCL_ALIAS(ncclCommAbort);

/* A communicator that is suspended holds what it held: there is nothing in it
 * that could be given back and taken again. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
	if (flags != NCCL_SUSPEND_MEM)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: flags 0x%x: not NCCL_SUSPEND_MEM",
				   __func__, (unsigned)flags);
	if (!nccl_enter(comm))
		return nccl_handle_refuse(__func__, comm);
	nccl_turn(comm, NCCL_IN(NCCL_LIVE), NCCL_SUSPENDED);
	nccl_leave(comm);
	return ncclSuccess;
}
NCCL_ALIAS(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm)
{
	ncclResult_t result = ncclSuccess;

	if (!nccl_enter_any(comm, NCCL_THERE))
		return nccl_handle_refuse(__func__, comm);
	if (!nccl_turn(comm, NCCL_IN(NCCL_SUSPENDED), NCCL_LIVE))
		result = nccl_refuse(ncclInvalidUsage,
				     "%s: comm %p is not suspended", __func__,
				     (void *)comm);
	nccl_leave(comm);
	return result;
}
NCCL_ALIAS(ncclCommResume);
