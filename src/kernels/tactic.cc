// SPDX-License-Identifier: Apache-2.0
// The lists of tactics, one a family, from the families' tactics.inc. Each row of those, FW_TACTIC(symbol), names an
// `extern const Tactic symbol;` that is constant-initialized, so that the lists are complete whenever they are first
// used.
#include "kernels/tactic.h"

#include <fmt/format.h>

namespace flywheel::kernels {

#define FW_TACTIC(symbol) extern const Tactic symbol;
#include "kernels/arange/tactics.inc"
#include "kernels/attention/tactics.inc"
#include "kernels/conv/tactics.inc"
#include "kernels/conv_transpose/tactics.inc"
#include "kernels/copy/tactics.inc"
#include "kernels/cumulative/tactics.inc"
#include "kernels/gather/tactics.inc"
#include "kernels/gemm/tactics.inc"
#include "kernels/layer_norm/tactics.inc"
#include "kernels/matmul/tactics.inc"
#include "kernels/pointwise/tactics.inc"
#include "kernels/pool/tactics.inc"
#include "kernels/recurrent/tactics.inc"
#include "kernels/reduce/tactics.inc"
#include "kernels/resize/tactics.inc"
#include "kernels/scatter/tactics.inc"
#include "kernels/softmax/tactics.inc"
#include "kernels/top_k/tactics.inc"
#undef FW_TACTIC

std::span<const Tactic> tactics(Family family) {
#define FW_TACTIC(symbol) symbol,
  switch (family) {
    case Family::kConv: {
      static const Tactic kList[] = {
#include "kernels/conv/tactics.inc"
      };
      return kList;
    }
    case Family::kConvTranspose: {
      static const Tactic kList[] = {
#include "kernels/conv_transpose/tactics.inc"
      };
      return kList;
    }
    case Family::kGemm: {
      static const Tactic kList[] = {
#include "kernels/gemm/tactics.inc"
      };
      return kList;
    }
    case Family::kMatMul: {
      static const Tactic kList[] = {
#include "kernels/matmul/tactics.inc"
      };
      return kList;
    }
    case Family::kAttention: {
      static const Tactic kList[] = {
#include "kernels/attention/tactics.inc"
      };
      return kList;
    }
    case Family::kPool: {
      static const Tactic kList[] = {
#include "kernels/pool/tactics.inc"
      };
      return kList;
    }
    case Family::kPointwise: {
      static const Tactic kList[] = {
#include "kernels/pointwise/tactics.inc"
      };
      return kList;
    }
    case Family::kSoftmax: {
      static const Tactic kList[] = {
#include "kernels/softmax/tactics.inc"
      };
      return kList;
    }
    case Family::kLayerNorm: {
      static const Tactic kList[] = {
#include "kernels/layer_norm/tactics.inc"
      };
      return kList;
    }
    case Family::kReduce: {
      static const Tactic kList[] = {
#include "kernels/reduce/tactics.inc"
      };
      return kList;
    }
    case Family::kGather: {
      static const Tactic kList[] = {
#include "kernels/gather/tactics.inc"
      };
      return kList;
    }
    case Family::kCopy: {
      static const Tactic kList[] = {
#include "kernels/copy/tactics.inc"
      };
      return kList;
    }
    case Family::kResize: {
      static const Tactic kList[] = {
#include "kernels/resize/tactics.inc"
      };
      return kList;
    }
    case Family::kArange: {
      static const Tactic kList[] = {
#include "kernels/arange/tactics.inc"
      };
      return kList;
    }
    case Family::kScatter: {
      static const Tactic kList[] = {
#include "kernels/scatter/tactics.inc"
      };
      return kList;
    }
    case Family::kTopK: {
      static const Tactic kList[] = {
#include "kernels/top_k/tactics.inc"
      };
      return kList;
    }
    case Family::kCumulative: {
      static const Tactic kList[] = {
#include "kernels/cumulative/tactics.inc"
      };
      return kList;
    }
    case Family::kRecurrent: {
      static const Tactic kList[] = {
#include "kernels/recurrent/tactics.inc"
      };
      return kList;
    }
    default: return {};
  }
#undef FW_TACTIC
}

const Tactic* find_tactic(Family family, std::string_view name) {
  for (const Tactic& tactic : tactics(family)) {
    if (name == tactic.name) return &tactic;
  }
  return nullptr;
}

Result<const Tactic*> first_accepting(const Problem& problem, const Machine& machine) {
  Status refusal = unsupported(fmt::format("family {} has no tactics", family_name(problem.family)));
  for (const Tactic& tactic : tactics(problem.family)) {
    if (!machine.has(tactic.isa)) continue;
    refusal = tactic.accepts(problem, machine);
    if (refusal.is_ok()) return &tactic;
    refusal = refusal.with_context(tactic.name);
  }
  return unsupported(fmt::format("no tactic for {}: {}", problem.to_string(), refusal.message()));
}

}  // namespace flywheel::kernels
