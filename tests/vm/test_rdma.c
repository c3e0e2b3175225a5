// SPDX-License-Identifier: BSD-3-Clause
/* What only RDMA can show: which NICs are used, memory that was replaced at its
 * address, connections of strangers, and peers that do not reply. Runs in the
 * virtual machines of tests/vm/run only. */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/mock/real_verbs.h"
#include "tests/support/capture.h"
#include "tests/support/residue.h"
#include "tests/support/runner.h"
#include "tests/support/storm.h"
#include "tests/support/trial.h"
#include "tests/support/vm.h"
#include "transports/transport.h"

#define ONLY_VERBS "DICOMM_TRANSPORTS=verbs"
#define BY_LO "DICOMM_SOCKET_IFNAME=lo"
#define DEVICES_MAX 9

static struct vm vm;

static void work(struct job_rank *me)
{
	trial_run_some(me, 0);
}

/* --- settings ---------------------------------------------------------------
 */

struct refusal {
	const char *words[3];
};

static void be_refused(struct job_rank *me)
{
	const struct refusal *r = me->arg;
	dicomm_result_t status =
		dicomm_comm_init_rank(&me->comm, me->ranks, job_id(), me->rank);
	const char *text = dicomm_get_last_error(NULL);

	if (status == DICOMM_SUCCESS) /* at the first message, then */
		status = dicomm_barrier(me->comm, NULL);
	JOB_CHECK(status == DICOMM_ERR_NO_PATH ||
			  status == DICOMM_ERR_INVALID_ARGUMENT ||
			  status == DICOMM_ERR_REMOTE,
		  "status %d: %s", (int)status, text);
	if (status == DICOMM_ERR_REMOTE) /* the other one found it */
		return;
	for (int i = 0; i < 3 && r->words[i]; i++)
		JOB_CHECK(strstr(text, r->words[i]), "no \"%s\" in \"%s\"",
			  r->words[i], text);
}

static void expect_refusal(const char *setting, struct refusal refusal)
{
	job_run(&(struct job){
		.run = be_refused,
		.arg = &refusal,
		.ranks = 2,
		.bare = true,
		.env = {ONLY_VERBS, setting, "DICOMM_DEBUG=none"}});
}

START_TEST(devices_that_match_nothing_name_what_exists)
{
	char first[32], last[32], port[48];

	snprintf(first, sizeof(first), "%s0:1", vm.kind);
	snprintf(last, sizeof(last), "%s%d:1", vm.kind, vm.devices - 1);
	snprintf(port, sizeof(port), "DICOMM_IB_HCA=%s0:7", vm.kind);
	expect_refusal("DICOMM_IB_HCA=mlx5",
		       (struct refusal){{"mlx5", first, last}});
	expect_refusal("DICOMM_IB_HCA==rx",
		       (struct refusal){{"=rx", first, last}});
	expect_refusal("DICOMM_IB_HCA=^rxe,siw",
		       (struct refusal){{"^rxe,siw", first, last}});
	expect_refusal(port, (struct refusal){{":7", first, last}});
}
END_TEST

START_TEST(a_gid_that_is_not_there_is_named)
{
	expect_refusal("DICOMM_IB_GID_INDEX=200",
		       (struct refusal){{"DICOMM_IB_GID_INDEX", "200"}});
}
END_TEST

/* Packets that a RoCE device has sent. */
static uint64_t packets_sent(int device)
{
	char path[100];
	uint64_t n;
	FILE *f;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/rxe%d/ports/1/hw_counters/sent_pkts",
		 device);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(fscanf(f, "%" SCNu64, &n), 1);
	fclose(f);
	return n;
}

static const struct {
	const char *setting;
	unsigned allowed; /* bit i: device i */
} choices[] = {
	{"DICOMM_IB_HCA=rxe0", 1},        {"DICOMM_IB_HCA==rxe1", 2},
	{"DICOMM_IB_HCA=rxe1:1", 2},      {"DICOMM_IB_HCA=^rxe0", ~1u},
	{"DICOMM_IB_HCA=^=rxe1", ~2u},    {"DICOMM_IB_HCA=rxe0:1,rxe1:1", 3},
	{"DICOMM_IB_HCA=rxe0:2,rxe1", 2}, {"DICOMM_IB_HCA=rx", ~0u},
};

