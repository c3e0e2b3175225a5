/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a cluster file of descriptions of hosts. */
#include "planner/input/detect.h"

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
	{"H200", "NVIDIA", 989, 141, 4800, 3600},
	{"H100 PCIe", "NVIDIA", 756, 80, 2000, 250},
	{"H100", "NVIDIA", 989, 80, 3350, 3600},
	{"H800", "NVIDIA", 989, 80, 3350, 1600},
	{"H20", "NVIDIA", 148, 96, 4000, 3600},
	{"A100-PCIE-40GB", "NVIDIA", 312, 40, 1555, 250},
	{"A100-SXM4-40GB", "NVIDIA", 312, 40, 1555, 2400},
	{"A100 80GB PCIe", "NVIDIA", 312, 80, 1935, 250},
	{"A100", "NVIDIA", 312, 80, 2039, 2400},
	{"A800", "NVIDIA", 312, 80, 2039, 1600},
	{"A10G", "NVIDIA", 70, 24, 600, 250},
	{"A10", "NVIDIA", 125, 24, 600, 250},
	{"L40S", "NVIDIA", 362, 48, 864, 250},
	{"L40", "NVIDIA", 181, 48, 864, 250},
	{"L4", "NVIDIA", 121, 24, 300, 250},
	{"V100-SXM2-32GB", "NVIDIA", 125, 32, 900, 1200},
	{"V100", "NVIDIA", 125, 16, 900, 1200},
	{"T4", "NVIDIA", 65, 16, 320, 125},
	{"RTX 4090", "NVIDIA", 165, 24, 1008, 200},
	{"RTX 3090", "NVIDIA", 71, 24, 936, 200},
	{"RTX 3080 Ti", "NVIDIA", 68, 12, 912, 200},
	{"RTX 2080 Ti", "NVIDIA", 54, 11, 616, 125},
	{"MI300X", "AMD", 1307, 192, 5300, 3584},
	{"MI250X", "AMD", 192, 64, 1600, 1600}, /* one of its two dies */
	{"MI210", "AMD", 181, 64, 1600, 800},
	{"Max 1550", "Intel", 420, 64, 1600, 424}, /* one tile */
};

static const struct known *find(const char *text)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcasestr(text, known[i].name))
			return &known[i];
	return NULL;
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

/* All accelerators of a host are of one type: it is one entry of nodes. */
static bool add_devices(struct input *in, json_t *types, json_t *node,
			const json_t *machine)
{
	const json_t *devices = json_object_get(machine, "devices"), *device;
	const struct known *type = NULL;
	int ranks = 0;
	size_t i;

	json_array_foreach((json_t *)devices, i, device)
	{
		const char *text = json_string_value(
			json_object_get(device, "description"));
		const struct known *k = text ? find(text) : NULL;
		char at[INPUT_PATH];

		if (!is_accelerator(device))
			continue;
		snprintf(at, sizeof(at),
			 "nodes[0].machine.devices[%zu].description", i);
		if (!k || (type && k != type)) {
			input_wrong(in, at,
				    json_object_get(device, "description"),
				    type ? "a %s, as the others of this host"
					 : "a device that is known by name%s",
				    type ? type->name : "");
			return false;
		}
		type = k;
		ranks++;
	}
	if (!type) {
		add_host(types, node, machine);
		return true;
	}
	json_object_set_new(node, "ranks", json_integer(ranks));
	json_object_set_new(node, "device", json_string(type->name));
	if (!json_object_get(node, "inside_gbit_per_s"))
		json_object_set_new(node, "inside_gbit_per_s",
				    json_real(type->inside_gbit));
	json_object_set_new(types, type->name,
			    json_pack("{s:f, s:f, s:f, s:s}", "tflops",
				      type->tflops, "memory_gib", type->gib,
				      "memory_gbyte_per_s", type->gbyte_per_s,
				      "vendor", type->vendor));
	return true;
}

/* What was measured counts more than what a host says of itself. */
static void take_rates(json_t *node, const json_t *links)
{
	const char *name = json_string_value(json_object_get(node, "name"));
	json_t *other;
	size_t i;

	json_array_foreach(json_object_get(links, "nodes"), i, other)
	{
		const char *called =
			json_string_value(json_object_get(other, "name"));
		const char *key;
		json_t *value;

		if (!name || !called || strcmp(name, called))
			continue;
		json_object_foreach(other, key,
				    value) if (strcmp(key, "machine") &&
					       strcmp(key, "device") &&
					       strcmp(key, "ranks"))
			json_object_set(node, key, value);
	}
}

static json_t *read_host(const char *file, json_t *types, const json_t *links)
{
	struct input in;
	json_t *list, *found, *node = NULL;

	if (!input_open(&in, file))
		return NULL;
	list = input_array(&in, in.root, NULL, "nodes");
	found = json_array_get(list, 0);
	if (list && !json_is_object(json_object_get(found, "machine")))
		input_wrong(&in, "nodes[0].machine", NULL,
			    "what `dicomm-info --topo` writes");
	if (!in.bad) {
		node = json_copy(found);
		json_object_del(node, "machine");
		take_rates(node, links);
		if (!add_devices(&in, types, node,
				 json_object_get(found, "machine"))) {
			json_decref(node);
			node = NULL;
		}
	}
	input_close(&in);
	return node;
}

json_t *detect_cluster(char *const *hosts, int n, const char *links_file)
{
	struct input links = {0};
	json_t *nodes = json_array(), *types = json_object(), *root = NULL;
	bool good = true;

	if (links_file)
		good = input_open(&links, links_file);
	for (int i = 0; i < n && good; i++) {
		json_t *node = read_host(hosts[i], types, links.root);

		good = node && !json_array_append_new(nodes, node);
		if (good && n > 1 && !json_object_get(node, "gbit_per_s") &&
		    !json_object_get(node, "up_gbit_per_s") &&
		    !json_object_get(node, "rank_gbit_per_s")) {
			input_complain("%s: nodes[0].gbit_per_s: missing: "
				       "wanted its rate here, or this host in "
				       "a file of `dicomm-perf links --save` "
				       "(--cluster)",
				       hosts[i]);
			good = false;
		}
	}
	if (good)
		root = json_pack("{s:O, s:O}", "nodes", nodes, "devices",
				 types);
	if (good && links.root && json_object_get(links.root, "islands"))
		json_object_set(root, "islands",
				json_object_get(links.root, "islands"));
	input_close(&links);
	json_decref(nodes);
	json_decref(types);
	return root;
}
