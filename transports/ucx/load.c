/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening UCX, without what it does to a process that loads it. */
#include "transports/ucx/ucx.h"
#include "src/base/descriptors.h"

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
static pid_t loader, parent; /* parent: used it when it forked; or 0 */

static void forked(void)
{
	if (!parent && atomic_load(&ucx_contexts))
		parent = loader;
	loader = getpid();
}

/*
 * Its constructor puts a handler on SIGSEGV and its like, which prints a
 * backtrace and may wait for a debugger, another on SIGHUP, and gives the
 * thread another stack for them. Those are the program's to set.
 */
static void give_back_signals(void *library,
			      const struct sigaction before[NSIG],
			      const stack_t *stack)
{
	void (*disable)(void);
	struct sigaction now;

	/* So that it does not do this again when the process ends. */
	*(void **)&disable = dlsym(library, "ucs_debug_disable_signals");
	if (disable)
		disable();
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, NULL, &now) == 0 &&
		    now.sa_sigaction != before[s].sa_sigaction)
			sigaction(s, &before[s], NULL);
	sigaltstack(stack, NULL);
}

/* What goes wrong comes back as a status, and is told by us. */
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
	/* Somebody else's, with what that one wants of it. */
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
	static const struct {
		const char *name;
		size_t at;
	} functions[] = {
#define UCX_ENTRY(f) {#f, offsetof(struct ucx_api, f)},
		UCX_FUNCTIONS(UCX_ENTRY)
#undef UCX_ENTRY
	};
	void *library = open_library();
	unsigned major, minor, release;

	loader = getpid();
	pthread_atfork(NULL, NULL, forked);
	if (!library) {
		snprintf(why_not, sizeof(why_not), "%s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *f = dlsym(library, functions[i].name);

		if (!f) {
			snprintf(why_not, sizeof(why_not), "%s has no %s",
				 LIBRARY, functions[i].name);
			return;
		}
		*(void **)((char *)&ucx + functions[i].at) = f;
	}
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
