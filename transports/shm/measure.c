/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how fast data gets here from another core.
 *
 * A short-lived thread on another core plays the sender. First a cache line
 * bounces between the two. Then the thread fills a buffer, and this thread
 * reads it with loads (as from a ring) and by CMA. Two cores are needed, since
 * one core would measure its own cache. It takes half a millisecond. If the
 * other core is busy for too long, the rates stay unknown.
 *
 * Ranks start at the same time, and their threads would share cores. So one
 * process of the machine at a time measures, and of the ranks of a communicator
 * only the first that comes. The others take the rates that it puts into its
 * address, as does a process that does not get its turn in time.
 */
#include "transports/shm/measure.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "src/base/descriptors.h"
#include "src/base/log.h"
#include "src/base/thread.h"

#define LINE 128
#define PART_BYTES (32u << 10)
#define PARTS 2
#define BATCHES 8
#define BOUNCES 16 /* in a batch */
#define FILLS 4    /* for each way to read */
#define BOUND_NS 3000000u
#define STOP UINT32_MAX
#define TURN_NS 8000000u /* how long a process waits for its turn */
#define ATTEMPTS 3       /* if the other core is busy */
/* Names of sockets that only one socket of the machine can have until it is
 * closed: of the process that measures now, and of the one that does so for a
 * communicator, the latter with a hash of its key. */
#define NAME "dicomm measures"

struct duo {
	_Atomic uint32_t ping __attribute__((aligned(LINE)));
	_Atomic uint32_t pong __attribute__((aligned(LINE)));
	uint64_t deadline_ns __attribute__((aligned(LINE)));
	uint64_t fill_ns, own_ns; /* of the sender, handed over by `pong` */
	uint8_t own[PARTS * PART_BYTES] __attribute__((aligned(4096)));
	uint8_t source[PARTS * PART_BYTES] __attribute__((aligned(4096)));
	uint8_t copy[PARTS * PART_BYTES] __attribute__((aligned(4096)));
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct shm_rates measured; /* constant once it is found */
static _Atomic bool is_found;
/* The socket by which this process measures for a communicator; -1: none */
static _Atomic int job = -1;
static const uint8_t *key_now; /* of the call of shm_measure() that measures */

enum { NOT_TOLD, BEING_TOLD, TOLD };
static struct shm_rates told; /* rates of the first peer that knows them */
static _Atomic int telling = NOT_TOLD;

/* A typical machine, on which CMA does not pay. */
static const struct shm_rates guess = {
	.line_ps = 100000,
	.fill_bytes_per_s = UINT64_C(10000000000),
	.load_bytes_per_s = UINT64_C(10000000000),
	.own_bytes_per_s = UINT64_C(10000000000),
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Wait until *word is `value`. Returns false if it is STOP, or if time is
 * up. */
static bool await(struct duo *d, _Atomic uint32_t *word, uint32_t value)
{
	for (uint32_t turns = 1;; turns++) {
		uint32_t found =
			atomic_load_explicit(word, memory_order_acquire);

		if (found == value)
			return true;
		if (found == STOP ||
		    (turns % 256 == 0 && now_ns() > d->deadline_ns))
			return false;
	}
}

/* Copy in parts, as a ring is filled and emptied. Some processors copy
 * longer ranges in another way, which is slower into lines that another core
 * has in cache. */
static void copy_parts(uint8_t *to, const uint8_t *from)
{
	for (size_t at = 0; at < PARTS * PART_BYTES; at += PART_BYTES)
		memcpy(to + at, from + at, PART_BYTES);
}

/* The thread on the other core. Rounds are numbered; those after the bounces
 * fill the source. */
static void *sender(void *arg)
{
	struct duo *d = arg;

	for (uint32_t k = 1; await(d, &d->ping, k); k++) {
		if (k > BATCHES * BOUNCES) {
			uint64_t start = now_ns();

			/* The receiver has these lines in its cache, as it has
			 * those of a ring. */
			copy_parts(d->source, d->own);
			d->fill_ns = now_ns() - start;
			start = now_ns();
			copy_parts(d->source, d->own);
			d->own_ns = now_ns() - start;
		}
		atomic_store_explicit(&d->pong, k, memory_order_release);
	}
	return NULL;
}

static bool round_trip(struct duo *d, uint32_t k)
{
	atomic_store_explicit(&d->ping, k, memory_order_release);
	return await(d, &d->pong, k);
}

static bool bounce(struct duo *d, uint64_t *line_ps)
{
	uint64_t least_ns = UINT64_MAX;
	uint32_t k = 1;

	for (int b = 0; b < BATCHES; b++) {
		uint64_t start = now_ns();

		for (int i = 0; i < BOUNCES; i++)
			if (!round_trip(d, k++))
				return false;
		if (now_ns() - start < least_ns)
			least_ns = now_ns() - start;
	}
	*line_ps = least_ns * 1000 / (2 * BOUNCES);
	return true;
}

static void least(uint64_t *least_ns, uint64_t start)
{
	uint64_t ns = now_ns() - start;

	if (ns < *least_ns)
		*least_ns = ns;
}

static void load_all(struct duo *d, uint64_t *least_ns)
{
	uint64_t start = now_ns();

	copy_parts(d->copy, d->source);
	__asm__ volatile("" : : "r"(d->copy) : "memory");
	least(least_ns, start);
}

/* Read by CMA, and keep the least time. Reads this process; the kernel does the
 * same work for another. Returns false if CMA is forbidden. */
static bool cma_read(struct duo *d, size_t bytes, uint64_t *least_ns)
{
	struct iovec local = {d->copy, bytes}, remote = {d->source, bytes};
	uint64_t start = now_ns();

	if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) !=
	    (ssize_t)bytes)
		return false;
	least(least_ns, start);
	return true;
}

