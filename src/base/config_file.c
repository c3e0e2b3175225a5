/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/config_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/descriptors.h"

#define PREFIX "DICOMM_"
#define SYSTEM_FILE "/etc/dicomm.conf"
#define USER_FILE ".dicomm.conf"
#define LINES 256 /* of all files; more are an error */
#define PATH_BYTES 4096
#define LINE_BYTES 4096

static struct config_line lines[LINES];
static int nlines;
static char error[PATH_BYTES + 128];

static void note(const char *path, int number, const char *what)
{
	if (!*error && number)
		snprintf(error, sizeof(error), "line %d of %.*s: %s", number,
			 PATH_BYTES, path, what);
	else if (!*error)
		snprintf(error, sizeof(error), "%.*s: %s", PATH_BYTES, path,
			 what);
}

/* Returns the text without blanks at its ends. */
static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* Returns what is wrong with the line, or NULL. */
static const char *take_line(char *line, struct config_line *l)
{
	char *equals = strchr(line, '=');

	line = trim(line);
	if (!*line || *line == '#')
		return NULL;
	if (!equals)
		return "not NAME=VALUE";
	*equals = '\0';
	line = trim(line);
	if (strncmp(line, PREFIX, strlen(PREFIX)) != 0)
		return "the name does not begin with " PREFIX;
	if (!strcmp(line, PREFIX "CONF"))
		return PREFIX "CONF names a file, and does not stand in one";
	if (nlines == LINES)
		return "too many lines in all";
	l->name = strdup(line);
	l->text = strdup(trim(equals + 1));
	if (!l->name || !l->text)
		return "out of memory";
	lines[nlines++] = *l;
	return NULL;
}

static void take_file(FILE *in, const char *path)
{
	char *copy = strdup(path);
	struct config_line l = {.path = copy};
	int before = nlines;
	char line[LINE_BYTES];
	const char *bad;
	struct stat st;

	l.exposed = fstat(fileno(in), &st) == 0 && (st.st_mode & 077);
	if (!copy)
		note(path, 0, "out of memory");
	while (copy && fgets(line, sizeof(line), in)) {
		l.number++;
		bad = strchr(line, '\n') || feof(in) ? take_line(line, &l)
						     : "too long";
		if (bad)
			note(path, l.number, bad);
	}
	if (ferror(in))
		note(path, 0, strerror(errno));
	if (nlines == before)
		free(copy);
}

/* A file that is not asked for by name need not be there, nor be this user's,
 * as in the home of the one who has become another. */
static void read_file(const char *path, bool asked)
{
	FILE *in = descriptors_fopen(path);

	if (in) {
		take_file(in, path);
		fclose(in);
	} else if (asked) {
		note(path, 0, strerror(errno));
	}
}

void config_files_read(void)
{
	const char *given = getenv(PREFIX "CONF"), *home = getenv("HOME");
	char path[PATH_BYTES];

	if (given && *given)
		read_file(given, true);
	else if (home && *home &&
		 snprintf(path, sizeof(path), "%s/" USER_FILE, home) <
			 (int)sizeof(path))
		read_file(path, false);
	read_file(SYSTEM_FILE, false);
}

const struct config_line *config_file_line(const char *name)
{
	for (int i = 0; i < nlines; i++)
		if (!strcmp(lines[i].name, name))
			return &lines[i];
	return NULL;
}

const struct config_line *config_file_line_at(int i)
{
	return i < nlines ? &lines[i] : NULL;
}

const char *config_file_error(void)
{
	return error;
}
