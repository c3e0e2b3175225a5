/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the device of a rank, tracks what is queued on it, and closes it. */
#include "src/device/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/accel/host/memory.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/host_access.h"
#include "src/message/slice.h"
#include "src/engine/step.h"
#include "src/memory/blocked_streams.h"
#include "src/core/fault.h"
#include "src/core/memory.h"

/* In nanoseconds; longer than any copy or kernel of the library takes. */
#define QUIESCE_NS UINT64_C(30000000000)
/* How long to wait for other processes to unmap memory. They mostly end the
 * communicator at the same time. */
#define UNMAP_MS 2000

/* ---- open and close ---- */

static dicomm_result_t open_streams(struct device *dev)
{
	TRY(dev->work->open(dev->index, NULL, &dev->beside));
	TRY(dev->work->open_beside(dev->beside, &dev->stream));
	for (size_t i = 0; i < DEVICE_STAGES; i++)
		TRY(dev->work->event_create(dev->index, &dev->stages[i].event));
	return DICOMM_SUCCESS;
}

/* Log one warning for all types without kernels. */
static void tell_lacking(const struct dicomm_comm *comm, uint64_t types,
			 const char *instead, const char *why)
{
	char names[256] = "";
	size_t at = 0;

	if (!types)
		return;
	for (unsigned t = 0; t < 64 && at < sizeof(names); t++)
		if (types >> t & 1)
			at += (size_t)snprintf(names + at, sizeof(names) - at,
					       "%s%s", at ? ", " : "",
					       type_name((dicomm_datatype_t)t));
	log_warn("%s: no kernels for %s, %s: %s", comm->device, names, instead,
		 why);
}

/* Load the kernels of a type. Without kernels, operands are copied to the host
 * and reduced there. If staging is never, reductions of that type are
 * refused. */
static dicomm_result_t load_type(struct dicomm_comm *comm,
				 dicomm_datatype_t type, uint64_t *host_reduced,
				 char *why, size_t len)
{
	struct device *dev = comm->dev;
	dicomm_result_t status = dev->work->prepare(dev->stream, type);
	size_t at;

	if (status != DICOMM_ERR_UNSUPPORTED)
		return status;
	at = (size_t)snprintf(why, len, "%s", log_last_error());
	if (!comm_never_stages(comm)) {
		status = dev->work->prepare_host_reduce(dev->stream, type);
		if (status == DICOMM_SUCCESS)
			*host_reduced |= UINT64_C(1) << type;
		if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		if (at < len)
			snprintf(why + at, len - at, "; %s", log_last_error());
	}
	dev->lacks |= UINT64_C(1) << type;
	return DICOMM_SUCCESS;
}

static dicomm_result_t load_kernels(struct dicomm_comm *comm)
{
	uint64_t host_reduced = 0;
	char why[512];

	for (unsigned t = 0; t < 64; t++)
		if (type_reduces((dicomm_datatype_t)t))
			TRY(load_type(comm, (dicomm_datatype_t)t, &host_reduced,
				      why, sizeof(why)));
	tell_lacking(comm, host_reduced,
		     "which the host reduces in its memory "
		     "(DICOMM_STAGING=never refuses that)",
		     why);
	tell_lacking(comm, comm->dev->lacks, "whose reductions are refused",
		     why);
	return DICOMM_SUCCESS;
}

static dicomm_result_t allocate(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;
	size_t bytes = device_stages_bytes(dev);
	void *memory = NULL, *mapped = NULL;
	size_t offset;

	TRY(comm->accel->alloc(dev->index, DEVICE_SCRATCH, &dev->scratch));
	comm->scratch.at = dev->scratch;
	comm->scratch.bytes = DEVICE_SCRATCH;
	TRY(accels[0]->alloc(0, bytes, &memory));
	dev->memory = memory;
	host_memory_find(memory, bytes, &dev->where, &offset);
	TRY(dev->work->map_host(dev->index, memory, bytes, false, &mapped));
	dev->mapped = mapped;
	for (size_t i = 0; i < DEVICE_STAGES; i++) {
		dev->stages[i].host = dev->memory + i * dev->stage_bytes;
		dev->stages[i].device = dev->mapped + i * dev->stage_bytes;
	}
	return DICOMM_SUCCESS;
}

/* Offer scratch to neighbours, which map it because steps send from it. */
static dicomm_result_t offer_scratch(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;

	TRY(ipc_create(comm->accel, dev->index, comm->ranks, &dev->ipc));
	TRY(lease_begin(comm->accel, dev->index, dev->scratch,
			&dev->scratch_lease));
	dev->scratch_offer =
		ipc_offer(dev->ipc, dev->scratch, dev->scratch_lease);
	return DICOMM_SUCCESS;
}

