/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/mock/peer_memory.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/mock/peek.h"
#include "tests/mock/real_verbs.h"

/* Memory of a device that a NIC knows. */
struct region {
	struct ibv_mr *mr;
	uint64_t at;
	size_t bytes;
	void *pages;
	void *lagging; /* where the NIC writes in the place of pages; or NULL */
	struct region *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions;
static unsigned works = PEER_MEMORY_ADDRESS;
static bool lag;
static _Atomic uint64_t flushes;
static int (*real_post)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad);

void peer_memory_works(unsigned ways)
{
	works = ways;
}

void peer_memory_lags(bool lags)
{
	lag = lags;
}

uint64_t peer_memory_flushes(void)
{
	return atomic_load(&flushes);
}

static struct ibv_mr *real_reg(struct ibv_pd *pd, void *addr, size_t bytes,
			       uint64_t iova, unsigned access)
{
	static __typeof__(ibv_reg_mr_iova2) *real;

	if (!real)
		*(void **)&real = real_verbs("ibv_reg_mr_iova2");
	return real(pd, addr, bytes, iova, access);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *pages, size_t bytes,
			  uint64_t at, unsigned access)
{
	struct region *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	*r = (struct region){.at = at, .bytes = bytes, .pages = pages};
	if (lag) {
		/* The NIC wants both at the same place in a page. */
		size_t in_page = at % 4096;
		char *memory =
			mmap(NULL, bytes + in_page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (memory == MAP_FAILED) {
			free(r);
			return NULL;
		}
		r->lagging = memory + in_page;
	}
	r->mr = real_reg(pd, r->lagging ? r->lagging : pages, bytes, at,
			 access);
	if (!r->mr) {
		free(r);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	r->next = regions;
	regions = r;
	pthread_mutex_unlock(&lock);
	return r->mr;
}

/* ---- in the place of the verbs library ---- */

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned access)
{
	void *pages = peek_device(addr, NULL);

	if (pages && works & PEER_MEMORY_ADDRESS)
		return reg(pd, pages, length, iova, access);
	return real_reg(pd, addr, length, iova, access);
}

/* Is the memory behind a descriptor that which is seen there? */
static bool is_same(int fd, uint64_t offset, volatile uint8_t *pages)
{
	size_t in_page = offset % 4096;
	uint8_t *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd,
			       (off_t)(offset - in_page));
	bool same = mapped != MAP_FAILED;

	for (int i = 0; same && i < 2; i++) {
		*pages = (uint8_t) ~*pages;
		same = ((volatile uint8_t *)mapped)[in_page] == *pages;
	}
	if (mapped != MAP_FAILED)
		munmap(mapped, 4096);
	return same;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	static __typeof__(ibv_reg_dmabuf_mr) *real;
	void *pages = peek_device((void *)(uintptr_t)iova, NULL);

	if (pages && works & PEER_MEMORY_DMABUF) {
		if (is_same(fd, offset, pages))
			return reg(pd, pages, length, iova, (unsigned)access);
		errno = EINVAL;
		return NULL;
	}
	if (!real)
		*(void **)&real = real_verbs("ibv_reg_dmabuf_mr");
	return real(pd, offset, length, iova, fd, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	static __typeof__(ibv_dereg_mr) *real;
	struct region **at = &regions, *gone;

	if (!real)
		*(void **)&real = real_verbs("ibv_dereg_mr");
	pthread_mutex_lock(&lock);
	while (*at && (*at)->mr != mr)
		at = &(*at)->next;
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&lock);
	free(gone);
	return real(mr);
}

/* A flush is a read of one byte of a device of this process. */
static void look_at(const struct ibv_send_wr *wr)
{
	uint64_t at = wr->wr.rdma.remote_addr;

	if (wr->opcode != IBV_WR_RDMA_READ || wr->sg_list->length != 1)
		return;
	pthread_mutex_lock(&lock);
	for (struct region *r = regions; r; r = r->next) {
		if (r->mr->rkey != wr->wr.rdma.rkey || at < r->at ||
		    at >= r->at + r->bytes)
			continue;
		atomic_fetch_add(&flushes, 1);
		if (r->lagging)
			memcpy(r->pages, r->lagging, r->bytes);
	}
	pthread_mutex_unlock(&lock);
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_send_wr **bad)
{
	for (const struct ibv_send_wr *w = wr; w; w = w->next)
		look_at(w);
	return real_post(qp, wr, bad);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static __typeof__(ibv_open_device) *real;
	struct ibv_context *context;

	if (!real)
		*(void **)&real = real_verbs("ibv_open_device");
	context = real(device);
	/* All devices here have one driver. */
	if (context) {
		real_post = context->ops.post_send;
		context->ops.post_send = post;
	}
	return context;
}
