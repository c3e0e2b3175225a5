/* SPDX-License-Identifier: BSD-3-Clause */
/* DICOMM_METRICS: a reader finds a whole file at any time, of Prometheus' text
 * format whatever communicators are called, and in it what they have counted;
 * what others have put in its place is left alone. */
#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <iconv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define PATIENCE_S 40.0
#define LINES_MOST 4096

static char dir[] = "/tmp/dicomm-metrics-XXXXXX";

/* ---- the format ---- */

struct scrape {
	char text[1 << 20];
	size_t n;
};

static const char *where(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
static const char *where(const char *format, ...)
{
	static char path[512];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s/", dir);
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, sizeof(path) - n, format, args);
	va_end(args);
	return path;
}

static void must_be_utf8(const struct scrape *s)
{
	static char wide[4 * sizeof(s->text)];
	iconv_t to = iconv_open("UCS-4LE", "UTF-8");
	char *in = (char *)(uintptr_t)s->text, *out = wide;
	size_t left = s->n, room = sizeof(wide);

	JOB_CHECK(to != (iconv_t)-1, "iconv: %m");
	JOB_CHECK(iconv(to, &in, &left, &out, &room) != (size_t)-1 && !left,
		  "no UTF-8: %s", in);
	iconv_close(to);
}

static size_t name_at(const char *at, const char *more)
{
	size_t n = 0;

	while (isalpha((unsigned char)at[n]) || at[n] == '_' ||
	       (n && isdigit((unsigned char)at[n])) ||
	       (at[n] && strchr(more, at[n])))
		n++;
	JOB_CHECK(n, "no name at '%s'", at);
	return n;
}

/* {name="value",...}; returns its end. */
static const char *labels_at(const char *at)
{
	bool comm = false, host = false, pid = false;

	JOB_CHECK(*at == '{', "no labels at '%s'", at);
	do {
		const char *name = ++at;

		comm |= !strncmp(name, "comm=", 5);
		host |= !strncmp(name, "host=", 5);
		pid |= !strncmp(name, "pid=", 4);
		at += name_at(at, "");
		JOB_CHECK(at[0] == '=' && at[1] == '"', "label at '%s'", name);
		for (at += 2; *at != '"'; at++) {
			if (*at == '\\')
				JOB_CHECK(*++at && strchr("\\\"n", *at),
					  "escape at '%s'", at);
			JOB_CHECK(*at && *at != '\n', "value of '%s'", name);
		}
		at++;
	} while (*at == ',');
	JOB_CHECK(at[0] == '}' && at[1] == ' ', "no end of labels: '%s'", at);
	JOB_CHECK(comm && host && pid, "a label is missing");
	return at + 2;
}

/* What the lines so far have said */
struct grammar {
	char metric[128]; /* of the last # HELP */
	bool counter;
	const char *line[LINES_MOST]; /* all that begin otherwise */
	size_t length[LINES_MOST];    /* to the end of the labels */
	size_t lines;
};

static void take_sample(struct grammar *g, const char *line)
{
	size_t n = name_at(line, ":");
	const char *value = labels_at(line + n);
	double number;
	char *end;

	JOB_CHECK(n == strlen(g->metric) && !strncmp(line, g->metric, n),
		  "not of %s: %s", g->metric, line);
	number = strtod(value, &end);
	JOB_CHECK(end != value && *end == '\n' && number >= 0, "number: %s",
		  line);
	JOB_CHECK(g->lines < LINES_MOST, "so many lines");
	g->line[g->lines] = line;
	g->length[g->lines] = (size_t)(value - line);
	for (size_t i = 0; i < g->lines; i++)
		JOB_CHECK(g->length[i] != g->length[g->lines] ||
				  strncmp(g->line[i], line, g->length[i]),
			  "twice: %s", line);
	g->lines++;
}

