/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the survivors of a communicator find each other, with or without a hub.
 * Every rank keeps a listening socket for it. A rank that accepts connections
 * there is alive; the first survivor then serves an id on it, and all survivors
 * join by that id.
 */
#ifndef DICOMM_BOOT_RECOVERY_H
#define DICOMM_BOOT_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>

#include "src/boot/net/sock.h"

struct recovery;

dicomm_result_t recovery_open(struct recovery **out, char address[SOCK_TEXT]);
/* NULL is allowed. */
void recovery_close(struct recovery *r);

/* Connect to those of the n addresses for which alive is set, for at most
 * timeout_ms in all, and clear alive for those that do not accept. From then on
 * the recovery sockets of this process among them accept and close every
 * connection, unless an id is served there. */
dicomm_result_t recovery_probe(const char *const *addresses, int n, bool *alive,
			       int timeout_ms);

/* Begin to connect to an address. Returns the socket, or -1 if nobody listens
 * there. */
int recovery_connect(const char *address);
/* The same for those of the n addresses that are wanted, a few at a time. The
 * others get -1. */
void recovery_connect_all(const char *const *addresses, int n,
			  const bool *wanted, int *fds);
/* The listening socket, readable when a connection waits. */
int recovery_fd(const struct recovery *r);
/* Accept one connection; -1 and errno if none waits. */
int recovery_accept(const struct recovery *r);
/* Accept and close all connections that wait. A rank that probed has its answer
 * by now, and a rank that wants to join tries again. */
void recovery_drop_pending(const struct recovery *r);

/* A fresh random text that is hard to guess. */
void recovery_secret(char *text, size_t len);

/* Make the id that all ranks derive from that address and phrase. The rank that
 * gives its own recovery as host serves it. */
dicomm_result_t recovery_new_id(struct recovery *host, const char *address,
				const char *phrase, dicomm_unique_id_t *id);

#endif