START_TEST(traffic_is_on_the_chosen_devices)
{
	unsigned allowed = choices[_i].allowed & ((1u << vm.devices) - 1);
	uint64_t before[DEVICES_MAX];
	unsigned used = 0;

	for (int i = 0; i < vm.devices; i++)
		before[i] = packets_sent(i);
	job_run(&(struct job){.run = work,
			      .ranks = 2,
			      .env = {ONLY_VERBS, choices[_i].setting}});
	for (int i = 0; i < vm.devices; i++)
		if (packets_sent(i) != before[i])
			used |= 1u << i;
	ck_assert_msg(used != 0 && (used & ~allowed) == 0,
		      "%s: used devices %#x, allowed %#x", choices[_i].setting,
		      used, allowed);
	if (__builtin_popcount(allowed) <= 2)
		ck_assert_msg(used == allowed,
			      "%s: used devices %#x, wanted %#x",
			      choices[_i].setting, used, allowed);
}
END_TEST

#define PLACE_BYTES ((size_t)1 << 20)

static void fill(int32_t *at, int32_t value)
{
	for (size_t i = 0; i < PLACE_BYTES / sizeof(*at); i++)
		at[i] = value + (int32_t)i;
}

static void check_is(const int32_t *at, int32_t value, const char *what)
{
	for (size_t i = 0; i < PLACE_BYTES / sizeof(*at); i++)
		JOB_CHECK(at[i] == value + (int32_t)i,
			  "%s: element %zu is %d, not %d", what, i, at[i],
			  value + (int32_t)i);
}

/* Over how many of two devices one rank sends, and by what. */
static const struct {
	const char *nics, *qps;
	bool both;
} sharings[] = {
	{"DICOMM_IB_NICS=1", "DICOMM_IB_QPS_PER_CONNECTION=3", false},
	{"DICOMM_IB_NICS=2", "DICOMM_IB_QPS_PER_CONNECTION=1", true},
	{"DICOMM_IB_NICS=4", "DICOMM_IB_QPS_PER_CONNECTION=2", true},
};

/* What rank 0 sends is read by rank 1: packets of the device that has them. */
static void send_much(struct job_rank *me)
{
	size_t n = PLACE_BYTES / sizeof(int32_t);
	void *p;

	JOB_TRY(dicomm_mem_alloc(&p, PLACE_BYTES));
	for (int32_t i = 0; i < 4; i++) {
		if (me->rank == 0)
			fill(p, i);
		JOB_TRY(dicomm_broadcast(p, p, n, DICOMM_INT32, 0, me->comm,
					 NULL));
		check_is(p, i, "broadcast");
	}
	JOB_TRY(dicomm_mem_free(p));
}

START_TEST(traffic_is_shared_by_two_devices)
{
	uint64_t before[2] = {packets_sent(0), packets_sent(1)}, sent[2];

	job_run(&(struct job){.run = send_much,
			      .ranks = 2,
			      .env = {ONLY_VERBS, "DICOMM_IB_HCA==rxe0,rxe1",
				      sharings[_i].nics, sharings[_i].qps}});
	for (int i = 0; i < 2; i++)
		sent[i] = packets_sent(i) - before[i];
	ck_assert_msg(sharings[_i].both
			      ? 2 * sent[1] > sent[0] && 2 * sent[0] > sent[1]
			      : 4 * sent[1] < sent[0],
		      "%s: %" PRIu64 " packets of rxe0, %" PRIu64 " of rxe1",
		      sharings[_i].nics, sent[0], sent[1]);
}
END_TEST

