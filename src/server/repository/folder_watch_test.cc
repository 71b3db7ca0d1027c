// SPDX-License-Identifier: Apache-2.0
#include "server/repository/folder_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder_test_data.h"

namespace flywheel::repository {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FolderWatchTest : public testing::Test {
 protected:
  // Looks twice: the first look finds what is unsettled.
  FolderWatch::Changes settled() {
    EXPECT_TRUE(watch_.look()->is_unsettled);
    FolderWatch::Changes changes = *watch_.look();
    EXPECT_FALSE(changes.is_unsettled);
    return changes;
  }
  bool is_quiet() {
    const FolderWatch::Changes changes = *watch_.look();
    return changes.changed.empty() && changes.removed.empty() && !changes.is_unsettled;
  }

  TemporaryFolder folder_;
  FolderWatch watch_{{folder_.path()}};
};

TEST_F(FolderWatchTest, TellsWhatIsNewChangedOrGone) {
  folder_.write("a/1/model.engine", "one");
  watch_.adopt();
  EXPECT_TRUE(is_quiet());
  folder_.write("b/1/model.engine", "one");
  EXPECT_THAT(settled().changed, ElementsAre("b"));
  EXPECT_TRUE(is_quiet());
  folder_.write("a/1/model.engine", "another");
  EXPECT_THAT(settled().changed, ElementsAre("a"));
  folder_.write("a/config.pbtxt", "max_batch_size: 4");
  folder_.write("b/2/model.engine", "two");
  EXPECT_THAT(settled().changed, ElementsAre("a", "b"));
  folder_.remove("b/1");
  EXPECT_THAT(settled().changed, ElementsAre("b"));
  folder_.remove("a");
  const FolderWatch::Changes changes = settled();
  EXPECT_THAT(changes.removed, ElementsAre("a"));
  EXPECT_THAT(changes.changed, IsEmpty());
  EXPECT_TRUE(is_quiet());
  folder_.write("a/1/model.engine", "again");
  EXPECT_THAT(settled().changed, ElementsAre("a"));
}

TEST_F(FolderWatchTest, WaitsUntilNothingIsWritten) {
  watch_.adopt();
  for (int i = 0; i < 5; ++i) {
    folder_.write("a/1/model.onnx", std::string(static_cast<size_t>(i) + 1, 'x'));
    const FolderWatch::Changes changes = *watch_.look();
    EXPECT_TRUE(changes.is_unsettled);
    EXPECT_THAT(changes.changed, IsEmpty());
  }
  EXPECT_THAT(watch_.look()->changed, ElementsAre("a"));
}

TEST_F(FolderWatchTest, AFolderThatCameAndWentIsNoChange) {
  watch_.adopt();
  folder_.write("a/1/model.onnx", "x");
  EXPECT_TRUE(watch_.look()->is_unsettled);
  folder_.remove("a");
  EXPECT_TRUE(is_quiet());
  EXPECT_TRUE(is_quiet());
}

TEST_F(FolderWatchTest, LinksThatLeadUpwardsEnd) {
  folder_.write("a/1/model.onnx", "x");
  for (int i = 0; i < 12; ++i)
    std::filesystem::create_directory_symlink("..", folder_.path() + "/a/1/up" + std::to_string(i));
  watch_.adopt();
  EXPECT_TRUE(is_quiet());
  folder_.write("a/1/model.onnx", "another");
  EXPECT_THAT(settled().changed, ElementsAre("a"));
}

TEST_F(FolderWatchTest, EnginesThatAreBuiltBesideAModelAreNoChange) {
  folder_.write("a/1/model.onnx", "x");
  watch_.adopt();
  folder_.write("a/1/model.onnx.0123456789abcdef-01234567.engine", "built");
  EXPECT_TRUE(is_quiet());
  folder_.write("a/1/model.engine", "put there");
  EXPECT_THAT(settled().changed, ElementsAre("a"));
}

TEST(FolderWatchErrors, ARepositoryThatIsAwayChangesNothing) {
  TemporaryFolder folder;
  folder.write("models/a/1/model.engine", "one");
  FolderWatch watch({folder.path() + "/models"});
  watch.adopt();
  std::filesystem::rename(folder.path() + "/models", folder.path() + "/away");
  EXPECT_FALSE(watch.look().is_ok());
  std::filesystem::rename(folder.path() + "/away", folder.path() + "/models");
  EXPECT_FALSE(watch.look()->is_unsettled);
}

}  // namespace
}  // namespace flywheel::repository
