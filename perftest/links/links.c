/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One process of each host measures the links to the other hosts: alone, while
 * all hosts are busy, and from and to all others at once. If all ranks are on
 * one host, ranks stand for hosts, and nothing is concluded about links.
 */
#include "perftest/links/links.h"

#include <errno.h>
#include <limits.h>
#include <popt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perftest/base/failure.h"
#include "perftest/links/flow.h"
#include "perftest/base/gnuplot.h"
#include "perftest/base/launch.h"
#include "perftest/links/network.h"

/* Number of flows from each host of an island to other hosts at once. */
#define ISLAND_FLOWS 4
#define ISLAND_RUNS 3

#define NOT_GIVEN INT_MIN /* --ranks was not given */

struct request {
	int ranks;
	double seconds;
	char *save, *plot; /* owned */
};

struct measuring {
	const struct request *r;
	struct exchange exchange;
	struct flow_bench bench;
	struct network network;
	char (*where)[64]; /* [process]: the name of its host; owned */
	int *host_of;      /* [process]; owned */
	int *first;        /* [host]: its first process; owned */
	bool one_host;     /* the ranks stand for hosts */
	struct flow *flow; /* [ISLAND_FLOWS * host]; owned */
};

/* ---- hosts and their processes ---- */

/* Identifies the host of a process, in the same way as the library. */
struct host {
	char name[64];
	char id[64];      /* DICOMM_HOSTID, else the name */
	char boot_id[64]; /* of the kernel */
	/* PID namespace: containers may have the same name. */
	char pids[64];
};

/* Reads as much of DICOMM_HOSTID as fits. */
static void read_hostid(char *id, size_t room)
{
	dicomm_param_info_t param;

	for (int i = 0; dicomm_param_info(i, &param) == DICOMM_SUCCESS; i++)
		if (!strcmp(param.name, "DICOMM_HOSTID") && *param.value)
			snprintf(id, room, "%s", param.value);
}

static void find_host(struct host *h)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	memset(h, 0, sizeof(*h));
	gethostname(h->name, sizeof(h->name) - 1);
	memcpy(h->id, h->name, sizeof(h->id));
	read_hostid(h->id, sizeof(h->id));
	if (f && !fgets(h->boot_id, sizeof(h->boot_id), f))
		h->boot_id[0] = '\0';
	if (f)
		fclose(f);
	if (readlink("/proc/self/ns/pid", h->pids, sizeof(h->pids) - 1) < 0)
		h->pids[0] = '\0';
}

static bool is_same(const struct host *a, const struct host *b)
{
	return !strcmp(a->id, b->id) && !strcmp(a->boot_id, b->boot_id) &&
	       !strcmp(a->pids, b->pids);
}

/* Assigns processes to hosts. Returns the number of hosts. */
static int sort_by_host(struct measuring *m)
{
	int procs = m->exchange.procs, hosts = 0;
	struct host mine, *all = failure_alloc((size_t)procs, sizeof(*all));

	find_host(&mine);
	exchange_gather(&m->exchange, &mine, sizeof(mine), all);
	for (int p = 0; p < procs; p++) {
		int h = 0;

		memcpy(m->where[p], all[p].name, sizeof(m->where[p]));
		while (h < hosts && !is_same(&all[m->first[h]], &all[p]))
			h++;
		if (h == hosts)
			m->first[hosts++] = p;
		m->host_of[p] = h;
	}
	free(all);
	return hosts;
}

static void find_hosts(struct measuring *m)
{
	size_t procs = (size_t)m->exchange.procs;
	int hosts;

	m->where = failure_alloc(procs, sizeof(*m->where));
	m->host_of = failure_alloc(procs, sizeof(*m->host_of));
	m->first = failure_alloc(procs, sizeof(*m->first));
	m->flow = failure_alloc(ISLAND_FLOWS * procs, sizeof(*m->flow));
	hosts = sort_by_host(m);
	m->one_host = hosts == 1;
	for (int p = 0; m->one_host && p < (int)procs; p++) {
		snprintf(m->where[p], sizeof(m->where[p]), "rank%d", p);
		m->first[p] = m->host_of[p] = p;
		hosts = p + 1;
	}
	if (!network_create(&m->network, hosts))
		failure_end(FAILURE_INTERNAL, "out of memory");
	for (int h = 0; h < hosts; h++)
		m->network.name[h] = m->where[m->first[h]];
	for (int p = 0; p < (int)procs; p++)
		m->network.ranks[m->host_of[p]]++;
	if (m->one_host && m->r->save)
		failure_end(FAILURE_USAGE,
			    "--save %s: all ranks are on one "
			    "host, there are no links to save",
			    m->r->save);
}

