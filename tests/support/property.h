// RapidCheck properties with a number of cases of their own, where the default of 100 proves too little. As
// with RC_GTEST_PROP, a failure prints the shrunk case and the RC_PARAMS line that repeats it.
#pragma once

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace plumbline::test {

// Runs at least `cases` cases (more if RC_PARAMS says so).
template <typename Testable>
void check_cases(int cases, Testable&& property) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = std::max(params.maxSuccess, cases);
  const rc::detail::TestResult result =
      rc::detail::checkProperty(rc::detail::toProperty(std::forward<Testable>(property)), metadata, params);
  if (result.is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str();
}

// A list of at most about `most` elements, each drawn at full size: RapidCheck's inRange() inside a
// container that was made short with resize() would give its lower bound nearly always.
template <typename T>
rc::Gen<std::vector<T>> few(int most, rc::Gen<T> element) {
  return rc::gen::resize(most, rc::gen::container<std::vector<T>>(rc::gen::resize(100, std::move(element))));
}

// inRange() over the whole range, whatever the size.
inline rc::Gen<int> between(int least, int most) {
  return rc::gen::resize(100, rc::gen::inRange(least, most + 1));
}

}  // namespace plumbline::test
