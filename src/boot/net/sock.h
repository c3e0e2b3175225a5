/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TCP sockets of the control plane: where to listen (interface.h,
 * DICOMM_PORT_RANGE), and how to connect. All descriptors are non-blocking and
 * close on exec.
 */
#ifndef DICOMM_BOOT_SOCK_H
#define DICOMM_BOOT_SOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/boot/net/interface.h"

/* Bytes of the address of a socket, such as "[ffff:...:ffff%eth0]:65535", with
 * the NUL. */
#define SOCK_TEXT 80
/* The same for an address with a name: "a.host.name:port"; a name may have 255
 * characters. */
#define SOCK_NAME 264

/* Chooses an interface and listens there. `text` becomes "ADDRESS:PORT". */
dicomm_result_t sock_listen(int *fd, char text[SOCK_TEXT]);
/* The same for callers that hold the lock of the loop. It releases the lock
 * while it waits for another process to give a port back. */
dicomm_result_t sock_listen_locked(int *fd, char text[SOCK_TEXT]);
/* Listens at "host:port". For a name, and for an address that is not of this
 * host but may be translated to one (NAT), this listens at that port of all
 * addresses; at localhost, of loopback only. While the port is in use it tries
 * again, until until_ns; a process that lends it (lent_port.h) gives it back.
 */
dicomm_result_t sock_listen_at(const char *host_port, uint64_t until_ns,
			       int *fd);
/* The port of a socket */
unsigned sock_port(int fd);
/* Writes where a socket listens: its address, or the name of this host if at
 * all addresses, cut off if it is long. */
void sock_name(int fd, char text[SOCK_TEXT]);
/* Writes an address by which this host reaches a listening socket of its
 * own. */
void sock_own(int fd, char text[SOCK_TEXT]);

/* Returns DICOMM_ERR_INVALID_ARGUMENT unless the text is "host:port" or
 * "[address]:port". */
dicomm_result_t sock_check(const char *host_port);
/* As sock_check(), but logs nothing: text that is wrong may contain a
 * secret. */
bool sock_is_host_port(const char *text);
/* Resolves an address. Logs nothing. On failure returns false and sets *why. */
bool sock_resolve(const char *host_port, struct sock_address *address,
		  const char **why);
/* As sock_resolve(), but if the host has several addresses, takes number `turn`
 * of them, modulo their count: the other side may listen at only one of
 * them. */
bool sock_resolve_turn(const char *host_port, unsigned turn,
		       struct sock_address *address, const char **why);
/* Returns true if the address reaches only its own host. */
bool sock_is_loopback(const char *host_port);
/* Returns a socket to connect with, or -1 and sets errno. */
int sock_create(const struct sock_address *address);
/* Connects, and waits at most until until_ns. Returns 0 or an errno: ETIMEDOUT,
 * ECANCELED (*cancelled is set), or the kernel's. */
int sock_connect(int fd, const struct sock_address *address, uint64_t until_ns,
		 const _Atomic bool *cancelled);
/* Returns true if the socket is connected to itself. TCP does this if nobody
 * listens at a port and the kernel chooses that same port for the connecting
 * socket. */
bool sock_is_self_connected(int fd);
/* Raises the soft limit of open files, which is often 1024, to have room for n
 * connections in the place of `had` open ones. If the hard limit is too low,
 * returns false and writes how many files this process needs. */
bool sock_make_room(uint32_t n, uint32_t had, char *why, size_t len);
/* Writes the address of the other end, such as "10.0.0.7:40312". */
void sock_peer(int fd, char text[SOCK_TEXT]);

#endif
