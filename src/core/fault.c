/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends a communicator that has failed. The first cause is kept with its text.
 * Every waiting thread sees it, the other ranks are told, and the thread that
 * raised it can wait until nothing touches the user's buffers any more.
 */
#include "src/core/fault.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/cross_progress.h"
#include "src/core/paths.h"

_Atomic unsigned fault_count;

void fault_stop_transports(struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		w->transport->abort(w->device);
}

/* Needs the lock. */
static void keep_cause(struct dicomm_comm *comm, dicomm_result_t status,
		       int culprit, const char *text)
{
	comm->fault.culprit = culprit;
	snprintf(comm->fault.text, sizeof(comm->fault.text), "%s", text);
	atomic_store(&comm->fault.status, (int)status);
	data_path_report(&comm->path);
	atomic_fetch_add(&fault_count, 1);
	if (comm->fault.forming)
		atomic_store(&comm->fault.forming->cancelled, true);
}

/* Was it logged where it arose? Then only the communicator's log_fn hears it.
 * EXPECTED is no error. */
enum logged { NEW, LOGGED, EXPECTED };

/* No operation fails that anybody waits for: the program itself aborted, or it
 * is ending the communicator when it hears that another rank aborted or died.
 */
static bool is_harmless(struct dicomm_comm *comm, dicomm_result_t status)
{
	return status == DICOMM_ERR_ABORTED ||
	       (status == DICOMM_ERR_REMOTE && atomic_load(&comm->ending));
}

static bool names(const char *text, int rank)
{
	char name[24];
	size_t len = (size_t)snprintf(name, sizeof(name), "rank %d", rank);

	for (; (text = strstr(text, name)); text += len)
		if (text[len] < '0' || text[len] > '9')
			return true;
	return false;
}

/* The others have to hear which rank failed. Most texts name it; one about this
 * rank's own memory, threads or files does not. */
static void tell_others(struct dicomm_comm *comm, dicomm_result_t status,
			int culprit, const char *text)
{
	char named[sizeof(comm->fault.text)];

	if (culprit == comm->rank && !names(text, culprit)) {
		snprintf(named, sizeof(named), "rank %d (%s): %.400s",
			 comm->rank, control_where(comm->control, comm->rank),
			 text);
		text = named;
	}
	control_report(comm->control,
		       status == DICOMM_ERR_ABORTED ? DICOMM_ERR_REMOTE
						    : status,
		       culprit, text);
}

static void publish(struct dicomm_comm *comm, dicomm_result_t status,
		    int culprit, bool tell, enum logged logged,
		    const char *text)
{
	char own[24];
	size_t n = (size_t)snprintf(own, sizeof(own), "rank %d", comm->rank);
	bool names_own = !strncmp(text, own, n) && strchr(": ", text[n]);

	comm_listen(comm);
	if (logged == EXPECTED || (logged == NEW && is_harmless(comm, status)))
		log_info("%s %s: %s", comm->name, own, text);
	else if (logged == NEW && names_own)
		log_error("%s %s", comm->name, text);
	else if (logged == NEW)
		log_error("%s %s: %s", comm->name, own, text);
	log_set_last_error(text);
	if (logged == LOGGED)
		log_repeat();
	comm_listen(NULL);
	fault_stop_transports(comm);
	if (comm->on_broken)
		comm->on_broken(comm);
	if (tell && comm->control)
		tell_others(comm, status, culprit, text);
}

/* Returns true if a failure of this status may be the consequence of a
 * death. */
static bool may_follow_death(dicomm_result_t status)
{
	return status == DICOMM_ERR_REMOTE || status == DICOMM_ERR_SYSTEM ||
	       status == DICOMM_ERR_NO_PATH;
}