/* Each rank is a host, and the last one has one device, the others two. */
static void hear_of_unlike_hosts(struct job_rank *me)
{
	bool last = me->rank == me->ranks - 1;
	double up[3], down[3];
	const char *told;

	setenv("DICOMM_HOSTID", last ? "few" : me->rank ? "b" : "a", 1);
	setenv("DICOMM_IB_HCA", last ? "=rxe2" : "=rxe0,rxe1", 1);
	setenv("DICOMM_PROBE", "off", 1);
	capture_start();
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	trial_run_some(me, 0);
	if (me->rank)
		return;
	told = strstr(capture_text(), "declare the uplinks of 3 hosts");
	JOB_CHECK(told, "not told in: %s", capture_text());
	told = strchr(told, ':');
	JOB_CHECK(told && sscanf(told,
				 ": %lf up %lf down, %lf up %lf down, "
				 "%lf up %lf down",
				 &up[0], &down[0], &up[1], &down[1], &up[2],
				 &down[2]) == 6,
		  "no rates in: %s", told);
	JOB_CHECK(up[2] > 0 && up[0] == 2 * up[2] && up[1] == up[0] &&
			  up[0] == down[0] && up[2] == down[2],
		  "rates are%s", told);
}

START_TEST(what_devices_declare_are_the_rates_of_links)
{
	job_run(&(struct job){
		.run = hear_of_unlike_hosts,
		.ranks = 3,
		.bare = true,
		.env = {ONLY_VERBS, "DICOMM_IB_NICS=2", "DICOMM_DEBUG=info"},
		.timeout_s = 60});
}
END_TEST

/* They are software, and what they say is not believed. */
static void measure_software(struct job_rank *me)
{
	char name[8];

	snprintf(name, sizeof(name), "%d", me->rank);
	if (!me->arg)
		setenv("DICOMM_HOSTID", name, 1);
	setenv("DICOMM_PROBE", "auto", 1);
	capture_start();
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	trial_run_some(me, 0);
	JOB_CHECK(me->rank || strstr(capture_text(), "measured the uplinks of"),
		  "not told in: %s", capture_text());
}

START_TEST(what_software_carries_is_measured)
{
	job_run(&(struct job){
		.run = measure_software,
		.arg = _i ? "apart" : NULL,
		.ranks = 3,
		.bare = true,
		.env = {ONLY_VERBS, "DICOMM_IB_NICS=1", "DICOMM_DEBUG=info"},
		.timeout_s = 60});
}
END_TEST

/* Of this process, with its peers */
static unsigned queue_pairs(void)
{
	FILE *all = popen("rdma resource show qp", "r");
	unsigned found = 0;
	char line[512], mine[32];

	snprintf(mine, sizeof(mine), " pid %d ", (int)getpid());
	JOB_CHECK(all, "rdma: %m");
	while (fgets(line, sizeof(line), all))
		found += strstr(line, " type RC ") && strstr(line, mine);
	JOB_CHECK(pclose(all) == 0, "rdma: failed");
	return found;
}

static void open_channels(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	unsigned pairs[2];

	for (int i = 0; i < 2; i++) {
		config.lanes = i ? 3 : DICOMM_UNDEFINED_INT;
		JOB_TRY(dicomm_comm_init_rank_config(
			&me->comm, me->ranks, job_id(), me->rank, &config));
		trial_run_some(me, 0);
		pairs[i] = queue_pairs();
		job_barrier();
		JOB_TRY(dicomm_comm_destroy(me->comm));
		me->comm = NULL;
	}
	JOB_CHECK(pairs[0] && pairs[1] == 3 * pairs[0],
		  "%u queue pairs, with 3 lanes %u", pairs[0], pairs[1]);
}

START_TEST(lanes_are_queue_pairs)
{
	job_run(&(struct job){.run = open_channels,
			      .ranks = 2,
			      .bare = true,
			      .env = {ONLY_VERBS, "DICOMM_IB_NICS=1",
				      "DICOMM_IB_QPS_PER_CONNECTION=1"}});
}
END_TEST

static const char *const settings[] = {
	"DICOMM_IB_AR_THRESHOLD=100",
	"DICOMM_IB_EAGER_BYTES=128",
	"DICOMM_IB_EAGER_BYTES=64K",
	"DICOMM_IB_PCI_RELAXED_ORDERING=0",
	"DICOMM_IB_RETRY_CNT=3",
	"DICOMM_IB_SL=3",
	"DICOMM_IB_TC=96",
	"DICOMM_IB_TIMEOUT=20",
	"DICOMM_IB_GID_INDEX=1",
	"DICOMM_IB_NICS=1",
	"DICOMM_IB_QPS_PER_CONNECTION=3",
	"DICOMM_IB_CONNECT=rdmacm",
};

