/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by TCP, between the thread that serves them and what is said. */
#ifndef DICOMM_TRANSPORTS_VERBS_CONNECT_H
#define DICOMM_TRANSPORTS_VERBS_CONNECT_H

#include "transports/verbs/verbs.h"

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

/* connect.c, with its lock as all here. */
struct verbs_conn *verbs_conn_add(int fd, enum verbs_stage stage,
				  uint32_t events);
void verbs_conn_watch(struct verbs_conn *c, uint32_t events);
void verbs_conn_drop(struct verbs_conn *c);
bool verbs_conn_write(struct verbs_conn *c, const struct verbs_card *card);

/* call.c. A genuine call has come; false: the connection is of no use. */
bool verbs_call_answer(struct tp_device *dev, struct verbs_conn *c);
/* The connection that calls is there, or is not. */
void verbs_call_connected(struct verbs_conn *c);
/* A card has come on it. */
void verbs_call_answered(struct verbs_conn *c);
/* The other side has stopped a strand; false: that is none of its words. */
bool verbs_call_notice(struct verbs_conn *c);
/* Nothing more comes; or not in time. */
void verbs_call_ended(struct verbs_conn *c);
void verbs_call_expired(struct verbs_conn *c);

#endif
