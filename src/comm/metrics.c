/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/comm/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/descriptors.h"
#include "src/base/file_pattern.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/boot/net/loop.h"
#include "src/comm/job_info.h"
#include "src/comm/metrics_text.h"
#include "src/core/paths.h"
#include "src/core/wait_chain.h"

/* A program that names each communicator otherwise fills the file, and the
 * memory of who reads it, no further: those of more names count together. */
#define SERIES_MOST 500
#define OTHERS "(others)"

/* A communicator that is there */
struct metered {
	struct metered *next;
	struct dicomm_comm *comm;
	struct metrics_series *series;
};

/* Wakes the control thread while there are communicators. The lock of the loop
 * guards it. A child of fork() makes its own. */
struct timer {
	struct loop_source source;
	struct loop_call call;
	pid_t pid;
	bool ticks;
};

static struct timer *timer;

/* Guarded by FORK_METRICS */
static struct {
	bool opened, warned;
	char path[PATH_MAX], made[PATH_MAX + 32]; /* what becomes `path` */
	char host[HOST_NAME_MAX + 1];
	struct metered *first;
	struct metrics_series *series;
	int count; /* of series */
} out;

/* What a child of fork() has of its parent; kept for leak checkers. */
static struct metered *metered_of_parent;
static struct metrics_series *series_of_parent;

static void forked(void)
{
	metered_of_parent = out.first;
	series_of_parent = out.series;
	memset(&out, 0, sizeof(out));
}

/* ---- what a communicator has done ---- */

/* Before it is ready, the thread that sets it up changes the rest. */
static void count_transports(struct dicomm_comm *comm, struct metrics_counts *c)
{
	if (atomic_load(&comm->state) == COMM_STARTING)
		return;
	comm_count_peers(comm, c->peers);
	comm_each_transport (w, comm) {
		size_t i = (size_t)(w - comm->transports);

		c->has_peers |= 1u << i;
		if (!w->transport->retransmits)
			continue;
		c->has_retransmits |= 1u << i;
		c->retransmits[i] = w->transport->retransmits(w->device);
	}
}

static void count(struct dicomm_comm *comm, struct metrics_counts *c)
{
	struct wait_note note;
	dicomm_stats_t s;

	comm_counters(comm, &s);
	*c = (struct metrics_counts){
		.operations = s.operations,
		.messages_sent = s.messages_sent,
		.messages_received = s.messages_received,
		.sent_bytes = s.bytes_sent,
		.received_bytes = s.bytes_received,
		.staged_bytes = s.bytes_staged,
		.faults = fault_is(comm),
		.communicators = 1,
	};
	if (job_info_find_wait(comm, &note))
		c->waiting_ms = note.waited_ms;
	count_transports(comm, c);
}

static void add_up(struct metrics_counts *sum, const struct metrics_counts *c)
{
	sum->operations += c->operations;
	sum->messages_sent += c->messages_sent;
	sum->messages_received += c->messages_received;
	sum->sent_bytes += c->sent_bytes;
	sum->received_bytes += c->received_bytes;
	sum->staged_bytes += c->staged_bytes;
	sum->faults += c->faults;
	sum->communicators += c->communicators;
	if (sum->waiting_ms < c->waiting_ms)
		sum->waiting_ms = c->waiting_ms;
	for (size_t i = 0; i < TP_TRANSPORTS; i++) {
		sum->retransmits[i] += c->retransmits[i];
		sum->peers[i] += c->peers[i];
	}
	sum->has_retransmits |= c->has_retransmits;
	sum->has_peers |= c->has_peers;
}

static void add_up_ended(struct metrics_counts *sum, struct metrics_counts *c)
{
	c->communicators = c->waiting_ms = c->has_peers = 0;
	memset(c->peers, 0, sizeof(c->peers));
	add_up(sum, c);
}

static void count_all(void)
{
	struct metrics_counts c;

	for (struct metrics_series *s = out.series; s; s = s->next)
		s->now = s->ended;
	for (struct metered *m = out.first; m; m = m->next) {
		count(m->comm, &c);
		add_up(&m->series->now, &c);
	}
}

/* ---- the file ---- */

/* Each process needs a file of its own. */
static bool make_path(const struct dicomm_comm *comm, const char *host)
{
	const char *given = config_string(CONFIG_METRICS);
	bool own = strstr(given, "%p") || strstr(given, "%r");
	char pattern[PATH_MAX];
	int n = snprintf(pattern, sizeof(pattern), "%s%s", given,
			 own ? "" : ".%h.%p.prom");

	if ((size_t)n >= sizeof(pattern) ||
	    !file_pattern_expand(pattern, host, comm->rank, out.path,
				 sizeof(out.path)))
		return false;
	snprintf(out.made, sizeof(out.made), "%s.%d.tmp", out.path,
		 (int)getpid());
	return true;
}

static void open_once(const struct dicomm_comm *comm)
{
	char host[HOST_NAME_MAX + 1] = "host";

	if (out.opened)
		return;
	out.opened = true;
	gethostname(host, sizeof(host) - 1);
	metrics_text_copy(out.host, sizeof(out.host), host);
	host[strcspn(host, ".")] = '\0';
	if (!make_path(comm, host))
		out.path[0] = '\0';
}

/* Its name can be foreseen, and what is there may be another user's. What a
 * killed process has left goes. The exporter is another user, so the file is
 * for all, unless the umask says otherwise. */
