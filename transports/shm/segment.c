/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments and their rings, and the table of segments that this process has
 * mapped.
 *
 * Ranks of one process share mappings, and use each other's rings without
 * mapping them. The lock guards the table and the reference counts, so it is
 * taken only when ranks connect and close.
 */
#include "transports/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/cancel.h"
#include "src/base/fork.h"
#include "src/base/log.h"
#include "src/base/memfd.h"
#include "transports/shm/address.h"
#include "transports/shm/exchange.h"
#include "transports/shm/measure.h"

#define MAGIC 0x6d676573636d6964u /* "dimcsegm" */

/* Hash table of segments by nonce. A process may have a thousand ranks, and
 * each of them looks for all others. */
#define BUCKETS 1024 /* a power of two */
static struct shm_segment *segments[BUCKETS];

/* The segments belong to the parent. The child's copies vanish with its memory,
 * and it must not take the parent's ranks for its own. */
static void forget(void)
{
	memset(segments, 0, sizeof(segments));
}

static void table_lock(void)
{
	fork_add(FORK_SEGMENTS, forget);
	fork_lock(FORK_SEGMENTS);
}

static uint64_t page_round(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

static uint64_t header_bytes(uint32_t ranks)
{
	uint64_t entries = (uint64_t)ranks * TP_CLASSES;

	return page_round(sizeof(struct shm_header) +
			  entries * sizeof(_Atomic uint64_t));
}

/* A ring is lines, tail, questions and answers, then, from the next page on,
 * the data areas and as long exchange buffers. */
static uint64_t ring_data_offset(uint32_t slots)
{
	return page_round(slots * sizeof(struct tp_line) +
			  sizeof(struct shm_tail) +
			  slots * (sizeof(struct shm_question) +
				   sizeof(_Atomic uint64_t)));
}

static uint64_t ring_bytes(const struct shm_header *head)
{
	return page_round(ring_data_offset(head->slots) +
			  (uint64_t)(head->slots + SHM_EXCHANGE_BUFFERS) *
				  head->slot_bytes);
}

static struct shm_segment **bucket_of(const uint64_t nonce[2])
{
	return &segments[nonce[0] & (BUCKETS - 1)];
}

static struct shm_segment *table_find(const uint64_t nonce[2])
{
	struct shm_segment *s = *bucket_of(nonce);

	while (s && memcmp(s->nonce, nonce, sizeof(s->nonce)) != 0)
		s = s->next;
	return s;
}

static void table_add_locked(struct shm_segment *seg)
{
	struct shm_segment **bucket = bucket_of(seg->nonce);

	seg->next = *bucket;
	*bucket = seg;
}

static void table_add(struct shm_segment *seg)
{
	table_lock();
	table_add_locked(seg);
	fork_unlock(FORK_SEGMENTS);
}

/* Few know that shared memory counts as a file. */
static const char *size_hint(void)
{
	return errno == EFBIG ? " (ulimit -f, the limit of the size of files, "
				"counts for shared memory, too)"
			      : "";
}

static dicomm_result_t own_map(struct shm_segment *seg, uint32_t ranks)
{
	seg->mapped = seg->len = header_bytes(ranks);
	if (memfd_grow(seg->fd, seg->len) < 0)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "shm segment: resize to %" PRIu64 " bytes: %m%s",
			    seg->len, size_hint());
	/* Peers that map it rely on its size, so it cannot shrink. It may
	 * still grow. */
	(void)fcntl(seg->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
	seg->head = mmap(NULL, seg->mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
			 seg->fd, 0);
	if (seg->head == MAP_FAILED)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "shm segment: map %" PRIu64 " bytes: %m",
			    seg->mapped);
	return DICOMM_SUCCESS;
}

dicomm_result_t shm_segment_create(const struct tp_config *config,
				   struct shm_segment **out)
{
	struct shm_segment *seg;
	dicomm_result_t status;

