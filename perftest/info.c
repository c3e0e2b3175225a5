/* SPDX-License-Identifier: BSD-3-Clause */
/* dicomm-info: prints what the library finds on this machine, and its
 * settings. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <popt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <hwloc.h>
#include <jansson.h>

#include "dicomm.h"
#include "perftest/machine.h"
#include "perftest/base/size.h"
#include "perftest/base/utf8.h"
#include "perftest/doctor/doctor.h"
#include "perftest/doctor/peer.h"
#include "perftest/job/job.h"
#include "perftest/trace/merge.h"

#define EXIT_USAGE 6
#define EXIT_LIBRARY 3
#define EXIT_BAD 1 /* found by --doctor */

#define NOT_GIVEN INT_MIN /* --ranks was not given */
#define DOCTOR_RANKS 64

/* What the user asks for. If no part is named: all parts, except the help of
 * the parameters; --doctor, --job and --trace are none of them. */
struct request {
	int version, devices, transports, network, paths, machine, config, dot,
		json;
	int doctor, job, trace;
	char *peer;     /* of --doctor; owned */
	char *whom;     /* of --job; owned */
	char **files;   /* of --trace; owned, NULL at the end */
	char *root;     /* owned */
	char *topology; /* file; owned */
	char *explain;  /* operation; owned */
	int ranks;
	size_t bytes;
};

static const char *or_none(const char *text)
{
	return text && text[0] ? text : "";
}

/* The file of the library that runs here: there may be several on a machine. */
static void library_path(char *path, size_t len)
{
	char *whole = NULL;
	Dl_info found;

	if (dladdr((void *)dicomm_get_version, &found) && found.dli_fname)
		whole = realpath(found.dli_fname, NULL);
	snprintf(path, len, "%s", whole ? whole : "unknown");
	free(whole);
}

/* Each of these functions adds its facts to the object, or prints them. */

static int show_version(json_t *json)
{
	struct utsname system;
	char text[32], path[PATH_MAX];
	int version = 0;

	dicomm_get_version(&version);
	snprintf(text, sizeof(text), "%d.%d.%d", version / 10000,
		 version / 100 % 100, version % 100);
	library_path(path, sizeof(path));
	if (uname(&system) < 0)
		memset(&system, 0, sizeof(system));
	if (json) {
		json_object_set_new(json, "version", json_string(text));
		json_object_set_new(json, "version_code",
				    json_integer(version));
		json_object_set_new(json, "header_code",
				    json_integer(DICOMM_VERSION));
		json_object_set_new(json, "library", utf8_string(path));
		json_object_set_new(json, "host", utf8_string(system.nodename));
		json_object_set_new(json, "kernel",
				    json_string(system.release));
		return 0;
	}
	printf("version    %s (header %d, library %d)\n", text, DICOMM_VERSION,
	       version);
	printf("library    %s\n", path);
	printf("host       %s, %s %s, %s\n", system.nodename, system.sysname,
	       system.release, system.machine);
	return 0;
}

/* The kinds of device that this machine does not have, and why. */
static void show_absent_kinds(json_t *json)
{
	json_t *list = json ? json_object() : NULL;
	dicomm_device_kind_info_t kind;

	for (int i = 0; dicomm_device_kind_info(i, &kind) == DICOMM_SUCCESS;
	     i++) {
		if (kind.devices)
			continue;
		if (json)
			json_object_set_new(list, kind.name,
					    json_string(kind.reason));
		else
			printf("device     %-10s none: %s\n", kind.name,
			       kind.reason);
	}
	if (json)
		json_object_set_new(json, "absent_devices", list);
}

static int show_devices(json_t *json)
{
	json_t *list = json ? json_array() : NULL;
	dicomm_device_info_t d;
	int n = 0;

	for (; dicomm_device_info(n, &d) == DICOMM_SUCCESS; n++) {
		if (json)
			json_array_append_new(
				list, json_pack("{s:s, s:s, s:s, s:s}", "name",
						d.name, "vendor", d.vendor,
						"description", d.description,
						"pci", d.pci));
		else
			printf("device     %-10s %s %s%s%s\n", d.name, d.vendor,
			       d.description, d.pci[0] ? " at " : "", d.pci);
	}
	if (json)
		json_object_set_new(json, "devices", list);
	show_absent_kinds(json);
	if (n > 0)
		return 0;
	fprintf(stderr, "dicomm-info: no device: %s\n",
		dicomm_get_last_error(NULL));
	return -1;
}

