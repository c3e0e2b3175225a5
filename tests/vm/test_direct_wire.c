// SPDX-License-Identifier: BSD-3-Clause
/* Verbs on memory of devices: how a NIC gets access to it, that a read is
 * complete only when its data is there, and that memory which is gone is not
 * reached. The devices are mocks, and so is the kernel module by which the NIC
 * reaches them. Runs in the virtual machines of tests/vm/run only. */
#include <check.h>
#include <errno.h>
#include <linux/dma-buf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/accel/accel.h"
#include "src/base/log.h"
#include "tests/mock/peek.h"
#include "tests/mock/peer_memory.h"
#include "tests/support/gadget.h"
#include "tests/support/runner.h"
#include "tests/support/vm.h"
#include "tests/transports/ranks.h"
#include "transports/verbs/channel/channel.h"
#include "transports/verbs/channel/device.h"
#include "transports/verbs/message/memory.h"

#define BYTES ((size_t)300000)
#define ROUNDS 6

static struct vm vm;

static struct tp_region region_new(struct rank *r, const char *device)
{
	struct tp_region region = {.len = BYTES};
	char why[256] = "";
	void *at = NULL;

	EXPECT(r, gadget_exists(device, why, sizeof(why)), "%s", why);
	region.accel = accel_find(device, &region.index, why, sizeof(why));
	EXPECT_OK(r, region.accel->alloc(region.index, BYTES, &at));
	region.addr = at;
	return region;
}

static void region_free(struct rank *r, const struct tp_region *region)
{
	EXPECT_OK(r, region->accel->free((void *)(uintptr_t)region->addr));
}

/* Send a reference to registered memory, and wait until it is released. */
static void refer_by(struct rank *r, enum tp_class c, uint64_t seq,
		     const void *at)
{
	struct tp_ref ref;

	EXPECT(r, r->t->offer(r->peer[1], at, BYTES, TP_WANT_COPY, &ref),
	       "memory that is held cannot be offered");
	RANKS_WAIT(r, r->t->put(r->peer[1], c, seq, 0, TP_REF, &ref, BYTES) ==
			      DICOMM_SUCCESS);
	RANKS_WAIT(r, atomic_load(r->out[1][c].released) >= seq);
}

static void refer(struct rank *r, uint64_t seq, const void *at)
{
	refer_by(r, TP_COLLECTIVE, seq, at);
}

static void fetch_by(struct rank *r, enum tp_class c, uint64_t seq,
		     const void *to)
{
	struct tp_peer *peer = r->peer[0];
	dicomm_result_t status;
	const uint8_t *body;
	struct tp_ref ref;

	ranks_get(r, 0, c, seq, &body);
	memcpy(&ref, body, sizeof(ref));
	RANKS_WAIT(r, (status = r->t->read(peer, c, seq, &ref, 0,
					   (void *)(uintptr_t)to, BYTES)) !=
			      DICOMM_AGAIN);
	EXPECT(r, status == DICOMM_IN_PROGRESS, "read: %d", (int)status);
	RANKS_WAIT(r, (status = r->t->read_status(peer, c, seq)) !=
			      DICOMM_IN_PROGRESS);
	EXPECT_OK(r, status);
}

static void fetch(struct rank *r, uint64_t seq, const void *to)
{
	fetch_by(r, TP_COLLECTIVE, seq, to);
}

/* All of a message has been looked at. */
static void release(struct rank *r, uint64_t seq)
{
	EXPECT_OK(r, r->t->release(r->peer[0], TP_COLLECTIVE, seq));
	r->t->flush(r->dev);
}

static struct tp_mem *mem(struct rank *r, const struct tp_region *region,
			  const char *next_word)
{
	struct tp_mem *h = NULL;
	char how[256] = "";

	EXPECT_OK(r,
		  r->t->mem_reg_device(r->dev, region, &h, how, sizeof(how)));
	EXPECT(r, strstr(how, next_word), "\"%s\", not \"%s\"", how, next_word);
	return h;
}

/* Two ranks on devices of different kinds: from one to the other, in memory
 * that is new each time, at the address of the memory before. */
