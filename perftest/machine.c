/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds NICs in sysfs, devices through the library, and positions through
 * hwloc. */
#include "perftest/machine.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dicomm.h"

/* ---- sysfs ---- */

static bool read_line(const char *path, char *text, size_t len)
{
	FILE *f = fopen(path, "re");
	bool read = f && fgets(text, (int)len, f);

	if (f)
		fclose(f);
	if (read)
		text[strcspn(text, "\n")] = '\0';
	return read;
}

/* Returns the rate in Gbit/s of a port in this folder, from a text like "100
 * Gb/sec (4X EDR)". Returns 0 if the state is not "4: ACTIVE", because the rate
 * is only what the port might have. */
static double port_gbit_per_s(const char *ports, const char *port)
{
	char path[PATH_MAX], text[64] = "";

	snprintf(path, sizeof(path), "%s/%s/state", ports, port);
	if (!read_line(path, text, sizeof(text)) || atoi(text) != 4)
		return 0;
	snprintf(path, sizeof(path), "%s/%s/rate", ports, port);
	return read_line(path, text, sizeof(text)) ? atof(text) : 0;
}

/* Returns the sum over all its ports. */
static double rdma_gbit_per_s(const char *name)
{
	char path[PATH_MAX / 2];
	struct dirent *e;
	double rate = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports", name);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			rate += port_gbit_per_s(path, e->d_name);
	if (dir)
		closedir(dir);
	return rate;
}

/* sysfs has Mbit/s. */
static double network_gbit_per_s(const char *name)
{
	char path[PATH_MAX], text[64] = "";

	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	return read_line(path, text, sizeof(text)) ? atof(text) / 1000 : 0;
}

/* Finds the PCI address; "" if it is not on a PCI bus. */
static void find_pci(const char *class, const char *name, char *pci, size_t len)
{
	char path[PATH_MAX], real[PATH_MAX];

	*pci = '\0';
	snprintf(path, sizeof(path), "/sys/class/%s/%s/device", class, name);
	if (!realpath(path, real))
		return;
	/* The device itself may be a child of the PCI device, such as
	 * virtio0. */
	for (char *slash; (slash = strrchr(real, '/')) && !*pci;
	     *slash = '\0') {
		unsigned a, b, c, d;

		if (sscanf(slash, "/%4x:%2x:%2x.%1x", &a, &b, &c, &d) == 4)
			snprintf(pci, len, "%s", slash + 1);
	}
}

/* ---- positions ---- */

static hwloc_obj_t place_of(hwloc_topology_t t, const char *pci)
{
	return *pci ? hwloc_get_pcidev_by_busidstring(t, pci) : NULL;
}

/* Returns the NUMA node of a PCI device; -1 if unknown. */
static int numa_of(hwloc_topology_t t, const char *pci)
{
	hwloc_obj_t at = place_of(t, pci), node = NULL;

	at = at ? hwloc_get_non_io_ancestor_obj(t, at) : NULL;
	if (!at || !at->nodeset)
		return -1;
	while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)))
		if (hwloc_bitmap_isset(at->nodeset, node->os_index))
			return hwloc_bitmap_weight(at->nodeset) == 1
				       ? (int)node->os_index
				       : -1;
	return -1;
}

/* Returns the steps between two devices in the tree of buses; -1 if unknown.
 * hwloc's own search for a common ancestor runs past the root if one bus is
 * deeper than the other. */
static int steps_between(hwloc_topology_t t, const char *a, const char *b)
{
	hwloc_obj_t to = place_of(t, b);
	int up = 0;

	for (hwloc_obj_t from = place_of(t, a); from && to;
	     from = from->parent, up++) {
		int down = 0;

		for (hwloc_obj_t o = to; o; o = o->parent, down++)
			if (o == from)
				return up + down;
	}
	return -1;
}

/* ---- the description ---- */

