/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes messages: one line with one write(2), to stderr or DICOMM_DEBUG_FILE.
 *
 * A message can neither end nor hang the job. A line that cannot be written at
 * once is dropped and counted, and the next line that is written tells the
 * count. A broken pipe raises no SIGPIPE. If stderr is closed at the first
 * message, it is never written to, because its number may belong to another
 * file later.
 *
 * DICOMM_DEBUG is read here and not through config.c, because config.c reports
 * errors through this file.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/cancel.h"
#include "src/base/descriptors.h"
#include "src/base/file_pattern.h"
#include "src/base/log.h"

#define TEXT_BYTES 1024
#define KEPT 2 /* most messages of a thread that are kept back */
#define HEAD_BYTES 192
/* How long to wait for a full pipe before dropping lines until it accepts one
 * again, in milliseconds. So a reader that is only busy loses nothing. */
#define FULL_MS 20

/* The words of DICOMM_DEBUG and the levels that they include. As in NCCL,
 * VERSION only prints the version of the library. */
static const struct {
	const char *word;
	int level; /* highest enum log_level; -1 for none */
	bool version;
} words[] = {
	{"none", -1, false},          {"error", LOG_ERROR, false},
	{"version", LOG_ERROR, true}, {"warn", LOG_WARN, true},
	{"info", LOG_INFO, true},     {"debug", LOG_DEBUG, true},
	{"trace", LOG_TRACE, true},
};

static const char *const level_names[] = {
	[LOG_ERROR] = "ERROR", [LOG_WARN] = "WARN",   [LOG_INFO] = "INFO",
	[LOG_DEBUG] = "DEBUG", [LOG_TRACE] = "TRACE",
};

/* Of the whole process; written once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int threshold;
static bool nccl_form; /* NCCL_DEBUG asks for messages, and no DICOMM_DEBUG */
static int out_fd = STDERR_FILENO; /* -1: write nowhere */
static bool own_file;              /* opened here, non-blocking; not stderr */
/* Lines that could not be written and have not been reported yet. */
static _Atomic unsigned long dropped;
static char host[64];

/* Of the calling thread. */
static _Thread_local void (*sink)(int level, const char *message, void *ctx);
static _Thread_local void *sink_ctx;
static _Thread_local bool in_sink;
static _Thread_local int own_rank = -1;
static _Thread_local char last_error[TEXT_BYTES];
static _Thread_local bool holds;
static _Thread_local bool catches;
static _Thread_local bool demotes;
static _Thread_local unsigned nkept;
static _Thread_local struct kept {
	enum log_level level;
	const char *file;
	int line;
	char text[TEXT_BYTES];
} kept[KEPT];

/* Makes the text one line, whatever a peer or a path has put into it. */
static void one_line(char *text)
{
	for (char *c = text; *c; c++) {
		if (*c == '\n' || *c == '\t')
			*c = ' ';
		else if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	}
}

/* Scripts that look at what programs of NCCL say find "NCCL INFO" and "NCCL
 * WARN". */
static size_t write_nccl_head(char *line, size_t room, const char *level)
{
	const char *word = "INFO";
	int n;

	if (!strcmp(level, "ERROR") || !strcmp(level, "WARN"))
		word = "WARN";
	else if (!strcmp(level, "DEBUG") || !strcmp(level, "TRACE"))
		word = "TRACE";
	n = snprintf(line, room, "%s:%d:%d [%d] NCCL %s ", host, (int)getpid(),
		     (int)gettid(), own_rank < 0 ? 0 : own_rank, word);
	return (size_t)n < room ? (size_t)n : room - 1;
}

static size_t write_head(char *line, size_t room, const char *level)
{
	struct timespec now;
	struct tm tm;
	char rank[24] = "";
	size_t len;
	int n;

	if (nccl_form)
		return write_nccl_head(line, room, level);
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	len = strftime(line, room, "[%Y-%m-%d %H:%M:%S", &tm);
	if (own_rank >= 0)
		snprintf(rank, sizeof(rank), " rank %d", own_rank);
	n = snprintf(line + len, room - len, ".%06ld] %s:%d%s dicomm %s ",
		     now.tv_nsec / 1000, host, (int)getpid(), rank, level);
	return len + (size_t)n < room ? len + (size_t)n : room - 1;
}

/* ---- writing without blocking and without SIGPIPE ---- */

/* As write(), without a SIGPIPE: blocks the signal, and consumes it if this
 * write has raised it. */
static ssize_t write_quietly(int fd, const char *line, size_t len)
{
	const struct timespec now = {0};
	sigset_t pipe, before, pending;
	ssize_t wrote;
	int saved;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	wrote = write(fd, line, len);
	saved = errno;
	if (wrote < 0 && saved == EPIPE && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return wrote;
}

static bool takes_more(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, timeout_ms) > 0 && (p.revents & POLLOUT);
}