static int make_file(void)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = descriptors_high(open(out.made, flags, 0644));

	if (fd < 0 && errno == EEXIST && !unlink(out.made))
		fd = descriptors_high(open(out.made, flags, 0644));
	return fd;
}

/* Returns 0 or an errno. */
static int fill(FILE *f)
{
	bool bad;

	count_all();
	errno = 0;
	metrics_text_write(f, out.series, out.host);
	bad = ferror(f);
	if (fclose(f) || bad)
		return errno ? errno : EIO;
	return rename(out.made, out.path) ? errno : 0;
}

/* With the lock. Returns 0 or an errno. */
static int write_file(void)
{
	int fd, error;
	FILE *f;

	if (!*out.path)
		return ENAMETOOLONG;
	fd = make_file();
	if (fd < 0)
		return errno;
	f = fdopen(fd, "w");
	if (!f)
		close(fd);
	error = f ? fill(f) : ENOMEM;
	if (error)
		unlink(out.made);
	return error;
}

/* Releases the lock. A log line is only written without it. */
static void write_and_unlock(void)
{
	int error = write_file();
	bool told = out.warned;

	out.warned |= error != 0;
	fork_unlock(FORK_METRICS);
	if (error && !told)
		log_warn("DICOMM_METRICS %s: %s: %s; no metrics are written",
			 config_string(CONFIG_METRICS), out.path,
			 strerror(error));
}

/* ---- the timer ---- */

static void tick(bool on)
{
	struct itimerspec every = {{0, 0}, {0, 0}};

	if (on)
		every.it_value.tv_sec = every.it_interval.tv_sec = METRICS_S;
	timerfd_settime(timer->source.fd, 0, &every, NULL);
	timer->ticks = on;
}

/* A file may take long to write, and ranks want to be answered meanwhile. */
static void write_now(struct loop_call *call)
{
	(void)call;
	loop_unlock();
	fork_lock(FORK_METRICS);
	write_and_unlock();
	loop_lock();
}

static void ready(struct loop_source *s, uint32_t events)
{
	uint64_t times;
	bool there;

	(void)events;
	if (read(s->fd, &times, sizeof(times)) != sizeof(times))
		return;
	/* Who has the lock writes the file just now. */
	if (pthread_mutex_trylock(&fork_locks[FORK_METRICS]))
		return;
	there = out.first != NULL;
	if (!there)
		tick(false);
	fork_unlock(FORK_METRICS);
	if (there)
		loop_post(&((struct timer *)s)->call);
}

static void released(struct loop_source *s)
{
	if ((struct timer *)s == timer)
		timer = NULL;
	free(s);
}

/* With the lock of the loop */
static void open_timer(void)
{
	struct timer *t = calloc(1, sizeof(*t));

	if (!t)
		return;
	t->pid = getpid();
	t->call.run = write_now;
	t->source = (struct loop_source){
		.fd = descriptors_high(timerfd_create(
			CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
		.ready = ready,
		.released = released};
	if (t->source.fd < 0) {
		log_info("DICOMM_METRICS: timer: %m");
		free(t);
		return;
	}
	timer = t;
	loop_add(&t->source);
	if (loop_watch(&t->source, EPOLLIN) != DICOMM_SUCCESS)
		loop_drop(&t->source);
}

/* Without it, the file is written when communicators end. */
static void start_timer(void)
{
	log_demote(true);
	if (loop_start() == DICOMM_SUCCESS) {
		loop_lock();
		if (!timer || timer->pid != getpid())
			open_timer();
		if (timer && timer->source.fd >= 0 && !timer->ticks)
			tick(true);
		loop_unlock();
	}
	log_demote(false);
}

/* ---- communicators ---- */

/* NULL: out of memory */
static struct metrics_series *find_series(const char *name, int rank)
{
	struct metrics_series *s = out.series;

	while (s && (s->rank != rank || strcmp(s->name, name)))
		s = s->next;
	if (s)
		return s;
	if (out.count >= SERIES_MOST && strcmp(name, OTHERS))
		return find_series(OTHERS, -1);
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->rank = rank;
	s->next = out.series;
	out.series = s;
	out.count++;
	return s;
}

/* With the lock */
static bool add(struct dicomm_comm *comm)
{
	struct metered *m = malloc(sizeof(*m));
	char name[COMM_NAME_BYTES];

	metrics_text_copy(name, sizeof(name), comm->name);
	if (!m)
		return false;
	m->comm = comm;
	m->series = find_series(name, comm->rank);
	if (!m->series) {
		free(m);
		return false;
	}
	m->next = out.first;
	out.first = m;
	return true;
}

void metrics_add(struct dicomm_comm *comm)
{
	if (!*config_string(CONFIG_METRICS))
		return;
	fork_add(FORK_METRICS, forked);
	fork_lock(FORK_METRICS);
	open_once(comm);
	if (add(comm)) {
		write_and_unlock();
		start_timer();
		return;
	}
	fork_unlock(FORK_METRICS);
	log_info("DICOMM_METRICS: no memory for %s rank %d", comm->name,
		 comm->rank);
}

void metrics_remove(struct dicomm_comm *comm)
{
	struct metered **at = &out.first, *m;
	struct metrics_counts c;

	if (!*config_string(CONFIG_METRICS))
		return;
	fork_lock(FORK_METRICS);
	while (*at && (*at)->comm != comm)
		at = &(*at)->next;
	m = *at;
	if (!m) {
		fork_unlock(FORK_METRICS);
		return;
	}
	count(comm, &c);
	add_up_ended(&m->series->ended, &c);
	*at = m->next;
	free(m);
	write_and_unlock();
}