static void take_comment(struct grammar *g, const char *line, const char *text)
{
	char name[128], type[16], head[160];

	if (sscanf(line, "# TYPE %127s %15s", name, type) == 2) {
		JOB_CHECK(!strcmp(name, g->metric), "after # HELP %s: %s",
			  g->metric, line);
		g->counter = !strcmp(type, "counter");
		JOB_CHECK(g->counter || !strcmp(type, "gauge"), "%s", line);
		JOB_CHECK(g->counter ==
				  !strcmp(name + strlen(name) - 6, "_total"),
			  "%s is a %s", name, type);
		return;
	}
	JOB_CHECK(sscanf(line, "# HELP %127s %*[^\n]", g->metric) == 1, "%s",
		  line);
	snprintf(head, sizeof(head), "# HELP %s ", g->metric);
	JOB_CHECK(strstr(text, head) == line, "twice: %s", line);
}

static void must_parse(const struct scrape *s)
{
	static struct grammar g;
	const char *line = s->text, *end;

	g = (struct grammar){.lines = 0};
	must_be_utf8(s);
	for (; *line; line = end + 1) {
		end = strchr(line, '\n');
		JOB_CHECK(end, "no newline after: %s", line);
		if (*line == '#')
			take_comment(&g, line, s->text);
		else
			take_sample(&g, line);
	}
	JOB_CHECK(g.lines, "no numbers");
}

/* Reads the file and checks it; false: it is not there yet. */
static bool scrape(struct scrape *s, const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f)
		return false;
	s->n = fread(s->text, 1, sizeof(s->text) - 1, f);
	s->text[s->n] = '\0';
	fclose(f);
	must_parse(s);
	return true;
}

/* The number of a metric, in the line that has this label; -1: none */
static double number(const struct scrape *s, const char *metric,
		     const char *label)
{
	size_t n = strlen(metric);

	for (const char *line = s->text; *line; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n');
		const char *at = strstr(line, label);

		if (!strncmp(line, metric, n) && line[n] == '{' && at &&
		    at < end)
			return strtod(strstr(at, "} ") + 2, NULL);
	}
	return -1;
}

static void must_say(const struct scrape *s, const char *metric,
		     const char *label, double wanted)
{
	double is = number(s, metric, label);

	JOB_CHECK(is == wanted, "%s with %s: %.0f, not %.0f: %s", metric, label,
		  is, wanted, s->text);
}

/* ---- ranks ---- */

static dicomm_comm_t make(const struct job_rank *me, const char *name)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm;

	config.name = name;
	JOB_TRY(dicomm_comm_init_rank_config(&comm, me->ranks, job_id(),
					     me->rank, &config));
	return comm;
}

static void work(dicomm_comm_t comm, int times)
{
	static int32_t from[30000], to[30000];

	for (int i = 0; i < times; i++)
		JOB_TRY(dicomm_allreduce(from, to, 30000, DICOMM_INT32,
					 DICOMM_SUM, comm, NULL));
}

static void add_stats(dicomm_stats_t *sum, dicomm_comm_t comm)
{
	dicomm_stats_t s = {.size = sizeof(s)};

	JOB_TRY(dicomm_comm_stats(comm, &s));
	sum->operations += s.operations;
	sum->messages_sent += s.messages_sent;
	sum->messages_received += s.messages_received;
	sum->bytes_sent += s.bytes_sent;
	sum->bytes_received += s.bytes_received;
}

static void must_equal(const struct scrape *s, const char *label,
		       const dicomm_stats_t *sum)
{
	must_say(s, "dicomm_operations_total", label, (double)sum->operations);
	must_say(s, "dicomm_messages_sent_total", label,
		 (double)sum->messages_sent);
	must_say(s, "dicomm_messages_received_total", label,
		 (double)sum->messages_received);
	must_say(s, "dicomm_sent_bytes_total", label, (double)sum->bytes_sent);
	must_say(s, "dicomm_received_bytes_total", label,
		 (double)sum->bytes_received);
	must_say(s, "dicomm_staged_bytes_total", label, 0);
}

static struct scrape got;

static void scrape_own(const struct job_rank *me)
{
	JOB_CHECK(scrape(&got, where("m.%d.prom", me->rank)), "no file: %m");
}

