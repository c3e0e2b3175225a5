/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/comm/job_info.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

#include "src/base/fork.h"
#include "src/base/json_writer.h"
#include "src/boot/control/control.h"
#include "src/boot/control/job_port.h"
#include "src/boot/net/inquiry.h"
#include "src/core/comm.h"
#include "src/core/fault.h"
#include "src/core/member.h"
#include "src/core/wait_chain.h"

/* Of the ranks that have left or died, so many are named. */
#define GONE_NAMED 16

static struct dicomm_comm *first; /* guarded by FORK_JOB_INFO */

void job_info_add(struct dicomm_comm *comm)
{
	fork_lock(FORK_JOB_INFO);
	comm->in_job.next = first;
	comm->in_job.link = &first;
	if (first)
		first->in_job.link = &comm->in_job.next;
	first = comm;
	fork_unlock(FORK_JOB_INFO);
}

void job_info_remove(struct dicomm_comm *comm)
{
	fork_lock(FORK_JOB_INFO);
	if (comm->in_job.link) {
		*comm->in_job.link = comm->in_job.next;
		if (comm->in_job.next)
			comm->in_job.next->in_job.link = comm->in_job.link;
	}
	comm->in_job.link = NULL;
	fork_unlock(FORK_JOB_INFO);
}

/* ---- a communicator ---- */

static const char *state_name(struct dicomm_comm *comm, int state)
{
	if (fault_is(comm))
		return "failed";
	switch (state) {
	case COMM_STARTING:
		return "starting";
	case COMM_READY:
		return "ready";
	case COMM_FINALIZING:
		return "finalizing";
	default:
		return "finalized";
	}
}

/* Why it has failed; or which death it may fail of. */
static void put_reason(struct json_writer *j, struct dicomm_comm *comm)
{
	char text[sizeof(comm->fault.text)];

	if (!fault_is(comm) && !fault_is_pending(comm))
		return;
	fault_text(comm, text, sizeof(text));
	json_put(j, ",");
	json_put_string(j, "reason", text);
}

static void put_call(struct json_writer *j, uint64_t number, uint64_t what,
		     uint64_t count)
{
	char text[160];

	call_logged_text(what, count, text, sizeof(text));
	json_put_string(j, "operation", call_name(call_logged_function(what)));
	json_put(j, ",");
	json_put_string(j, "call", text);
	json_put(j, ",\"collective\":%s",
		 call_logged_function(what) < COLL_KINDS ? "true" : "false");
	json_put_number(j, "number", number);
	json_put_number(j, "bytes", call_logged_bytes(what, count));
}

static void put_rank(struct json_writer *j, struct dicomm_comm *comm, int rank)
{
	json_put(j, "\"rank\":%d,", rank);
	json_put_string(j, "where", control_where(comm->control, rank));
}

static unsigned under_way(struct dicomm_comm *comm)
{
	unsigned n =
		atomic_load_explicit(&comm->under_way, memory_order_relaxed);

	/* A call on the fast path is none of the engine's. */
	if (!n && data_path_is_entered(&comm->path))
		return 1;
	return n;
}

/* A note holds a little longer than its wait: it is of no use once its call has
 * ended. Collectives under way are the latest ones. */
bool job_info_find_wait(struct dicomm_comm *comm, struct wait_note *note)
{
	uint64_t what, count;
	uint64_t latest =
		call_log_latest(&comm->logs.collective, &what, &count);

	if (!comm_is_used(comm) || !wait_chain_read(comm, note))
		return false;
	return call_logged_function(note->what) >= COLL_KINDS ||
	       note->number + under_way(comm) >= latest;
}

static void put_calls(struct json_writer *j, struct dicomm_comm *comm)
{
	uint64_t what, count;
	uint64_t latest =
		call_log_latest(&comm->logs.collective, &what, &count);
	struct wait_note note;

	if (latest) {
		json_put(j, ",\"last_collective\":{");
		put_call(j, latest, what, count);
		json_put(j, "}");
	}
	if (!job_info_find_wait(comm, &note))
		return;
	json_put(j, ",\"wait\":{");
	put_call(j, note.number, note.what, note.count);
	json_put_number(j, "ms", note.waited_ms);
	if (note.peer >= 0) {
		json_put(j, ",\"for\":{");
		put_rank(j, comm, note.peer);
		json_put(j, "}");
	}
	json_put(j, "}");
}

