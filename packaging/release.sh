#!/usr/bin/env bash
# Builds a release: packaging/release.sh DIR [OS/ARCH...]
#
# DIR gets, for each platform, an archive keelson_VERSION_OS_ARCH (.tar.gz, or .zip for Windows) with the static program,
# its manual pages, completions, unit and licence, and a bill of materials of the program (CycloneDX). For Linux there are
# Debian packages, and an image of all architectures as an OCI layout; keelson.rb is the Homebrew formula. SHA256SUMS has
# the checksums of all of them, and SHA256SUMS.minisig its signature, if KEELSON_SIGNING_KEY names the file of the secret
# key (with a password in KEELSON_SIGNING_KEY_PASSWORD).
#
# A release is built from a clean commit with the tag vX.Y.Z, where X.Y.Z is the constant in internal/server/version. With
# KEELSON_UNTAGGED=1 every commit and every working tree is built, and the version is that of git describe.
#
# Two builds of one commit with one version of Go are equal, byte for byte, on any machine.
set -euo pipefail

fail() { echo "release.sh: $*" >&2; exit 1; }

[ $# -gt 0 ] || fail "name the directory to write to: packaging/release.sh DIR [OS/ARCH...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
platforms=("$@")
[ ${#platforms[@]} -gt 0 ] || platforms=({linux,darwin,windows}/{amd64,arm64})
for platform in "${platforms[@]}"; do
	case $platform in
	linux/* | darwin/* | windows/*) ;;
	*) fail "$platform is not a platform of a release: OS/ARCH with linux, darwin or windows" ;;
	esac
done

number=$(sed -n 's/^const Keelson = "\(.*\)"$/\1/p' internal/server/version/version.go)
if [ "${KEELSON_UNTAGGED:-}" = 1 ]; then
	version=$(git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null) ||
		version="$number-0-g$(git describe --match '' --always --dirty)"
	version=${version#v}
else
	[ -z "$(git status --porcelain)" ] ||
		fail "the working tree has changes: commit or remove them (git status), or set KEELSON_UNTAGGED=1 for a build that is not a release"
	[ "$(git rev-parse --quiet --verify "refs/tags/v$number^{commit}")" = "$(git rev-parse HEAD)" ] ||
		fail "the commit has no tag v$number, which is the number in internal/server/version/version.go:" \
			"tag it (git tag v$number), or set KEELSON_UNTAGGED=1 for a build that is not a release"
	version=$number
fi

# The time of everything in the archives is that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
revision=$(git rev-parse HEAD)
# The program has the commit and its time in /version; that needs -buildvcs. What the caller has set would change the bytes.
export CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=true' GOWORK=off GOAMD64=v1 GOARM64=v8.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

build() { go build -ldflags '-s -w' -tags grpcnotrace -o "$1" ./cmd/keelson; }

GOFLAGS=-trimpath go build -C packaging/tools -o "$work/tools" .

programs=()
for platform in "${platforms[@]}"; do
	program=$work/programs/${platform/\//_}/keelson
	[ "${platform%/*}" != windows ] || program+=.exe
	GOOS=${platform%/*} GOARCH=${platform#*/} build "$program"
	programs+=("$program")
done

# The program of this machine writes the completions, which are the same for all platforms.
host=$work/programs/$(go env GOHOSTOS)_$(go env GOHOSTARCH)/keelson
[ -x "$host" ] || build "$host"
mkdir "$work/completions"
for shell in bash zsh fish powershell; do "$host" completion "$shell" >"$work/completions/keelson.$shell"; done
mv "$work/completions/keelson.powershell" "$work/completions/keelson.ps1"

files=() images=()
# made adds a file of the release, and says so.
made() { files+=("$1") && echo "$out/$1"; }
for i in "${!platforms[@]}"; do
	os=${platforms[i]%/*} arch=${platforms[i]#*/}
	name=keelson_${version}_${os}_${arch}
	mkdir "$work/$name"
	cp -r LICENSE README.md CHANGELOG.md "$work/completions" "$work/$name/"
	cp "${programs[i]}" "$work/$name/"
	archive=$name.tar.gz
	case $os in
	windows) archive=$name.zip ;;
	darwin) cp -r packaging/man "$work/$name/" ;;
	linux) cp -r packaging/man packaging/keelson.service "$work/$name/" ;;
	esac
	"$work/tools" archive "$work/$name" "$out/$archive"
	made "$archive"
	"$work/tools" sbom "${programs[i]}" >"$out/$name.cdx.json"
	made "$name.cdx.json"
	if [ "$os" = linux ]; then
		"$work/tools" deb "$work/$name" "$version" "$arch" "$out/keelson_${version}_$arch.deb"
		made "keelson_${version}_$arch.deb"
		images+=("$arch=${programs[i]}")
	fi
	rm -rf "${work:?}/$name"
done
if [ ${#images[@]} -gt 0 ]; then
	"$work/tools" image "$version" "$revision" "$out/keelson_${version}_image.tar" "${images[@]}"
	made "keelson_${version}_image.tar"
fi
if printf '%s\n' "${platforms[@]}" | grep -qv '^windows/'; then
	"$work/tools" formula "$version" "$out" >"$out/keelson.rb"
	made keelson.rb
fi
# Only the files of this build: others may be in the directory.
sum=(sha256sum)
command -v sha256sum >/dev/null || sum=(shasum -a 256) # macOS
(cd "$out" && rm -f SHA256SUMS.minisig && "${sum[@]}" "${files[@]}" >SHA256SUMS)
"$work/tools" sign "$out/SHA256SUMS"