static uint64_t rate(uint64_t ns)
{
	return UINT64_C(1000000000) * PARTS * PART_BYTES / (ns ? ns : 1);
}

/* Measure fills, loads and CMA, from round k on. After each fill the bytes are
 * in the sender's cache, as in a ring. A sender's own memory, which CMA reads,
 * may or may not be in its cache. So half of the reads by CMA follow a fill,
 * and half follow another read. */
static bool fetch(struct duo *d, uint32_t k, struct shm_rates *r)
{
	uint64_t fill_ns = UINT64_MAX, load_ns = UINT64_MAX;
	uint64_t own_ns = UINT64_MAX;
	uint64_t cma_ns = UINT64_MAX, again_ns = UINT64_MAX;
	uint64_t call_ns = UINT64_MAX;
	bool cma = true;

	for (int i = 0; i < 2 * FILLS; i++) {
		if (!round_trip(d, k++))
			return false;
		/* The first fill does not count: the receiver has none of the
		 * lines yet. */
		if (i && d->fill_ns < fill_ns)
			fill_ns = d->fill_ns;
		if (d->own_ns < own_ns)
			own_ns = d->own_ns;
		if (i < FILLS)
			load_all(d, &load_ns);
		else
			cma = cma && cma_read(d, sizeof(d->copy), &cma_ns) &&
			      cma_read(d, sizeof(d->copy), &again_ns) &&
			      cma_read(d, LINE, &call_ns);
	}
	r->fill_bytes_per_s = rate(fill_ns);
	r->load_bytes_per_s = rate(load_ns);
	r->own_bytes_per_s = rate(own_ns);
	if (cma && (cma_ns + again_ns) / 2 > call_ns) {
		r->cma_bytes_per_s = rate((cma_ns + again_ns) / 2 - call_ns);
		r->cma_ps = call_ns * 1000;
	}
	return true;
}

/* Find all CPUs that this thread may use except this one. If there is no other,
 * take all CPUs of the machine, since its peers run on others. */
static bool other_cpus(cpu_set_t *all, cpu_set_t *others)
{
	size_t cpu = (size_t)sched_getcpu();

	if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(*all), all) < 0)
		return false;
	*others = *all;
	CPU_CLR(cpu, others);
	if (CPU_COUNT(others))
		return true;
	memset(others, 0xff, sizeof(*others));
	CPU_CLR(cpu, others);
	return true;
}

