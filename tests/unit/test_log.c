/* SPDX-License-Identifier: BSD-3-Clause */
/* Each test runs in a process of its own, as the log is set up once. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/support/capture.h"
#include "tests/support/runner.h"

#define LINE_RE                                                                \
	"^\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}" \
	"\\] [^ :.]+:[0-9]+"

static void setup(void)
{
	unsetenv("DICOMM_DEBUG");
	unsetenv("NCCL_DEBUG");
	unsetenv("DICOMM_DEBUG_FILE");
	capture_start();
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;
	bool match;

	ck_assert_int_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	match = !regexec(&re, text, 0, NULL, 0);
	regfree(&re);
	return match;
}

static void log_each_level(void)
{
	log_error("at error");
	log_warn("at warn");
	log_info("at info");
	log_debug("at debug");
	log_at(LOG_TRACE, "at trace");
}

static const struct {
	const char *word;
	int printed; /* of the five messages */
	int version;
} words[] = {
	{NULL, 2, 0},      {"", 2, 0},     {"none", 0, 0}, {"error", 1, 0},
	{"VERSION", 1, 1}, {"WARN", 2, 1}, {"Info", 3, 1}, {"debug", 4, 1},
	{"TRACE", 5, 1},   {"loud", 2, 0},
};

START_TEST(a_level_lets_through_itself_and_what_is_worse)
{
	static const char *const messages[] = {"at error", "at warn", "at info",
					       "at debug", "at trace"};

	if (words[_i].word)
		setenv("DICOMM_DEBUG", words[_i].word, 1);
	log_each_level();
	for (int m = 0; m < 5; m++)
		ck_assert_msg(capture_count(messages[m]) ==
				      (m < words[_i].printed),
			      "%s: %s", words[_i].word, messages[m]);
	ck_assert_int_eq(capture_count("dicomm VERSION 0."), words[_i].version);
	ck_assert_str_eq(log_last_error(), "at error");
}
END_TEST

START_TEST(nccl_debug_counts_where_ours_is_unset)
{
	char line[96];

	setenv("NCCL_DEBUG", "INFO", 1);
	ck_assert(log_enabled(LOG_INFO));
	ck_assert(!log_enabled(LOG_DEBUG));
	/* In NCCL's form, which scripts look for */
	log_set_rank(3);
	log_info("a ring of %d", 2);
	snprintf(line, sizeof(line), ":%d:%d [3] NCCL INFO a ring of 2\n",
		 (int)getpid(), (int)gettid());
	ck_assert_msg(strstr(capture_text(), line), "%s", capture_text());
}
END_TEST

START_TEST(our_variable_beats_nccl_debug)
{
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("DICOMM_DEBUG", "error", 1);
	ck_assert(!log_enabled(LOG_WARN));
}
END_TEST

START_TEST(an_error_line_has_time_host_process_rank_and_place)
{
	char expected[64];

	log_set_rank(7);
	log_error("peer %d is gone", 3);
	ck_assert_msg(matches(capture_text(),
			      LINE_RE " rank 7 dicomm ERROR peer 3 is gone "
				      "\\(unit/test_log\\.c:[0-9]+\\)\n$"),
		      "%s", capture_text());
	snprintf(expected, sizeof(expected), ":%d rank 7 ", (int)getpid());
	ck_assert_int_eq(capture_count(expected), 1);
}
END_TEST

START_TEST(an_info_line_has_no_place_and_no_rank_before_there_is_one)
{
	setenv("DICOMM_DEBUG", "info", 1);
	log_info("4 ranks");
	ck_assert_msg(matches(strchr(capture_text(), '\n') + 1,
			      LINE_RE " dicomm INFO 4 ranks\n$"),
		      "%s", capture_text());
}
END_TEST

START_TEST(a_message_is_one_line_whatever_is_in_it)
{
	log_error("a\nb\tc\x1b[31m\r");
	ck_assert_int_eq(capture_count("a b c?[31m?"), 1);
	ck_assert_int_eq(capture_count("\n"), 1);
}
END_TEST

START_TEST(a_long_message_is_cut_and_says_so)
{
	char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_error("%s", text);
	ck_assert_int_eq(capture_count("xxx... ("), 1);
	ck_assert_int_eq(capture_count("\n"), 1);
	ck_assert_str_eq(log_last_error() + strlen(log_last_error()) - 4,
			 "x...");
}
END_TEST

/* The first message sets the log up, and that must not touch errno either. */
START_TEST(errno_is_in_the_message_and_unchanged_after_it)
{
	setenv("DICOMM_DEBUG_FILE", "/no such directory/log", 1);
	errno = EDOM;
	log_error("open: %m");
	ck_assert_int_eq(errno, EDOM);
	ck_assert_str_eq(log_last_error() + 6, strerror(EDOM));
	errno = ERANGE;
	ck_assert(!log_enabled(LOG_INFO));
	ck_assert_int_eq(errno, ERANGE);
}
END_TEST

