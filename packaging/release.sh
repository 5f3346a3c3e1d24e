#!/usr/bin/env bash
# Builds a release: packaging/release.sh DIR [OS/ARCH...]
#
# DIR gets, for each platform, keelson_VERSION_OS_ARCH.tar.gz with the static program, its manual pages, completions,
# unit and licence; a bill of materials of the program (CycloneDX); and SHA256SUMS. Two builds of one commit with one
# version of Go are equal, byte for byte, on any machine with GNU tar.
set -euo pipefail

out=$(mkdir -p "${1:?name the directory to write to}" && cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
platforms=("$@")
[ ${#platforms[@]} -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)

version=$(sed -n 's/^const Keelson = "\(.*\)"$/\1/p' internal/server/version/version.go)
# The time of everything in the archives is that of the commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { go build -ldflags '-s -w' -tags grpcnotrace -o "$1" ./cmd/keelson; }

# The program of this machine writes what is the same for all platforms.
build "$work/keelson"
go build -o "$work/sbom" ./internal/gen/sbom
"$work/keelson" man "$work/man"
mkdir "$work/completions"
for shell in bash zsh fish; do "$work/keelson" completion "$shell" >"$work/completions/keelson.$shell"; done

for platform in "${platforms[@]}"; do
	os=${platform%/*} arch=${platform#*/}
	name=keelson_${version}_${os}_${arch}
	mkdir "$work/$name"
	GOOS=$os GOARCH=$arch build "$work/$name/keelson"
	cp -r LICENSE README.md CHANGELOG.md packaging/keelson.service "$work/man" "$work/completions" "$work/$name/"
	tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s \
		--mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip --no-name --best >"$out/$name.tar.gz"
	"$work/sbom" "$work/$name/keelson" >"$out/$name.cdx.json"
	echo "$out/$name.tar.gz"
done
(cd "$out" && sha256sum keelson_"$version"_*.tar.gz keelson_"$version"_*.cdx.json >SHA256SUMS)
