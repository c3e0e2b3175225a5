/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PMIx: Open MPI's mpirun, and srun --mpi=pmix. Rank 0 puts the id, all ranks
 * pass a fence, and the others get the id.
 *
 * The process stays a client of PMIx until it ends, because it may also use
 * MPI, which shares this client. If a process ends without PMIx_Finalize(), the
 * launcher assumes that it was killed.
 *
 * libpmix is opened here and not linked: most programs are started without it,
 * and on most machines there is none.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pmix.h>

#include "src/base/clock.h"
#include "src/base/library.h"
#include "src/base/log.h"
#include "src/boot/store/launcher.h"

#define LIBRARY "libpmix.so.2"
#define PMIX_FUNCTIONS(X)    \
	X(PMIx_Init)         \
	X(PMIx_Finalize)     \
	X(PMIx_Error_string) \
	X(PMIx_Put)          \
	X(PMIx_Commit)       \
	X(PMIx_Fence_nb)     \
	X(PMIx_Get)          \
	X(PMIx_Value_destruct)

static struct api {
	PMIX_FUNCTIONS(LIBRARY_POINTER)
} api;

/* Shared with the callback of PMIx, which may run after this process has given
 * up. The last user frees it. */
struct fence {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int users;
	pmix_status_t status;
};

static struct {
	pthread_mutex_t lock;
	pmix_proc_t self;
	pid_t pid;    /* the process that is a client; 0: none */
	int ids_made; /* each id has its own key */
} pmix = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The components that libpmix opens look for its functions in the process. */
static void *open_library(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);

#ifdef PMIX_LIBDIR /* where it is when the linker does not know it */
	if (!library)
		library = dlopen(PMIX_LIBDIR "/" LIBRARY,
				 RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
#endif
	return library;
}

static bool load(void)
{
#define ENTRY(f) LIBRARY_FUNCTION(struct api, f)
	static const struct library_function functions[] = {
		PMIX_FUNCTIONS(ENTRY) LIBRARY_END};
	static bool loaded;
	void *library;
	char why[256];

	if (loaded)
		return true;
	library = open_library();
	if (!library)
		log_info("PMIx: %s", dlerror());
	else if (library_fill(library, LIBRARY, functions, &api, why,
			      sizeof(why)))
		loaded = true;
	else
		log_info("PMIx: %s", why);
	return loaded;
}

static bool pmix_present(void)
{
	bool loaded;

	if (!getenv("PMIX_NAMESPACE") || !getenv("PMIX_RANK"))
		return false;
	pthread_mutex_lock(&pmix.lock);
	loaded = load();
	pthread_mutex_unlock(&pmix.lock);
	return loaded;
}

static dicomm_result_t fail(const char *what, pmix_status_t status)
{
	return FAIL(DICOMM_ERR_SYSTEM, "PMIx: %s: %s", what,
		    api.PMIx_Error_string(status));
}

static void finalize_at_exit(void)
{
	if (pmix.pid == getpid())
		api.PMIx_Finalize(NULL, 0);
}

static dicomm_result_t init(void)
{
	pmix_status_t status;

	if (pmix.pid == getpid())
		return DICOMM_SUCCESS;
	status = api.PMIx_Init(&pmix.self, NULL, 0);
	if (status != PMIX_SUCCESS)
		return fail("init", status);
	pmix.pid = getpid();
	atexit(finalize_at_exit);
	return DICOMM_SUCCESS;
}

static void release(pmix_value_t *value)
{
	api.PMIx_Value_destruct(value);
	free(value);
}

static dicomm_result_t get_ranks(int *out)
{
	pmix_proc_t job = pmix.self;
	pmix_value_t *value;
	pmix_status_t status;

	job.rank = PMIX_RANK_WILDCARD;
	status = api.PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
	if (status != PMIX_SUCCESS)
		return fail(PMIX_JOB_SIZE, status);
	if (value->type == PMIX_UINT32)
		*out = (int)value->data.uint32;
	else
		status = PMIX_ERR_TYPE_MISMATCH;
	release(value);
	return status == PMIX_SUCCESS ? DICOMM_SUCCESS
				      : fail(PMIX_JOB_SIZE, status);
}

