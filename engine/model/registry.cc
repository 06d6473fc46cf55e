#include <utility>

#include "engine/base/text.h"
#include "engine/model/builtin.h"
#include "engine/model/stage.h"

namespace plumbline {
namespace {

std::vector<ModelFamily>& families() {
  static std::vector<ModelFamily> all{detail::gpt_family(), detail::toy_family()};
  return all;
}

}  // namespace

const std::vector<ModelFamily>& model_families() { return families(); }

Result<const ModelFamily*> find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelFamily& family : families()) {
    if (family.name == name) return &family;
    names.push_back(family.name);
  }
  std::string message = "unknown model '" + name + "'";
  const std::string near = nearest(name, names);
  if (!near.empty()) message += "; did you mean '" + near + "'?";
  message += " Known:";
  for (const std::string& known : names) message += " " + known;
  return fail(ErrorCode::kConfig, std::move(message));
}

RegisterModel::RegisterModel(ModelFamily family) { families().push_back(std::move(family)); }

}  // namespace plumbline