START_TEST(data_is_right_with_any_setting)
{
	job_run(&(struct job){
		.run = work, .ranks = 3, .env = {ONLY_VERBS, settings[_i]}});
}
END_TEST

/* --- waiting ----------------------------------------------------------------
 */

#define LATE_MS 1500

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The part of its time that this rank works while it waits for the last one,
 * which is late. */
static double work_while_waiting(const struct job_rank *me)
{
	double begun, cpu;

	JOB_TRY(dicomm_barrier(me->comm, NULL));
	begun = job_seconds();
	cpu = cpu_seconds();
	if (me->rank == me->ranks - 1)
		job_sleep_ms(LATE_MS);
	JOB_TRY(dicomm_barrier(me->comm, NULL));
	return (cpu_seconds() - cpu) / (job_seconds() - begun);
}

/* Whatever else this machine does: the better one counts. */
static void wait_for_who_is_late(struct job_rank *me)
{
	double first, second;

	trial_run_some(me, 0);
	first = work_while_waiting(me);
	second = work_while_waiting(me);
	JOB_CHECK(first < 0.25 || second < 0.25,
		  "works for %.2f and %.2f of the time", first, second);
	trial_run_some(me, 1);
}

START_TEST(who_waits_sleeps)
{
	job_run(&(struct job){
		.run = wait_for_who_is_late, .ranks = 3, .env = {ONLY_VERBS}});
}
END_TEST

/* --- registrations ----------------------------------------------------------
 */

#define ROUNDS 8

/* Memory behind one address, and the same memory where nobody replaces it. */
struct place {
	int32_t *here, *aside;
};

static void replace(struct place *p)
{
	int flags = MAP_SHARED | (p->here ? MAP_FIXED : 0);
	int fd = memfd_create("place", MFD_CLOEXEC);

	JOB_CHECK(fd >= 0 && !ftruncate(fd, (off_t)PLACE_BYTES), "memfd: %m");
	p->here = mmap(p->here, PLACE_BYTES, PROT_READ | PROT_WRITE, flags, fd,
		       0);
	p->aside = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			fd, 0);
	JOB_CHECK(p->here != MAP_FAILED && p->aside != MAP_FAILED, "mmap: %m");
	close(fd);
}

/* Rank 0 sends from, rank 1 receives into, memory that is new each time. */
static void send_from_new_memory(struct job_rank *me)
{
	size_t n = PLACE_BYTES / sizeof(int32_t);
	struct place p = {NULL, NULL};
	int32_t *old;

	for (int32_t round = 0; round < ROUNDS; round++) {
		old = p.aside;
		replace(&p);
		if (old)
			fill(old, -7);
		if (me->rank == 0) {
			fill(p.here, 1000 * round);
			JOB_TRY(dicomm_send(p.here, n, DICOMM_INT32, 1,
					    me->comm, NULL));
		} else {
			JOB_TRY(dicomm_recv(p.here, n, DICOMM_INT32, 0,
					    me->comm, NULL));
			check_is(p.here, 1000 * round, "received");
		}
		if (old) {
			check_is(old, -7, "memory of the time before");
			munmap(old, PLACE_BYTES);
		}
	}
	munmap(p.here, PLACE_BYTES);
	munmap(p.aside, PLACE_BYTES);
}

START_TEST(replaced_memory_is_not_reached_by_its_old_key)
{
	job_run(&(struct job){
		.run = send_from_new_memory, .ranks = 2, .env = {ONLY_VERBS}});
}
END_TEST

/* The allocator gives the same place again, which has a new identity. */
static void send_from_freed_memory(struct job_rank *me)
{
	size_t n = PLACE_BYTES / sizeof(int32_t);
	void *first = NULL, *p;
	int again = 0;

	for (int32_t round = 0; round < ROUNDS; round++) {
		JOB_TRY(dicomm_mem_alloc(&p, PLACE_BYTES));
		again += p == first;
		first = p;
		if (me->rank == 0)
			fill(p, 1000 * round);
		JOB_TRY(dicomm_broadcast(p, p, n, DICOMM_INT32, 0, me->comm,
					 NULL));
		check_is(p, 1000 * round, "broadcast");
		JOB_TRY(dicomm_mem_free(p));
	}
	JOB_CHECK(again > 0, "no address came twice: this tests nothing");
}

