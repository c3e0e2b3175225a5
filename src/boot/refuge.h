/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the survivors of a communicator meet again. Every rank keeps a
 * listening socket for it, so that who answers there is alive, with or without
 * a hub; the first of the survivors then hosts their meeting.
 */
#ifndef DICOMM_BOOT_REFUGE_H
#define DICOMM_BOOT_REFUGE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/boot/sock.h"

struct refuge;

dicomm_result_t refuge_open(struct refuge **out, char address[SOCK_TEXT]);
/* NULL is allowed. */
void refuge_close(struct refuge *refuge);

/* Ask those of the n addresses for which alive is set, for at most timeout_ms
 * in all; clear it for those that do not answer. From then on the refuges of
 * this process among them hang up on all who knock, unless a meeting is there.
 */
dicomm_result_t refuge_probe(const char *const *addresses, int n, bool *alive,
			     int timeout_ms);

/* Begin to connect to an address; the socket, or -1 if nobody is there. */
int refuge_knock(const char *address);
/* The same at those of the n addresses that are wanted, a few at a time; what
 * is not has -1. */
void refuge_knock_all(const char *const *addresses, int n, const bool *wanted,
		      int *fds);
/* Readable when somebody has knocked; the socket to speak with, -1 if nobody
 * has. */
int refuge_fd(const struct refuge *refuge);
int refuge_accept(const struct refuge *refuge);
/* Hang up on all who have knocked: who asked for a sign of life has it by now,
 * and who waits for a meeting comes again. */
void refuge_send_away(const struct refuge *refuge);

/* A fresh random text that is hard to guess. */
void refuge_secret(char *text, size_t len);

/* The id of the meeting at that address of those who know the phrase; whoever
 * gives its refuge hosts it. */
dicomm_result_t refuge_meet(struct refuge *host, const char *address,
			    const char *phrase, dicomm_unique_id_t *id);

#endif
