/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicators and buffers of a run, and facts about its ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "perftest/base/failure.h"
#include "perftest/base/launch.h"
#include "perftest/run/session.h"
#include "perftest/base/size.h"

/* Buffers begin at a page, as in most programs that care about speed. */
#define BUFFER_ALIGN 4096

/* What processes tell each other about themselves. */
struct introduction {
	char host[64];
	int32_t color;
	int32_t padding;
	dicomm_unique_id_t id;
};

bool session_reports(const struct session *s)
{
	return s->exchange.proc == 0;
}

static int ranks_here(const struct session *s)
{
	return s->o->threads * s->o->devices;
}

/* ---- processes and groups ---- */

static long split_number(const char *variable, const char *text, int base)
{
	char *end;
	long v;

	while (*text == ' ')
		text++;
	if (base == 0 && strncasecmp(text, "0b", 2) == 0) {
		text += 2;
		base = 2;
	}
	v = strtol(text, &end, base);
	if (end == text || end[strspn(end, " ")])
		failure_end(FAILURE_USAGE, "%s %s: no number", variable, text);
	return v;
}

/* Computes the group of a process from its number and a text: "MOD 2", "/4", "&
 * 0x3". */
static long split_color(const char *text, long proc)
{
	static const struct {
		const char *word;
		char op;
	} ops[] = {
		{"AND", '&'}, {"OR", '|'}, {"MOD", '%'}, {"DIV", '/'},
		{"&", '&'},   {"|", '|'},  {"%", '%'},   {"/", '/'},
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		size_t len = strlen(ops[i].word);
		long n;

		if (strncasecmp(text, ops[i].word, len) != 0)
			continue;
		n = split_number("NCCL_TESTS_SPLIT", text + len, 0);
		if (ops[i].op == '&')
			return proc & n;
		if (ops[i].op == '|')
			return proc | n;
		if (n <= 0)
			break;
		return ops[i].op == '%' ? proc % n : proc / n;
	}
	failure_end(FAILURE_USAGE,
		    "NCCL_TESTS_SPLIT %s: not AND, OR, MOD or DIV and a number",
		    text);
}

static int color_of(int proc)
{
	const char *mask = getenv("NCCL_TESTS_SPLIT_MASK");
	const char *split = getenv("NCCL_TESTS_SPLIT");

	if (mask)
		return (int)(proc &
			     split_number("NCCL_TESTS_SPLIT_MASK", mask, 16));
	return split ? (int)split_color(split, proc) : 0;
}

/* Each group uses the id of its first process; the ids of the others are not
 * used. */
static void introduce(struct session *s)
{
	struct exchange *c = &s->exchange;
	struct introduction me = {.color = color_of(c->proc)};
	struct introduction *all =
		failure_alloc((size_t)c->procs, sizeof(*all));
	int group_procs = 0;

	s->one_host = true;
	gethostname(me.host, sizeof(me.host) - 1);
	CHECK_DICOMM(NULL, dicomm_get_unique_id(&me.id));
	exchange_gather(c, &me, sizeof(me), all);
	for (int p = 0; p < c->procs; p++) {
		bool same_host = strcmp(all[p].host, me.host) == 0;

		s->one_host &= same_host;
		if (same_host && p < c->proc)
			s->local_proc++;
		if (all[p].color != me.color)
			continue;
		if (group_procs == 0)
			s->id = all[p].id;
		if (p < c->proc)
			s->group_proc++;
		group_procs++;
	}
	s->group = me.color;
	s->ranks = group_procs * ranks_here(s);
	s->all_ranks = c->procs * ranks_here(s);
	free(all);
}

/* ---- memory ---- */

static double available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	double kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %lf", &kib) == 1)
			break;
	if (file)
		fclose(file);
	if (kib > 0)
		return kib * 1024;
	return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* Limits the size so that two buffers for each rank of this host fit into four
 * fifths of the free memory: on a machine that swaps, measurements are
 * useless. */