/* If a transport counts them */
static void put_retransmits(struct json_writer *j, struct dicomm_comm *comm)
{
	uint64_t n = 0;
	bool known = false;

	comm_each_transport (w, comm) {
		if (!w->transport->retransmits)
			continue;
		n += w->transport->retransmits(w->device);
		known = true;
	}
	if (known)
		json_put_number(j, "retransmits", n);
}

static void put_counters(struct json_writer *j, struct dicomm_comm *comm)
{
	unsigned n = under_way(comm);
	dicomm_stats_t s;

	comm_counters(comm, &s);
	json_put_number(j, "begun", s.operations);
	json_put_number(j, "ended", s.operations > n ? s.operations - n : 0);
	json_put_number(j, "queued", data_path_queued(&comm->path));
	json_put_number(j, "bytes_sent", s.bytes_sent);
	json_put_number(j, "bytes_received", s.bytes_received);
	json_put_number(j, "bytes_staged", s.bytes_staged);
	put_retransmits(j, comm);
}

static void put_gone(struct json_writer *j, struct dicomm_comm *comm)
{
	int n = 0;

	json_put(j, ",\"gone\":[");
	for (int r = 0; r < comm->ranks; r++) {
		if (!control_gone(comm->control, r) || n++ >= GONE_NAMED)
			continue;
		json_put(j, n > 1 ? ",{" : "{");
		put_rank(j, comm, r);
		json_put(j, "}");
	}
	json_put(j, "],\"gone_ranks\":%d", n);
}

/* Before it is ready, the thread that sets it up changes the rest. */
static void put_comm(struct json_writer *j, struct dicomm_comm *comm)
{
	int state = atomic_load(&comm->state);

	json_put(j, "{");
	json_put_string(j, "name", comm->name);
	json_put(j, ",\"rank\":%d,\"ranks\":%d,", comm->rank, comm->ranks);
	json_put_string(j, "device", comm->device);
	json_put(j, ",");
	json_put_string(j, "state", state_name(comm, state));
	put_reason(j, comm);
	if (state != COMM_STARTING) {
		json_put(j, ",\"hash\":\"%016" PRIx64 "\",",
			 comm->members[0].fresh);
		json_put_string(j, "where",
				control_where(comm->control, comm->rank));
		put_counters(j, comm);
		put_calls(j, comm);
		put_gone(j, comm);
	}
	json_put(j, "}");
}

/* ---- the process ---- */

#define END_BYTES 32 /* room for what ends the answer */

/* Adds a communicator if there is room for it. */
static void tell(struct json_writer *j, struct dicomm_comm *comm, int *told)
{
	size_t before = j->n;

	if (*told)
		json_put_char(j, ',');
	put_comm(j, comm);
	if (j->full)
		j->n = before;
	else
		++*told;
	comm->in_job.told = !j->full;
	j->full = false;
}

/* First those in a call and those that have failed, since there may not be room
 * for all. Returns how many are left out. */
static int tell_all(struct json_writer *j)
{
	int told = 0, n = 0;

	for (struct dicomm_comm *c = first; c; c = c->in_job.next) {
		c->in_job.told = false;
		if (comm_is_child(c))
			continue;
		n++;
		if (comm_is_used(c) || fault_is(c))
			tell(j, c, &told);
	}
	for (struct dicomm_comm *c = first; c; c = c->in_job.next)
		if (!comm_is_child(c) && !c->in_job.told)
			tell(j, c, &told);
	return n - told;
}

static size_t answer(char *text, size_t room)
{
	struct json_writer j = {.text = text, .room = room - END_BYTES};
	char host[HOST_NAME_MAX + 1] = "";
	int left_out;

	gethostname(host, sizeof(host) - 1);
	json_put(&j, "{\"format\":1,\"version\":%d,\"pid\":%d,", DICOMM_VERSION,
		 (int)getpid());
	json_put_string(&j, "program", program_invocation_short_name);
	json_put(&j, ",");
	json_put_string(&j, "host", host);
	if (job_port_address()) {
		json_put(&j, ",");
		json_put_string(&j, "port", job_port_address());
	}
	json_put(&j, ",\"comms\":[");
	fork_lock(FORK_JOB_INFO);
	left_out = tell_all(&j);
	fork_unlock(FORK_JOB_INFO);
	j.room = room;
	json_put(&j, "],\"left_out\":%d}\n", left_out);
	return j.n;
}

void job_info_open(void)
{
	inquiry_open(answer);
}