	seg = calloc(1, sizeof(*seg));
	if (!seg)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm segment: out of memory");
	seg->own = true;
	seg->refs = 1;
	seg->pid = getpid();
	if (getrandom(seg->nonce, sizeof(seg->nonce), 0) !=
	    (ssize_t)sizeof(seg->nonce)) {
		status = FAIL(DICOMM_ERR_SYSTEM, "shm segment: getrandom: %m");
		goto free_seg;
	}
	seg->fd = memfd_make("dicomm-shm", MFD_ALLOW_SEALING);
	if (seg->fd < 0) {
		status = FAIL(DICOMM_ERR_SYSTEM,
			      "shm segment: memfd_create: %m");
		goto free_seg;
	}
	status = own_map(seg, (uint32_t)config->ranks);
	if (status != DICOMM_SUCCESS)
		goto close_fd;
	seg->head->magic = MAGIC;
	memcpy(seg->head->nonce, seg->nonce, sizeof(seg->nonce));
	seg->head->rank = (uint32_t)config->rank;
	seg->head->ranks = (uint32_t)config->ranks;
	seg->head->slots = config->slots;
	seg->head->slot_bytes = config->slot_bytes;
	seg->head->probe = (uintptr_t)&seg->nonce[0];
	table_add(seg);
	*out = seg;
	return DICOMM_SUCCESS;

close_fd:
	close(seg->fd);
free_seg:
	free(seg);
	return status;
}

/* Open the segment that an address names, if it still exists. Returns the
 * descriptor. Otherwise returns -1 and `why` says what is wrong. */
static int segment_open(pid_t pid, int peer_fd, const uint64_t nonce[2],
			char *why, size_t len)
{
	uint64_t found[3]; /* magic and nonce of the header */
	char path[MEMFD_PATH];
	int fd, error;

	_Static_assert(offsetof(struct shm_header, nonce) == 8, "read in one");
	fd = memfd_open(pid, peer_fd, O_RDWR, path);
	if (fd < 0) {
		error = errno;
		snprintf(why, len, "open %s: %m", path);
		errno = error;
		return -1;
	}
	if (pread(fd, found, sizeof(found), 0) != (ssize_t)sizeof(found) ||
	    found[0] != MAGIC || memcmp(&found[1], nonce, 16) != 0) {
		snprintf(why, len, "%s is not its segment (any more)", path);
		close(fd);
		errno = ESTALE;
		return -1;
	}
	return fd;
}

bool shm_is_refused(int error)
{
	return error == EACCES || error == EPERM || error == EMFILE ||
	       error == ENFILE || error == ENOMEM;
}

/* Is the segment mapped, and is its owner still there? */
static bool is_mapped(const struct shm_address *a, bool *withdrawn)
{
	const struct shm_segment *seg;
	bool found;

	table_lock();
	seg = table_find(a->nonce);
	found = seg && (kill(a->pid, 0) == 0 || errno == EPERM);
	if (found)
		*withdrawn = atomic_load(&seg->head->withdrawn);
	fork_unlock(FORK_SEGMENTS);
	return found;
}

bool shm_segment_is_own(const struct shm_address *a)
{
	const struct shm_segment *seg;
	bool own;

	table_lock();
	seg = table_find(a->nonce);
	own = seg && seg->own;
	fork_unlock(FORK_SEGMENTS);
	return own;
}

bool shm_segment_reachable(const struct shm_address *a, char *why, size_t len)
{
	const struct shm_segment *seg;
	bool own, withdrawn = false;
	int fd;

	table_lock();
	seg = table_find(a->nonce);
	own = seg && seg->own;
	if (own)
		withdrawn = atomic_load(&seg->head->withdrawn);
	fork_unlock(FORK_SEGMENTS);
	if (!own) {
		fd = segment_open(a->pid, a->fd, a->nonce, why, len);
		if (fd < 0 &&
		    !(shm_is_refused(errno) && is_mapped(a, &withdrawn)))
			return false;
		if (fd >= 0) {
			(void)!pread(fd, &withdrawn, sizeof(withdrawn),
				     offsetof(struct shm_header, withdrawn));
			close(fd);
		}
	}
	if (withdrawn)
		snprintf(why, len, "rank %" PRIu32 " has stopped", a->rank);
	return !withdrawn;
}

/* Map the header of another process's segment. */
static dicomm_result_t segment_import(const struct shm_address *a,
				      struct shm_segment **out)
{
	struct shm_segment *seg;
	dicomm_result_t status;
	char why[160];
	struct stat st;
	int fd;