START_TEST(a_file_that_cannot_be_opened_leaves_stderr)
{
	setenv("DICOMM_DEBUG_FILE", "/no such directory/%p", 1);
	log_error("still here");
	ck_assert_int_eq(capture_count("DICOMM_DEBUG_FILE /no such directory/"
				       "%p: open: No such file"),
			 1);
	ck_assert_int_eq(capture_count("still here"), 1);
}
END_TEST

START_TEST(a_path_too_long_leaves_stderr)
{
	char path[6000];

	memset(path, 'y', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	setenv("DICOMM_DEBUG_FILE", path, 1);
	log_error("still here");
	ck_assert_int_eq(capture_count("File name too long"), 1);
	ck_assert_int_eq(capture_count("still here"), 1);
}
END_TEST

START_TEST(the_file_is_named_by_host_and_process_and_appended_to)
{
	char dir[] = "/tmp/dicomm-test-log-XXXXXX", pattern[128], path[512];
	char text[1024] = "", host[64];
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(gethostname(host, sizeof(host)), 0);
	host[strcspn(host, ".")] = '\0';
	snprintf(path, sizeof(path), "%s/%s.%d.%%", dir, host, (int)getpid());
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("before\n", file);
	fclose(file);

	snprintf(pattern, sizeof(pattern), "%s/%%h.%%p.%%%%", dir);
	setenv("DICOMM_DEBUG_FILE", pattern, 1);
	log_error("in the file");

	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
	fclose(file);
	unlink(path);
	rmdir(dir);
	ck_assert_int_eq(strncmp(text, "before\n[", 8), 0);
	ck_assert_ptr_nonnull(strstr(text, "in the file"));
	ck_assert_str_eq(capture_text(), "");
}
END_TEST

/* A link in a directory of everybody may lead to a file of this user. */
START_TEST(a_link_is_not_followed_and_a_new_file_is_private)
{
	char dir[] = "/tmp/dicomm-test-log-XXXXXX", path[64], link[64];
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	ck_assert_int_eq(symlink(path, link), 0);
	setenv("DICOMM_DEBUG_FILE", _i ? path : link, 1);
	umask(0);
	log_error("somewhere");
	if (_i) {
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 0777, 0600);
	} else {
		ck_assert_int_lt(stat(path, &st), 0);
		ck_assert_int_eq(capture_count("link is a symbolic link"), 1);
		ck_assert_int_eq(capture_count("somewhere"), 1);
	}
	unlink(path);
	unlink(link);
	rmdir(dir);
}
END_TEST

struct heard {
	int count, level;
	char text[64];
};

static void hear(int level, const char *message, void *ctx)
{
	struct heard *h = ctx;

	h->count++;
	h->level = level;
	snprintf(h->text, sizeof(h->text), "%s", message);
	log_error("from the sink"); /* must not come back here */
}

START_TEST(a_sink_hears_errors_and_warnings_at_any_setting)
{
	struct heard h = {0};

	setenv("DICOMM_DEBUG", "none", 1);
	log_set_sink(hear, &h);
	log_warn("careful %d", 5);
	ck_assert_int_eq(h.count, 1);
	ck_assert_int_eq(h.level, LOG_WARN);
	ck_assert_str_eq(h.text, "careful 5");
	log_error("lost");
	ck_assert_int_eq(h.count, 2);
	ck_assert_int_eq(h.level, LOG_ERROR);
	log_info("not asked for");
	ck_assert_int_eq(h.count, 2);
	log_set_sink(NULL, NULL);
	log_error("unheard");
	ck_assert_int_eq(h.count, 2);
	ck_assert_str_eq(capture_text(), "");
}
END_TEST

START_TEST(a_sink_hears_the_rest_as_the_level_says)
{
	struct heard h = {0};

	setenv("DICOMM_DEBUG", "info", 1);
	log_set_sink(hear, &h);
	log_info("asked for");
	log_debug("not asked for");
	ck_assert_int_eq(h.count, 1);
	ck_assert_str_eq(h.text, "asked for");
	ck_assert_int_eq(capture_count("asked for"), 1);
}
END_TEST

static void *other_thread(void *ctx)
{
	ck_assert_str_eq(log_last_error(), "");
	log_error("of the other");
	ck_assert_str_eq(log_last_error(), "of the other");
	return ctx;
}

START_TEST(rank_sink_and_last_error_belong_to_a_thread)
{
	struct heard h = {0};
	pthread_t thread;

	log_set_rank(2);
	log_set_sink(hear, &h);
	log_set_last_error("of this one");
	ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(log_last_error(), "of this one");
	ck_assert_int_eq(h.count, 0);
	ck_assert_int_eq(capture_count("of the other"), 1);
	ck_assert_int_eq(capture_count("rank 2"), 0);
}
END_TEST

