/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads descriptions of clusters, and makes links from them. */
#include "src/topo/cluster.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/descriptors.h"
#include "src/base/fp_state.h"
#include "src/base/hash.h"
#include "src/base/log.h"

#define NODES_MOST 65536
#define RANKS_MOST 1024 /* of a node */
#define ENTRIES_MOST 4096
/* In bytes. Has room for what was measured between some hundred hosts. */
#define FILE_MOST (1 << 24)

/* ---- one value ---- */

struct reader {
	const char *path;
	json_t *root;
	struct cluster *c;
	json_t *islands; /* array, or NULL */
};

static dicomm_result_t wrong(const struct reader *r, const char *array,
			     size_t i, const char *key, const char *wanted)
{
	return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
		    "topology file %s: %s[%zu]: %s: wanted %s", r->path, array,
		    i, key, wanted);
}

/* Read a number. If it is missing, *out does not change. */
static dicomm_result_t read_scaled(const struct reader *r, const char *array,
				   size_t i, const char *key, double scale,
				   uint64_t *out)
{
	json_t *v = json_object_get(
		json_array_get(json_object_get(r->root, array), i), key);
	double x;

	if (!v)
		return DICOMM_SUCCESS;
	x = json_is_number(v) ? json_number_value(v) : -1;
	if (!(x > 0 && x <= 1e6))
		return wrong(r, array, i, key, "a number above 0, up to 1e6");
	x = floor(x * scale + 0.5);
	*out = x < 1 ? 1 : (uint64_t)x;
	return DICOMM_SUCCESS;
}

static dicomm_result_t read_count(const struct reader *r, size_t i,
				  const char *key, uint32_t most, uint32_t *out)
{
	json_t *v = json_object_get(
		json_array_get(json_object_get(r->root, "nodes"), i), key);
	char wanted[48];

	*out = 1;
	if (!v)
		return DICOMM_SUCCESS;
	snprintf(wanted, sizeof(wanted), "a whole number from 1 to %u", most);
	if (!json_is_integer(v) || json_integer_value(v) < 1 ||
	    json_integer_value(v) > most)
		return wrong(r, "nodes", i, key, wanted);
	*out = (uint32_t)json_integer_value(v);
	return DICOMM_SUCCESS;
}

/* Read "gbit_per_s" for both directions, or one key for each direction. */
static dicomm_result_t read_pipe(const struct reader *r, const char *array,
				 size_t i, struct links_pipe *pipe)
{
	TRY(read_scaled(r, array, i, "gbit_per_s", 1e9 / 8, &pipe->up));
	pipe->down = pipe->up;
	TRY(read_scaled(r, array, i, "up_gbit_per_s", 1e9 / 8, &pipe->up));
	return read_scaled(r, array, i, "down_gbit_per_s", 1e9 / 8,
			   &pipe->down);
}

/* Refuse unknown keys: a misspelt key would be a rate that is missing. */
static dicomm_result_t check_keys(const struct reader *r, json_t *object,
				  const char *array, size_t i,
				  const char *const *known)
{
	const char *key;
	json_t *value;
	char text[320] = "one of", where[64];
	size_t n = strlen(text);

	if (!json_is_object(object))
		return wrong(r, array, i, "all of it", "an object");
	for (size_t k = 0; known[k]; k++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %s",
				      k ? "," : "", known[k]);
	json_object_foreach(object, key, value)
	{
		bool found = false;

		for (size_t k = 0; known[k]; k++)
			found |= !strcmp(key, known[k]);
		snprintf(where, sizeof(where), "key %.40s", key);
		if (!found)
			return wrong(r, array, i, where, text);
	}
	return DICOMM_SUCCESS;
}

static const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* Read a string; *out is "" if it is missing. */
static dicomm_result_t read_text(const struct reader *r, const char *array,
				 size_t i, json_t *object, const char *key,
				 const char **out)
{
	json_t *v = json_object_get(object, key);

	if (v && !json_is_string(v))
		return wrong(r, array, i, key, "a string");
	*out = text_of(object, key);
	return DICOMM_SUCCESS;
}

/* ---- the parts ---- */

