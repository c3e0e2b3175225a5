/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/job/ask.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "perftest/base/clock.h"
#include "perftest/base/utf8.h"

#define PREFIX "dicomm-job/"
#define THREAD "dicomm-control" /* each process with a communicator has it */
#define ACCEPTS 0x10000u        /* in /proc/net/unix: it listens */
#define ANSWER_BYTES (1u << 20) /* more is none of the library's */
#define ANSWER_S 2
#define RETRY_MS 20

/* A process that is asked. */
struct asked {
	struct sockaddr_un at;
	socklen_t len;
	int fd;
	pid_t pid;       /* as this process sees it; 0: it does not */
	pid_t own_pid;   /* as it sees itself */
	const char *why; /* there is no answer */
	char *text;
	size_t n;
};

struct round {
	pid_t pid; /* of the process to ask; 0: all */
	uid_t uid;
	struct asked *all;
	size_t n;
};

/* ---- /proc ---- */

/* Finds the line of a file of a process that begins with `key`, and what is
 * behind it. */
static bool read_proc(pid_t pid, const char *file, const char *key, char *rest,
		      size_t len)
{
	char path[64], line[256];
	size_t n = strlen(key);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		found = !strncmp(line, key, n);
		line[strcspn(line, "\n")] = '\0';
		if (found)
			snprintf(rest, len, "%s", line + n);
	}
	if (f)
		fclose(f);
	return found;
}

/* The user that the process acts as */
static bool user_of(pid_t pid, uid_t *uid)
{
	char ids[128];
	unsigned effective;

	if (!read_proc(pid, "status", "Uid:", ids, sizeof(ids)) ||
	    sscanf(ids, "%*u %u", &effective) != 1)
		return false;
	*uid = effective;
	return true;
}

static bool has_thread(pid_t pid)
{
	char path[64], file[300], name[64];
	bool found = false;
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !found && (e = readdir(dir))) {
		snprintf(file, sizeof(file), "task/%s/comm", e->d_name);
		found = isdigit((unsigned char)*e->d_name) &&
			read_proc(pid, file, "", name, sizeof(name)) &&
			!strcmp(name, THREAD);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Returns false if both are in one, or nothing can be said. */
static bool is_in_another(pid_t pid, const char *namespace)
{
	char path[64], own[64], mine[64], theirs[64];
	ssize_t n, m;

	snprintf(own, sizeof(own), "/proc/self/ns/%s", namespace);
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, namespace);
	n = readlink(own, mine, sizeof(mine));
	m = readlink(path, theirs, sizeof(theirs));
	return n > 0 && m > 0 && (n != m || memcmp(mine, theirs, (size_t)n));
}

static void add_silent(json_t *silent, pid_t pid, const char *why)
{
	char path[256] = "", *name;

	read_proc(pid, "cmdline", "", path, sizeof(path));
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	json_array_append_new(silent, json_pack("{s:i, s:o, s:s}", "pid",
						(int)pid, "program",
						utf8_string(name), "why", why));
}

/* ---- the sockets ---- */

/* Takes the name of a socket from a line of /proc/net/unix. */
static bool parse_line(struct round *r, char *line)
{
	char *name = strstr(line, " @" PREFIX);
	unsigned flags, uid;
	int pid;
	struct asked *more;
	size_t len;

	if (!name || sscanf(line, "%*s %*s %*s %x", &flags) != 1 ||
	    !(flags & ACCEPTS) ||
	    sscanf(name, " @" PREFIX "%u/%d/", &uid, &pid) != 2 ||
	    uid != r->uid)
		return true;
	name += 2;
	name[strcspn(name, " \n")] = '\0';
	len = strlen(name);
	if (len >= sizeof(more->at.sun_path))
		return true;
	more = realloc(r->all, (r->n + 1) * sizeof(*more));
	if (!more)
		return false;
	r->all = more;
	more += r->n++;
	*more = (struct asked){
		.at = {.sun_family = AF_UNIX}, .fd = -1, .own_pid = pid};
	memcpy(more->at.sun_path + 1, name, len);
	more->len =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
	return true;
}

static bool find_sockets(struct round *r)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	bool ok = true;

	if (!f) {
		fprintf(stderr, "dicomm-info: --job: /proc/net/unix: %s\n",
			strerror(errno));
		return false;
	}
	while (ok && fgets(line, sizeof(line), f))
		ok = parse_line(r, line);
	fclose(f);
	if (!ok)
		fprintf(stderr, "dicomm-info: --job: out of memory\n");
	return ok;
}

static void end(struct asked *a, const char *why)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->why = why;
}

