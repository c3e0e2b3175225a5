/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-info --job: who holds up a job is plain to see; who does not answer,
 * or may not be asked, is named; who asks, in whatever manner, holds up nobody.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/job.h"
#include "tests/support/runner.h"

#define TOOL "./dicomm-info"
/* The collective of which one rank stays away: no other test of this machine
 * hangs there. */
#define NUMBER 42
#define PATIENCE_S 30.0
#define READERS 100

/* What the tool prints about a process, or about all (pid 0). */
struct said {
	int status;
	char text[1 << 18];
};

/* As that user (0: as this one), with that secret (NULL: that of the job) */
static void ask_whom(struct said *said, const char *whom, uid_t uid,
		     const char *secret)
{
	int fds[2], end;
	size_t n = 0;
	ssize_t more;
	pid_t child;

	JOB_CHECK(!pipe(fds), "pipe: %m");
	child = fork();
	JOB_CHECK(child >= 0, "fork: %m");
	if (!child) {
		if (uid && (setgid((gid_t)uid) || setuid(uid)))
			_exit(99);
		if (secret)
			setenv("DICOMM_COMM_KEY", secret, 1);
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		execl(TOOL, TOOL, "--job", whom, (char *)NULL);
		_exit(98);
	}
	close(fds[1]);
	while (n < sizeof(said->text) - 1 &&
	       (more = read(fds[0], said->text + n,
			    sizeof(said->text) - 1 - n)) > 0)
		n += (size_t)more;
	said->text[n] = '\0';
	close(fds[0]);
	JOB_CHECK(waitpid(child, &end, 0) == child && WIFEXITED(end),
		  "the tool ended with %#x", (unsigned)end);
	said->status = WEXITSTATUS(end);
}

static void ask_as(struct said *said, int pid, uid_t uid)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", pid);
	ask_whom(said, pid ? number : NULL, uid, NULL);
}

static void ask(struct said *said, int pid)
{
	ask_as(said, pid, 0);
}

/* Asks until the answer has these words. */
static void await(struct said *said, int pid, const char *words)
{
	double end = job_seconds() + PATIENCE_S;

	do {
		ask(said, pid);
		if (strstr(said->text, words))
			return;
		job_sleep_ms(100);
	} while (job_seconds() < end);
	job_fail("never said '%s', but %s", words, said->text);
}

static void must_say(const struct said *said, int status, const char *words)
{
	JOB_CHECK(said->status == status && strstr(said->text, words),
		  "status %d, not %d with '%s': %s", said->status, status,
		  words, said->text);
}

static void add_up(const struct job_rank *me)
{
	int32_t one = 1, sum = 0;

	JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32, DICOMM_SUM,
				 me->comm, NULL));
	JOB_CHECK(sum == me->ranks, "%d", sum);
}

static void prepare(const struct job_rank *me)
{
	for (int i = 1; i < NUMBER; i++)
		add_up(me);
}

/* ---- one rank stays away ---- */

