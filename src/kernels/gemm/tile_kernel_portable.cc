// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_PORTABLE
#include "kernels/gemm/tile_kernel_impl.h"