/* Two communicators of a name, then one more of it; and one of an odd name */
static void counts(struct job_rank *me)
{
	dicomm_stats_t sum = {.size = 0}, odd = {.size = 0};
	dicomm_comm_t a = make(me, "train"), b = make(me, "train"), c;
	const char *label = "comm=\"train\"";

	work(a, 7);
	work(b, 3);
	add_stats(&sum, a);
	add_stats(&sum, b);
	JOB_TRY(dicomm_comm_destroy(a));
	scrape_own(me);
	must_equal(&got, label, &sum);
	must_say(&got, "dicomm_communicators", label, 1);
	/* All are on this machine. */
	JOB_CHECK(number(&got, "dicomm_peers", "transport=\"shm\"") >= 1,
		  "no peers: %s", got.text);
	JOB_TRY(dicomm_comm_destroy(b));
	c = make(me, "train");
	work(c, 2);
	add_stats(&sum, c);
	JOB_TRY(dicomm_comm_destroy(c));
	c = make(me, "a \"b\" \\n\xe9 \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x9a\x80");
	work(c, 1);
	add_stats(&odd, c);
	JOB_TRY(dicomm_comm_destroy(c));
	scrape_own(me);
	must_equal(&got, label, &sum);
	must_equal(&got,
		   "comm=\"a \\\"b\\\" \\\\n? \xc3\xa9 ??? "
		   "\xf0\x9f\x9a\x80\",rank=",
		   &odd);
	must_say(&got, "dicomm_communicators", label, 0);
	must_say(&got, "dicomm_faults_total", label, 0);
}

static void run_job(void (*run)(struct job_rank *me), int ranks,
		    const char *name)
{
	static char metrics[600];
	struct job job = {.run = run,
			  .ranks = ranks,
			  .bare = true,
			  .timeout_s = 60,
			  .env = {metrics, "DICOMM_TRANSPORTS="}};

	snprintf(metrics, sizeof(metrics), "DICOMM_METRICS=%s/%s", dir, name);
	job_run(&job);
}

START_TEST(what_is_counted_is_there)
{
	run_job(counts, 3, "m.%r.prom");
}
END_TEST

/* Rank 0 waits for rank 1, which reads of it. */
static void is_late(struct job_rank *me)
{
	dicomm_comm_t comm = make(me, "late");
	double end = job_seconds() + PATIENCE_S;
	const char *label = "comm=\"late\",rank=\"0\"";

	work(comm, 4);
	if (me->rank == 1)
		do {
			JOB_CHECK(job_seconds() < end, "it never waits: %s",
				  got.text);
			job_sleep_ms(100);
			scrape(&got, where("m.0.prom"));
		} while (number(&got, "dicomm_waiting_seconds", label) < 1 ||
			 number(&got, "dicomm_operations_total", label) < 5);
	work(comm, 1);
	job_barrier();
	dicomm_comm_abort(comm);
	JOB_TRY(dicomm_comm_destroy(comm));
	scrape_own(me);
	must_say(&got, "dicomm_faults_total", "comm=\"late\"", 1);
	must_say(&got, "dicomm_waiting_seconds", "comm=\"late\"", 0);
}

START_TEST(who_waits_says_so_while_it_waits)
{
	run_job(is_late, 2, "m.%r.prom");
}
END_TEST

/* ---- what others have put there ---- */

static void must_hold(const char *path, const char *wanted)
{
	char text[16] = "";
	FILE *f = fopen(path, "r");

	JOB_CHECK(f && fgets(text, sizeof(text), f) && !strcmp(text, wanted),
		  "%s has '%s'", path, text);
	fclose(f);
}

static void finds_links(struct job_rank *me)
{
	char victim[512], made[600], path[512];
	struct stat is;
	FILE *f;

	snprintf(path, sizeof(path), "%s", where("m.%d.prom", me->rank));
	snprintf(victim, sizeof(victim), "%s", where("victim.%d", me->rank));
	snprintf(made, sizeof(made), "%s.%d.tmp", path, (int)getpid());
	f = fopen(victim, "w");
	JOB_CHECK(f && fputs("mine", f) >= 0 && !fclose(f), "%s: %m", victim);
	unlink(path);
	JOB_CHECK(!symlink(victim, path) && !symlink(victim, made),
		  "symlink: %m");
	umask(027);
	JOB_TRY(dicomm_comm_destroy(make(me, "links")));
	must_hold(victim, "mine");
	scrape_own(me);
	JOB_CHECK(!lstat(path, &is) && S_ISREG(is.st_mode) &&
			  (is.st_mode & 0777) == 0640,
		  "mode %o", (unsigned)is.st_mode);
	/* The control thread may write once more. */
	for (int i = 0; i < 50 && !lstat(made, &is); i++)
		job_sleep_ms(20);
	JOB_CHECK(lstat(made, &is) && errno == ENOENT, "%s is left", made);
}

