/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who started this process. "test_launcher meet" is a rank for
 * tests/jobs/launchers.sh: it asks the launcher twice, meets the others each
 * time, and says so. "test_launcher stores" lists the stores of this build.
 */
#include <check.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/boot/control/control.h"
#include "src/boot/store/launcher.h"
#include "src/boot/store/slurm.h"
#include "src/boot/store/store.h"
#include "tests/support/runner.h"
#include "tests/support/starved.h"

#define RANKS 3

static int way; /* of an_address_by_many_names */

/* What launchers set, so that none of it comes from outside. */
static const char *const variables[] = {
	"RANK",
	"WORLD_SIZE",
	"MASTER_ADDR",
	"MASTER_PORT",
	"TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_RESTART_COUNT",
	"PMI_FD",
	"PMI_RANK",
	"PMI_SIZE",
	"MPI_LOCALRANKID",
	"PMIX_RANK",
	"PMIX_NAMESPACE",
	"SLURM_PROCID",
	"SLURM_NTASKS",
	"SLURM_STEP_NUM_TASKS",
	"SLURM_STEP_ID",
	"SLURM_JOB_ID",
	"SLURM_STEP_NODELIST",
	"SLURM_JOB_NODELIST",
	"DICOMM_RANK",
	"DICOMM_SIZE",
	"DICOMM_COMM_ID",
	"DICOMM_COMM_KEY",
	"NCCL_COMM_ID",
};

static void setup(void)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
}

static void set(const char *name, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void set(const char *name, const char *format, ...)
{
	char value[200];
	va_list args;

	va_start(args, format);
	vsnprintf(value, sizeof(value), format, args);
	va_end(args);
	setenv(name, value, 1);
}

/* Meet and gather; the sum of all ranks, or -1. */
static int meet_once(struct launcher_info *info)
{
	struct control_config config = {.timeout_ms = 20000};
	int all[256], sum = 0;
	struct control *c;

	if (launcher_find(info) != DICOMM_SUCCESS || info->ranks > 256)
		return -1;
	config.rank = info->rank;
	config.ranks = info->ranks;
	config.id = &info->id;
	if (control_open(&config, &c) != DICOMM_SUCCESS)
		return -1;
	if (control_allgather(c, &info->rank, all, sizeof(int), 20000))
		sum = -1;
	for (int i = 0; i < info->ranks && sum >= 0; i++)
		sum += all[i];
	control_close(c);
	return sum;
}

static int run_rank(void)
{
	struct launcher_info info;
	int first = meet_once(&info), second = meet_once(&info);

	if (first < 0 || second < 0)
		return 1;
	printf("%s rank %d of %d sums %d %d\n", info.name, info.rank,
	       info.ranks, first, second);
	return fflush(stdout);
}

static int list_stores(void)
{
	for (int i = 0; stores[i]; i++)
		puts(stores[i]->name);
	return fflush(stdout);
}

/* In processes of their own, as settings are read once. */
static void check_ranks(void (*prepare)(int rank), const char *name)
{
	struct launcher_info info;
	pid_t pid[RANKS];
	int status;

	for (int i = 0; i < RANKS; i++) {
		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (pid[i])
			continue;
		prepare(i);
		for (int k = 0; k < 2; k++) {
			ck_assert_msg(meet_once(&info) == 3, "%s",
				      log_last_error());
			ck_assert_int_eq(info.rank, i);
			ck_assert_int_eq(info.ranks, RANKS);
			ck_assert_str_eq(info.name, name);
		}
		_exit(0);
	}
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
	}
}

/* Below the ephemeral ports, where nobody comes by chance. */
static int a_port(void)
{
	return 24000 + (int)getppid() % 6000;
}

static void prepare_own(int rank)
{
	set("DICOMM_RANK", "%d", rank);
	set("DICOMM_SIZE", "%d", RANKS);
	set("DICOMM_COMM_ID", "127.0.0.1:%d", a_port());
	set("DICOMM_COMM_KEY", "sesame");
	/* Ours come first. */
	set("RANK", "0");
	set("WORLD_SIZE", "1");
	set("MASTER_ADDR", "127.0.0.1");
	set("MASTER_PORT", "1");
	set("TORCHELASTIC_RUN_ID", "x");
}

START_TEST(our_own_variables)
{
	check_ranks(prepare_own, "DICOMM_RANK");
}
END_TEST

/* Rank 0 knows no address of its own: its name is not known yet, or leads to
 * a router. The others know it by different names. */
static void prepare_by_many_names(int rank)
{
	static const char *const hosts[][RANKS] = {
		{"0.0.0.0", "localhost", "127.0.0.1"},
		{"trainer-0.invalid", "127.0.0.1", "localhost"},
		{"192.0.2.7", "127.0.0.1", "127.0.0.1"},
	};

	prepare_own(rank);
	setenv("DICOMM_SOCKET_FAMILY", "AF_INET", 1);
	set("DICOMM_COMM_ID", "%s:%d", hosts[way][rank], a_port());
}