static void run_stream(struct rank *r, const char *way)
{
	const void *before = NULL;
	unsigned resend = 0;

	if (r->rank == 0)
		ranks_connect_out(r, 1, TP_COLLECTIVE);
	else
		ranks_connect_in(r, 0, TP_COLLECTIVE);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct tp_region region =
			region_new(r, r->rank ? "hip:1" : "cuda:0");
		struct tp_mem *h = mem(r, &region, way);
		uint8_t *seen = peek_device(region.addr, NULL);

		resend += region.addr == before;
		before = region.addr;
		if (r->rank == 0) {
			ranks_fill(seen, BYTES, i);
			refer(r, i, region.addr);
		} else {
			fetch(r, i, region.addr);
			EXPECT(r, ranks_check(seen, BYTES, i) == BYTES,
			       "round %d", (int)i);
			EXPECT_OK(r,
				  r->t->release(r->peer[0], TP_COLLECTIVE, i));
			r->t->flush(r->dev);
		}
		r->t->mem_dereg(r->dev, h);
		region_free(r, &region);
	}
	EXPECT(r, resend > 0, "no address came twice: this tests nothing");
}

static void run_by_address(struct rank *r)
{
	run_stream(r, "peer memory (no dma-buf: ");
}

static void run_by_dmabuf(struct rank *r)
{
	peer_memory_works(PEER_MEMORY_DMABUF);
	run_stream(r, "dma-buf");
}

static void run_flush(struct rank *r)
{
	struct tp_region region = region_new(r, r->rank ? "hip:0" : "cuda:0");
	bool flushed = region.accel->work->caps(region.index) & ACCEL_FLUSH;
	uint8_t *seen = peek_device(region.addr, NULL);
	struct tp_mem *h;

	EXPECT(r, flushed, "the mock needs no flush");
	peer_memory_lags(r->rank == 1);
	h = mem(r, &region, "peer memory");
	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		for (uint64_t i = 1; i <= ROUNDS; i++) {
			ranks_fill(seen, BYTES, i);
			refer(r, i, region.addr);
		}
		EXPECT(r, !peer_memory_flushes(), "what is sent was flushed");
	} else {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		for (uint64_t i = 1; i <= ROUNDS; i++) {
			fetch(r, i, region.addr);
			EXPECT(r, ranks_check(seen, BYTES, i) == BYTES,
			       "arrived, but not there");
			EXPECT(r, peer_memory_flushes() == i,
			       "%d flushes for %d reads",
			       (int)peer_memory_flushes(), (int)i);
			EXPECT_OK(r,
				  r->t->release(r->peer[0], TP_COLLECTIVE, i));
			r->t->flush(r->dev);
		}
	}
	r->t->mem_dereg(r->dev, h);
	region_free(r, &region);
}

/* The loopback queue pair of its first NIC fails. */
static void break_loopback(struct rank *r)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	const struct verbs_channel *loopback = r->dev->rail[0].loopback;

	EXPECT(r, r->dev->rails == 2, "%d rails", (int)r->dev->rails);
	EXPECT(r, !ibv_modify_qp(loopback->qp[0].ibv, &attr, IBV_QP_STATE),
	       "no error can be set");
}

/* Two NICs, one of which fails to flush once: the channel that is reading goes
 * on without it, the other one uses both. */