/* The same three times, one after the other on a stream. */
static void queue(const struct job_rank *me)
{
	int32_t one[3] = {1, 1, 1}, sum[3];
	dicomm_stream_t stream;

	JOB_TRY(dicomm_host_stream_create(&stream));
	for (int i = 0; i < 3; i++)
		JOB_TRY(dicomm_allreduce(&one[i], &sum[i], 1, DICOMM_INT32,
					 DICOMM_SUM, me->comm, stream));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

static void stays_away(struct job_rank *me)
{
	static struct said said;
	char words[128];

	prepare(me);
	if (me->rank == 2) {
		/* A rank that gets no core for a second notes nothing, so it
		 * may be missing among those that wait. */
		await(&said, 0,
		      "hang       rank 2 has not entered allreduce number 42; "
		      "rank");
		must_say(&said, 0,
			 "in no call; the last collective was "
			 "allreduce count 1 int32 sum number 41 "
			 "(4.00 B)");
		await(&said, job_pid(0), "waits for rank ");
		snprintf(words, sizeof(words),
			 "rank       0: pid %d, test_job_info, device host, "
			 "ready; calls: 42 begun, 41 ended; ",
			 job_pid(0));
		must_say(&said, 0, words);
		must_say(&said, 0, "4 ranks, 1 told here");
	}
	if (me->rank == 3)
		queue(me);
	else
		for (int i = 0; i < 3; i++)
			add_up(me);
}

START_TEST(who_stays_away_from_a_collective_is_named)
{
	job_run(&(struct job){.run = stays_away, .ranks = 4, .timeout_s = 60});
}
END_TEST

/* ---- two that wait for each other ---- */

/* On streams, so that they can do better later. */
static void waits_in_a_circle(struct job_rank *me)
{
	static struct said said;
	dicomm_stream_t stream;
	int32_t mine = me->rank, theirs = -1;

	if (me->rank == 2) {
		await(&said, 0,
		      "hang       ranks 0, 1 wait for each other for");
		must_say(&said, 0, ", in recv count 1 int32 number 1 (4.00 B)");
		job_barrier();
		return;
	}
	JOB_TRY(dicomm_host_stream_create(&stream));
	JOB_TRY(dicomm_recv(&theirs, 1, DICOMM_INT32, !me->rank, me->comm,
			    stream));
	job_barrier();
	JOB_TRY(dicomm_send(&mine, 1, DICOMM_INT32, !me->rank, me->comm, NULL));
	JOB_TRY(dicomm_host_stream_synchronize(stream));
	JOB_CHECK(theirs == !me->rank, "%d", theirs);
	JOB_TRY(dicomm_host_stream_destroy(stream));
}

START_TEST(who_waits_in_a_circle_is_named)
{
	job_run(&(struct job){
		.run = waits_in_a_circle, .ranks = 3, .timeout_s = 60});
}
END_TEST

/* ---- a rank that is stopped; one that is killed ---- */

/* The name of a process's socket */
static socklen_t find_socket(int pid, struct sockaddr_un *at)
{
	char line[512], prefix[64], *name;
	FILE *f = fopen("/proc/net/unix", "r");
	socklen_t len = 0;

	snprintf(prefix, sizeof(prefix), " @dicomm-job/%u/%d/", geteuid(), pid);
	while (f && !len && fgets(line, sizeof(line), f)) {
		name = strstr(line, prefix);
		if (!name)
			continue;
		name += 2;
		name[strcspn(name, "\n")] = '\0';
		*at = (struct sockaddr_un){.sun_family = AF_UNIX};
		snprintf(at->sun_path + 1, sizeof(at->sun_path) - 1, "%s",
			 name);
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				  strlen(name));
	}
	if (f)
		fclose(f);
	JOB_CHECK(len, "no socket");
	return len;
}

/* Asks until the kernel lets no more ask, since nobody accepts. */
static void crowd(int pid)
{
	struct sockaddr_un at;
	socklen_t len = find_socket(pid, &at);
	bool more = true;
	int fd;

	while (more) {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		JOB_CHECK(fd >= 0, "socket: %m");
		more = !connect(fd, (struct sockaddr *)&at, len);
		close(fd);
	}
}

static void stops(struct job_rank *me)
{
	static struct said said;
	char words[128];

	add_up(me);
	if (me->rank == 1)
		raise(SIGSTOP);
	if (me->rank == 0) {
		snprintf(words, sizeof(words),
			 "silent     pid %d, test_job_info: it is stopped",
			 job_pid(1));
		await(&said, job_pid(1), words);
		crowd(job_pid(1));
		await(&said, 0, words);
		kill(job_pid(1), SIGCONT);
	}
	add_up(me);
}

START_TEST(who_is_stopped_is_silent)
{
	job_run(&(struct job){.run = stops, .ranks = 2, .timeout_s = 60});
}
END_TEST

static void dies(struct job_rank *me)
{
	static struct said said;
	char words[128];
	pid_t pid = job_pid(1);

	add_up(me);
	if (me->rank == 1)
		kill(pid, SIGKILL);
	snprintf(words, sizeof(words), "left or died: rank 1 (");
	await(&said, getpid(), words);
	snprintf(words, sizeof(words), "pid %d, ", pid);
	ask(&said, 0);
	JOB_CHECK(!strstr(said.text, words), "%s is there: %s", words,
		  said.text);
}

START_TEST(nothing_is_left_of_who_is_killed)
{
	job_run(&(struct job){
		.run = dies, .ranks = 2, .may_die = 1 << 1, .timeout_s = 60});
}
END_TEST

/* ---- who asks ---- */

