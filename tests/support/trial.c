/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers of an operation, and what must be in them afterwards. */
#include "tests/support/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64
#define CANARY 0xA5 /* guards */
#define BLANK 0xC3  /* what is to be overwritten */

static const struct {
	const char *name;
	bool reduces, rooted, in_place;
} kinds[TRIAL_KINDS] = {
	[TRIAL_ALLREDUCE] = {"allreduce", true, false, true},
	[TRIAL_REDUCE] = {"reduce", true, true, true},
	[TRIAL_BROADCAST] = {"broadcast", false, true, true},
	[TRIAL_REDUCE_SCATTER] = {"reduce_scatter", true, false, true},
	[TRIAL_ALLGATHER] = {"allgather", false, false, true},
	[TRIAL_ALLTOALL] = {"alltoall", false, false, true},
	[TRIAL_GATHER] = {"gather", false, true, true},
	[TRIAL_SCATTER] = {"scatter", false, true, true},
	[TRIAL_ALLTOALLV] = {"alltoallv", false, false, false},
	[TRIAL_ALLGATHERV] = {"allgatherv", false, false, true},
	[TRIAL_REDUCE_SCATTERV] = {"reduce_scatterv", true, false, true},
	[TRIAL_GATHERV] = {"gatherv", false, true, true},
	[TRIAL_SCATTERV] = {"scatterv", false, true, true},
	[TRIAL_BARRIER] = {"barrier", false, false, false},
	[TRIAL_SENDRECV] = {"sendrecv", false, false, false},
	[TRIAL_REDUCE_LOCAL] = {"reduce_local", true, false, false},
};

const char *trial_name(enum trial_kind kind)
{
	return kinds[kind].name;
}

bool trial_reduces(enum trial_kind kind)
{
	return kinds[kind].reduces;
}

bool trial_rooted(enum trial_kind kind)
{
	return kinds[kind].rooted;
}

bool trial_can_be_in_place(enum trial_kind kind)
{
	return kinds[kind].in_place;
}

/* ---- v-collectives: uneven blocks, some empty, with gaps ---- */

/* Elements that a rank has for a rank. */
static size_t uneven(const struct trial *t, int from, int to)
{
	static const int quarters[] = {4, 1, 0, 7, 2, 5};

	return t->count * (size_t)quarters[(from * 2 + to) % 6] / 4;
}

static size_t *array(int n)
{
	size_t *a = calloc((size_t)n, sizeof(*a));

	JOB_CHECK(a, "no memory for %d counts", n);
	return a;
}

/* Places in falling order with a gap of one element between; returns the
 * length of the buffer. */
static size_t place_blocks(const size_t *counts, size_t *displs, int n)
{
	size_t at = 0;

	for (int r = n; r--;) {
		displs[r] = at;
		at += counts[r] + 1;
	}
	return at;
}

static void make_counts(struct trial *t)
{
	int n = t->ranks;

	if (t->kind < TRIAL_ALLTOALLV || t->kind > TRIAL_SCATTERV)
		return;
	t->counts = array(n);
	t->send_displs = array(n);
	t->recv_counts = array(n);
	t->recv_displs = array(n);
	for (int r = 0; r < n; r++) {
		bool own = t->kind == TRIAL_ALLTOALLV;

		t->counts[r] = uneven(t, own ? t->rank : 0, r);
		t->recv_counts[r] = uneven(t, r, t->rank);
	}
}

static size_t sum(const size_t *counts, int n)
{
	size_t all = 0;

	for (int r = 0; r < n; r++)
		all += counts[r];
	return all;
}

/* ---- buffers ---- */

/* Elements of both buffers, and where one begins in the other in place. */
struct layout {
	size_t send, recv;
	size_t send_at, recv_at;
};

static struct layout layout(struct trial *t)
{
	size_t c = t->count, n = (size_t)t->ranks, mine = (size_t)t->rank * c;
	bool root = t->rank == t->root;

