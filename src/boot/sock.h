/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP sockets of the control plane: where to listen (DICOMM_SOCKET_IFNAME,
 * DICOMM_SOCKET_FAMILY, DICOMM_PORT_RANGE), how to reach who listens there.
 * All descriptors are non-blocking and closed on exec.
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
 * out ("^=" whole names to leave out). "" stands for "^lo,docker". */
bool sock_interface_matches(const char *spec, const char *name);

/* Listen on an interface of our choice; text is "ADDRESS:PORT". */
dicomm_result_t sock_listen(int *fd, char text[SOCK_TEXT]);
/* Listen at "host:port". A host name may mean another address elsewhere, so
 * unless host is an address, listen on all. */
dicomm_result_t sock_listen_at(const char *host_port, int *fd);

/* ERR_INVALID_ARGUMENT unless "host:port" or "[address]:port". */
dicomm_result_t sock_check(const char *host_port);
/* The same, without a word: what is wrong may have a secret in it. */
bool sock_is_host_port(const char *text);
/* Quiet: *why says what is wrong if it returns false. */
bool sock_resolve(const char *host_port, struct sock_address *address,
		  const char **why);
/* The same, but of several addresses of a host the one whose turn it is: who
 * listens there may do so at one of them only. */
bool sock_resolve_turn(const char *host_port, unsigned turn,
		       struct sock_address *address, const char **why);
/* A socket to connect with; -1 and errno. */
int sock_create(const struct sock_address *address);
/* Wait for the connection until then; 0, or an errno (ETIMEDOUT; ECANCELED
 * when *cancelled is set). */
int sock_connect(int fd, const struct sock_address *address, uint64_t until_ns,
		 const _Atomic bool *cancelled);
/* Has the kernel given the socket the very port it asked for, where nobody
 * listens? TCP then connects it with itself, and the port is taken. */
bool sock_met_itself(int fd);
/* Many a system's limit of open files is 1024, though it could be more: raise
 * it for n connections. */
void sock_make_room(uint32_t n);
/* Who is at the other end: "10.0.0.7:40312". */
void sock_peer(int fd, char text[SOCK_TEXT]);

#endif