	seg = calloc(1, sizeof(*seg));
	if (!seg)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "shm: rank %" PRIu32 ": out of memory", a->rank);
	seg->refs = 1;
	seg->pid = a->pid;
	seg->fd = a->fd;
	memcpy(seg->nonce, a->nonce, sizeof(seg->nonce));
	seg->mapped = header_bytes(a->ranks);
	fd = segment_open(a->pid, a->fd, a->nonce, why, sizeof(why));
	if (fd < 0) {
		status = FAIL(DICOMM_ERR_REMOTE, "shm: rank %" PRIu32 ": %s",
			      a->rank, why);
		goto free_seg;
	}
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < seg->mapped) {
		status = FAIL(DICOMM_ERR_REMOTE,
			      "shm: rank %" PRIu32 ": its segment is too short",
			      a->rank);
		goto close_fd;
	}
	seg->head = mmap(NULL, seg->mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
			 fd, 0);
	if (seg->head == MAP_FAILED) {
		status = FAIL(DICOMM_ERR_NO_MEMORY,
			      "shm: rank %" PRIu32 ": map its segment: %m",
			      a->rank);
		goto close_fd;
	}
	if (seg->head->ranks != a->ranks || seg->head->slots != a->slots ||
	    seg->head->slot_bytes != a->slot_bytes) {
		status = FAIL(DICOMM_ERR_REMOTE,
			      "shm: rank %" PRIu32
			      ": its segment does not match its address",
			      a->rank);
		goto unmap;
	}
	close(fd);
	*out = seg;
	return DICOMM_SUCCESS;

unmap:
	munmap(seg->head, seg->mapped);
close_fd:
	close(fd);
free_seg:
	free(seg);
	return status;
}

dicomm_result_t shm_segment_attach(const struct shm_address *a,
				   struct shm_segment **out)
{
	dicomm_result_t status = DICOMM_SUCCESS;
	struct shm_segment *seg;

	table_lock();
	seg = table_find(a->nonce);
	if (seg) {
		seg->refs++;
	} else {
		status = segment_import(a, &seg);
		if (status == DICOMM_SUCCESS)
			table_add_locked(seg);
	}
	fork_unlock(FORK_SEGMENTS);
	if (status == DICOMM_SUCCESS)
		*out = seg;
	return status;
}

static void segment_put_locked(struct shm_segment *seg)
{
	struct shm_segment **at = bucket_of(seg->nonce);

	if (--seg->refs)
		return;
	while (*at && *at != seg)
		at = &(*at)->next;
	if (*at) /* the list is empty in a forked child */
		*at = seg->next;
	munmap(seg->head, seg->mapped);
	if (seg->own)
		close(seg->fd);
	free(seg);
}

void shm_segment_put(struct shm_segment *seg)
{
	if (!seg)
		return;
	table_lock();
	segment_put_locked(seg);
	fork_unlock(FORK_SEGMENTS);
}

/* Map a part of the segment without opening it: as a longer copy of the mapping
 * of its header, of which only that part stays. */
static uint8_t *map_again(struct shm_segment *seg, uint64_t offset,
			  uint64_t bytes)
{
	uint8_t *all = mremap(seg->head, 0, offset + bytes, MREMAP_MAYMOVE);

	if (all == MAP_FAILED)
		return MAP_FAILED;
	munmap(all, offset);
	if (mprotect(all + offset, bytes, PROT_READ | PROT_WRITE) < 0) {
		munmap(all + offset, bytes);
		return MAP_FAILED;
	}
	return all + offset;
}

/* fd -1: the segment cannot be opened, or not any more. */
static dicomm_result_t ring_map(struct shm_segment *seg, int fd,
				uint64_t offset, struct shm_ring **out)
{
	const struct shm_header *head = seg->head;
	struct shm_ring *ring;
	uint8_t *base;

	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return FAIL(DICOMM_ERR_NO_MEMORY, "shm ring: out of memory");
	ring->bytes = ring_bytes(head);
	base = fd < 0 ? map_again(seg, offset, ring->bytes)
		      : mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED, fd, (off_t)offset);
	if (base == MAP_FAILED) {
		free(ring);
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "shm ring: map %" PRIu64 " bytes: %m",
			    ring_bytes(head));
	}
	ring->refs = 1;
	ring->offset = offset;
	ring->seg = seg;
	ring->lines = (struct tp_line *)base;
	ring->tail = (struct shm_tail *)(ring->lines + head->slots);
	ring->questions = (struct shm_question *)(ring->tail + 1);
	ring->answers = (_Atomic uint64_t *)(ring->questions + head->slots);
	ring->data = base + ring_data_offset(head->slots);
	*out = ring;
	return DICOMM_SUCCESS;
}