START_TEST(freed_memory_is_not_reached_by_its_old_key)
{
	job_run(&(struct job){.run = send_from_freed_memory,
			      .ranks = 2,
			      .env = {ONLY_VERBS}});
}
END_TEST

/* --- many peers -------------------------------------------------------------
 */

/* Of memory, for a peer that is connected in both directions: an inbox of 16
 * slots of 4 KiB, two queue pairs, and their completions. */
#define PEER_BYTES (96 << 10)
/* Whatever the number of ranks may be, up to some hundreds. */
#define RANK_BYTES (512 << 10)
#define ONE_NIC "DICOMM_IB_NICS=1"

struct crowd {
	int ranks;
	enum trial_kind kind;
	int peers; /* that each talks to, at most */
};

static const struct crowd crowds[] = {
	{3, TRIAL_ALLTOALL, 2},
	{11, TRIAL_ALLTOALL, 10},
	{64, TRIAL_SENDRECV, 4},
};

static void talk_in_a_crowd(struct job_rank *me)
{
	const struct crowd *c = me->arg;
	dicomm_stats_t stats = {.size = sizeof(stats)};
	uint64_t most;

	trial_run((struct trial){.kind = c->kind,
				 .type = DICOMM_INT32,
				 .op = DICOMM_SUM,
				 .count = 100},
		  me);
	JOB_TRY(dicomm_comm_stats(me->comm, &stats));
	JOB_CHECK(stats.connected_peers > 0 &&
			  stats.connected_peers <= (uint64_t)c->peers,
		  "%" PRIu64 " peers are connected, not %d",
		  stats.connected_peers, c->peers);
	most = RANK_BYTES + stats.connected_peers * PEER_BYTES;
	/* There, completion queues do not grow when peers come. */
	if (vm.iwarp)
		most += (uint64_t)me->ranks * PEER_BYTES;
	if (me->rank == 0)
		fprintf(stderr,
			"%d ranks: %" PRIu64 " bytes each, %" PRIu64 " peers\n",
			me->ranks, stats.memory_bytes, stats.connected_peers);
	JOB_CHECK(stats.memory_bytes <= most,
		  "%" PRIu64 " bytes, more than %" PRIu64, stats.memory_bytes,
		  most);
}

START_TEST(only_a_connected_peer_costs_memory)
{
	job_run(&(struct job){.run = talk_in_a_crowd,
			      .arg = &crowds[_i],
			      .ranks = crowds[_i].ranks,
			      .threads = true,
			      .timeout_s = 100,
			      .env = {ONLY_VERBS, ONE_NIC}});
}
END_TEST

/* --- strangers --------------------------------------------------------------
 */

#define STRANGERS 60

/* TCP ports at which this process listens. */
static int listening_ports(int *ports, int max)
{
	unsigned long inodes[256], inode;
	char line[512], path[320], link[64];
	unsigned port, state;
	int n = 0, ni = 0;
	DIR *dir = opendir("/proc/self/fd");
	FILE *f = fopen("/proc/self/net/tcp", "r");
	struct dirent *e;
	ssize_t len;

	JOB_CHECK(dir && f, "/proc: %m");
	while ((e = readdir(dir)) && ni < 256) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, link, sizeof(link) - 1);
		link[len > 0 ? len : 0] = '\0';
		ni += sscanf(link, "socket:[%lu]", &inodes[ni]) == 1;
	}
	while (fgets(line, sizeof(line), f) && n < max) {
		if (sscanf(line,
			   " %*d: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d "
			   "%*d %lu",
			   &port, &state, &inode) != 3 ||
		    state != 10)
			continue;
		for (int i = 0; i < ni; i++)
			if (inodes[i] == inode && n < max)
				ports[n++] = (int)port;
	}
	closedir(dir);
	fclose(f);
	return n;
}

