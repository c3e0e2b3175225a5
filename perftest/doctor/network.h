/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, addresses and ports of this host. */
#ifndef DICOMM_PERFTEST_DOCTOR_NETWORK_H
#define DICOMM_PERFTEST_DOCTOR_NETWORK_H

#include <netdb.h>
#include <sys/socket.h>

#define NETWORK_TIMEOUT_S 5
#define NETWORK_TEXT 64

/* As getaddrinfo() for a stream to port 0, but gives up after
 * NETWORK_TIMEOUT_S: a name server that does not answer takes longer. Returns
 * NULL, or why not. */
const char *network_resolve(const char *host, struct addrinfo **found);
/* Writes an address without its port; "::ffff:10.0.0.1" as "10.0.0.1". */
void network_text(const void *address, char text[NETWORK_TEXT]);
/* Listens at this port of all addresses, or at one of DICOMM_PORT_RANGE if it
 * is 0. Returns a socket that does not block, or -1 and sets errno. */
int network_listen(unsigned port);

#endif