/* Allocate staging buffers in device memory, for transports that access it and
 * for neighbours with a device of the same kind. Without either, data is staged
 * in host memory. */
static dicomm_result_t allocate_exported(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;
	dicomm_result_t status;
	void *exported = NULL;

	if (dev->shares_host)
		return DICOMM_SUCCESS;
	dev->exported_bytes = dev->stage_bytes > DEVICE_EXPORTED_BYTES
				      ? dev->stage_bytes
				      : DEVICE_EXPORTED_BYTES;
	TRY(comm->accel->alloc(dev->index, device_exported_bytes(dev),
			       &exported));
	dev->exported = exported;
	for (size_t i = 0; i < DEVICE_STAGES; i++)
		dev->stages[i].exported =
			dev->exported + i * dev->exported_bytes;
	if (!(dev->work->caps(dev->index) & ACCEL_IPC))
		return DICOMM_SUCCESS;
	status = dev->work->mem_export(exported, &dev->exported_handle);
	if (status == DICOMM_SUCCESS)
		status = lease_begin(comm->accel, dev->index, exported,
				     &dev->lease);
	if (status == DICOMM_SUCCESS)
		status = offer_scratch(comm);
	return status == DICOMM_ERR_UNSUPPORTED ? DICOMM_SUCCESS : status;
}

dicomm_result_t device_streams_unblocked(struct dicomm_comm *comm)
{
	const struct timespec nap = {0, 50000};
	const struct device *dev = comm->dev;
	uint64_t end = clock_ns() + (uint64_t)comm->join_ms * 1000000;

	while (!streams_unblocked_begin(dev->work, dev->index)) {
		if (fault_is(comm))
			return fault_report(comm);
		if (clock_ns() > end)
			return FAIL(
				DICOMM_ERR_TIMEOUT,
				"comm_init_rank: operations of other "
				"communicators have blocked streams of %s for "
				"%d ms",
				comm->device, comm->join_ms);
		if (atomic_load(&comm->cancelled))
			return FAIL(DICOMM_ERR_ABORTED,
				    "comm_init_rank: aborted");
		nanosleep(&nap, NULL);
	}
	return DICOMM_SUCCESS;
}

static bool leave(struct deferred *deferred)
{
	struct device *dev = (struct device *)deferred;

	if (dev->mapped)
		dev->work->unmap_host(dev->index, dev->memory);
	if (dev->memory)
		accels[0]->free(dev->memory);
	free(dev);
	return true;
}

static dicomm_result_t make(struct dicomm_comm *comm)
{
	TRY(open_streams(comm->dev));
	TRY(load_kernels(comm));
	TRY(allocate(comm));
	TRY(allocate_exported(comm));
	return stream_fence_make(comm->dev);
}

dicomm_result_t device_open(struct dicomm_comm *comm)
{
	dicomm_result_t status;
	struct device *dev;

	if (!comm->accel->work)
		return DICOMM_SUCCESS;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "comm_init_rank: out of memory");
	comm->dev = dev;
	comm->device_ops = &device_ops;
	comm->device_memory = device_has_memory(dev);
	dev->work = comm->accel->work;
	dev->index = comm->index;
	dev->deferred = (struct deferred){
		.work = dev->work, .index = dev->index, .go = leave};
	dev->shares_host = dev->work->caps(comm->index) & ACCEL_SHARES_HOST;
	dev->last = &dev->first;
	dev->stage_bytes = comm_most_slot_bytes(comm);
	dev->scratch_offer = -1;
	if (!dev->shares_host)
		TRY(in_process_create(&dev->in_process));
	TRY(device_streams_unblocked(comm));
	status = make(comm);
	streams_unblocked_end();
	return status;
}

dicomm_result_t device_register(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;

	if (comm->scratch.shared)
		return comm_mem_register(comm, comm->scratch.at,
					 comm->scratch.bytes, true,
					 &comm->scratch.handles);
	if (!dev)
		return DICOMM_SUCCESS;
	return comm_mem_register(comm, dev->memory, device_stages_bytes(dev),
				 true, &dev->handles);
}

void device_stop(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;

	if (!dev)
		return;
	if (dev->stream)
		device_quiesce(comm);
	for (size_t i = 0; i < DEVICE_STAGES; i++)
		in_process_done(&dev->stages[i].read);
	stream_fence_free_all(dev);
}