static void limit_size(struct session *s)
{
	struct options *o = s->o;
	struct exchange *c = &s->exchange;
	/* If hosts differ in ranks, the one with the most ranks most likely has
	 * the least memory per rank. */
	double share = available_bytes() * 0.8 / 2;
	char host[64] = "";
	char *hosts = failure_alloc((size_t)c->procs, sizeof(host));
	double *limits = failure_alloc((size_t)c->procs, sizeof(*limits));
	int procs_here = 0;
	size_t limit;

	gethostname(host, sizeof(host) - 1);
	exchange_gather(c, host, sizeof(host), hosts);
	for (int p = 0; p < c->procs; p++)
		procs_here +=
			strcmp(hosts + (size_t)p * sizeof(host), host) == 0;
	share /= (double)procs_here * ranks_here(s);
	exchange_gather(c, &share, sizeof(share), limits);
	for (int p = 0; p < c->procs; p++)
		share = limits[p] < share ? limits[p] : share;
	limit = (size_t)share & ~(size_t)4095;
	if (o->max_bytes > limit) {
		o->max_bytes = limit;
		if (o->min_bytes > limit)
			o->min_bytes = limit;
		if (session_reports(s)) {
			printf("#\n");
			report_note("Reducing maxBytes to %zu due to memory "
				    "limitation",
				    limit);
		}
	}
	free(limits);
	free(hosts);
}

static void *buffer_create(const struct options *o, size_t bytes)
{
	void *p = NULL;

	if (o->mem_alloc)
		CHECK_DICOMM(NULL, dicomm_mem_alloc(&p, bytes));
	else if (posix_memalign(&p, BUFFER_ALIGN, bytes) != 0)
		failure_end(FAILURE_INTERNAL, "buffer of %zu bytes: no memory",
			    bytes);
	/* All pages must exist, and must not all be the zero page. */
	memset(p, 0x5a, bytes);
	memset(p, 0, bytes);
	return p;
}

static void buffer_destroy(const struct options *o, void *p)
{
	if (o->mem_alloc)
		CHECK_DICOMM(NULL, dicomm_mem_free(p));
	else
		free(p);
}

static void *host_copy_create(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		failure_end(FAILURE_INTERNAL, "copy of %zu bytes: no memory",
			    bytes);
	return p;
}

/* Allocates a buffer for checks. A device may lack kernels, or room for a third
 * buffer; then the host checks. */
static void check_buffer(struct session_rank *r, size_t bytes)
{
	dicomm_result_t status = dicomm_reduce_local(
		NULL, NULL, 0, DICOMM_UINT8, DICOMM_BXOR, *r->comm, r->stream);

	if (status == DICOMM_SUCCESS)
		status = dicomm_comm_mem_alloc(*r->comm, &r->check_base, bytes);
	if (status == DICOMM_SUCCESS)
		return;
	if (status != DICOMM_ERR_UNSUPPORTED && status != DICOMM_ERR_NO_MEMORY)
		CHECK_DICOMM(*r->comm, status);
	fprintf(stderr, "rank %d: the host checks what its device received\n",
		r->rank);
}

/* Allocates buffers in the memory of the rank's device, and copies of them on
 * the host. */
static void device_buffers(struct session_rank *r, size_t bytes, bool checked)
{
	CHECK_DICOMM(*r->comm,
		     dicomm_comm_mem_alloc(*r->comm, &r->send_base, bytes));
	CHECK_DICOMM(*r->comm,
		     dicomm_comm_mem_alloc(*r->comm, &r->recv_base, bytes));
	if (checked)
		check_buffer(r, bytes);
	r->send_copy = host_copy_create(bytes);
	r->recv_copy = host_copy_create(bytes);
}

void session_rank_shift(struct session_rank *r, size_t bytes)
{
	r->send = (char *)r->send_base + bytes;
	r->recv = (char *)r->recv_base + bytes;
	if (r->check_base)
		r->check = (char *)r->check_base + bytes;
	r->send_seen = r->on_device ? (char *)r->send_copy + bytes : r->send;
	r->recv_seen = r->on_device ? (char *)r->recv_copy + bytes : r->recv;
}

