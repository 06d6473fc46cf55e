// What `plumbline-engine version` tells besides its own version.
#include "cli/common/version.h"
#include "engine/train/libtorch.h"

namespace plumbline::cli {
namespace {

const RegisterVersionFact kLibTorch("libtorch", libtorch_version());
const RegisterVersionFact kBlas("blas", blas_name());

}  // namespace
}  // namespace plumbline::cli
