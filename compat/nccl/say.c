/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors and warnings of this layer, and the version. */
#include "compat/nccl/say.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES 1024
/* What torch 2.14 and 2.15 were built with: newer ones would have programs ask
 * for what is refused. */
#define VERSION_DEFAULT 23007

static _Thread_local char own_text[TEXT_BYTES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char process_text[TEXT_BYTES];

static void keep(const char *text)
{
	snprintf(own_text, sizeof(own_text), "%s", text);
	pthread_mutex_lock(&lock);
	memcpy(process_text, own_text, sizeof(process_text));
	pthread_mutex_unlock(&lock);
}

/* As DICOMM_DEBUG, or NCCL_DEBUG in its place, has it in the library. */
static bool is_silent(void)
{
	const char *word = getenv("DICOMM_DEBUG");

	if (!word || !*word)
		word = getenv("NCCL_DEBUG");
	return word && !strcasecmp(word, "none");
}

/* Where only NCCL_DEBUG is set, lines have NCCL's form, in the library too:
 * scripts look for "NCCL INFO" and "NCCL WARN". */
static bool is_nccls(void)
{
	const char *own = getenv("DICOMM_DEBUG"), *word = getenv("NCCL_DEBUG");

	return !(own && *own) && word && *word;
}

static size_t write_head(char *line, size_t room, const char *level)
{
	struct timespec now;
	char host[64];
	struct tm tm;
	size_t len;
	int n;

	if (gethostname(host, sizeof(host)) < 0)
		strcpy(host, "?");
	host[sizeof(host) - 1] = '\0';
	host[strcspn(host, ".")] = '\0';
	if (is_nccls()) {
		n = snprintf(line, room, "%s:%d:%d [0] NCCL %s ", host,
			     (int)getpid(), (int)gettid(),
			     !strcmp(level, "ERROR") ? "WARN" : level);
		return (size_t)n;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	len = strftime(line, room, "[%Y-%m-%d %H:%M:%S", &tm);
	n = snprintf(line + len, room - len, ".%06ld] %s:%d dicomm %s ",
		     now.tv_nsec / 1000, host, (int)getpid(), level);
	return len + (size_t)n;
}

/* One line, one write(2), that looks as those of the library. */
static void put(const char *level, const char *text)
{
	char line[TEXT_BYTES + 256];
	size_t len;

	if (is_silent())
		return;
	len = write_head(line, sizeof(line), level);
	len += (size_t)snprintf(line + len, sizeof(line) - len, "%s\n", text);
	if (len >= sizeof(line))
		len = sizeof(line) - 1;
	while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
		;
}

ncclResult_t nccl_refuse(ncclResult_t result, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	keep(text);
	put("ERROR", text);
	return result;
}

void nccl_warn(const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put("WARN", text);
}

ncclResult_t nccl_result(dicomm_result_t status)
{
	switch (status) {
	case DICOMM_SUCCESS:
		return ncclSuccess;
	case DICOMM_ERR_DEVICE:
		return ncclUnhandledCudaError;
	case DICOMM_ERR_SYSTEM:
	case DICOMM_ERR_NO_MEMORY:
	case DICOMM_ERR_NO_PATH:
		return ncclSystemError;
	case DICOMM_ERR_INVALID_ARGUMENT:
		return ncclInvalidArgument;
	case DICOMM_ERR_INVALID_USAGE:
	case DICOMM_ERR_UNSUPPORTED:
	case DICOMM_ERR_ABORTED:
		return ncclInvalidUsage;
	case DICOMM_ERR_REMOTE:
		return ncclRemoteError;
	case DICOMM_IN_PROGRESS:
		return ncclInProgress;
	case DICOMM_ERR_TIMEOUT:
		/* Who was built before there was that number does not know it.
		 */
		return nccl_version() >= 23007 ? ncclTimeout : ncclRemoteError;
	case DICOMM_ERR_INTERNAL:
		break;
	}
	return ncclInternalError;
}

ncclResult_t nccl_failed(dicomm_result_t status)
{
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		keep(dicomm_get_last_error(NULL));
	return nccl_result(status);
}

ncclResult_t nccl_failed_elsewhere(dicomm_result_t status, const char *text)
{
	if (status != DICOMM_SUCCESS && status != DICOMM_IN_PROGRESS)
		keep(text);
	return nccl_result(status);
}

const char *nccl_last_text(void)
{
	static _Thread_local char copy[TEXT_BYTES];

	if (own_text[0])
		return own_text;
	pthread_mutex_lock(&lock);
	memcpy(copy, process_text, sizeof(copy));
	pthread_mutex_unlock(&lock);
	return copy;
}

/* "2.27.5" or "22705"; 0: neither */
static int parse_version(const char *text)
{
	int major = 0, minor = 0, patch = 0;
	char end = '\0';

	if (sscanf(text, "%d.%d.%d%c", &major, &minor, &patch, &end) == 3) {
		if (major == 2 && minor >= 0 && minor < 100 && patch >= 0 &&
		    patch < 100)
			return major * 10000 + minor * 100 + patch;
		return 0;
	}
	if (sscanf(text, "%d%c", &major, &end) == 1 && major >= 20000 &&
	    major < 30000)
		return major;
	return 0;
}

static int version;

static void read_version(void)
{
	const char *text = getenv("DICOMM_NCCL_VERSION");

	version = text && *text ? parse_version(text) : VERSION_DEFAULT;
	if (version)
		return;
	version = VERSION_DEFAULT;
	nccl_warn("DICOMM_NCCL_VERSION %.64s: not as 2.27.5; the version of "
		  "NCCL that programs are told is %d",
		  text, version);
}

int nccl_version(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_version);
	return version;
}

/* As NCCL does, for who asks by its variable */
void nccl_say_version(void)
{
	static const char *const words[] = {"version", "warn", "info", "debug",
					    "trace"};
	const char *word = getenv("NCCL_DEBUG");
	char text[96];
	int v = nccl_version();

	snprintf(text, sizeof(text),
		 "NCCL version %d.%d.%d (libdicomm %d.%d.%d)", v / 10000,
		 v / 100 % 100, v % 100, DICOMM_VERSION_MAJOR,
		 DICOMM_VERSION_MINOR, DICOMM_VERSION_PATCH);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (is_nccls() && !strcasecmp(word, words[i]))
			put("INFO", text);
}
