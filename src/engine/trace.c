/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/engine/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/file_pattern.h"
#include "src/base/fork.h"
#include "src/base/json_writer.h"
#include "src/base/log.h"
#include "src/core/fault.h"
#include "src/core/member.h"
#include "src/core/operation.h"
#include "src/engine/prepared.h"
#include "src/engine/profiler.h"

#define FILE_BYTES (1 << 16) /* of events that are not in the file yet */
/* An event is longer only with the peers of hundreds of ranks, of which the
 * last ones are left out then. */
#define EVENT_BYTES (1 << 14)
#define PEERS_BYTES (1 << 13)
#define FLUSH_NS UINT64_C(500000000) /* what a killed process may lose */
#define DAY_NS UINT64_C(86400000000000)

/* A row of the viewer, in which events may not overlap. Operations of a
 * communicator that are under way together take several. */
#define LANES 64

struct trace_lanes {
	int first; /* number of the first row */
	struct {
		uint64_t end_ns;
		bool named;
	} lane[LANES];
};

_Atomic bool trace_on;
static _Atomic bool ranges; /* a profiler is told */

/* Guarded by FORK_TRACE */
static struct {
	bool opened; /* or tried to */
	bool on;
	int fd;
	int communicators;
	uint64_t flushed_ns;
	/* From the monotonic clock to the time of day, and the latter at the
	 * last midnight of UTC: times count from there, since viewers keep
	 * microseconds as doubles. */
	uint64_t offset_ns, midnight_ns;
	char text[FILE_BYTES];
	size_t n;
} out = {.fd = -1};

static void forked(void)
{
	if (out.fd >= 0)
		close(out.fd);
	out.fd = -1;
	out.n = 0;
	out.on = false;
	ranges = false;
	trace_on = false;
}

