/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: memory of a rank that its peers write by puts and read by gets.
 *
 * The rank itself writes its windows. A put is a message to it. Its head has
 * the place of the bytes and the signal to count afterwards. The bytes follow
 * like those of a send: in the same message, in slots, or as a reference. The
 * rank takes such messages whenever it polls its transports, and a thread of
 * the library polls for it while it computes (cross_progress.h). So, as
 * everywhere in this library, only a rank's own threads write its user's
 * memory: once they have left the data path of a broken communicator, nothing
 * writes its windows any more.
 *
 * Bytes from a device with memory of its own go by reference where its peer, or
 * a transport, reaches that memory: in place, if the user's buffer or the
 * window is reached, else from a staging buffer there. The peer's device copies
 * them into its window, or the transport writes them there (outgoing.c,
 * incoming.c). Otherwise they pass through staging buffers in host memory
 * (src/device/device.h). The library's stream of the device makes all copies.
 *
 * Messages of a pair of ranks are taken in the order in which they were put,
 * and the messages of one transfer follow each other. So a signal counts when
 * the bytes of its put, and of all earlier puts to that peer, are there.
 *
 * The thread of the data path calls these functions, unless noted otherwise.
 */
#ifndef DICOMM_WINDOW_WINDOW_H
#define DICOMM_WINDOW_WINDOW_H

#include <string.h>

#include "src/core/call.h"
#include "src/core/comm.h"
#include "src/device/user_buffer.h"
#include "src/message/memory_ref.h"

#define WINDOW_MAGIC UINT64_C(0xd1c0317d0b5e00a7)
/* Messages taken in one turn */
#define WINDOW_BUDGET 64
#define WINDOW_NO_SIGNAL UINT16_MAX

/* Signatures of messages */
#define WINDOW_HEAD UINT32_C(0x77696e31)
#define WINDOW_BYTES UINT32_C(0x77696e32)

enum window_what {
	WINDOW_PUT,  /* of 0 bytes without a window: a signal */
	WINDOW_GET,  /* request for bytes */
	WINDOW_REPLY /* the bytes of a get */
};

/* The first bytes of a message. */
struct window_head {
	uint32_t what;
	uint32_t window;
	uint64_t offset, bytes;
	uint16_t signal, context;
	uint32_t get; /* for GET and REPLY: number of the get */
};

/* On the wire, a head is four words, each stored and loaded as a whole. If a
 * word were stored in parts and loaded as a whole a moment later, the processor
 * would stall (store forwarding). */
struct window_words {
	uint64_t first, offset, bytes, last;
};

static inline uint64_t window_first_word(uint32_t what, uint32_t window)
{
	return what | (uint64_t)window << 32;
}

static inline uint64_t window_last_word(uint16_t signal, uint16_t context,
					uint32_t get)
{
	return signal | (uint64_t)context << 16 | (uint64_t)get << 32;
}

static inline struct window_words window_head_pack(const struct window_head *h)
{
	return (struct window_words){
		window_first_word(h->what, h->window), h->offset, h->bytes,
		window_last_word(h->signal, h->context, h->get)};
}

static inline void window_head_load(struct window_head *h, const uint8_t *at)
{
	uint64_t first, last;

	memcpy(&first, at, 8);
	memcpy(&h->offset, at + 8, 8);
	memcpy(&h->bytes, at + 16, 8);
	memcpy(&last, at + 24, 8);
	h->what = (uint32_t)first;
	h->window = (uint32_t)(first >> 32);
	h->signal = (uint16_t)last;
	h->context = (uint16_t)(last >> 16);
	h->get = (uint32_t)(last >> 32);
}

/* Most short puts have 8 bytes. With a constant length, memcpy() is one load
 * and one store. */
static inline void window_copy(void *dst, const void *src, size_t len)
{
	if (len == 8)
		memcpy(dst, src, 8);
	else
		memcpy(dst, src, len);
}

struct dicomm_window {
	uint64_t magic;
	struct dicomm_comm *comm;
	/* DICOMM_WINDOW_ENDS_ALONE: deregistering it is not collective */
	bool ends_alone;
	uint32_t id; /* the same on all ranks */
	uint8_t *at;
	uint64_t bytes;
	bool on_device;  /* with memory of its own */
	uint64_t *sizes; /* owned: bytes of each rank */
	struct mem_handles handles;
	/* On a device: it is reached without a copy. NULL: nobody would */
	struct user_buffer *buffer;
	struct dicomm_window *next;
};

/* Bytes to a peer, in the order of its queue */
struct transfer {
	struct transfer *next;
	struct window_head head;
	const uint8_t *from;
	/* Sends the bytes; on a device, those in the staging buffer */
	struct message_send send;
	/* From the memory of a device, or into it: who reaches the user's
	 * memory */
	struct buffer_reach reach;
	/* From the memory of a device: how it goes; the reference to it; the
	 * staging buffer that is sent, and the bytes that were copied into
	 * staging buffers */
	bool on_device;
	enum transfer_way {
		TRANSFER_STAGES,  /* by staging buffers */
		TRANSFER_MEM_REF, /* the peer reads it in place */
		TRANSFER_REF      /* a transport takes it in place */
	} way;
	struct memory_ref mem_ref;
	struct stage *stage;
	uint64_t staged;
	bool headed, done;
	bool owned; /* the queue frees it */
};