	switch (t->kind) {
	case TRIAL_ALLREDUCE:
	case TRIAL_SENDRECV:
	case TRIAL_REDUCE_LOCAL:
		return (struct layout){c, c, 0, 0};
	case TRIAL_REDUCE:
		return (struct layout){c, root ? c : 0, 0, 0};
	case TRIAL_BROADCAST:
		return (struct layout){root ? c : 0, c, 0, 0};
	case TRIAL_REDUCE_SCATTER:
		return (struct layout){n * c, c, 0, mine};
	case TRIAL_ALLGATHER:
		return (struct layout){c, n * c, mine, 0};
	case TRIAL_ALLTOALL:
		return (struct layout){n * c, n * c, 0, 0};
	case TRIAL_GATHER:
		return (struct layout){c, root ? n * c : 0, mine, 0};
	case TRIAL_SCATTER:
		return (struct layout){root ? n * c : 0, c, 0, mine};
	case TRIAL_ALLTOALLV:
		return (struct layout){
			place_blocks(t->counts, t->send_displs, t->ranks),
			place_blocks(t->recv_counts, t->recv_displs, t->ranks),
			0, 0};
	case TRIAL_ALLGATHERV:
		c = place_blocks(t->counts, t->recv_displs, t->ranks);
		return (struct layout){t->counts[t->rank], c,
				       t->recv_displs[t->rank], 0};
	case TRIAL_REDUCE_SCATTERV:
		return (struct layout){sum(t->counts, t->ranks),
				       t->counts[t->rank], 0,
				       sum(t->counts, t->rank)};
	case TRIAL_GATHERV:
		c = place_blocks(t->counts, t->recv_displs, t->ranks);
		return (struct layout){t->counts[t->rank], root ? c : 0,
				       t->recv_displs[t->rank], 0};
	case TRIAL_SCATTERV:
		c = place_blocks(t->counts, t->send_displs, t->ranks);
		return (struct layout){root ? c : 0, t->counts[t->rank], 0,
				       t->send_displs[t->rank]};
	default:
		return (struct layout){0, 0, 0, 0};
	}
}

static void area_make(struct trial_area *a, size_t bytes, const struct trial *t)
{
	void *memory = NULL;

	a->shared = t->shared;
	a->bytes = bytes + 2 * GUARD + 64;
	if (t->shared)
		JOB_TRY(dicomm_mem_alloc(&memory, a->bytes));
	else
		memory = aligned_alloc(64, (a->bytes + 63) & ~(size_t)63);
	a->image = malloc(a->bytes);
	JOB_CHECK(memory && a->image, "no memory for %zu bytes", a->bytes);
	if (t->gadget)
		a->device = gadget_alloc(t->gadget, a->bytes);
	if (t->announced)
		JOB_TRY(dicomm_comm_register(t->comm,
					     a->device ? a->device : memory,
					     a->bytes, &a->handle));
	a->memory = memory;
	a->at = a->memory + GUARD + t->skew % 64;
}

static void area_free(const struct trial *t, struct trial_area *a)
{
	if (a->handle)
		JOB_TRY(dicomm_comm_deregister(t->comm, a->handle));
	if (a->device)
		gadget_free(t->gadget, a->device);
	if (a->shared)
		JOB_TRY(dicomm_mem_free(a->memory));
	else
		free(a->memory);
	free(a->image);
	memset(a, 0, sizeof(*a));
}

/* In place, both halves of a trial lie in t->send. */
static bool one_area(const struct trial *t)
{
	return t->in_place && kinds[t->kind].in_place &&
	       (!kinds[t->kind].rooted || t->rank == t->root);
}

static uint8_t *send_buffer(struct trial *t)
{
	size_t b = element_bytes(t->type);

	return t->send.at + (one_area(t) ? layout(t).send_at * b : 0);
}

static uint8_t *recv_buffer(struct trial *t)
{
	size_t b = element_bytes(t->type);

	return one_area(t) ? t->send.at + layout(t).recv_at * b : t->recv.at;
}

static void put_inputs(struct trial *t, uint8_t *at, int rank, size_t n)
{
	size_t b = element_bytes(t->type);

	for (size_t i = 0; i < n; i++)
		element_put(t->type, at + i * b,
			    element_input(t->type, t->op, t->seed, rank, i));
}

static void area_blank(struct trial_area *a, size_t bytes)
{
	if (!a->memory)
		return;
	memset(a->memory, CANARY, a->bytes);
	memset(a->at, BLANK, bytes);
}

