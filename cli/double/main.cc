// plumbline_double_server: plays the devices for the processes of a command (backends/cuda/double/server.h).
//
// Exits with the command's code; 1 and 2 also say that the server itself failed, or was called wrongly. What the
// doubles found goes to stderr, or to the file of --verdict, as a verdict in JSON.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "backends/cuda/double/control.h"

namespace {

struct Options {
  int devices = 8;
  std::string config, socket, verdict;
  std::vector<std::string> command;
};

// A folder of its own, which goes at the end.
struct Folder {
  std::string path;
  ~Folder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

int complain(const std::string& what) {
  fmt::print(stderr, "plumbline_double_server: {}\n", what);
  return 1;
}

int tell(const Options& options) {
  const std::string verdict = plumbline_double_verdict(1);
  if (options.verdict.empty()) {
    if (verdict.find("\"findings\":[{") != std::string::npos) fmt::print(stderr, "{}\n", verdict);
    return 0;
  }
  std::ofstream file(options.verdict);
  file << verdict << '\n';
  file.close();
  return file ? 0 : complain(fmt::format("{} cannot be written", options.verdict));
}

int run(Options options) {
  std::string config;
  if (!options.config.empty()) {
    std::ifstream file(options.config);
    config.assign(std::istreambuf_iterator<char>(file), {});
    if (!file) return complain(fmt::format("{} cannot be read", options.config));
  }
  Folder folder;
  if (options.socket.empty()) {
    const char* const base = std::getenv("TMPDIR");
    folder.path = std::string(base == nullptr ? "/tmp" : base) + "/plumbline-doubles.XXXXXX";
    if (::mkdtemp(folder.path.data()) == nullptr) return complain(fmt::format("no folder {}", folder.path));
    options.socket = folder.path + "/socket";
  }
  std::vector<const char*> command;
  for (const std::string& word : options.command) command.push_back(word.c_str());
  command.push_back(nullptr);
  int code = 0;
  if (const int failed = plumbline_double_serve(options.devices, config.c_str(), options.socket.c_str(),
                                                command.data(), &code);
      failed != 0) {
    complain(plumbline_double_error());
    return failed;
  }
  const int told = tell(options);
  return code != 0 ? code : told;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Plays CUDA devices and NCCL, simulated, for the processes of a command: what they load as CUDA's and "
      "NCCL's libraries calls this server.");
  app.add_option("--devices", options.devices, "How many devices there are")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--config", options.config,
                 "Configuration (TOML): [sim] gives NCCL's model, [time] the times")
      ->check(CLI::ExistingFile);
  app.add_option("--socket", options.socket, "Where to listen; without it in a new folder of TMPDIR");
  app.add_option("--verdict", options.verdict,
                 "File for what the doubles found, as JSON; without it, stderr");
  app.add_option(
      "command", options.command,
      "What to run, behind --; without one, the server ends when all processes that came have gone");
  app.positionals_at_end();
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