void device_close(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;

	if (!dev)
		return;
	if (dev->lease)
		lease_end(dev->lease, UNMAP_MS);
	else if (dev->exported)
		lease_free(comm->accel, dev->index, dev->exported);
	comm_mem_deregister(comm, &dev->handles);
	/* Do not wait again: lease_end() above has waited for
	 * neighbours already. */
	if (dev->scratch_lease)
		lease_end(dev->scratch_lease, 0);
	else if (dev->scratch)
		lease_free(comm->accel, dev->index, dev->scratch);
	ipc_free(dev->ipc);
	comm->scratch.at = NULL;
	for (size_t i = 0; i < DEVICE_STAGES; i++)
		if (dev->stages[i].event)
			dev->work->event_destroy(dev->stages[i].event);
	dev->work->close(dev->stream);
	dev->work->close(dev->beside);
	in_process_put(dev->in_process);
	comm->dev = NULL;
	comm->device_ops = NULL;
	comm->device_memory = false;
	deferred_run(&dev->deferred);
}

dicomm_result_t device_check(const struct dicomm_comm *comm, const char *f,
			     const char *name, const void *at)
{
	const struct device *dev = comm->dev;
	struct accel_owner owner;

	if (!at)
		return DICOMM_SUCCESS;
	if (!device_has_memory(dev))
		return host_access_check(comm, f, name, at);
	if (!dev->work->owner(at, &owner)) {
		/* If the memory belongs to another kind of device, this names
		 * that kind. */
		TRY(host_access_check(comm, f, name, at));
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: %s %p is not memory of %s, the device of "
			    "rank %d",
			    f, name, at, comm->device, comm->rank);
	}
	if (owner.index != dev->index)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: %s %p is memory of %s:%d, but rank %d has %s",
			    f, name, at, comm->accel->name, owner.index,
			    comm->rank, comm->device);
	if (owner.apart)
		return FAIL(DICOMM_ERR_INVALID_ARGUMENT,
			    "%s: %s %p is memory of another context of %s than "
			    "the primary one, which rank %d uses",
			    f, name, at, comm->device, comm->rank);
	return DICOMM_SUCCESS;
}

/* ---- stages ---- */

void device_stage_place(const struct device *dev, const struct peer *peer,
			struct stage *st)
{
	bool by_reference = peer->by_reference && !dev->shares_host;

	st->at = by_reference ? st->exported : st->host;
	st->seen = by_reference ? st->exported : st->device;
}

static struct stage *take_stage(struct device *dev, const void *of,
				enum tp_class class, uint32_t step,
				uint64_t slice, bool sends)
{
	struct stage *st = dev->stages, *end = st + DEVICE_STAGES;

	if (sends && dev->sends[class] == DEVICE_SENDS)
		return NULL;
	while (st < end && st->phase != STAGE_FREE)
		st++;
	if (st == end)
		return NULL;
	st->sends = sends;
	if (sends) {
		st->class = class;
		dev->sends[class]++;
	}
	st->op = of;
	st->step = step;
	st->slice = slice;
	st->from = NULL;
	st->phase = STAGE_READING;
	return st;
}

struct stage *device_stage(struct device *dev, const struct operation *op,
			   uint32_t step, uint64_t slice, bool sends)
{
	return take_stage(dev, op, sends ? op->prep->class : 0, step, slice,
			  sends);
}

struct stage *device_window_stage(struct device *dev, const void *of,
				  uint64_t number, bool sends)
{
	return take_stage(dev, of, TP_WINDOW, STAGE_WINDOW, number, sends);
}

struct stage *device_stage_of(struct device *dev, const void *op, uint32_t step,
			      uint64_t slice)
{
	for (struct stage *st = dev->stages; st < dev->stages + DEVICE_STAGES;
	     st++)
		if (st->phase != STAGE_FREE && st->op == op &&
		    st->step == step && st->slice == slice)
			return st;
	return NULL;
}

void device_stage_free(struct device *dev, struct stage *st)
{
	in_process_done(&st->read);
	if (st->sends)
		dev->sends[st->class]--;
	st->phase = STAGE_FREE;
	st->op = NULL;
}

/* ---- the stream ---- */

dicomm_result_t device_mark(struct device *dev, struct stage *st)
{
	TRY(dev->work->event_record(st->event, dev->stream));
	st->phase = STAGE_QUEUED;
	st->next = NULL;
	*dev->last = st;
	dev->last = &st->next;
	dev->unmarked = false;
	return DICOMM_SUCCESS;
}

/* The stream has reached the event of the first stage in the list. */
static void reached(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;
	struct stage *st = dev->first;

	dev->first = st->next;
	if (!dev->first)
		dev->last = &dev->first;
	st->phase = STAGE_REACHED;
	if (st->sends)
		return;
	if (st->from && !fault_is(comm))
		message_consumed(st->from, st->class, st->seq);
	device_stage_free(dev, st);
}

/* Check that the bytes were valid while they were read: a rank that gave up may
 * have overwritten them. */
