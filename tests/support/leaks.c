/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/leaks.h"

#include <stdbool.h>

static _Atomic bool is_ignored;

/* The leak checker's own name for it */
int __lsan_is_turned_off(void);

__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	return is_ignored;
}

void leaks_ignore(void)
{
	is_ignored = true;
}