static void add_place(hwloc_topology_t t, json_t *object, const char *pci)
{
	int numa = numa_of(t, pci);

	if (*pci)
		json_object_set_new(object, "pci", json_string(pci));
	if (numa >= 0)
		json_object_set_new(object, "numa", json_integer(numa));
}

/* Adds interfaces of hardware. Bridges and tunnels have no device. */
static void add_nics(hwloc_topology_t t, json_t *nics, const char *class)
{
	char path[PATH_MAX], pci[32];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/class/%s", class);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		bool net = strcmp(class, "net") == 0;
		json_t *nic;
		double rate;

		snprintf(path, sizeof(path), "/sys/class/%s/%s/device", class,
			 e->d_name);
		if (e->d_name[0] == '.' || access(path, F_OK) < 0)
			continue;
		nic = json_pack("{s:s, s:s}", "name", e->d_name, "kind",
				net ? "network" : "rdma");
		rate = net ? network_gbit_per_s(e->d_name)
			   : rdma_gbit_per_s(e->d_name);
		if (rate > 0)
			json_object_set_new(nic, "gbit_per_s", json_real(rate));
		find_pci(class, e->d_name, pci, sizeof(pci));
		add_place(t, nic, pci);
		json_array_append_new(nics, nic);
	}
	if (dir)
		closedir(dir);
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static void add_devices(hwloc_topology_t t, json_t *devices, const json_t *nics)
{
	dicomm_device_info_t d;
	json_t *nic;
	size_t i;

	for (int n = 0; dicomm_device_info(n, &d) == DICOMM_SUCCESS; n++) {
		json_t *device =
			json_pack("{s:s, s:s, s:s}", "name", d.name, "vendor",
				  d.vendor, "description", d.description);
		json_t *steps = json_object();

		add_place(t, device, d.pci);
		json_array_foreach((json_t *)nics, i, nic)
		{
			int far = steps_between(t, d.pci, text_of(nic, "pci"));

			if (far >= 0)
				json_object_set_new(steps, text_of(nic, "name"),
						    json_integer(far));
		}
		if (json_object_size(steps) > 0)
			json_object_set(device, "steps_to_nic", steps);
		json_decref(steps);
		json_array_append_new(devices, device);
	}
}

json_t *machine_numa(hwloc_topology_t t)
{
	json_t *list = json_array();
	hwloc_obj_t node = NULL;

	while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE,
						  node))) {
		char cpus[256];

		hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), node->cpuset);
		json_array_append_new(
			list,
			json_pack("{s:i, s:I, s:s}", "node",
				  (int)node->os_index, "bytes",
				  (json_int_t)node->attr->numanode.local_memory,
				  "cpus", cpus));
	}
	return list;
}

/* The distances as the firmware tells them: 10 is near. */
static json_t *describe_distances(hwloc_topology_t t)
{
	struct hwloc_distances_s *d;
	json_t *rows = json_array();
	unsigned n = 1;

	if (hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &n, &d, 0, 0) <
		    0 ||
	    n == 0)
		return rows;
	for (unsigned i = 0; i < d->nbobjs; i++) {
		json_t *row = json_array();

		for (unsigned k = 0; k < d->nbobjs; k++)
			json_array_append_new(
				row,
				json_integer(
					(json_int_t)
						d->values[i * d->nbobjs + k]));
		json_array_append_new(rows, row);
	}
	hwloc_distances_release(t, d);
	return rows;
}

/* Returns the rate of the network that carries data: of all RDMA ports
 * together, or else of the fastest network device. Returns 0 if it is
 * unknown. */
static double rate_of(const json_t *nics)
{
	double rdma = 0, network = 0;
	json_t *nic;
	size_t i;

	json_array_foreach((json_t *)nics, i, nic)
	{
		double rate =
			json_number_value(json_object_get(nic, "gbit_per_s"));

		if (strcmp(text_of(nic, "kind"), "rdma") == 0)
			rdma += rate;
		else if (rate > network)
			network = rate;
	}
	return rdma > 0 ? rdma : network;
}

/* The name of this host in UTF-8: other bytes become \xNN, and a backslash
 * \x5c, as src/topo/cluster.c reads them. */