/*
 * Writes to a pipe or terminal that other processes have open, too. Its file
 * status flags are shared with them, so it is opened once more for this line,
 * non-blocking. (If that copy stayed open, the reader of a pipe would not see
 * its end.) If opening fails, waits until the pipe polls as writable, which
 * means that it has room for a line.
 */
static ssize_t write_shared(int fd, const char *line, size_t len, bool wait)
{
	char path[32];
	ssize_t wrote;
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = descriptors_high(
		open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
	if (again < 0 && errno == ENXIO)
		return -1; /* nobody reads this pipe any more */
	if (again < 0)
		return takes_more(fd, wait ? FULL_MS : 0)
			       ? write_quietly(fd, line, len)
			       : -1;
	wrote = write_quietly(again, line, len);
	if (wrote < 0 && errno == EAGAIN && wait && takes_more(again, FULL_MS))
		wrote = write_quietly(again, line, len);
	close(again);
	return wrote;
}

/* Writes a whole line, so that lines of several processes do not mix; a line is
 * shorter than PIPE_BUF. Returns false if it was not written. */
static bool write_out(const char *line, size_t len, bool wait)
{
	struct stat st;
	ssize_t wrote;

	if (out_fd < 0 || fstat(out_fd, &st) < 0)
		return false;
	do {
		if (S_ISSOCK(st.st_mode))
			wrote = send(out_fd, line, len,
				     MSG_DONTWAIT | MSG_NOSIGNAL);
		else if (own_file || S_ISREG(st.st_mode))
			wrote = write_quietly(out_fd, line, len);
		else
			wrote = write_shared(out_fd, line, len, wait);
	} while (wrote < 0 && errno == EINTR);
	return wrote == (ssize_t)len;
}

static size_t make_line(char *line, size_t room, const char *level,
			const char *text, const char *where)
{
	size_t len = write_head(line, HEAD_BYTES, level);
	int n = snprintf(line + len, room - len - 1, "%s%s", text, where);

	len += (size_t)n < room - len - 1 ? (size_t)n : room - len - 2;
	line[len++] = '\n';
	return len;
}

static void write_line(const char *level, const char *text, const char *where)
{
	char line[HEAD_BYTES + TEXT_BYTES + 128], lost[96];
	unsigned long n = atomic_exchange(&dropped, 0);
	bool wait = n == 0;
	size_t len;

	if (n) {
		snprintf(lost, sizeof(lost),
			 "%lu messages before this one could not be written",
			 n);
		len = make_line(line, sizeof(line), "WARN", lost, "");
		if (!write_out(line, len, false)) {
			atomic_fetch_add(&dropped, n + 1);
			return;
		}
	}
	len = make_line(line, sizeof(line), level, text, where);
	if (!write_out(line, len, wait))
		atomic_fetch_add(&dropped, 1);
}

/* /dev/stdout and its like are links, of the system. */
static bool is_standard(const char *path)
{
	return !strncmp(path, "/dev/std", 8) || !strncmp(path, "/dev/fd/", 8) ||
	       !strncmp(path, "/proc/self/fd/", 14);
}

/* Opens the file to append: ranks may share it, and it may have other content.
 * In a directory like /tmp, its name can be foreseen, and a link there may be
 * another user's, to a file of this one: it is not followed. Lines may tell of
 * the job what others need not know. */
static int open_to_append(const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY |
		    O_CLOEXEC;

	if (!is_standard(path))
		flags |= O_NOFOLLOW;
	return descriptors_high(open(path, flags, 0600));
}

static void open_file(const char *pattern)
{
	char path[4096], why[sizeof(path) + 128];
	int fd = -1;

	errno = ENAMETOOLONG;
	if (file_pattern_expand(pattern, host, -1, path, sizeof(path)))
		fd = open_to_append(path);
	else
		snprintf(path, sizeof(path), "%s", pattern);
	if (fd >= 0) {
		out_fd = fd;
		own_file = true;
		return;
	}
	if (errno == ELOOP)
		snprintf(why, sizeof(why),
			 "DICOMM_DEBUG_FILE %.900s: %.900s is a symbolic link, "
			 "which is not followed",
			 pattern, path);
	else
		snprintf(why, sizeof(why), "DICOMM_DEBUG_FILE %.900s: open: %m",
			 pattern);
	one_line(why);
	write_line("WARN", why, "");
}

static const char *debug_word(void)
{
	const char *word = getenv("DICOMM_DEBUG");

	if (!word || !*word)
		word = getenv("NCCL_DEBUG");
	return word && *word ? word : NULL;
}

static bool find_word(const char *word, int *level, bool *version)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (!strcasecmp(word, words[i].word)) {
			*level = words[i].level;
			*version = words[i].version;
			return true;
		}
	}
	return false;
}

