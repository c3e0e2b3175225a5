/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The seam between src/message and a transport. A transport moves messages into
 * the inbox of a peer. It knows neither collectives nor the engine.
 *
 * Inbox. An inbox is a ring of `slots` slots, for one ordered pair of ranks and
 * one class of traffic. Message number q (the first is 1) goes into slot q %
 * slots. put() writes the line of the slot, and the data area of the slot (shm:
 * or an exchange buffer) if the body does not fit into the line. When any
 * reader would see all of that, line->seq becomes q. So each counter has one
 * writer and only grows: it does no harm if a message is delivered twice, or if
 * several arrive at once. The reader polls line->seq in memory that it has
 * mapped (shm: of the sender).
 *
 * Credits. put() of message q needs a credit: q <= *released + slots. The
 * receiver grants credits with release(). Messages that have credits may be put
 * in any order and may arrive in any other order, since a transport may have
 * several paths to a peer.
 *
 * Large messages. The sender may put a reference to its memory instead of the
 * data: offer() makes it. The sender keeps the memory unchanged until the
 * message is released. The receiver maps or reads it. A slice longer than
 * limits.eager_bytes, which does not fit a slot, is always sent so. Only its
 * own rank ever writes a user buffer, so once that rank has stopped, nothing
 * writes it.
 *
 * Threads. One thread at a time may use a device and its peers; abort() may be
 * called by any thread. A transport never calls the engine. DICOMM_AGAIN means
 * that nothing happened: poll(), then try again. Every operation is set, unless
 * its comment says what NULL means.
 *
 * Errors. The comment of an operation lists those that it may return, with the
 * text set as the last error. Besides, each one with a peer may return
 * ERR_ABORTED, without a text, from abort() on; and ERR_INTERNAL where the
 * caller breaks this contract. After any other error, further operations with
 * that peer are of no use: the caller gives the communicator up.
 */
#ifndef DICOMM_TRANSPORTS_TRANSPORT_H
#define DICOMM_TRANSPORTS_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "src/base/doorbell.h"

enum tp_class {
	TP_COLLECTIVE,
	TP_POINT_TO_POINT,
	TP_TAGGED,
	TP_WINDOW,
	TP_CLASSES
};

enum tp_kind {
	TP_DATA, /* len bytes: in the line if they fit, else in the data area */
	TP_REF,  /* a struct tp_ref in the line; it refers to len bytes */
	/* Only found in lines: put() was called with TP_DATA. len bytes in the
	 * buffer whose number is the first byte of the room. */
	TP_BUFFER
};

/* What the receiver will do with the bytes that a reference refers to. */
enum tp_want {
	TP_WANT_LOAD,     /* load each byte about once */
	TP_WANT_COPY,     /* copy them while the sender is idle */
	TP_WANT_EXCHANGE, /* copy them while the sender receives as much */
	/* Make a reference whatever it costs: one was worth it when the call
	 * was prepared, and the peer has changed what it accepts since. */
	TP_WANT_ANYHOW
};

#define TP_LINE_BYTES 128
#define TP_LINE_ROOM (TP_LINE_BYTES - 24)

/* Head of a slot, with room for a short message. The head and the first 40
 * bytes share a cache line. */
struct tp_line {
	_Atomic uint64_t seq;
	uint32_t signature; /* differs if calls do not match */
	uint32_t kind;
	uint64_t len;
	uint8_t room[TP_LINE_ROOM];
} __attribute__((aligned(TP_LINE_BYTES)));

/* A reference to memory of the sender; only the transport reads it. */
struct tp_ref {
	uint8_t bytes[TP_LINE_ROOM];
};

/* Buffers in which messages may arrive instead of in the data area of their
 * slot; the transport sends in them later. */
