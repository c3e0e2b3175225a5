/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/accel/opencl/error.h"

#include <stddef.h>

#include "src/accel/opencl/api.h"

const char *error_text(int32_t error)
{
	static const struct {
		int32_t error;
		const char *text;
	} texts[] = {
		{-1, "device not found"},
		{-2, "device not available"},
		{-3, "compiler not available"},
		{-4, "no memory for an object on the device"},
		{-5, "out of resources"},
		{-6, "out of host memory"},
		{-11, "program does not build"},
		{-14, "an event in the wait list failed"},
		{-30, "invalid value"},
		{-33, "invalid device"},
		{-34, "invalid context"},
		{-36, "invalid command queue"},
		{-46, "invalid kernel name"},
		{-48, "invalid kernel"},
		{-49, "invalid argument index"},
		{-50, "invalid argument value"},
		{-51, "invalid argument size"},
		{-52, "invalid kernel arguments"},
		{-54, "invalid work-group size"},
		{-55, "invalid work-item size"},
		{-57, "invalid event wait list"},
		{-58, "invalid event"},
		{-59, "invalid operation"},
		{-1001, "no platform"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "unknown error";
}

dicomm_result_t error_status(int32_t error)
{
	if (error == OPENCL_SUCCESS)
		return DICOMM_SUCCESS;
	return error == OPENCL_OUT_OF_HOST_MEMORY ||
			       error == OPENCL_OUT_OF_RESOURCES
		       ? DICOMM_ERR_NO_MEMORY
		       : DICOMM_ERR_DEVICE;
}
