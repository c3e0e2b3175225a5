/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface that this process listens on, for the control plane and for
 * data: that of DICOMM_SOCKET_IFNAME; otherwise the one by which this process
 * has met others; otherwise the first that is up.
 */
#ifndef DICOMM_BOOT_INTERFACE_H
#define DICOMM_BOOT_INTERFACE_H

#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "dicomm.h"

struct sock_address {
	struct sockaddr_storage storage;
	socklen_t len;
};

/* Returns true if DICOMM_SOCKET_IFNAME, given as `spec`, allows this interface.
 * The grammar is NCCL's: a list of prefixes; after "=", of whole names; after
 * "^", of prefixes to exclude; after "^=", of whole names to exclude. lo* and
 * docker* are excluded unless they are named. lo is used if no other interface
 * is left. */
bool interface_matches(const char *spec, const char *name);
/* Returns the family of DICOMM_SOCKET_FAMILY, or AF_UNSPEC. */
int interface_family(void);
/* Where to listen. */
struct interface {
	char name[IF_NAMESIZE];
	struct sock_address address; /* with port 0 */
	const char *why;             /* why it was chosen; a constant text */
};

/* A choice is kept for a second. */
dicomm_result_t interface_choose(struct interface *chosen);
/* The next call looks again. */
void interface_forget(void);
/* To be called with a connection by which ranks meet. From now on, this
 * process listens on the interface of that connection, unless it is
 * loopback. */
void interface_learn(int fd);
/* The same for the interface that leads to this address, if there is one. */
void interface_learn_toward(const struct sock_address *to);

#endif