static void leave(struct fence *f)
{
	bool last = !--f->users;

	pthread_mutex_unlock(&f->lock);
	if (!last)
		return;
	pthread_cond_destroy(&f->cond);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void fence_done(pmix_status_t status, void *arg)
{
	struct fence *f = arg;

	pthread_mutex_lock(&f->lock);
	f->done = true;
	f->status = status;
	pthread_cond_signal(&f->cond);
	leave(f);
}

static struct fence *create_fence(void)
{
	struct fence *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	if (!f)
		return NULL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->cond, &attr);
	pthread_condattr_destroy(&attr);
	f->users = 2;
	return f;
}

/* PMIx_Fence() has no time-out, so use its non-blocking form and wait here. */
static dicomm_result_t pass_fence(void)
{
	int timeout_s = launcher_patience_s(), err = 0;
	struct fence *f = create_fence();
	pmix_status_t status;
	struct timespec t;
	pmix_info_t collect = {.value = {.type = PMIX_BOOL, .data.flag = true}};
	bool done;

	if (!f)
		return FAIL(DICOMM_ERR_NO_MEMORY, "PMIx: out of memory");
	snprintf(collect.key, sizeof(collect.key), "%s", PMIX_COLLECT_DATA);
	status = api.PMIx_Fence_nb(NULL, 0, &collect, 1, fence_done, f);
	if (status != PMIX_SUCCESS) {
		pthread_mutex_lock(&f->lock);
		f->users--;
		leave(f);
		/* In both cases PMIx does not call fence_done(). */
		return status == PMIX_OPERATION_SUCCEEDED
			       ? DICOMM_SUCCESS
			       : fail("fence", status);
	}
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_s;
	pthread_mutex_lock(&f->lock);
	while (!f->done && !err)
		err = pthread_cond_timedwait(&f->cond, &f->lock, &t);
	done = f->done;
	status = f->status;
	leave(f);
	if (!done)
		return FAIL(DICOMM_ERR_TIMEOUT,
			    "PMIx: not all ranks came within %d s", timeout_s);
	return status == PMIX_SUCCESS ? DICOMM_SUCCESS : fail("fence", status);
}

static dicomm_result_t put_id(const char *key, char *text)
{
	pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
	pmix_status_t status = api.PMIx_Put(PMIX_GLOBAL, key, &value);

	if (status == PMIX_SUCCESS)
		status = api.PMIx_Commit();
	return status == PMIX_SUCCESS ? DICOMM_SUCCESS : fail("put", status);
}

static dicomm_result_t get_id(const char *key, dicomm_unique_id_t *id)
{
	pmix_proc_t first = pmix.self;
	pmix_value_t *value;
	pmix_status_t status;
	pmix_info_t bound = {.value = {.type = PMIX_INT}};

	bound.value.data.integer = launcher_patience_s();

	first.rank = 0;
	snprintf(bound.key, sizeof(bound.key), "%s", PMIX_TIMEOUT);
	status = api.PMIx_Get(&first, key, &bound, 1, &value);
	if (status != PMIX_SUCCESS)
		return fail("get the id of rank 0", status);
	if (value->type == PMIX_STRING &&
	    strlen(value->data.string) < sizeof(id->text))
		snprintf(id->text, sizeof(id->text), "%s", value->data.string);
	else
		status = PMIX_ERR_TYPE_MISMATCH;
	release(value);
	return status == PMIX_SUCCESS ? DICOMM_SUCCESS
				      : fail("id of rank 0", status);
}

static dicomm_result_t exchange(struct launcher_info *info)
{
	char key[32];

	TRY(init());
	info->rank = (int)pmix.self.rank;
	info->ranks_from = PMIX_JOB_SIZE;
	TRY(get_ranks(&info->ranks));
	TRY(store_make_id(info));
	snprintf(key, sizeof(key), "dicomm-id-%d", pmix.ids_made++);
	if (info->rank == 0)
		TRY(put_id(key, info->id.text));
	TRY(pass_fence());
	return info->rank == 0 ? DICOMM_SUCCESS : get_id(key, &info->id);
}

static dicomm_result_t pmix_get(struct launcher_info *info)
{
	dicomm_result_t status;

	pthread_mutex_lock(&pmix.lock);
	status = exchange(info);
	pthread_mutex_unlock(&pmix.lock);
	return status;
}

const struct store store_pmix = {
	.name = "PMIx",
	.needs = "PMIX_NAMESPACE and PMIX_RANK (Open MPI's mpirun, srun)",
	.present = pmix_present,
	.get = pmix_get,
};