/* ---- measuring ---- */

static size_t at(const struct measuring *m, int from, int to)
{
	return (size_t)from * (size_t)m->network.hosts + (size_t)to;
}

/* Latency is half of a round trip, so it is the same both ways. */
static void measure_latency(struct measuring *m, int from, int to)
{
	double *there = &m->network.latency[at(m, from, to)];
	double *back = &m->network.latency[at(m, to, from)];

	*there = flow_latency(&m->bench, m->first[from], m->first[to]);
	if (from > to)
		*there = *back = *there < *back ? *there : *back;
}

static void measure_pairs(struct measuring *m)
{
	struct network *n = &m->network;

	for (int from = 0; from < n->hosts; from++) {
		for (int to = 0; to < n->hosts; to++) {
			if (from == to)
				continue;
			measure_latency(m, from, to);
			n->alone[at(m, from, to)] =
				flow_rate(&m->bench, m->first[from],
					  m->first[to], m->r->seconds);
		}
	}
}

/* Makes a flow that takes the requested time when alone, or a part of that
 * time. */
static struct flow flow_of(const struct measuring *m, int from, int to,
			   double part)
{
	double bytes = m->network.alone[at(m, from, to)] * m->r->seconds * part;
	double most = (double)FLOW_MOST_BYTES * part;

	bytes = bytes < most ? bytes : most;
	return (struct flow){.from = m->first[from],
			     .to = m->first[to],
			     .bytes = bytes < 1 ? 1 : (size_t)bytes};
}

/* Hosts `first` to `last` each send to the host `shift` places further. */
static void measure_shift(struct measuring *m, int shift, int first, int last)
{
	struct network *n = &m->network;

	for (int h = first; h <= last; h++)
		m->flow[h - first] = flow_of(m, h, (h + shift) % n->hosts, 1);
	flow_run(&m->bench, m->flow, last - first + 1);
	for (int h = first; h <= last; h++) {
		const struct flow *f = &m->flow[h - first];
		double *best = &n->together[at(m, h, (h + shift) % n->hosts)];

		if ((double)f->bytes / f->seconds > *best)
			*best = (double)f->bytes / f->seconds;
	}
}

/*
 * Measures every pair, at the same time as pairs of other hosts, twice, and
 * keeps the better result, because sharing a link slows down both runs. Two
 * hosts never send to each other: what a receiver returns to its sender would
 * wait behind its own data.
 */
static void measure_together(struct measuring *m)
{
	int hosts = m->network.hosts;

	for (int i = 0; i < 2 * (hosts - 1); i++) {
		int shift = 1 + i / 2;

		if (2 * shift == hosts) {
			measure_shift(m, shift, 0, shift - 1);
			measure_shift(m, shift, shift, hosts - 1);
		} else {
			measure_shift(m, shift, 0, hosts - 1);
		}
	}
}

/* Returns bytes per second of all flows together. */
static double rate_of(const struct flow *flow, int n)
{
	double bytes = 0, seconds = 0;

	for (int i = 0; i < n; i++) {
		bytes += (double)flow[i].bytes;
		if (flow[i].seconds > seconds)
			seconds = flow[i].seconds;
	}
	return seconds > 0 ? bytes / seconds : 0;
}

/* Measures the rate at which a host sends to all others at once, or receives
 * from them. All flows together have as many bytes as one flow to or from the
 * fastest other host. */
