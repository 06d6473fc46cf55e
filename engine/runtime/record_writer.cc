#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/runtime/record_file.h"

namespace plumbline {

struct RecordWriter::Impl {
  std::string path;
  std::FILE* file = nullptr;
  std::string header;  // as written
  record_file::Rows written;

  ~Impl() {
    if (file != nullptr) std::fclose(file);
  }
  tl::unexpected<Error> io_error(const char* doing) const {
    return fail(ErrorCode::kIo,
                fmt::format("cannot {} run record '{}': {}", doing, path, std::strerror(errno)),
                Where{path, 0, 0});
  }
  Status write(const std::string& bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fflush(file) != 0)
      return io_error("write");
    return {};
  }
  Status usable(const RunRecord& record) const {
    if (file == nullptr)
      return fail(ErrorCode::kState, fmt::format("run record '{}' is already finished", path));
    if (record_file::header_json(record) == header) return {};
    return fail(ErrorCode::kState,
                fmt::format("the header of run record '{}' changed after the file was begun", path));
  }
};

Result<RecordWriter> RecordWriter::create(const std::string& path, const RunRecord& header) {
  RecordWriter writer;
  writer.impl_ = new Impl;
  writer.impl_->path = path;
  writer.impl_->header = record_file::header_json(header);
  writer.impl_->file = std::fopen(path.c_str(), "wb");
  if (writer.impl_->file == nullptr) return writer.impl_->io_error("create");
  std::string bytes(record_file::kMagic);
  append_block(bytes, record_file::BlockKind::kHeader, writer.impl_->header);
  PL_TRY(writer.impl_->write(bytes));
  return writer;
}

RecordWriter::RecordWriter(RecordWriter&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}

RecordWriter& RecordWriter::operator=(RecordWriter&& other) noexcept {
  if (this != &other) delete std::exchange(impl_, std::exchange(other.impl_, nullptr));
  return *this;
}

RecordWriter::~RecordWriter() { delete impl_; }

Status RecordWriter::append(const RunRecord& record) {
  PL_TRY(impl_->usable(record));
  const record_file::Rows all = record_file::rows_of(record);
  std::string bytes;
  record_file::Rows from = impl_->written;
  while (from != all) {
    const record_file::Rows to = record_file::end_of_step(record, from);
    append_block(bytes, record_file::BlockKind::kStep, record_file::step_payload(record, from, to));
    from = to;
  }
  PL_TRY(impl_->write(bytes));
  impl_->written = all;
  return {};
}

Status RecordWriter::finish(const RunRecord& record) {
  PL_TRY(append(record));
  std::string bytes;
  append_block(bytes, record_file::BlockKind::kEnd, record_file::end_payload(record));
  PL_TRY(impl_->write(bytes));
  if (std::fclose(std::exchange(impl_->file, nullptr)) != 0) return impl_->io_error("close");
  return {};
}

}  // namespace plumbline
