// SPDX-License-Identifier: BSD-3-Clause
// `tagwire vhca` is the program tagwire-vhca, where it is built or installed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/described_json.hpp"
#include "cli/failure.hpp"
#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/vhca.hpp"

namespace tagwire::test {
namespace {

TEST(DescribedCommand, comes_back_from_its_text) {
    tools::DescribedCommand run;
    run.name = "run";
    run.text = "Start a \"program\"";
    run.starts_program = true;
    run.options = {{{"-n", "--ranks"}, "N", "How many", false}, {{"program"}, "", "", true}};
    tools::DescribedCommand all;
    all.name = "all";
    all.commands = {run};
    const tools::DescribedCommand back = tools::described_from_json(tools::to_json(all));
    EXPECT_EQ(back.name, "all");
    EXPECT_FALSE(back.starts_program);
    EXPECT_TRUE(back.options.empty());
    ASSERT_EQ(back.commands.size(), 1U);
    EXPECT_EQ(back.commands[0].text, run.text);
    EXPECT_TRUE(back.commands[0].starts_program);
    ASSERT_EQ(back.commands[0].options.size(), 2U);
    EXPECT_EQ(back.commands[0].options[0].names, run.options[0].names);
    EXPECT_EQ(back.commands[0].options[0].type, "N");
    EXPECT_EQ(back.commands[0].options[0].text, "How many");
    EXPECT_FALSE(back.commands[0].options[0].is_positional);
    EXPECT_TRUE(back.commands[0].options[1].is_positional);
}

TEST(DescribedCommand, is_not_read_from_another_text) {
    for (const char* text :
         {"", "{", "[]", "{\"name\": \"a\"}", "{\"name\": 1, \"text\": \"\"}",
          R"({"name": "a", "text": "", "starts_program": false, "commands": [],)"
          R"( "options": [{"names": [], "type": "", "text": "", "is_positional": false}]})"})
        EXPECT_THROW(tools::described_from_json(text), tools::Failure) << text;
}

class VhcaProgram : public OverVhca {
  protected:
    VhcaProgram() : OverVhca("rc") {}
};

TEST_F(VhcaProgram, explains_wrong_usage_by_the_name_that_was_used) {
    const struct {
        std::vector<std::string> arguments;
        const char* says;
    } cases[] = {
        {{"vhca"}, "Try 'tagwire vhca --help'."},
        {{"vhca", "run"}, "Try 'tagwire vhca run --help'."},
        {{"vhca", "run", "--los", "0.1", "--", "true"}, "'--los' is not an option"},
    };
    for (const auto& [arguments, says] : cases) {
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 2) << testing::PrintToString(arguments);
        EXPECT_EQ(finished.error.rfind("tagwire: ", 0), 0U) << finished.error;
        EXPECT_NE(finished.error.find(says), std::string::npos)
            << testing::PrintToString(arguments) << finished.error;
    }
}

TEST_F(VhcaProgram, tells_its_commands) {
    std::vector<std::string> names;
    for (const tools::DescribedCommand& command : tools::vhca_commands())
        names.push_back(command.name);
    EXPECT_EQ(names, (std::vector<std::string>{"run", "inject", "info"}));
}

/// A copy of the command alone in a folder, and no other program along the path.
class Alone {
  public:
    Alone() {
        setenv("PATH", "/nonexistent", 1);
        std::string name = (std::filesystem::temp_directory_path() / "tagwire-XXXXXX").string();
        folder_ = mkdtemp(name.data());
        std::filesystem::copy_file(std::getenv("TAGWIRE_TEST_COMMAND"), folder_ / "tagwire");
        setenv("TAGWIRE_TEST_ALONE", (folder_ / "tagwire").c_str(), 1);
    }
    ~Alone() {
        setenv("PATH", path_.c_str(), 1);
        unsetenv("TAGWIRE_TEST_ALONE");
        std::filesystem::remove_all(folder_);
    }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

    static Finished run(const std::vector<std::string>& arguments) {
        return Command("TAGWIRE_TEST_ALONE", arguments).wait();
    }

  private:
    const std::string path_ = std::getenv("PATH");
    std::filesystem::path folder_;
};

TEST(NoVhcaProgram, is_told_with_the_package_that_has_it) {
    const Alone alone;
    const Finished finished = Alone::run({"vhca", "run", "--", "true"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("is the package tagwire-vhca installed"), std::string::npos)
        << finished.error;
}

TEST(NoVhcaProgram, leaves_the_completion_of_all_other_words) {
    const Alone alone;
    const Finished finished = Alone::run({"completion", "bash"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.out.find("tag_lat"), std::string::npos);
    EXPECT_NE(finished.out.find("vhca"), std::string::npos);
    EXPECT_EQ(finished.out.find("--driver"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::test