static double measure_way(struct measuring *m, int host, bool up)
{
	struct network *n = &m->network;
	double most = 0, sum = 0, all;
	int k = 0;

	for (int other = 0; other < n->hosts; other++) {
		double alone = other == host ? 0
			       : up          ? n->alone[at(m, host, other)]
					     : n->alone[at(m, other, host)];

		sum += alone;
		most = alone > most ? alone : most;
	}
	for (int other = 0; other < n->hosts; other++)
		if (other != host)
			m->flow[k++] = flow_of(m, up ? host : other,
					       up ? other : host, most / sum);
	flow_run(&m->bench, m->flow, k);
	all = rate_of(m->flow, k);
	return all > most ? all : most;
}

/* Returns how long the flows would take if only the links of the hosts limited
 * them. */
static double ways_seconds(struct measuring *m, int flows)
{
	struct network *n = &m->network;
	double most = 0;

	for (int h = 0; h < n->hosts; h++) {
		double out = 0, in = 0;

		for (int i = 0; i < flows; i++) {
			const struct flow *f = &m->flow[i];

			out += f->from == m->first[h] ? (double)f->bytes : 0;
			in += f->to == m->first[h] ? (double)f->bytes : 0;
		}
		most = out / n->up[h] > most ? out / n->up[h] : most;
		most = in / n->down[h] > most ? in / n->down[h] : most;
	}
	return most;
}

/* Makes flows from each host of the island to some hosts outside, or from
 * these. Returns their number. */
static int find_island_flows(struct measuring *m, int island, bool up)
{
	struct network *n = &m->network;
	int k = 0, other = 0, outside = 0, each;

	for (int h = 0; h < n->hosts; h++)
		outside += n->island[h] != island;
	each = outside < ISLAND_FLOWS ? outside : ISLAND_FLOWS;
	for (int h = 0; h < n->hosts; h++) {
		for (int i = 0; n->island[h] == island && i < each; i++) {
			while (n->island[other] == island)
				other = (other + 1) % n->hosts;
			m->flow[k++] = flow_of(m, up ? h : other,
					       up ? other : h, 1.0 / each);
			other = (other + 1) % n->hosts;
		}
	}
	return k;
}

static bool are_wide(const struct flow *flow, int n, double ways_seconds)
{
	for (int i = 0; i < n; i++)
		if (!network_is_wide(flow[i].seconds, ways_seconds))
			return false;
	return true;
}

/* Returns the best rate of a few runs. One of several flows that share a link
 * may lose its last bytes, and then wait for long before it sends them
 * again. */
static double measure_island(struct measuring *m, int island, bool up)
{
	int k = find_island_flows(m, island, up);
	double least = ways_seconds(m, k), best = 0;

	for (int i = 0; i < ISLAND_RUNS; i++) {
		double rate;

		flow_run(&m->bench, m->flow, k);
		if (are_wide(m->flow, k, least))
			return 0;
		rate = rate_of(m->flow, k);
		best = rate > best ? rate : best;
	}
	return best;
}

static void measure_inside(struct measuring *m)
{
	struct network *n = &m->network;

	for (int h = 0; h < n->hosts; h++) {
		int second = m->first[h] + 1;

		while (second < m->exchange.procs && m->host_of[second] != h)
			second++;
		if (second < m->exchange.procs)
			n->inside[h] = flow_rate(&m->bench, m->first[h], second,
						 m->r->seconds);
	}
}

static void measure_ways(struct measuring *m)
{
	struct network *n = &m->network;

	for (int h = 0; h < n->hosts; h++) {
		n->up[h] = measure_way(m, h, true);
		n->down[h] = measure_way(m, h, false);
	}
	measure_inside(m);
	network_find_islands(n);
	for (int i = 0; n->islands > 1 && i < n->islands; i++) {
		n->island_up[i] = measure_island(m, i, true);
		n->island_down[i] = measure_island(m, i, false);
	}
	network_drop_islands(n);
}

/* ---- the program ---- */

struct picture {
	const struct network *n;
	const char *path;
};

static void write_picture(FILE *out, void *ctx)
{
	const struct picture *p = ctx;

	network_script(p->n, out, p->path);
}