#define TP_BUFFERS 16
struct tp_buffers {
	const uint8_t *at[TP_BUFFERS]; /* NULL: there is none */
	uint64_t seq[TP_BUFFERS];      /* of the last message in it */
	/* A bit for each in which a message has been found; the transport
	 * clears it when that is released. */
	uint32_t arrived;
};

/* The receiver's side of a connected pair. Lines, and data areas, of successive
 * slots are a fixed distance apart. */
struct tp_inbox {
	struct tp_line *lines;
	const uint8_t *data;
	size_t line_stride, data_stride; /* bytes */
	uint32_t slot_mask;              /* slots - 1 */
	struct tp_buffers *buffers;      /* NULL: the transport has none */
};

static inline struct tp_line *tp_line(const struct tp_inbox *in, uint64_t slot)
{
	return (struct tp_line *)((uint8_t *)in->lines +
				  slot * in->line_stride);
}

/* Returns the bytes of message seq. NULL if it is a reference, or if its length
 * or buffer cannot be: the peer writes the line, so each reader has to check it
 * by this function. */
static inline const uint8_t *tp_payload(const struct tp_inbox *in, uint64_t seq,
					const struct tp_line *line)
{
	struct tp_buffers *b = in->buffers;
	uint32_t i = line->room[0];

	if (line->kind == TP_DATA && line->len <= TP_LINE_ROOM)
		return line->room;
	if (line->len > in->data_stride)
		return NULL;
	if (line->kind == TP_DATA)
		return in->data + (seq & in->slot_mask) * in->data_stride;
	if (line->kind != TP_BUFFER || !b || i >= TP_BUFFERS || !b->at[i])
		return NULL;
	b->seq[i] = seq;
	b->arrived |= UINT32_C(1) << i;
	return b->at[i];
}

/* The sender's side. */
struct tp_outbox {
	_Atomic uint64_t *released; /* messages that the peer has released */
	/* Where put() writes data, slot after slot, so that the caller can
	 * prefetch its cache lines. NULL: this core does not write them. */
	const uint8_t *data;
	/* How many buffers put() has to write to rather than there; NULL: it
	 * never has any. */
	const uint32_t *buffers;
	size_t data_stride; /* bytes */
	uint32_t slot_mask; /* slots - 1 */
};

/* What holds for all messages to and from a peer; the same on both sides. */
struct tp_limits {
	uint32_t eager_bytes; /* longest TP_DATA */
	/* Of each inbox between the two; a power of two, as tp_config.slots */
	uint32_t slots;
	/* Messages that may be in flight before the receiver must have sent a
	 * credit. At most `slots`, since receivers send credits for several
	 * messages at once. */
	uint32_t window;
	uint32_t spin;      /* loads of line->seq that pay before a poll() */
	bool needs_mem_reg; /* offer() and read() need registered memory */
	/* A reference costs more than copies at any length: bytes go slot after
	 * slot, and only a slice longer than eager_bytes goes by reference. */
	bool prefers_eager;
	/* Messages of all peers share one link into this rank. A rank that is
	 * ahead should wait: its messages for the next operation would delay
	 * those that other ranks still send for this one. */
	bool congests;
};

/* Bytes that the bootstrap carries to other ranks. */
struct tp_blob {
	uint32_t len;
	uint8_t data[1020];
};

/* Where a rank computes; used to choose the nearest adapters. */
struct tp_place {
	/* PCI address of its device; "": the cores of this thread */
	char pci[16];
	/* Distance from one PCI address (or "") to another. UINT32_MAX:
	 * unknown. The pointer may be NULL: all distances are unknown. */
	uint32_t (*steps)(const char *from, const char *to);
};

struct tp_config {
	int rank, ranks;
	struct tp_place place;
	uint32_t slots;            /* a power of two */
	uint32_t slot_bytes;       /* a multiple of 4096 */
	uint64_t core_cache_bytes; /* of the second-level cache; 0: unknown */
	/* Number for each pair of adapters of two ranks; 0: the transport
	 * decides. */
	uint32_t queue_pairs;
	/* Secret of the communicator: all of its ranks have it, and nobody
	 * else. */
	uint8_t key[32];
	/* Listen by TCP on the interface of this machine; text becomes
	 * "ADDRESS:PORT". */
	dicomm_result_t (*listen)(int *fd, char text[80]);
};

