/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and streams of devices that do not exist. */
#include "tests/mock/driver.h"
#include "tests/mock/graph.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Devices allocate in such units. */
#define UNIT ((size_t)2 << 20)
/* Where they cut allocations out of these, one begins so far in a page. */
#define CUT 512
#define VACANCIES 16
#define POLL_NS 50000

struct host_range {
	char *at;
	size_t bytes;
	bool own; /* allocated here */
	struct host_range *next;
};

struct work {
	int (*fn)(void *arg);
	void *arg;
	struct driver_stream *of;
	struct work *next;
};

/* Streams and events are never freed, so that a stale one is found out. */
struct driver_stream {
	int device;
	bool dead;
	struct driver_stream *queue; /* where its work is; itself, mostly */
	int pending;                 /* of that */
	pthread_cond_t change;
	struct work *first, **last;
	struct driver_stream *next;
};

struct driver_event {
	int device;
	bool dead;
	uint64_t wanted, reached;
	struct graph_mark mark; /* of the capture that it was recorded in */
	struct driver_event *next;
};

/* Addresses of what was freed */
struct vacancy {
	void *at;
	size_t bytes;
};

/* What holds a stream */
struct hold {
	const _Atomic uint32_t *word;
	uint32_t value;
	struct hold *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static struct driver_memory *memories;
static struct host_range *ranges;
static struct vacancy vacancies[VACANCIES];
static int nvacancies;
static struct driver_stream *streams, *defaults[DRIVER_DEVICES];
static struct driver_event *events;
static struct hold *holds;
static int queued, live, hangs, waits, writes, early, fail_in, fail_error;
static unsigned long calls;
static int states[DRIVER_DEVICES];
static uint64_t ids;
static unsigned delay_us;
static bool captures_blocking;
/* [a][b]: a reads and writes memory of b. */
static bool peers[DRIVER_DEVICES][DRIVER_DEVICES];
/* Of the stream that this thread runs; -1: of none */
static _Thread_local int running = -1;
static _Thread_local int capture_mode;

/* ---- for tests ---- */

void mock_fail(int nth, int error)
{
	pthread_mutex_lock(&lock);
	fail_in = nth;
	fail_error = error;
	pthread_mutex_unlock(&lock);
}

bool mock_pending(void)
{
	bool pending;

	pthread_mutex_lock(&lock);
	pending = fail_in > 0;
	pthread_mutex_unlock(&lock);
	return pending;
}

void mock_delay(unsigned us)
{
	pthread_mutex_lock(&lock);
	delay_us = us;
	pthread_mutex_unlock(&lock);
}

static int count_of(const int *counter)
{
	int n;

	pthread_mutex_lock(&lock);
	n = *counter;
	pthread_mutex_unlock(&lock);
	return n;
}

int mock_live(void)
{
	return count_of(&live) + graph_live();
}

int mock_hangs(void)
{
	return count_of(&hangs);
}

int mock_waits(void)
{
	return count_of(&waits);
}

int mock_writes(void)
{
	return count_of(&writes);
}

unsigned long mock_calls(void)
{
	unsigned long n;

	pthread_mutex_lock(&lock);
	n = calls;
	pthread_mutex_unlock(&lock);
	return n;
}

void mock_break(int device, int error)
{
	pthread_mutex_lock(&lock);
	states[device] = error;
	pthread_mutex_unlock(&lock);
}

int mock_early(void)
{
	return count_of(&early);
}

void *mock_peek(void *at)
{
	return driver_translate((uintptr_t)at, 1);
}

bool mock_synced(const void *at)
{
	struct driver_memory m;

	return driver_find(at, &m) && m.synced;
}

void mock_manage(void *at)
{
	pthread_mutex_lock(&lock);
	for (struct driver_memory *m = memories; m; m = m->next)
		if (m->at == at)
			m->managed = !mprotect(m->at - m->before,
					       m->bytes + m->before,
					       PROT_READ | PROT_WRITE);
	pthread_mutex_unlock(&lock);
}

void mock_set_apart(void *at)
{
	pthread_mutex_lock(&lock);
	for (struct driver_memory *m = memories; m; m = m->next)
		m->apart |= m->at == at;
	pthread_mutex_unlock(&lock);
}

/* ---- calls ---- */

/* Under the lock. A function that a stream runs may call nothing: it could
 * wait for that very stream. */
static int fails(void)
{
	calls++;
	if (running >= 0) {
		fprintf(stderr, "mock: a call from within a stream\n");
		hangs++;
		return DRIVER_NOT_PERMITTED;
	}
	if (fail_in > 0 && --fail_in == 0)
		return fail_error;
	return DRIVER_SUCCESS;
}

void mock_capture_blocking(bool begins)
{
	pthread_mutex_lock(&lock);
	captures_blocking = begins;
	pthread_mutex_unlock(&lock);
}

bool driver_captures_blocking(void)
{
	bool does;

	pthread_mutex_lock(&lock);
	does = captures_blocking;
	pthread_mutex_unlock(&lock);
	return does;
}

int mock_capture_mode(void)
{
	return capture_mode;
}

void driver_capture_mode(int *mode)
{
	int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
}

static int spoils(void)
{
	return graph_unsafe(capture_mode);
}

int driver_call(void)
{
	int error;

	pthread_mutex_lock(&lock);
	error = fails();
	pthread_mutex_unlock(&lock);
	return error;
}

static bool is_held(const struct hold *h)
{
	return (int32_t)(atomic_load(h->word) - h->value) < 0;
}

bool driver_is_held(void)
{
	bool held = false;

	pthread_mutex_lock(&lock);
	for (struct hold *h = holds; h && !held; h = h->next)
		held = is_held(h);
	pthread_mutex_unlock(&lock);
	return held;
}

/* What holds a stream for a moment only is waited for. */
static void await_moment(void)
{
	for (int ms = 0; ms < 500 && driver_is_held(); ms++)
		usleep(1000);
}

/* Under the lock, of what waits for all streams */
static int would_hang(void)
{
	for (struct hold *h = holds; h; h = h->next)
		if (is_held(h)) {
			fprintf(stderr, "mock: this would wait for a stream "
					"that is held\n");
			hangs++;
			return DRIVER_WOULD_HANG;
		}
	return DRIVER_SUCCESS;
}

int driver_sync_call(void)
{
	int error;

	await_moment();
	pthread_mutex_lock(&lock);
	error = fails();
	if (!error)
		error = spoils();
	if (!error)
		error = would_hang();
	pthread_mutex_unlock(&lock);
	return error;
}

/* ---- memory ---- */

/* Where the last one of that size was that this process had allocated, as
 * drivers have it; nothing else of the process comes there in between. NULL:
 * there was none. */
static void *vacancy_take(size_t bytes)
{
	void *at = NULL;

	pthread_mutex_lock(&lock);
	for (int i = nvacancies - 1; i >= 0 && !at; i--)
		if (vacancies[i].bytes == bytes) {
			at = vacancies[i].at;
			nvacancies--;
			memmove(&vacancies[i], &vacancies[i + 1],
				(size_t)(nvacancies - i) * sizeof(*vacancies));
		}
	pthread_mutex_unlock(&lock);
	return at;
}

/* False: it is still mapped. */
static bool vacancy_leave(void *at, size_t bytes)
{
	bool kept;

	pthread_mutex_lock(&lock);
	kept = nvacancies < VACANCIES &&
	       mmap(at, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		    0) == at;
	if (kept)
		vacancies[nvacancies++] = (struct vacancy){at, bytes};
	pthread_mutex_unlock(&lock);
	return kept;
}

/* fd becomes the memory's. */
static int memory_new(int device, int fd, size_t bytes, bool imported,
		      void **at)
{
	struct driver_memory *m = calloc(1, sizeof(*m));
	void *vacant;

	if (!m || fd < 0) {
		free(m);
		return DRIVER_OUT_OF_MEMORY;
	}
	vacant = imported ? NULL : vacancy_take(bytes);
	m->at = mmap(vacant, bytes, PROT_NONE,
		     MAP_SHARED | (vacant ? MAP_FIXED : 0), fd, 0);
	m->seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->at == MAP_FAILED || m->seen == MAP_FAILED) {
		close(fd);
		free(m);
		return DRIVER_OUT_OF_MEMORY;
	}
	m->before = getenv("MOCK_CUT") ? CUT : 0;
	m->at += m->before;
	m->seen += m->before;
	m->fd = fd;
	m->bytes = bytes - m->before;
	m->device = device;
	m->imported = imported;
	pthread_mutex_lock(&lock);
	m->id = ++ids;
	m->next = memories;
	memories = m;
	live++;
	pthread_mutex_unlock(&lock);
	*at = m->at;
	return DRIVER_SUCCESS;
}

