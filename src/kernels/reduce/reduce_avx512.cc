// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_AVX512
#include "kernels/reduce/reduce_impl.h"