static int show_transports(json_t *json)
{
	json_t *list = json ? json_array() : NULL;
	dicomm_transport_info_t t;

	for (int i = 0; dicomm_transport_info(i, &t) == DICOMM_SUCCESS; i++) {
		if (json)
			json_array_append_new(
				list, json_pack("{s:s, s:b, s:s}", "name",
						t.name, "usable", t.usable,
						"reason", t.reason));
		else
			printf("transport  %-10s %s%s%s\n", t.name,
			       t.usable ? "usable" : "not usable",
			       t.reason[0] ? ": " : "", t.reason);
	}
	if (json)
		json_object_set_new(json, "transports", list);
	return 0;
}

/* Where this host would be reached. */
static int show_network(json_t *json)
{
	dicomm_network_info_t n;

	if (dicomm_network_info(&n) != DICOMM_SUCCESS) {
		n.interface[0] = n.address[0] = '\0';
		snprintf(n.reason, sizeof(n.reason), "%s",
			 dicomm_get_last_error(NULL));
	}
	if (json)
		json_object_set_new(json, "network",
				    json_pack("{s:o, s:s, s:s}", "interface",
					      utf8_string(n.interface),
					      "address", n.address, "reason",
					      n.reason));
	else
		printf("network    %-10s %s%s%s\n",
		       n.interface[0] ? n.interface : "none", n.address,
		       n.address[0] ? ": " : "", n.reason);
	return 0;
}

/* The adapters that reach the memory of each device. */
static void show_adapters(json_t *json)
{
	json_t *list = json ? json_array() : NULL;
	dicomm_adapter_info_t a;

	for (int i = 0; dicomm_adapter_info(i, &a) == DICOMM_SUCCESS; i++) {
		if (json)
			json_array_append_new(
				list,
				json_pack("{s:s, s:s, s:s, s:b, s:s}", "device",
					  a.device, "transport", a.transport,
					  "adapter", a.adapter, "direct",
					  a.direct, "how", a.how));
		else
			printf("adapter    %s %s, %s: %s: %s\n", a.transport,
			       a.adapter, a.device,
			       a.direct ? "direct" : "not direct", a.how);
	}
	if (json)
		json_object_set_new(json, "adapters", list);
}

/* The path of data from each device to each other one, and between two ranks of
 * the same device. */
static int show_paths(json_t *json)
{
	json_t *list = json ? json_array() : NULL;
	dicomm_device_info_t a, b;
	char text[1200];

	for (int i = 0; dicomm_device_info(i, &a) == DICOMM_SUCCESS; i++)
		for (int j = i; dicomm_device_info(j, &b) == DICOMM_SUCCESS;
		     j++) {
			if (dicomm_explain_devices(a.name, b.name, text,
						   sizeof(text)))
				continue;
			if (json)
				json_array_append_new(
					list,
					json_pack("{s:[s, s], s:s, s:s}",
						  "devices", a.name, b.name,
						  "path", text, "way", text));
			else
				printf("path       %s, %s: %s\n", a.name,
				       b.name, text);
		}
	if (json) {
		json_object_set_new(json, "paths", list);
		/* The former name of the key, which goes with the option
		 * --ways. */
		json_object_set(json, "ways", list);
	}
	show_adapters(json);
	return 0;
}

static void show_numa(json_t *list)
{
	json_t *node;
	size_t i;

	json_array_foreach(list, i, node)
	{
		json_int_t number = 0, bytes = 0;
		const char *cpus = "";

		json_unpack(node, "{s:I, s:I, s:s}", "node", &number, "bytes",
			    &bytes, "cpus", &cpus);
		printf("numa       node %lld: %.1f GiB, cpus %s\n",
		       (long long)number, (double)bytes / (1 << 30), cpus);
	}
}