int driver_alloc(int device, size_t bytes, void **at)
{
	int fd;

	if (!bytes)
		return DRIVER_INVALID_VALUE;
	if (bytes > (size_t)1 << 40)
		return DRIVER_OUT_OF_MEMORY;
	bytes = (bytes + UNIT - 1) & ~(UNIT - 1);
	fd = memfd_create("mock-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Of what may shrink the kernel makes no dma-buf. */
	if (fd >= 0 && (ftruncate(fd, (off_t)bytes) ||
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))) {
		close(fd);
		fd = -1;
	}
	return memory_new(device, fd, bytes, false, at);
}

/* Who maps it has a lock on its file. */
static bool is_mapped_elsewhere(const struct driver_memory *m)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return !m->imported && !fcntl(m->fd, F_OFD_GETLK, &l) &&
	       l.l_type != F_UNLCK;
}

bool mock_mapped(const void *at)
{
	struct driver_memory *m;
	bool is_mapped;

	pthread_mutex_lock(&lock);
	for (m = memories; m && (m->at != at || m->imported); m = m->next)
		;
	is_mapped = m && is_mapped_elsewhere(m);
	pthread_mutex_unlock(&lock);
	return is_mapped;
}

int driver_free(void *at, bool imported)
{
	struct driver_memory **m = &memories, *found;
	size_t bytes;
	int error;

	await_moment();
	pthread_mutex_lock(&lock);
	error = would_hang();
	if (error) {
		pthread_mutex_unlock(&lock);
		return error;
	}
	while (queued)
		pthread_cond_wait(&idle, &lock);
	while (*m && ((*m)->at != at || (*m)->imported != imported))
		m = &(*m)->next;
	found = *m;
	if (found) {
		*m = found->next;
		live--;
		early += is_mapped_elsewhere(found);
	}
	pthread_mutex_unlock(&lock);
	if (!found)
		return DRIVER_INVALID_VALUE;
	bytes = found->bytes + found->before;
	if (imported || !vacancy_leave(found->at - found->before, bytes))
		munmap(found->at - found->before, bytes);
	munmap(found->seen - found->before, bytes);
	close(found->fd);
	free(found);
	return DRIVER_SUCCESS;
}