START_TEST(links_are_not_followed)
{
	run_job(finds_links, 2, "m.%r.prom");
}
END_TEST

/* A child has a file of its own, and the parent's stays the parent's. */
static void has_a_child(struct job_rank *me)
{
	dicomm_comm_t comm = make(me, "parent");
	char host[256] = "", label[64];
	pid_t child, parent = getpid();
	int end;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	child = fork();
	JOB_CHECK(child >= 0, "fork: %m");
	if (!child) {
		dicomm_unique_id_t id;
		bool ok = dicomm_get_unique_id(&id) == DICOMM_SUCCESS &&
			  dicomm_comm_init_rank(&comm, 1, id, 0) ==
				  DICOMM_SUCCESS &&
			  dicomm_comm_destroy(comm) == DICOMM_SUCCESS;

		_exit(ok ? 0 : 1);
	}
	JOB_CHECK(waitpid(child, &end, 0) == child && !end, "a child: %#x",
		  (unsigned)end);
	JOB_TRY(dicomm_comm_destroy(comm));
	for (int i = 0; i < 2; i++) {
		int pid = (int)(i ? parent : child);

		JOB_CHECK(scrape(&got, where("f.%s.%d.prom", host, pid)),
			  "no file of %d", pid);
		snprintf(label, sizeof(label), "pid=\"%d\"", pid);
		must_say(&got, "dicomm_communicators", label, 0);
		JOB_CHECK((number(&got, "dicomm_communicators",
				  "comm=\"parent\"") == 0) == (i == 1),
			  "%s: %s", i ? "parent" : "child", got.text);
	}
}

START_TEST(a_child_has_a_file_of_its_own)
{
	/* The address sanitizer of gcc 12 gives a child its heap as it was
	 * locked. */
	if (!job_is_sanitized())
		run_job(has_a_child, 1, "f");
}
END_TEST

static void hear(int level, const char *message, void *ctx)
{
	(void)level;
	*(int *)ctx += strstr(message, "/missing/") &&
		       strstr(message, "No such file or directory; no metrics");
}

/* It is told once, and the job goes on. */
static void has_no_place(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_comm_t comm;
	int told = 0;

	config.log_fn = hear;
	config.log_ctx = &told;
	JOB_TRY(dicomm_comm_init_rank_config(&comm, me->ranks, job_id(),
					     me->rank, &config));
	work(comm, 3);
	JOB_TRY(dicomm_comm_destroy(comm));
	JOB_TRY(dicomm_comm_destroy(make(me, "nowhere")));
	JOB_CHECK(told == 1, "told %d times", told);
}

START_TEST(a_file_that_cannot_be_made_stops_nobody)
{
	run_job(has_no_place, 2, "missing/%r");
}
END_TEST

static void clean_up(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		printf("# %s is left\n", dir);
}

int main(void)
{
	Suite *suite = suite_create("metrics");
	TCase *tcase = tcase_create("metrics");
	int status;

	if (!mkdtemp(dir)) {
		perror(dir);
		return 99;
	}
	tcase_set_timeout(tcase, 400);
	tcase_add_test(tcase, what_is_counted_is_there);
	tcase_add_test(tcase, who_waits_says_so_while_it_waits);
	tcase_add_test(tcase, links_are_not_followed);
	tcase_add_test(tcase, a_child_has_a_file_of_its_own);
	tcase_add_test(tcase, a_file_that_cannot_be_made_stops_nobody);
	suite_add_tcase(suite, tcase);
	status = runner_main(suite);
	clean_up();
	return status;
}
