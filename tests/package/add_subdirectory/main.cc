#include <cstdio>

#include "engine/base/version.h"

int main() {
  std::printf("%.*s\n", static_cast<int>(plumbline::version().size()), plumbline::version().data());
}
