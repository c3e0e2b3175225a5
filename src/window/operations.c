/* SPDX-License-Identifier: BSD-3-Clause */
/* The public one-sided operations: their checks, and how they are run. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/type.h"
#include "src/core/fault.h"
#include "src/core/host_access.h"
#include "src/device/device.h"
#include "src/engine/trace.h"
#include "src/stream/submit.h"
#include "src/message/headed.h"
#include "src/window/window.h"

#define BAD(...) FAIL(DICOMM_ERR_INVALID_ARGUMENT, __VA_ARGS__)

static dicomm_result_t check_peer(const char *f, const struct dicomm_comm *comm,
				  int peer)
{
	if (__builtin_expect(peer < 0 || peer >= comm->ranks, 0))
		return BAD("%s: peer %d: not in 0 .. %d", f, peer,
			   comm->ranks - 1);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_signal(const char *f, int signal, int context)
{
	if (__builtin_expect(signal < 0 || signal >= DICOMM_SIGNALS, 0))
		return BAD("%s: signal %d: not in 0 .. %d", f, signal,
			   DICOMM_SIGNALS - 1);
	if (__builtin_expect(context < 0 || context >= DICOMM_SIGNAL_CONTEXTS,
			     0))
		return BAD("%s: context %d: not in 0 .. %d", f, context,
			   DICOMM_SIGNAL_CONTEXTS - 1);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_flags(const char *f, unsigned flags)
{
	if (__builtin_expect(flags, 0))
		return BAD("%s: flags 0x%x: not 0", f, flags);
	return DICOMM_SUCCESS;
}

/* The range of the peer's window; *bytes: its length */
static dicomm_result_t check_window(const char *f,
				    const struct dicomm_comm *comm,
				    const struct dicomm_window *w, int peer,
				    size_t offset, size_t count,
				    dicomm_datatype_t type, size_t *bytes)
{
	size_t end;

	if (__builtin_expect(!w || w->magic != WINDOW_MAGIC || w->comm != comm,
			     0))
		return BAD("%s: win %p: no window of this communicator, or it "
			   "was deregistered",
			   f, (const void *)w);
	if (__builtin_expect(!type_valid(type), 0))
		return BAD("%s: type %d: no such datatype", f, (int)type);
	if (__builtin_expect(
		    __builtin_mul_overflow(count, type_bytes(type), bytes) ||
			    *bytes > PTRDIFF_MAX,
		    0))
		return BAD("%s: count %zu: more than can be addressed", f,
			   count);
	if (__builtin_expect(__builtin_add_overflow(offset, *bytes, &end) ||
				     end > w->sizes[peer],
			     0))
		return BAD("%s: offset %zu, %zu bytes: the window of rank %d "
			   "has %zu bytes",
			   f, offset, *bytes, peer, (size_t)w->sizes[peer]);
	return DICOMM_SUCCESS;
}

static dicomm_result_t check_local(const char *f,
				   const struct dicomm_comm *comm,
				   const void *local, size_t bytes)
{
	if (!bytes)
		return DICOMM_SUCCESS;
	if (__builtin_expect(!local, 0))
		return BAD("%s: local is NULL, for %zu bytes", f, bytes);
	return device_check(comm, f, "local", local);
}

/* Blocking; a trace shows operations only. */
static bool is_direct(const struct dicomm_comm *comm, dicomm_stream_t stream)
{
	return !group_open() && !stream && !comm->dev && !trace_on;
}

static struct call call_of(struct window_call *c, dicomm_datatype_t type,
			   size_t count)
{
	return (struct call){.kind = &one_sided_kind,
			     .function = c->function,
			     .type = type,
			     .root = c->peer,
			     .count = count,
			     .send = c->out.from,
			     .recv = c->into,
			     .window = c};
}

static dicomm_result_t submit(const struct window_call *c,
			      dicomm_datatype_t type, size_t count,
			      dicomm_stream_t stream)
{
	size_t wants = (size_t)c->n * sizeof(*c->wants);
	struct window_call *own = calloc(1, sizeof(*own) + wants);
	struct call call;

	if (!own)
		return FAIL(DICOMM_ERR_NO_MEMORY, "%s: out of memory",
			    call_name(c->function));
	*own = *c;
	if (wants) {
		own->wants = (struct window_want *)(own + 1);
		memcpy(own->wants, c->wants, wants);
	}
	call = call_of(own, type, count);
	return group_call(c->comm, &call, (size_t *)own, stream);
}

static dicomm_result_t start(struct window_call *c, dicomm_datatype_t type,
			     size_t count, dicomm_stream_t stream)
{
	dicomm_result_t status = DICOMM_AGAIN;
	struct call call;

	if (is_direct(c->comm, stream)) {
		call = call_of(c, type, count);
		status = window_call_run(c, &call);
	}
	return status == DICOMM_AGAIN ? submit(c, type, count, stream) : status;
}

