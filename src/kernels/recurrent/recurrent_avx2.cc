// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_AVX2
#include "kernels/recurrent/recurrent_impl.h"