START_TEST(an_address_by_many_names)
{
	way = _i;
	check_ranks(prepare_by_many_names, "DICOMM_RANK");
}
END_TEST

static void prepare_torchrun(int rank)
{
	set("RANK", "%d", rank);
	set("WORLD_SIZE", "%d", RANKS);
	set("MASTER_ADDR", "localhost");
	set("MASTER_PORT", "%d", a_port());
	set("TORCHELASTIC_RUN_ID", "a-run");
	set("TORCHELASTIC_RESTART_COUNT", "0");
	/* Left over from an outer launcher. */
	set("PMIX_RANK", "0");
	set("PMIX_NAMESPACE", "outer");
}

START_TEST(torchruns_variables)
{
	check_ranks(prepare_torchrun, "torchrun");
}
END_TEST

static void prepare_slurm(int rank)
{
	set("SLURM_PROCID", "%d", rank);
	set("SLURM_STEP_NUM_TASKS", "%d", RANKS);
	set("SLURM_NTASKS", "77"); /* of the job */
	set("SLURM_JOB_ID", "%d", (int)getppid());
	set("SLURM_STEP_ID", "0");
	set("SLURM_STEP_NODELIST", "localhost");
	set("DICOMM_COMM_KEY", "sesame");
}

START_TEST(slurms_variables)
{
	check_ranks(prepare_slurm, "slurm");
}
END_TEST

static const struct {
	const char *list, *host; /* NULL: does not parse */
} lists[] = {
	{"a", "a"},
	{"node07,node08", "node07"},
	{"node[07-12,20],login", "node07"},
	{"node[3]", "node3"},
	{"rack[1-2]node[05,09]", "rack1node05"},
	{"n[1,2]-ib", "n1-ib"},
	{"", NULL},
	{"node[", NULL},
	{"node[]", NULL},
	{"node[07", NULL},
	{",a", NULL},
	{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL},
};

START_TEST(the_first_host_of_a_list)
{
	char host[32];

	ck_assert_int_eq(slurm_first_host(lists[_i].list, host, sizeof(host)),
			 lists[_i].host != NULL);
	if (lists[_i].host)
		ck_assert_str_eq(host, lists[_i].host);
}
END_TEST

START_TEST(nobody_started_us)
{
	struct launcher_info info;

	/* A batch script is not a task. */
	set("SLURM_PROCID", "0");
	set("SLURM_NTASKS", "8");
	set("SLURM_JOB_ID", "1");
	set("PMI_FD", "999");
	set("PMI_RANK", "0");
	set("PMI_SIZE", "1");
	ck_assert_int_eq(launcher_find(&info), DICOMM_ERR_INVALID_USAGE);
	ck_assert_ptr_nonnull(strstr(log_last_error(), "DICOMM_RANK"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "MASTER_ADDR"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "PMI_FD"));
	ck_assert_ptr_nonnull(strstr(log_last_error(), "SLURM_PROCID"));
}
END_TEST

