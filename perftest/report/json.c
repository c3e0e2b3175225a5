/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds and writes the JSON report. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "perftest/base/failure.h"
#include "perftest/report/json.h"

#define SCHEMA_VERSION 3

static struct {
	int fd;
	json_t *root, *results; /* results is borrowed from root */
} report;                       /* root is NULL if it is not open */

/* If a signal asks the process to end, another thread closes the report. The
 * lock is recursive, because a thread that finds no memory for a part of the
 * report closes it, too. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* Makes a string of any bytes: whatever is not printable ASCII becomes '?'. */
static json_t *string(const char *text)
{
	char clean[4096];
	size_t i;

	for (i = 0; text[i] && i < sizeof(clean) - 1; i++) {
		unsigned char c = (unsigned char)text[i];

		clean[i] = c < 0x7f && (c >= 0x20 || c == '\t' || c == '\n')
				   ? (char)c
				   : '?';
	}
	clean[i] = '\0';
	return json_string(clean);
}

static json_t *truth(bool value)
{
	return json_string(value ? "true" : "false");
}

static json_t *size(size_t value)
{
	return json_integer((json_int_t)value);
}

/* JSON has no NaN and no infinity. */
static json_t *number(double value)
{
	if (isfinite(value))
		return json_real(value);
	return json_string(isnan(value) ? "nan" : "inf");
}

static json_t *microseconds(const double *seconds, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, number(seconds[i] * 1e6));
	return list;
}

static void set(json_t *object, const char *key, json_t *value)
{
	if (!value || json_object_set_new(object, key, value) < 0)
		failure_end(FAILURE_INTERNAL, "JSON report: %s: out of memory",
			    key);
}

static void set_now(json_t *object, const char *key)
{
	char now[32];

	report_now(now, sizeof(now));
	set(object, key, string(now));
}

/* Returns true for variables that contain a secret: the key of an id, an id
 * itself, a token of Slurm, and what Open MPI passes in
 * OMPI_MCA_orte_precondition_transports. People show reports to others. */
static bool is_secret(const char *variable)
{
	static const char *const parts[] = {
		"KEY",    "COMM_ID",  "TOKEN",       "JWT",
		"SECRET", "PASSWORD", "precondition"};
	size_t n = strcspn(variable, "=");

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (memmem(variable, n, parts[i], strlen(parts[i])))
			return true;
	return false;
}

/* Returns true for variables that may influence the result; the others are
 * private. */