static void run_flush_again(struct rank *r)
{
	struct tp_region region = region_new(r, r->rank ? "hip:0" : "cuda:0");
	uint8_t *seen = peek_device(region.addr, NULL);
	struct tp_mem *h;

	peer_memory_lags(r->rank == 1);
	h = mem(r, &region, "peer memory");
	for (int c = 0; c < TP_CLASSES; c++) {
		if (r->rank == 0)
			ranks_connect_out(r, 1, (enum tp_class)c);
		else
			ranks_connect_in(r, 0, (enum tp_class)c);
	}
	for (uint64_t i = 1; i <= (uint64_t)2 * ROUNDS; i++) {
		enum tp_class c =
			i <= ROUNDS ? TP_COLLECTIVE : TP_POINT_TO_POINT;
		uint64_t seq = i <= ROUNDS ? i : i - ROUNDS;

		if (r->rank == 0) {
			ranks_fill(seen, BYTES, i);
			refer_by(r, c, seq, region.addr);
			continue;
		}
		if (i == 3)
			break_loopback(r);
		fetch_by(r, c, seq, region.addr);
		EXPECT(r, ranks_check(seen, BYTES, i) == BYTES,
		       "arrived, but not there");
		EXPECT_OK(r, r->t->release(r->peer[0], c, seq));
		r->t->flush(r->dev);
	}
	if (r->rank == 1) {
		const struct tp_peer *peer = r->peer[0];

		for (int c = 0; c < TP_CLASSES; c++)
			EXPECT(r,
			       (peer->in[c]->qp[0].state == QP_GOOD) ==
				       (c != TP_COLLECTIVE),
			       "class %d: queue pair %d", c,
			       (int)peer->in[c]->qp[0].state);
		EXPECT(r, r->dev->rail[0].loopback->why == DICOMM_SUCCESS,
		       "it is still broken");
	}
	r->t->mem_dereg(r->dev, h);
	region_free(r, &region);
}

/* The same on a device that orders what NICs write: for itself, or for other
 * devices too, or for all; then no flush is needed, and the mock's delay
 * shows. */
static void run_ordered(struct rank *r, const char *whom, bool flushed)
{
	struct tp_region region;
	uint8_t *seen;
	struct tp_mem *h;

	setenv("MOCK_CUDA_RDMA_ORDERED", whom, 1);
	region = region_new(r, "cuda:0");
	seen = peek_device(region.addr, NULL);
	peer_memory_lags(r->rank == 1);
	h = mem(r, &region, "peer memory");
	if (r->rank == 0) {
		ranks_connect_out(r, 1, TP_COLLECTIVE);
		ranks_fill(seen, BYTES, 1);
		refer(r, 1, region.addr);
	} else {
		ranks_connect_in(r, 0, TP_COLLECTIVE);
		fetch(r, 1, region.addr);
		EXPECT(r, (ranks_check(seen, BYTES, 1) == BYTES) == flushed,
		       flushed ? "not flushed" : "the mock does not lag");
		EXPECT(r, !peer_memory_flushes() == !flushed,
		       "%d flushes where writes are ordered for %s",
		       (int)peer_memory_flushes(), whom);
		release(r, 1);
	}
	r->t->mem_dereg(r->dev, h);
	region_free(r, &region);
}

static void run_for_owner(struct rank *r)
{
	run_ordered(r, "owner", true);
}

static void run_for_all(struct rank *r)
{
	run_ordered(r, "all", false);
}

static void on_message(int level, const char *message, void *ctx)
{
	(void)level;
	snprintf(ctx, 200, "%s", message);
}

static void run_refused(struct rank *r)
{
	struct tp_region region = region_new(r, "cuda:1");
	char how[256] = "", logged[200] = "";
	struct tp_mem *h;

	peer_memory_works(0);
	log_set_sink(on_message, logged);
	EXPECT(r,
	       r->t->mem_reg_device(r->dev, &region, &h, how, sizeof(how)) ==
		       DICOMM_ERR_UNSUPPORTED,
	       "taken: %s", how);
	log_set_sink(NULL, NULL);
	EXPECT(r, !logged[0], "said \"%s\"", logged);
	if (vm.iwarp)
		EXPECT(r, strstr(how, "iWARP"), "\"%s\"", how);
	else
		EXPECT(r,
		       strstr(how, "no dma-buf: ") &&
			       strstr(how, "no peer memory: "),
		       "\"%s\"", how);
	region_free(r, &region);
}

/* Of a dma-buf the kernel tells who made it. */
static bool is_dmabuf(int fd, const char *maker)
{
	struct dma_buf_sync sync = {.flags = DMA_BUF_SYNC_START |
					     DMA_BUF_SYNC_READ};
	char path[64], line[128], wanted[64];
	bool named = false;
	FILE *info;

	snprintf(wanted, sizeof(wanted), "exp_name:\t%s\n", maker);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = fopen(path, "r");
	while (info && fgets(line, sizeof(line), info))
		named |= !strcmp(line, wanted);
	if (info)
		fclose(info);
	return named && !ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
}