static void show_caches(hwloc_topology_t topology, json_t *list)
{
	int depths = hwloc_topology_get_depth(topology);

	for (int depth = 0; depth < depths; depth++) {
		hwloc_obj_type_t type = hwloc_get_depth_type(topology, depth);
		hwloc_obj_t cache = hwloc_get_obj_by_depth(topology, depth, 0);
		unsigned n = hwloc_get_nbobjs_by_depth(topology, depth);
		char name[32];

		if (!hwloc_obj_type_is_dcache(type) || !cache)
			continue;
		hwloc_obj_type_snprintf(name, sizeof(name), cache, 0);
		if (list)
			json_array_append_new(
				list,
				json_pack("{s:s, s:i, s:I, s:i, s:i}", "name",
					  name, "caches", (int)n, "bytes",
					  (json_int_t)cache->attr->cache.size,
					  "line",
					  (int)cache->attr->cache.linesize,
					  "cpus_of_each",
					  hwloc_bitmap_weight(cache->cpuset)));
		else
			printf("cache      %u x %s: %llu KiB, lines of %u, "
			       "shared by %d cpus\n",
			       n, name,
			       (unsigned long long)cache->attr->cache.size /
				       1024,
			       cache->attr->cache.linesize,
			       hwloc_bitmap_weight(cache->cpuset));
	}
}

