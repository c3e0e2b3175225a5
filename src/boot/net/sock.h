/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP sockets of the control plane: where to listen (DICOMM_SOCKET_IFNAME,
 * DICOMM_SOCKET_FAMILY, DICOMM_PORT_RANGE), and how to connect. All descriptors
 * are non-blocking and closed on exec.
 */
#ifndef DICOMM_BOOT_SOCK_H
#define DICOMM_BOOT_SOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "dicomm.h"

/* "[ffff:...:ffff]:65535" or "a.host.name:port", with the NUL. */
#define SOCK_TEXT 80

struct sock_address {
	struct sockaddr_storage storage;
	socklen_t len;
};

/* Does DICOMM_SOCKET_IFNAME let this interface through? NCCL's grammar: a
 * list of prefixes, after "=" of whole names, after "^" of names to leave
 * out ("^=" whole names to leave out). lo* and docker* are left out unless they
 * are named. sock_listen() uses lo if no other interface is left. */
bool sock_interface_matches(const char *spec, const char *name);

/* Choose an interface and listen there. text becomes "ADDRESS:PORT". */
dicomm_result_t sock_listen(int *fd, char text[SOCK_TEXT]);
/* Listen at "host:port". A host name may resolve to another address on another
 * machine, so for a name listen on all addresses. */
dicomm_result_t sock_listen_at(const char *host_port, int *fd);

/* ERR_INVALID_ARGUMENT unless "host:port" or "[address]:port". */
dicomm_result_t sock_check(const char *host_port);
/* The same without a message: wrong text may contain a secret. */
bool sock_is_host_port(const char *text);
/* Logs nothing. If it returns false, *why says what is wrong. */
bool sock_resolve(const char *host_port, struct sock_address *address,
		  const char **why);
/* The same, but where a host has several addresses take number turn of them,
 * because the other side may listen at one of them only. */
bool sock_resolve_turn(const char *host_port, unsigned turn,
		       struct sock_address *address, const char **why);
/* Does the address lead to its own host only? */
bool sock_is_loopback(const char *host_port);
/* A socket to connect with; -1 and errno on failure. */
int sock_create(const struct sock_address *address);
/* Connect, and wait for it until until_ns. 0, or an errno: ETIMEDOUT, ECANCELED
 * (*cancelled is set), or the kernel's. */
int sock_connect(int fd, const struct sock_address *address, uint64_t until_ns,
		 const _Atomic bool *cancelled);
/* Is the socket connected to itself? TCP does that if the kernel gives a socket
 * the very port that it connects to while nobody listens there. */
bool sock_is_self_connected(int fd);
/* Raise the soft limit of open files, often 1024, for n more connections. */
void sock_make_room(uint32_t n);
/* The address of the other end: "10.0.0.7:40312". */
void sock_peer(int fd, char text[SOCK_TEXT]);

#endif