static int knock(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Bytes that no rank would send. */
static void annoy(int port, unsigned *state)
{
	uint8_t bytes[1000];
	size_t len = storm_random(state, sizeof(bytes) + 1);
	int fd = knock(port);

	if (fd < 0)
		return;
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)storm_random(state, 256);
	if (len > 8 && storm_random(state, 2)) /* begins as a request does */
		memcpy(bytes, "VERB\1\0\0\0", 8);
	if (send(fd, bytes, len, MSG_NOSIGNAL) < 0)
		job_sleep_ms(1);
	if (storm_random(state, 4))
		close(fd); /* else the connection stays until the process ends
			    */
}

static void work_among_strangers(struct job_rank *me)
{
	_Atomic int *knocked = job_board();
	unsigned state = (unsigned)getpid();
	int ports[16];
	int n = listening_ports(ports, 16);

	for (int i = 0; i < n && i < 16; i++)
		for (int k = 0; k < STRANGERS; k++) {
			annoy(ports[i], &state);
			atomic_fetch_add(knocked, 1);
		}
	job_barrier();
	JOB_CHECK(atomic_load(knocked) > 0, "nobody listens anywhere");
	trial_run_some(me, 0);
}

START_TEST(strangers_do_not_disturb)
{
	job_run(&(struct job){.run = work_among_strangers,
			      .ranks = 2,
			      .env = {ONLY_VERBS, BY_LO, "DICOMM_DEBUG=none"},
			      .timeout_s = 60});
}
END_TEST

#define WITHOUT_MS 1000

/* Rank 0 has no free descriptor for a while. */
static void run_out(struct job_rank *me)
{
	struct rlimit old, none;
	int32_t word = 7 * me->rank;
	double cpu;
	int next;

	JOB_CHECK(!getrlimit(RLIMIT_NOFILE, &old), "getrlimit: %m");
	next = dup(0);
	JOB_CHECK(next >= 0 && !close(next), "dup: %m");
	none = old;
	none.rlim_cur = (rlim_t)next;
	if (me->rank == 0)
		JOB_CHECK(!setrlimit(RLIMIT_NOFILE, &none), "setrlimit: %m");
	job_barrier();
	if (me->rank == 1) {
		JOB_TRY(dicomm_send(&word, 1, DICOMM_INT32, 0, me->comm, NULL));
	} else {
		cpu = cpu_seconds();
		job_sleep_ms(WITHOUT_MS);
		cpu = cpu_seconds() - cpu;
		JOB_CHECK(!setrlimit(RLIMIT_NOFILE, &old), "setrlimit: %m");
		JOB_TRY(dicomm_recv(&word, 1, DICOMM_INT32, 1, me->comm, NULL));
		JOB_CHECK(word == 7, "received %d", word);
		JOB_CHECK(cpu < WITHOUT_MS / 2000.0, "works for %.2f s", cpu);
	}
}

START_TEST(without_descriptors_callers_wait)
{
	job_run(&(struct job){.run = run_out,
			      .ranks = 2,
			      .env = {ONLY_VERBS, "DICOMM_DEBUG=none"}});
}
END_TEST

/* --- beside TCP -------------------------------------------------------------
 */

#define UNLIKE_RANKS 4

/* Who has RDMA. */
static const bool layouts[][UNLIKE_RANKS] = {
	{true, true, false, false},
	/* One without it between ranks that have it. */
	{true, false, true, true},
};

static void run_unlike(void (*run)(struct job_rank *me), int layout)
{
	job_run(&(struct job){.run = run,
			      .arg = layouts[layout],
			      .ranks = UNLIKE_RANKS,
			      .bare = true,
			      .timeout_s = 60});
}

static void work_by_unlike_wires(struct job_rank *me)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;
	dicomm_stats_t s = {.size = sizeof(s)};
	const bool *has = me->arg;

	config.transports = has[me->rank] ? "verbs,tcp" : "tcp";
	JOB_TRY(dicomm_comm_init_rank_config(&me->comm, me->ranks, job_id(),
					     me->rank, &config));
	trial_run_some(me, 0);
	JOB_TRY(dicomm_comm_stats(me->comm, &s));
	JOB_CHECK((s.bytes_rdma > 0) == has[me->rank],
		  "rank %d: %llu bytes by RDMA", me->rank,
		  (unsigned long long)s.bytes_rdma);
}