/* Returns 0 or an errno. */
static int write_all(void)
{
	size_t done = 0;

	while (done < out.n) {
		ssize_t n = write(out.fd, out.text + done, out.n - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		done += (size_t)n;
	}
	out.n = 0;
	out.flushed_ns = clock_ns();
	return 0;
}

/* Releases the lock. A log line is only written without it. */
static void unlock(int error)
{
	if (error) {
		out.on = false;
		trace_on = ranges;
	}
	fork_unlock(FORK_TRACE);
	if (error)
		log_warn("DICOMM_TRACE: write: %s; the trace ends here",
			 strerror(error));
}

static void flush(void)
{
	fork_lock(FORK_TRACE);
	unlock(out.on ? write_all() : 0);
}

/* ---- one event after the other ---- */

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put_us(struct json_writer *j, const char *key, uint64_t ns)
{
	json_put(j, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000,
		 (unsigned)(ns % 1000));
}

/* With the lock. An event for which there is no room is left out. */
static void add(const struct json_writer *j, int *error)
{
	if (j->full || *error)
		return;
	if (out.n + j->n > sizeof(out.text))
		*error = write_all();
	if (*error)
		return;
	memcpy(out.text + out.n, j->text, j->n);
	out.n += j->n;
}

static void put_head(struct json_writer *j, const char *phase, const char *name)
{
	json_put(j, "{\"ph\":\"%s\",", phase);
	json_put_string(j, "name", name);
	json_put(j, ",\"pid\":%d", (int)getpid());
}

/* Says what a row shows. */
static void name_row(const struct dicomm_comm *comm, int lane, int *error)
{
	char text[1024], name[COMM_NAME_BYTES + 64];
	struct json_writer j = {.text = text, .room = sizeof(text)};

	snprintf(name, sizeof(name), "%s: rank %d of %d", comm->name,
		 comm->rank, comm->ranks);
	put_head(&j, "M", "thread_name");
	json_put(&j, ",\"tid\":%d,\"args\":{", comm->trace->first + lane);
	json_put_string(&j, "name", name);
	json_put(&j, "}},\n");
	add(&j, error);
}

static void name_process(const char *host, int *error)
{
	char text[1024], name[HOST_NAME_MAX + 128];
	struct json_writer j = {.text = text, .room = sizeof(text)};

	snprintf(name, sizeof(name), "%s:%d %.64s", host, (int)getpid(),
		 program_invocation_short_name);
	json_put(&j, "[\n");
	put_head(&j, "M", "process_name");
	json_put(&j, ",\"args\":{");
	json_put_string(&j, "name", name);
	json_put(&j, "}},\n");
	put_head(&j, "M", "dicomm_midnight");
	json_put(&j, ",\"args\":{\"ns\":%" PRIu64 "}},\n", out.midnight_ns);
	add(&j, error);
}

/* ---- an operation ---- */

static void put_peers(struct json_writer *j, const struct prepared *prep)
{
	size_t most = j->n + PEERS_BYTES;

	json_put(j, ",\"peers\":[");
	for (uint32_t i = 0; i < prep->npairs && j->n < most; i++)
		json_put(j,
			 "%s{\"rank\":%d,\"sent\":%" PRIu64
			 ",\"received\":%" PRIu64 "}",
			 i ? "," : "", prep->pairs[i].peer->rank,
			 prep->pairs[i].out * prep->slices,
			 prep->pairs[i].in * prep->slices);
	json_put(j, "]");
}

static uint64_t call_bytes(const struct operation *op)
{
	return op->call.count * call_elem_bytes(&op->call);
}

static void put_args(struct json_writer *j, struct operation *op,
		     uint64_t begun_ns)
{
	struct dicomm_comm *comm = op->comm;
	char text[sizeof(comm->fault.text)];

	call_text(&op->call, text, sizeof(text));
	json_put(j, ",\"args\":{");
	json_put_string(j, "call", text);
	json_put(j, ",\"comm\":\"%016" PRIx64 "\"", comm->members[0].fresh);
	json_put_number(j, "rank", (uint64_t)comm->rank);
	json_put_number(j, "number", op->number);
	json_put_number(j, "bytes", call_bytes(op));
	put_us(j, "queued_us", begun_ns - op->trace.queued_ns);
	if (op->prep && op->prep->algorithm) {
		json_put(j, ",");
		json_put_string(j, "algorithm", op->prep->algorithm->name);
	}
	if (op->prep)
		put_peers(j, op->prep);
	else if (op->call.root >= 0)
		json_put_number(j, "peer", (uint64_t)op->call.root);
	if (fault_is(comm)) {
		fault_text(comm, text, sizeof(text));
		json_put(j, ",");
		json_put_string(j, "error", text);
	}
	json_put(j, "}");
}

/* Returns the first row in which the operation overlaps none. */
static int lane_of(struct trace_lanes *t, uint64_t begun_ns, uint64_t end_ns)
{
	int i = 0;

	while (i < LANES - 1 && t->lane[i].end_ns > begun_ns)
		i++;
	if (t->lane[i].end_ns < end_ns)
		t->lane[i].end_ns = end_ns;
	return i;
}

static void write_event(struct operation *op, uint64_t begun_ns,
			uint64_t end_ns, int *error)
{
	struct trace_lanes *t = op->comm->trace;
	int lane = lane_of(t, begun_ns, end_ns);
	char text[EVENT_BYTES];
	struct json_writer j = {.text = text, .room = sizeof(text)};

	if (!t->lane[lane].named)
		name_row(op->comm, lane, error);
	t->lane[lane].named = true;
	put_head(&j, "X", call_name(op->call.function));
	json_put(&j, ",\"cat\":\"dicomm\",\"tid\":%d", t->first + lane);
	put_us(&j, "ts", begun_ns + out.offset_ns - out.midnight_ns);
	put_us(&j, "dur", end_ns - begun_ns);
	put_args(&j, op, begun_ns);
	json_put(&j, "},\n");
	add(&j, error);
	if (!*error && clock_ns() - out.flushed_ns > FLUSH_NS)
		*error = write_all();
}

void trace_queued(struct operation *op)
{
	op->trace.queued_ns = clock_ns();
	op->trace.begun_ns = 0;
	op->trace.has_range = ranges;
	if (op->trace.has_range)
		op->trace.range = profiler_range_begin(
			call_name(op->call.function), call_bytes(op));
}

void trace_begun(struct operation *op)
{
	op->trace.begun_ns = clock_ns();
}

void trace_ended(struct operation *op)
{
	uint64_t begun_ns = op->trace.begun_ns;
	int error = 0;

	if (op->trace.has_range)
		profiler_range_end(op->trace.range);
	op->trace.has_range = false;
	/* It was refused, or made before the trace began. */
	if (!op->trace.queued_ns || !op->comm->trace)
		return;
	if (!begun_ns)
		begun_ns = op->trace.queued_ns;
	fork_lock(FORK_TRACE);
	if (out.on)
		write_event(op, begun_ns, clock_ns(), &error);
	unlock(error);
	op->trace.queued_ns = 0;
}

/* ---- the file ---- */

/* Each process needs a file of its own. */
static bool make_path(char *path, size_t room, const char *host)
{
	const char *given = config_string(CONFIG_TRACE);
	char pattern[PATH_MAX];
	int n = snprintf(pattern, sizeof(pattern), "%s%s", given,
			 strstr(given, "%p") ? "" : ".%h.%p.json");

	return (size_t)n < sizeof(pattern) &&
	       file_pattern_expand(pattern, host, -1, path, room);
}

/* With the lock. Returns 0 or an errno. */
static int open_file(char *path, size_t room)
{
	char host[HOST_NAME_MAX + 1] = "host";
	int error = 0;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	if (!make_path(path, room, host))
		return ENAMETOOLONG;
	/* In a directory like /tmp, its name can be foreseen, and a link there
	 * may be another user's. */
	out.fd = descriptors_high(open(
		path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		0600));
	if (out.fd < 0)
		return errno;
	out.offset_ns = real_ns() - clock_ns();
	out.midnight_ns = real_ns() / DAY_NS * DAY_NS;
	name_process(host, &error);
	if (!error)
		error = write_all();
	return error;
}

static void open_once(void)
{
	char path[PATH_MAX] = "";
	int error = 0;
	bool first;

	fork_lock(FORK_TRACE);
	first = !out.opened;
	out.opened = true;
	if (first) {
		error = open_file(path, sizeof(path));
		out.on = !error;
	}
	if (out.on)
		trace_on = true;
	fork_unlock(FORK_TRACE);
	if (error)
		log_warn("DICOMM_TRACE %s: %s: %s; nothing is traced",
			 config_string(CONFIG_TRACE), path, strerror(error));
	else if (first)
		atexit(flush);
}

dicomm_result_t trace_open(struct dicomm_comm *comm)
{
	bool file = *config_string(CONFIG_TRACE);

	fork_add(FORK_TRACE, forked);
	if (profiler_open()) {
		ranges = true;
		trace_on = true;
	}
	if (!file)
		return DICOMM_SUCCESS;
	open_once();
	comm->trace = calloc(1, sizeof(*comm->trace));
	if (!comm->trace)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: no memory for the trace");
	fork_lock(FORK_TRACE);
	comm->trace->first = LANES * out.communicators++;
	fork_unlock(FORK_TRACE);
	return DICOMM_SUCCESS;
}

void trace_close(struct dicomm_comm *comm)
{
	if (!comm->trace)
		return;
	flush();
	free(comm->trace);
	comm->trace = NULL;
}