/* Under the lock. */
static struct driver_memory *memory_at(const void *at)
{
	struct driver_memory *m = memories;
	const char *p = at;

	while (m && (p < m->at || p >= m->at + m->bytes))
		m = m->next;
	return m;
}

bool driver_find(const void *at, struct driver_memory *out)
{
	struct driver_memory *m;

	pthread_mutex_lock(&lock);
	m = memory_at(at);
	if (m)
		*out = *m;
	pthread_mutex_unlock(&lock);
	return m;
}

bool driver_sync(const void *at)
{
	struct driver_memory *m;

	pthread_mutex_lock(&lock);
	m = memory_at(at);
	if (m)
		m->synced = true;
	pthread_mutex_unlock(&lock);
	return m;
}

struct ipc {
	char magic[8];
	int pid, fd;
};

int driver_ipc_get(char handle[64], const void *at)
{
	struct ipc i = {.magic = "mockipc", .pid = getpid()};
	struct driver_memory m;

	if (!driver_find(at, &m) || m.imported || m.managed || at != m.at)
		return DRIVER_INVALID_VALUE;
	i.fd = m.fd;
	memset(handle, 0, 64);
	memcpy(handle, &i, sizeof(i));
	return DRIVER_SUCCESS;
}

int driver_import(int device, const char *path, void **at)
{
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return DRIVER_INVALID_VALUE;
	if (fstat(fd, &st) || !st.st_size) {
		close(fd);
		return DRIVER_INVALID_VALUE;
	}
	fcntl(fd, F_OFD_SETLK, &l);
	return memory_new(device, fd, (size_t)st.st_size, true, at);
}

