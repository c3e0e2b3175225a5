/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds islands from rates; writes the tables, the file and the picture. */
#include "perftest/links/network.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/base/gnuplot.h"

/* If a flow gets less than this fraction of the expected rate, something else
 * limits it. */
#define NARROW 0.65
/* If the links of hosts explain this fraction of the measured time, their
 * island has no narrower link of its own. */
#define WIDE 0.9

bool network_create(struct network *n, int hosts)
{
	size_t h = (size_t)hosts;

	*n = (struct network){.hosts = hosts};
	n->latency = calloc(3 * h * h + 5 * h, sizeof(double));
	n->ranks = calloc(2 * h, sizeof(int));
	n->name = calloc(h, sizeof(*n->name));
	if (!n->latency || !n->ranks || !n->name) {
		network_destroy(n);
		return false;
	}
	n->alone = n->latency + h * h;
	n->together = n->alone + h * h;
	n->up = n->together + h * h;
	n->down = n->up + h;
	n->inside = n->down + h;
	n->island_up = n->inside + h;
	n->island_down = n->island_up + h;
	n->island = n->ranks + h;
	return true;
}

void network_destroy(struct network *n)
{
	free(n->latency);
	free(n->ranks);
	free(n->name);
	*n = (struct network){.hosts = 0};
}

/* ---- islands ---- */

static double rate(const struct network *n, const double *matrix, int from,
		   int to)
{
	return matrix[(size_t)from * (size_t)n->hosts + (size_t)to];
}

/* Returns the rate of a flow if only the links of both hosts limited it. */
static double expected(const struct network *n, int from, int to)
{
	double out = 0, in = 0;

	for (int k = 0; k < n->hosts; k++) {
		if (k != from && rate(n, n->alone, from, k) > out)
			out = rate(n, n->alone, from, k);
		if (k != to && rate(n, n->alone, k, to) > in)
			in = rate(n, n->alone, k, to);
	}
	return out < in ? out : in;
}

static bool is_free(const struct network *n, int from, int to)
{
	double alone = rate(n, n->alone, from, to);

	return alone >= NARROW * expected(n, from, to) &&
	       rate(n, n->together, from, to) >= NARROW * alone;
}

static bool fits(const struct network *n, int host, int island)
{
	for (int k = 0; k < host; k++)
		if (n->island[k] == island &&
		    (!is_free(n, host, k) || !is_free(n, k, host)))
			return false;
	return true;
}

void network_find_islands(struct network *n)
{
	n->islands = 0;
	for (int h = 0; h < n->hosts; h++) {
		int i = 0;

		while (i < n->islands && !fits(n, h, i))
			i++;
		n->island[h] = i;
		if (i == n->islands)
			n->islands++;
	}
}

bool network_is_wide(double seconds, double ways_seconds)
{
	return seconds * WIDE <= ways_seconds;
}

void network_drop_islands(struct network *n)
{
	for (int i = 0; i < n->islands; i++)
		if (n->island_up[i] > 0 || n->island_down[i] > 0)
			return;
	n->islands = 1;
	memset(n->island, 0, (size_t)n->hosts * sizeof(*n->island));
}

/* ---- tables ---- */

/* Names often differ in their last characters only, so columns are as wide as
 * the longest one. */
static int widest(const struct network *n, int least)
{
	for (int h = 0; h < n->hosts; h++)
		if ((int)strlen(n->name[h]) > least)
			least = (int)strlen(n->name[h]);
	return least;
}

static void print_matrix(const struct network *n, const char *title,
			 const double *matrix, double scale)
{
	int first = widest(n, 12), width = widest(n, 10);

	printf("# %s, from row to column\n%-*s", title, first, "#");
	for (int to = 0; to < n->hosts; to++)
		printf(" %*s", width, n->name[to]);
	printf("\n");
	for (int from = 0; from < n->hosts; from++) {
		printf("%-*s", first, n->name[from]);
		for (int to = 0; to < n->hosts; to++) {
			if (from == to)
				printf(" %*s", width, "-");
			else
				printf(" %*.4g", width,
				       rate(n, matrix, from, to) * scale);
		}
		printf("\n");
	}
}

static double gbit(double bytes_per_s)
{
	return bytes_per_s * 8e-9;
}

/* Prints a rate, or "-" if there is none: inside a host with one rank, and out
 * of an island that is no narrower than the links of its hosts. */
static void print_rate(double bytes_per_s)
{
	if (bytes_per_s > 0)
		printf(" %10.4g", gbit(bytes_per_s));
	else
		printf(" %10s", "-");
}

void network_print(const struct network *n)
{
	int first = widest(n, 12);

	print_matrix(n, "latency (us)", n->latency, 1e6);
	print_matrix(n, "alone (Gbit/s)", n->alone, 8e-9);
	print_matrix(n, "all busy (Gbit/s)", n->together, 8e-9);
	if (n->islands == 0)
		return;
	printf("# hosts (Gbit/s)\n%-*s %10s %10s %10s %6s %6s\n", first, "#",
	       "up", "down", "inside", "ranks", "island");
	for (int h = 0; h < n->hosts; h++) {
		printf("%-*s", first, n->name[h]);
		print_rate(n->up[h]);
		print_rate(n->down[h]);
		print_rate(n->inside[h]);
		printf(" %6d %6d\n", n->ranks[h], n->island[h]);
	}
	if (n->islands < 2)
		return;
	printf("# islands (Gbit/s)\n%-12s %10s %10s\n", "#", "up", "down");
	for (int i = 0; i < n->islands; i++) {
		printf("%-12d", i);
		print_rate(n->island_up[i]);
		print_rate(n->island_down[i]);
		printf("\n");
	}
}

/* ---- the file ---- */