/* Take the page faults of the lines now, not at the first messages. */
static void ring_touch(struct shm_ring *ring)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint8_t *base = (uint8_t *)ring->lines;

	for (uint8_t *p = base; p < ring->data; p += page)
		*(volatile uint8_t *)p = 0;
}

dicomm_result_t shm_ring_create(struct shm_segment *seg, struct shm_ring **out)
{
	uint64_t offset = seg->len, len = offset + ring_bytes(seg->head);
	struct shm_ring *ring;

	if (memfd_grow(seg->fd, len) < 0)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "shm segment: grow to %" PRIu64 " bytes: %m%s", len,
			    size_hint());
	/* If the ring cannot be mapped, its range stays unused. It has
	 * no pages. */
	seg->len = len;
	TRY(ring_map(seg, seg->fd, offset, &ring));
	ring_touch(ring);
	table_lock();
	seg->refs++;
	ring->next = seg->rings;
	seg->rings = ring;
	fork_unlock(FORK_SEGMENTS);
	*out = ring;
	return DICOMM_SUCCESS;
}

/* Has the process ended, or has another one its number? */
static bool is_over(int error)
{
	return error == ENOENT || error == ESRCH || error == ESTALE;
}

static dicomm_result_t ring_import(struct shm_segment *seg, uint64_t offset,
				   struct shm_ring **out)
{
	dicomm_result_t status;
	char why[160];
	struct stat st;
	int fd;

	fd = segment_open(seg->pid, seg->fd, seg->nonce, why, sizeof(why));
	/* Messages of an owner that has ended since are still there. */
	if (fd < 0 && (shm_is_refused(errno) || is_over(errno))) {
		log_info("shm: rank %" PRIu32 ": %s: its ring is mapped "
			 "without that",
			 seg->head->rank, why);
		return ring_map(seg, -1, offset, out);
	}
	if (fd < 0)
		return FAIL(DICOMM_ERR_REMOTE, "shm: rank %" PRIu32 ": %s",
			    seg->head->rank, why);
	if (fstat(fd, &st) < 0 ||
	    (uint64_t)st.st_size < offset + ring_bytes(seg->head)) {
		close(fd);
		return FAIL(DICOMM_ERR_REMOTE,
			    "shm: rank %" PRIu32
			    ": its segment ends before its ring",
			    seg->head->rank);
	}
	status = ring_map(seg, fd, offset, out);
	close(fd);
	return status;
}

dicomm_result_t shm_ring_attach(struct shm_segment *seg, uint64_t offset,
				struct shm_ring **out)
{
	CANCEL_HELD();
	dicomm_result_t status = DICOMM_SUCCESS;
	struct shm_ring *ring = NULL;

	table_lock();
	if (seg->own) {
		ring = seg->rings;
		while (ring && ring->offset != offset)
			ring = ring->next;
		if (ring)
			ring->refs++;
		/* Not found: the owner has closed the ring meanwhile. */
		else
			status = DICOMM_AGAIN;
	} else {
		status = ring_import(seg, offset, &ring);
		if (status == DICOMM_SUCCESS)
			seg->refs++;
	}
	fork_unlock(FORK_SEGMENTS);
	if (status == DICOMM_SUCCESS)
		*out = ring;
	return status;
}

void shm_ring_put(struct shm_ring *ring)
{
	if (!ring)
		return;
	table_lock();
	if (--ring->refs == 0) {
		struct shm_ring **at = &ring->seg->rings;

		while (*at && *at != ring)
			at = &(*at)->next;
		if (*at)
			*at = ring->next;
		munmap(ring->lines, ring->bytes);
		segment_put_locked(ring->seg);
		free(ring);
	}
	fork_unlock(FORK_SEGMENTS);
}

void shm_segment_address(const struct shm_segment *seg,
			 const struct shm_host *host,
			 const struct shm_rates *rates, struct tp_blob *blob)
{
	const struct shm_header *head = seg->head;
	struct shm_address a;

	memset(&a, 0, sizeof(a));
	memcpy(a.nonce, seg->nonce, sizeof(a.nonce));
	a.pid = seg->pid;
	a.fd = seg->fd;
	a.rank = head->rank;
	a.ranks = head->ranks;
	a.slots = head->slots;
	a.slot_bytes = head->slot_bytes;
	a.rates = *rates;
	shm_address_pack(&a, host, blob);
}
