/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this process holds of the system, to see whether the library gave back
 * what it took. Its threads and what they need stay for the life of the
 * process: count after a first communicator has come and gone.
 */
#ifndef DICOMM_TESTS_SUPPORT_RESIDUE_H
#define DICOMM_TESTS_SUPPORT_RESIDUE_H

struct residue {
	int descriptors;
	int mappings; /* of shared memory */
	int threads;
};

/* Return the number of open descriptors, and of threads. */
int residue_descriptors(void);
int residue_threads(void);
void residue_count(struct residue *now);
/* Connections linger for a moment. What is still there afterwards ends the
 * job; `when` says where. */
void residue_check(const struct residue *before, const char *when);

#endif
