// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <numeric>
#include <thread>

#include "engine/test_plan.h"
#include "flywheel/buffer.h"
#include "runtime/bound_shape.h"
#include "runtime/engine_impl.h"

namespace flywheel::runtime {
namespace {

std::shared_ptr<EngineImpl> copy_engine(int64_t max_rows = 8) {
  auto engine = EngineImpl::from_plan(engine::copy_plan(max_rows), {});
  EXPECT_TRUE(engine.is_ok()) << engine.status().to_string();
  return engine.is_ok() ? *engine : nullptr;
}

std::unique_ptr<ExecutionContext> make_context(const Engine& engine, int threads = 2) {
  ContextOptions options;
  options.threads = threads;
  auto context = engine.create_context(options);
  EXPECT_TRUE(context.is_ok()) << context.status().to_string();
  return context.is_ok() ? std::move(*context) : nullptr;
}

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(Buffer, HoldsWhatRunsReadAndWrite) {
  auto x = Buffer::allocate(32), y = Buffer::allocate(32);
  ASSERT_TRUE(x.is_ok() && y.is_ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x->data()) % 64, 0u);
  ASSERT_EQ(x->as<float>().size(), 8u);
  std::iota(x->as<float>().begin(), x->as<float>().end(), 1.0F);
  Buffer moved = std::move(*x);
  EXPECT_EQ(x->data(), nullptr);
  EXPECT_EQ(x->size_bytes(), 0u);
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const void* inputs[] = {moved.data()};
  void* outputs[] = {y->data()};
  ASSERT_TRUE(context->run(inputs, outputs).is_ok());
  EXPECT_EQ(y->as<float>()[7], 8.0F);
  EXPECT_EQ(Buffer::allocate(size_t{1} << 60).status().code(), Code::kOutOfMemory);
}

TEST(Engine, DescribesItself) {
  auto engine = copy_engine();
  ASSERT_EQ(engine->inputs().size(), 1U);
  EXPECT_EQ(engine->inputs()[0].name, "x");
  EXPECT_EQ(engine->inputs()[0].dims, (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(engine->inputs()[0].dim_names, (std::vector<std::string>{"n", ""}));
  EXPECT_EQ(engine->inputs()[0].max, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(engine->outputs()[0].dims, (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(engine->steps()[0].sources, (std::vector<std::string>{"node_1"}));
  EXPECT_EQ(engine->find_input("x"), 0);
  EXPECT_EQ(engine->find_output("x"), std::nullopt);
}

TEST(Engine, RefusesAFileThatDoesNotExist) {
  EXPECT_EQ(Engine::load("/no/such.engine").status().code(), Code::kNotFound);
  EXPECT_EQ(Engine::check("/no/such.engine").code(), Code::kNotFound);
}

TEST(Engine, ACopyOutlivesItsFilesContent) {
  const std::string path = testing::TempDir() + "copied.engine";
  ASSERT_TRUE(engine::write_engine(path, engine::copy_plan(8), {}).is_ok());
  auto engine = Engine::load(path, {.copy = true});
  ASSERT_TRUE(engine.is_ok()) << engine.status().to_string();
  std::filesystem::resize_file(path, 0);
  auto context = make_context(**engine);
  ASSERT_TRUE(context->set_shape(0, {2, 4}).is_ok());
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  ASSERT_TRUE(context->run(inputs, outputs).is_ok());
  EXPECT_EQ(x, y);
  std::filesystem::remove(path);
}

TEST(ExecutionContext, RunsEveryShapeOfTheProfile) {
  auto engine = copy_engine(5000);
  for (int threads : {1, 2, 3}) {
    auto context = make_context(*engine, threads);
    for (int64_t n : {2, 5000, 1, 4999, 5000}) {
      ASSERT_TRUE(context->set_shape(0, {n, 4}).is_ok());
      ASSERT_TRUE(context->bind().is_ok());
      EXPECT_EQ(context->output_dims(0)[0], n);
      EXPECT_EQ(context->output_bytes(0), static_cast<uint64_t>(n) * 16);
      const std::vector<float> x = numbers(static_cast<size_t>(n) * 4);
      std::vector<float> y(x.size(), 0);
      const void* inputs[] = {x.data()};
      void* outputs[] = {y.data()};
      ASSERT_TRUE(context->run(inputs, outputs).is_ok());
      EXPECT_EQ(x, y);
    }
  }
}

TEST(BoundShape, TakesTheTeamOnlyForWorkThatIsWorthIt) {
  auto engine = copy_engine(5000);
  auto workers = [&](int64_t rows) {
    auto bound = BoundShape::create(*engine, {{rows, 4}}, 3, nullptr);
    EXPECT_TRUE(bound.is_ok()) << bound.status().to_string();
    return (*bound)->workers();
  };
  EXPECT_EQ(workers(1), 1);
  EXPECT_EQ(workers(1000), 1);
  EXPECT_EQ(workers(5000), 3);
}

TEST(ExecutionContext, NamesWhatIsOutsideTheProfile) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const Status high = context->set_shape(0, {9, 4});
  EXPECT_EQ(high.code(), Code::kInvalidArgument);
  EXPECT_EQ(
      high.message(),
      "input 'x' dim 0 is 9, outside the engine's profile [1, 8]: use a shape in that range or rebuild with --profile");
  EXPECT_EQ(context->set_shape(0, {0, 4}).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->set_shape(0, {1, 5}).code(), Code::kInvalidArgument);
  EXPECT_NE(context->set_shape(0, {1}).message().find("rank 1, but the engine expects rank 2"), std::string::npos);
  EXPECT_EQ(context->set_shape(1, {1, 4}).code(), Code::kInvalidArgument);
  EXPECT_EQ(context->set_shape(-1, {1, 4}).code(), Code::kInvalidArgument);
}

TEST(ExecutionContext, RefusesMissingArrays) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  std::vector<float> y(8);
  const void* null_input[] = {nullptr};
  void* outputs[] = {y.data()};
  EXPECT_NE(context->run(null_input, outputs).message().find("input 'x' is a null pointer"), std::string::npos);
  EXPECT_EQ(context->run({}, outputs).code(), Code::kInvalidArgument);
}

TEST(ExecutionContext, EnqueueCallsBackAndRefusesASecond) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  for (int round = 0; round < 50; ++round) {
    std::promise<Status> done;
    Status accepted = context->enqueue(inputs, outputs, [&](Status status) { done.set_value(std::move(status)); });
    ASSERT_TRUE(accepted.is_ok()) << accepted.to_string();
    EXPECT_TRUE(done.get_future().get().is_ok());
    context->wait();
    EXPECT_EQ(x, y);
  }
}

// The run is held in flight by its profiler.
TEST(ExecutionContext, RefusesEverythingElseWhileARunIsInFlight) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0), other(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  void* other_outputs[] = {other.data()};
  std::promise<void> started, go_on;
  context->set_profiler([&](int, double) {
    started.set_value();
    go_on.get_future().wait();
  });
  Status result;
  ASSERT_TRUE(context->enqueue(inputs, outputs, [&](Status status) { result = std::move(status); }).is_ok());
  started.get_future().wait();
  EXPECT_EQ(context->run(inputs, other_outputs).code(), Code::kUnavailable);
  EXPECT_EQ(context->set_shape(0, {1, 4}).code(), Code::kUnavailable);
  EXPECT_EQ(context->bind().code(), Code::kUnavailable);
  EXPECT_EQ(context->enqueue(inputs, other_outputs, {}).code(), Code::kUnavailable);
  go_on.set_value();
  context->wait();
  EXPECT_TRUE(result.is_ok()) << result.to_string();
  EXPECT_EQ(y, x);
  EXPECT_EQ(other, std::vector<float>(8, 0));
  context->set_profiler({});
  EXPECT_TRUE(context->run(inputs, other_outputs).is_ok());
  EXPECT_EQ(other, x);
}

TEST(ExecutionContext, WaitsForTheCallbackAsWell) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  std::promise<void> called;
  std::atomic<int> finished = 0;
  auto second = [&](Status) { ++finished; };
  auto first = [&](Status) {
    called.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for a wait() that is wrong to return
    ++finished;
    EXPECT_TRUE(context->enqueue(inputs, outputs, second).is_ok());
    context->wait();  // returns, rather than to wait for itself
  };
  ASSERT_TRUE(context->enqueue(inputs, outputs, first).is_ok());
  called.get_future().wait();
  context->wait();
  EXPECT_EQ(finished, 2);
}

TEST(ExecutionContext, ContextsOfOneEngineRunAtOnce) {
  auto engine = copy_engine();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto context = make_context(*engine, 1 + t % 2);
      std::vector<float> x = numbers(32), y(32);
      for (int round = 0; round < 200; ++round) {
        x[3] = static_cast<float>(round * 10 + t);
        const void* inputs[] = {x.data()};
        void* outputs[] = {y.data()};
        ASSERT_TRUE(context->set_shape(0, {8, 4}).is_ok());
        ASSERT_TRUE(context->run(inputs, outputs).is_ok());
        ASSERT_EQ(x, y);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ExecutionContext, KeepsItsEngineAlive) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  engine.reset();
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  EXPECT_TRUE(context->run(inputs, outputs).is_ok());
  EXPECT_EQ(x, y);
}

TEST(ExecutionContext, ProfilerAndObserverSeeEachStep) {
  auto engine = copy_engine();
  auto context = make_context(*engine);
  const std::vector<float> x = numbers(8);
  std::vector<float> y(8, 0);
  const void* inputs[] = {x.data()};
  void* outputs[] = {y.data()};
  int timed = 0;
  context->set_profiler([&](int step, double ms) {
    EXPECT_EQ(step, 0);
    EXPECT_GE(ms, 0);
    ++timed;
  });
  ASSERT_TRUE(context->run(inputs, outputs).is_ok());
  EXPECT_EQ(timed, 1);
  std::vector<float> seen;
  context->set_observer([&](int, int, const TensorInfo& info, std::span<const std::byte> data) {
    EXPECT_EQ(info.name, "y");
    const auto* values = reinterpret_cast<const float*>(data.data());
    seen.assign(values, values + data.size() / sizeof(float));
  });
  ASSERT_TRUE(context->run(inputs, outputs).is_ok());
  EXPECT_EQ(seen, x);
}

// The plan's own extents are checked against its storage when shapes are bound: a hostile engine cannot write outside.
TEST(ExecutionContext, RefusesExtentsOutsideTheirStorage) {
  engine::Plan plan = engine::copy_plan();
  plan.exprs.push_back({{DimExpr::Op::kConst, 5}});
  plan.steps[0].inputs[0].strides[0] = 3;  // rows 5 apart in an input whose rows are 4 long
  auto engine = EngineImpl::from_plan(plan, {});
  ASSERT_TRUE(engine.is_ok());
  auto context = (*engine)->create_context({});
  ASSERT_FALSE(context.is_ok());
  EXPECT_EQ(context.status().code(), Code::kCorrupt);
  EXPECT_NE(context.status().message().find("step 'identity'"), std::string::npos);

  // An empty view reads nothing, wherever its offset points.
  plan = engine::copy_plan();
  plan.inputs[0].min[0] = 0;
  plan.exprs.push_back({{DimExpr::Op::kConst, INT64_MAX}});
  plan.exprs.push_back({{DimExpr::Op::kConst, 0}});
  plan.steps[0].inputs[0].offset = 3;
  plan.steps[0].inputs[0].dims[0] = plan.steps[0].outputs[0].dims[0] = 4;
  engine = EngineImpl::from_plan(plan, {});
  ASSERT_TRUE(engine.is_ok());
  EXPECT_TRUE((*engine)->create_context({}).is_ok());

  plan = engine::copy_plan();
  plan.exprs.push_back({{DimExpr::Op::kConst, -4}});
  plan.steps[0].outputs[0].offset = 3;
  engine = EngineImpl::from_plan(plan, {});
  ASSERT_TRUE(engine.is_ok());
  EXPECT_EQ((*engine)->create_context({}).status().code(), Code::kCorrupt);
}

TEST(Engine, RefusesAPlanFromTheCompilerThatCannotRun) {
  engine::Plan plan = engine::copy_plan();
  plan.exprs.push_back(engine::Expr(100, {DimExpr::Op::kConst, 1}));
  EXPECT_EQ(EngineImpl::from_plan(plan, {}).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace flywheel::runtime
