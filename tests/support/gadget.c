/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices for ranks of tests. */
#include "tests/support/gadget.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "tests/mock/driver.h"
#include "tests/support/gpu.h"
#include "tests/support/job.h"

/* A copy that keeps a GPU busy, and for how long about */
#define LOAD_BYTES ((size_t)8 << 20)
#define LOAD_US 10

/* What a mock offers to tests */
struct mock {
	const char *kind;
	const char *file, *compiler; /* compiler: or NULL */
	/* The same of older drivers, see MOCK_DRIVERS; NULL: no others */
	const char *between_file, *between_compiler, *old_file;
	void *lib;
	__typeof__(mock_fail) *fail;
	__typeof__(mock_pending) *pending;
	__typeof__(mock_waits) *waits;
	__typeof__(mock_delay) *delay;
	__typeof__(mock_hangs) *hangs;
	__typeof__(mock_early) *early;
	__typeof__(mock_mapped) *mapped;
	__typeof__(mock_live) *live;
	__typeof__(mock_stream) *stream;
	__typeof__(mock_stream_destroy) *stream_destroy;
};

static struct mock mocks[] = {
	{.kind = "cuda",
	 .file = "tests/mock/libcuda.so",
	 .compiler = "tests/mock/libnvrtc.so",
	 .between_file = "tests/mock/libcuda_between.so",
	 .between_compiler = "tests/mock/libnvrtc_old.so",
	 .old_file = "tests/mock/libcuda_old.so"},
	{.kind = "hip",
	 .file = "tests/mock/libhip.so",
	 .compiler = "tests/mock/libhiprtc.so",
	 .between_file = "tests/mock/libhip_between.so",
	 .between_compiler = "tests/mock/libhiprtc_between.so",
	 .old_file = "tests/mock/libhip_old.so"},
	{.kind = "ze",
	 .file = "tests/mock/libze.so",
	 .old_file = "tests/mock/libze_old.so"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: it is none of a mock. */
static struct mock *mock_of(const char *name)
{
	if (gpu_is_wanted(name))
		return NULL;
	for (size_t i = 0; i < sizeof(mocks) / sizeof(*mocks); i++)
		if (!strncmp(name, mocks[i].kind, strlen(mocks[i].kind)))
			return &mocks[i];
	return NULL;
}

static void *open_built(const char *file, char *why, size_t len)
{
	const char *top = getenv("top_builddir");
	char path[4096];
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", file);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		snprintf(why, len, "%s", dlerror());
	return lib;
}

/* Which of the mocks of a kind this process is to have */
static void choose(struct mock *m)
{
	const char *wanted = getenv("MOCK_DRIVERS");

	if (wanted && !strcmp(wanted, "old") && m->old_file) {
		m->file = m->old_file;
		m->compiler = NULL;
	} else if (wanted && !strcmp(wanted, "between") && m->between_file) {
		m->file = m->between_file;
		if (m->between_compiler)
			m->compiler = m->between_compiler;
	}
}

/* The backend asks for its driver and its compiler by name, and gets those of
 * that name that are loaded already. */
static bool load(struct mock *m, char *why, size_t len)
{
	if (m->lib)
		return true;
	choose(m);
	if (m->compiler && !open_built(m->compiler, why, len))
		return false;
	m->lib = open_built(m->file, why, len);
	if (!m->lib)
		return false;
	*(void **)&m->fail = dlsym(m->lib, "mock_fail");
	*(void **)&m->pending = dlsym(m->lib, "mock_pending");
	*(void **)&m->waits = dlsym(m->lib, "mock_waits");
	*(void **)&m->delay = dlsym(m->lib, "mock_delay");
	*(void **)&m->hangs = dlsym(m->lib, "mock_hangs");
	*(void **)&m->early = dlsym(m->lib, "mock_early");
	*(void **)&m->mapped = dlsym(m->lib, "mock_mapped");
	*(void **)&m->live = dlsym(m->lib, "mock_live");
	*(void **)&m->stream = dlsym(m->lib, "mock_stream");
	*(void **)&m->stream_destroy = dlsym(m->lib, "mock_stream_destroy");
	if (m->fail && m->pending && m->waits && m->delay && m->hangs &&
	    m->early && m->mapped && m->live && m->stream && m->stream_destroy)
		return true;
	snprintf(why, len, "%s is no mock", m->file);
	return false;
}

bool gadget_exists(const char *name, char *why, size_t len)
{
	struct mock *m = mock_of(name);
	bool loaded = true;
	int index;

	pthread_mutex_lock(&lock);
	if (m)
		loaded = load(m, why, len);
	pthread_mutex_unlock(&lock);
	return loaded && accel_find(name, &index, why, len);
}

void gadget_open(struct gadget *g, const char *name)
{
	char why[256] = "";

	*g = (struct gadget){.name = name};
	JOB_CHECK(gadget_exists(name, why, sizeof(why)), "%s", why);
	g->accel = accel_find(name, &g->index, why, sizeof(why));
	if (!g->accel->work)
		return;
	if (mock_of(name)) {
		g->native = mock_of(name)->stream(g->index);
	} else if (gpu_is_wanted(name)) {
		g->native = gpu_stream(g->index);
		g->load = gadget_alloc(g, 2 * LOAD_BYTES);
	}
	JOB_TRY(g->accel->work->open(g->index, g->native, &g->stream));
	JOB_TRY(g->accel->work->event_create(g->index, &g->event));
}

void gadget_close(struct gadget *g)
{
	if (!g->stream)
		return;
	gadget_wait(g);
	g->accel->work->event_destroy(g->event);
	g->accel->work->close(g->stream);
	if (!g->native)
		return;
	if (mock_of(g->name)) {
		mock_of(g->name)->stream_destroy(g->native);
	} else {
		gpu_stream_destroy(g->native);
		gadget_free(g, g->load);
	}
}

void *gadget_alloc(const struct gadget *g, size_t bytes)
{
	void *at = NULL;

	JOB_TRY(g->accel->alloc(g->index, bytes, &at));
	return at;
}

/* On a busy machine others may not let go of it while comm_deregister() waits.
 */
void gadget_free(const struct gadget *g, void *at)
{
	const struct mock *m = mock_of(g->name);

	for (int ms = 0; m && m->mapped(at) && ms < 10000; ms++)
		job_sleep_ms(1);
	JOB_TRY(g->accel->free(at));
}

void *gadget_host(const struct gadget *g, size_t bytes)
{
	const struct accel_work *work = g->accel->work;
	void *at = NULL, *seen;

	JOB_TRY(accels[0]->alloc(0, bytes, &at));
	if (work->caps(g->index) & ACCEL_MAP_HOST)
		JOB_TRY(work->map_host(g->index, at, bytes, false, &seen));
	return at;
}

void gadget_host_free(const struct gadget *g, void *at)
{
	const struct accel_work *work = g->accel->work;

	if (work->caps(g->index) & ACCEL_MAP_HOST)
		work->unmap_host(g->index, at);
	JOB_TRY(accels[0]->free(at));
}

void gadget_copy(const struct gadget *g, void *dst, const void *src,
		 size_t bytes)
{
	JOB_TRY(g->accel->work->copy(g->stream, dst, src, bytes));
}

void gadget_wait(const struct gadget *g)
{
	const struct accel_work *work = g->accel->work;
	dicomm_result_t status;

	JOB_TRY(work->event_record(g->event, g->stream));
	while ((status = work->event_query(g->event)) == DICOMM_AGAIN)
		sched_yield();
	JOB_TRY(status);
}

void gadget_delay(const struct gadget *g, unsigned us)
{
	if (mock_of(g->name))
		mock_of(g->name)->delay(us);
	for (unsigned at = 0; g->load && at < us; at += LOAD_US)
		gadget_copy(g, g->load, g->load + LOAD_BYTES, LOAD_BYTES);
}

int gadget_hangs(const struct gadget *g)
{
	return mock_of(g->name) ? mock_of(g->name)->hangs() : 0;
}

int gadget_early(const struct gadget *g)
{
	return mock_of(g->name) ? mock_of(g->name)->early() : 0;
}

int gadget_live(const struct gadget *g)
{
	return mock_of(g->name) ? mock_of(g->name)->live() : 0;
}

int gadget_waits(const struct gadget *g)
{
	return mock_of(g->name) ? mock_of(g->name)->waits() : 0;
}

void gadget_fail(const struct gadget *g, int nth, int error)
{
	mock_of(g->name)->fail(nth, error);
}

bool gadget_has_failed(const struct gadget *g)
{
	bool pending = mock_of(g->name)->pending();

	mock_of(g->name)->fail(0, 0);
	return !pending;
}
