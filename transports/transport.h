/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A wire. It moves messages into the inbox of a peer, and knows neither
 * collectives nor the engine.
 *
 * An inbox is a ring of `slots` slots for one ordered pair of ranks and one
 * class of traffic. Message number q (from 1, counting up) goes to slot
 * q % slots: a put writes the slot's line (and, when it does not fit there, its
 * data area) and then, once any reader would see all of that, sets line->seq to
 * q. So each counter has one writer and only grows: a replay or a coalesced
 * arrival is harmless. Whoever reads polls line->seq in its own memory; how q
 * travels is the transport's affair.
 *
 * Credits: a put of q needs q <= *released + slots. The receiver moves
 * `released` with release(); the sender must not put beyond it. What they allow
 * is put in any order, and may arrive in any other: a wire may have several
 * ways to a peer.
 *
 * Large messages need not pass through the slot: the sender may offer a
 * reference to its source (offer), put that as the message, and keep the source
 * unchanged until the message is released; the receiver maps or reads it. What
 * is longer than limits.eager_bytes goes no other way. So user buffers are
 * written by their own rank only, and once that rank has stopped, nobody writes
 * them.
 *
 * Threads: one at a time for all operations of a device and its peers, except
 * abort(). A transport never calls the engine. DICOMM_AGAIN means that nothing
 * happened: poll(), then retry. Every operation is set.
 */
#ifndef DICOMM_TRANSPORTS_TRANSPORT_H
#define DICOMM_TRANSPORTS_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"

enum tp_class { TP_COLLECTIVE, TP_POINT_TO_POINT, TP_CLASSES };

enum tp_kind {
	TP_DATA, /* len bytes: in the line if they fit, else in the data area */
	TP_REF   /* a struct tp_ref in the line; len bytes wait there */
};

/* What a receiver does with bytes that it is offered. */
enum tp_want {
	TP_WANT_LOAD,    /* loads each once, or as good as that */
	TP_WANT_COPY,    /* copies them, while the sender has nothing to do */
	TP_WANT_EXCHANGE /* the same, while the sender receives as much */
};

#define TP_LINE_BYTES 128
#define TP_LINE_ROOM (TP_LINE_BYTES - 24)

/* Head of a slot, with room for small messages: head and the first 40 bytes
 * share the first cache line. */
struct tp_line {
	_Atomic uint64_t seq;
	uint32_t signature; /* of the operation, to tell unlike calls */
	uint32_t kind;
	uint64_t len;
	uint8_t room[TP_LINE_ROOM];
} __attribute__((aligned(TP_LINE_BYTES)));

/* Where to pull from; opaque to all but the transport. */
struct tp_ref {
	uint8_t bytes[TP_LINE_ROOM];
};

/* Receiver's side of a connected pair. A slot's line and its data area are
 * each at a fixed distance from those of the slot before. */
struct tp_inbox {
	struct tp_line *lines;
	const uint8_t *data;
	size_t line_stride, data_stride; /* bytes */
	uint32_t slot_mask;              /* slots - 1 */
};

static inline struct tp_line *tp_line(const struct tp_inbox *in, uint64_t slot)
{
	return (struct tp_line *)((uint8_t *)in->lines +
				  slot * in->line_stride);
}

/* Sender's side. */
struct tp_outbox {
	_Atomic uint64_t *released; /* messages that the peer is done with */
	/* Where put() writes what a line has no room for, slot after slot, so
	 * that its cache lines can be fetched before; NULL: not by this core.
	 */
	const uint8_t *data;
	size_t data_stride; /* bytes */
	uint32_t slot_mask; /* slots - 1 */
};

/* What holds for all messages to and from a peer; alike on both sides. */
struct tp_limits {
	uint32_t eager_bytes; /* longest TP_DATA */
	uint32_t slots;       /* of each inbox between the two */
	/* Messages that may be under way whatever the receiver does: it may
	 * tell of its releases in bulk. At most `slots`. */
	uint32_t window;
	uint32_t spin;      /* looks at an inbox that pay before a poll() */
	bool needs_mem_reg; /* offer() and read() need it */
	/* A reference costs more than copies: only for a message that is
	 * longer than eager_bytes. */
	bool prefers_eager;
	/* Messages of several peers share the way here as it comes. So what
	 * those who are ahead send for the next operation would delay what
	 * others still send for this one. */
	bool congests;
};

/* Bytes that travel through the bootstrap. */
struct tp_blob {
	uint32_t len;
	uint8_t data[1020];
};

/* Where a rank computes. */
struct tp_place {
	char pci[16]; /* of its device; "": the cores of this thread */
	/* How far it is from one PCI address, or those cores, to another;
	 * UINT32_MAX: unknown. NULL: all is. */
	uint32_t (*steps)(const char *from, const char *to);
};