static int show_machine(json_t *json)
{
	json_t *numa;
	json_t *caches = json ? json_array() : NULL;
	hwloc_topology_t topology;

	if (hwloc_topology_init(&topology) < 0) {
		fprintf(stderr, "dicomm-info: hwloc: %s\n", strerror(errno));
		return -1;
	}
	if (hwloc_topology_load(topology) < 0) {
		fprintf(stderr, "dicomm-info: hwloc: %s\n", strerror(errno));
		hwloc_topology_destroy(topology);
		return -1;
	}
	if (!json)
		printf("machine    %d sockets, %d cores, %d cpus\n",
		       hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
		       hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
		       hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
	numa = machine_numa(topology);
	if (!json)
		show_numa(numa);
	show_caches(topology, caches);
	hwloc_topology_destroy(topology);
	if (json) {
		json_object_set(json, "numa", numa);
		json_object_set_new(json, "caches", caches);
	}
	json_decref(numa);
	return 0;
}

static int show_config(json_t *json, bool with_help)
{
	json_t *list = json ? json_array() : NULL;
	dicomm_param_info_t p;

	for (int i = 0; dicomm_param_info(i, &p) == DICOMM_SUCCESS; i++) {
		if (json) {
			json_array_append_new(
				list,
				json_pack("{s:s, s:s, s:s, s:o, s:s, s:s}",
					  "name", p.name, "type", p.type,
					  "default", or_none(p.default_value),
					  "value",
					  utf8_string(or_none(p.value)),
					  "origin", p.origin, "help", p.help));
			continue;
		}
		printf("parameter  %-30s %-7s %-20s (%s)\n", p.name, p.type,
		       or_none(p.value), p.origin);
		if (with_help)
			printf("           %s; default %s\n", p.help,
			       p.default_value && p.default_value[0]
				       ? p.default_value
				       : "unset");
	}
	if (json)
		json_object_set_new(json, "parameters", list);
	return 0;
}

static int show_explain(const struct request *r, json_t *json)
{
	size_t len = 1 << 16;
	char *text = calloc(1, len);
	dicomm_result_t status;

	if (!text)
		return -1;
	status = dicomm_explain(r->explain, r->ranks, r->bytes, text, len);
	if (status != DICOMM_SUCCESS)
		fprintf(stderr, "dicomm-info: explain %s: %s: %s\n", r->explain,
			dicomm_get_error_string(status),
			dicomm_get_last_error(NULL));
	else if (json)
		json_object_set_new(json, "explain", json_string(text));
	else
		printf("%s%s", text,
		       text[0] && text[strlen(text) - 1] != '\n' ? "\n" : "");
	free(text);
	return status == DICOMM_SUCCESS ? 0 : -1;
}

static int show_topology(const struct request *r)
{
	json_t *description = machine_describe();
	int status = 0;

	if (!description) {
		fprintf(stderr, "dicomm-info: this machine cannot be "
				"described\n");
		return -1;
	}
	if (r->topology &&
	    json_dump_file(description, r->topology,
			   JSON_INDENT(1) | JSON_PRESERVE_ORDER) < 0) {
		fprintf(stderr, "dicomm-info: --topo %s: %s\n", r->topology,
			strerror(errno));
		status = -1;
	}
	if (r->dot)
		machine_dot(description, stdout);
	json_decref(description);
	return status;
}

/* Returns true if something is bad. */
static bool show_doctor(const struct request *r, json_t *json)
{
	struct doctor d = {
		.root = or_none(r->root),
		.ranks = r->ranks,
		.findings = json ? json_array() : NULL,
	};

	if (r->peer)
		peer_run(&d, r->peer);
	else
		doctor_run(&d);
	if (json)
		json_object_set_new(json, "doctor", d.findings);
	return d.worst == VERDICT_BAD;
}

static int show(const struct request *r, json_t *json)
{
	bool all = !(r->version || r->devices || r->transports || r->network ||
		     r->paths || r->machine || r->config || r->explain ||
		     r->topology || r->dot || r->doctor || r->job || r->trace);
	int status = 0;

	if (all || r->version)
		status |= show_version(json);
	if (all || r->devices)
		status |= show_devices(json);
	if (all || r->transports)
		status |= show_transports(json);
	if (all || r->network)
		status |= show_network(json);
	if (all || r->paths)
		status |= show_paths(json);
	if (all || r->machine)
		status |= show_machine(json);
	if (all || r->config)
		status |= show_config(json, r->config);
	if (r->job && !job_show(r->whom, json))
		status = -1;
	if (r->trace && !merge_traces((const char *const *)r->files))
		status = -1;
	if (r->explain)
		status |= show_explain(r, json);
	if (r->topology || r->dot)
		status |= show_topology(r);
	return status;
}

static int check(struct request *r, const char *bytes)
{
	bool ranks = r->ranks != NOT_GIVEN;

	if (!ranks)
		r->ranks = r->doctor ? DOCTOR_RANKS : 2;
	if (bytes && !size_parse(bytes, &r->bytes))
		fprintf(stderr, "dicomm-info: --bytes %s: not a size\n", bytes);
	else if (r->ranks < 1)
		fprintf(stderr, "dicomm-info: --ranks %d: not positive\n",
			r->ranks);
	else if (!r->explain && bytes)
		fprintf(stderr, "dicomm-info: --bytes: only with --explain\n");
	else if (!r->explain && !r->doctor && ranks)
		fprintf(stderr, "dicomm-info: --ranks: only with --explain "
				"or --doctor\n");
	else if (!r->doctor && r->root)
		fprintf(stderr, "dicomm-info: --root: only with --doctor\n");
	else if (r->peer && !peer_check(r->peer))
		fprintf(stderr,
			"dicomm-info: --doctor %s: not HOST:PORT, "
			"[ADDRESS]:PORT or :PORT\n",
			r->peer);
	else if (r->job && r->doctor)
		fprintf(stderr, "dicomm-info: --job: not with --doctor\n");
	else if (r->whom && !job_check(r->whom))
		fprintf(stderr,
			"dicomm-info: --job %s: neither a process number nor "
			"HOST:PORT\n",
			r->whom);
	else if (r->trace && !r->files)
		fprintf(stderr, "dicomm-info: --trace: no file\n");
	else if (r->trace && (r->doctor || r->job || r->json || r->dot))
		fprintf(stderr, "dicomm-info: --trace: alone\n");
	else if (r->dot && (r->version || r->devices || r->transports ||
			    r->network || r->paths || r->machine || r->config ||
			    r->explain || r->doctor || r->job || r->json))
		fprintf(stderr, "dicomm-info: --dot: alone, or with --topo\n");
	else
		return 0;
	return -1;
}

static void take_files(struct request *r, const char **files)
{
	size_t n = 0;

	while (files && files[n])
		n++;
	r->files = n ? calloc(n + 1, sizeof(*r->files)) : NULL;
	for (size_t i = 0; r->files && i < n; i++)
		r->files[i] = strdup(files[i]);
}

static void free_files(struct request *r)
{
	for (size_t i = 0; r->files && r->files[i]; i++)
		free(r->files[i]);
	free(r->files);
}

/* Fills in the request. Returns -1 after printing what is wrong with it. */
static int parse(struct request *r, int argc, const char **argv)
{
	char *bytes = NULL;
	const struct poptOption table[] = {
		{"version", '\0', POPT_ARG_NONE, &r->version, 0,
		 "version of the library, host", NULL},
		{"devices", '\0', POPT_ARG_NONE, &r->devices, 0,
		 "what ranks can compute on", NULL},
		{"transports", '\0', POPT_ARG_NONE, &r->transports, 0,
		 "the wires, and why one is not usable", NULL},
		{"network", '\0', POPT_ARG_NONE, &r->network, 0,
		 "the interface and address that this host listens on, to "
		 "meet and for tcp, and why",
		 NULL},
		{"paths", '\0', POPT_ARG_NONE, &r->paths, 0,
		 "the path of data between each two devices, and why it is "
		 "not a better one",
		 NULL},
		/* The former name of the option, for one release. */
		{"ways", '\0', POPT_ARG_NONE | POPT_ARGFLAG_DOC_HIDDEN,
		 &r->paths, 0, NULL, NULL},
		{"machine", '\0', POPT_ARG_NONE, &r->machine, 0,
		 "NUMA nodes and caches", NULL},
		{"config", '\0', POPT_ARG_NONE, &r->config, 0,
		 "every parameter: value, origin, what it does", NULL},
		{"explain", '\0', POPT_ARG_STRING, &r->explain, 0,
		 "the algorithms for it, and which is chosen", "OPERATION"},
		{"ranks", '\0', POPT_ARG_INT, &r->ranks, 0,
		 "of the job: with --explain (2), with --doctor (64)", "N"},
		{"bytes", '\0', POPT_ARG_STRING, &bytes, 0,
		 "with --explain: size of the message (1M)", "SIZE"},
		{"doctor", '\0', POPT_ARG_NONE, &r->doctor, 0,
		 "what gets in the way of ranks here, and how to mend it; with "
		 "HOST:PORT behind it, the path to the doctor that listens "
		 "there; with :PORT, listen there for one",
		 NULL},
		{"job", '\0', POPT_ARG_NONE, &r->job, 0,
		 "what the ranks of this user on this machine do, and which "
		 "one holds up the others; with PID behind it, of that "
		 "process; with HOST:PORT, all ranks of the job that met "
		 "there, whose secret is DICOMM_COMM_KEY",
		 NULL},
		{"trace", '\0', POPT_ARG_NONE, &r->trace, 0,
		 "print the traces in the FILEs behind it (DICOMM_TRACE, "
		 "PyTorch's profiler) as one, for Chrome's trace viewer and "
		 "Perfetto",
		 NULL},
		{"root", '\0', POPT_ARG_STRING, &r->root, 0,
		 "with --doctor: read /proc, /sys, /dev and /usr below FOLDER",
		 "FOLDER"},
		{"topo", '\0', POPT_ARG_STRING, &r->topology, 0,
		 "write this machine as DICOMM_TOPO_FILE reads it: NICs, "
		 "devices, NUMA nodes",
		 "FILE.json"},
		{"dot", '\0', POPT_ARG_NONE, &r->dot, 0,
		 "print the same for Graphviz", NULL},
		{"json", '\0', POPT_ARG_NONE, &r->json, 0,
		 "print JSON instead of text", NULL},
		POPT_AUTOHELP POPT_TABLEEND,
	};
	poptContext context = poptGetContext(NULL, argc, argv, table, 0);
	int option = poptGetNextOpt(context);
	const char *extra = r->trace ? NULL : poptGetArg(context);
	int status = 0;

	if (r->trace)
		take_files(r, poptGetArgs(context));

	if ((r->doctor || r->job) && extra) {
		*(r->job ? &r->whom : &r->peer) = strdup(extra);
		extra = poptGetArg(context);
	}

	if (option < -1) {
		fprintf(stderr, "dicomm-info: %s: %s\n",
			poptBadOption(context, 0), poptStrerror(option));
		status = -1;
	} else if (extra) {
		fprintf(stderr, "dicomm-info: %s: one too many\n", extra);
		status = -1;
	} else {
		status = check(r, bytes);
	}
	free(bytes);
	poptFreeContext(context);
	return status;
}

/* On a full disk, printing may succeed while closing fails. */
static int close_output(void)
{
	if (fclose(stdout) == 0)
		return 0;
	fprintf(stderr, "dicomm-info: standard output: %s\n", strerror(errno));
	return -1;
}

int main(int argc, char **argv)
{
	struct request request = {.ranks = NOT_GIVEN, .bytes = 1 << 20};
	json_t *json = NULL;
	int status = EXIT_USAGE, bad = 0;

	if (parse(&request, argc, (const char **)argv) < 0)
		goto free_request;
	if (request.json)
		json = json_object();
	if (request.doctor && show_doctor(&request, json))
		bad = EXIT_BAD;
	status = show(&request, json) < 0 ? EXIT_LIBRARY : bad;
	if (json) {
		json_dumpf(json, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
		printf("\n");
		json_decref(json);
	}
	if (close_output() < 0)
		status = EXIT_LIBRARY;
free_request:
	free(request.explain);
	free(request.topology);
	free(request.peer);
	free(request.whom);
	free(request.root);
	free_files(&request);
	return status;
}
