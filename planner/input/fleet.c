/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the devices and links to plan for. */
#include "planner/input/fleet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/input/input.h"

#define GIB 1073741824.0

static void read_type(struct input *in, const char *name, json_t *object,
		      struct fleet_type *t)
{
	static const char *const keys[] = {"tflops",
					   "memory_gib",
					   "efficiency",
					   "reserved_gib",
					   "memory_gbyte_per_s",
					   "vendor",
					   "price",
					   "watts",
					   "remark",
					   NULL};
	char at[INPUT_PATH], path[INPUT_PATH];

	snprintf(at, sizeof(at), "devices.%.*s", INPUT_PATH - 16, name);
	if (!json_is_object(object)) {
		input_wrong(in, at, object, "an object");
		return;
	}
	input_keys(in, object, at, keys);
	if (strlen(name) >= sizeof(t->name))
		input_wrong(in, at, NULL, "a name of at most %zu letters",
			    sizeof(t->name) - 1);
	snprintf(t->name, sizeof(t->name), "%s", name);
	snprintf(t->vendor, sizeof(t->vendor), "%s",
		 input_text(in, object, at, "vendor", ""));
	t->flops =
		1e12 * input_number(in, object, at, "tflops", 1e-6, 1e6, NAN);
	t->efficiency =
		input_number(in, object, at, "efficiency", 1e-3, 1, 0.45);
	t->memory = GIB *
		    input_number(in, object, at, "memory_gib", 1e-3, 1e5, NAN);
	t->reserved =
		GIB * input_number(in, object, at, "reserved_gib", 0, 1e4, 1);
	t->memory_per_s =
		1e9 * input_number(in, object, at, "memory_gbyte_per_s", 0.1,
				   1e6, 1000);
	t->price = json_object_get(object, "price")
			   ? input_number(in, object, at, "price", 0, 1e9, NAN)
			   : NAN;
	t->watts = json_object_get(object, "watts")
			   ? input_number(in, object, at, "watts", 0, 1e6, NAN)
			   : NAN;
	input_join(path, at, "memory_gib");
	if (t->reserved >= t->memory)
		input_wrong(in, path, json_object_get(object, "memory_gib"),
			    "more than its reserved_gib, %g",
			    t->reserved / GIB);
}

static bool read_types(struct fleet *f, struct input *in)
{
	json_t *types = input_object(in, in->root, NULL, "devices"), *object;
	const char *name;

	f->type = calloc(json_object_size(types) + 1, sizeof(*f->type));
	if (!f->type || !types)
		return false;
	json_object_foreach(types, name, object)
		read_type(in, name, object, &f->type[f->types++]);
	return !in->bad;
}

static int find_type(const struct fleet *f, struct input *in, uint32_t entry)
{
	json_t *node =
		json_array_get(json_object_get(in->root, "nodes"), entry);
	json_t *v = json_object_get(node, "device");
	const char *name = json_string_value(v);
	char at[INPUT_PATH];

	for (int i = 0; name && i < f->types; i++)
		if (!strcmp(f->type[i].name, name))
			return i;
	snprintf(at, sizeof(at), "nodes[%u].device", entry);
	input_wrong(in, at, v, "one of devices");
	return -1;
}

static int find_kind(struct fleet *f, int type, const struct cluster_nodes *n)
{
	for (int i = 0; i < f->kinds; i++)
		if (f->kind[i].type == type && f->kind[i].ranks == n->ranks &&
		    !memcmp(&f->kind[i].class, &n->class, sizeof(n->class)))
			return i;
	f->kind[f->kinds] = (struct fleet_kind){
		.type = type, .ranks = n->ranks, .class = n->class};
	return f->kinds++;
}

/* A boundary between two nodes must have a rate, or its time would be 0. */
static void check_links(const struct fleet *f, struct input *in, uint32_t i)
{
	const struct cluster_nodes *n = &f->cluster->nodes[i];
	char at[INPUT_PATH];

	snprintf(at, sizeof(at), "nodes[%u].gbit_per_s", i);
	if (f->cluster->total_nodes > 1 && !n->class.nic.up && !n->class.rank)
		input_wrong(in, at, NULL,
			    "the rate of its link to other nodes");
	snprintf(at, sizeof(at), "nodes[%u].inside_gbit_per_s", i);
	if (n->ranks > 1 && !n->class.inside)
		input_wrong(in, at, NULL,
			    "the rate between two devices of the node");
}

static bool read_nodes(struct fleet *f, struct input *in)
{
	const struct cluster *c = f->cluster;
	uint32_t node = 0, rank = 0;

	f->kind = calloc(c->entries, sizeof(*f->kind));
	f->kind_of = calloc(c->total_nodes, sizeof(*f->kind_of));
	f->first = calloc(c->total_nodes, sizeof(*f->first));
	f->off = calloc(c->total_ranks, sizeof(*f->off));
	if (!f->kind || !f->kind_of || !f->first || !f->off)
		return false;
	for (uint32_t i = 0; i < c->entries && !in->bad; i++) {
		int type = find_type(f, in, i), kind;

		check_links(f, in, i);
		if (in->bad)
			break;
		kind = find_kind(f, type, &c->nodes[i]);
		f->kind[kind].nodes += c->nodes[i].count;
		for (uint32_t k = 0; k < c->nodes[i].count; k++) {
			f->kind_of[node] = kind;
			f->first[node++] = rank;
			rank += c->nodes[i].ranks;
		}
	}
	f->ranks = c->total_ranks;
	f->nodes = c->total_nodes;
	return !in->bad;
}

/* A catalogue may describe devices that this cluster has none of: nobody else
 * needs to know of them. */
static void forget_unused(struct fleet *f)
{
	int n = 0;

	for (int t = 0; t < f->types; t++) {
		bool used = false;

		for (int k = 0; k < f->kinds; k++)
			used |= f->kind[k].type == t;
		if (!used)
			continue;
		for (int k = 0; k < f->kinds; k++)
			if (f->kind[k].type == t)
				f->kind[k].type = n;
		f->type[n++] = f->type[t];
	}
	f->types = n;
}

bool fleet_open(struct fleet *f, const char *file)
{
	struct input in;
	bool good;

	memset(f, 0, sizeof(*f));
	if (!input_open(&in, file))
		return false;
	f->file = strdup(file);
	/* The library reports on its own what is wrong with nodes and links. */
	good = f->file && cluster_read(file, &f->cluster) == DICOMM_SUCCESS &&
	       read_types(f, &in) && read_nodes(f, &in) &&
	       cluster_plan(f->cluster, 0, &f->links) == DICOMM_SUCCESS;
	input_close(&in);
	if (good)
		forget_unused(f);
	else
		fleet_close(f);
	return good;
}

uint32_t fleet_usable(const struct fleet *f, uint32_t node, uint32_t rank)
{
	uint32_t end = f->first[node] + f->kind[f->kind_of[node]].ranks, n = 0;

	while (rank >= f->first[node] && rank + n < end && !f->off[rank + n])
		n++;
	return n;
}

const char *fleet_host(const struct fleet *f, uint32_t node)
{
	uint32_t entry = 0, end = f->cluster->nodes[0].count;

	while (node >= end)
		end += f->cluster->nodes[++entry].count;
	return f->cluster->nodes[entry].name;
}

void fleet_close(struct fleet *f)
{
	free(f->file);
	cluster_free(f->cluster);
	links_free(f->links);
	free(f->type);
	free(f->kind);
	free(f->kind_of);
	free(f->first);
	free(f->off);
	memset(f, 0, sizeof(*f));
}