static void area_to_device(const struct trial *t, const struct trial_area *a)
{
	if (a->device)
		gadget_copy(t->gadget, a->device, a->memory, a->bytes);
}

static void area_from_device(const struct trial *t, const struct trial_area *a)
{
	if (a->device)
		gadget_copy(t->gadget, a->memory, a->device, a->bytes);
}

/* A buffer as the call is given it */
static uint8_t *seen_by_call(const struct trial_area *a, uint8_t *at)
{
	return a->device ? a->device + (at - a->memory) : at;
}

void trial_refill(struct trial *t, unsigned seed)
{
	struct layout l = layout(t);
	size_t b = element_bytes(t->type), all = l.send;

	t->seed = seed;
	if (one_area(t) && l.recv > all)
		all = l.recv;
	area_blank(&t->send, all * b);
	area_blank(&t->recv, l.recv * b);
	if (t->kind == TRIAL_REDUCE_LOCAL) {
		put_inputs(t, t->send.at, 0, l.send);
		put_inputs(t, t->recv.at, 1, l.recv);
	} else {
		put_inputs(t, send_buffer(t), t->rank, l.send);
	}
	memcpy(t->send.image, t->send.memory, t->send.bytes);
	if (t->recv.memory)
		memcpy(t->recv.image, t->recv.memory, t->recv.bytes);
	area_to_device(t, &t->send);
	area_to_device(t, &t->recv);
}

int trial_placements(enum trial_kind kind)
{
	return trial_can_be_in_place(kind) ? TRIAL_PLACES : 1;
}

void trial_place(struct trial *t, const struct job_rank *me,
		 enum trial_placement p)
{
	t->in_place =
		trial_can_be_in_place(t->kind) &&
		(p == TRIAL_IN_PLACE || (p == TRIAL_MIXED && me->rank % 2));
	if (trial_rooted(t->kind))
		t->root = (int)t->seed % me->ranks;
	t->skew = t->seed % 5 ? 0 : t->seed;
}

void trial_fill(struct trial *t, const struct job_rank *me)
{
	struct layout l;
	size_t b = element_bytes(t->type);
	uint8_t scalar[8];

	t->comm = me->comm;
	t->rank = me->rank;
	t->ranks = me->ranks;
	if (t->kind == TRIAL_REDUCE_LOCAL &&
	    (t->op == DICOMM_AVG || t->op == ELEMENT_PREMULSUM))
		t->op = DICOMM_SUM; /* those are of ranks */
	t->created = t->op;
	if (t->op == ELEMENT_PREMULSUM) {
		element_put(t->type, scalar, element_scalar(t->rank));
		JOB_TRY(dicomm_redop_create_premulsum(
			&t->created, scalar, t->type,
			DICOMM_SCALAR_HOST_IMMEDIATE, t->comm));
	}
	make_counts(t);
	l = layout(t);
	if (one_area(t)) {
		area_make(&t->send, (l.send > l.recv ? l.send : l.recv) * b, t);
	} else {
		area_make(&t->send, l.send * b, t);
		area_make(&t->recv, l.recv * b, t);
	}
	trial_refill(t, t->seed);
}

void trial_free(struct trial *t)
{
	area_free(t, &t->send);
	if (t->recv.memory)
		area_free(t, &t->recv);
	if (t->op == ELEMENT_PREMULSUM)
		JOB_TRY(dicomm_redop_destroy(t->created, t->comm));
	free(t->counts);
	free(t->send_displs);
	free(t->recv_counts);
	free(t->recv_displs);
	t->counts = t->send_displs = t->recv_counts = t->recv_displs = NULL;
}

/* ---- the call ---- */

static void describe(const struct trial *t, char *text, size_t len)
{
	snprintf(text, len, "%s of %zu %s %s, root %d, seed %u, skew %zu%s%s",
		 kinds[t->kind].name, t->count, element_name(t->type),
		 kinds[t->kind].reduces ? element_op_name(t->op) : "", t->root,
		 t->seed, t->skew, t->in_place ? ", in place" : "",
		 t->shared ? ", shared" : "");
}

static void *send_argument(struct trial *t)
{
	return seen_by_call(&t->send, send_buffer(t));
}