START_TEST(the_last_error_can_be_set_to_itself)
{
	log_set_last_error("one");
	log_set_last_error(log_last_error());
	ck_assert_str_eq(log_last_error(), "one");
	log_set_last_error("");
	ck_assert_str_eq(log_last_error(), "");
}
END_TEST

#define THREADS 4
#define LINES 300

static void *writer(void *ctx)
{
	log_set_rank((int)(intptr_t)ctx);
	for (int i = 0; i < LINES; i++)
		log_error("line of %d ends here", (int)(intptr_t)ctx);
	return NULL;
}

/* As one who holds back what it says itself */
static void hear_and_hold(int level, const char *message, void *ctx)
{
	hear(level, message, ctx);
	log_hold();
	log_error("dropped");
	log_release(false);
}

START_TEST(what_is_held_back_is_written_or_dropped_later)
{
	struct heard h = {0};

	log_set_last_error("of before");
	log_set_sink(hear_and_hold, &h);
	log_hold();
	log_error("first");
	log_warn("second");
	log_error("third");
	ck_assert_str_eq(log_last_error(), "of before");
	log_release(false);
	ck_assert_int_eq(h.count, 0);
	ck_assert_str_eq(capture_text(), "");
	log_hold();
	log_error("fourth");
	log_warn("fifth");
	log_release(true);
	ck_assert_int_eq(h.count, 2);
	ck_assert_str_eq(h.text, "fifth");
	ck_assert_int_eq(capture_count("fourth"), 1);
	ck_assert_int_eq(capture_count("fifth"), 1);
	ck_assert_int_eq(capture_count("dropped"), 0);
	log_hold();
	log_warn("sixth");
	log_warn("seventh");
	log_error("eighth");
	log_error("ninth");
	log_release(true);
	ck_assert_int_eq(capture_count("sixth"), 1);
	ck_assert_int_eq(capture_count("seventh"), 0);
	ck_assert_int_eq(capture_count("eighth"), 1);
	ck_assert_int_eq(capture_count("ninth"), 0);
	log_set_sink(NULL, NULL);
}
END_TEST

START_TEST(what_was_only_tried_is_no_error)
{
	log_set_last_error("of before");
	log_demote(true);
	log_error("tried");
	log_hold();
	log_error("tried again");
	log_demote(false);
	log_release(true);
	ck_assert_str_eq(log_last_error(), "of before");
	ck_assert_int_eq(capture_count("ERROR"), 0);
	log_error("failed");
	ck_assert_str_eq(log_last_error(), "failed");
	ck_assert_int_eq(capture_count("ERROR"), 1);
}
END_TEST

START_TEST(lines_of_threads_do_not_mix)
{
	pthread_t threads[THREADS];
	char *line, *save, *text;
	int lines = 0;

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, writer,
						(void *)(intptr_t)i),
				 0);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	text = strdup(capture_text());
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save), lines++)
		ck_assert_msg(matches(line, LINE_RE
				      " rank ([0-9]) dicomm ERROR line of "
				      "[0-9] ends here \\([^ ]+:[0-9]+\\)$"),
			      "%s", line);
	ck_assert_int_eq(lines, THREADS * LINES);
	free(text);
}
END_TEST

static dicomm_result_t pass_on(dicomm_result_t status, bool *reached)
{
	TRY(status);
	*reached = true;
	return DICOMM_SUCCESS;
}

START_TEST(fail_logs_once_and_try_passes_on)
{
	bool reached = false;

	ck_assert_int_eq(
		pass_on(FAIL(DICOMM_ERR_SYSTEM, "no %s", "luck"), &reached),
		DICOMM_ERR_SYSTEM);
	ck_assert(!reached);
	ck_assert_int_eq(capture_count("no luck"), 1);
	ck_assert_int_eq(pass_on(DICOMM_SUCCESS, &reached), DICOMM_SUCCESS);
	ck_assert(reached);
}
END_TEST

/* ---- where messages cannot go ---- */

/* All that is in a pipe or socket now */
static size_t drain(int fd, char *text, size_t room)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t len = 0;

	while (len < room - 1 && poll(&p, 1, 0) > 0) {
		ssize_t n = read(fd, text + len, room - 1 - len);

		if (n <= 0)
			break;
		len += (size_t)n;
	}
	text[len] = '\0';
	return len;
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;

	for (const char *at = text; (at = strstr(at, word)); at++)
		n++;
	return n;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Its default action would end this program. */