/* Island 0 holds the nodes that name none. */
static bool find_island(const struct reader *r, const char *name, uint32_t *out)
{
	*out = 0;
	if (!*name)
		return true;
	for (size_t i = 0; i < json_array_size(r->islands); i++) {
		if (!strcmp(text_of(json_array_get(r->islands, i), "name"),
			    name)) {
			*out = (uint32_t)i + 1;
			return true;
		}
	}
	return false;
}

static dicomm_result_t read_island(const struct reader *r, size_t i)
{
	static const char *const keys[] = {
		"name", "gbit_per_s", "up_gbit_per_s", "down_gbit_per_s", NULL};
	json_t *object = json_array_get(r->islands, i);
	const char *name;
	uint32_t at;

	TRY(check_keys(r, object, "islands", i, keys));
	name = text_of(object, "name");
	if (!*name || !find_island(r, name, &at) || at != i + 1)
		return wrong(r, "islands", i, "name", "a name of its own");
	return read_pipe(r, "islands", i, &r->c->island[i + 1]);
}

/* "\xNN" in the name of a host is the byte that JSON has no text for; see
 * dicomm-info --topo. Returns false if there is no room. */
static bool take_name(const char *text, char *name, size_t len)
{
	unsigned byte;
	size_t n = 0;

	while (*text && n + 1 < len) {
		if (sscanf(text, "\\x%2x", &byte) == 1 && byte &&
		    strspn(text + 2, "0123456789abcdef") >= 2) {
			name[n++] = (char)byte;
			text += 4;
		} else {
			name[n++] = *text++;
		}
	}
	name[n] = '\0';
	return !*text;
}

static dicomm_result_t read_nodes(const struct reader *r, size_t i)
{
	static const char *const keys[] = {"name",
					   "count",
					   "ranks",
					   "island",
					   "gbit_per_s",
					   "up_gbit_per_s",
					   "down_gbit_per_s",
					   "inside_gbit_per_s",
					   "rank_gbit_per_s",
					   "reduce_gbyte_per_s",
					   "latency_us",
					   "device",
					   "machine",
					   NULL};
	json_t *object = json_array_get(json_object_get(r->root, "nodes"), i);
	struct cluster_nodes *n = &r->c->nodes[i];
	const char *name, *island;

	TRY(check_keys(r, object, "nodes", i, keys));
	TRY(read_count(r, i, "count", NODES_MOST, &n->count));
	TRY(read_count(r, i, "ranks", RANKS_MOST, &n->ranks));
	TRY(read_text(r, "nodes", i, object, "name", &name));
	TRY(read_text(r, "nodes", i, object, "island", &island));
	if (!take_name(name, n->name, sizeof(n->name)))
		return wrong(r, "nodes", i, "name", "at most 63 characters");
	if (*n->name && n->count > 1)
		return wrong(r, "nodes", i, "count", "1 where it has a name");
	if (!find_island(r, island, &n->island))
		return wrong(r, "nodes", i, "island", "one of islands");
	TRY(read_pipe(r, "nodes", i, &n->class.nic));
	TRY(read_scaled(r, "nodes", i, "inside_gbit_per_s", 1e9 / 8,
			&n->class.inside));
	TRY(read_scaled(r, "nodes", i, "rank_gbit_per_s", 1e9 / 8,
			&n->class.rank));
	TRY(read_scaled(r, "nodes", i, "reduce_gbyte_per_s", 1e9,
			&n->class.reduce));
	TRY(read_scaled(r, "nodes", i, "latency_us", 1e6,
			&n->class.latency_ps));
	r->c->total_nodes += n->count;
	r->c->total_ranks += n->count * n->ranks;
	if (r->c->total_nodes > NODES_MOST || r->c->total_ranks > NODES_MOST)
		return wrong(r, "nodes", i, "count",
			     "no more than 65536 nodes and ranks in all");
	return DICOMM_SUCCESS;
}

/* Either all entries have a name, each another, or none has. */
static dicomm_result_t check_names(const struct reader *r)
{
	const struct cluster_nodes *n = r->c->nodes;

	for (uint32_t i = 1; i < r->c->entries; i++) {
		if (!*n[i].name != !*n[0].name)
			return wrong(r, "nodes", i, "name",
				     "all of nodes with one, or none");
		for (uint32_t k = 0; k < i && *n[i].name; k++)
			if (!strcmp(n[i].name, n[k].name))
				return wrong(r, "nodes", i, "name",
					     "a name of its own");
	}
	return DICOMM_SUCCESS;
}

