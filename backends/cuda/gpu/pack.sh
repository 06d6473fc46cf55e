#!/usr/bin/env bash
# ./dev gpu-pack: one archive with what a machine with a GPU needs to build and run the GPU tests - our sources, the
# header-only libraries they use, zlib's header, and GoogleTest's sources. No binaries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
out=${1:-build/plumbline-gpu.tar.gz}
limit=$((30 * 1024 * 1024))
include=${PLUMBLINE_SYSTEM_INCLUDE:-/usr/include}
googletest=${PLUMBLINE_GOOGLETEST:-/usr/src/googletest}
for path in "$include/fmt" "$include/tl" "$include/toml++" "$include/nlohmann" "$include/CLI" "$include/xxhash.h" "$include/zlib.h" \
  "$googletest/googletest/src/gtest-all.cc" "$googletest/googlemock/src/gmock-all.cc"; do
  [[ -e $path ]] || { echo "gpu-pack: $path is missing; ./dev setup installs it (PLUMBLINE_SYSTEM_INCLUDE and" \
    "PLUMBLINE_GOOGLETEST name other folders)" >&2; exit 2; }
done

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/plumbline
mkdir -p "$root/third_party/include" "$root/third_party/googletest"
git ls-files -co --exclude-standard -- dev LICENSE engine sim backends/cuda tests/backends/cuda tests/sim \
  tests/engine/program tests/engine/train tests/support tests/data |
  while read -r file; do [[ -f $file ]] && printf '%s\0' "$file"; done |
  xargs -0 cp --parents -t "$root"
cp -r -L "$include/fmt" "$include/tl" "$include/toml++" "$include/nlohmann" "$include/CLI" "$root/third_party/include/"
cp -L "$include"/xxhash.h "$include/zlib.h" "$root/third_party/include/"
# What zlib.h includes lies elsewhere on some systems, and other libraries have a file of that name too.
zconf=$(echo '#include <zlib.h>' | "${CXX:-g++}" -M -x c++ - | tr ' ' '\n' | grep '/zconf\.h$' | head -n 1)
cp -L "$zconf" "$root/third_party/include/"
if compgen -G "$include/xxh3.h" >/dev/null; then cp -L "$include/xxh3.h" "$root/third_party/include/"; fi
for part in googletest googlemock; do
  mkdir -p "$root/third_party/googletest/$part"
  cp -r "$googletest/$part/include" "$googletest/$part/src" "$root/third_party/googletest/$part/"
done
version=$(git describe --always --dirty 2>/dev/null || echo unknown)
echo "$version" >"$root/REVISION"
mkdir -p "$(dirname "$out")"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$stage" -czf "$out" plumbline
bytes=$(stat -c %s "$out")
files=$(tar -tzf "$out" | grep -c -v '/$')
echo "gpu-pack: $out, $files files, $bytes bytes, revision $version"
((bytes <= limit)) || { echo "gpu-pack: the limit is $limit bytes" >&2; exit 1; }