/* A short transfer of a blocking call goes at once. */
static inline bool put_quick(struct dicomm_comm *comm, int peer,
			     const void *from, uint64_t first, uint64_t offset,
			     uint64_t bytes, uint64_t last)
{
	bool done;

	if (!comm->windows || trace_on || !data_path_enter_briefly(&comm->path))
		return false;
	done = outgoing_quick(comm, peer, from, first, offset, bytes, last);
	comm->stats.operations += done;
	data_path_leave(&comm->path);
	return done;
}

static dicomm_result_t
send_head(enum call_function function, const struct window_head *head,
	  const void *from, dicomm_datatype_t type, size_t count, int peer,
	  struct dicomm_comm *comm, dicomm_stream_t stream)
{
	struct window_call c;

	if (function == CALL_SIGNAL && is_direct(comm, stream) &&
	    put_quick(comm, peer, NULL, window_first_word(WINDOW_PUT, 0), 0, 0,
		      window_last_word(head->signal, head->context, 0)))
		return DICOMM_SUCCESS;
	c = (struct window_call){.comm = comm,
				 .function = function,
				 .peer = peer,
				 .out = {.head = *head, .from = from}};
	return start(&c, type, count, stream);
}

/* The same with few checks. What is out of the ordinary goes the long way,
 * which also says what is wrong. */
static inline bool put_at_once(const void *local, size_t count,
			       dicomm_datatype_t type, int peer,
			       const struct dicomm_window *win, size_t offset,
			       int signal, int context, unsigned flags,
			       struct dicomm_comm *comm, dicomm_stream_t stream)
{
	uint64_t last =
		window_last_word((uint16_t)signal, (uint16_t)context, 0);
	size_t bytes, end;

	if (!comm_usable(comm) || !is_direct(comm, stream) || flags || !local ||
	    (unsigned)peer >= (unsigned)comm->ranks || !win ||
	    win->magic != WINDOW_MAGIC || win->comm != comm)
		return false;
	if (__builtin_mul_overflow(count, type_bytes(type), &bytes) || !bytes ||
	    bytes > HEADED_EAGER ||
	    __builtin_add_overflow(offset, bytes, &end) ||
	    end > win->sizes[peer] || !host_access_quick(local, bytes, NULL, 0))
		return false;
	if (signal == DICOMM_NO_SIGNAL)
		last = window_last_word(WINDOW_NO_SIGNAL, 0, 0);
	else if ((unsigned)signal >= DICOMM_SIGNALS ||
		 (unsigned)context >= DICOMM_SIGNAL_CONTEXTS)
		return false;
	return put_quick(comm, peer, local,
			 window_first_word(WINDOW_PUT, win->id), offset, bytes,
			 last);
}

static dicomm_result_t put_checked(const void *local, size_t count,
				   dicomm_datatype_t type, int peer,
				   dicomm_window_t win, size_t offset,
				   int signal, int context, unsigned flags,
				   dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "put_signal";
	struct window_head head = {.what = WINDOW_PUT,
				   .signal = WINDOW_NO_SIGNAL};
	size_t bytes;

	TRY(comm_check(comm, f));
	TRY(check_peer(f, comm, peer));
	TRY(check_window(f, comm, win, peer, offset, count, type, &bytes));
	TRY(check_flags(f, flags));
	TRY(stream_check(stream, comm, f));
	TRY(check_local(f, comm, local, bytes));
	if (signal != DICOMM_NO_SIGNAL) {
		TRY(check_signal(f, signal, context));
		head.signal = (uint16_t)signal;
		head.context = (uint16_t)context;
	}
	head.window = win->id;
	head.offset = offset;
	head.bytes = bytes;
	return send_head(CALL_PUT_SIGNAL, &head, local, type, count, peer, comm,
			 stream);
}

dicomm_result_t dicomm_put_signal(const void *local, size_t count,
				  dicomm_datatype_t type, int peer,
				  dicomm_window_t win, size_t offset,
				  int signal, int context, unsigned flags,
				  dicomm_comm_t comm, dicomm_stream_t stream)
{
	if (__builtin_expect(put_at_once(local, count, type, peer, win, offset,
					 signal, context, flags, comm, stream),
			     1))
		return DICOMM_SUCCESS;
	return comm_heard(comm,
			  put_checked(local, count, type, peer, win, offset,
				      signal, context, flags, comm, stream));
}

static dicomm_result_t signal_checked(int peer, int signal, int context,
				      unsigned flags, dicomm_comm_t comm,
				      dicomm_stream_t stream)
{
	static const char f[] = "signal";
	struct window_head head = {.what = WINDOW_PUT};

	TRY(comm_check(comm, f));
	TRY(check_peer(f, comm, peer));
	TRY(check_signal(f, signal, context));
	TRY(check_flags(f, flags));
	TRY(stream_check(stream, comm, f));
	head.signal = (uint16_t)signal;
	head.context = (uint16_t)context;
	return send_head(CALL_SIGNAL, &head, NULL, DICOMM_INT8, 0, peer, comm,
			 stream);
}

