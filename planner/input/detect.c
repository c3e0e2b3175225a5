/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a cluster file of descriptions of hosts. */
#include "planner/input/detect.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "planner/input/input.h"

/*
 * Dense 16-bit TFLOPS, GiB and GB/s of memory, and Gbit/s one way between two
 * of a node, from the makers' data sheets; the first name that is part of what
 * a device is called counts. PCIe cards: 4.0 x16, without a switch.
 */
static const struct known {
	const char *name, *vendor;
	double tflops, gib, gbyte_per_s, inside_gbit;
} known[] = {
	{"GB200", "NVIDIA", 2500, 186, 8000, 7200},
	{"B200", "NVIDIA", 2250, 180, 8000, 7200},
	{"GH200 144G", "NVIDIA", 989, 141, 4900, 3600},
	{"GH200", "NVIDIA", 989, 96, 4000, 3600},
	{"H200 NVL", "NVIDIA", 835, 141, 4800, 3600},
	{"H200", "NVIDIA", 989, 141, 4800, 3600},
	{"H100 NVL", "NVIDIA", 835, 94, 3900, 2400},
	{"H100 PCIe", "NVIDIA", 756, 80, 2000, 250},
	{"H100", "NVIDIA", 989, 80, 3350, 3600},
	{"H800", "NVIDIA", 989, 80, 3350, 1600},
	{"H20", "NVIDIA", 148, 96, 4000, 3600},
	{"A100-PCIE-40GB", "NVIDIA", 312, 40, 1555, 250},
	{"A100-SXM4-40GB", "NVIDIA", 312, 40, 1555, 2400},
	{"A100 80GB PCIe", "NVIDIA", 312, 80, 1935, 250},
	{"A100", "NVIDIA", 312, 80, 2039, 2400},
	{"A800", "NVIDIA", 312, 80, 2039, 1600},
	{"A40", "NVIDIA", 150, 48, 696, 250},
	{"A30", "NVIDIA", 165, 24, 933, 250},
	{"A10G", "NVIDIA", 70, 24, 600, 250},
	{"A10", "NVIDIA", 125, 24, 600, 250},
	{"L40S", "NVIDIA", 362, 48, 864, 250},
	{"L40", "NVIDIA", 181, 48, 864, 250},
	{"L4", "NVIDIA", 121, 24, 300, 250},
	{"V100S", "NVIDIA", 130, 32, 1134, 125},
	{"V100-PCIE-32GB", "NVIDIA", 112, 32, 900, 125},
	{"V100-SXM2-32GB", "NVIDIA", 125, 32, 900, 1200},
	{"V100", "NVIDIA", 125, 16, 900, 1200},
	{"T4", "NVIDIA", 65, 16, 320, 125},
	{"RTX A6000", "NVIDIA", 155, 48, 768, 250},
	{"RTX 5090", "NVIDIA", 209, 32, 1792, 400},
	{"RTX 4090 D", "NVIDIA", 147, 24, 1008, 200},
	{"RTX 4090", "NVIDIA", 165, 24, 1008, 200},
	{"RTX 3090", "NVIDIA", 71, 24, 936, 200},
	{"RTX 3080 Ti", "NVIDIA", 68, 12, 912, 200},
	{"RTX 2080 Ti", "NVIDIA", 54, 11, 616, 125},
	{"MI355X", "AMD", 2500, 288, 8000, 4300},
	{"MI325X", "AMD", 1307, 256, 6000, 3584},
	{"MI300X", "AMD", 1307, 192, 5300, 3584},
	{"MI250X", "AMD", 192, 64, 1600, 1600}, /* one of its two dies */
	{"MI210", "AMD", 181, 64, 1600, 800},
	{"Max 1550", "Intel", 420, 64, 1600, 424}, /* one tile */
};

/* As a word of its own: a GH200 is no H200. */
static bool has_word(const char *text, const char *word)
{
	const char *at = text;

	while ((at = strcasestr(at, word))) {
		char end = at[strlen(word)];

		if ((at == text || !isalnum((unsigned char)at[-1])) &&
		    !isalnum((unsigned char)end))
			return true;
		at++;
	}
	return false;
}

static const struct known *find(const char *text)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (has_word(text, known[i].name))
			return &known[i];
	return NULL;
}

static void list_known(char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && n < len; i++)
		n += (size_t)snprintf(text + n, len - n, "%s%s", i ? ", " : "",
				      known[i].name);
}

static bool is_accelerator(const json_t *device)
{
	const char *name = json_string_value(json_object_get(device, "name"));

	/* OpenCL shows once more what other drivers do, and cores. */
	return name && strcmp(name, "host") && strncmp(name, "opencl", 6);
}