static dicomm_result_t read_all(struct reader *r)
{
	json_t *nodes = json_object_get(r->root, "nodes");
	struct cluster *c = r->c;

	r->islands = json_object_get(r->root, "islands");
	if (!json_is_array(nodes) || json_array_size(nodes) < 1 ||
	    json_array_size(nodes) > ENTRIES_MOST ||
	    (r->islands && !json_is_array(r->islands)) ||
	    json_array_size(r->islands) > ENTRIES_MOST)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "topology file %s: wanted an object with \"nodes\" "
			    "and maybe \"islands\", arrays of at most %d",
			    r->path, ENTRIES_MOST);
	c->entries = (uint32_t)json_array_size(nodes);
	c->islands = (uint32_t)json_array_size(r->islands) + 1;
	c->nodes = calloc(c->entries, sizeof(*c->nodes));
	c->island = calloc(c->islands, sizeof(*c->island));
	c->text = json_dumps(r->root, JSON_COMPACT | JSON_SORT_KEYS);
	if (!c->nodes || !c->island || !c->text)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "topology file %s: no memory for %u entries",
			    r->path, c->entries);
	c->len = strlen(c->text);
	for (size_t i = 0; i + 1 < c->islands; i++)
		TRY(read_island(r, i));
	for (size_t i = 0; i < c->entries; i++)
		TRY(read_nodes(r, i));
	return check_names(r);
}

/* Not inlined, so that the compiler cannot move computations out of the
 * floating-point state that the caller sets. */
static __attribute__((noinline)) dicomm_result_t
parse(const char *text, size_t len, const char *path, struct cluster **out)
{
	struct reader r = {.path = path};
	json_error_t error;
	dicomm_result_t status;

	r.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	if (!r.root)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "topology file %s: line %d: %s", path, error.line,
			    error.text);
	/* Ranks do not compare it, and do not send it to ranks without a
	 * file. */
	json_object_del(r.root, "measured");
	r.c = calloc(1, sizeof(*r.c));
	if (r.c)
		status = read_all(&r);
	else
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "topology file %s: out of memory", path);
	json_decref(r.root);
	if (status == DICOMM_SUCCESS)
		*out = r.c;
	else
		cluster_free(r.c);
	return status;
}

/* All ranks must get the same numbers from the same text, so a fixed
 * floating-point state is set. */
dicomm_result_t cluster_parse(const char *text, size_t len, const char *path,
			      struct cluster **out)
{
	fp_state was = fp_state_enter();
	dicomm_result_t status = parse(text, len, path, out);

	fp_state_leave(was);
	return status;
}

dicomm_result_t cluster_read(const char *path, struct cluster **out)
{
	char *text = malloc(FILE_MOST + 1);
	FILE *f = NULL;
	dicomm_result_t status;
	size_t n;

	if (!text)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "topology file %s: out of memory", path);
	f = descriptors_fopen(path);
	n = f ? fread(text, 1, FILE_MOST + 1, f) : 0;
	if (!f || ferror(f))
		status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			      "topology file %s: %m", path);
	else if (n > FILE_MOST)
		status = FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			      "topology file %s: longer than %d bytes", path,
			      FILE_MOST);
	else
		status = cluster_parse(text, n, path, out);
	if (f)
		fclose(f);
	free(text);
	return status;
}

void cluster_free(struct cluster *c)
{
	if (!c)
		return;
	free(c->nodes);
	free(c->island);
	free(c->text);
	free(c);
}

uint64_t cluster_hash(const struct cluster *c)
{
	uint64_t h = hash_bytes(HASH_START, c->text, c->len);

	return h ? h : 1;
}

/* ---- links ---- */

/* Begin links whose classes are the entries of the file, and whose islands are
 * those of the file. */
static dicomm_result_t begin_links(const struct cluster *c, uint32_t ranks,
				   uint32_t nodes, struct links **out)
{
	struct links *l = links_create(ranks, nodes, c->entries, c->islands);

	if (!l)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "links: no memory for %u ranks", ranks);
	for (uint32_t i = 0; i < c->entries; i++)
		l->class[i] = c->nodes[i].class;
	memcpy(l->island, c->island, c->islands * sizeof(*l->island));
	*out = l;
	return DICOMM_SUCCESS;
}