static bool environment_matters(const char *variable)
{
	static const char *const starts[] = {
		"DICOMM_",
		"NCCL_",
		"OMPI_",
		"OMP_",
		"PMI",
		"SLURM_",
		"MPI",
		"UCX_",
		"RANK=",
		"WORLD_SIZE=",
		"LOCAL_",
		"MASTER_",
		"LD_LIBRARY_PATH=",
		"LD_PRELOAD=",
		"MALLOC_",
		"GLIBC_TUNABLES=",
		"HOSTNAME=",
	};

	if (is_secret(variable))
		return false;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (strncmp(variable, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

static json_t *environment(void)
{
	json_t *list = json_array();

	for (char **e = environ; *e; e++)
		if (environment_matters(*e))
			json_array_append_new(list, string(*e));
	return list;
}

static void close_early(const char *reason)
{
	json_close(reason);
}

/* Returns -1 and sets errno on failure; EEXIST if the name is taken. A device
 * or a pipe is opened, not created. */
static int create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	struct stat there;

	if (fd >= 0 || errno != EEXIST)
		return fd;
	if (stat(path, &there) == 0 &&
	    (S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode)))
		return open(path, O_WRONLY | O_CLOEXEC);
	errno = EEXIST;
	return -1;
}

void json_open(const struct options *o, int argc, char **argv,
	       int library_version, char *path, size_t len)
{
	json_t *args = json_array();

	snprintf(path, len, "%s", o->json);
	for (int i = 0; (report.fd = create(path)) < 0; i++) {
		if (errno != EEXIST)
			failure_end(FAILURE_USAGE, "JSON report %s: %s", path,
				    strerror(errno));
		snprintf(path, len, "%s.%d", o->json, i);
	}
	report.root = json_object();
	set(report.root, "version", json_integer(SCHEMA_VERSION));
	set_now(report.root, "start_time");
	for (int i = 0; i < argc; i++)
		json_array_append_new(args, string(argv[i]));
	set(report.root, "args", args);
	set(report.root, "env", environment());
	set(report.root, "nccl_version", json_integer(library_version));
	failure_hook(close_early);
}

static json_t *device(const struct report_device *d)
{
	json_t *object = json_object();

	set(object, "rank", json_integer(d->rank));
	set(object, "group", json_integer(d->group));
	set(object, "pid", json_integer(d->pid));
	set(object, "hostname", string(d->host));
	set(object, "device", json_integer(d->device));
	set(object, "device_hex", string(d->pci));
	set(object, "device_info", string(d->info));
	return object;
}

static void add_config(const struct options *o, int procs,
		       const struct report_device *devices, int n)
{
	json_t *config = json_object();
	json_t *list = json_array();

	set(config, "nthreads", json_integer(o->threads));
	set(config, "ngpus", json_integer(o->devices));
	set(config, "minimum_bytes", size(o->min_bytes));
	set(config, "maximum_bytes", size(o->max_bytes));
	if (o->step_factor > 1)
		set(config, "step_factor", size(o->step_factor));
	else
		set(config, "step_bytes", size(o->step_bytes));
	set(config, "warmup_iters", json_integer(o->warmup_iters));
	set(config, "iterations", json_integer(o->iters));
	set(config, "aggregated_iterations", json_integer(o->agg_iters));
	set(config, "validation", json_integer(o->checks));
	set(config, "graph", json_integer(0));
	set(config, "blocking_collectives", truth(o->blocking));
	set(config, "per_iter_timing", truth(options_per_iter(o)));
	set(config, "per_iter_skip", json_integer(o->per_iter_skip));
	set(config, "parallel_init", truth(o->parallel_init));
	for (int i = 0; i < n; i++)
		json_array_append_new(list, device(&devices[i]));
	set(config, "devices", list);
	/* Keys that nccl-tests does not have. */
	set(config, "operation", string(o->op->name));
	set(config, "processes", json_integer(procs));
	set(config, "memory", string(o->mem_alloc ? "alloc" : "malloc"));
	set(config, "pin", truth(o->pin));
	set(report.root, "config", config);
	report.results = json_array();
	set(report.root, "results", report.results);
}

void json_config(const struct options *o, int procs,
		 const struct report_device *devices, int n)
{
	pthread_mutex_lock(&lock);
	if (report.root)
		add_config(o, procs, devices, n);
	pthread_mutex_unlock(&lock);
}

static json_t *histogram(const double *times, int n)
{
	struct stats_histogram bins;
	json_t *list = json_array();

	stats_histogram(&bins, times, (size_t)n);
	for (int b = 0; b < bins.bins; b++) {
		json_t *bin = json_object();

		set(bin, "from_us", number(bins.from[b] * 1e6));
		set(bin, "to_us", number(bins.from[b + 1] * 1e6));
		set(bin, "count", size(bins.count[b]));
		json_array_append_new(list, bin);
	}
	return list;
}

static json_t *per_iter(const struct options *o, const struct report_half *h)
{
	const struct stats *s = &h->stats;
	json_t *object = json_object();
	json_t *rows = json_array();

	set(object, "skipped_iterations", json_integer(o->per_iter_skip));
	set(object, "min_us", number(s->min * 1e6));
	set(object, "max_us", number(s->max * 1e6));
	set(object, "avg_us", number(s->avg * 1e6));
	set(object, "p50_us", number(s->p50 * 1e6));
	set(object, "p95_us", number(s->p95 * 1e6));
	set(object, "p99_us", number(s->p99 * 1e6));
	set(object, "stdev_us", number(s->stdev * 1e6));
	set(object, "cv_pct", number(s->avg > 0 ? s->stdev / s->avg * 100 : 0));
	set(object, "times_us", microseconds(h->times, o->iters));
	for (int p = 0; h->procs > 1 && p < h->procs; p++)
		json_array_append_new(
			rows, microseconds(h->process_times +
						   (size_t)p * (size_t)o->iters,
					   o->iters));
	if (h->procs > 1)
		set(object, "per_process_max_times_us", rows);
	else
		json_decref(rows);
	if (o->histogram)
		set(object, "histogram",
		    histogram(h->times + o->per_iter_skip,
			      o->iters - o->per_iter_skip));
	return object;
}

static json_t *half(const struct options *o, const struct report_half *h)
{
	json_t *object;

	if (h->missing)
		return json_null();
	object = json_object();
	set(object, o->cputime ? "cpu_time" : "time", number(h->time_us));
	set(object, "alg_bw", number(h->algorithm_gbs));
	set(object, "bus_bw", number(h->bus_gbs));
	set(object, "nwrong", h->checked ? number(h->wrong) : json_null());
	return object;
}

static void add_row(const struct options *o, const struct report_row *row)
{
	json_t *object = json_object();
	char root[16];

	snprintf(root, sizeof(root), "%6d", row->root);
	set(object, "size", size(row->size));
	set(object, "count", size(row->count));
	set(object, "type", string(row->type));
	set(object, "redop", string(row->reduction));
	set(object, "root", string(root));
	set(object, "out_of_place", half(o, &row->out_of_place));
	if (options_per_iter(o))
		set(object, "out_of_place_per_iter",
		    per_iter(o, &row->out_of_place));
	set(object, "in_place", half(o, &row->in_place));
	if (options_per_iter(o) && !row->in_place.missing)
		set(object, "in_place_per_iter", per_iter(o, &row->in_place));
	set(object, "actual_iterations", json_integer(o->iters));
	set(object, "experiment_name", string(""));
	json_array_append_new(report.results, object);
}

void json_row(const struct options *o, const struct report_row *row)
{
	pthread_mutex_lock(&lock);
	if (report.root)
		add_row(o, row);
	pthread_mutex_unlock(&lock);
}

static void add_foot(const struct report_end *end)
{
	json_t *bounds = json_object(), *bandwidth = json_object();
	bool fast = end->average_bus_gbs >= 0.9 * end->least_bus_gbs;

	set(bounds, "count", json_integer(end->failed_checks));
	set(bounds, "okay", truth(end->failed_checks == 0));
	set(report.root, "out_of_bounds", bounds);
	set(bandwidth, "bandwidth", number(end->average_bus_gbs));
	set(bandwidth, "okay",
	    end->least_bus_gbs < 0 ? string("unchecked") : truth(fast));
	set(report.root, "average_bus_bandwidth", bandwidth);
}

void json_foot(const struct report_end *end)
{
	pthread_mutex_lock(&lock);
	if (report.root)
		add_foot(end);
	pthread_mutex_unlock(&lock);
}

/* Writes the report and closes fd. Returns -1 and sets errno on failure, also
 * if only the end did not fit on the disk. */
static int write_file(const json_t *root, int fd)
{
	FILE *file = fdopen(fd, "w");
	int status;

	if (!file) {
		close(fd);
		return -1;
	}
	status = json_dumpf(root, file,
			    JSON_INDENT(1) | JSON_REAL_PRECISION(12));
	return fclose(file) == 0 ? status : -1;
}

int json_close(const char *last_error)
{
	json_t *root, *errors = json_array();
	int status = 0;

	pthread_mutex_lock(&lock);
	/* A failure while writing calls the hook, which calls this function
	 * again. */
	root = report.root;
	report.root = report.results = NULL;
	if (last_error && last_error[0])
		json_array_append_new(errors, string(last_error));
	if (root) {
		json_object_set(root, "errors", errors);
		set_now(root, "end_time");
		status = write_file(root, report.fd);
	}
	json_decref(root);
	json_decref(errors);
	pthread_mutex_unlock(&lock);
	return status;
}
