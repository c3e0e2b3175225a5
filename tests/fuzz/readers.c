/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/readers.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/operation.h"
#include "src/engine/prepared.h"
#include "src/engine/step.h"
#include "src/engine/engine.h"
#include "src/engine/tagged.h"
#include "src/links/internal_message.h"
#include "src/window/window.h"

#define SIGNATURE 0x5eed
#define INTERNAL 0x1eed
#define WINDOW 65536
#define SLICE 512  /* elements */
#define COUNT 1200 /* of the broadcast: two slices and a part */
#define SHORT 4    /* elements of the receive with tag 5 */
#define LONG 2000  /* of the receive with tag 6, and of the send */

enum { TAG_SHORT, TAG_LONG, TAG_ANY, TAG_SEND, TAGS };

#define TWO(low, high) ((uint64_t)(low) | (uint64_t)(high) << 32)

const struct readers_seed readers_seeds[READERS_SEEDS] = {
	{TP_WINDOW, WINDOW_HEAD, 40, {TWO(WINDOW_PUT, 1), 8, 8, 1, 7}},
	{TP_WINDOW, WINDOW_HEAD, 32, {TWO(WINDOW_PUT, 1), 8, 64, 1}},
	{TP_WINDOW, WINDOW_BYTES, 64, {1}},
	{TP_WINDOW, WINDOW_HEAD, 32, {TWO(WINDOW_GET, 1), 8, 64, 0xffff}},
	{TP_TAGGED, UINT32_MAX, 40, {TWO(0, DICOMM_FLOAT64), 5, 1, 0, 9}},
	{TP_POINT_TO_POINT, SIGNATURE, 4 * SLICE, {1}},
	{TP_COLLECTIVE, INTERNAL, 16, {1, 2}},
};

static const struct readers_wire *wire;
static struct dicomm_comm *comm;
static struct peer *peers;
static uint8_t ways[2] = {0, 1};
static struct transport transport;
static _Atomic uint64_t released[TP_CLASSES];
static uint8_t *mapped; /* as many bytes as the last reference says */
static struct operation *tags[TAGS], *cast;
static struct prepared *prep;
static struct step *step;
static struct message_flow *flow;
static uint32_t one[2] = {1, 1};
static uint64_t slice; /* of the broadcast, that comes next */
static bool posted;
static struct dicomm_window *window;
static struct window_call *get;
static bool got;

/* ---- what ends a communicator only ends the input here ---- */

dicomm_result_t __wrap_fault_own(struct dicomm_comm *c, dicomm_result_t status,
				 int peer);
dicomm_result_t __wrap_fault_raise(struct dicomm_comm *c,
				   dicomm_result_t status, int peer, bool tell,
				   const char *format, ...);
dicomm_result_t __wrap_wait_mismatch(struct dicomm_comm *c,
				     const struct call *call, uint64_t number,
				     int peer);
dicomm_result_t __wrap_cross_progress_serve(struct dicomm_comm *c);

dicomm_result_t __wrap_fault_own(struct dicomm_comm *c, dicomm_result_t status,
				 int peer)
{
	(void)c;
	(void)peer;
	return status;
}

dicomm_result_t __wrap_fault_raise(struct dicomm_comm *c,
				   dicomm_result_t status, int peer, bool tell,
				   const char *format, ...)
{
	(void)c;
	(void)peer;
	(void)tell;
	(void)format;
	return status;
}

dicomm_result_t __wrap_wait_mismatch(struct dicomm_comm *c,
				     const struct call *call, uint64_t number,
				     int peer)
{
	(void)c;
	(void)call;
	(void)number;
	(void)peer;
	return DICOMM_ERR_INVALID_USAGE;
}

dicomm_result_t __wrap_cross_progress_serve(struct dicomm_comm *c)
{
	(void)c;
	return DICOMM_SUCCESS;
}

/* ---- the transport, as far as rank 0 sees it ---- */

static dicomm_result_t connect_in(struct tp_peer *peer, enum tp_class c,
				  struct tp_inbox *in)
{
	(void)peer;
	return wire->inbox(c, in) ? DICOMM_SUCCESS : DICOMM_AGAIN;
}

static dicomm_result_t connect_out(struct tp_peer *peer, enum tp_class c,
				   struct tp_outbox *out)
{
	(void)peer;
	out->released = &released[c];
	return DICOMM_SUCCESS;
}

