/* SPDX-License-Identifier: BSD-3-Clause */
/* The IPv4 address of a port, which librdmacm needs to connect. */
#ifndef DICOMM_TRANSPORTS_VERBS_NIC_IPV4_H
#define DICOMM_TRANSPORTS_VERBS_NIC_IPV4_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "transports/verbs/nic/gid.h"

/* Returns true if librdmacm connects the queue pairs of that fabric. */
bool verbs_uses_rdma_cm(enum verbs_fabric fabric);
/* Find an IPv4 address of one of the port's interfaces. Returns false if there
 * is none. */
bool verbs_port_ipv4(const char *nic, uint8_t port, struct sockaddr_in *out);

#endif