static void move(struct session_rank *r, char *to, const char *from,
		 size_t bytes)
{
	if (r->on_device)
		CHECK_DICOMM(*r->comm, dicomm_comm_memcpy(*r->comm, to, from,
							  bytes, r->stream));
}

void session_rank_push(struct session_rank *r, size_t bytes)
{
	move(r, r->send, r->send_seen, bytes);
	move(r, r->recv, r->recv_seen, bytes);
}

void session_rank_pull(struct session_rank *r, size_t bytes)
{
	move(r, r->send_seen, r->send, bytes);
	move(r, r->recv_seen, r->recv, bytes);
}

void session_rank_wait(struct session_rank *r)
{
	if (r->on_device || r->stream)
		CHECK_DICOMM(*r->comm, dicomm_comm_stream_synchronize(
					       *r->comm, r->stream));
}

static void rank_open(struct session *s, struct session_rank *r)
{
	const struct options *o = s->o;
	size_t bytes = s->buffer_bytes + (size_t)o->unalign * 8;
	const char *device = "host";

	CHECK_DICOMM(*r->comm, dicomm_comm_device(*r->comm, &device));
	r->on_device = strcmp(device, "host") != 0;
	if (r->on_device) {
		device_buffers(r, bytes, o->checks > 0);
	} else {
		r->send_base = buffer_create(o, bytes);
		r->recv_base = buffer_create(o, bytes);
	}
	session_rank_shift(r, 0);
	if (s->streams && !r->on_device)
		CHECK_DICOMM(*r->comm, dicomm_host_stream_create(&r->stream));
	if (o->local_register) {
		CHECK_DICOMM(*r->comm,
			     dicomm_comm_register(*r->comm, r->send_base, bytes,
						  &r->send_handle));
		CHECK_DICOMM(*r->comm,
			     dicomm_comm_register(*r->comm, r->recv_base, bytes,
						  &r->recv_handle));
	}
	if (operation_has_counts(o->op) &&
	    traffic_part_create(&r->part, s->ranks) < 0)
		failure_end(FAILURE_INTERNAL, "out of memory");
}

static void rank_close(struct session *s, struct session_rank *r)
{
	const struct options *o = s->o;

	traffic_part_destroy(&r->part);
	if (o->local_register) {
		CHECK_DICOMM(*r->comm,
			     dicomm_comm_deregister(*r->comm, r->send_handle));
		CHECK_DICOMM(*r->comm,
			     dicomm_comm_deregister(*r->comm, r->recv_handle));
	}
	if (r->stream)
		CHECK_DICOMM(*r->comm, dicomm_host_stream_destroy(r->stream));
	if (r->on_device) {
		CHECK_DICOMM(NULL, dicomm_mem_free(r->send_base));
		CHECK_DICOMM(NULL, dicomm_mem_free(r->recv_base));
		CHECK_DICOMM(NULL, dicomm_mem_free(r->check_base));
		free(r->send_copy);
		free(r->recv_copy);
		return;
	}
	buffer_destroy(o, r->send_base);
	buffer_destroy(o, r->recv_base);
}

/* The windows of ranks first ... first + n - 1 of this process. All ranks wait
 * for each other, so those of a thread are in one group. */
static void windows_open(struct session *s, int first, int n)
{
	size_t bytes = s->buffer_bytes + (size_t)s->o->unalign * 8;

	if (!s->o->op->one_sided)
		return;
	CHECK_DICOMM(NULL, dicomm_group_start());
	for (int i = first; i < first + n; i++) {
		struct session_rank *r = &s->mine[i];
		void *base = s->o->op->id == OPERATION_PUT ? r->recv_base
							   : r->send_base;

		r->window_base = base;
		CHECK_DICOMM(*r->comm,
			     dicomm_comm_window_register(
				     *r->comm, base, bytes, &r->window,
				     DICOMM_WINDOW_DEFAULT));
	}
	CHECK_DICOMM(s->comms[first], dicomm_group_end());
}

