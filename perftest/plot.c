/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a gnuplot program with the data in it, and pipes it to gnuplot. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perftest/plot.h"

static struct {
	struct report_row *rows;
	size_t n, room;
} kept;

bool plot_possible(void)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : "/usr/bin:/bin");
	char *save = NULL;
	bool found = false;

	for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL;
	     dir && !found; dir = strtok_r(NULL, ":", &save)) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/gnuplot", dir);
		found = access(file, X_OK) == 0;
	}
	free(copy);
	return found;
}

void plot_row(const struct report_row *row)
{
	if (kept.n == kept.room) {
		size_t room = 2 * kept.room + 64;
		struct report_row *more =
			realloc(kept.rows, room * sizeof(*more));

		/* A picture without the row is better than no table. */
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

/* A text inside single quotes of gnuplot. */
static void quote(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', out);
		fputc(*text == '\n' ? ' ' : *text, out);
	}
	fputc('\'', out);
}

/* One rank has no bus bandwidth; a logarithmic axis has no zero. */
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

/* The rows of each series as a block of data: $S0, $S1, ... Returns how many.
 * Where each block starts goes to first[]. Zero bytes have no place on a
 * logarithmic axis. */
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

static void write_curves(FILE *out, const size_t *first, size_t series,
			 int column)
{
	for (size_t s = 0; s < series; s++) {
		const struct report_row *r = &kept.rows[first[s]];
		char name[64];

		for (int half = 0; half < (r->in_place.missing ? 1 : 2);
		     half++) {
			snprintf(name, sizeof(name), "%s %s%s", r->type,
				 strcmp(r->reduction, "none") == 0
					 ? ""
					 : r->reduction,
				 half ? " in place" : "");
			fprintf(out,
				"%s$S%zu using 1:%d with linespoints pt %d "
				"lc %zu dt %d title ",
				s + (size_t)half > 0 ? ", " : "plot ", s,
				column + half, half ? 6 : 7, s + 1, half + 1);
			quote(out, name);
		}
	}
	fputc('\n', out);
}

void plot_script(FILE *out, const struct options *o, int ranks,
		 const char *path)
{
	size_t *first = calloc(kept.n + 1, sizeof(*first));
	char title[128];
	size_t series;

	if (!first)
		return;
	fprintf(out, "set terminal %s size 1200,500\nset output ",
		strstr(path, ".png") ? "pngcairo" : "svg");
	quote(out, path);
	fputc('\n', out);
	series = write_data(out, first);
	snprintf(title, sizeof(title), "%s, %d ranks", o->op->name, ranks);
	fprintf(out, "set multiplot layout 1,2 title ");
	quote(out, title);
	fprintf(out,
		" noenhanced\n"
		"set logscale x 2\nset logscale y 10\n"
		"set format x '%%.0b%%BB'\nset xtics rotate by -45\n"
		"set format y '%%g'\n"
		"set key top left\nset grid\n"
		"set xlabel 'size'\n"
		"set ylabel '%s bandwidth (GB/s)'\n",
		has_bus() ? "bus" : "algorithm");
	write_curves(out, first, series, 4);
	fprintf(out, "set ylabel 'time (us)'\n");
	write_curves(out, first, series, 2);
	fprintf(out, "unset multiplot\n");
	free(first);
}

static int run_gnuplot(int input)
{
	char *const argv[] = {(char *)"gnuplot", (char *)"-", NULL};
	posix_spawn_file_actions_t actions;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	errno = posix_spawnp(&pid, "gnuplot", &actions, NULL, argv, environ);
	if (errno == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	posix_spawn_file_actions_destroy(&actions);
	return status;
}

int plot_draw(const struct options *o, int ranks, char *error, size_t len)
{
	/* A file instead of a pipe: nobody blocks, nobody gets SIGPIPE. */
	FILE *script = tmpfile();
	struct stat made;
	int status = -1;

	unlink(o->plot);
	if (script) {
		plot_script(script, o, ranks, o->plot);
		if (fflush(script) == 0 &&
		    lseek(fileno(script), 0, SEEK_SET) == 0)
			status = run_gnuplot(fileno(script));
		fclose(script);
	}
	free(kept.rows);
	kept.rows = NULL;
	kept.n = kept.room = 0;
	if (status == 0 && stat(o->plot, &made) == 0 && made.st_size > 0)
		return 0;
	snprintf(error, len, "plot %s: gnuplot failed with status %d", o->plot,
		 WIFEXITED(status) ? WEXITSTATUS(status) : status);
	return -1;
}