static dicomm_result_t raise_text(struct dicomm_comm *comm,
				  dicomm_result_t status, int culprit,
				  bool tell, enum logged logged,
				  const char *text)
{
	struct pending_death *pending = &comm->fault.pending;
	bool first;

	pthread_mutex_lock(&comm->fault.lock);
	first = !fault_is(comm);
	/* Every rank hears of a death, and some of them may not need more of
	 * the dead rank: do not tell them. */
	if (atomic_load(&pending->since_ns) && may_follow_death(status)) {
		status = DICOMM_ERR_REMOTE;
		culprit = pending->rank;
		text = pending->text;
		tell = false;
		logged = NEW;
	}
	if (first)
		keep_cause(comm, status, culprit, text);
	pthread_mutex_unlock(&comm->fault.lock);
	/* Cancel after the fault is set: a thread that stops waiting because of
	 * this reports the fault. */
	if (status == DICOMM_ERR_ABORTED)
		atomic_store(&comm->cancelled, true);
	if (first)
		publish(comm, status, culprit, tell, logged, text);
	else
		fault_complete(comm);
	return (dicomm_result_t)atomic_load(&comm->fault.status);
}

dicomm_result_t fault_raise(struct dicomm_comm *comm, dicomm_result_t status,
			    int culprit, bool tell, const char *format, ...)
{
	char text[sizeof(comm->fault.text)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return raise_text(comm, status, culprit, tell, NEW, text);
}

dicomm_result_t fault_all_left(struct dicomm_comm *comm, bool is_error)
{
	char text[sizeof(comm->fault.text)];

	snprintf(text, sizeof(text),
		 "all other ranks left the communicator while rank %d waits to "
		 "receive from any",
		 comm->rank);
	return raise_text(comm, DICOMM_ERR_REMOTE, comm->rank, true,
			  is_error ? NEW : EXPECTED, text);
}

/* Needs the lock. */
static void make_pending(struct dicomm_comm *comm, int rank, const char *text)
{
	struct pending_death *pending = &comm->fault.pending;

	pending->rank = rank;
	snprintf(pending->text, sizeof(pending->text), "%s", text);
	atomic_store(&pending->used, comm_is_used(comm));
	atomic_store(&pending->since_ns, clock_ns());
	data_path_report(&comm->path);
}

/* A communicator that is being split off needs all ranks. If this one is being
 * set up, what remains of that may need nothing more of the dead rank; all-
 * gathers fail without this. */
void fault_died(struct dicomm_comm *comm, int rank, const char *text)
{
	/* The vendor's library of an island may wait for the dead rank. */
	bool at_once = comm->accel->work || comm->on_broken, news = false;

	pthread_mutex_lock(&comm->fault.lock);
	at_once |= comm->fault.forming != NULL;
	if (!at_once && !fault_is(comm) &&
	    !atomic_load(&comm->fault.pending.since_ns)) {
		make_pending(comm, rank, text);
		news = true;
	}
	pthread_mutex_unlock(&comm->fault.lock);
	if (at_once) {
		fault_raise(comm, DICOMM_ERR_REMOTE, rank, false, "%s", text);
	} else if (news) {
		comm_listen(comm);
		log_info("%s rank %d: %s", comm->name, comm->rank, text);
		comm_listen(NULL);
	}
}

dicomm_result_t fault_settle(struct dicomm_comm *comm)
{
	char text[sizeof(comm->fault.pending.text)];
	int rank;

	if (fault_is(comm))
		return fault_report(comm);
	if (!atomic_load(&comm->fault.pending.since_ns))
		return DICOMM_SUCCESS;
	pthread_mutex_lock(&comm->fault.lock);
	rank = comm->fault.pending.rank;
	snprintf(text, sizeof(text), "%s", comm->fault.pending.text);
	pthread_mutex_unlock(&comm->fault.lock);
	return fault_raise(comm, DICOMM_ERR_REMOTE, rank, false, "%s", text);
}

bool fault_pends_idle(const struct dicomm_comm *comm)
{
	return fault_is_pending(comm) && !comm_is_used(comm);
}

void fault_mark_abort(struct dicomm_comm *comm)
{
	int was = DICOMM_SUCCESS;

	atomic_compare_exchange_strong(&comm->fault.status, &was,
				       DICOMM_ERR_ABORTED);
	data_path_report(&comm->path);
	atomic_store(&comm->cancelled, true);
	atomic_fetch_add(&fault_count, 1);
}

/* A fault without a text was only marked. */
void fault_complete(struct dicomm_comm *comm)
{
	char text[sizeof(comm->fault.text)];
	bool marked;

	snprintf(text, sizeof(text), "rank %d aborted the communicator",
		 comm->rank);
	pthread_mutex_lock(&comm->fault.lock);
	marked = fault_is(comm) && !*comm->fault.text;
	if (marked)
		keep_cause(comm, DICOMM_ERR_ABORTED, comm->rank, text);
	pthread_mutex_unlock(&comm->fault.lock);
	if (marked)
		publish(comm, DICOMM_ERR_ABORTED, comm->rank, true, NEW, text);
}

void fault_tell_abort(struct dicomm_comm *comm)
{
	char text[sizeof(comm->fault.text)];

	if (atomic_load(&comm->fault.status) != DICOMM_ERR_ABORTED ||
	    !comm->control)
		return;
	fault_text(comm, text, sizeof(text));
	control_report(comm->control, DICOMM_ERR_REMOTE, comm->rank, text);
}

void fault_share(struct dicomm_comm *comm, struct dicomm_comm *forming)
{
	if (!comm)
		return;
	if (forming)
		fault_settle(comm);
	pthread_mutex_lock(&comm->fault.lock);
	comm->fault.forming = forming;
	if (forming && fault_is(comm))
		atomic_store(&forming->cancelled, true);
	pthread_mutex_unlock(&comm->fault.lock);
}

/* Returns the peer if it has left. If peer is -1, returns any rank that has
 * left. Otherwise returns -1. If rank 0 has gone, no further news arrives, so
 * this decides by what is known now. */
static int who_left(struct dicomm_comm *comm, int peer)
{
	if (peer >= 0 && comm_has_left(comm, peer))
		return peer;
	if (peer >= 0)
		return control_gone(comm->control, 0) ? 0 : -1;
	for (int r = 0; r < comm->ranks; r++)
		if (control_gone(comm->control, r))
			return r;
	return -1;
}

/* Waits until a fault was raised, or the peer (-1: any rank) has left, for at
 * most FAULT_NEWS_MS. Returns the rank that has left, or -1. */
static int await_news(struct dicomm_comm *comm, dicomm_result_t status,
		      int peer)
{
	const struct timespec pause = {0, 1000000};
	uint64_t end = clock_ms() + FAULT_NEWS_MS;
	int left = -1;

	while (may_follow_death(status) && !fault_is(comm) &&
	       !atomic_load(&comm->fault.pending.since_ns) &&
	       clock_ms() < end && (left = who_left(comm, peer)) < 0)
		nanosleep(&pause, NULL);
	return left;
}

dicomm_result_t fault_own(struct dicomm_comm *comm, dicomm_result_t status,
			  int peer)
{
	char text[sizeof(comm->fault.text)];
	int left;

	snprintf(text, sizeof(text), "%s", log_last_error());
	left = await_news(comm, status, peer);
	if (fault_is(comm))
		return fault_report(comm);
	if (left >= 0)
		return fault_raise(comm, DICOMM_ERR_REMOTE, left, true,
				   "rank %d (%s) has left the communicator: "
				   "%.300s",
				   left, control_where(comm->control, left),
				   text);
	return raise_text(comm, status, comm->rank, true, LOGGED, text);
}

dicomm_result_t fault_own_late(struct dicomm_comm *comm, dicomm_result_t status)
{
	char text[sizeof(comm->fault.text)];

	snprintf(text, sizeof(text), "%s", log_last_error());
	return raise_text(comm, status, comm->rank, true, LOGGED, text);
}

/* Has this rank opened one? */
static bool has_transport(const struct dicomm_comm *comm)
{
	comm_each_transport (w, comm)
		return true;
	return false;
}

dicomm_result_t fault_of_init(struct dicomm_comm *comm, dicomm_result_t status)
{
	char text[sizeof(comm->fault.text)], why[sizeof(text)];

	snprintf(why, sizeof(why), "%s", log_last_error());
	/* Neighbours close their connections because of a death, too: name
	 * the rank that died rather than the neighbour. Who has opened no
	 * transport is not cut off by anybody. */
	if (comm->control && has_transport(comm))
		await_news(comm, status, -1);
	if (may_follow_death(status))
		fault_settle(comm);
	/* A fault stops transports, which then say no more than that. */
	if (fault_is(comm) &&
	    (status == DICOMM_ERR_ABORTED || may_follow_death(status)))
		return fault_report(comm);
	/* Until all ranks are connected, the text itself names the ranks
	 * concerned. */
	if (comm->control)
		snprintf(text, sizeof(text),
			 "rank %d (%s) could not join: %.450s", comm->rank,
			 control_where(comm->control, comm->rank), why);
	else
		snprintf(text, sizeof(text), "%s", why);
	raise_text(comm, status, comm->rank, true, LOGGED, text);
	return status;
}

dicomm_result_t fault_of_parent(struct dicomm_comm *comm,
				dicomm_result_t status)
{
	char why[sizeof(comm->fault.text)];

	if (!comm || status == DICOMM_SUCCESS || status == DICOMM_IN_PROGRESS)
		return status;
	snprintf(why, sizeof(why), "%s", log_last_error());
	/* Others that have heard of a death give up the new one. That may
	 * come first. */
	if (comm->control)
		await_news(comm, status, -1);
	if (may_follow_death(status))
		fault_settle(comm);
	if (fault_is(comm))
		return fault_report(comm);
	log_set_last_error(why);
	return status;
}

void fault_text(struct dicomm_comm *comm, char *text, size_t len)
{
	pthread_mutex_lock(&comm->fault.lock);
	snprintf(text, len, "%s",
		 fault_is(comm) ? comm->fault.text : comm->fault.pending.text);
	pthread_mutex_unlock(&comm->fault.lock);
}

dicomm_result_t fault_report(struct dicomm_comm *comm)
{
	char text[sizeof(comm->fault.text)];

	fault_complete(comm);
	fault_text(comm, text, sizeof(text));
	log_set_last_error(text);
	return (dicomm_result_t)atomic_load(&comm->fault.status);
}

void fault_wait(struct dicomm_comm *comm)
{
	fence_all();
	cross_progress_wait();
	while (comm_is_used(comm))
		sched_yield();
}

/* If a death is pending: this rank may be several calls behind the one that has
 * ended. The calls of a group, or those that are queued together, count as
 * one. */
bool fault_lets_begin(struct dicomm_comm *comm)
{
	struct pending_death *pending = &comm->fault.pending;

	if (fault_is(comm))
		return false;
	if (!atomic_load(&pending->since_ns) ||
	    !atomic_exchange(&pending->used, true) ||
	    data_path_queued(&comm->path) > 1 ||
	    clock_ns() - atomic_load(&pending->since_ns) < PENDING_NS)
		return true;
	return fault_settle(comm) == DICOMM_SUCCESS;
}

bool fault_lets_enter(struct data_path *p)
{
	return fault_lets_begin(
		(void *)((char *)p - offsetof(struct dicomm_comm, path)));
}

dicomm_result_t comm_check_slow(struct dicomm_comm *comm, const char *function)
{
	int state;

	TRY(comm_check_handle(comm, function));
	if (fault_is(comm))
		return fault_report(comm);
	state = atomic_load(&comm->state);
	if (state == COMM_STARTING)
		return FAIL(DICOMM_ERR_INVALID_USAGE,
			    "%s: comm is still being initialised", function);
	if (state != COMM_READY)
		return FAIL(DICOMM_ERR_INVALID_USAGE, "%s: comm was finalized",
			    function);
	return DICOMM_SUCCESS;
}