static void windows_close(struct session *s, int first, int n)
{
	if (!s->o->op->one_sided)
		return;
	CHECK_DICOMM(NULL, dicomm_group_start());
	for (int i = first; i < first + n; i++)
		CHECK_DICOMM(s->comms[i],
			     dicomm_comm_window_deregister(s->comms[i],
							   s->mine[i].window));
	CHECK_DICOMM(s->comms[first], dicomm_group_end());
}

/* ---- communicators ---- */

/* Makes the communicators of ranks first ... first + n - 1 of this process,
 * from one thread. */
static void comms_open(struct session *s, int first, int n)
{
	dicomm_config_t config = DICOMM_CONFIG_INITIALIZER;

	config.name = "perf";
	CHECK_DICOMM(NULL, dicomm_group_start());
	for (int i = first; i < first + n; i++) {
		char device[64];

		config.device = options_device(s->o, s->mine[i].rank, device,
					       sizeof(device))
					? device
					: NULL;
		CHECK_DICOMM(NULL, dicomm_comm_init_rank_config(
					   &s->comms[i], s->ranks, s->id,
					   s->mine[i].rank, &config));
	}
	CHECK_DICOMM(NULL, dicomm_group_end());
}

/* Returns the most memory that a communicator of this process has. */
static double comms_memory(const struct session *s)
{
	double most = 0;

	for (int i = 0; i < ranks_here(s); i++) {
		dicomm_stats_t stats = {.size = sizeof(stats)};

		CHECK_DICOMM(s->comms[i],
			     dicomm_comm_stats(s->comms[i], &stats));
		if ((double)stats.memory_bytes > most)
			most = (double)stats.memory_bytes;
	}
	return most;
}

void session_thread_open(struct session *s, int thread)
{
	struct options *o = s->o;
	int first = thread * o->devices;
	int local = s->local_proc * ranks_here(s) + first;

	if (o->pin && launch_bind(local, o->devices) < 0)
		failure_end(FAILURE_INTERNAL, "--pin: %s", strerror(errno));
	if (o->parallel_init)
		comms_open(s, first, o->devices);
	for (int i = first; i < first + o->devices; i++)
		rank_open(s, &s->mine[i]);
	windows_open(s, first, o->devices);
	exchange_barrier(&s->exchange, thread);
	if (thread == 0)
		s->memory_init = comms_memory(s);
	exchange_barrier(&s->exchange, thread);
}

void session_thread_close(struct session *s, int thread)
{
	int n = s->o->devices;

	/* A neighbour may still read the buffers until all threads are here. */
	exchange_barrier(&s->exchange, thread);
	windows_close(s, thread * n, n);
	for (int i = thread * n; i < (thread + 1) * n; i++)
		rank_close(s, &s->mine[i]);
}

static void check_matrix_fits(const struct session *s)
{
	size_t send, recv;

	if (!s->traffic.matrix)
		return;
	traffic_most(&s->traffic, s->ranks, 0, &send, &recv);
	if (s->o->max_bytes < send || s->o->max_bytes < recv)
		failure_end(FAILURE_USAGE, "maxbytes %zu: the matrix needs %zu",
			    s->o->max_bytes, send > recv ? send : recv);
}

static bool groups_are_alike(struct session *s)
{
	int *ranks = failure_alloc((size_t)s->exchange.procs, sizeof(*ranks));
	bool alike = true;

	exchange_gather(&s->exchange, &s->ranks, sizeof(*ranks), ranks);
	for (int p = 0; p < s->exchange.procs; p++)
		alike &= ranks[p] == s->ranks;
	free(ranks);
	return alike;
}

static void check_against_ranks(struct session *s)
{
	const struct options *o = s->o;
	char error[512];

	if (o->op->rooted && o->root >= s->ranks)
		failure_end(FAILURE_USAGE, "root %d: there are %d ranks",
			    o->root, s->ranks);
	/* For each root there is a barrier of all processes, including other
	 * groups. */
	if (o->op->rooted && o->root < 0 && !groups_are_alike(s))
		failure_end(FAILURE_USAGE,
			    "root -1: the groups are of different sizes");
	if (o->op->id != OPERATION_ALLTOALLV)
		return;
	if (traffic_open(&s->traffic, s->ranks, error, sizeof(error)) < 0)
		failure_end(FAILURE_USAGE, "%s", error);
	if (s->traffic.matrix && o->min_bytes != o->max_bytes)
		failure_end(FAILURE_USAGE,
			    "a matrix has one size: minbytes and maxbytes must "
			    "be equal");
	check_matrix_fits(s);
}