/* Sixteen operations a cycle of each core at 2.5 GHz, 32-bit: measure it. */
static void add_host(json_t *types, json_t *node, const json_t *machine)
{
	json_t *numa = json_object_get(machine, "numa"), *part;
	double bytes = 0;
	size_t i;

	json_array_foreach(numa, i, part) bytes +=
		json_number_value(json_object_get(part, "bytes"));
	json_object_set_new(node, "ranks", json_integer(1));
	json_object_set_new(node, "device", json_string("host"));
	json_object_set_new(types, "host",
			    json_pack("{s:f, s:f, s:f, s:s}", "tflops", 0.1,
				      "memory_gib",
				      bytes > 0x1p31 ? bytes / 0x1p30 : 2,
				      "memory_gbyte_per_s", 20.0, "remark",
				      "cores: a guess, to be measured"));
}

static void refuse_device(struct input *in, size_t node, size_t at,
			  const json_t *device)
{
	char path[INPUT_PATH], list[640];

	snprintf(path, sizeof(path),
		 "nodes[%zu].machine.devices[%zu].description", node, at);
	device = json_object_get(device, "description");
	list_known(list, sizeof(list));
	input_wrong(in, path, device,
		    "one of %s; of another one, write tflops and memory_gib "
		    "into devices of a cluster file, by hand",
		    list);
}

/* "a" and "a.b" are one host, as for the library; "a/0" is a part of it. */
static bool is_same_host(const char *a, const char *b)
{
	size_t n = strcspn(a, "/"), k = strcspn(b, "/");

	if (n == k && !memcmp(a, b, n))
		return true;
	n = strcspn(a, "./");
	k = strcspn(b, "./");
	return (a[n] != '.' || b[k] != '.') && n == k && !memcmp(a, b, n);
}

static const char *name_of(const json_t *node)
{
	const char *name = json_string_value(json_object_get(node, "name"));

	return name ? name : "";
}

static json_t *find_host(const json_t *list, const char *name)
{
	json_t *node;
	size_t i;

	json_array_foreach((json_t *)list, i,
			   node) if (*name && is_same_host(name_of(node),
							   name)) return node;
	return NULL;
}

/* What was measured counts more than what a host says of itself. False: it was
 * not. */
static bool take_rates(json_t *node, const json_t *links)
{
	json_t *other =
		find_host(json_object_get(links, "nodes"), name_of(node));
	json_t *value;
	const char *key;

	json_object_foreach(other, key, value) if (strcmp(key, "machine") &&
						   strcmp(key, "device") &&
						   strcmp(key, "ranks") &&
						   strcmp(key, "name"))
		json_object_set(node, key, value);
	return other != NULL;
}

/* Hosts that are made into one cluster. */
struct detecting {
	json_t *nodes, *types, *islands;
	struct input links; /* root NULL: there is none */
	size_t measured;    /* of nodes: found there */
	bool alone;         /* one host needs no rate */
};

/* Accelerators of a host that follow each other and are of one type. */
struct run {
	const struct known *type;
	int ranks;
};

#define RUNS_MOST 64

/* -1 after a message. */
static int find_runs(struct input *in, size_t at, const json_t *machine,
		     struct run run[RUNS_MOST])
{
	const json_t *devices = json_object_get(machine, "devices"), *device;
	int n = 0;
	size_t i;

	json_array_foreach((json_t *)devices, i, device)
	{
		const char *text = json_string_value(
			json_object_get(device, "description"));
		const struct known *k = text ? find(text) : NULL;

		if (!is_accelerator(device))
			continue;
		if (!k || (n == RUNS_MOST && run[n - 1].type != k)) {
			refuse_device(in, at, i, device);
			return -1;
		}
		if (!n || run[n - 1].type != k)
			run[n++] = (struct run){.type = k};
		run[n - 1].ranks++;
	}
	return n;
}

static void set_run(json_t *types, json_t *node, const struct run *r)
{
	const struct known *type = r->type;

	json_object_set_new(node, "ranks", json_integer(r->ranks));
	json_object_set_new(node, "device", json_string(type->name));
	if (!json_object_get(node, "inside_gbit_per_s"))
		json_object_set_new(node, "inside_gbit_per_s",
				    json_real(type->inside_gbit));
	json_object_set_new(types, type->name,
			    json_pack("{s:f, s:f, s:f, s:s}", "tflops",
				      type->tflops, "memory_gib", type->gib,
				      "memory_gbyte_per_s", type->gbyte_per_s,
				      "vendor", type->vendor));
}

/* Between types of a host: PCIe 4.0 x16, if it is no less. */
#define BETWEEN_GBIT 250.0

/* A host of several types is an island of nodes, NAME/0 and so on, in the order
 * of its devices: what leaves the host goes by the island's way. */
