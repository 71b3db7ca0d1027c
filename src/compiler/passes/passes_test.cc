// SPDX-License-Identifier: Apache-2.0
// Every pass on the cases of its testdata: the expected graph comes out, it verifies, a second run changes nothing, and
// two runs give the same text.
#include "compiler/passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "compiler/passes/text_cases.h"

namespace flywheel::passes {
namespace {

class PassTest : public testing::TestWithParam<const char*> {};

TEST_P(PassTest, GivesWhatItsTestdataSays) {
  const Pass* pass = find_pass(GetParam());
  ASSERT_NE(pass, nullptr);
  for (const TextCase& one : text_cases(GetParam())) {
    SCOPED_TRACE(one.title);
    std::unique_ptr<ir::Graph> graph = parse_graph(one.before);
    ASSERT_NE(graph, nullptr);
    std::unique_ptr<ir::Graph> expected = parse_graph(one.after.empty() ? one.before : one.after);
    ASSERT_NE(expected, nullptr);
    Result<bool> changed = pass->run(*graph, {});
    ASSERT_TRUE(changed.is_ok()) << changed.status().to_string();
    EXPECT_EQ(difference(*graph, *expected), "") << full_text(*graph);
    EXPECT_EQ(changed.value(), !one.after.empty());
    Status valid = ir::verify(*graph);
    EXPECT_TRUE(valid.is_ok()) << valid.to_string();

    const std::string text = full_text(*graph);
    Result<bool> again = pass->run(*graph, {});
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_FALSE(again.value());
    EXPECT_EQ(full_text(*graph), text);

    std::unique_ptr<ir::Graph> other = parse_graph(one.before);
    ASSERT_TRUE(pass->run(*other, {}).is_ok());
    EXPECT_EQ(full_text(*other), text);
  }
}

TEST_P(PassTest, LeavesTheEmptyGraphAlone) {
  ir::Graph graph;
  Result<bool> changed = find_pass(GetParam())->run(graph, {});
  ASSERT_TRUE(changed.is_ok());
  EXPECT_FALSE(changed.value());
}

INSTANTIATE_TEST_SUITE_P(All, PassTest,
                         testing::Values("remove_dead", "remove_identity", "fold_shapes", "fold_constants",
                                         "common_subexpressions", "decompose", "canonicalize", "canonicalize_products",
                                         "simplify_masks", "simplify_moves", "fold_batch_norm", "fuse_layer_norm",
                                         "fuse_gelu", "fuse_attention", "merge_sibling_gemms", "merge_sibling_gathers",
                                         "absorb_transposes", "to_nhwc", "fuse_epilogue", "fuse_pointwise"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Passes, EveryPassOfThePipelineHasTestdata) {
  for (const Pass& pass : cpu_pipeline()) {
    SCOPED_TRACE(std::string(pass.name));
    EXPECT_FALSE(text_cases(std::string(pass.name)).empty());
  }
}

std::vector<std::string> remarks_of(const char* pass, const std::string& text) {
  std::unique_ptr<ir::Graph> graph = parse_graph(text);
  std::vector<Remark> remarks;
  PassContext context;
  context.remarks = &remarks;
  EXPECT_TRUE(find_pass(pass)->run(*graph, context).is_ok());
  std::vector<std::string> texts;
  for (const Remark& remark : remarks) texts.push_back(remark.pass + ": " + remark.node + ": " + remark.reason);
  return texts;
}

TEST(Passes, EpilogueSaysWhatKeptAnOperatorOut) {
  EXPECT_THAT(
      remarks_of("fuse_epilogue", R"(graph @g {
    input %x: f32[n, 2]
    const %w: f32[2, 2] = [1, 2, 3, 4]
    %p = Gemm(%x, %w) {transB: 0}
    %r = Relu(%p)
    %s = Softmax(%p) {axis: 1}
    output %r as "r"
    output %s as "s"
  })"),
      testing::ElementsAre("fuse_epilogue: r: Relu 'r' not fused into Gemm 'p': %p is also used by Softmax 's'"));
  EXPECT_THAT(remarks_of("fuse_epilogue", R"(graph @g {
    input %x: f32[n, 2]
    const %w: f32[2, 2] = [1, 2, 3, 4]
    %p = Gemm(%x, %w) {transB: 0}
    %r = Relu(%p)
    output %p as "p"
    output %r as "r"
  })"),
              testing::ElementsAre("fuse_epilogue: r: Relu 'r' not fused into Gemm 'p': %p is an output of the graph"));
  EXPECT_THAT(
      remarks_of("fuse_epilogue", R"(graph @g {
    input %x: f32[n, 2]
    input %mask: bool[n, 2]
    const %w: f32[2, 2] = [1, 2, 3, 4]
    %p = Gemm(%x, %w) {transB: 0}
    %r = Where(%mask, %p, %x)
    output %r as "r"
  })"),
      testing::ElementsAre("fuse_epilogue: r: Where 'r' not fused into Gemm 'p': Where 'r' cannot join: operand "
                           "%mask is bool, epilogues read f32"));
}

