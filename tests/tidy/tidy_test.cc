// Each rule is shown to fire, and shown to stay quiet one step away from the violation.
#include "tests/tidy/tidy.h"

#include <string>

#include <gtest/gtest.h>

namespace plumbline::tidy {
namespace {

struct Case {
  const char* name;
  const char* file;
  std::string content;
  int line;          // where the only finding is, -1 for none
  const char* what;  // part of its text
};

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "int a" + std::to_string(i) + ";\n";
  return text;
}

class Rules : public testing::TestWithParam<Case> {};

TEST_P(Rules, FindsExactlyTheViolation) {
  const Case& c = GetParam();
  const auto findings = check_file(c.file, c.content);
  if (c.line < 0) {
    EXPECT_TRUE(findings.empty()) << findings.front().what;
    return;
  }
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].file, c.file);
  EXPECT_EQ(findings[0].line, c.line);
  EXPECT_NE(findings[0].what.find(c.what), std::string::npos) << findings[0].what;
}

INSTANTIATE_TEST_SUITE_P(
    Order, Rules,
    testing::Values(
        Case{"downwards", "engine/program/a.cc", "#include \"engine/schedule/a.h\"\n", -1, ""},
        Case{"within", "sim/verify/a.cc", "#include \"sim/a.h\"\n", -1, ""},
        Case{"upwards", "engine/schedule/a.cc", "\n#include \"engine/program/a.h\"\n", 2, "other way"},
        Case{"spaced", "engine/base/a.cc", "  #  include \"sim/a.h\"\n", 1, "other way"},
        Case{"sideways", "reports/a.cc", "#include \"props/a.h\"\n", 1, "other way"},
        Case{"into_cli", "sim/a.cc", "#include \"cli/a.h\"\n", 1, "other way"},
        Case{"cli_below", "cli/a.cc", "#include \"reports/a.h\"\n", -1, ""},
        Case{"engine_cli", "cli/engine/a.cc", "#include \"cli/a.h\"\n#include \"engine/train/a.h\"\n", -1,
             ""},
        Case{"cli_over_the_line", "cli/a.cc", "#include \"engine/train/a.h\"\n", 1,
             "above the LibTorch line"},
        Case{"reports_over_the_line", "reports/a.cc", "#include \"engine/optim/a.h\"\n", 1,
             "above the LibTorch"},
        Case{"commented", "engine/base/a.cc", "// #include \"sim/a.h\"\n", -1, ""},
        Case{"in_raw_string", "engine/base/a.cc", "auto s = R\"(\n#include \"sim/a.h\"\n)\";\n", -1, ""},
        Case{"test_with_props", "tests/engine/schedule/a_test.cc", "#include \"props/a.h\"\n", -1, ""},
        Case{"test_over_the_line", "tests/sim/a_test.cc", "#include \"engine/model/a.h\"\n", 1,
             "LibTorch line"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Torch, Rules,
    testing::Values(Case{"above", "engine/model/a.cc", "#include <ATen/ATen.h>\n", -1, ""},
                    Case{"below", "engine/runtime/a.cc", "#include <ATen/ATen.h>\n", 1, "out of bounds"},
                    Case{"c10_below", "sim/a.cc", "#include <c10/util/Half.h>\n", 1, "out of bounds"},
                    Case{"test_below", "tests/sim/a_test.cc", "#include <c10/util/Half.h>\n", 1,
                         "out of bounds"},
                    Case{"torch_h", "engine/train/a.cc", "#include <torch/torch.h>\n", 1, "half a minute"},
                    Case{"torch_h_in_test", "tests/engine/train/a_test.cc", "#include <torch/torch.h>\n", 1,
                         "half a minute"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Spelling, Rules,
    testing::Values(Case{"relative", "engine/base/a.cc", "#include \"result.h\"\n", 1, "repository root"},
                    Case{"angled", "sim/a.cc", "#include <engine/base/result.h>\n", 1, "use quotes"},
                    Case{"no_guard", "sim/a.h", "int a();\n", 0, "pragma once"},
                    Case{"repeated", "sim/a.h", "// no-guard: included once a type\nint a();\n", -1, ""},
                    Case{"guard", "sim/a.h", "#pragma once\nint a();\n", -1, ""}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Printing, Rules,
    testing::Values(
        Case{"iostream", "sim/a.cc", "#include <iostream>\n", 1, "printing lives"},
        Case{"iostream_in_cli", "cli/a.cc", "#include <iostream>\n", -1, ""},
        Case{"printf", "engine/base/a.cc", "void f() { std::printf(\"a\"); }\n", 1, "printing lives"},
        Case{"snprintf", "engine/base/a.cc", "void f() { std::snprintf(b, 2, \"a\"); }\n", -1, ""},
        Case{"cerr", "props/a.cc", "void f() { std::cerr << 1; }\n", 1, "printing lives"},
        Case{"fmt_print", "sim/a.cc", "void f() { fmt::print(\"a\"); }\n", 1, "printing lives"},
        Case{"excepted", "engine/base/a.cc",
             "std::fputs(s, stderr);  // prints: last words of an assertion\n", -1, ""},
        Case{"no_reason", "engine/base/a.cc", "std::fputs(s, stderr);  // prints:\n", 1, "printing lives"},
        Case{"in_comment", "sim/a.cc", "// std::cout is not used\n/* printf(\n std::cerr */\n", -1, ""},
        Case{"in_string", "sim/a.cc", "auto s = \"\\\"printf(\";\n", -1, ""},
        Case{"after_string", "sim/a.cc", "auto s = \"a\"; puts(s);\n", 1, "printing lives"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Determinism, Rules,
    testing::Values(
        Case{"random_device", "engine/optim/a.cc", "std::random_device d;\n", 1, "seeded generator"},
        Case{"rand", "sim/a.cc", "int a = rand();\n", 1, "seeded generator"},
        Case{"operand", "sim/a.cc", "int a = operand();\n", -1, ""},
        Case{"unordered", "sim/a.cc", "std::unordered_map<int, int> m;\n", 1, "order varies"},
        Case{"unordered_program", "engine/program/a.cc", "std::unordered_set<int> m;\n", 1, "order varies"},
        Case{"unordered_elsewhere", "reports/a.cc", "std::unordered_set<int> m;\n", -1, ""},
        Case{"order_free", "sim/a.cc", "std::unordered_set<int> m;  // order-free: membership only\n", -1,
             ""},
        Case{"clock", "sim/a.cc", "auto t = std::chrono::steady_clock::now();\n", 1, "virtual time"},
        Case{"clock_in_runtime", "engine/runtime/a.cc", "auto t = std::chrono::steady_clock::now();\n", -1,
             ""},
        Case{"clock_excepted", "sim/a.cc", "using C = std::chrono::steady_clock;  // wall-clock: budget\n",
             -1, ""}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layout, Rules,
    testing::Values(Case{"tab", "sim/a.cc", "int a;\n\tint b;\n", 2, "tab"},
                    Case{"crlf", "sim/a.cc", "int a;\r\n", 1, "CR LF"},
                    Case{"wide", "sim/a.cc", "// " + std::string(118, 'x') + "\n", 1, "121 columns"},
                    Case{"full", "sim/a.cc", "// " + std::string(117, 'x') + "\n", -1, ""},
                    Case{"utf8", "sim/a.cc", "// " + std::string(116, 'x') + "\xC3\xA4\n", -1, ""},
                    Case{"long_file", "sim/a.cc", lines(501), 0, "501 lines"},
                    Case{"not_long", "sim/a.cc", lines(500), -1, ""},
                    Case{"long_excepted", "sim/a.cc", "// long-file: one table\n" + lines(501), -1, ""},
                    Case{"long_no_reason", "sim/a.cc", "// long-file:\n" + lines(501), 0, "502 lines"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plumbline::tidy