/* Pairs of which both have it talk by RDMA, all others by TCP. */
START_TEST(some_pairs_have_rdma_and_others_tcp)
{
	run_unlike(work_by_unlike_wires, _i);
}
END_TEST

/* Each on a host of its own, of which the links are measured by these wires. */
static void measure_unlike_wires(struct job_rank *me)
{
	char(*text)[2048] = job_board(), host[16];

	snprintf(host, sizeof(host), "host%d", me->rank);
	setenv("DICOMM_HOSTID", host, 1);
	setenv("DICOMM_PROBE", "auto", 1);
	work_by_unlike_wires(me);
	JOB_TRY(dicomm_comm_explain(me->comm, "allreduce", 1 << 22,
				    DICOMM_FLOAT32, text[me->rank],
				    sizeof(text[0])));
	job_barrier();
	JOB_CHECK(strstr(text[0], "on 4 nodes"), "%s", text[0]);
	JOB_CHECK(!strcmp(text[0], text[me->rank]), "rank 0:\n%s\nrank %d:\n%s",
		  text[0], me->rank, text[me->rank]);
}

START_TEST(hosts_of_unlike_wires_have_one_table)
{
	run_unlike(measure_unlike_wires, _i);
}
END_TEST

/* Two ranks on each of two hosts. What verbs would have slices hold is so
 * within a host, too; unless some rank has no verbs. */
#define LONG_BYTES ((size_t)4 << 20)
#define LONG_MESSAGES (LONG_BYTES >> 18)

static void send_long(struct job_rank *me)
{
	const int *without = me->arg;
	dicomm_stats_t s = {.size = sizeof(s)};
	bool sends = me->rank == 1;
	char *p = malloc(LONG_BYTES);

	setenv("DICOMM_HOSTID", me->rank < 2 ? "a" : "b", 1);
	if (*without && me->rank == 3)
		setenv("DICOMM_TRANSPORTS", "shm,tcp", 1);
	JOB_TRY(dicomm_comm_init_rank(&me->comm, me->ranks, job_id(),
				      me->rank));
	JOB_CHECK(p, "no memory");
	for (int peer = 0; peer < 3; peer += 2) {
		memset(p, sends ? 7 + peer : 0, LONG_BYTES);
		if (sends)
			JOB_TRY(dicomm_send(p, LONG_BYTES, DICOMM_INT8, peer,
					    me->comm, NULL));
		else if (me->rank == peer)
			JOB_TRY(dicomm_recv(p, LONG_BYTES, DICOMM_INT8, 1,
					    me->comm, NULL));
		if (me->rank == peer)
			for (size_t i = 0; i < LONG_BYTES; i++)
				JOB_CHECK(p[i] == 7 + peer,
					  "byte %zu from rank 1 is %d", i,
					  p[i]);
	}
	JOB_TRY(dicomm_comm_stats(me->comm, &s));
	JOB_CHECK(!sends || (s.messages_sent <= 2 * LONG_MESSAGES) != *without,
		  "%llu messages", (unsigned long long)s.messages_sent);
	free(p);
}

START_TEST(slices_are_long_within_hosts_too)
{
	int without = _i;

	job_run(&(struct job){.run = send_long,
			      .arg = &without,
			      .ranks = 4,
			      .bare = true,
			      .env = {"DICOMM_TRANSPORTS=shm,verbs,tcp", BY_LO},
			      .timeout_s = 60});
}
END_TEST

/* --- nobody behind the door --------------------------------------------------
 */

#define CLOSE_S 2.0
#define PATIENCE_S 20.0

static _Atomic int unanswered =
	-1; /* connections that are not replied to; -1: all are */

/* In the place of librdmacm's. */
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*real)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&real = real_verbs("rdma_accept");
	if (atomic_load(&unanswered) < 0)
		return real(id, p);
	atomic_fetch_add(&unanswered, 1);
	return 0;
}

static struct tp_device *open_one(const struct transport *verbs, int rank)
{
	struct tp_config config = {
		.rank = rank, .ranks = 2, .slots = 8, .slot_bytes = 4096};
	struct tp_device *dev = NULL;

	ck_assert_int_eq(verbs->open(&config, &dev), DICOMM_SUCCESS);
	return dev;
}

