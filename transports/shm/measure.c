/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast data gets here from another core.
 *
 * A short-lived thread on another core plays the sender: it bounces a cache
 * line, and fills a buffer that this thread then reads with loads, as from a
 * ring, and by CMA. One core alone cannot tell: its own cache answers. Half a
 * millisecond, and a bound if the other core is busy; then nothing is known.
 */
#include "transports/shm/shm.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"

#define LINE 128
#define PART_BYTES (32u << 10)
#define PARTS 4
#define BATCHES 8
#define BOUNCES 16 /* in a batch */
#define FILLS 4    /* of each kind */
#define BOUND_NS 3000000u
#define STOP UINT32_MAX

struct duo {
	_Atomic uint32_t ping __attribute__((aligned(LINE)));
	_Atomic uint32_t pong __attribute__((aligned(LINE)));
	uint64_t deadline_ns __attribute__((aligned(LINE)));
	uint64_t fill_ns; /* sender's, handed over by pong */
	uint8_t own[PARTS * PART_BYTES] __attribute__((aligned(4096)));
	uint8_t source[PARTS * PART_BYTES] __attribute__((aligned(4096)));
	uint8_t copy[PARTS * PART_BYTES] __attribute__((aligned(4096)));
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Until measured: a machine of today, on which CMA does not pay. */
static struct shm_rates rates = {
	.line_ps = 100000,
	.load_bytes_per_s = UINT64_C(10000000000),
	.ring_bytes_per_s = UINT64_C(10000000000),
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Until *word is `value` (true), STOP or too late. */
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

/* Rounds are numbered; those after the bounces fill the source. */
static void *sender(void *arg)
{
	struct duo *d = arg;

	for (uint32_t k = 1; await(d, &d->ping, k); k++) {
		if (k > BATCHES * BOUNCES) {
			uint64_t start = now_ns();

			/* Lines that the receiver has, as those of a ring. */
			memcpy(d->source, d->own, sizeof(d->source));
			d->fill_ns = now_ns() - start;
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

static bool copy_all(struct duo *d, bool cma)
{
	struct iovec local = {d->copy, sizeof(d->copy)};
	struct iovec remote = {d->source, sizeof(d->source)};

	if (cma) /* of this process: the kernel takes the same way */
		return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
		       (ssize_t)sizeof(d->copy);
	memcpy(d->copy, d->source, sizeof(d->copy));
	__asm__ volatile("" : : "r"(d->copy) : "memory");
	return true;
}

static uint64_t rate(uint64_t ns)
{
	return UINT64_C(1000000000) * PARTS * PART_BYTES / (ns ? ns : 1);
}

/* Once after each fill: then it is in this core's cache. */
static bool fetch(struct duo *d, uint32_t k, bool cma, uint64_t *bytes_per_s,
		  uint64_t *ring_bytes_per_s)
{
	uint64_t load_ns = UINT64_MAX, fill_ns = UINT64_MAX;

	for (int i = 0; i < FILLS; i++) {
		uint64_t start, ns;

		if (!round_trip(d, k++))
			return false;
		/* The first fill finds no lines of the receiver. */
		if (i && d->fill_ns < fill_ns)
			fill_ns = d->fill_ns;
		start = now_ns();
		if (!copy_all(d, cma))
			return true; /* forbidden: rate 0 */
		ns = now_ns() - start;
		if (ns < load_ns)
			load_ns = ns;
	}
	*bytes_per_s = rate(load_ns);
	/* The two copies of a ring run at the same time. */
	if (ring_bytes_per_s)
		*ring_bytes_per_s = rate(load_ns > fill_ns ? load_ns : fill_ns);
	return true;
}

/* Any CPU but this one, of those that this thread may use; of all if that is
 * the only one, since its peers are on others then. */
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
	    pthread_create(&thread, NULL, sender, d))
		return;
	done = !pthread_setaffinity_np(thread, sizeof(others), &others) &&
	       bounce(d, &r.line_ps) &&
	       fetch(d, fills, false, &r.load_bytes_per_s,
		     &r.ring_bytes_per_s) &&
	       fetch(d, fills + FILLS, true, &r.cma_bytes_per_s, NULL);
	atomic_store(&d->ping, STOP);
	/* A core that somebody else never gives up must not hold us here. */
	(void)pthread_setaffinity_np(thread, sizeof(all), &all);
	pthread_join(thread, NULL);
	if (done)
		rates = r;
}

static void measure(void)
{
	struct duo *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (d == MAP_FAILED)
		return;
	memset(d->copy, 1, sizeof(d->copy));
	memset(d->own, 2, sizeof(d->own));
	run(d);
	munmap(d, sizeof(*d));
	log_debug("shm: a line takes %" PRIu64 " ps, loads %" PRIu64
		  " MB/s, rings %" PRIu64 " MB/s, cma %" PRIu64 " MB/s",
		  rates.line_ps, rates.load_bytes_per_s / 1000000,
		  rates.ring_bytes_per_s / 1000000,
		  rates.cma_bytes_per_s / 1000000);
}

void shm_measure(struct shm_rates *out)
{
	pthread_once(&once, measure);
	*out = rates;
}
