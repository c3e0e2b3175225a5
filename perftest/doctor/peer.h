/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The path between two hosts that both run the doctor: one listens; the other
 * connects to it, measures, and is connected to in its turn. A step that takes
 * NETWORK_TIMEOUT_S has failed.
 */
#ifndef DICOMM_PERFTEST_DOCTOR_PEER_H
#define DICOMM_PERFTEST_DOCTOR_PEER_H

#include "perftest/doctor/doctor.h"

/* Returns true if the text is "HOST:PORT", "[ADDRESS]:PORT" or ":PORT". */
bool peer_check(const char *text);
/* Looks at the path to the doctor that listens there; with ":PORT", listens
 * there for another one, five minutes at most. */
void peer_run(struct doctor *d, const char *peer);

#endif