dicomm_result_t dicomm_signal(int peer, int signal, int context, unsigned flags,
			      dicomm_comm_t comm, dicomm_stream_t stream)
{
	return comm_heard(comm, signal_checked(peer, signal, context, flags,
					       comm, stream));
}

/* Those of one signal become one. */
static dicomm_result_t collect(const char *f, const struct dicomm_comm *comm,
			       int n, const dicomm_wait_signal_desc_t *descs,
			       struct window_want *wants, int *nwants)
{
	*nwants = 0;
	for (int i = 0; i < n; i++) {
		const dicomm_wait_signal_desc_t *d = &descs[i];
		int k = 0;

		TRY(check_peer(f, comm, d->peer));
		TRY(check_signal(f, d->signal, d->context));
		if (d->count < 0)
			return BAD("%s: count %d of descs[%d]: negative", f,
				   d->count, i);
		while (k < *nwants && (wants[k].peer != d->peer ||
				       wants[k].signal != d->signal ||
				       wants[k].context != d->context))
			k++;
		if (k == *nwants && d->count)
			wants[(*nwants)++] = (struct window_want){
				d->peer, d->signal, d->context, 0};
		if (d->count)
			wants[k].count += (uint64_t)d->count;
	}
	return DICOMM_SUCCESS;
}

#define FEW 8

static dicomm_result_t wait_checked(int n,
				    const dicomm_wait_signal_desc_t *descs,
				    dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "wait_signal";
	struct window_want few[FEW], *wants = few;
	struct window_call c;
	dicomm_result_t status;

	TRY(comm_check(comm, f));
	if (n < 0)
		return BAD("%s: n %d: negative", f, n);
	if (n && !descs)
		return BAD("%s: descs is NULL, n is %d", f, n);
	TRY(stream_check(stream, comm, f));
	if (n > FEW)
		wants = calloc((size_t)n, sizeof(*wants));
	if (!wants)
		return FAIL(DICOMM_ERR_NO_MEMORY,
			    "%s: no memory for %d signals", f, n);
	c = (struct window_call){.comm = comm,
				 .function = CALL_WAIT_SIGNAL,
				 .peer = -1,
				 .wants = wants};
	status = collect(f, comm, n, descs, wants, &c.n);
	if (status == DICOMM_SUCCESS)
		status = start(&c, DICOMM_INT8, 0, stream);
	if (wants != few)
		free(wants);
	return status;
}

/* Signals of one kind, in a blocking call */
static inline dicomm_result_t wait_at_once(int n,
					   const dicomm_wait_signal_desc_t *d,
					   struct dicomm_comm *comm,
					   dicomm_stream_t stream)
{
	struct window_want want;

	if (!comm_usable(comm) || n != 1 || !d || !is_direct(comm, stream) ||
	    (unsigned)d->peer >= (unsigned)comm->ranks ||
	    (unsigned)d->signal >= DICOMM_SIGNALS ||
	    (unsigned)d->context >= DICOMM_SIGNAL_CONTEXTS || d->count < 1)
		return DICOMM_AGAIN;
	want = (struct window_want){d->peer, d->signal, d->context,
				    (uint64_t)d->count};
	return window_wait_one(comm, &want);
}

dicomm_result_t dicomm_wait_signal(int n,
				   const dicomm_wait_signal_desc_t *descs,
				   dicomm_comm_t comm, dicomm_stream_t stream)
{
	dicomm_result_t status = wait_at_once(n, descs, comm, stream);

	if (__builtin_expect(status == DICOMM_AGAIN, 0))
		status = wait_checked(n, descs, comm, stream);
	return comm_heard(comm, status);
}

static dicomm_result_t get_checked(void *local, size_t count,
				   dicomm_datatype_t type, int peer,
				   dicomm_window_t win, size_t offset,
				   dicomm_comm_t comm, dicomm_stream_t stream)
{
	static const char f[] = "get";
	struct window_call c;
	size_t bytes;

	TRY(comm_check(comm, f));
	TRY(check_peer(f, comm, peer));
	TRY(check_window(f, comm, win, peer, offset, count, type, &bytes));
	TRY(stream_check(stream, comm, f));
	TRY(check_local(f, comm, local, bytes));
	c = (struct window_call){.comm = comm,
				 .function = CALL_GET,
				 .peer = peer,
				 .into = local,
				 .out.head = {.what = WINDOW_GET,
					      .window = win->id,
					      .offset = offset,
					      .bytes = bytes,
					      .signal = WINDOW_NO_SIGNAL}};
	return start(&c, type, count, stream);
}

dicomm_result_t dicomm_get(void *local, size_t count, dicomm_datatype_t type,
			   int peer, dicomm_window_t win, size_t offset,
			   dicomm_comm_t comm, dicomm_stream_t stream)
{
	return comm_heard(comm, get_checked(local, count, type, peer, win,
					    offset, comm, stream));
}