int driver_ipc_open(int device, const char handle[64], void **at)
{
	char path[64];
	struct ipc i;

	memcpy(&i, handle, sizeof(i));
	if (memcmp(i.magic, "mockipc", 8))
		return DRIVER_INVALID_VALUE;
	/* Real drivers do not map memory where it already is. */
	if (i.pid == getpid())
		return DRIVER_INVALID_CONTEXT;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", i.pid, i.fd);
	return driver_import(device, path, at);
}

/* A real dma-buf, where the kernel can make one of memory of a file; elsewhere
 * the file itself, which can also be mapped. */
static int dmabuf_of(const struct driver_memory *m, size_t offset, size_t bytes)
{
	struct udmabuf_create u = {.memfd = (unsigned)m->fd,
				   .flags = UDMABUF_FLAGS_CLOEXEC,
				   .offset = offset,
				   .size = bytes};
	int maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd = -1;

	if (maker >= 0) {
		fd = ioctl(maker, UDMABUF_CREATE, &u);
		close(maker);
	}
	return fd >= 0 ? fd : fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
}

int driver_range_fd(int *fd, void *at, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct driver_memory m;
	char *p = at;

	if (!driver_find(p + CUT, &m) || m.managed || (uintptr_t)p % page ||
	    bytes % page || p < m.at - m.before || p + bytes > m.at + m.bytes)
		return DRIVER_INVALID_VALUE;
	*fd = dmabuf_of(&m, (size_t)(p - (m.at - m.before)), bytes);
	return *fd < 0 ? DRIVER_OUT_OF_MEMORY : DRIVER_SUCCESS;
}

/* Under the lock. */
static struct host_range **range_find(const void *at, size_t bytes)
{
	struct host_range **r = &ranges;
	const char *p = at;

	while (*r && (p < (*r)->at || p + bytes > (*r)->at + (*r)->bytes))
		r = &(*r)->next;
	return r;
}

