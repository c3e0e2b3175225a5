/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-memory attach: one copy out of another process by the kernel.
 *
 * The receiver reads; nobody ever writes the memory of another process. The
 * kernel pins and maps each page, which often costs more than a second copy
 * through a cached ring, so that is measured before it is used.
 */
#include "transports/shm/shm.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"

#define SAMPLE_BYTES (256u << 10)
#define PIECE_BYTES (64u << 10)
#define RING_BYTES (32u << 10)
#define TRIES 3
/* Between two looks at the abort flag. */
#define READ_BYTES (1u << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t cma_rate, copy_rate;

/* One call reads the nonce of the segment's owner and the data, so both are of
 * the same process: a recycled pid is noticed. */
static ssize_t read_checked(const struct shm_segment *seg, uint64_t addr,
			    void *dst, uint64_t len)
{
	uint64_t nonce = 0;
	struct iovec local[2] = {
		{.iov_base = &nonce, .iov_len = sizeof(nonce)},
		{.iov_base = dst, .iov_len = len},
	};
	struct iovec remote[2] = {
		{.iov_base = (void *)(uintptr_t)seg->head->probe,
		 .iov_len = sizeof(nonce)},
		{.iov_base = (void *)(uintptr_t)addr, .iov_len = len},
	};
	ssize_t n = process_vm_readv(seg->pid, local, 2, remote, 2, 0);

	if (n < 0)
		return -1;
	if (n < (ssize_t)sizeof(nonce) || nonce != seg->nonce[0]) {
		errno = ESRCH;
		return -1;
	}
	return n - (ssize_t)sizeof(nonce);
}

bool shm_cma_works(const struct shm_segment *seg)
{
	uint64_t nonce = 0;

	return read_checked(seg, seg->head->probe, &nonce, sizeof(nonce)) ==
		       (ssize_t)sizeof(nonce) &&
	       nonce == seg->nonce[0];
}

dicomm_result_t shm_cma_read(const struct shm_segment *seg, uint64_t addr,
			     void *dst, uint64_t len,
			     const _Atomic bool *aborted)
{
	uint8_t *to = dst;

	while (len) {
		uint64_t piece = len < READ_BYTES ? len : READ_BYTES;
		ssize_t n;

		if (atomic_load_explicit(aborted, memory_order_relaxed))
			return DICOMM_ERR_ABORTED;
		n = read_checked(seg, addr, to, piece);
		if (n <= 0) {
			if (n == 0)
				errno = EFAULT;
			return FAIL(DICOMM_ERR_REMOTE,
				    "shm: read %" PRIu64
				    " bytes of rank %" PRIu32
				    " (process %d): %m",
				    piece, seg->head->rank, seg->pid);
		}
		addr += (uint64_t)n;
		to += n;
		len -= (uint64_t)n;
	}
	return DICOMM_SUCCESS;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* This process reads itself: the kernel takes the same way. */
static bool copy_by_cma(uint8_t *dst, uint8_t *src)
{
	for (size_t at = 0; at < SAMPLE_BYTES; at += PIECE_BYTES) {
		struct iovec local = {dst + at, PIECE_BYTES};
		struct iovec remote = {src + at, PIECE_BYTES};

		if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) !=
		    (ssize_t)PIECE_BYTES)
			return false;
	}
	return true;
}

/* Two copies, as the two sides of a ring do at the same time. */
static void copy_by_ring(uint8_t *dst, const uint8_t *src, uint8_t *ring)
{
	for (size_t at = 0; at < SAMPLE_BYTES; at += RING_BYTES) {
		memcpy(ring, src + at, RING_BYTES);
		__asm__ volatile("" : : "r"(ring) : "memory");
		memcpy(dst + at, ring, RING_BYTES);
	}
}

static uint64_t rate(uint64_t bytes, uint64_t ns)
{
	return bytes * 1000000000u / (ns ? ns : 1);
}

static void measure(void)
{
	const size_t len = 2 * SAMPLE_BYTES + RING_BYTES;
	uint64_t cma_ns = UINT64_MAX, ring_ns = UINT64_MAX;
	bool works = true;
	uint8_t *src;

	copy_rate = 10000000000u; /* if nothing can be measured */
	src = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (src == MAP_FAILED)
		return;
	memset(src, 1, len);
	/* The least of a few, so that an interruption does not count. */
	for (int i = 0; i < TRIES; i++) {
		uint8_t *dst = src + SAMPLE_BYTES, *ring = dst + SAMPLE_BYTES;
		uint64_t start = now_ns(), middle, end;

		copy_by_ring(dst, src, ring);
		middle = now_ns();
		works = works && copy_by_cma(dst, src);
		end = now_ns();
		if (middle - start < ring_ns)
			ring_ns = middle - start;
		if (end - middle < cma_ns)
			cma_ns = end - middle;
	}
	munmap(src, len);
	copy_rate = rate(2 * SAMPLE_BYTES, ring_ns);
	cma_rate = works ? rate(SAMPLE_BYTES, cma_ns) : 0;
	log_debug("shm: copies %" PRIu64 " MB/s, cma %" PRIu64 " MB/s",
		  copy_rate / 1000000, cma_rate / 1000000);
}

void shm_cma_rates(uint64_t *cma, uint64_t *copy)
{
	pthread_once(&once, measure);
	*cma = cma_rate;
	*copy = copy_rate;
}

/* The two copies of a ring run at the same time on two cores, so it moves as
 * fast as one of them. */
bool shm_cma_pays(void)
{
	uint64_t cma, copy;

	shm_cma_rates(&cma, &copy);
	return cma > copy;
}