/* Four digits are more than a measurement is exact to. */
static json_t *number(double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.4g", value);
	return json_real(atof(text));
}

static void set_number(json_t *object, const char *key, double value)
{
	if (value > 0)
		json_object_set_new(object, key, number(value));
}

static void set_ways(json_t *object, double up, double down)
{
	set_number(object, "up_gbit_per_s", gbit(up));
	set_number(object, "down_gbit_per_s", gbit(down));
}

static void name_island(const struct network *n, int island, json_t *object,
			const char *key)
{
	char text[32];

	if (n->islands < 2)
		return;
	snprintf(text, sizeof(text), "island%d", island);
	json_object_set_new(object, key, json_string(text));
}

/* Returns the latency to the most distant host. */
static double latency(const struct network *n, int host)
{
	double most = 0;

	for (int k = 0; k < n->hosts; k++)
		if (k != host && rate(n, n->latency, host, k) > most)
			most = rate(n, n->latency, host, k);
	return most;
}

static void set_matrix(const struct network *n, json_t *object, const char *key,
		       const double *matrix, double scale)
{
	json_t *rows = json_array();

	for (int from = 0; from < n->hosts; from++) {
		json_t *row = json_array();

		for (int to = 0; to < n->hosts; to++)
			json_array_append_new(
				row,
				from == to ? json_null()
					   : number(rate(n, matrix, from, to) *
						    scale));
		json_array_append_new(rows, row);
	}
	json_object_set_new(object, key, rows);
}

/* Adds the measured rates, for readers who want to know where the rates of
 * links come from. */
static json_t *measured(const struct network *n)
{
	json_t *all = json_object();

	set_matrix(n, all, "latency_us", n->latency, 1e6);
	set_matrix(n, all, "gbit_per_s", n->alone, 8e-9);
	set_matrix(n, all, "together_gbit_per_s", n->together, 8e-9);
	return all;
}

/* Returns true if all names differ. Otherwise the file relies on the order of
 * nodes. */
static bool has_own_names(const struct network *n)
{
	for (int h = 0; h < n->hosts; h++)
		for (int k = 0; k < h; k++)
			if (!strcmp(n->name[h], n->name[k]))
				return false;
	return true;
}

int network_save(const struct network *n, const char *path)
{
	json_t *root = json_object(), *nodes = json_array();
	json_t *islands = json_array();
	bool named = has_own_names(n);
	int status;

	for (int h = 0; h < n->hosts; h++) {
		json_t *node = json_object();

		if (named)
			json_object_set_new(node, "name",
					    json_string(n->name[h]));
		json_object_set_new(node, "ranks", json_integer(n->ranks[h]));
		set_ways(node, n->up[h], n->down[h]);
		set_number(node, "inside_gbit_per_s", gbit(n->inside[h]));
		set_number(node, "latency_us", latency(n, h) * 1e6);
		name_island(n, n->island[h], node, "island");
		json_array_append_new(nodes, node);
	}
	json_object_set_new(root, "nodes", nodes);
	for (int i = 0; n->islands > 1 && i < n->islands; i++) {
		json_t *island = json_object();

		name_island(n, i, island, "name");
		set_ways(island, n->island_up[i], n->island_down[i]);
		json_array_append_new(islands, island);
	}
	if (n->islands > 1)
		json_object_set(root, "islands", islands);
	json_decref(islands);
	json_object_set_new(root, "measured", measured(n));
	status = json_dump_file(root, path,
				JSON_INDENT(1) | JSON_PRESERVE_ORDER |
					JSON_REAL_PRECISION(5));
	json_decref(root);
	return status;
}

/* ---- the picture ---- */

static void write_matrix(const struct network *n, FILE *out, const char *block,
			 const double *matrix)
{
	fprintf(out, "%s << EOD\n", block);
	for (int from = 0; from < n->hosts; from++) {
		for (int to = 0; to < n->hosts; to++) {
			fprintf(out, "%.4g ", gbit(rate(n, matrix, from, to)));
		}
		fprintf(out, "\n");
	}
	fprintf(out, "EOD\n");
}

static void write_names(const struct network *n, FILE *out, const char *axis)
{
	fprintf(out, "set %s (", axis);
	for (int h = 0; h < n->hosts; h++) {
		fprintf(out, "%s", h ? ", " : "");
		gnuplot_quote(out, n->name[h]);
		fprintf(out, " %d", h);
	}
	fprintf(out, ") noenhanced\n");
}

static void write_map(FILE *out, const char *title, const char *block)
{
	fprintf(out, "set title '%s'\nplot %s matrix with image notitle", title,
		block);
	fprintf(out,
		", %s matrix using 1:2:($1 == $2 ? '' : sprintf('%%.3g', $3)) "
		"with labels notitle\n",
		block);
}

void network_script(const struct network *n, FILE *out, const char *path)
{
	gnuplot_head(out, path, 1200, 560);
	write_matrix(n, out, "$ALONE", n->alone);
	write_matrix(n, out, "$TOGETHER", n->together);
	write_names(n, out, "xtics");
	write_names(n, out, "ytics");
	fprintf(out,
		"set multiplot layout 1,2 title 'links between %d hosts "
		"(Gbit/s)'\n"
		"set xlabel 'to'\nset ylabel 'from'\n"
		"set xrange [-0.5:%d.5]\nset yrange [%d.5:-0.5]\n"
		"set cbrange [0:*]\n"
		"set palette defined (0 '#f7fbff', 1 '#4292c6')\n",
		n->hosts, n->hosts - 1, n->hosts - 1);
	write_map(out, "alone", "$ALONE");
	write_map(out, "all busy", "$TOGETHER");
	fprintf(out, "unset multiplot\n");
}