/* Somebody else may have taken a name of this form. */
static void check_owner(const struct round *r, struct asked *a)
{
	struct ucred who = {.pid = 0};
	socklen_t len = sizeof(who);

	if (getsockopt(a->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
	    who.uid != r->uid || (r->pid && who.pid != r->pid))
		end(a, "");
	a->pid = who.pid;
}

/* Returns true if it is to be tried again. */
static bool connect_to(const struct round *r, struct asked *a)
{
	if (a->fd < 0)
		a->fd = socket(AF_UNIX,
			       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0) {
		end(a, strerror(errno));
	} else if (!connect(a->fd, (struct sockaddr *)&a->at, a->len)) {
		check_owner(r, a);
	} else if (errno == EAGAIN) {
		return true;
	} else {
		end(a, ""); /* it has ended */
	}
	return false;
}

static void take(struct asked *a)
{
	char *more = realloc(a->text, a->n + 65536);
	ssize_t n;

	if (!more || a->n > ANSWER_BYTES) {
		end(a, "its answer is too long");
		return;
	}
	a->text = more;
	n = recv(a->fd, a->text + a->n, 65536, MSG_DONTWAIT);
	if (n > 0)
		a->n += (size_t)n;
	else if (n == 0)
		end(a, a->n ? NULL : "it does not tell this user");
	else if (errno != EAGAIN && errno != EINTR)
		end(a, "it does not tell this user");
}

/* "": it has ended, and a child of it has a copy of the socket. */
static const char *why_no_answer(pid_t pid)
{
	char state[64] = "Z";

	if (pid && (!read_proc(pid, "status", "State:", state, sizeof(state)) ||
		    strchr(state, 'Z')))
		return "";
	if (strstr(state, "T ") || strstr(state, "t "))
		return "it is stopped";
	return "no answer in 2 s";
}

/* It may not even accept: so many have asked before. Then only the name tells
 * which process it is. */
static void give_up(const struct round *r, struct asked *a)
{
	if (!a->pid)
		a->pid = a->own_pid;
	end(a, r->pid && a->pid != r->pid ? "" : why_no_answer(a->pid));
}

/* All at once: one that is stopped holds up nobody. */
static void talk(struct round *r)
{
	struct pollfd *polls = calloc(r->n ? r->n : 1, sizeof(*polls));
	bool *pending = calloc(r->n ? r->n : 1, sizeof(*pending));
	double until = clock_s() + ANSWER_S;
	size_t left = r->n;

	for (size_t i = 0; pending && i < r->n; i++)
		pending[i] = true;
	while (polls && pending && left && clock_s() < until) {
		left = 0;
		for (size_t i = 0; i < r->n; i++) {
			struct asked *a = &r->all[i];

			if (pending[i])
				pending[i] = connect_to(r, a);
			polls[i] =
				(struct pollfd){.fd = pending[i] ? -1 : a->fd,
						.events = POLLIN};
			left += a->fd >= 0;
		}
		if (left)
			poll(polls, r->n, RETRY_MS);
		for (size_t i = 0; i < r->n; i++)
			if (!pending[i] && r->all[i].fd >= 0 &&
			    polls[i].revents)
				take(&r->all[i]);
	}
	for (size_t i = 0; i < r->n; i++)
		if (r->all[i].fd >= 0)
			give_up(r, &r->all[i]);
	free(polls);
	free(pending);
}

/* ---- the answers ---- */

json_t *ask_read(char *text, size_t len)
{
	json_t *answer = json_loadb(text, len, 0, NULL);

	if (answer)
		return answer;
	utf8_replace(text, len);
	return json_loadb(text, len, 0, NULL);
}

static bool was_asked(const struct round *r, pid_t pid)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->all[i].pid == pid)
			return true;
	return false;
}

static void collect(struct round *r, json_t *answers, json_t *silent)
{
	for (size_t i = 0; i < r->n; i++) {
		struct asked *a = &r->all[i];
		json_t *answer = a->why ? NULL : ask_read(a->text, a->n);

		if (answer) {
			json_object_set_new(answer, "pid",
					    json_integer(a->pid));
			json_array_append_new(answers, answer);
		} else if (!a->why || *a->why) {
			add_silent(silent, a->pid,
				   a->why ? a->why : "its answer is not JSON");
		}
		free(a->text);
	}
}

/* A process that has communicators, but no socket that leads to it. */
static void look_at(const struct round *r, pid_t pid, json_t *silent)
{
	uid_t uid;

	if (was_asked(r, pid) || (r->pid && r->pid != pid) ||
	    !user_of(pid, &uid) || uid != r->uid || !has_thread(pid))
		return;
	add_silent(silent, pid,
		   is_in_another(pid, "net")
			   ? "it is in another network namespace: ask from "
			     "there (nsenter --net)"
			   : "it does not tell (no communicator, "
			     "DICOMM_JOB_INFO=off, or an older library)");
}

static void find_others(const struct round *r, json_t *silent)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (isdigit((unsigned char)*e->d_name))
			look_at(r, (pid_t)atoi(e->d_name), silent);
	if (dir)
		closedir(dir);
}

bool ask_all(pid_t pid, json_t *answers, json_t *silent)
{
	struct round r = {.pid = pid, .uid = geteuid()};
	bool ok;

	if (pid && !user_of(pid, &r.uid)) {
		fprintf(stderr, "dicomm-info: --job %d: no such process\n",
			(int)pid);
		return false;
	}
	if (r.uid != geteuid() && geteuid() != 0) {
		fprintf(stderr,
			"dicomm-info: --job %d: it belongs to user %u: only "
			"that user and root may ask\n",
			(int)pid, r.uid);
		return false;
	}
	ok = find_sockets(&r);
	if (ok)
		talk(&r);
	collect(&r, answers, silent);
	if (ok)
		find_others(&r, silent);
	free(r.all);
	return ok;
}
