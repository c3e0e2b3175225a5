/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-memory attach (CMA): the kernel copies once, out of another process.
 *
 * The receiver reads; no process ever writes the memory of another. The kernel
 * pins and maps each page, and this often costs more than a second copy through
 * a ring that stays in cache. So CMA is used only where measure.c finds that it
 * is faster.
 */
#include "transports/shm/cma.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/uio.h>

#include "src/base/log.h"
#include "transports/shm/measure.h"
#include "transports/shm/segment.h"

/* Bytes to read between two looks at the abort flag. */
#define READ_BYTES (1u << 20)
/* Shorter messages are not considered. */
#define LEAST_BYTES 1024
/* A message of an operation goes through a ring in four slices, of at least
 * this and at most twice this many bytes. The receiver can begin when the first
 * one is copied in. */
#define SLICE_BYTES 16384

static double bytes_s(uint64_t len, uint64_t bytes_per_s)
{
	return (double)len / (double)bytes_per_s;
}

/* Returns the seconds that a message takes through the ring. Ranks that send
 * and receive at the same time make both copies of their rings one after the
 * other. If one side sends at a time, the two copies overlap, except for the
 * first slice. Each slice costs the time of a line. Unless only one side ever
 * sends, it has the lines of its buffers (exchange.h). */
static double ring_s(const struct shm_rates *r, enum shm_traffic traffic,
		     uint64_t len)
{
	uint64_t fill = traffic == SHM_ONE_WAY ? r->fill_bytes_per_s
					       : r->own_bytes_per_s;
	uint64_t load = r->load_bytes_per_s;
	uint64_t slice = len / 4, slices;

	if (traffic == SHM_BOTH_WAYS)
		return bytes_s(len, fill) + bytes_s(len, load);
	if (slice > 2 * SLICE_BYTES)
		slice = 2 * SLICE_BYTES;
	if (slice < SLICE_BYTES)
		slice = len < SLICE_BYTES ? len : SLICE_BYTES;
	slices = (len + slice - 1) / slice;
	return bytes_s(slice, fill > load ? fill : load) +
	       bytes_s(len, fill < load ? fill : load) +
	       (double)slices * (double)r->line_ps * 1e-12;
}

static double cma_s(const struct shm_rates *r, uint64_t len)
{
	return (double)r->cma_ps * 1e-12 + bytes_s(len, r->cma_bytes_per_s);
}

void shm_cma_pays(const struct shm_rates *rates, enum shm_traffic traffic,
		  uint64_t most, uint64_t *first, uint64_t *last)
{
	*first = UINT64_MAX;
	*last = 0;
	if (!rates->cma_bytes_per_s)
		return;
	for (uint64_t len = LEAST_BYTES; len <= most; len += len / 4) {
		if (cma_s(rates, len) >= ring_s(rates, traffic, len)) {
			if (*last)
				return;
			continue;
		}
		if (!*last)
			*first = len;
		*last = len + len / 4 - 1 < most ? len + len / 4 - 1 : most;
	}
}

/* Read data of the segment's owner, and its nonce in the same call. So a pid
 * that meanwhile belongs to another process is noticed. */
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
			     const _Atomic bool *aborted, uint64_t *got)
{
	uint8_t *to = dst;

	for (*got = 0; len; *got = (uint64_t)(to - (uint8_t *)dst)) {
		uint64_t piece = len < READ_BYTES ? len : READ_BYTES;
		ssize_t n;

		if (atomic_load_explicit(aborted, memory_order_relaxed))
			return DICOMM_ERR_ABORTED;
		n = read_checked(seg, addr, to, piece);
		if (n == 0)
			errno = EFAULT;
		/* The process is there, and may know another way. */
		if (n <= 0 && errno != ESRCH)
			return DICOMM_IN_PROGRESS;
		if (n <= 0) {
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
