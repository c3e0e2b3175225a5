/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by TCP, and the thread that serves them. */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECT_H
#define DICOMM_TRANSPORTS_VERBS_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dicomm.h"
#include "transports/verbs/address.h"

struct tp_device;
struct verbs_lane;
struct verbs_nic;
struct verbs_strand;

/* Guards the devices of the process and how lanes come and go. */
void verbs_lock(void);
void verbs_unlock(void);
/* Listen for calls; fills in nonce and listen. */
dicomm_result_t verbs_connect_open(struct tp_device *dev);
/* No call comes in any more. */
void verbs_connect_shut(struct tp_device *dev);
/* The last lane of a device is closed. */
void verbs_connect_close(struct tp_device *dev);
/* With the lock: no news of it any more; the other side is told. */
void verbs_connect_forget(struct verbs_lane *lane);

/* With the lock: the strand that waits for cm.c to connect it, whose lane from
 * then on takes messages. */
struct verbs_strand *verbs_connect_awaited(const uint8_t challenge[VERBS_NONCE],
					   unsigned strand);

/* ---- for what is said on them (call.c); with the lock ---- */

/* For a card to come, from the moment of the connection. */
#define VERBS_CARD_MS 10000

enum verbs_stage {
	CONN_LISTENING,
	CONN_EVENTS,   /* no connection: the events of a NIC */
	CONN_ACCEPTED, /* a card is awaited */
	CONN_CALLING,  /* connecting, then sending a card */
	CONN_ASKED,    /* the answer is awaited */
	CONN_JOINING,  /* cards have gone both ways; cm.c connects */
	CONN_OPEN      /* notices, and its end */
};

struct verbs_conn {
	struct verbs_conn *next;
	uint64_t id;
	int fd;
	enum verbs_stage stage;
	struct verbs_nic *nic;   /* of events */
	struct verbs_lane *lane; /* from CALLING, or OPEN on */
	uint64_t deadline_ms;    /* 0: none */
	struct verbs_card card;  /* sent or received */
	size_t have;
	char from[VERBS_TEXT];
};

struct verbs_conn *verbs_conn_add(int fd, enum verbs_stage stage,
				  uint32_t events);
void verbs_conn_watch(struct verbs_conn *c, uint32_t events);
void verbs_conn_drop(struct verbs_conn *c);
bool verbs_conn_write(struct verbs_conn *c, const struct verbs_card *card);

#endif