void session_open(struct session *s, struct options *o, int child_rank)
{
	int n = o->threads * o->devices;
	char timeout_ms[32];

	*s = (struct session){.o = o, .streams = o->stream_null == 0};
	/* Done before the library starts threads, so that they are bound,
	 * too. */
	if (o->pin && child_rank >= 0 && launch_bind(child_rank * n, n) < 0)
		failure_end(FAILURE_INTERNAL, "--pin: %s", strerror(errno));
	/* -T bounds each wait, also those between processes. */
	if (o->timeout_s > 0) {
		snprintf(timeout_ms, sizeof(timeout_ms), "%d",
			 o->timeout_s * 1000);
		setenv("DICOMM_TIMEOUT_MS", timeout_ms, 1);
	}
	failure_timeout(o->timeout_s);
	if (!o->device && getenv("DICOMM_DEVICE")) {
		o->device = strdup(getenv("DICOMM_DEVICE"));
		if (!o->device || !options_devices_valid(o->device))
			failure_end(FAILURE_USAGE,
				    "DICOMM_DEVICE \"%s\": not DEVICE, nor "
				    "RANK=DEVICE,...",
				    getenv("DICOMM_DEVICE"));
	}
	exchange_open(&s->exchange, o->threads);
	introduce(s);
	check_against_ranks(s);
}

void session_connect(struct session *s)
{
	struct options *o = s->o;
	int n = ranks_here(s);

	limit_size(s);
	check_matrix_fits(s);
	s->buffer_bytes = o->max_bytes + SESSION_GUARD;
	s->mine = failure_alloc((size_t)n, sizeof(*s->mine));
	s->comms = failure_alloc((size_t)n, sizeof(*s->comms));
	s->devices = failure_alloc((size_t)s->all_ranks, sizeof(*s->devices));
	for (int i = 0; i < n; i++) {
		s->mine[i].rank = s->group_proc * n + i;
		s->mine[i].comm = &s->comms[i];
	}
	failure_watch(s->comms, n);
	if (!o->parallel_init)
		comms_open(s, 0, n);
}

void session_close(struct session *s)
{
	int n = ranks_here(s);

	CHECK_DICOMM(NULL, dicomm_group_start());
	for (int i = 0; i < n; i++)
		CHECK_DICOMM(s->comms[i], dicomm_comm_finalize(s->comms[i]));
	CHECK_DICOMM(NULL, dicomm_group_end());
	failure_watch(NULL, 0);
	for (int i = 0; i < n; i++)
		CHECK_DICOMM(NULL, dicomm_comm_destroy(s->comms[i]));
	exchange_close(&s->exchange);
	traffic_close(&s->traffic);
	free(s->devices);
	free(s->comms);
	free(s->mine);
}

/* ---- facts for the report ---- */

static void describe(struct session *s, int i, struct report_device *d)
{
	dicomm_device_info_t info;
	const char *name = "host";
	const char *colon;

	CHECK_DICOMM(s->comms[i], dicomm_comm_device(s->comms[i], &name));
	colon = strchr(name, ':');
	*d = (struct report_device){
		.rank = s->exchange.proc * ranks_here(s) + i,
		.group = s->group,
		.pid = (int)getpid(),
		.device = colon ? atoi(colon + 1) : 0,
		.pci = "0000:00:00",
	};
	gethostname(d->host, sizeof(d->host) - 1);
	snprintf(d->info, sizeof(d->info), "%s", name);
	for (int k = 0; dicomm_device_info(k, &info) == DICOMM_SUCCESS; k++) {
		if (strcmp(info.name, name) != 0)
			continue;
		snprintf(d->info, sizeof(d->info), "%s %.120s%s%s", name,
			 colon ? info.description : "", colon ? " " : "",
			 info.vendor);
		/* Without the PCI function. */
		if (info.pci[0])
			snprintf(d->pci, sizeof(d->pci), "%.10s", info.pci);
		/* Do not go on: that would start the drivers of other
		 * devices. */
		return;
	}
}

