/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-perf: measures and checks the operations of the library. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perftest/base/failure.h"
#include "perftest/base/gnuplot.h"
#include "perftest/report/json.h"
#include "perftest/base/launch.h"
#include "perftest/links/links.h"
#include "perftest/report/plot.h"
#include "perftest/run/init.h"
#include "perftest/run/run.h"
#include "perftest/links/simulate.h"

static void report_end(struct session *s, const struct report_end *end)
{
	const struct options *o = s->o;
	char traffic[256] = "", memory[256] = "";

	if (o->traffic)
		session_traffic(s, traffic, sizeof(traffic));
	if (o->memory_report)
		session_memory(s, memory, sizeof(memory));
	if (!session_reports(s))
		return;
	report_foot(o, end);
	if (o->memory_report)
		report_summary("GPU memory usage", memory);
	if (o->traffic)
		report_summary("Bytes moved", traffic);
	json_foot(end);
}

static void open_reports(const struct options *o, int argc, char **argv)
{
	int version = 0;
	char path[4096];

	CHECK_DICOMM(NULL, dicomm_get_version(&version));
	if (o->json) {
		json_open(o, argc, argv, version, path, sizeof(path));
		report_note("Writing JSON output to %s", path);
	}
	report_head(o, version);
}

static int run(struct options *o, int argc, char **argv, int child_rank)
{
	struct session s;
	struct report_end end;
	int status = FAILURE_NONE;
	char error[512];

	if (o->json)
		failure_hook_signals();
	session_open(&s, o, child_rank);
	if (session_reports(&s))
		open_reports(o, argc, argv);
	session_connect(&s);
	run_all(&s, &end);
	report_end(&s, &end);
	if (end.failed_checks > 0 ||
	    end.average_bus_gbs < 0.9 * end.least_bus_gbs)
		status = FAILURE_RESULTS;
	if (session_reports(&s) && o->plot &&
	    plot_draw(o, s.ranks, error, sizeof(error)) < 0) {
		fprintf(stderr, "dicomm-perf: %s\n", error);
		status = status ? status : FAILURE_INTERNAL;
	}
	if (session_reports(&s)) {
		const char *last = dicomm_get_last_error(NULL);

		if (strcmp(last, s.no_error) == 0)
			last = "";
		report_close(last);
		if (json_close(last) < 0) {
			fprintf(stderr, "dicomm-perf: JSON report %s: %s\n",
				o->json, strerror(errno));
			status = status ? status : FAILURE_INTERNAL;
		}
	}
	session_close(&s);
	return status;
}

static int measure(int argc, char **argv, int child_rank)
{
	struct options o;
	int status = FAILURE_NONE;

	if (options_parse(&o, argc, (const char **)argv, &status) ==
	    OPTIONS_EXIT)
		goto free_options;
	if (o.plot && !gnuplot_possible()) {
		status = FAILURE_USAGE;
		goto free_options;
	}
	if (o.ranks > 0 && child_rank < 0)
		status = launch_processes(o.ranks, argv);
	else
		status = run(&o, argc, argv, child_rank);
free_options:
	options_free(&o);
	return status;
}

/* Modes that are selected by name, besides operations. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv, int child_rank);
} programs[] = {
	{"init", init_main},
	{"links", links_main},
	{"simulate", simulate_main},
};

static int do_as_told(int argc, char **argv, int child_rank)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (argc > 1 && strcmp(argv[1], programs[i].name) == 0)
			return programs[i].run(argc, argv, child_rank);
	return measure(argc, argv, child_rank);
}

/* If a standard descriptor is closed, a socket of the library would get its
 * number, and printed text would go to a peer. So /dev/null takes it, opened
 * such that writing the table still fails. */
static void hold_standard_files(void)
{
	static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", modes[fd]);
}

int main(int argc, char **argv)
{
	int child_rank = launch_child(&argc, argv), status;

	hold_standard_files();
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* The parent may ignore SIGCHLD; then this process could not wait for
	 * children. */
	signal(SIGCHLD, SIG_DFL);
	status = do_as_told(argc, argv, child_rank);
	return failure_in_output() && !status ? FAILURE_INTERNAL : status;
}
