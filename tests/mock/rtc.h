/* SPDX-License-Identifier: BSD-3-Clause */
/* What the mocks of NVRTC and HIPRTC return: results that both compilers have.
 */
#ifndef DICOMM_TESTS_MOCK_RTC_H
#define DICOMM_TESTS_MOCK_RTC_H

enum {
	RTC_SUCCESS = 0,
	RTC_OUT_OF_MEMORY = 1,
	RTC_INPUT = 3,
	RTC_PROGRAM = 4,
	RTC_OPTION = 5,
	RTC_COMPILATION = 6,
};

#endif
