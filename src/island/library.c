/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the vendor's library, and looks what it is. */
#include "src/island/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/library.h"
#include "src/base/log.h"

#define OWN "own:"
/* The sanitizers' allocators do not work in a library that finds its own
 * symbols first. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAGS (RTLD_NOW | RTLD_LOCAL)
#else
/* A program may have loaded this library's nccl functions for all to find. The
 * vendor's library calls its own. */
#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#endif

#define FUNCTIONS(F)                                \
	F(get_version, ncclGetVersion, true)        \
	F(get_unique_id, ncclGetUniqueId, true)     \
	F(init, ncclCommInitRankConfig, true)       \
	F(finalize, ncclCommFinalize, true)         \
	F(destroy, ncclCommDestroy, true)           \
	F(abort, ncclCommAbort, true)               \
	F(async_error, ncclCommGetAsyncError, true) \
	F(error_string, ncclGetErrorString, true)   \
	F(allreduce, ncclAllReduce, true)           \
	F(reduce, ncclReduce, true)                 \
	F(broadcast, ncclBroadcast, true)           \
	F(reduce_scatter, ncclReduceScatter, true)  \
	F(allgather, ncclAllGather, true)           \
	F(send, ncclSend, true)                     \
	F(recv, ncclRecv, true)                     \
	F(group_start, ncclGroupStart, true)        \
	F(group_end, ncclGroupEnd, true)            \
	F(islands_off, ncclDicommIslandsOff, false)
#define ROW(field, symbol, needed) \
	LIBRARY_SYMBOL(struct vendor_functions, field, symbol, needed)
static const struct library_function functions[] = {FUNCTIONS(ROW) LIBRARY_END};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* One for each path; they stay, as their threads may. */
static struct opened {
	char path[256];
	struct island_library library;
	struct opened *next;
} * opened;

static const char *default_path(const char *kind)
{
	return strcmp(kind, "hip") ? "libnccl.so.2" : "librccl.so.1";
}

static bool fill(struct island_library *l, bool want_own, char *why, size_t len)
{
	void *handle = dlopen(l->path, FLAGS);

	if (!handle) {
		snprintf(why, len, "%s", dlerror());
		return false;
	}
	if (!library_fill(handle, l->path, functions, &l->f, why, len))
		return false;
	l->own = l->f.islands_off != NULL;
	if (l->own && !want_own) {
		snprintf(why, len, "%s is libdicomm's own, not a vendor's",
			 l->path);
		return false;
	}
	if (!l->own && want_own) {
		snprintf(why, len, "%s is not libdicomm's own", l->path);
		return false;
	}
	if (l->own)
		l->f.islands_off();
	if (l->f.get_version(&l->version) != VENDOR_SUCCESS)
		l->version = 0;
	return true;
}

/* With the lock held */
static const struct island_library *find(const char *path, bool own, char *why,
					 size_t len)
{
	struct opened *o = opened;

	while (o && (strcmp(o->path, path) || o->library.own != own))
		o = o->next;
	if (o)
		return &o->library;
	o = calloc(1, sizeof(*o));
	if (!o) {
		snprintf(why, len, "no memory for %s", path);
		return NULL;
	}
	snprintf(o->path, sizeof(o->path), "%s", path);
	snprintf(o->library.path, sizeof(o->library.path), "%s", path);
	if (!fill(&o->library, own, why, len)) {
		free(o);
		return NULL;
	}
	log_info("island: %s, version %d", path, o->library.version);
	o->next = opened;
	opened = o;
	return &o->library;
}

const struct island_library *
island_library_open(const char *kind, const char *path, char *why, size_t len)
{
	bool own = !strncmp(path, OWN, strlen(OWN));
	const struct island_library *l;

	if (own)
		path += strlen(OWN);
	if (!*path)
		path = default_path(kind);
	if (strcmp(kind, "cuda") && strcmp(kind, "hip") && !own) {
		snprintf(why, len,
			 "no vendor's library serves ranks of kind %s", kind);
		return NULL;
	}
	if (strlen(path) >= sizeof(l->path)) {
		snprintf(why, len, "%.40s...: a path of more than %zu bytes",
			 path, sizeof(l->path) - 1);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	l = find(path, own, why, len);
	pthread_mutex_unlock(&lock);
	return l;
}