static void run(struct duo *d)
{
	const uint32_t fills = BATCHES * BOUNCES + 1;
	struct shm_rates r = {0};
	cpu_set_t all, others;
	pthread_t thread;
	bool done;

	d->deadline_ns = now_ns() + BOUND_NS;
	if (!other_cpus(&all, &others) ||
	    thread_start(&thread, "dicomm-measure", sender, d))
		return;
	done = !pthread_setaffinity_np(thread, sizeof(others), &others) &&
	       bounce(d, &r.line_ps) && fetch(d, fills, &r);
	atomic_store(&d->ping, STOP);
	/* Another program may never yield the thread's core. Let the thread run
	 * on any, so that the join ends. */
	(void)pthread_setaffinity_np(thread, sizeof(all), &all);
	pthread_join(thread, NULL);
	if (done)
		measured = r;
}

static int make_socket(void)
{
	return descriptors_high(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static bool take_name(int fd, const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "%s", name);
	return !bind(fd, (struct sockaddr *)&at, sizeof(at));
}

/* Returns true unless another rank of the communicator measures or has
 * measured. Then this process has the name until shm_measure_end(). */
static bool take_job(void)
{
	char name[sizeof(NAME) + 20];
	uint64_t hash = 0;
	int fd = make_socket();

	crypto_generichash((uint8_t *)&hash, sizeof(hash), key_now,
			   SHM_MEASURE_KEY, (const uint8_t *)NAME,
			   sizeof(NAME));
	snprintf(name, sizeof(name), NAME " %016" PRIx64, hash);
	if (fd >= 0 && !take_name(fd, name) && errno == EADDRINUSE) {
		close(fd);
		return false;
	}
	atomic_store(&job, fd);
	return true;
}

/* Waits for this process's turn. Returns the socket, or -1 if there is no turn
 * in time. */
static int take_turn(void)
{
	uint64_t end = now_ns() + TURN_NS;
	struct timespec nap = {0, 100000};
	int fd = make_socket();

	while (fd >= 0 && !take_name(fd, NAME)) {
		if (errno != EADDRINUSE || now_ns() > end) {
			close(fd);
			return -1;
		}
		nanosleep(&nap, NULL);
	}
	return fd;
}

static void measure_now(void)
{
	int turn = take_turn();
	struct duo *d;

	if (turn < 0)
		return;
	d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (d != MAP_FAILED) {
		memset(d->copy, 1, sizeof(d->copy));
		memset(d->own, 2, sizeof(d->own));
		for (int i = 0; i < ATTEMPTS && !measured.line_ps; i++)
			run(d);
		munmap(d, sizeof(*d));
	}
	close(turn);
	log_debug("shm: a line takes %" PRIu64 " ps, fills %" PRIu64
		  " MB/s, or %" PRIu64 " MB/s of what a core has, loads "
		  "%" PRIu64 " MB/s, cma %" PRIu64 " MB/s and %" PRIu64 " ns",
		  measured.line_ps, measured.fill_bytes_per_s / 1000000,
		  measured.own_bytes_per_s / 1000000,
		  measured.load_bytes_per_s / 1000000,
		  measured.cma_bytes_per_s / 1000000, measured.cma_ps / 1000);
}

static void measure(void)
{
	if (!key_now || take_job())
		measure_now();
	atomic_store(&is_found, true);
}

void shm_measure(const uint8_t *key, struct shm_rates *out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&lock);
	key_now = key;
	pthread_once(&once, measure);
	pthread_mutex_unlock(&lock);
	*out = measured;
}

void shm_measure_end(void)
{
	int fd = atomic_exchange(&job, -1);

	if (fd >= 0)
		close(fd);
}

void shm_rates_tell(const struct shm_rates *rates)
{
	int not_told = NOT_TOLD;

	if (!rates->line_ps || !rates->fill_bytes_per_s ||
	    !rates->load_bytes_per_s || !rates->own_bytes_per_s)
		return;
	if (!atomic_compare_exchange_strong(&telling, &not_told, BEING_TOLD))
		return;
	told = *rates;
	atomic_store(&telling, TOLD);
}

void shm_rates_get(struct shm_rates *out)
{
	if (atomic_load(&is_found) && measured.line_ps)
		*out = measured;
	else
		*out = atomic_load(&telling) == TOLD ? told : guess;
}
