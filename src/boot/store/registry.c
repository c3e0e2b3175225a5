/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores of this build, in the order in which they are tried. */
#include "src/boot/store/store.h"

extern const struct store store_pmix, store_pmi1, store_torchrun, store_slurm;

const struct store *const stores[] = {
	&store_own,
#ifdef HAVE_PMIX
	&store_pmix,
#endif
	&store_pmi1, &store_torchrun, &store_slurm, 0,
};
