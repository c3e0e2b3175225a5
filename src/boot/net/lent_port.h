/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that listens at a TCP port without need lets others on its host
 * have the port: it has a Unix socket with an abstract name that has the port
 * in it (docs/wire.md). Who wants to listen at the port connects there; when
 * that connection ends, the port is free. Abstract names and ports are both
 * those of a network namespace.
 */
#ifndef DICOMM_BOOT_LENT_PORT_H
#define DICOMM_BOOT_LENT_PORT_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns the listening socket of that name, or -1 and sets errno. Who accepts
 * a connection there closes the port first, and then the connection. This
 * process calls close_port() when it wants to listen at the port itself. A
 * process lends one port at a time. The caller holds the lock of the loop. */
int lent_port_offer(unsigned port, void (*close_port)(void));
/* Closes the port that this process lends, if it is one of these. The caller
 * holds the lock of the loop. */
bool lent_port_close_own(unsigned first, unsigned last);
/* Returns true if another process has given the port back. Waits a second for
 * it at most; and not at all if no other process has it. *silent becomes the
 * pid of one that has it and does not answer, or 0. */
bool lent_port_ask_back(unsigned port, pid_t *silent);

#endif