static int report(const struct measuring *m)
{
	const struct request *r = m->r;
	struct picture picture = {&m->network, r->plot};
	char error[512];
	int status = FAILURE_NONE;

	network_print(&m->network);
	if (r->save && network_save(&m->network, r->save) < 0) {
		fprintf(stderr, "dicomm-perf: --save %s: %s\n", r->save,
			strerror(errno));
		status = FAILURE_INTERNAL;
	}
	if (r->plot && gnuplot_draw(r->plot, write_picture, &picture, error,
				    sizeof(error)) < 0) {
		fprintf(stderr, "dicomm-perf: %s\n", error);
		status = FAILURE_INTERNAL;
	}
	return status;
}

static int run(const struct request *r)
{
	struct measuring m = {.r = r};
	int status = FAILURE_NONE;

	exchange_open(&m.exchange, 1);
	if (m.exchange.procs < 2)
		failure_end(FAILURE_USAGE, "links: there is one rank; start "
					   "one on each host, or --ranks N "
					   "here");
	flow_open(&m.bench, &m.exchange);
	find_hosts(&m);
	if (m.exchange.proc == 0)
		printf("# dicomm-perf links: %d ranks, %d hosts, about %g s "
		       "for each measurement\n",
		       m.exchange.procs, m.one_host ? 1 : m.network.hosts,
		       r->seconds);
	measure_pairs(&m);
	measure_together(&m);
	if (!m.one_host)
		measure_ways(&m);
	if (m.exchange.proc == 0)
		status = report(&m);
	flow_close(&m.bench);
	exchange_close(&m.exchange);
	network_destroy(&m.network);
	free(m.flow);
	free(m.first);
	free(m.host_of);
	free(m.where);
	return status;
}

static int check(const struct request *r)
{
	char text[32];

	if (r->ranks != NOT_GIVEN && (r->ranks < 2 || r->ranks > 4096)) {
		snprintf(text, sizeof(text), "%d", r->ranks);
		return failure_refuse("links", "--ranks", text,
				      "not an integer from 2 to 4096");
	}
	if (!(r->seconds >= 0.001 && r->seconds <= 60)) {
		snprintf(text, sizeof(text), "%g", r->seconds);
		return failure_refuse("links", "--seconds", text,
				      "not from 0.001 to 60");
	}
	if (r->plot && !gnuplot_draws(r->plot))
		return failure_refuse("links", "--plot", r->plot,
				      "must end in .svg or .png");
	return r->plot && !gnuplot_possible() ? FAILURE_USAGE : FAILURE_NONE;
}

/* Reads the options of links. Returns a status; FAILURE_NONE to go on. */
static int parse(struct request *r, int argc, char **argv)
{
	const struct poptOption table[] = {
		{"ranks", '\0', POPT_ARG_INT, &r->ranks, 0,
		 "start this many processes here (else a launcher did)", "N"},
		{"seconds", '\0', POPT_ARG_DOUBLE, &r->seconds, 0,
		 "about how long each measurement takes (0.2)", "S"},
		{"save", '\0', POPT_ARG_STRING, &r->save, 0,
		 "write what DICOMM_TOPO_FILE reads", "FILE.json"},
		{"plot", '\0', POPT_ARG_STRING, &r->plot, 0,
		 "draw a heat map of the rates (needs gnuplot)", "FILE.svg"},
		POPT_AUTOHELP POPT_TABLEEND,
	};
	poptContext context = poptGetContext(NULL, argc, (const char **)argv,
					     table, POPT_CONTEXT_KEEP_FIRST);
	int status;

	poptSetOtherOptionHelp(context, "dicomm-perf links [options]");
	status = failure_refuse_rest("links", context, poptGetNextOpt(context));
	if (status == FAILURE_NONE)
		status = check(r);
	poptFreeContext(context);
	return status;
}

int links_main(int argc, char **argv, int child_rank)
{
	struct request r = {.ranks = NOT_GIVEN, .seconds = 0.2};
	int status = parse(&r, argc - 2, argv + 2);

	if (status == FAILURE_NONE)
		status = r.ranks > 0 && child_rank < 0
				 ? launch_processes(r.ranks, argv)
				 : run(&r);
	free(r.save);
	free(r.plot);
	return status;
}