/* Whatever leaves is read, so that the sanitizer sees from where. */
static dicomm_result_t put(struct tp_peer *peer, enum tp_class c, uint64_t seq,
			   uint32_t signature, enum tp_kind kind,
			   const void *body, uint64_t len)
{
	void *copy = malloc(len + 1);

	(void)peer;
	(void)signature;
	(void)kind;
	if (!copy)
		abort();
	memcpy(copy, body, len);
	free(copy);
	atomic_store(&released[c], seq);
	return DICOMM_SUCCESS;
}

static dicomm_result_t release(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq)
{
	(void)peer;
	wire->release(c, seq);
	return DICOMM_SUCCESS;
}

static bool offer(struct tp_peer *peer, const void *addr, uint64_t len,
		  enum tp_want want, struct tp_ref *ref)
{
	(void)peer;
	(void)addr;
	(void)len;
	(void)want;
	(void)ref;
	return false;
}

static dicomm_result_t map(struct tp_peer *peer, const struct tp_ref *ref,
			   uint64_t len, const void **ptr)
{
	(void)peer;
	(void)ref;
	/* Memory of the peer that is as long as it says, if it can be. */
	free(mapped);
	mapped = len < 1 << 20 ? calloc(1, len) : NULL;
	*ptr = mapped;
	return mapped ? DICOMM_SUCCESS : DICOMM_ERR_REMOTE;
}

static dicomm_result_t no_map(struct tp_peer *peer, const struct tp_ref *ref,
			      uint64_t len, const void **ptr)
{
	(void)peer;
	(void)ref;
	(void)len;
	(void)ptr;
	return DICOMM_ERR_UNSUPPORTED;
}

static dicomm_result_t read_some(struct tp_peer *peer, enum tp_class c,
				 uint64_t seq, const struct tp_ref *ref,
				 uint64_t offset, void *dst, uint64_t len)
{
	(void)peer;
	(void)ref;
	(void)offset;
	return wire->read(c, seq, dst, len);
}

static dicomm_result_t read_status(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	(void)peer;
	return wire->read_status(c, seq);
}

static bool flush(struct tp_device *dev)
{
	(void)dev;
	return true;
}

/* ---- rank 0 ---- */

static void *make(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	return p;
}

static struct operation *make_tag(unsigned function, int root, int tag,
				  size_t count)
{
	struct operation *op = make(sizeof(*op));
	void *memory = make(count * sizeof(double));

	op->comm = comm;
	op->kind = &tagged_kind;
	op->call = (struct call){.function = function,
				 .type = DICOMM_FLOAT64,
				 .root = root,
				 .tag = tag,
				 .count = count,
				 .send = memory,
				 .recv = memory};
	if (op->kind->post(op) != DICOMM_SUCCESS)
		abort();
	return op;
}

static void make_cast(void)
{
	prep = make(sizeof(*prep));
	step = make(sizeof(*step));
	flow = make(sizeof(*flow));
	cast = make(sizeof(*cast));
	*step = (struct step){
		.kind = STEP_RECV, .peer = 1, .dst = plan_block(PLAN_RECV, 0)};
	*prep = (struct prepared){.class = TP_POINT_TO_POINT,
				  .plan = {.steps = step,
					   .nsteps = 1,
					   .sends_to = one,
					   .recvs_from = one,
					   .ranks = 2},
				  .elem_bytes = 4,
				  .align = 16,
				  .longest = COUNT,
				  .slice = SLICE,
				  .slices = (COUNT + SLICE - 1) / SLICE,
				  .window = 2};
	prep->key.function = COLL_BROADCAST;
	*cast = (struct operation){.comm = comm,
				   .call = {.function = COLL_BROADCAST,
					    .type = DICOMM_FLOAT32,
					    .root = 1,
					    .count = COUNT,
					    .recv = make(4 * COUNT)},
				   .prep = prep,
				   .signature = SIGNATURE,
				   .flows = flow};
	slice = 0;
	posted = false;
}

