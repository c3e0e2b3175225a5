/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks the library for the time of each algorithm at each size. */
#include "perftest/links/simulate.h"

#include <math.h>
#include <popt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "perftest/base/failure.h"
#include "perftest/base/gnuplot.h"
#include "perftest/base/size.h"

#define SIZES_MOST 64

struct request {
	const char *operation; /* of argv */
	char *topology, *plot; /* owned */
	int ranks, factor;
	size_t first, last;
};

struct curve {
	const char *name;
	double seconds[SIZES_MOST];
};

struct curves {
	const struct request *r;
	size_t bytes[SIZES_MOST];
	int sizes, algorithms;
	struct curve *of;       /* [algorithms]; owned */
	int chosen[SIZES_MOST]; /* -1: no algorithm can serve it */
};

static int out_of_memory(void)
{
	fprintf(stderr, "dicomm-perf: simulate: out of memory\n");
	return FAILURE_INTERNAL;
}

/* ---- asking the library ---- */

static struct curve *add_curve(struct curves *c)
{
	size_t n = (size_t)c->algorithms + 1;
	struct curve *of = realloc(c->of, n * sizeof(*of));

	if (!of)
		return NULL;
	c->of = of;
	of[n - 1].name = "";
	return &of[n - 1];
}

static int ask(struct curves *c)
{
	const struct request *r = c->r;

	for (;; c->algorithms++) {
		struct curve *curve = add_curve(c);
		dicomm_result_t status;

		if (!curve)
			return out_of_memory();
		status = dicomm_predict(r->topology, r->operation, r->ranks,
					c->algorithms, c->bytes, c->sizes,
					&curve->name, curve->seconds);
		if (status == DICOMM_SUCCESS)
			continue;
		/* This is the end of the list. Any other error may come from a
		 * file that has changed. */
		if (!curve->name && c->algorithms > 0)
			return FAILURE_NONE;
		fprintf(stderr, "dicomm-perf: simulate: %s: %s\n",
			dicomm_get_error_string(status),
			dicomm_get_last_error(NULL));
		return FAILURE_USAGE;
	}
}

/* Chooses as the library does: the first algorithm with the least time. */
static void choose(struct curves *c)
{
	for (int k = 0; k < c->sizes; k++) {
		c->chosen[k] = -1;
		for (int i = 0; i < c->algorithms; i++)
			if (!isnan(c->of[i].seconds[k]) &&
			    (c->chosen[k] < 0 ||
			     c->of[i].seconds[k] <
				     c->of[c->chosen[k]].seconds[k]))
				c->chosen[k] = i;
	}
}

/* ---- printing ---- */

static bool is_ever_possible(const struct curves *c, int i)
{
	for (int k = 0; k < c->sizes; k++)
		if (!isnan(c->of[i].seconds[k]))
			return true;
	return false;
}

static void print(const struct curves *c)
{
	const struct request *r = c->r;

	printf("# dicomm-perf simulate: %s, %d ranks%s%s, predicted us\n",
	       r->operation, r->ranks, r->topology ? " of " : "",
	       r->topology ? r->topology : "");
	printf("#%11s %-18s", "size", "chosen");
	for (int i = 0; i < c->algorithms; i++)
		if (is_ever_possible(c, i))
			printf(" %18s", c->of[i].name);
	printf("\n");
	for (int k = 0; k < c->sizes; k++) {
		printf("%12zu %-18s", c->bytes[k],
		       c->chosen[k] < 0 ? "none" : c->of[c->chosen[k]].name);
		for (int i = 0; i < c->algorithms; i++) {
			if (!is_ever_possible(c, i))
				continue;
			if (isnan(c->of[i].seconds[k]))
				printf(" %18s", "-");
			else
				printf(" %18.2f", c->of[i].seconds[k] * 1e6);
		}
		printf("\n");
	}
}

static void write_data(const struct curves *c, FILE *out)
{
	fprintf(out, "$D << EOD\n");
	for (int k = 0; k < c->sizes; k++) {
		fprintf(out, "%zu %.10g", c->bytes[k],
			c->chosen[k] < 0
				? NAN
				: c->of[c->chosen[k]].seconds[k] * 1e6);
		for (int i = 0; i < c->algorithms; i++)
			fprintf(out, " %.10g", c->of[i].seconds[k] * 1e6);
		fprintf(out, "\n");
	}
	fprintf(out, "EOD\n");
}

static void write_script(FILE *out, void *ctx)
{
	const struct curves *c = ctx;
	char title[128];

	gnuplot_head(out, c->r->plot, 900, 600);
	write_data(c, out);
	snprintf(title, sizeof(title), "%s, %d ranks: predicted",
		 c->r->operation, c->r->ranks);
	fprintf(out, "set title ");
	gnuplot_quote(out, title);
	fprintf(out, " noenhanced\n"
		     "set logscale x 2\nset logscale y 10\n"
		     "set format x '%%.0b%%BB'\nset xtics rotate by -45\n"
		     "set format y '%%g'\nset grid\nset key top left "
		     "noenhanced\nset xlabel 'size'\nset ylabel 'time (us)'\n"
		     "plot $D using 1:2 with lines lw 6 lc '#cccccc' title "
		     "'chosen'");
	for (int i = 0; i < c->algorithms; i++) {
		if (!is_ever_possible(c, i))
			continue;
		fprintf(out, ", $D using 1:%d with linespoints title ", i + 3);
		gnuplot_quote(out, c->of[i].name);
	}
	fprintf(out, "\n");
}