static json_t *name_of_host(void)
{
	char host[256] = "", text[4 * 64 + 1], *at = text;
	json_t *plain;

	gethostname(host, sizeof(host) - 1);
	host[63] = '\0';
	plain = json_string(host);
	if (plain && !strchr(host, '\\'))
		return plain;
	json_decref(plain);
	for (const char *c = host; *c; c++)
		if (*c & 0x80 || *c == '\\')
			at += sprintf(at, "\\x%02x", (unsigned char)*c);
		else
			*at++ = *c;
	*at = '\0';
	return json_string(text);
}

static json_t *describe(hwloc_topology_t t)
{
	json_t *nics = json_array(), *devices = json_array(), *node;
	double rate;

	add_nics(t, nics, "infiniband");
	add_nics(t, nics, "net");
	add_devices(t, devices, nics);
	rate = rate_of(nics);
	node = json_pack("{s:o}", "name", name_of_host());
	if (rate > 0)
		json_object_set_new(node, "gbit_per_s", json_real(rate));
	json_object_set_new(node, "machine",
			    json_pack("{s:o, s:o, s:o, s:o}", "numa",
				      machine_numa(t), "numa_distances",
				      describe_distances(t), "nics", nics,
				      "devices", devices));
	return json_pack("{s:[o]}", "nodes", node);
}

json_t *machine_describe(void)
{
	hwloc_topology_t t;
	json_t *root = NULL;

	if (hwloc_topology_init(&t) < 0) {
		fprintf(stderr, "dicomm-info: hwloc: %s\n", strerror(errno));
		return NULL;
	}
	/* sysfs is enough. hwloc's component "pci" would keep the names of all
	 * vendors. */
	hwloc_topology_set_components(
		t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
	if (hwloc_topology_load(t) < 0)
		fprintf(stderr, "dicomm-info: hwloc: %s\n", strerror(errno));
	else
		root = describe(t);
	hwloc_topology_destroy(t);
	return root;
}

/* ---- Graphviz ---- */

static void put_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

/* Draws an edge to the NUMA node of the part, or to the machine. */
static void put_edge(FILE *out, const json_t *part)
{
	const json_t *numa = json_object_get(part, "numa");
	double rate = json_number_value(json_object_get(part, "gbit_per_s"));

	fprintf(out, "\t");
	put_quoted(out, text_of(part, "name"));
	if (numa)
		fprintf(out, " -- numa%d", (int)json_integer_value(numa));
	else
		fprintf(out, " -- machine");
	if (rate > 0)
		fprintf(out, " [label=\"%g Gbit/s\"]", rate);
	fprintf(out, ";\n");
}

static void put_parts(FILE *out, const json_t *parts, const char *shape)
{
	json_t *part;
	size_t i;

	json_array_foreach((json_t *)parts, i, part)
	{
		fprintf(out, "\t");
		put_quoted(out, text_of(part, "name"));
		fprintf(out, " [shape=%s];\n", shape);
		put_edge(out, part);
	}
}

void machine_dot(const json_t *description, FILE *out)
{
	const json_t *node =
		json_array_get(json_object_get(description, "nodes"), 0);
	const json_t *machine = json_object_get(node, "machine");
	json_t *numa;
	size_t i;

	fprintf(out, "graph {\n\tmachine [shape=house, label=");
	put_quoted(out, text_of(node, "name"));
	fprintf(out, "];\n");
	json_array_foreach(json_object_get(machine, "numa"), i, numa)
	{
		int n = (int)json_integer_value(json_object_get(numa, "node"));

		fprintf(out,
			"\tnuma%d [shape=box, label=\"NUMA node %d\\ncpus "
			"%s\"];\n\tmachine -- numa%d;\n",
			n, n, text_of(numa, "cpus"), n);
	}
	put_parts(out, json_object_get(machine, "nics"), "ellipse");
	put_parts(out, json_object_get(machine, "devices"), "component");
	fprintf(out, "}\n");
}
