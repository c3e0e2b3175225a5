/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's variables, also from its files, before the library reads its own. What
 * it reads itself (NCCL_IB_TIMEOUT and the like) is left to it; some become
 * variables of the library here; and those without a meaning are named once.
 */
#include "compat/nccl/environment.h"

#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "compat/nccl/say.h"

/* Read by this layer, or by frameworks that have made names of this kind */
static const char *const known[] = {
	"NCCL_ASYNC_ERROR_HANDLING",
	"NCCL_BLOCKING_WAIT",
	"NCCL_COMM_BLOCKING",
	"NCCL_COMM_ID",
	"NCCL_CONF_FILE",
	"NCCL_DEBUG",
	"NCCL_DEBUG_FILE",
	"NCCL_DESYNC_DEBUG",
	"NCCL_HOME",
	"NCCL_IB_DISABLE",
	"NCCL_NET",
	"NCCL_SHM_DISABLE",
	"NCCL_VERSION",
};

static const char *variable(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/* "NAME=value", a comment, or nothing of ours; what is set already stays. */
static void take_line(char *line)
{
	char *value = strchr(line, '=');

	line[strcspn(line, "\r\n")] = '\0';
	if (!value ||
	    (strncmp(line, "NCCL_", 5) && strncmp(line, "DICOMM_", 7)))
		return;
	*value = '\0';
	setenv(line, value + 1, 0);
}

static void read_file(const char *path)
{
	FILE *in = fopen(path, "re");
	char line[1024];

	while (in && fgets(line, sizeof(line), in))
		take_line(line);
	if (in)
		fclose(in);
}

static void read_files(void)
{
	const char *given = variable("NCCL_CONF_FILE"), *home = getenv("HOME");
	char path[1024];

	if (given)
		read_file(given);
	else if (home && snprintf(path, sizeof(path), "%s/.nccl.conf", home) <
				 (int)sizeof(path))
		read_file(path);
	read_file("/etc/nccl.conf");
}

static bool is_on(const char *name)
{
	const char *text = variable(name);

	return text && strcmp(text, "0") != 0;
}

static bool is_net(const char *name)
{
	const char *text = variable("NCCL_NET");

	return text && !strcasecmp(text, name);
}

/* ucx is none of the default either. */
static void choose_transports(void)
{
	char text[64] = "^ucx";

	if (is_on("NCCL_SHM_DISABLE"))
		strcat(text, ",shm");
	if (is_on("NCCL_IB_DISABLE") || is_net("Socket"))
		strcat(text, ",verbs");
	else if (is_net("IB"))
		strcat(text, ",tcp");
	if (strcmp(text, "^ucx") != 0)
		setenv("DICOMM_TRANSPORTS", text, 0);
}

static void translate(void)
{
	const char *debug = variable("NCCL_DEBUG");
	const char *file = variable("NCCL_DEBUG_FILE");

	choose_transports();
	/* It says all that INFO does. */
	if (debug && !strcasecmp(debug, "ABORT"))
		setenv("NCCL_DEBUG", "INFO", 1);
	if (file)
		setenv("DICOMM_DEBUG_FILE", file, 0);
}

/* Does the library read it in the place of one of its own? */
static bool is_librarys(const char *name, size_t len)
{
	dicomm_param_info_t info;

	for (int i = 0; dicomm_param_info(i, &info) == DICOMM_SUCCESS; i++)
		if (strlen(info.name) == len + 2 &&
		    !strncmp(info.name + 7, name + 5, len - 5) &&
		    strstr(info.help, "also read: NCCL_"))
			return true;
	return false;
}

static bool is_known(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strlen(known[i]) == len && !strncmp(known[i], name, len))
			return true;
	return is_librarys(name, len);
}

static void name_others(void)
{
	char text[800];
	size_t used = 0, len;

	for (char **e = environ; e && *e; e++) {
		len = strcspn(*e, "=");
		if (strncmp(*e, "NCCL_", 5) != 0 || is_known(*e, len) ||
		    used + len + 3 > sizeof(text))
			continue;
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "%s%.*s", used ? ", " : "", (int)len,
					 *e);
	}
	if (used)
		nccl_warn("variables of NCCL that mean nothing to libdicomm: "
			  "%s",
			  text);
}

/* Other names are those of plug-ins, which libdicomm does not load. */
static void check_net(void)
{
	const char *net = variable("NCCL_NET");

	if (net && !is_net("IB") && !is_net("Socket"))
		nccl_warn("NCCL_NET=%s means nothing to libdicomm, which knows "
			  "IB and Socket",
			  net);
}

static void read_all(void)
{
	read_files();
	translate();
	nccl_say_version();
	name_others();
	check_net();
}

void nccl_environment(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_all);
}