/* ---- the program ---- */

static int run(const struct request *r)
{
	struct curves *c = calloc(1, sizeof(*c));
	char error[512];
	int status;

	if (!c)
		return out_of_memory();
	c->r = r;
	for (size_t b = r->first; b > 0 && c->sizes < SIZES_MOST;
	     b = size_next(b, r->last, (size_t)r->factor, 0, 1))
		c->bytes[c->sizes++] = b;
	status = ask(c);
	if (status == FAILURE_NONE) {
		choose(c);
		print(c);
		if (r->plot && gnuplot_draw(r->plot, write_script, c, error,
					    sizeof(error)) < 0) {
			fprintf(stderr, "dicomm-perf: %s\n", error);
			status = FAILURE_INTERNAL;
		}
	}
	free(c->of);
	free(c);
	return status;
}

static int read_size(const char *what, const char *text, size_t *out)
{
	if (!text)
		return FAILURE_NONE;
	return size_parse(text, out) && *out > 0
		       ? FAILURE_NONE
		       : failure_refuse("simulate", what, text,
					"not a size above 0");
}

static int check(const struct request *r)
{
	struct stat file;
	char text[64];

	if (!r->operation)
		return failure_refuse("simulate", "operation", "",
				      "which one?");
	snprintf(text, sizeof(text), "%d", r->ranks);
	if (r->ranks < 1 || r->ranks > 65536)
		return failure_refuse("simulate", "--ranks", text,
				      "not an integer from 1 to "
				      "65536");
	snprintf(text, sizeof(text), "%d", r->factor);
	if (r->factor < 2)
		return failure_refuse("simulate", "--stepfactor", text,
				      "not an integer from 2");
	snprintf(text, sizeof(text), "%zu > %zu", r->first, r->last);
	if (r->first > r->last)
		return failure_refuse("simulate", "--minbytes, --maxbytes",
				      text, "empty");
	/* The library reads the file once for each algorithm. */
	if (r->topology && stat(r->topology, &file) == 0 &&
	    (S_ISFIFO(file.st_mode) || S_ISCHR(file.st_mode)))
		return failure_refuse("simulate", "--topo", r->topology,
				      "cannot be read several times");
	if (r->plot && !gnuplot_draws(r->plot))
		return failure_refuse("simulate", "--plot", r->plot,
				      "must end in .svg or .png");
	return r->plot && !gnuplot_possible() ? FAILURE_USAGE : FAILURE_NONE;
}

int simulate_main(int argc, char **argv, int child_rank)
{
	struct request r = {.ranks = 0,
			    .factor = 4,
			    .first = 1024,
			    .last = (size_t)1 << 30};
	char *first = NULL, *last = NULL;
	const struct poptOption table[] = {
		{"topo", '\0', POPT_ARG_STRING, &r.topology, 0,
		 "the cluster (that of DICOMM_TOPO_FILE)", "FILE.json"},
		{"ranks", '\0', POPT_ARG_INT, &r.ranks, 0,
		 "so many of its ranks, from the first", "N"},
		{"minbytes", 'b', POPT_ARG_STRING, &first, 0, "first size (1K)",
		 "SIZE"},
		{"maxbytes", 'e', POPT_ARG_STRING, &last, 0, "last size (1G)",
		 "SIZE"},
		{"stepfactor", 'f', POPT_ARG_INT, &r.factor, 0,
		 "factor between sizes (4)", "N"},
		{"plot", '\0', POPT_ARG_STRING, &r.plot, 0,
		 "draw the predicted curves (needs gnuplot)", "FILE.svg"},
		POPT_AUTOHELP POPT_TABLEEND,
	};
	poptContext context =
		poptGetContext(NULL, argc - 2, (const char **)argv + 2, table,
			       POPT_CONTEXT_KEEP_FIRST);
	int option, status;

	(void)child_rank;
	poptSetOtherOptionHelp(
		context, "dicomm-perf simulate OPERATION --ranks N [options]");
	option = poptGetNextOpt(context);
	r.operation = poptGetArg(context);
	if ((status = failure_refuse_rest("simulate", context, option)) ||
	    (status = read_size("--minbytes", first, &r.first)) ||
	    (status = read_size("--maxbytes", last, &r.last)) ||
	    (status = check(&r)))
		;
	else
		status = run(&r);
	poptFreeContext(context);
	free(r.topology);
	free(r.plot);
	free(first);
	free(last);
	return status;
}