/* A range of a device's memory. */
struct accel;
struct tp_region {
	const struct accel *accel;
	int index;
	const void *addr;
	uint64_t len;
	/* Number of the allocation, never reused. 0: the owner does not free
	 * the memory while it is registered. */
	uint64_t id;
};

/* Can an adapter register that memory? */
struct tp_mem_support {
	char name[80];
	bool supported;
	char how[256]; /* how it would, or why it cannot */
};

struct tp_mem;    /* memory handle: registered memory */
struct tp_device; /* one rank's endpoint on this transport */
struct tp_peer;   /* one remote rank, or this rank itself */

/* Properties of an adapter, from its driver. */
struct tp_adapter {
	uint64_t id; /* unique on this machine */
	uint64_t bytes_per_s;
	/* emulated: processors move the data */
	bool software;
	/* Latency of a few bytes to an adapter of another machine. */
	uint64_t latency_ps;
};
#define TP_ADAPTERS 8

struct transport {
	const char *name; /* "shm"; a value of DICOMM_TRANSPORTS */
	/* It connects ranks of one machine only. Other transports are opened
	 * only if ranks remain that these do not reach. */
	bool intra_node;
	/* It encrypts data if DICOMM_ENCRYPT is set. */
	bool encrypts;
	/* It is used only if DICOMM_TRANSPORTS names it, and is then preferred
	 * to transports that reach the same ranks. */
	bool by_name;
	/* It may reach memory of devices. It is opened, too, if some devices do
	 * not reach each other's memory. */
	bool device_memory;
	/* Slots, and bytes of a slot, that keep its paths busy when much is
	 * in flight; used unless the user chose. 0: it needs none in
	 * particular. */
	uint32_t slots, slot_bytes;
	/* It sends long messages by reference. A long slice costs it no memory,
	 * and each slice costs a request or two, so slices are long. Other
	 * transports of the communicator use slices of the same length. */
	bool by_reference;
	/* wait() ends when something arrives. */
	bool wait_wakes;
	/* poll() is a system call: wait() rather than poll again at once. */
	bool slow_poll;

	/* Returns true if there is an adapter that can be used. `why` becomes a
	 * description of it, or the reason. Logs nothing. */
	bool (*usable)(char *why, size_t len);

	/* Errors: INVALID_ARGUMENT, a number in the config; NO_PATH, no
	 * adapter; UNSUPPORTED, too many ranks or adapters for it; NO_MEMORY;
	 * SYSTEM, the adapter or the kernel refuses. */
	dicomm_result_t (*open)(const struct tp_config *config,
				struct tp_device **dev);
	/* Changes the slot size, and so the address of the device. Only before
	 * the first peer_open(). NULL: not possible. */
	void (*set_slot_bytes)(struct tp_device *dev, uint32_t slot_bytes);
	/* Called if the communicator has more ranks on this machine than the
	 * machine has cores. Only before the first connection. NULL: makes no
	 * difference. */
	void (*share_cores)(struct tp_device *dev);
	/* What peers need to reach this device. */
	void (*address)(const struct tp_device *dev, struct tp_blob *address);
	/* List the adapters that the device uses; returns their number. NULL:
	 * their rates are not known, so links have to be measured. */
	unsigned (*adapters)(const struct tp_device *dev,
			     struct tp_adapter out[TP_ADAPTERS]);
	/* Close what is open; free everything. */
	void (*close)(struct tp_device *dev);