/* A one-sided call */
struct window_call {
	struct dicomm_comm *comm;
	enum call_function function;
	int peer;
	struct transfer out; /* what it sends */
	bool begun;
	struct mem_handles handles; /* registration of the user's buffer */
	/* Of a get. into: where its bytes go; arrived: all are there. */
	uint8_t *into;
	bool arrived;
	struct window_call *next; /* in the list of gets of its partner */
	/* Of dicomm_wait_signal(): what it waits for */
	int n;
	struct window_want {
		int peer, signal, context;
		uint64_t count;
	} * wants;
};

struct signal_count {
	uint64_t arrived, taken;
};

/* The state of this rank's one-sided traffic with one peer */
struct partner {
	bool known; /* it has begun to send, and is in windows.known */
	/* To the peer: transfers that are not done; those from `unsent` on are
	 * not put as a whole. */
	struct transfer *first, *unsent;
	struct headed_places heads;
	struct window_call *gets; /* gets that wait for their replies */
	/* From the peer: the transfer whose bytes are to come */
	struct window_head now;
	struct message_receive in;
	/* Bytes of the transfer that come after those of the reference that is
	 * being read, and are not in `in.left` */
	uint64_t later;
	/* Who reaches the place of the bytes, on a device */
	struct buffer_reach reach;
	/* For windows on a device. stage: the staging buffer into which bytes
	 * are read; landings: copies so far from such buffers to the device;
	 * lands: the last of these copies ends the transfer. */
	struct stage *stage;
	uint64_t landings;
	bool lands;
	/* [context][signal]; NULL: no signal of this context has arrived yet */
	struct signal_count *signals[DICOMM_SIGNAL_CONTEXTS];
};

struct windows {
	struct dicomm_window *first;
	/* number of windows so far; the id of the latest one */
	uint32_t registered;
	uint32_t gets; /* number of gets so far */
	/* Ranks that have begun to send, and ranks to which this one sends */
	int *known, *outs;
	int nknown, nouts;
	/* the next rank of which to check whether it has begun to send */
	int look;
	struct partner partners[]; /* [ranks] */
};

static inline struct partner *partner_of(const struct dicomm_comm *comm,
					 int rank)
{
	return &comm->windows->partners[rank];
}

static inline struct channel *window_channel(struct peer *peer)
{
	return &peer->channel[TP_WINDOW];
}

/* serve.c: makes comm->windows. From now on, a thread polls for this rank
 * while it is away. */
dicomm_result_t windows_begin(struct dicomm_comm *comm);
/* Connects the channel from that rank. AGAIN: it has not begun to send. */
dicomm_result_t windows_know(struct dicomm_comm *comm, int rank);
/* Frees staging buffers whose copies are done, on the rank of a device. */
dicomm_result_t windows_look_at_device(struct dicomm_comm *comm, bool *moved);

/* list.c: makes a window. NULL: no memory. */
struct dicomm_window *window_make(struct dicomm_comm *comm);
/* Gives it the next number, and adds it to the list. */
void window_add(struct dicomm_window *w);
/* Returns NULL if there is no window of that number, or no longer. */
struct dicomm_window *window_find(const struct dicomm_comm *comm, uint32_t id);
/* Removes it from the list, if it is there, and frees it. */
void window_free(struct dicomm_window *w);

/* outgoing.c: connects to a peer. */
dicomm_result_t outgoing_connect(struct dicomm_comm *comm, int rank);
void outgoing_add(struct partner *to, struct transfer *t);
void outgoing_remove(struct partner *to, const struct transfer *t);
/* Puts a short transfer at once. Returns false if it has to be queued. */
bool outgoing_quick(struct dicomm_comm *comm, int rank, const void *from,
		    uint64_t first, uint64_t offset, uint64_t bytes,
		    uint64_t last);
/* Puts queued transfers as far as there are credits, and completes those whose
 * bytes may change again. */
dicomm_result_t outgoing_turn(struct dicomm_comm *comm, int rank, bool *moved);
/* Returns true if a transfer to that peer is not complete. */
bool outgoing_pending(struct dicomm_comm *comm, int rank);

/* incoming.c: incoming_one() takes one message of a peer, or a part of one;
 * incoming_turn() takes up to WINDOW_BUDGET of them. */
dicomm_result_t incoming_one(struct dicomm_comm *comm, int rank, bool *moved,
			     bool *more);
dicomm_result_t incoming_turn(struct dicomm_comm *comm, int rank, bool *moved);
struct signal_count *signal_of(struct partner *from, int signal, int context);

/* call.c: a call whose item of the driver owns its window_call. It has no plan,
 * and no place among the calls of all ranks. */
extern const struct operation_kind one_sided_kind;
/* Advances the call. Returns DICOMM_AGAIN if it is not complete yet. */
dicomm_result_t window_call_turn(struct window_call *c, bool *moved);
void window_call_drop(struct window_call *c);
/* Waits for one kind of signal of a peer that has begun to send, and takes the
 * signals. AGAIN: the peer has not begun, or calls are queued before this one.
 * Enters the data path. */
dicomm_result_t window_wait_one(struct dicomm_comm *comm,
				const struct window_want *want);
/* Enters the data path, and runs the call to its end in this thread. */
dicomm_result_t window_call_run(struct window_call *c, const struct call *call);

#endif
