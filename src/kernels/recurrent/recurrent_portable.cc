// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_PORTABLE
#include "kernels/recurrent/recurrent_impl.h"