/* Readers that never read, and some that go at once */
static void is_read_badly(struct job_rank *me)
{
	static struct said said;
	struct sockaddr_un at;
	int fds[READERS];
	socklen_t len;

	add_up(me);
	if (me->rank == 0) {
		len = find_socket(getpid(), &at);
		for (int i = 0; i < READERS; i++) {
			fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
			JOB_CHECK(fds[i] >= 0 &&
					  !connect(fds[i],
						   (struct sockaddr *)&at, len),
				  "connect: %m");
			if (i % 2)
				close(fds[i]);
		}
		ask(&said, getpid());
		must_say(&said, 0, "2 ranks, 1 told here");
		for (int i = 0; i < READERS; i += 2)
			close(fds[i]);
	}
	add_up(me);
}

START_TEST(who_does_not_read_holds_up_nobody)
{
	job_run(&(struct job){.run = is_read_badly, .ranks = 2});
}
END_TEST

/* The process itself refuses one who does without the tool: the connection ends
 * without a byte. */
static void connect_as(uid_t uid)
{
	struct sockaddr_un at;
	socklen_t len = find_socket(getpid(), &at);
	pid_t child = fork();
	char byte;
	int end, fd;

	JOB_CHECK(child >= 0, "fork: %m");
	if (!child) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (fd < 0 || setuid(uid) ||
		    connect(fd, (struct sockaddr *)&at, len))
			_exit(99);
		_exit(read(fd, &byte, 1) != 0);
	}
	JOB_CHECK(waitpid(child, &end, 0) == child && end == 0,
		  "a stranger ended with %#x", (unsigned)end);
}

static void is_asked_by_strangers(struct job_rank *me)
{
	static struct said said;

	if (me->rank)
		return;
	connect_as(65534);
	ask_as(&said, getpid(), 65534);
	if (said.status == 98 || said.status == 126 || said.status == 127)
		return; /* that user cannot read the folder of the build */
	must_say(&said, 3, "it belongs to user 0: only that user and root may");
}

START_TEST(another_user_is_refused)
{
	if (geteuid() == 0)
		job_run(&(struct job){.run = is_asked_by_strangers,
				      .ranks = 2});
}
END_TEST

/* ---- over the network ---- */

#define SECRET "DICOMM_COMM_KEY=of this test only"

/* Where rank 0 tells of the whole job */
static void find_port(struct said *said, char *address, size_t len)
{
	const char *line;
	int n;

	await(said, job_pid(0), "port       127.0.0.1:");
	line = strstr(said->text, "port       ") + strlen("port       ");
	n = (int)strcspn(line, " ") - 1; /* without the colon */
	snprintf(address, len, "%.*s", n, line);
}

/* It asks as one of another machine does. A split makes more communicators of
 * the same processes. */
static void is_asked_from_afar(struct job_rank *me)
{
	static struct said said;
	dicomm_comm_t part;
	char address[64];

	JOB_TRY(dicomm_comm_split(me->comm, me->rank / 2, 0, &part, NULL));
	add_up(me);
	if (me->rank == 3) {
		find_port(&said, address, sizeof(address));
		ask_whom(&said, address, 0, "of another job");
		must_say(&said, 3, ": wrong secret: ");
		JOB_CHECK(!strstr(said.text, "rank  "), "%s", said.text);
		for (int i = 0; i < 20; i++)
			ask_whom(&said, address, 0, NULL);
		must_say(&said, 0, ": 4 ranks, 4 told\n");
		must_say(&said, 0, ": 2 ranks, 2 told\n");
		JOB_CHECK(!strstr(said.text, "silent "), "%s", said.text);
	}
	job_barrier();
	JOB_TRY(dicomm_comm_destroy(part));
}

START_TEST(the_whole_job_tells_who_has_its_secret)
{
	job_run(&(struct job){.run = is_asked_from_afar,
			      .ranks = 4,
			      .threads = _i,
			      .env = {SECRET, "DICOMM_SOCKET_IFNAME=lo"},
			      .timeout_s = 60});
}
END_TEST

static void is_partly_stopped(struct job_rank *me)
{
	static struct said said;
	char address[64], words[128];
	double begin;

	add_up(me);
	if (me->rank == 2)
		raise(SIGSTOP);
	if (me->rank == 1) {
		await(&said, job_pid(2), "it is stopped");
		find_port(&said, address, sizeof(address));
		begin = job_seconds();
		ask_whom(&said, address, 0, NULL);
		snprintf(words, sizeof(words), " pid %d): no answer in 3 s",
			 job_pid(2));
		must_say(&said, 0, words);
		must_say(&said, 0, ": 3 ranks, 2 told\n");
		JOB_CHECK(job_is_costly() || job_seconds() - begin < 10,
			  "it took %.1f s", job_seconds() - begin);
		kill(job_pid(2), SIGCONT);
	}
	add_up(me);
}

