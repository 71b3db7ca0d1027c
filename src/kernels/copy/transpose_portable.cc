// SPDX-License-Identifier: Apache-2.0
#define FW_ISA_PORTABLE
#include "kernels/copy/transpose_impl.h"
