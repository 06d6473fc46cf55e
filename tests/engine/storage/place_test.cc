// Runs and covers against brute force over all elements, for random cuts of random tensors.
#include "engine/storage/place.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/covers.h"
#include "tests/support/property.h"

namespace plumbline::test {
namespace {

// The flattened global index of every element of a place, in the place's order: the slow and plain way.
std::vector<std::int64_t> elements_of(const Place& place, const Shape& global) {
  std::vector<std::int64_t> all;
  const std::int64_t count = *element_count(place.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, index = 0, stride = 1;
    for (std::size_t d = global.size(); d-- > 0;) {
      index += (place.offset[d] + rest % place.shape[d]) * stride;
      rest /= place.shape[d];
      stride *= global[d];
    }
    if (!place.flattened || (i >= place.begin && i < place.begin + place.count)) all.push_back(index);
  }
  return all;
}

std::string name_of(std::size_t i) { return "piece " + std::to_string(i); }

TEST(PlaceProperty, RunsAreTheElementsInOrder) {
  check_cases(3000, [] {
    const Shape global = any_shape();
    for (const Place& place : any_cover(global)) {
      std::vector<std::int64_t> seen;
      std::int64_t local = 0;
      for (const plumbline::Run& run : runs_of(place, global)) {
        RC_ASSERT(run.local == local);
        RC_ASSERT(run.length > 0);
        local += run.length;
        for (std::int64_t i = 0; i < run.length; ++i) seen.push_back(run.global + i);
      }
      RC_ASSERT(seen == elements_of(place, global));
    }
  });
}

TEST(PlaceProperty, CoverIsExactOrNamesTheElement) {
  check_cases(4000, [] {
    const Shape global = any_shape();
    std::vector<Place> places = any_cover(global);
    RC_ASSERT(check_cover(global, places, name_of, "t").has_value());
    const auto chosen = static_cast<std::size_t>(below(static_cast<int>(places.size())));
    switch (below(3)) {
      case 0:
        places.erase(places.begin() + static_cast<std::ptrdiff_t>(chosen));
        break;
      case 1:
        places.push_back(places[chosen]);
        break;
      default: {  // moved by one, where that stays inside
        Place& place = places[chosen];
        if (place.shape.empty() || place.offset[0] + place.shape[0] >= global[0]) return;
        ++place.offset[0];
      }
    }
    std::map<std::int64_t, int> held;
    for (const Place& place : places) {
      for (const std::int64_t element : elements_of(place, global)) ++held[element];
    }
    bool exact = static_cast<std::int64_t>(held.size()) == *element_count(global);
    for (const auto& [element, count] : held) exact = exact && count == 1;
    const Status status = check_cover(global, places, name_of, "t");
    RC_ASSERT(status.has_value() == exact);
    if (!exact) RC_ASSERT(status.error().message.find("t: element [") == 0u);
  });
}

TEST(PlaceProperty, CopiesBetweenAnyTwoCovers) {
  check_cases(2000, [] {
    const Shape global = any_shape();
    const std::vector<Place> saved = any_cover(global), wanted = any_cover(global);
    for (const Place& to : wanted) {
      const std::vector<std::int64_t> expected = elements_of(to, global);
      std::vector<std::int64_t> got(expected.size(), -1);
      for (const Place& from : saved) {
        const std::vector<std::int64_t> values = elements_of(from, global);
        for_each_common(runs_of(from, global), runs_of(to, global), [&](auto f, auto t, auto n) {
          for (std::int64_t i = 0; i < n; ++i)
            got[static_cast<std::size_t>(t + i)] = values[static_cast<std::size_t>(f + i)];
        });
      }
      RC_ASSERT(got == expected);
    }
  });
}

TEST(PlaceProperty, SuffixesTellPiecesApart) {
  check_cases(1000, [] {
    const Shape global = any_shape();
    std::map<std::string, int> names;
    for (const Place& place : any_cover(global)) {
      if (place.elements() > 0) RC_ASSERT(++names[place_suffix(place, global)] == 1);
    }
  });
}

TEST(Place, RefusesWhatDoesNotLieInside) {
  const Shape global{4, 6};
  const auto message = [&](const Place& place) {
    const Status status = check_place(place, global, "t");
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(message({{0, 0}, {4, 6}, false, 0, 0}), "");
  EXPECT_EQ(message({{4, 0}, {0, 6}, false, 0, 0}), "");
  EXPECT_NE(message({{0}, {4}, false, 0, 0}).find("number of dimensions"), std::string::npos);
  EXPECT_NE(message({{1, 0}, {4, 6}, false, 0, 0}).find("does not lie inside"), std::string::npos);
  EXPECT_NE(message({{-1, 0}, {4, 6}, false, 0, 0}).find("does not lie inside"), std::string::npos);
  EXPECT_NE(message({{0, 0}, {4, INT64_MAX}, false, 0, 0}).find("does not lie inside"), std::string::npos);
  EXPECT_NE(message({{0, 0}, {4, 6}, true, 20, 5}).find("inside the part"), std::string::npos);
  EXPECT_NE(message({{0, 0}, {4, 6}, true, INT64_MAX, 5}).find("inside the part"), std::string::npos);
}

}  // namespace
}  // namespace plumbline::test