	/* Returns true if the device can reach the owner of that address;
	 * otherwise the reason is in `why`. Uses local state only, and logs
	 * nothing. Returns false, too, once a connected peer has closed or
	 * aborted. */
	bool (*reaches)(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len);
	/* Errors: NO_PATH, the address is not genuine, or cannot be
	 * reached; INVALID_ARGUMENT, it is that of another rank; INVALID_USAGE,
	 * its slots are not like those here; NO_MEMORY. */
	dicomm_result_t (*peer_open)(struct tp_device *dev, int peer,
				     const struct tp_blob *address,
				     struct tp_peer **out);
	void (*limits)(const struct tp_peer *peer, struct tp_limits *limits);
	/* Connect one direction, at the first message. AGAIN: the other side
	 * has not done its part yet; it may do that at any time, since only the
	 * caller knows how long to wait. SUCCESS: *out is filled in, and valid
	 * until peer_close(). Errors: REMOTE, the peer is gone, or refuses;
	 * NO_PATH, no way between the adapters; TIMEOUT, the connection began
	 * and did not come about; NO_MEMORY, no memory or descriptors; SYSTEM,
	 * the adapter or the kernel refuses. */
	dicomm_result_t (*connect_out)(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *out);
	dicomm_result_t (*connect_in)(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *in);
	/* Afterwards, no memory that this side has put or mapped is
	 * accessed. */
	void (*peer_close)(struct tp_peer *peer);

	/* Deliver message seq. TP_DATA: body is len <= eager_bytes bytes.
	 * SUCCESS: they were copied. IN_PROGRESS: they are sent later, so body
	 * must stay unchanged until *outbox.released reaches seq. TP_REF: body
	 * is a struct tp_ref from offer(). AGAIN: too much is in flight, or
	 * there is no connection yet. Errors: REMOTE, the peer is gone, or what
	 * leads to it has broken; SYSTEM, the adapter has failed. Not every
	 * transport notices: a message to a peer that is gone may also succeed,
	 * or find no credit any more. */
	dicomm_result_t (*put)(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len);
	/* The receiver no longer needs messages up to seq. Their credits are
	 * sent in time for limits.window, or when poll() finds nothing else to
	 * do, or at flush(). Errors: SYSTEM, the adapter has failed. It is not
	 * an error if the peer is gone. */
	dicomm_result_t (*release)(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq);
	/* Send all credits that are due now, because this rank may not poll for
	 * a while. Senders of references wait for them at the end of their
	 * operation, and ranks wait for them before they leave. False: there
	 * was no room for some; poll(), then call again. */
	bool (*flush)(struct tp_device *dev);
	/* Returns true if all credits that were sent have arrived. A transport
	 * with several paths may lose one, and a rank that has left does not
	 * send it again. So before a rank leaves, it polls until this returns
	 * true. NULL: there is one path; if it fails, the peer is lost
	 * anyway. */
	bool (*delivered)(struct tp_device *dev);

	/* Register host memory, until mem_dereg(): all that takes long is done
	 * here. `written`: read() may write it. If limits.needs_mem_reg, memory
	 * that is offered or read into must be registered. Errors: NO_MEMORY,
	 * also more than the limit of locked memory; SYSTEM, no memory at that
	 * address, or the adapter refuses it. */
	dicomm_result_t (*mem_reg)(struct tp_device *dev, const void *addr,
				   uint64_t len, bool written,
				   struct tp_mem **out);
	/* Register memory of a device; read() may write it. Its data does not
	 * pass through the host, and kernels that start after read_status()
	 * returned SUCCESS see data that was read. `how` becomes the way that
	 * was found. Errors: UNSUPPORTED, the transport cannot: `how` is the
	 * reason (or "" if it is obvious), and nothing is logged; NO_MEMORY. */
	dicomm_result_t (*mem_reg_device)(struct tp_device *dev,
					  const struct tp_region *region,
					  struct tp_mem **out, char *how,
					  size_t len);
	/* Finds out whether the n-th adapter of a rank at that place could
	 * register that memory. For dicomm-info, without a device of the
	 * transport. Returns false if there is no such adapter. */
	bool (*mem_support)(unsigned n, const struct tp_region *region,
			    const struct tp_place *place,
			    struct tp_mem_support *out);
	void (*mem_dereg)(struct tp_device *dev, struct tp_mem *mem);