static void make_window(void)
{
	if (windows_begin(comm) != DICOMM_SUCCESS)
		abort();
	window = make(sizeof(*window));
	window->magic = WINDOW_MAGIC;
	window->comm = comm;
	window->id = comm->windows->registered = 1;
	window->at = make(WINDOW);
	window->bytes = WINDOW;
	comm->windows->first = window;
	get = make(sizeof(*get));
	get->comm = comm;
	get->function = CALL_GET;
	get->peer = 1;
	get->into = make(100);
	get->out.head = (struct window_head){
		.what = WINDOW_GET, .window = 1, .bytes = 100};
	got = false;
}

void readers_begin(const struct readers_wire *w, bool maps)
{
	wire = w;
	transport = (struct transport){.name = "fuzz",
				       .connect_in = connect_in,
				       .connect_out = connect_out,
				       .put = put,
				       .release = release,
				       .offer = offer,
				       .map = maps ? map : no_map,
				       .read = read_some,
				       .read_status = read_status,
				       .flush = flush};
	comm = make(sizeof(*comm));
	peers = make(2 * sizeof(*peers));
	comm->ranks = 2;
	comm->peers = peers;
	comm->ways = ways;
	comm->slot_bytes = READERS_SLOT_BYTES;
	comm->stream_bytes = comm->map_threshold = UINT64_MAX;
	for (int r = 0; r < 2; r++) {
		peers[r].rank = r;
		peers[r].transport = &transport;
		peers[r].tp = (struct tp_peer *)(void *)&peers[r];
		peers[r].limits.eager_bytes = READERS_SLOT_BYTES;
		peers[r].limits.slots = READERS_SLOTS;
	}
	for (int c = 0; c < TP_CLASSES; c++)
		atomic_store(&released[c], 0);
	tags[TAG_SHORT] = make_tag(CALL_RECV, 1, 5, SHORT);
	tags[TAG_LONG] = make_tag(CALL_RECV, 1, 6, LONG);
	tags[TAG_ANY] = make_tag(CALL_RECV, -1, 7, 1);
	tags[TAG_SEND] = make_tag(CALL_SEND, 1, 8, LONG);
	make_cast();
	make_window();
}

static bool look_at_cast(void)
{
	bool moved = true;

	while (moved && slice < prep->slices) {
		enum schedule_result r =
			(posted ? step_io.finished
				: step_io.start)(cast, step, 0, slice, slice);

		if (r == SCHEDULE_FAILED)
			return false;
		moved = r != SCHEDULE_AGAIN;
		posted = r == SCHEDULE_POSTED || (posted && !moved);
		slice += r == SCHEDULE_DONE;
	}
	return true;
}

static bool look_at_internal(void)
{
	struct internal_messages t = {.comm = comm, .signature = INTERNAL};
	uint64_t words[2];
	size_t bytes = sizeof(words);
	bool any = peers[1].channel[TP_COLLECTIVE].in_base & 1;
	dicomm_result_t status =
		internal_take(&t, 1, any ? NULL : words, &bytes);

	return (status == DICOMM_SUCCESS || status == DICOMM_AGAIN) &&
	       bytes <= READERS_SLOT_BYTES;
}

bool readers_look(void)
{
	bool moved = false, good = true;

	for (int i = 0; i < TAGS && good; i++)
		good = tagged_kind.turn(tags[i], &moved) != SCHEDULE_FAILED;
	if (good && !got) {
		dicomm_result_t status = window_call_turn(get, &moved);

		got = status == DICOMM_SUCCESS;
		good = got || status == DICOMM_AGAIN;
	}
	if (good && windows_know(comm, 1) == DICOMM_SUCCESS)
		good = incoming_turn(comm, 1, &moved) == DICOMM_SUCCESS &&
		       outgoing_turn(comm, 1, &moved) != DICOMM_ERR_INTERNAL;
	return good && look_at_cast() && look_at_internal();
}

void readers_end(void)
{
	if (!got)
		window_call_drop(get);
	for (int i = 0; i < TAGS; i++)
		tagged_kind.drop(tags[i]);
	tagged_free(comm);
	comm->windows->first = NULL;
	comm->service->free(comm);
	for (int i = 0; i < TAGS; i++) {
		free(tags[i]->call.recv);
		free(tags[i]);
	}
	free(window->at);
	free(window);
	free(get->into);
	free(get);
	free(cast->call.recv);
	free(cast);
	free(flow);
	free(step);
	free(prep);
	free(mapped);
	mapped = NULL;
	free(peers);
	free(comm);
}
