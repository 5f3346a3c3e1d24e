#!/bin/sh
# Usage: test/bench/compare.sh COMMIT [FLAG...]
# Builds the working tree and COMMIT, and runs bench --cost with both: first the working tree, then COMMIT.
set -eu
base=$1
shift
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/base" "$base"
build() { go build -trimpath -ldflags '-s -w' -tags grpcnotrace -o "$1" ./cmd/keelson; }
build "$dir/keelson"
(cd "$dir/base" && build "$dir/keelson-base")
serve='serve --data-dir {dir} --secure-port {port} --token-auth-file {tokens}'
go build -o "$dir/bench" ./test/bench
"$dir/bench" --cost --pods 5000 --label "working tree against $base" \
    --start "$dir/keelson $serve" --against "$dir/keelson-base $serve" "$@"