/* The mock exports a real dma-buf of the device's memory. The NIC's driver
 * refuses it, since it supports none; so peer memory is used. */
static void run_refused_dmabuf(struct rank *r)
{
	struct tp_region region = region_new(r, "cuda:0");
	const uint8_t *at = region.addr, *mapped;
	uint8_t *seen = peek_device(at, NULL);
	int memfd = memfd_create("no-dma-buf", MFD_CLOEXEC), fd = -1;
	struct tp_mem *h;
	char wanted[64];
	uint64_t offset;

	EXPECT_OK(r, region.accel->work->dmabuf(at + 5000, 100, &fd, &offset));
	EXPECT(r, is_dmabuf(fd, "udmabuf"), "not a dma-buf of the kernel");
	EXPECT(r, memfd >= 0 && !is_dmabuf(memfd, "udmabuf"),
	       "any file is taken for a dma-buf: this tests nothing");
	mapped = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	EXPECT(r, mapped != MAP_FAILED, "a dma-buf that cannot be mapped");
	seen[5003] = 77;
	EXPECT(r, offset == 5000 && mapped[5003] == 77, "of other memory");
	seen[5003] = 78;
	EXPECT(r, mapped[5003] == 78, "of a copy");
	munmap((void *)(uintptr_t)mapped, 8192);
	close(fd);
	close(memfd);
	snprintf(wanted, sizeof(wanted), ": %s)", strerror(EOPNOTSUPP));
	h = mem(r, &region, wanted);
	r->t->mem_dereg(r->dev, h);
	region_free(r, &region);
}

static void run(void (*fn)(struct rank *r), int ranks)
{
	ranks_run(&(struct ranks_job){.t = transport_find("verbs"),
				      .kind = RANKS_PROCESSES,
				      .ranks = ranks,
				      .run = fn});
}

START_TEST(data_goes_from_device_to_device_by_address)
{
	run(run_by_address, 2);
}
END_TEST

START_TEST(data_goes_from_device_to_device_by_dmabuf)
{
	run(run_by_dmabuf, 2);
}
END_TEST

START_TEST(a_dmabuf_of_the_kernel_is_refused_as_such)
{
	run(run_refused_dmabuf, 1);
}
END_TEST

START_TEST(what_has_arrived_has_been_flushed)
{
	run(run_flush, 2);
}
END_TEST

START_TEST(a_nic_that_failed_to_flush_does_so_again)
{
	setenv("DICOMM_IB_NICS", "2", 1);
	run(run_flush_again, 2);
}
END_TEST

START_TEST(what_is_ordered_for_its_owner_is_flushed)
{
	run(run_for_owner, 2);
}
END_TEST

START_TEST(what_is_ordered_for_all_is_not_flushed)
{
	run(run_for_all, 2);
}
END_TEST

START_TEST(what_no_way_leads_to_is_refused_with_all_reasons)
{
	run(run_refused, 1);
}
END_TEST

int main(void)
{
	TCase *test_case = tcase_create("direct wire");
	Suite *suite = suite_create("direct wire");

	if (!vm_find(&vm))
		return 77;
	tcase_set_timeout(test_case, 60);
	tcase_add_test(test_case,
		       what_no_way_leads_to_is_refused_with_all_reasons);
	if (!vm.iwarp) {
		tcase_add_test(test_case,
			       data_goes_from_device_to_device_by_address);
		tcase_add_test(test_case,
			       data_goes_from_device_to_device_by_dmabuf);
		tcase_add_test(test_case,
			       a_dmabuf_of_the_kernel_is_refused_as_such);
		tcase_add_test(test_case, what_has_arrived_has_been_flushed);
		tcase_add_test(test_case,
			       a_nic_that_failed_to_flush_does_so_again);
		tcase_add_test(test_case,
			       what_is_ordered_for_its_owner_is_flushed);
		tcase_add_test(test_case,
			       what_is_ordered_for_all_is_not_flushed);
	}
	suite_add_tcase(suite, test_case);
	return runner_main(suite);
}
