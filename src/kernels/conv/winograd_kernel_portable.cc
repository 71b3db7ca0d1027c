// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_PORTABLE
#include "kernels/conv/winograd_kernel_impl.h"