static void *recv_argument(struct trial *t)
{
	return seen_by_call(one_area(t) ? &t->send : &t->recv, recv_buffer(t));
}

static dicomm_result_t sendrecv(struct trial *t, dicomm_stream_t stream)
{
	int n = t->ranks, next = (t->rank + 1) % n;
	int before = (t->rank + n - 1) % n;
	dicomm_result_t send, recv, end;

	JOB_TRY(dicomm_group_start());
	send = dicomm_send(send_argument(t), t->count, t->type, next, t->comm,
			   stream);
	recv = dicomm_recv(recv_argument(t), t->count, t->type, before, t->comm,
			   stream);
	end = dicomm_group_end();
	if (send != DICOMM_SUCCESS)
		return send;
	return recv != DICOMM_SUCCESS ? recv : end;
}

/* The addresses of blocks in a buffer; blocks without elements have none. */
static void list_blocks(const struct trial *t, uint8_t *buffer,
			const size_t *counts, const size_t *displs,
			void *list[])
{
	size_t at = 0;

	for (int r = 0; r < t->ranks; r++) {
		list[r] = buffer +
			  (displs ? displs[r] : at) * element_bytes(t->type);
		at += counts[r];
		if (!counts[r])
			list[r] = NULL;
	}
}

static dicomm_result_t call_list(struct trial *t, uint8_t *send, uint8_t *recv,
				 dicomm_stream_t stream)
{
	const void *sends[t->ranks];
	void *list[t->ranks], *recvs[t->ranks];
	bool root = t->rank == t->root;

	list_blocks(t, send, t->counts,
		    t->kind == TRIAL_REDUCE_SCATTERV ? NULL : t->send_displs,
		    list);
	for (int r = 0; r < t->ranks; r++)
		sends[r] = list[r];
	list_blocks(t, recv,
		    t->kind == TRIAL_ALLTOALLV ? t->recv_counts : t->counts,
		    t->recv_displs, recvs);
	switch (t->kind) {
	case TRIAL_ALLTOALLV:
		return dicomm_alltoallv_list(sends, t->counts, recvs,
					     t->recv_counts, t->type, t->comm,
					     stream);
	case TRIAL_ALLGATHERV:
		return dicomm_allgatherv_list(send, recvs, t->counts, t->type,
					      t->comm, stream);
	case TRIAL_REDUCE_SCATTERV:
		return dicomm_reduce_scatterv_list(sends, recv, t->counts,
						   t->type, t->created, t->comm,
						   stream);
	case TRIAL_GATHERV:
		return dicomm_gatherv_list(send, t->counts[t->rank],
					   root ? recvs : NULL,
					   root ? t->counts : NULL, t->type,
					   t->root, t->comm, stream);
	default:
		return dicomm_scatterv_list(
			root ? sends : NULL, root ? t->counts : NULL, recv,
			t->counts[t->rank], t->type, t->root, t->comm, stream);
	}
}