static bool split_host(struct detecting *d, struct input *in, size_t at,
		       json_t *node, const struct run *run, int n)
{
	static const char *const ways[] = {"gbit_per_s", "up_gbit_per_s",
					   "down_gbit_per_s"};
	const char *host = name_of(node);
	json_t *island = json_object();
	char text[128], path[INPUT_PATH];

	snprintf(path, sizeof(path), "nodes[%zu].%s", at,
		 *host ? "island" : "name");
	if (!*host || json_object_get(node, "island")) {
		input_wrong(in, path, json_object_get(node, "island"),
			    *host ? "none: as this host has several types of "
				    "devices, it is one"
				  : "the name of the host, as it has several "
				    "types of devices");
		json_decref(island);
		return false;
	}
	json_object_set_new(island, "name", json_string(host));
	for (int i = 0; i < 3; i++) {
		json_t *rate = json_object_get(node, ways[i]);

		if (rate)
			json_object_set(island, ways[i], rate);
		json_object_del(node, ways[i]);
	}
	json_array_append_new(d->islands, island);
	for (int i = 0; i < n; i++) {
		json_t *part = json_copy(node);
		double inside = run[i].type->inside_gbit;

		snprintf(text, sizeof(text), "%s/%d", host, i);
		json_object_set_new(part, "name", json_string(text));
		json_object_set_new(part, "island", json_string(host));
		json_object_set_new(part, "gbit_per_s",
				    json_real(inside < BETWEEN_GBIT
						      ? inside
						      : BETWEEN_GBIT));
		set_run(d->types, part, &run[i]);
		json_array_append_new(d->nodes, part);
	}
	return true;
}

/* Takes the node over. */
static bool add_devices(struct detecting *d, struct input *in, size_t at,
			json_t *node, const json_t *machine)
{
	struct run run[RUNS_MOST];
	int n = find_runs(in, at, machine, run);
	bool good = n >= 0;

	if (n > 1)
		good = split_host(d, in, at, node, run, n);
	else if (n == 1)
		set_run(d->types, node, &run[0]);
	else if (good)
		add_host(d->types, node, machine);
	if (good && n < 2)
		json_array_append(d->nodes, node);
	json_decref(node);
	return good;
}

static bool has_rate(const json_t *node)
{
	return json_object_get(node, "gbit_per_s") ||
	       json_object_get(node, "up_gbit_per_s") ||
	       json_object_get(node, "rank_gbit_per_s");
}

static bool add_host_of(struct detecting *d, struct input *in, size_t at,
			const json_t *found)
{
	json_t *machine = json_object_get(found, "machine"), *node;
	char path[INPUT_PATH];

	snprintf(path, sizeof(path), "nodes[%zu].machine", at);
	if (!json_is_object(machine)) {
		input_wrong(in, path, machine,
			    "what `dicomm-info --topo` writes");
		return false;
	}
	snprintf(path, sizeof(path), "nodes[%zu].name", at);
	if (find_host(d->nodes, name_of(found))) {
		input_wrong(in, path, json_object_get(found, "name"),
			    "a host that was not there before");
		return false;
	}
	node = json_copy((json_t *)found);
	json_object_del(node, "machine");
	if (take_rates(node, d->links.root))
		d->measured++;
	else if (d->links.root)
		input_complain("%s: %s: %s: not among the hosts of %s: its own "
			       "rates are taken",
			       in->file, path, name_of(found), d->links.file);
	snprintf(path, sizeof(path), "nodes[%zu].gbit_per_s", at);
	if (!d->alone && !has_rate(node))
		input_wrong(in, path, NULL,
			    "its rate here, or this host in a file of "
			    "`dicomm-perf links --save` (--cluster)");
	if (!in->bad)
		return add_devices(d, in, at, node, machine);
	json_decref(node);
	return false;
}

static bool read_hosts(struct detecting *d, const char *file)
{
	struct input in;
	json_t *list, *found;
	size_t i;

	if (!input_open(&in, file))
		return false;
	list = input_array(&in, in.root, NULL, "nodes");
	d->alone &= json_array_size(list) == 1;
	json_array_foreach(list, i, found) if (!in.bad) in.bad =
		!add_host_of(d, &in, i, found);
	i = in.bad;
	input_close(&in);
	return !i;
}

/* A file of other hosts is hardly the one that was meant. */
static bool check_links(struct detecting *d)
{
	json_t *node;
	size_t i;

	if (!d->links.root)
		return true;
	if (!d->measured) {
		input_wrong(&d->links, "nodes",
			    json_object_get(d->links.root, "nodes"),
			    "at least one of the hosts of the other files");
		return false;
	}
	json_array_foreach(json_object_get(d->links.root, "nodes"), i, node)
	{
		if (!find_host(d->nodes, name_of(node)))
			input_complain("%s: nodes[%zu].name: %s: left out, as "
				       "no other file is of this host",
				       d->links.file, i, name_of(node));
	}
	return true;
}

json_t *detect_cluster(char *const *hosts, int n, const char *links_file)
{
	struct detecting d = {.nodes = json_array(),
			      .types = json_object(),
			      .islands = json_array(),
			      .alone = n == 1};
	json_t *root = NULL, *islands;
	bool good = !links_file || input_open(&d.links, links_file);

	for (int i = 0; i < n && good; i++)
		good = read_hosts(&d, hosts[i]);
	if (good && check_links(&d))
		root = json_pack("{s:O, s:O}", "nodes", d.nodes, "devices",
				 d.types);
	islands = json_object_get(d.links.root, "islands");
	if (islands)
		json_array_extend(d.islands, islands);
	if (root && json_array_size(d.islands))
		json_object_set(root, "islands", d.islands);
	input_close(&d.links);
	json_decref(d.nodes);
	json_decref(d.types);
	json_decref(d.islands);
	return root;
}
