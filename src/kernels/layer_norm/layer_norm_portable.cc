// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_PORTABLE
#include "kernels/layer_norm/layer_norm_impl.h"
