/* SPDX-License-Identifier: BSD-3-Clause */
/* The gnuplot script has a curve for each type, operator and root. */
#include "perftest/report/plot.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "perftest/base/gnuplot.h"

static struct {
	struct report_row *rows;
	size_t n, room;
} kept;

void plot_row(const struct report_row *row)
{
	if (kept.n == kept.room) {
		size_t room = 2 * kept.room + 64;
		struct report_row *more =
			realloc(kept.rows, room * sizeof(*more));

		/* A picture without this row is better than no table. */
		if (!more)
			return;
		kept.rows = more;
		kept.room = room;
	}
	kept.rows[kept.n++] = *row;
}

static bool same_series(const struct report_row *a, const struct report_row *b)
{
	return strcmp(a->type, b->type) == 0 &&
	       strcmp(a->reduction, b->reduction) == 0 && a->root == b->root;
}

/* With one rank there is no bus bandwidth, and a logarithmic axis has no
 * zero. */
static bool has_bus(void)
{
	for (size_t i = 0; i < kept.n; i++)
		if (kept.rows[i].size > 0 &&
		    kept.rows[i].out_of_place.bus_gbs > 0)
			return true;
	return false;
}

static double bandwidth(const struct report_half *h)
{
	return has_bus() ? h->bus_gbs : h->algorithm_gbs;
}

/* Writes the rows of each series as a data block: $S0, $S1, ... first[] gets
 * the row where each block starts. Returns the number of blocks. Zero bytes are
 * left out, because the axis is logarithmic. */
static size_t write_data(FILE *out, size_t *first)
{
	size_t series = 0;

	for (size_t i = 0; i < kept.n; i++) {
		bool seen = false;

		for (size_t s = 0; s < series; s++)
			seen |= same_series(&kept.rows[first[s]],
					    &kept.rows[i]);
		if (seen)
			continue;
		first[series] = i;
		fprintf(out, "$S%zu << EOD\n", series++);
		for (size_t k = i; k < kept.n; k++) {
			const struct report_row *r = &kept.rows[k];

			if (same_series(r, &kept.rows[i]) && r->size > 0)
				fprintf(out, "%zu %g %g %g %g\n", r->size,
					r->out_of_place.time_us,
					r->in_place.time_us,
					bandwidth(&r->out_of_place),
					bandwidth(&r->in_place));
		}
		fprintf(out, "EOD\n");
	}
	return series;
}

/* Names a curve: "float sum", and the root if every rank was root in turn. */
static void name_curve(const struct options *o, const struct report_row *r,
		       bool in_place, char *name, size_t len)
{
	char root[24] = "";

	if (o->op->rooted && o->root < 0)
		snprintf(root, sizeof(root), " root %d", r->root);
	snprintf(name, len, "%s %s%s%s", r->type,
		 strcmp(r->reduction, "none") == 0 ? "" : r->reduction, root,
		 in_place ? " in place" : "");
}

static void write_curves(FILE *out, const struct options *o,
			 const size_t *first, size_t series, int column)
{
	for (size_t s = 0; s < series; s++) {
		const struct report_row *r = &kept.rows[first[s]];
		char name[64];

		for (int half = 0; half < (r->in_place.missing ? 1 : 2);
		     half++) {
			name_curve(o, r, half, name, sizeof(name));
			fprintf(out,
				"%s$S%zu using 1:%d with linespoints pt %d "
				"lc %zu dt %d title ",
				s + (size_t)half > 0 ? ", " : "plot ", s,
				column + half, half ? 6 : 7, s + 1, half + 1);
			gnuplot_quote(out, name);
		}
	}
	fputc('\n', out);
}

/* With one size there is no range to draw, and gnuplot would complain. */
static void write_range(FILE *out)
{
	size_t least = SIZE_MAX, most = 0;

	for (size_t i = 0; i < kept.n; i++) {
		size_t size = kept.rows[i].size;

		least = size && size < least ? size : least;
		most = size > most ? size : most;
	}
	if (least == most)
		fprintf(out, "set xrange [%zu/2.0:%zu*2.0]\n", most, most);
}

void plot_script(FILE *out, const struct options *o, int ranks,
		 const char *path)
{
	size_t *first = calloc(kept.n + 1, sizeof(*first));
	char title[128];
	size_t series;

	if (!first)
		return;
	gnuplot_head(out, path, 1200, 500);
	series = write_data(out, first);
	snprintf(title, sizeof(title), "%s, %d ranks", o->op->name, ranks);
	fprintf(out, "set multiplot layout 1,2 title ");
	gnuplot_quote(out, title);
	fprintf(out,
		" noenhanced\n"
		"set logscale x 2\nset logscale y 10\n"
		"set format x '%%.0b%%BB'\nset xtics rotate by -45\n"
		"set format y '%%g'\n"
		"set key top left\nset grid\n"
		"set xlabel 'size'\n"
		"set ylabel '%s bandwidth (GB/s)'\n",
		has_bus() ? "bus" : "algorithm");
	write_range(out);
	write_curves(out, o, first, series, 4);
	fprintf(out, "set ylabel 'time (us)'\n");
	write_curves(out, o, first, series, 2);
	fprintf(out, "unset multiplot\n");
	free(first);
}

struct picture {
	const struct options *o;
	int ranks;
};

static void write_picture(FILE *out, void *ctx)
{
	const struct picture *p = ctx;

	plot_script(out, p->o, p->ranks, p->o->plot);
}

static bool has_sizes(void)
{
	for (size_t i = 0; i < kept.n; i++)
		if (kept.rows[i].size > 0)
			return true;
	return false;
}

int plot_draw(const struct options *o, int ranks, char *error, size_t len)
{
	int status = -1;

	if (has_sizes())
		status = gnuplot_draw(o->plot, write_picture,
				      &(struct picture){o, ranks}, error, len);
	else
		snprintf(error, len, "plot %s: no row has bytes to draw over",
			 o->plot);
	free(kept.rows);
	kept.rows = NULL;
	kept.n = kept.room = 0;
	return status;
}
