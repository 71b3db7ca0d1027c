// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_AVX512
#include "kernels/softmax/softmax_impl.h"
