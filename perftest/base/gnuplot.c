/* SPDX-License-Identifier: BSD-3-Clause */
/* The script for gnuplot also contains the data. */
#include "perftest/base/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

bool gnuplot_possible(void)
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
	if (!found)
		fprintf(stderr, "dicomm-perf: --plot needs gnuplot, which is "
				"not in PATH (Debian: gnuplot-nox)\n");
	return found;
}

static bool is_kind(const char *path, const char *kind)
{
	const char *dot = strrchr(path, '.');

	return dot && dot > path && strcasecmp(dot, kind) == 0;
}

bool gnuplot_draws(const char *path)
{
	return is_kind(path, ".svg") || is_kind(path, ".png");
}

void gnuplot_quote(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++) {
		if (*text == '\'')
			fputc('\'', out);
		fputc(*text == '\n' ? ' ' : *text, out);
	}
	fputc('\'', out);
}

void gnuplot_head(FILE *out, const char *path, int width, int height)
{
	fprintf(out, "set terminal %s size %d,%d\nset output ",
		is_kind(path, ".png") ? "pngcairo" : "svg", width, height);
	gnuplot_quote(out, path);
	fputc('\n', out);
}

static int run(int input)
{
	char *const argv[] = {(char *)"gnuplot", (char *)"-", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int status = -1;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	if (posix_spawnattr_init(&attributes) != 0)
		goto destroy_actions;
	/* This process may have blocked signals to wait for them in a thread;
	 * gnuplot must not inherit that. */
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	/* If gnuplot cannot open its file, it would write the picture to
	 * stdout. */
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
					 O_WRONLY, 0);
	errno = posix_spawnp(&pid, "gnuplot", &actions, &attributes, argv,
			     environ);
	if (errno == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	posix_spawnattr_destroy(&attributes);
destroy_actions:
	posix_spawn_file_actions_destroy(&actions);
	return status;
}

/* Returns true if the picture is complete. gnuplot does not report that the
 * disk was full; the end of the picture is missing then. */
static bool is_whole(const char *path)
{
	static const char svg[] = "</svg>", png[] = "IEND";
	FILE *file = fopen(path, "r");
	char tail[16];
	size_t n = 0;

	if (!file)
		return false;
	if (fseek(file, -(long)sizeof(tail), SEEK_END) == 0)
		n = fread(tail, 1, sizeof(tail), file);
	fclose(file);
	return is_kind(path, ".png")
		       ? memmem(tail, n, png, strlen(png)) != NULL
		       : memmem(tail, n, svg, strlen(svg)) != NULL;
}

int gnuplot_draw(const char *path, void (*write)(FILE *out, void *ctx),
		 void *ctx, char *error, size_t len)
{
	/* A file instead of a pipe, so that nobody blocks and nobody gets
	 * SIGPIPE. */
	FILE *script = tmpfile();
	bool drawn = false;
	int status;

	unlink(path);
	if (script)
		write(script, ctx);
	if (!script || fflush(script) != 0 || ferror(script) ||
	    lseek(fileno(script), 0, SEEK_SET) != 0)
		snprintf(error, len, "plot %s: a file for gnuplot: %s", path,
			 strerror(errno));
	else if ((status = run(fileno(script))) != 0)
		snprintf(error, len, "plot %s: gnuplot failed with status %d",
			 path,
			 WIFEXITED(status) ? WEXITSTATUS(status) : status);
	else if (!is_whole(path))
		snprintf(error, len, "plot %s: not all of it could be written",
			 path);
	else
		drawn = true;
	if (script)
		fclose(script);
	return drawn ? 0 : -1;
}