static const struct {
	const char *names[4], *values[4];
	const char *said;
} mistakes[] = {
	{{"DICOMM_RANK"}, {"1"}, "DICOMM_RANK is 1, and DICOMM_SIZE is not"},
	{{"DICOMM_SIZE"}, {"2"}, "DICOMM_SIZE is 2, and DICOMM_RANK is not"},
	{{"DICOMM_RANK", "DICOMM_SIZE"},
	 {"one", "2"},
	 "DICOMM_SIZE is 2, and DICOMM_RANK is not set, or not to a valid"},
	{{"DICOMM_RANK", "DICOMM_SIZE"}, {"1", "2"}, "DICOMM_COMM_ID"},
	{{"DICOMM_RANK", "DICOMM_SIZE"}, {"2", "2"}, "DICOMM_RANK is 2"},
	{{"DICOMM_RANK", "DICOMM_SIZE", "DICOMM_COMM_ID"},
	 {"1", "2", "nowhere"},
	 "DICOMM_COMM_ID \"nowhere\""},
	{{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
	 {"2", "2", "a", "1"},
	 "RANK is \"2\""},
	{{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
	 {"0", "many", "a", "1"},
	 "WORLD_SIZE is \"many\""},
	{{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
	 {"0", "2", "a", "0"},
	 "MASTER_PORT is \"0\""},
};

START_TEST(mistakes_are_named)
{
	struct launcher_info info;
	dicomm_result_t status;

	for (int i = 0; i < 4 && mistakes[_i].names[i]; i++)
		setenv(mistakes[_i].names[i], mistakes[_i].values[i], 1);
	status = launcher_find(&info);
	ck_assert(status == DICOMM_ERR_INVALID_USAGE ||
		  status == DICOMM_ERR_INVALID_ARGUMENT);
	ck_assert_msg(strstr(log_last_error(), mistakes[_i].said), "%s",
		      log_last_error());
}
END_TEST

START_TEST(one_rank_needs_no_address)
{
	struct launcher_info info;

	set("DICOMM_RANK", "0");
	set("DICOMM_SIZE", "1");
	ck_assert_int_eq(meet_once(&info), 0);
}
END_TEST

/* --- PMI-1, against an mpiexec that misbehaves -----------------------------
 */

/* Answers each line with the next of these, then hangs up or falls silent. */
static void run_mpiexec(int fd, const char *const *answers, bool silent)
{
	char line[512];

	for (; *answers; answers++) {
		if (recv(fd, line, sizeof(line), 0) <= 0)
			_exit(0);
		send(fd, *answers, strlen(*answers), MSG_NOSIGNAL);
	}
	if (silent)
		sleep(10);
	_exit(0);
}

static const struct {
	const char *answers[6];
	bool silent;
	dicomm_result_t status;
} mpiexecs[] = {
	{{NULL}, false, DICOMM_ERR_REMOTE},
	{{NULL}, true, DICOMM_ERR_TIMEOUT},
	{{"cmd=response_to_init rc=-1\n"}, false, DICOMM_ERR_SYSTEM},
	{{"nonsense\n"}, false, DICOMM_ERR_SYSTEM},
	{{"cmd=response_to_init rc=0\n", "cmd=my_kvsname\n"},
	 false,
	 DICOMM_ERR_SYSTEM},
	{{"cmd=response_to_init rc=0\n", "cmd=my_kvsname kvsname=k\n",
	  "cmd=barrier_out\n", "cmd=get_result rc=0\n"},
	 false,
	 DICOMM_ERR_SYSTEM},
	{{"cmd=response_to_init rc=0\n", "cmd=my_kvsname kvsname=k\n",
	  "cmd=barrier_out\n", "cmd=get_result rc=0 value=an-id\n"},
	 false,
	 DICOMM_SUCCESS},
};

START_TEST(an_mpiexec_that_misbehaves)
{
	struct launcher_info info;
	uint64_t begin = clock_ms();
	int pair[2];
	pid_t pid;

	set("DICOMM_BOOTSTRAP_TIMEOUT", "1");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid = fork();
	if (!pid) {
		close(pair[0]);
		run_mpiexec(pair[1], mpiexecs[_i].answers, mpiexecs[_i].silent);
	}
	close(pair[1]);
	set("PMI_FD", "%d", pair[0]);
	set("PMI_RANK", "1");
	set("PMI_SIZE", "2");
	ck_assert_msg(launcher_find(&info) == mpiexecs[_i].status, "%s",
		      log_last_error());
	ck_assert_uint_lt(clock_ms() - begin, 6000 + starved_ms());
	if (!mpiexecs[_i].status)
		ck_assert_str_eq(info.id.text, "an-id");
	close(pair[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Ranks of a launcher may begin far apart. */
START_TEST(a_launcher_gives_more_time)
{
	if (_i == 1)
		set("PMIX_RANK", "0");
	if (_i == 2) {
		set("RANK", "0");
		set("WORLD_SIZE", "2");
		set("MASTER_ADDR", "127.0.0.1");
		set("MASTER_PORT", "29500");
	}
	if (_i == 3) {
		set("PMIX_RANK", "0");
		set("DICOMM_BOOTSTRAP_TIMEOUT", "7");
	}
	ck_assert_int_eq(launcher_patience_s(), _i == 0   ? 60
						: _i == 3 ? 7
							  : 600);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tcase;

	setenv("DICOMM_SOCKET_IFNAME", "lo", 1);
	if (argc > 1 && !strcmp(argv[1], "meet"))
		return run_rank();
	if (argc > 1 && !strcmp(argv[1], "stores"))
		return list_stores();

	setenv("DICOMM_DEBUG", "none", 1);
	suite = suite_create("launcher");
	tcase = tcase_create("launcher");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, our_own_variables);
	tcase_add_loop_test(tcase, an_address_by_many_names, 0, 3);
	tcase_add_test(tcase, torchruns_variables);
	tcase_add_test(tcase, slurms_variables);
	tcase_add_loop_test(tcase, the_first_host_of_a_list, 0,
			    (int)(sizeof(lists) / sizeof(*lists)));
	tcase_add_test(tcase, nobody_started_us);
	tcase_add_loop_test(tcase, mistakes_are_named, 0,
			    (int)(sizeof(mistakes) / sizeof(*mistakes)));
	tcase_add_test(tcase, one_rank_needs_no_address);
	tcase_add_loop_test(tcase, a_launcher_gives_more_time, 0, 4);
	tcase_add_loop_test(tcase, an_mpiexec_that_misbehaves, 0,
			    (int)(sizeof(mpiexecs) / sizeof(*mpiexecs)));
	suite_add_tcase(suite, tcase);
	return runner_main(suite);
}