dicomm_result_t trial_call(struct trial *t, dicomm_stream_t stream)
{
	void *send = send_argument(t), *recv = recv_argument(t);
	bool root = t->rank == t->root;
	char text[160];

	describe(t, text, sizeof(text));
	job_doing("%s", text);
	/* Ranks mix both forms. */
	if (t->counts && (t->seed + (unsigned)t->rank) % 3 == 0)
		return call_list(t, send, recv, stream);
	switch (t->kind) {
	case TRIAL_ALLREDUCE:
		return dicomm_allreduce(send, recv, t->count, t->type,
					t->created, t->comm, stream);
	case TRIAL_REDUCE:
		return dicomm_reduce(send, root || t->seed % 2 ? recv : NULL,
				     t->count, t->type, t->created, t->root,
				     t->comm, stream);
	case TRIAL_BROADCAST:
		return dicomm_broadcast(root || t->seed % 2 ? send : NULL, recv,
					t->count, t->type, t->root, t->comm,
					stream);
	case TRIAL_REDUCE_SCATTER:
		return dicomm_reduce_scatter(send, recv, t->count, t->type,
					     t->created, t->comm, stream);
	case TRIAL_ALLGATHER:
		return dicomm_allgather(send, recv, t->count, t->type, t->comm,
					stream);
	case TRIAL_ALLTOALL:
		return dicomm_alltoall(send, recv, t->count, t->type, t->comm,
				       stream);
	case TRIAL_GATHER:
		return dicomm_gather(send, root || t->seed % 2 ? recv : NULL,
				     t->count, t->type, t->root, t->comm,
				     stream);
	case TRIAL_SCATTER:
		return dicomm_scatter(root || t->seed % 2 ? send : NULL, recv,
				      t->count, t->type, t->root, t->comm,
				      stream);
	case TRIAL_ALLTOALLV:
		return dicomm_alltoallv(send, t->counts, t->send_displs, recv,
					t->recv_counts, t->recv_displs, t->type,
					t->comm, stream);
	case TRIAL_ALLGATHERV:
		return dicomm_allgatherv(send, recv, t->counts, t->recv_displs,
					 t->type, t->comm, stream);
	case TRIAL_REDUCE_SCATTERV:
		return dicomm_reduce_scatterv(send, recv, t->counts, t->type,
					      t->created, t->comm, stream);
	case TRIAL_GATHERV:
		return dicomm_gatherv(send, t->counts[t->rank],
				      root || t->seed % 2 ? recv : NULL,
				      t->counts, t->recv_displs, t->type,
				      t->root, t->comm, stream);
	case TRIAL_SCATTERV:
		return dicomm_scatterv(root || t->seed % 2 ? send : NULL,
				       t->counts, t->send_displs, recv,
				       t->counts[t->rank], t->type, t->root,
				       t->comm, stream);
	case TRIAL_SENDRECV:
		return sendrecv(t, stream);
	case TRIAL_REDUCE_LOCAL:
		return dicomm_reduce_local(send, recv, t->count, t->type, t->op,
					   t->comm, stream);
	default:
		return dicomm_barrier(t->comm, stream);
	}
}

/* ---- the result ---- */

/* Elements of the result, in the image of the buffer. */
struct want {
	struct trial *t;
	uint8_t *image; /* of the receive buffer */
	const uint8_t *got;
};

/* n elements at `at` are those from `first` on of a rank's input. */
static void want_inputs(const struct want *w, size_t at, int rank, size_t first,
			size_t n)
{
	const struct trial *t = w->t;
	size_t b = element_bytes(t->type);

	for (size_t i = 0; i < n; i++)
		element_put(t->type, w->image + (at + i) * b,
			    element_input(t->type, t->op, t->seed, rank,
					  first + i));
}

/* n elements at 0 are reduced from those from `first` on, of so many ranks. */
static void want_reduced(const struct want *w, int ranks, size_t first,
			 size_t n)
{
	const struct trial *t = w->t;
	size_t b = element_bytes(t->type);

	for (size_t i = 0; i < n; i++)
		element_reduce(t->type, t->op, t->seed, ranks, first + i,
			       w->image + i * b, w->got + i * b);
}

/* The blocks of an alltoallv, which lie elsewhere in each sender. */
static void want_blocks(const struct want *w)
{
	struct trial *t = w->t;
	size_t *counts = array(t->ranks), *displs = array(t->ranks);

	for (int s = 0; s < t->ranks; s++) {
		for (int d = 0; d < t->ranks; d++)
			counts[d] = uneven(t, s, d);
		place_blocks(counts, displs, t->ranks);
		want_inputs(w, t->recv_displs[s], s, displs[t->rank],
			    counts[t->rank]);
	}
	free(counts);
	free(displs);
}

