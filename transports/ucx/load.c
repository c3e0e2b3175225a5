/* SPDX-License-Identifier: BSD-3-Clause */
/* Open UCX without the effects that loading it has on a process. */
#include "transports/ucx/load.h"
#include "src/base/descriptors.h"
#include "src/base/fork.h"
#include "src/base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LIBRARY "libucp.so.0"

struct ucx_api ucx;

_Atomic int ucx_contexts;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256];
/* parent: the process that used UCX and forked this one; or 0. */
static pid_t loader, parent;

static void forked(void)
{
	if (!parent && atomic_load(&ucx_contexts))
		parent = loader;
	loader = getpid();
}

/* The constructor of libucs sets a handler for SIGSEGV and similar signals,
 * which prints a backtrace and may wait for a debugger, and one for SIGHUP; and
 * it gives the thread a signal stack. These are for the program to set: restore
 * them. */
static void give_back_signals(void *library,
			      const struct sigaction before[NSIG],
			      const stack_t *stack)
{
	void (*disable)(void);
	struct sigaction now;

	/* Else it does so again when the process ends. */
	*(void **)&disable = dlsym(library, "ucs_debug_disable_signals");
	if (disable)
		disable();
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &now) == 0 &&
		    now.sa_sigaction != before[s].sa_sigaction)
			sigaction(s, &before[s], NULL);
	sigaltstack(stack, NULL);
}

/* Errors come back as a status, and this library reports them. */
static void be_quiet(void *library)
{
	ucs_status_t (*set)(const char *name, const char *value);

	*(void **)&set = dlsym(library, "ucs_global_opts_set_value");
	if (set && !getenv("UCX_LOG_LEVEL"))
		set("LOG_LEVEL", "fatal");
}

static void *open_library(void)
{
	struct sigaction before[NSIG] = {0};
	stack_t stack;
	/* If the program has loaded it itself, leave its handlers alone. */
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	if (library)
		return library;
	descriptors_fill_standard(); /* UCX opens some at any time */
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &before[s]);
	sigaltstack(NULL, &stack);
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library)
		return NULL;
	give_back_signals(library, before, &stack);
	be_quiet(library);
	return library;
}

static void load(void)
{
#define UCX_ENTRY(f) LIBRARY_FUNCTION(struct ucx_api, f)
	static const struct library_function functions[] = {
		UCX_FUNCTIONS(UCX_ENTRY) LIBRARY_END};
#undef UCX_ENTRY
	void *library = open_library();
	unsigned major, minor, release;

	loader = getpid();
	fork_add(FORK_UCX, forked);
	if (!library) {
		snprintf(why_not, sizeof(why_not), "%s", dlerror());
		return;
	}
	if (!library_fill(library, LIBRARY, functions, &ucx, why_not,
			  sizeof(why_not)))
		return;
	ucx.ucp_get_version(&major, &minor, &release);
	ucx.needs_no_context = major > 1 || minor >= 19;
	if (major != UCP_API_MAJOR || minor < UCP_API_MINOR)
		snprintf(why_not, sizeof(why_not),
			 "UCX %u.%u is older than %d.%d, for which this was "
			 "built",
			 major, minor, UCP_API_MAJOR, UCP_API_MINOR);
}

bool ucx_load(char *why, size_t len)
{
	pthread_once(&once, load);
	if (parent) {
		snprintf(why, len,
			 "process %d, of which this is a fork, uses UCX: its "
			 "threads are not here",
			 (int)parent);
		return false;
	}
	snprintf(why, len, "%s%s", *why_not ? "" : "UCX ",
		 *why_not ? why_not : ucx.ucp_get_version_string());
	return !*why_not;
}