/* Returns true if the names are equal, or if the shorter one is the other up to
 * a dot. */
static bool same_host(const char *given, const char *name)
{
	size_t n = strcspn(name, " "), g = strlen(given);

	if (n == g)
		return !strncmp(given, name, n);
	if (n > g)
		return !strncmp(given, name, g) && name[g] == '.';
	return !strncmp(given, name, n) && given[n] == '.';
}

/* Find the entry of exactly that name, otherwise the only one that may mean
 * it. */
static dicomm_result_t find_by_name(const struct cluster *c, const char *path,
				    const char *name, uint32_t *out)
{
	uint32_t found = c->entries;
	int n = (int)strcspn(name, " ");

	for (uint32_t i = 0; i < c->entries; i++) {
		const char *given = c->nodes[i].name;

		if (!strncmp(given, name, (size_t)n) && !given[n]) {
			*out = i;
			return DICOMM_SUCCESS;
		}
	}
	for (uint32_t i = 0; i < c->entries; i++) {
		if (!same_host(c->nodes[i].name, name))
			continue;
		if (found < c->entries)
			return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
				    "topology file %s: is node %.*s the one "
				    "called %s, or %s?",
				    path, n, name, c->nodes[found].name,
				    c->nodes[i].name);
		found = i;
	}
	if (found == c->entries)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "topology file %s: no node is called %.*s", path, n,
			    name);
	*out = found;
	return DICOMM_SUCCESS;
}

static uint32_t find_by_order(const struct cluster *c, uint32_t node)
{
	uint32_t i = 0;

	while (node >= c->nodes[i].count)
		node -= c->nodes[i++].count;
	return i;
}

/* Returns true if all nodes are alike, so that it does not matter which
 * is which. */
static bool is_uniform(const struct cluster *c)
{
	return c->entries == 1 && !*c->nodes[0].name;
}

dicomm_result_t cluster_links(const struct cluster *c, const char *path,
			      uint32_t ranks, const uint32_t *node_of,
			      uint32_t nodes, const char *const *names,
			      struct links **out)
{
	struct links *l;

	if (!*c->nodes[0].name && nodes != c->total_nodes && !is_uniform(c)) {
		*out = NULL;
		return DICOMM_SUCCESS;
	}
	TRY(begin_links(c, ranks, nodes, &l));
	for (uint32_t n = 0; n < nodes; n++) {
		dicomm_result_t status = DICOMM_SUCCESS;
		uint32_t i = 0;

		if (*c->nodes[0].name)
			status = find_by_name(c, path, names[n], &i);
		else if (!is_uniform(c))
			i = find_by_order(c, n);
		if (status != DICOMM_SUCCESS) {
			links_free(l);
			return status;
		}
		l->class_of[n] = i;
		l->island_of[n] = c->nodes[i].island;
	}
	memcpy(l->node_of, node_of, ranks * sizeof(*node_of));
	return links_finish(l, out);
}

dicomm_result_t cluster_plan(const struct cluster *c, uint32_t ranks,
			     struct links **out)
{
	uint32_t nodes = 0, n = 0, r = 0;
	struct links *l;

	if (!ranks)
		ranks = c->total_ranks;
	if (ranks > c->total_ranks)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%u ranks: the cluster has %u", ranks,
			    c->total_ranks);
	for (uint32_t i = 0, left = ranks; i < c->entries; i++) {
		for (uint32_t k = 0; left && k < c->nodes[i].count; k++) {
			left -= left < c->nodes[i].ranks ? left
							 : c->nodes[i].ranks;
			nodes++;
		}
	}
	TRY(begin_links(c, ranks, nodes, &l));
	for (uint32_t i = 0; i < c->entries && n < nodes; i++) {
		for (uint32_t k = 0; k < c->nodes[i].count && n < nodes; k++) {
			l->class_of[n] = i;
			l->island_of[n] = c->nodes[i].island;
			for (uint32_t j = 0; j < c->nodes[i].ranks && r < ranks;
			     j++)
				l->node_of[r++] = n;
			n++;
		}
	}
	return links_finish(l, out);
}