struct tp_config {
	int rank, ranks;
	struct tp_place place;
	uint32_t slots;            /* a power of two */
	uint32_t slot_bytes;       /* a multiple of 4096 */
	uint64_t core_cache_bytes; /* its second level; 0 if unknown */
	uint32_t queue_pairs; /* to a peer between two adapters; 0: not said */
	/* All ranks have the same; nobody else knows it. */
	uint8_t key[32];
	/* Listens by TCP where this machine should; text is "ADDRESS:PORT". */
	dicomm_result_t (*listen)(int *fd, char text[80]);
};

/* Memory of a device. */
struct accel;
struct tp_region {
	const struct accel *accel;
	int index;
	const void *addr;
	uint64_t len;
	/* Of the allocation, which others do not have; 0: it is not freed while
	 * a wire holds it. */
	uint64_t id;
};

/* What an adapter says to it. */
struct tp_mem_support {
	char name[80];
	bool supported;
	char how[256]; /* or why not */
};

struct tp_mem;    /* memory that the wire can reach */
struct tp_device; /* one rank's endpoint on this wire */
struct tp_peer;   /* one remote rank, or this one */

/* What an adapter says of itself. */
struct tp_adapter {
	uint64_t id; /* that no other one of the machine has */
	uint64_t bytes_per_s;
	/* It is a program, which carries what processors make of it. */
	bool software;
	uint64_t latency_ps; /* of a few bytes, to that of another machine */
};
#define TP_ADAPTERS 8

struct transport {
	const char *name; /* "shm"; a value of DICOMM_TRANSPORTS */
	/* It ends at this machine. The others are opened only where such wires
	 * do not reach everybody. */
	bool intra_node;
	/* It may reach the memory of devices: it is opened even so where some
	 * do not reach each other's. */
	bool device_memory;
	/* Slots, and their bytes, that keep its ways full where what is under
	 * way is much; taken unless the user chose. 0: any. */
	uint32_t slots, slot_bytes;
	/* Long messages are read from where they lie: slots hold none of their
	 * data, but each is a request or two. Near wires beside it take as
	 * long ones. */
	bool by_reference;
	/* wait() ends when something comes. */
	bool wait_wakes;
	/* A poll() is a system call: rather wait() than look again. */
	bool slow_poll;

	/* Is there a device to use? The reason if not, else what was found. */
	bool (*usable)(char *why, size_t len);

	dicomm_result_t (*open)(const struct tp_config *config,
				struct tp_device **dev);
	/* Of a device without peers: slots hold so much instead, and its
	 * address is another one. NULL: it cannot. */
	void (*set_slot_bytes)(struct tp_device *dev, uint32_t slot_bytes);
	/* Of a device that has connected nobody: this machine has fewer cores
	 * than the communicator has ranks here. NULL: that changes nothing. */
	void (*share_cores)(struct tp_device *dev);
	/* Bytes that every peer needs to reach this device. */
	void (*address)(const struct tp_device *dev, struct tp_blob *address);
	/* The adapters that it sends and receives by. NULL: they do not say
	 * what they carry, so that has to be measured. */
	unsigned (*adapters)(const struct tp_device *dev,
			     struct tp_adapter out[TP_ADAPTERS]);
	/* Closes what is left open; frees everything. */
	void (*close)(struct tp_device *dev);

	/* Can the device reach the owner of that address? Local and quiet; if
	 * not, why. Not any more, once a peer that it is connected to has
	 * closed, or aborted. */
	bool (*reaches)(struct tp_device *dev, const struct tp_blob *address,
			char *why, size_t len);
	dicomm_result_t (*peer_open)(struct tp_device *dev, int peer,
				     const struct tp_blob *address,
				     struct tp_peer **out);
	void (*limits)(const struct tp_peer *peer, struct tp_limits *limits);
	/* Make the direction usable, at the first message. AGAIN until the
	 * other side has done its part; then *out is filled in and valid until
	 * peer_close(). */
	dicomm_result_t (*connect_out)(struct tp_peer *peer, enum tp_class c,
				       struct tp_outbox *out);
	dicomm_result_t (*connect_in)(struct tp_peer *peer, enum tp_class c,
				      struct tp_inbox *in);
	/* After it, nothing that this side put or mapped is accessed. */
	void (*peer_close)(struct tp_peer *peer);