static dicomm_result_t check_read(struct dicomm_comm *comm,
				  const struct stage *st)
{
	dicomm_result_t status = DICOMM_SUCCESS;

	if (!st->from || st->sends || fault_is(comm))
		return DICOMM_SUCCESS;
	if (memory_ref_gave_up(st->from))
		status = FAIL(DICOMM_ERR_REMOTE,
			      "rank %d has given up the operation, so what it "
			      "sent is "
			      "not valid",
			      st->from->rank);
	else if (st->mapped)
		status = message_intact(st->from);
	return status == DICOMM_SUCCESS
		       ? status
		       : fault_own(comm, status, st->from->rank);
}

dicomm_result_t device_progress(struct dicomm_comm *comm, bool *moved)
{
	struct device *dev = comm->dev;

	while (dev->first) {
		dicomm_result_t status =
			dev->work->event_query(dev->first->event);

		if (status == DICOMM_AGAIN)
			break;
		TRY(status);
		TRY(check_read(comm, dev->first));
		reached(comm);
		*moved = true;
	}
	return DICOMM_SUCCESS;
}

/* Record an event behind all that is queued, if a staging buffer is free for
 * it. Returns false if none is. */
static bool mark_rest(struct device *dev)
{
	struct stage *st;

	if (!dev->unmarked)
		return true;
	st = device_stage(dev, NULL, 0, 0, false);
	if (!st)
		return false;
	if (device_mark(dev, st) != DICOMM_SUCCESS) {
		device_stage_free(dev, st);
		dev->unmarked = false;
	}
	return true;
}

enum schedule_result device_end(struct operation *op)
{
	struct device *dev = op->comm->dev;
	struct stage *st = device_stage_of(dev, op, STAGE_END, 0);
	dicomm_result_t status;

	if (st)
		return SCHEDULE_AGAIN;
	if (op->ending || device_is_idle(dev))
		return SCHEDULE_DONE;
	st = device_stage(dev, op, STAGE_END, 0, false);
	if (!st)
		return SCHEDULE_AGAIN;
	status = device_mark(dev, st);
	if (status != DICOMM_SUCCESS)
		return step_fail(op, status, -1);
	op->ending = true;
	return SCHEDULE_AGAIN;
}

/* The device failed: give up what is queued on it. */
static void give_up(struct device *dev)
{
	for (struct stage *st = dev->stages; st < dev->stages + DEVICE_STAGES;
	     st++)
		if (st->phase == STAGE_QUEUED)
			device_stage_free(dev, st);
	dev->first = NULL;
	dev->last = &dev->first;
	dev->unmarked = false;
}

/* Free the stages of operations: none of the communicator's operations goes on,
 * so nobody else will. */
static void take_back(struct device *dev)
{
	for (struct stage *st = dev->stages; st < dev->stages + DEVICE_STAGES;
	     st++)
		if (st->phase != STAGE_FREE && st->phase != STAGE_QUEUED)
			device_stage_free(dev, st);
}

bool device_settles(struct dicomm_comm *comm, uint64_t ns)
{
	struct device *dev = comm->dev;
	uint64_t end = clock_ns() + ns;
	bool marked, moved = false;

	/* mark_rest() needs a free staging buffer. */
	take_back(dev);
	marked = mark_rest(dev);
	while (dev->first || !marked) {
		/* The device has failed and runs nothing any more. */
		if (device_progress(comm, &moved) != DICOMM_SUCCESS) {
			give_up(dev);
			break;
		}
		marked = marked || mark_rest(dev);
		if (clock_ns() > end)
			return false;
		sched_yield();
	}
	return true;
}

void device_quiesce(struct dicomm_comm *comm)
{
	struct device *dev = comm->dev;
	void *me = __builtin_thread_pointer(), *nobody = NULL;

	/* A log sink or a signal handler aborts inside of this. */
	if (atomic_load(&dev->quiescer) == me)
		return;
	while (!atomic_compare_exchange_strong(&dev->quiescer, &nobody, me)) {
		nobody = NULL;
		sched_yield();
	}
	if (!device_settles(comm, QUIESCE_NS))
		log_error("%s rank %d: %s does not finish what is queued on it",
			  comm->name, comm->rank, comm->device);
	/* The buffers that this rank sent belong to the user again. */
	if (dev->ipc)
		ipc_give_up(dev->ipc);
	if (dev->in_process && !in_process_close(dev->in_process, QUIESCE_NS))
		log_error(
			"%s rank %d: devices of other ranks have not finished "
			"reading what this rank sent from %s",
			comm->name, comm->rank, comm->device);
	take_back(dev);
	atomic_store(&dev->quiescer, NULL);
}