TEST(Passes, AttentionSaysWhatKeptASoftmaxOut) {
  EXPECT_THAT(
      remarks_of("fuse_attention", R"(graph @g {
    input %q: f32[b, 2, s, 4]
    input %kt: f32[b, 2, 4, s]
    input %v: f32[b, 2, s, 4]
    %scores = MatMul(%q, %kt)
    %p = Softmax(%scores) {axis: -1}
    %y = MatMul(%p, %v)
    output %y as "y"
    output %p as "p"
  })"),
      testing::ElementsAre("fuse_attention: p: Softmax 'p' not fused into an Attention: its weights %p are also used "
                           "elsewhere"));
}

TEST(Passes, FusedNodesKeepNamesAndSources) {
  std::unique_ptr<ir::Graph> graph = parse_graph(R"(graph @g {
    input %x: f32[n, 2, 4, 4]
    const %w: f32[2, 2, 1, 1] = [1, 2, 3, 4]
    %c = Conv(%x, %w) {kernel_shape: [1, 1]} from ["conv1"]
    %s = Sigmoid(%c) from ["sigmoid1"]
    %m = Mul(%c, %s) from ["mul1"]
    %y = Relu(%m) from ["relu1"]
    output %y as "result"
  })");
  ASSERT_TRUE(run_passes(*graph, cpu_pipeline(), {}).is_ok());
  ASSERT_EQ(graph->nodes().size(), 3u) << ir::print(*graph);
  const ir::Node& conv = **std::next(graph->nodes().begin());
  EXPECT_EQ(conv.op(), "Conv");
  EXPECT_THAT(conv.sources, testing::ElementsAre("conv1", "sigmoid1", "mul1", "relu1"));
  EXPECT_EQ(conv.output()->name, "y.nhwc");
  EXPECT_EQ(graph->outputs()[0]->name, "y");
}

TEST(Passes, ConstantFoldingAsksTheEvaluatorForWhatItCannotDo) {
  std::unique_ptr<ir::Graph> graph = parse_graph(R"(graph @g {
    input %x: f32[n, 2]
    const %c: f32[2] = [1, 2]
    %s = Softmax(%c) {axis: 0}
    %y = Add(%x, %s)
    output %y as "y"
  })");
  int asked = 0;
  PassContext context;
  context.evaluator = [&](const ir::Node& node) -> Result<std::vector<ir::ConstTensor>> {
    ++asked;
    EXPECT_EQ(node.op(), "Softmax");
    const float values[] = {0.25F, 0.75F};
    return std::vector<ir::ConstTensor>{ir::ConstTensor::from<float>(DType::kFloat32, {2}, values)};
  };
  Result<bool> changed = find_pass("fold_constants")->run(*graph, context);
  ASSERT_TRUE(changed.is_ok() && changed.value());
  EXPECT_EQ(asked, 1);
  ASSERT_EQ(graph->nodes().size(), 1u);
  EXPECT_EQ(graph->nodes().front()->input(1)->constant->as<float>()[1], 0.75F);
}

TEST(Passes, ConstantFoldingReportsAnIndexOutOfRange) {
  std::unique_ptr<ir::Graph> graph = parse_graph(R"(graph @g {
    input %x: f32[n, 2]
    const %c: f32[3, 2] = [1, 2, 3, 4, 5, 6]
    const %i: i64[1, 1] = [3]
    %s = Gather(%c, %i) {axis: 0}
    %y = Add(%x, %s)
    output %y as "y"
  })");
  Result<bool> changed = find_pass("fold_constants")->run(*graph, {});
  ASSERT_FALSE(changed.is_ok());
  EXPECT_EQ(changed.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(changed.status().message(), testing::HasSubstr("index 3 is outside the 3 elements of axis 0"));
}

}  // namespace
}  // namespace flywheel::passes