void session_devices(struct session *s)
{
	size_t n = (size_t)ranks_here(s);
	struct report_device *mine = failure_alloc(n, sizeof(*mine));

	for (size_t i = 0; i < n; i++)
		describe(s, (int)i, &mine[i]);
	snprintf(s->no_error, sizeof(s->no_error), "%s",
		 dicomm_get_last_error(NULL));
	exchange_gather(&s->exchange, mine, n * sizeof(*mine), s->devices);
	free(mine);
}

void session_traffic(struct session *s, char *text, size_t len)
{
	size_t procs = (size_t)s->exchange.procs;
	dicomm_stats_t sum = {.size = sizeof(sum)};
	dicomm_stats_t *all = failure_alloc(procs, sizeof(*all));
	uint64_t received = 0, direct = 0, staged = 0, ring = 0, mapped = 0,
		 cma = 0, rdma = 0, landed = 0, copied = 0;

	for (int i = 0; i < ranks_here(s); i++) {
		dicomm_stats_t one = {.size = sizeof(one)};

		CHECK_DICOMM(s->comms[i], dicomm_comm_stats(s->comms[i], &one));
		sum.bytes_received += one.bytes_received;
		sum.bytes_direct += one.bytes_direct;
		sum.bytes_staged += one.bytes_staged;
		sum.bytes_ring += one.bytes_ring;
		sum.bytes_mapped += one.bytes_mapped;
		sum.bytes_cma += one.bytes_cma;
		sum.bytes_rdma += one.bytes_rdma;
		sum.bytes_landed += one.bytes_landed;
		sum.bytes_copied += one.bytes_copied;
	}
	exchange_gather(&s->exchange, &sum, sizeof(sum), all);
	for (size_t p = 0; p < procs; p++) {
		received += all[p].bytes_received;
		direct += all[p].bytes_direct;
		staged += all[p].bytes_staged;
		ring += all[p].bytes_ring;
		mapped += all[p].bytes_mapped;
		cma += all[p].bytes_cma;
		rdma += all[p].bytes_rdma;
		landed += all[p].bytes_landed;
		copied += all[p].bytes_copied;
	}
	free(all);
	snprintf(text, len,
		 "received %llu B | direct %llu B | staged %llu B | host: ring "
		 "%llu B, mapped %llu B, cma %llu B, rdma %llu B, "
		 "landed %llu B | devices: copied %llu B",
		 (unsigned long long)received, (unsigned long long)direct,
		 (unsigned long long)staged, (unsigned long long)ring,
		 (unsigned long long)mapped, (unsigned long long)cma,
		 (unsigned long long)rdma, (unsigned long long)landed,
		 (unsigned long long)copied);
}

void session_memory(struct session *s, char *text, size_t len)
{
	struct exchange *c = &s->exchange;
	double now = comms_memory(s);
	double mine[2] = {s->memory_init,
			  now > s->memory_init ? now - s->memory_init : 0};
	double *all = failure_alloc((size_t)c->procs, sizeof(mine));
	double buffers = (s->mine->check_base ? 3 : 2) *
			 ((double)s->buffer_bytes + 8.0 * s->o->unalign);
	char part[4][32];

	exchange_gather(c, mine, sizeof(mine), all);
	for (int p = 0; p < c->procs; p++)
		for (int k = 0; k < 2; k++)
			if (all[2 * p + k] > mine[k])
				mine[k] = all[2 * p + k];
	free(all);
	size_print(part[0], sizeof(part[0]), mine[0]);
	size_print(part[1], sizeof(part[1]), buffers);
	size_print(part[2], sizeof(part[2]), mine[1]);
	size_print(part[3], sizeof(part[3]), mine[0] + buffers + mine[1]);
	snprintf(text, len,
		 "Initialization %s | User-Allocated %s | Collective %s | "
		 "Total  %s",
		 part[0], part[1], part[2], part[3]);
}