	/*
	 * Deliver message seq. TP_DATA: body is len <= eager_bytes bytes,
	 * copied before the call returns or sent later (then
	 * DICOMM_IN_PROGRESS, and the body must stay until *outbox.released
	 * reaches seq). TP_REF: body is a struct tp_ref from offer(). AGAIN:
	 * too many in flight.
	 */
	dicomm_result_t (*put)(struct tp_peer *peer, enum tp_class c,
			       uint64_t seq, uint32_t signature,
			       enum tp_kind kind, const void *body,
			       uint64_t len);
	/* All messages up to seq are done with. The sender hears of it in
	 * time for limits.window, when poll() finds nothing else to do, or at
	 * flush(). */
	dicomm_result_t (*release)(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq);
	/* Nobody may poll for a while: tell all senders. Those of references
	 * end their operations with that, and who leaves waits for it. False:
	 * there was no room to tell some; poll(), and call again. */
	bool (*flush)(struct tp_device *dev);
	/* Is all there that was told? What a wire then loses that has several
	 * ways, nobody says again once this rank has left: so poll(), and ask
	 * again, before. NULL: it has one way, with whose end its peers are
	 * lost. */
	bool (*delivered)(struct tp_device *dev);

	/* Reach memory by the wire until mem_dereg(): what may take its time is
	 * done here. `written`: read() may put data there. Where
	 * limits.needs_mem_reg, what is offered and where a read() goes must be
	 * held. */
	dicomm_result_t (*mem_reg)(struct tp_device *dev, const void *addr,
				   uint64_t len, bool written,
				   struct tp_mem **out);
	/* The same of memory of a device, which read() may write: data then
	 * goes there and comes from there without the host, and kernels that
	 * start once it has read_status() see it. `how` becomes in which way;
	 * or, where the wire cannot and returns DICOMM_ERR_UNSUPPORTED, why
	 * not, if that does not go without saying: nothing is logged then. */
	dicomm_result_t (*mem_reg_device)(struct tp_device *dev,
					  const struct tp_region *region,
					  struct tp_mem **out, char *how,
					  size_t len);
	/* For whoever asks, without a device of the wire: what does the n-th
	 * adapter that a rank there would use say to that memory? False: it
	 * has none of that number. */
	bool (*mem_support)(unsigned n, const struct tp_region *region,
			    const struct tp_place *place,
			    struct tp_mem_support *out);
	void (*mem_dereg)(struct tp_device *dev, struct tp_mem *hold);

	/* Can the peer pull [addr, addr + len), and does that pay for what it
	 * wants? Then *ref says how. Above eager_bytes it always can; and a
	 * wire that is not near, of any length: where limits.needs_mem_reg,
	 * whatever is held. No system call. */
	bool (*offer)(struct tp_peer *peer, const void *addr, uint64_t len,
		      enum tp_want want, struct tp_ref *ref);
	/* A received reference as memory of this process, for loads only, until
	 * the next release(). ERR_UNSUPPORTED: read() it. May map memory when
	 * it is new. */
	dicomm_result_t (*map)(struct tp_peer *peer, const struct tp_ref *ref,
			       uint64_t len, const void **ptr);
	/* Is what has been loaded from there what the peer sent? Else
	 * DICOMM_ERR_REMOTE: it has stopped meanwhile, and may have put that
	 * memory to another use; nobody loads from there any more. NULL where
	 * map() never succeeds. */
	dicomm_result_t (*intact)(struct tp_peer *peer);
	/* Copy part of what message seq, not released yet, refers to; one at a
	 * time for each seq, and for at most 64 of them. IN_PROGRESS: it is
	 * under way, ask read_status(). AGAIN: too many are. */
	dicomm_result_t (*read)(struct tp_peer *peer, enum tp_class c,
				uint64_t seq, const struct tp_ref *ref,
				uint64_t offset, void *dst, uint64_t len);
	/* Of the last read() for that seq: IN_PROGRESS until all is there. */
	dicomm_result_t (*read_status)(struct tp_peer *peer, enum tp_class c,
				       uint64_t seq);

	/* Make progress; true if anything moved. Never blocks. */
	bool (*poll)(struct tp_device *dev);
	/* Sleep until something may have arrived, or could be sent, for at most
	 * so long; or less: whoever else needs the core gets it. */
	void (*wait)(struct tp_device *dev, unsigned us);
	/* DICOMM_SUCCESS; or what has ended the traffic with a peer for good,
	 * though it has not left: which, and the words as the last error. */
	dicomm_result_t (*broken)(struct tp_device *dev, int *peer);
	/* Stop: nothing that is in flight may land any more, puts fail with
	 * DICOMM_ERR_ABORTED, and once it has returned nobody loads from what
	 * was offered and may be gone now. Any thread, any number of times. */
	void (*abort)(struct tp_device *dev);
	/* Bytes of memory that the device holds. */
	uint64_t (*memory)(const struct tp_device *dev);
};

/* All transports, fastest first; NULL ends the list. Those that this build is
 * without are not usable and cannot open. */
extern const struct transport *const transports[];
/* NULL: there is no such. */
const struct transport *transport_find(const char *name);

#endif
