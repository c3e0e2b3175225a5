/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A listening socket that lets in only who proves to know the key. The rest is
 * refused, or dropped when the handshake takes too long; it costs a line in
 * the log and holds up nobody. All with the lock of the loop held.
 */
#ifndef DICOMM_BOOT_GATE_H
#define DICOMM_BOOT_GATE_H

#include "src/boot/auth.h"
#include "src/boot/conn.h"

struct gate;

/* One connection that was accepted. */
struct guest {
	struct conn conn;
	struct gate *gate; /* NULL once admitted or turned away */
	bool proved;
	uint8_t nonce[AUTH_NONCE];
	struct guest *next, **link; /* of those not admitted yet */

	/* For who admitted it. */
	void *owner;
	int rank;
};

struct gate {
	struct loop_source source;
	uint8_t key[AUTH_KEY];
	const char *name; /* in logs: "meeting" */
	int strangers;
	bool told_shortage;
	struct guest *first, **last; /* not admitted yet, oldest first */

	/* The first frame after the handshake, a hello; the guest is the
	 * receiver's now, who sets conn.frame and conn.lost, or says
	 * gate_refuse(). */
	void (*admit)(void *owner, struct guest *guest, struct wire_in *in);
	void *owner;
};

/* Take the listening socket fd, also on failure. The caller fills in admit and
 * owner at once. */
dicomm_result_t gate_open(int fd, const uint8_t key[AUTH_KEY], const char *name,
			  struct gate **out);
/* No one comes in any more; NULL is allowed. */
void gate_close(struct gate *g);
/* How long a guest may take for the handshake. Tests shorten it; set while no
 * other thread runs. */
extern uint64_t gate_patience_ns;
/* Say why, then end the connection. */
void gate_refuse(struct guest *guest, dicomm_result_t status, const char *why);

#endif
