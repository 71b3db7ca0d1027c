// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "compiler/passes/min_cut.h"
#include "compiler/passes/moves.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/text_cases.h"

namespace flywheel::passes {
namespace {

constexpr const char* kGraph = R"(graph @g {
  input %x: f32[n, 4]
  %a = Identity(%x)
  %b = Exp(%a)
  %y = Neg(%b)
  output %y as "y"
})";

TEST(Driver, RunsInOrderAndTimes) {
  std::unique_ptr<ir::Graph> graph = parse_graph(kGraph);
  Result<std::vector<PassTime>> times = run_passes(*graph, cpu_pipeline(), {});
  ASSERT_TRUE(times.is_ok()) << times.status().to_string();
  ASSERT_EQ(times->size(), cpu_pipeline().size());
  for (size_t i = 0; i < times->size(); ++i) EXPECT_EQ((*times)[i].name, cpu_pipeline()[i].name);
  EXPECT_EQ(graph->nodes().size(), 1u);
  EXPECT_EQ(graph->nodes().front()->op(), "Pointwise");
}

TEST(Driver, SkipsDisabledPassesWhereverTheyStand) {
  std::unique_ptr<ir::Graph> graph = parse_graph(kGraph);
  DriverOptions options;
  options.disabled = {"fuse_pointwise", "remove_identity"};
  Result<std::vector<PassTime>> times = run_passes(*graph, cpu_pipeline(), options);
  ASSERT_TRUE(times.is_ok());
  for (const PassTime& time : *times)
    EXPECT_THAT(time.name, testing::Not(testing::AnyOf("fuse_pointwise", "remove_identity")));
  EXPECT_EQ(graph->nodes().size(), 3u);
}

TEST(Driver, RefusesNamesThatAreUnknownOrRequired) {
  std::unique_ptr<ir::Graph> graph = parse_graph(kGraph);
  DriverOptions options;
  options.disabled = {"fuse_everything"};
  Result<std::vector<PassTime>> unknown = run_passes(*graph, cpu_pipeline(), options);
  ASSERT_FALSE(unknown.is_ok());
  EXPECT_EQ(unknown.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), testing::HasSubstr("no pass 'fuse_everything'"));
  EXPECT_THAT(unknown.status().message(), testing::HasSubstr("fuse_epilogue"));
  options.disabled = {"to_nhwc"};
  Result<std::vector<PassTime>> required = run_passes(*graph, cpu_pipeline(), options);
  ASSERT_FALSE(required.is_ok());
  EXPECT_EQ(required.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(required.status().message(), testing::HasSubstr("'to_nhwc' cannot be disabled"));
}

TEST(Driver, DumpsWhatChanged) {
  const std::string folder = testing::TempDir() + "/driver_test_dumps";
  std::filesystem::remove_all(folder);
  std::unique_ptr<ir::Graph> graph = parse_graph(kGraph);
  DriverOptions options;
  options.dump_dir = folder;
  ASSERT_TRUE(run_passes(*graph, cpu_pipeline(), options).is_ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::Contains("00_input.ir"));
  EXPECT_THAT(names, testing::Contains(testing::EndsWith("_fuse_pointwise.ir")));
  EXPECT_THAT(names, testing::Not(testing::Contains(testing::EndsWith("_to_nhwc.ir"))));
  std::filesystem::remove_all(folder);
  options.dump_dir = "/proc/no/such/place";
  EXPECT_EQ(run_passes(*parse_graph(kGraph), cpu_pipeline(), options).status().code(), Code::kInvalidArgument);
}

TEST(Driver, NamesThePassThatBreaksTheGraph) {
  const Pass breaks{"breaks", [](ir::Graph& graph, const PassContext&) -> Result<bool> {
                      graph.nodes().front()->output()->dtype = DType::kInt8;
                      return true;
                    }};
  std::unique_ptr<ir::Graph> graph = parse_graph(kGraph);
  Result<std::vector<PassTime>> times = run_passes(*graph, std::span(&breaks, 1), {});
  ASSERT_FALSE(times.is_ok());
  EXPECT_THAT(times.status().message(), testing::HasSubstr("after pass breaks"));
}

TEST(MinCut, TakesTheCheaperSideAndOfEqualsTheSmallerSource) {
  MinCut cut;
  const int a = cut.add_vertex(), b = cut.add_vertex(), c = cut.add_vertex();
  cut.add_edge(cut.source(), a, 3);
  cut.add_edge(a, b, 2);
  cut.add_edge(b, cut.sink(), 5);
  cut.add_edge(cut.source(), c, 4);
  cut.add_edge(c, cut.sink(), 4);
  const std::vector<bool> side = cut.solve();
  EXPECT_TRUE(side[static_cast<size_t>(a)]);
  EXPECT_FALSE(side[static_cast<size_t>(b)]);
  EXPECT_FALSE(side[static_cast<size_t>(c)]);
}

TEST(Moves, ReshapeGroupsAreTheFinest) {
  const DimExpr n = DimExpr::symbol("n"), s = DimExpr::symbol("s");
  auto ranges = [](const std::vector<DimGroup>& groups) {
    std::vector<std::vector<size_t>> result;
    for (const DimGroup& g : groups) result.push_back({g.x_first, g.x_last, g.y_first, g.y_last});
    return result;
  };
  using testing::ElementsAre;
  EXPECT_THAT(ranges(reshape_groups({n, 4, 6}, {n, 2, 2, 6})),
              ElementsAre(ElementsAre(0, 1, 0, 1), ElementsAre(1, 2, 1, 3), ElementsAre(2, 3, 3, 4)));
  EXPECT_THAT(ranges(reshape_groups({n, s, 8}, {n * s, 8})),
              ElementsAre(ElementsAre(0, 2, 0, 1), ElementsAre(2, 3, 1, 2)));
  EXPECT_THAT(ranges(reshape_groups({4, 6}, {6, 4})), ElementsAre(ElementsAre(0, 2, 0, 2)));
  EXPECT_THAT(ranges(reshape_groups({n, s}, {s, n})), ElementsAre(ElementsAre(0, 2, 0, 2)));
  EXPECT_THAT(ranges(reshape_groups({n, 8, 1, 1}, {n, 8})),
              ElementsAre(ElementsAre(0, 1, 0, 1), ElementsAre(1, 4, 1, 2)));
  EXPECT_THAT(ranges(reshape_groups({0, 4}, {4, 0})), ElementsAre(ElementsAre(0, 2, 0, 2)));
  EXPECT_TRUE(reshape_groups({}, {}).empty());
}

TEST(Moves, PermThroughReshape) {
  const DimExpr n = DimExpr::symbol("n");
  EXPECT_EQ(perm_through_reshape({n, 4, 6, 6}, {0, 2, 3, 1}, {n, 4, 36}), (Perm{0, 2, 1}));
  EXPECT_EQ(perm_through_reshape({n, 4, 6, 6}, {0, 2, 3, 1}, {n, 2, 2, 6, 6}), (Perm{0, 3, 4, 1, 2}));
  EXPECT_EQ(perm_through_reshape({n, 4, 6}, {0, 2, 1}, {n, 4, 1, 6}), (Perm{0, 2, 3, 1}));
  EXPECT_EQ(perm_through_reshape({n, 4, 6, 6}, {0, 2, 3, 1}, {n, 144}), std::nullopt);
  EXPECT_EQ(perm_through_reshape({n, 4, 1, 1}, {0, 2, 3, 1}, {n, 4}), (Perm{0, 1}));
}

}  // namespace
}  // namespace flywheel::passes