static void close_in_time(const struct transport *verbs, struct tp_device *dev)
{
	double begun = job_seconds();

	verbs->close(dev);
	ck_assert_msg(job_seconds() - begun < CLOSE_S, "took %.1f s",
		      job_seconds() - begun);
}

/* The kernel waits for a reply, over iWARP for 10 s. A rank that closes does
 * not wait, nor do other ranks meanwhile. */
START_TEST(a_connection_that_nobody_answers_holds_nobody_up)
{
	const struct transport *verbs = transport_find("verbs");
	double end = job_seconds() + PATIENCE_S;
	struct residue before, now;
	struct tp_device *dev[3];
	struct tp_peer *peer;
	struct tp_blob address;
	struct tp_outbox out;

	setenv("DICOMM_IB_CONNECT", "rdmacm", 1);
	setenv("DICOMM_IB_NICS", "1", 1);
	residue_count(&before);
	atomic_store(&unanswered, 0);
	for (int i = 0; i < 2; i++)
		dev[i] = open_one(verbs, i);
	verbs->address(dev[1], &address);
	ck_assert_int_eq(verbs->peer_open(dev[0], 1, &address, &peer),
			 DICOMM_SUCCESS);
	while (!atomic_load(&unanswered)) {
		ck_assert_int_eq(verbs->connect_out(peer, TP_COLLECTIVE, &out),
				 DICOMM_AGAIN);
		ck_assert(job_seconds() < end);
		job_sleep_ms(1);
	}
	close_in_time(verbs, dev[0]);
	dev[2] = open_one(verbs, 0);
	close_in_time(verbs, dev[2]);
	close_in_time(verbs, dev[1]);
	/* In the end nothing is left. */
	do {
		job_sleep_ms(10);
		residue_count(&now);
	} while (now.threads > before.threads && job_seconds() < end);
	ck_assert_int_eq(now.threads, before.threads);
}
END_TEST

/* ----------------------------------------------------------------------------
 */

static void add_tests(TCase *test_case)
{
	tcase_add_test(test_case, devices_that_match_nothing_name_what_exists);
	tcase_add_test(test_case,
		       replaced_memory_is_not_reached_by_its_old_key);
	tcase_add_test(test_case, freed_memory_is_not_reached_by_its_old_key);
	tcase_add_test(test_case, who_waits_sleeps);
	tcase_add_test(test_case, strangers_do_not_disturb);
	tcase_add_test(test_case, without_descriptors_callers_wait);
	tcase_add_loop_test(test_case, slices_are_long_within_hosts_too, 0, 2);
	tcase_add_loop_test(test_case, some_pairs_have_rdma_and_others_tcp, 0,
			    sizeof(layouts) / sizeof(*layouts));
	tcase_add_loop_test(test_case, hosts_of_unlike_wires_have_one_table, 0,
			    sizeof(layouts) / sizeof(*layouts));
	tcase_add_test(test_case,
		       a_connection_that_nobody_answers_holds_nobody_up);
	tcase_add_loop_test(test_case, only_a_connected_peer_costs_memory, 0,
			    sizeof(crowds) / sizeof(*crowds));
	if (vm.iwarp)
		return;
	tcase_add_test(test_case, a_gid_that_is_not_there_is_named);
	tcase_add_test(test_case, lanes_are_queue_pairs);
	tcase_add_loop_test(test_case, data_is_right_with_any_setting, 0,
			    sizeof(settings) / sizeof(*settings));
	if (vm.devices < 2)
		return;
	if (vm.devices > 2)
		tcase_add_test(test_case,
			       what_devices_declare_are_the_rates_of_links);
	tcase_add_loop_test(test_case, what_software_carries_is_measured, 0, 2);
	tcase_add_loop_test(test_case, traffic_is_on_the_chosen_devices, 0,
			    sizeof(choices) / sizeof(*choices));
	tcase_add_loop_test(test_case, traffic_is_shared_by_two_devices, 0,
			    sizeof(sharings) / sizeof(*sharings));
}

int main(void)
{
	TCase *test_case = tcase_create("rdma");
	Suite *suite = suite_create("rdma");

	if (!vm_find(&vm))
		return 77;
	tcase_set_timeout(test_case, 60);
	add_tests(test_case);
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