static void init(void)
{
	const char *file = getenv("DICOMM_DEBUG_FILE");
	const char *word = debug_word();
	bool version = false;
	char text[48];

	/* The first localtime_r() would do this, and allocate memory, perhaps
	 * in a signal handler that calls dicomm_comm_abort(). */
	tzset();
	if (gethostname(host, sizeof(host)) < 0)
		strcpy(host, "?");
	host[sizeof(host) - 1] = '\0';
	host[strcspn(host, ".")] = '\0';

	/* Print the version only for users who ask for messages. If the word
	 * does not exist, config.c reports that. */
	if (!word || !find_word(word, &threshold, &version)) {
		find_word(LOG_DEFAULT, &threshold, &version);
		version = false;
	}
	nccl_form = word && word == getenv("NCCL_DEBUG");
	if (fcntl(STDERR_FILENO, F_GETFD) < 0)
		out_fd = -1;
	if (file && *file)
		open_file(file);
	if (version) {
		snprintf(text, sizeof(text), "%s%d.%d.%d",
			 nccl_form ? "libdicomm " : "", DICOMM_VERSION_MAJOR,
			 DICOMM_VERSION_MINOR, DICOMM_VERSION_PATCH);
		write_line("VERSION", text, "");
	}
}

void log_set_sink(void (*fn)(int level, const char *message, void *ctx),
		  void *ctx)
{
	sink = fn;
	sink_ctx = ctx;
}

void log_set_rank(int rank)
{
	own_rank = rank;
}

static bool sink_wants(enum log_level level)
{
	return sink && !in_sink &&
	       (level <= LOG_WARN || (int)level <= threshold);
}

bool log_enabled(enum log_level level)
{
	int saved = errno;

	pthread_once(&once, init);
	errno = saved;
	return (int)level <= threshold || sink_wants(level);
}

/* Shortens "../../src/base/log.c" and "/build/x/src/base/log.c" to
 * "base/log.c". */
static const char *short_path(const char *file)
{
	const char *name = strrchr(file, '/');

	while (name && name > file && name[-1] != '/')
		name--;
	return name ? name : file;
}

static void tell(enum log_level level, const char *text)
{
	if (!sink_wants(level))
		return;
	in_sink = true;
	sink((int)level, text, sink_ctx);
	in_sink = false;
}

static void say(enum log_level level, const char *file, int line,
		const char *text)
{
	char where[128] = "";

	if (level == LOG_ERROR)
		log_set_last_error(text);
	tell(level, text);
	if ((int)level > threshold)
		return;
	if (level <= LOG_WARN)
		snprintf(where, sizeof(where), " (%.100s:%d)", short_path(file),
			 line);
	write_line(level_names[level], text, where);
}

/* Keeps the first messages. If there is no room, a more severe message replaces
 * the last one. */
static void keep(enum log_level level, const char *file, int line,
		 const char *text)
{
	struct kept *k = &kept[nkept < KEPT ? nkept : KEPT - 1];

	if (nkept == KEPT && k->level <= level)
		return;
	k->level = level;
	k->file = file;
	k->line = line;
	snprintf(k->text, sizeof(k->text), "%s", text);
	if (nkept < KEPT)
		nkept++;
}

void log_write(enum log_level level, const char *file, int line,
	       const char *format, ...)
{
	char text[TEXT_BYTES];
	int saved = errno;
	va_list args;
	int n;

	pthread_once(&once, init);
	cancel_hold();
	errno = saved; /* for %m */
	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n >= (int)sizeof(text))
		strcpy(text + sizeof(text) - 4, "...");
	one_line(text);
	if (demotes && level == LOG_ERROR)
		level = LOG_INFO;
	if (catches && level == LOG_ERROR)
		log_set_last_error(text);
	else
		(holds ? keep : say)(level, file, line, text);
	cancel_release();
	errno = saved;
}

void log_repeat(void)
{
	tell(LOG_ERROR, last_error);
}

void log_catch(bool on)
{
	catches = on;
}

void log_demote(bool on)
{
	demotes = on;
}

void log_hold(void)
{
	holds = true;
	nkept = 0;
}

/* Copies the messages first, because a sink that gets one may hold messages
 * back again. */
void log_release(bool write)
{
	struct kept all[KEPT];
	unsigned n = write ? nkept : 0;
	int saved = errno;

	memcpy(all, kept, sizeof(all));
	holds = false;
	nkept = 0;
	for (unsigned i = 0; i < n; i++)
		say(all[i].level, all[i].file, all[i].line, all[i].text);
	errno = saved;
}

const char *log_last_error(void)
{
	return last_error;
}

void log_set_last_error(const char *text)
{
	size_t len = strnlen(text, sizeof(last_error) - 1);

	/* Text may be log_last_error() itself. */
	memmove(last_error, text, len);
	last_error[len] = '\0';
}