START_TEST(a_broken_pipe_ends_nothing)
{
	char text[4096];
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	log_error("first");
	log_error("second");
	/* The same stderr for others: a pipe that is read */
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	log_error("third");
	drain(ends[0], text, sizeof(text));
	ck_assert_ptr_nonnull(
		strstr(text, " 2 messages before this one could not be"));
	ck_assert_ptr_nonnull(strstr(text, "third"));
	ck_assert_ptr_null(strstr(text, "first"));
}
END_TEST

enum { PIPE, SOCKET, FULL_KINDS };

/* Nobody reads, and the flags of the stream stay as they are. */
START_TEST(a_full_stderr_blocks_nobody)
{
	enum { LINES_SENT = 20000 };
	size_t room = 8u << 20;
	char *text = malloc(room), *lost;
	double begin = seconds();
	unsigned long n = 0;
	int ends[2];

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(_i == PIPE ? pipe(ends)
				    : socketpair(AF_UNIX, SOCK_STREAM, 0, ends),
			 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	for (int i = 0; i < LINES_SENT; i++)
		log_error("this is line %d", i);
	ck_assert_double_le(seconds() - begin, 20);
	ck_assert_int_eq(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
	drain(ends[0], text, room);
	n = count(text, "this is line");
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_lt(n, LINES_SENT);
	log_error("at last");
	drain(ends[0], text, room);
	lost = strstr(text, "dicomm WARN ");
	ck_assert_ptr_nonnull(lost);
	ck_assert_uint_eq(n + strtoul(lost + 12, NULL, 10), LINES_SENT);
	ck_assert_ptr_nonnull(strstr(text, "at last"));
	free(text);
}
END_TEST

/* The number may be somebody else's file later. */
START_TEST(a_stderr_that_is_closed_gets_nothing_later)
{
	char path[] = "/tmp/dicomm-test-log-XXXXXX";
	struct stat st;
	int fd;

	close(STDERR_FILENO);
	log_error("to nobody");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	log_error("to nobody either");
	ck_assert_int_eq(fstat(fd, &st), 0);
	unlink(path);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_str_eq(log_last_error(), "to nobody either");
}
END_TEST

/* open() of one that nobody reads would wait for a reader. */
START_TEST(a_fifo_as_file_is_not_waited_for)
{
	char dir[] = "/tmp/dicomm-test-log-XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/fifo", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	setenv("DICOMM_DEBUG_FILE", path, 1);
	log_error("still here");
	unlink(path);
	rmdir(dir);
	ck_assert_int_eq(capture_count("/fifo: open: No such device"), 1);
	ck_assert_int_eq(capture_count("still here"), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tcase = tcase_create("log");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase,
			    a_level_lets_through_itself_and_what_is_worse, 0,
			    (int)(sizeof(words) / sizeof(*words)));
	tcase_add_test(tcase, nccl_debug_counts_where_ours_is_unset);
	tcase_add_test(tcase, our_variable_beats_nccl_debug);
	tcase_add_test(tcase,
		       an_error_line_has_time_host_process_rank_and_place);
	tcase_add_test(
		tcase,
		an_info_line_has_no_place_and_no_rank_before_there_is_one);
	tcase_add_test(tcase, a_message_is_one_line_whatever_is_in_it);
	tcase_add_test(tcase, a_long_message_is_cut_and_says_so);
	tcase_add_test(tcase, errno_is_in_the_message_and_unchanged_after_it);
	tcase_add_test(tcase, a_file_that_cannot_be_opened_leaves_stderr);
	tcase_add_test(tcase, a_path_too_long_leaves_stderr);
	tcase_add_test(tcase,
		       the_file_is_named_by_host_and_process_and_appended_to);
	tcase_add_loop_test(
		tcase, a_link_is_not_followed_and_a_new_file_is_private, 0, 2);
	tcase_add_test(tcase, a_sink_hears_errors_and_warnings_at_any_setting);
	tcase_add_test(tcase, a_sink_hears_the_rest_as_the_level_says);
	tcase_add_test(tcase, rank_sink_and_last_error_belong_to_a_thread);
	tcase_add_test(tcase, the_last_error_can_be_set_to_itself);
	tcase_add_test(tcase, what_is_held_back_is_written_or_dropped_later);
	tcase_add_test(tcase, what_was_only_tried_is_no_error);
	tcase_add_test(tcase, lines_of_threads_do_not_mix);
	tcase_add_test(tcase, fail_logs_once_and_try_passes_on);
	tcase_add_test(tcase, a_broken_pipe_ends_nothing);
	tcase_add_loop_test(tcase, a_full_stderr_blocks_nobody, 0, FULL_KINDS);
	tcase_add_test(tcase, a_stderr_that_is_closed_gets_nothing_later);
	tcase_add_test(tcase, a_fifo_as_file_is_not_waited_for);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