	/* Make a reference to [addr, addr + len). False: the peer cannot read
	 * it, or slots are faster for `want`, which only a transport that is
	 * intra_node says. If limits.needs_mem_reg, only for registered memory.
	 * Makes no system call. */
	bool (*offer)(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref);
	/* Map the memory of a received reference, for loads only, until the
	 * next release(). May call mmap() when the memory is new. Errors:
	 * UNSUPPORTED, without a text: use read(); REMOTE, the peer has
	 * stopped, or the reference leads to no memory of it; NO_MEMORY. */
	dicomm_result_t (*map)(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr);
	/* To be called after mapped memory was loaded. Errors: REMOTE, the peer
	 * has stopped meanwhile and may have reused the memory, so the bytes
	 * are invalid; do not load from there any more. NULL: map() succeeds
	 * only for messages of this rank to itself. */
	dicomm_result_t (*intact)(struct tp_peer *peer);
	/* Copy a part of the memory that message seq refers to; the message is
	 * not released yet. One part at a time for each seq, and for at most 64
	 * messages. IN_PROGRESS: read_status() returns its end. AGAIN: too many
	 * reads are in flight. Errors: REMOTE, the peer has stopped, or the
	 * connection to it has broken, or it does not know the reference;
	 * SYSTEM, the adapter has failed; NO_MEMORY. */
	dicomm_result_t (*read)(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len);
	/* The status of the last read() for that seq. IN_PROGRESS: the data is
	 * not complete. Errors: as those of read(). */
	dicomm_result_t (*read_status)(struct tp_peer *peer, enum tp_class c,
				       uint64_t seq);

	/* Make progress; true: something moved. Never blocks. */
	bool (*poll)(struct tp_device *dev);
	/* Sleep until something may have arrived, or could be sent, for at most
	 * that long. It may return early. */
	void (*wait)(struct tp_device *dev, unsigned us);
	/* For a thread that is about to sleep for long while this rank does not
	 * poll, after flush(). Returns the word that rings when something has
	 * arrived, or could be sent, until somebody polls. The caller arms it,
	 * then asks again and looks once more. Transports that are not
	 * intra_node make progress by themselves meanwhile. NULL: not yet; ask
	 * again soon, without a poll in between. The operation is NULL if the
	 * rank has to be polled. */
	doorbell_word *(*rest)(struct tp_device *dev);
	/* Returns an error if the connection to a peer has failed for good and
	 * the peer has not closed it; *peer becomes that peer. Errors: REMOTE,
	 * the peer's side, or the network; SYSTEM, this side's adapter. */
	dicomm_result_t (*broken)(struct tp_device *dev, int *peer);
	/* Stop: nothing in flight arrives any more, put() fails with
	 * DICOMM_ERR_ABORTED, and when this returns, nobody loads from offered
	 * memory that may be gone. Any thread, any number of times. */
	void (*abort)(struct tp_device *dev);
	/* Bytes of memory that the device uses. */
	uint64_t (*memory)(const struct tp_device *dev);
	/* How many packets were sent again so far. Any thread, until close();
	 * it does not wait. NULL: not known. */
	uint64_t (*retransmits)(struct tp_device *dev);
};

/* The longest list of transports: a set of them is a mask of 8 bits. */
#define TP_TRANSPORTS 8

/* All transports; two ranks use the first that both have. NULL ends the list. A
 * transport that this build lacks is listed, but is not usable and cannot be
 * opened. */
extern const struct transport *const transports[];
/* Returns NULL if there is no transport of that name. */
const struct transport *transport_find(const char *name);

#endif