static void want_result(const struct want *w)
{
	const struct trial *t = w->t;
	size_t c = t->count, rank = (size_t)t->rank;
	int n = t->ranks;
	bool root = t->rank == t->root;

	switch (t->kind) {
	case TRIAL_ALLREDUCE:
		want_reduced(w, n, 0, c);
		break;
	case TRIAL_REDUCE:
		want_reduced(w, n, 0, root ? c : 0);
		break;
	case TRIAL_BROADCAST:
		want_inputs(w, 0, t->root, 0, c);
		break;
	case TRIAL_REDUCE_SCATTER:
		want_reduced(w, n, rank * c, c);
		break;
	case TRIAL_ALLGATHER:
	case TRIAL_GATHER:
		for (int r = 0; r < n; r++)
			want_inputs(w, (size_t)r * c, r, 0,
				    root || t->kind == TRIAL_ALLGATHER ? c : 0);
		break;
	case TRIAL_ALLTOALL:
		for (int r = 0; r < n; r++)
			want_inputs(w, (size_t)r * c, r, rank * c, c);
		break;
	case TRIAL_SCATTER:
		want_inputs(w, 0, t->root, rank * c, c);
		break;
	case TRIAL_ALLTOALLV:
		want_blocks(w);
		break;
	case TRIAL_SCATTERV:
		want_inputs(w, 0, t->root, t->send_displs[rank],
			    t->counts[rank]);
		break;
	case TRIAL_ALLGATHERV:
	case TRIAL_GATHERV:
		for (int r = 0; r < n && (root || t->kind != TRIAL_GATHERV);
		     r++)
			want_inputs(w, t->recv_displs[r], r, 0, t->counts[r]);
		break;
	case TRIAL_REDUCE_SCATTERV:
		want_reduced(w, n, sum(t->counts, t->rank), t->counts[t->rank]);
		break;
	case TRIAL_SENDRECV:
		want_inputs(w, 0, (t->rank + n - 1) % n, 0, c);
		break;
	case TRIAL_REDUCE_LOCAL:
		want_reduced(w, 2, 0, c);
		break;
	default:
		break;
	}
}

static void hex(char *text, const uint8_t *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sprintf(text + 2 * i, "%02x", at[i]);
}

static void compare(const struct trial *t, const struct trial_area *a,
		    const char *which, const uint8_t *buffer)
{
	size_t b = element_bytes(t->type), i = 0, e;
	char got[33], want[33], text[160];
	ptrdiff_t off;

	if (!a->memory || !memcmp(a->memory, a->image, a->bytes))
		return;
	while (a->memory[i] == a->image[i])
		i++;
	off = a->memory + i - buffer;
	e = off >= 0 ? (size_t)off / b * b : 0;
	hex(got, off >= 0 ? buffer + e : a->memory + i, off >= 0 ? b : 1);
	hex(want, a->image + (off >= 0 ? buffer + e - a->memory : (ptrdiff_t)i),
	    off >= 0 ? b : 1);
	describe(t, text, sizeof(text));
	job_fail("%s: %s buffer, byte %td (element %td): %s instead of %s",
		 text, which, off, off / (ptrdiff_t)b, got, want);
}

void trial_check(struct trial *t)
{
	uint8_t *recv = recv_buffer(t);
	struct trial_area *in = one_area(t) ? &t->send : &t->recv;
	struct want w = {t, in->image + (recv - in->memory), recv};

	area_from_device(t, &t->send);
	area_from_device(t, &t->recv);
	if (t->gadget)
		gadget_wait(t->gadget);
	want_result(&w);
	compare(t, &t->send, "send", send_buffer(t));
	compare(t, &t->recv, "receive", recv);
}

void trial_run(struct trial t, const struct job_rank *me)
{
	trial_fill(&t, me);
	JOB_TRY(trial_call(&t, t.gadget ? t.gadget->native : NULL));
	trial_check(&t);
	trial_free(&t);
}

void trial_works(dicomm_comm_t comm, int rank, int ranks)
{
	struct job_rank as = {.rank = rank, .ranks = ranks, .comm = comm};

	trial_run((struct trial){.kind = TRIAL_ALLREDUCE,
				 .type = DICOMM_INT32,
				 .count = 20000,
				 .seed = (unsigned)ranks},
		  &as);
}

void trial_run_some(const struct job_rank *me, unsigned seed)
{
	const size_t counts[] = {1, 700, 5000, 40000};
	const enum trial_kind some[] = {TRIAL_ALLREDUCE, TRIAL_ALLTOALL,
					TRIAL_SENDRECV};

	for (unsigned i = 0; i < 12; i++)
		trial_run((struct trial){.kind = some[i % 3],
					 .type = DICOMM_INT32,
					 .op = DICOMM_SUM,
					 .count = counts[i / 3],
					 .seed = seed + i},
			  me);
}
