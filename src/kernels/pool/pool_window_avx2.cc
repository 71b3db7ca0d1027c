// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_AVX2
#include "kernels/pool/pool_window_impl.h"