static int range_new(void *at, size_t bytes, bool own)
{
	struct host_range *r = calloc(1, sizeof(*r));
	int error = DRIVER_SUCCESS;

	if (!r)
		return DRIVER_OUT_OF_MEMORY;
	*r = (struct host_range){.at = at, .bytes = bytes, .own = own};
	pthread_mutex_lock(&lock);
	if (*range_find(at, 1)) {
		error = DRIVER_ALREADY_REGISTERED;
		free(r);
	} else {
		r->next = ranges;
		ranges = r;
		live += !own;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

int driver_host_alloc(void **at, size_t bytes)
{
	void *p;
	int error;

	if (posix_memalign(&p, 4096, bytes))
		return DRIVER_OUT_OF_MEMORY;
	/* Nobody may rely on what is in it. */
	memset(p, 0xa5, bytes);
	error = range_new(p, bytes, true);
	if (error)
		free(p);
	else
		*at = p;
	return error;
}

/* As its page tables have it */
static bool is_writable(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	bool found = false, writable = false;
	char line[512], w;
	uint64_t from, to;

	while (f && !found && fgets(line, sizeof(line), f)) {
		found = sscanf(line, "%" SCNx64 "-%" SCNx64 " r%c", &from, &to,
			       &w) == 3 &&
			from <= (uintptr_t)at && (uintptr_t)at < to;
		writable = found && w == 'w';
	}
	if (f)
		fclose(f);
	return writable;
}

int driver_host_register(void *at, size_t bytes, bool read_only)
{
	if (read_only && !getenv("MOCK_READ_ONLY"))
		return DRIVER_NOT_SUPPORTED;
	if (!read_only && !is_writable(at))
		return DRIVER_INVALID_VALUE;
	return range_new(at, bytes, false);
}

int driver_host_unregister(void *at)
{
	struct host_range **r, *found = NULL;
	int error;

	await_moment();
	pthread_mutex_lock(&lock);
	error = would_hang();
	r = range_find(at, 1);
	if (!error && *r && (*r)->at == at && !(*r)->own) {
		found = *r;
		*r = found->next;
		live--;
	}
	pthread_mutex_unlock(&lock);
	if (!error && !found)
		error = DRIVER_NOT_REGISTERED;
	free(found);
	return error;
}

bool driver_host_known(const void *at, size_t bytes)
{
	bool known;

	pthread_mutex_lock(&lock);
	known = *range_find(at, bytes);
	pthread_mutex_unlock(&lock);
	return known;
}

bool driver_host_begins(const void *at)
{
	const struct host_range *r;
	bool begins;

	pthread_mutex_lock(&lock);
	r = *range_find(at, 1);
	begins = r && r->at == at;
	pthread_mutex_unlock(&lock);
	return begins;
}

bool driver_can_reach(int device, int other)
{
	return device != other && !getenv("MOCK_NO_PEERS");
}

int driver_reach(int device, int other)
{
	bool was;

	if (!driver_can_reach(device, other))
		return DRIVER_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	was = peers[device][other];
	peers[device][other] = true;
	pthread_mutex_unlock(&lock);
	return was ? DRIVER_PEER_ACCESS_ALREADY_ENABLED : DRIVER_SUCCESS;
}

static bool is_reached(int device)
{
	bool reached;

	pthread_mutex_lock(&lock);
	reached = running < 0 || running == device || peers[running][device];
	pthread_mutex_unlock(&lock);
	return reached;
}

void *driver_translate(uint64_t address, size_t bytes)
{
	char *at = (char *)(uintptr_t)address;
	struct driver_memory m;

	if (driver_find(at, &m))
		return at + bytes <= m.at + m.bytes && is_reached(m.device)
			       ? m.seen + (at - m.at)
			       : NULL;
	return driver_host_known(at, bytes) ? at : NULL;
}

/* ---- streams ---- */

static void nap(void)
{
	const struct timespec t = {.tv_nsec = POLL_NS};

	nanosleep(&t, NULL);
}

static void delay(unsigned most, unsigned *seed)
{
	unsigned us = most ? (unsigned)rand_r(seed) % most : 0;
	const struct timespec t = {.tv_sec = us / 1000000,
				   .tv_nsec = us % 1000000 * 1000};

	if (us)
		nanosleep(&t, NULL);
}

static void *stream_run(void *arg)
{
	struct driver_stream *s = arg;
	unsigned seed = (unsigned)(uintptr_t)s, most;
	struct work *w;
	int error;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!s->first && !s->dead)
			pthread_cond_wait(&s->change, &lock);
		w = s->first;
		if (!w)
			break;
		most = delay_us;
		pthread_mutex_unlock(&lock);
		delay(most, &seed);
		running = s->device;
		error = w->fn(w->arg);
		pthread_mutex_lock(&lock);
		if (error)
			states[s->device] = error;
		s->first = w->next;
		if (!s->first)
			s->last = &s->first;
		if (--queued == 0)
			pthread_cond_broadcast(&idle);
		w->of->pending--;
		free(w);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* With a queue of its own, where it is given none */
static int stream_new(int device, struct driver_stream *queue,
		      struct driver_stream **out)
{
	struct driver_stream *s = calloc(1, sizeof(*s));
	pthread_attr_t detached;
	pthread_t thread;
	int error;

	if (!s)
		return DRIVER_OUT_OF_MEMORY;
	s->device = device;
	s->queue = queue ? queue : s;
	s->last = &s->first;
	pthread_cond_init(&s->change, NULL);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	error = queue ? 0 : pthread_create(&thread, &detached, stream_run, s);
	pthread_attr_destroy(&detached);
	if (error) {
		free(s);
		return DRIVER_OUT_OF_MEMORY;
	}
	s->next = streams;
	streams = s;
	*out = s;
	return DRIVER_SUCCESS;
}

/* Under the lock. The one of all streams of a device; or NULL */
static int queue_get(int device, struct driver_stream **queue)
{
	int error = DRIVER_SUCCESS;

	*queue = NULL;
	if (!getenv("MOCK_ONE_QUEUE"))
		return error;
	if (!defaults[device])
		error = stream_new(device, NULL, &defaults[device]);
	*queue = defaults[device];
	return error;
}

int driver_stream_create(int device, struct driver_stream **s)
{
	struct driver_stream *queue;
	int error;

	pthread_mutex_lock(&lock);
	error = queue_get(device, &queue);
	if (!error)
		error = stream_new(device, queue, s);
	if (!error)
		live++;
	pthread_mutex_unlock(&lock);
	return error;
}

int driver_stream_keep(int device, struct driver_stream **s)
{
	int error;

	pthread_mutex_lock(&lock);
	error = stream_new(device, NULL, s);
	pthread_mutex_unlock(&lock);
	return error;
}

void *mock_stream(int device)
{
	struct driver_stream *s = NULL;

	return driver_stream_create(device, &s) ? NULL : s;
}

void mock_stream_destroy(void *stream)
{
	driver_stream_destroy(stream);
}

/* Under the lock. */
static bool exists(const struct driver_stream *s)
{
	for (struct driver_stream *k = streams; k; k = k->next)
		if (k == s)
			return !k->dead;
	return false;
}

int driver_stream_destroy(struct driver_stream *s)
{
	bool was;

	pthread_mutex_lock(&lock);
	was = exists(s);
	if (was) {
		s->dead = true;
		live--;
		pthread_cond_broadcast(&s->change);
	}
	pthread_mutex_unlock(&lock);
	return was ? DRIVER_SUCCESS : DRIVER_INVALID_HANDLE;
}

int driver_stream_device(struct driver_stream *s)
{
	int device;

	pthread_mutex_lock(&lock);
	device = exists(s) ? s->device : -1;
	pthread_mutex_unlock(&lock);
	return device;
}

int driver_state(int device)
{
	int state;

	pthread_mutex_lock(&lock);
	state = states[device];
	pthread_mutex_unlock(&lock);
	return state;
}

/* Under the lock. */
static int stream_find(struct driver_stream **s, int device)
{
	if (!*s && captures_blocking) {
		fprintf(stderr, "mock: this spoils a graph\n");
		hangs++;
		return DRIVER_CAPTURE_IMPLICIT;
	}
	if (!*s && !defaults[device]) {
		int error = stream_new(device, NULL, &defaults[device]);

		if (error)
			return error;
	}
	if (!*s)
		*s = defaults[device];
	if (!exists(*s) || (*s)->device != device)
		return DRIVER_INVALID_HANDLE;
	return states[device];
}

int driver_push(struct driver_stream *s, int device, int (*fn)(void *arg),
		void *arg)
{
	struct work *w;
	int error;

	if (graph_state(s) != GRAPH_NONE)
		return graph_spoil(s);
	w = calloc(1, sizeof(*w));
	if (!w)
		return DRIVER_OUT_OF_MEMORY;
	w->fn = fn;
	w->arg = arg;
	pthread_mutex_lock(&lock);
	error = stream_find(&s, device);
	if (!error) {
		w->of = s;
		s->pending++;
		s = s->queue;
		*s->last = w;
		s->last = &w->next;
		queued++;
		pthread_cond_broadcast(&s->change);
	}
	pthread_mutex_unlock(&lock);
	if (error)
		free(w);
	return error;
}

int driver_push_new(struct driver_stream *s, int device, int (*fn)(void *arg),
		    const void *arg, size_t bytes)
{
	void *copy;
	int error;

	if (graph_state(s) != GRAPH_NONE)
		return graph_take(s, device, fn, arg, bytes);
	copy = malloc(bytes);
	if (!copy)
		return DRIVER_OUT_OF_MEMORY;
	memcpy(copy, arg, bytes);
	error = driver_push(s, device, fn, copy);
	if (error)
		free(copy);
	return error;
}

/* ---- events ---- */

struct place {
	struct driver_event *event;
	uint64_t number;
};

/* Under the lock. */
static bool event_exists(const struct driver_event *e)
{
	for (struct driver_event *k = events; k; k = k->next)
		if (k == e)
			return !k->dead;
	return false;
}

int driver_event_create(int device, struct driver_event **out)
{
	struct driver_event *e = calloc(1, sizeof(*e));

	if (!e)
		return DRIVER_OUT_OF_MEMORY;
	e->device = device;
	pthread_mutex_lock(&lock);
	e->next = events;
	events = e;
	live++;
	pthread_mutex_unlock(&lock);
	*out = e;
	return DRIVER_SUCCESS;
}

int driver_event_destroy(struct driver_event *e)
{
	bool was;

	pthread_mutex_lock(&lock);
	was = event_exists(e);
	if (was) {
		e->dead = true;
		live--;
	}
	pthread_mutex_unlock(&lock);
	return was ? DRIVER_SUCCESS : DRIVER_INVALID_HANDLE;
}

static int reach(void *arg)
{
	struct place *p = arg;

	pthread_mutex_lock(&lock);
	if (p->event->reached < p->number)
		p->event->reached = p->number;
	pthread_mutex_unlock(&lock);
	free(p);
	return DRIVER_SUCCESS;
}

/* Of a stream without work it is reached at once, even where the queue is not
 * empty: drivers make no work of that. */
int driver_event_record(struct driver_event *e, struct driver_stream *s,
			int device)
{
	struct place p = {.event = e};
	int error = DRIVER_INVALID_HANDLE;
	bool idle_stream = false;

	if (graph_state(s) != GRAPH_NONE) {
		pthread_mutex_lock(&lock);
		error = event_exists(e) ? graph_record(s, &e->mark) : error;
		pthread_mutex_unlock(&lock);
		return error;
	}
	pthread_mutex_lock(&lock);
	if (event_exists(e) && e->device == device) {
		e->mark.capture = 0;
		p.number = e->wanted + 1;
		error = stream_find(&s, device);
		idle_stream = !error && !s->pending;
	}
	if (idle_stream)
		e->wanted = e->reached = p.number;
	pthread_mutex_unlock(&lock);
	if (!error && !idle_stream)
		error = driver_push_new(s, device, reach, &p, sizeof(p));
	if (error || idle_stream)
		return error;
	pthread_mutex_lock(&lock);
	e->wanted = p.number;
	pthread_mutex_unlock(&lock);
	return DRIVER_SUCCESS;
}

int driver_event_query(struct driver_event *e)
{
	int error;

	pthread_mutex_lock(&lock);
	if (!event_exists(e))
		error = DRIVER_INVALID_HANDLE;
	else if (states[e->device])
		error = states[e->device];
	else if (e->mark.capture)
		error = DRIVER_CAPTURED_EVENT;
	else
		error = spoils();
	if (!error && e->reached < e->wanted)
		error = DRIVER_NOT_READY;
	pthread_mutex_unlock(&lock);
	return error;
}

static int wait_place(void *arg)
{
	struct place *p = arg;

	for (;;) {
		bool reached;

		pthread_mutex_lock(&lock);
		reached = p->event->reached >= p->number;
		pthread_mutex_unlock(&lock);
		if (reached)
			break;
		nap();
	}
	free(p);
	return DRIVER_SUCCESS;
}

int driver_event_wait(struct driver_stream *s, int device,
		      struct driver_event *e)
{
	struct place p = {.event = e};
	int error = DRIVER_INVALID_HANDLE;
	bool joins = false;

	pthread_mutex_lock(&lock);
	if (event_exists(e)) {
		p.number = e->wanted;
		joins = e->mark.capture || graph_state(s) != GRAPH_NONE;
		error = joins ? graph_join(s, &e->mark) : DRIVER_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	if (joins)
		return error;
	return error ? error
		     : driver_push_new(s, device, wait_place, &p, sizeof(p));
}

/* ---- work ---- */

static int wait_hold(void *arg)
{
	struct hold *h = arg, **at = &holds;

	/* Of a device that has failed, nothing waits. */
	while (is_held(h) && !driver_state(running))
		nap();
	pthread_mutex_lock(&lock);
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	pthread_mutex_unlock(&lock);
	free(h);
	return DRIVER_SUCCESS;
}

int driver_wait_value(struct driver_stream *s, int device, void *word,
		      uint32_t value)
{
	struct hold *h = calloc(1, sizeof(*h)), **at = &holds;
	int error;

	if (!h)
		return DRIVER_OUT_OF_MEMORY;
	h->word = driver_translate((uintptr_t)word, 4);
	h->value = value;
	if (graph_state(s) != GRAPH_NONE) {
		free(h);
		return graph_spoil(s);
	}
	if (!h->word || (uintptr_t)word % 4) {
		free(h);
		return DRIVER_INVALID_VALUE;
	}
	pthread_mutex_lock(&lock);
	h->next = holds;
	holds = h;
	pthread_mutex_unlock(&lock);
	error = driver_push(s, device, wait_hold, h);
	if (!error) {
		pthread_mutex_lock(&lock);
		waits++;
		pthread_mutex_unlock(&lock);
	} else {
		pthread_mutex_lock(&lock);
		while (*at != h)
			at = &(*at)->next;
		*at = h->next;
		pthread_mutex_unlock(&lock);
		free(h);
	}
	return error;
}

void driver_hold(void *word, uint32_t value)
{
	struct hold *h = calloc(1, sizeof(*h));

	h->word = word;
	h->value = value;
	pthread_mutex_lock(&lock);
	h->next = holds;
	holds = h;
	pthread_mutex_unlock(&lock);
	wait_hold(h);
}

/* A device that has failed does nothing more. */
void driver_store(void *word, uint32_t value)
{
	if (!driver_state(running))
		atomic_store((_Atomic uint32_t *)word, value);
}

void driver_call_back(void (*fn)(void *arg), void *arg)
{
	int was = running;

	running = 0;
	fn(arg);
	running = was;
}

struct write {
	_Atomic uint32_t *word;
	uint32_t value;
	bool lost;
};

/* A device that has failed does nothing more. */
static int do_write(void *arg)
{
	struct write *w = arg;

	if (!w->lost && !driver_state(running))
		atomic_store(w->word, w->value);
	free(w);
	return DRIVER_SUCCESS;
}

int driver_write_value(struct driver_stream *s, int device, void *word,
		       uint32_t value)
{
	const char *how = getenv("MOCK_WRITES");
	struct write w = {.word = driver_translate((uintptr_t)word, 4),
			  .value = value,
			  .lost = how && !strcmp(how, "lost")};
	int error;

	if (how && !strcmp(how, "refused"))
		return DRIVER_NOT_SUPPORTED;
	if (graph_state(s) != GRAPH_NONE)
		return graph_spoil(s);
	if (!w.word || (uintptr_t)word % 4)
		return DRIVER_INVALID_VALUE;
	error = driver_push_new(s, device, do_write, &w, sizeof(w));
	pthread_mutex_lock(&lock);
	writes += !error;
	pthread_mutex_unlock(&lock);
	return error;
}

struct copy {
	void *dst;
	const void *src;
	size_t bytes;
};

/* Of a device, or of the host: drivers copy what is not pinned as well. */
static void *reached(const void *at, size_t bytes)
{
	struct driver_memory m;

	if (driver_find(at, &m))
		return driver_translate((uintptr_t)at, bytes);
	return (void *)(uintptr_t)at;
}

static int do_copy(void *arg)
{
	struct copy *c = arg;
	void *dst = reached(c->dst, c->bytes);
	void *src = reached(c->src, c->bytes);

	if (dst && src)
		memmove(dst, src, c->bytes);
	free(c);
	return dst && src ? DRIVER_SUCCESS : DRIVER_ILLEGAL_ADDRESS;
}

int driver_copy(struct driver_stream *s, int device, void *dst, const void *src,
		size_t bytes)
{
	const struct copy c = {.dst = dst, .src = src, .bytes = bytes};

	return driver_push_new(s, device, do_copy, &c, sizeof(c));
}