START_TEST(who_is_stopped_is_named_to_who_is_far)
{
	job_run(&(struct job){.run = is_partly_stopped,
			      .ranks = 3,
			      .env = {SECRET, "DICOMM_SOCKET_IFNAME=lo"},
			      .timeout_s = 60});
}
END_TEST

/* The same process meets others at one address again and again. */
static void meets_again(struct job_rank *me)
{
	static struct said said;
	dicomm_comm_t comms[4];
	dicomm_unique_id_t id;
	char address[32];
	int32_t one = 1, sum;

	snprintf(address, sizeof(address), "127.0.0.1:%d",
		 20000 + job_pid(0) % 12000);
	for (int i = 0; i < 4; i++) {
		JOB_TRY(dicomm_unique_id_at(address, me->rank, &id));
		JOB_TRY(dicomm_comm_init_rank(&comms[i], me->ranks, id,
					      me->rank));
		JOB_TRY(dicomm_allreduce(&one, &sum, 1, DICOMM_INT32,
					 DICOMM_SUM, comms[i], NULL));
		if (i == 2)
			JOB_TRY(dicomm_comm_destroy(comms[0]));
	}
	if (me->rank == 1) {
		ask_whom(&said, address, 0, NULL);
		must_say(&said, 0, ": 2 ranks, 2 told\n");
	}
	job_barrier();
	for (int i = 1; i < 4; i++)
		JOB_TRY(dicomm_comm_destroy(comms[i]));
	job_barrier();
	if (me->rank == 1) {
		ask_whom(&said, address, 0, NULL);
		must_say(&said, 3, ": Connection refused (is this the port");
	}
	job_barrier();
}

START_TEST(a_port_that_is_asked_serves_further_meetings)
{
	job_run(&(struct job){.run = meets_again,
			      .ranks = 2,
			      .bare = true,
			      .env = {SECRET, "DICOMM_SOCKET_IFNAME=lo"},
			      .timeout_s = 60});
}
END_TEST

/* Of a range that is just enough, the port where the ranks met is needed: here
 * to recover at. */
static void has_one_port(struct job_rank *me)
{
	int port = 20000 + job_pid(0) % 12000;
	dicomm_comm_t comm;
	char range[32];

	snprintf(range, sizeof(range), "%d-%d", port, port);
	setenv("DICOMM_PORT_RANGE", range, 1);
	JOB_TRY(dicomm_comm_init_rank(&comm, me->ranks, job_id(), me->rank));
	JOB_TRY(dicomm_comm_destroy(comm));
}

START_TEST(who_needs_the_port_is_not_asked_there)
{
	job_run(&(struct job){.run = has_one_port,
			      .ranks = 1,
			      .bare = true,
			      .env = {SECRET, "DICOMM_SOCKET_IFNAME=lo",
				      "DICOMM_TRANSPORTS=shm"}});
}
END_TEST

/* ---- who does not tell ---- */

static void does_not_tell(struct job_rank *me)
{
	static struct said said;

	ask(&said, getpid());
	must_say(&said, 0,
		 "test_job_info: it does not tell (no "
		 "communicator, DICOMM_JOB_INFO=off");
	(void)me;
}

START_TEST(who_does_not_want_to_does_not_tell)
{
	job_run(&(struct job){.run = does_not_tell,
			      .ranks = 2,
			      .env = {"DICOMM_JOB_INFO=off"}});
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("job_info");
	TCase *tcase = tcase_create("job_info");

	if (access(TOOL, X_OK)) {
		printf("1..0 # SKIP dicomm-info is not built\n");
		return 77;
	}
	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, who_stays_away_from_a_collective_is_named);
	tcase_add_test(tcase, who_waits_in_a_circle_is_named);
	tcase_add_test(tcase, who_is_stopped_is_silent);
	tcase_add_test(tcase, nothing_is_left_of_who_is_killed);
	tcase_add_test(tcase, who_does_not_read_holds_up_nobody);
	tcase_add_test(tcase, another_user_is_refused);
	tcase_add_loop_test(tcase, the_whole_job_tells_who_has_its_secret, 0,
			    2);
	tcase_add_test(tcase, who_is_stopped_is_named_to_who_is_far);
	tcase_add_test(tcase, a_port_that_is_asked_serves_further_meetings);
	tcase_add_test(tcase, who_needs_the_port_is_not_asked_there);
	tcase_add_test(tcase, who_does_not_want_to_does_not_tell);
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
