#!/usr/bin/env bash
# The steps of the action: install.sh find, and, after the cache was restored, install.sh install.
#
# The environment has, besides the variables of GitHub:
#   VERSION            a released version (v1.2.3 or 1.2.3), latest, or whatever else go install takes: a branch or a commit
#   PUBLIC_KEY         the public key of minisign; without it, no signature is checked
#   KEELSON_RELEASES   where releases are, https://github.com/keelson-dev/keelson/releases by default
# find writes to the outputs: version, the number of a release, or nothing if Keelson has to be built; archive, its name; and
# directory, where its files are. install reads them from RELEASE, ARCHIVE and DIRECTORY.
set -euo pipefail

releases=${KEELSON_RELEASES:-https://github.com/keelson-dev/keelson/releases}
fail() { echo "::error::$*" >&2; exit 1; }
output() { echo "$1" >>"${GITHUB_OUTPUT:?}"; }

# download writes a URL to a file. It returns 1 if the server answers that there is no such file; any other failure ends
# the script, because the release may be there.
download() {
	local status
	rm -f "$2"
	status=$(curl --silent --show-error --location --retry 3 --output "$2" --write-out '%{http_code}' "$1") || fail "cannot download $1"
	case $status in
	200) ;;
	404) rm -f "$2"; return 1 ;;
	*) rm -f "$2"; fail "cannot download $1: status $status" ;;
	esac
}

# find_release finds out which release is meant.
find_release() {
	local number='' os='' arch='' at
	case $VERSION in
	latest) # redirects to the newest release, and to the list of releases if there is none
		at=$(curl --silent --show-error --retry 3 --output /dev/null --write-out '%{redirect_url}' "$releases/latest") ||
			fail "cannot find the newest release"
		[[ ! $at =~ /tag/v([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?)$ ]] || number=${BASH_REMATCH[1]}
		;;
	*) [[ ! $VERSION =~ ^v?([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?)$ ]] || number=${BASH_REMATCH[1]} ;;
	esac
	case ${RUNNER_OS:?} in Linux) os=linux ;; macOS) os=darwin ;; Windows) os=windows ;; esac
	case ${RUNNER_ARCH:?} in X64) arch=amd64 ;; ARM64) arch=arm64 ;; esac
	[ -n "$os" ] && [ -n "$arch" ] || number=
	local archive=keelson_${number}_${os}_$arch.tar.gz
	[ "$os" != windows ] || archive=${archive%.tar.gz}.zip
	output "version=$number"
	output "archive=$archive"
	output "directory=${RUNNER_TEMP:?}/keelson-release"
}

# get_release downloads what is not in the cache. It returns 1 if there is no such release.
get_release() {
	local from=$releases/download/v$RELEASE
	mkdir -p "$DIRECTORY"
	local name
	for name in SHA256SUMS "$ARCHIVE"; do
		[ -s "$DIRECTORY/$name" ] || download "$from/$name" "$DIRECTORY/$name" || { rm -rf "$DIRECTORY"; return 1; }
	done
	if [ -n "${PUBLIC_KEY:-}" ] && [ ! -s "$DIRECTORY/SHA256SUMS.minisig" ]; then
		download "$from/SHA256SUMS.minisig" "$DIRECTORY/SHA256SUMS.minisig" || fail "release $RELEASE is not signed, but a public key is given"
	fi
}

# check_release checks the files of a release, also those of the cache. It removes files that are wrong.
check_release() {
	local sum=(sha256sum) minisign=(minisign) wanted found
	if [ -n "${PUBLIC_KEY:-}" ]; then
		command -v minisign >/dev/null || minisign=(go run aead.dev/minisign/cmd/minisign@v0.3.0)
		"${minisign[@]}" -V -P "$PUBLIC_KEY" -m "$DIRECTORY/SHA256SUMS" >&2 ||
			{ rm -rf "$DIRECTORY"; fail "the signature of release $RELEASE is not valid"; }
	fi
	command -v sha256sum >/dev/null || sum=(shasum -a 256) # macOS
	wanted=$(awk -v name="$ARCHIVE" '$2 == name { print $1 }' "$DIRECTORY/SHA256SUMS")
	found=$("${sum[@]}" <"$DIRECTORY/$ARCHIVE" | awk '{ print $1 }')
	[ "$wanted" = "$found" ] ||
		{ rm -rf "$DIRECTORY"; fail "$ARCHIVE has the checksum $found, but SHA256SUMS says ${wanted:-nothing about it}"; }
}

install() {
	local keelson assets unpacked bin
	if [ -n "$RELEASE" ] && get_release; then
		check_release
		unpacked=$(mktemp -d "${RUNNER_TEMP:?}/keelson-XXXXXX")
		case $ARCHIVE in
		*.zip) unzip -q "$DIRECTORY/$ARCHIVE" -d "$unpacked" ;;
		*) tar -xzf "$DIRECTORY/$ARCHIVE" -C "$unpacked" ;;
		esac
		keelson=("$unpacked"/*/keelson*) # keelson or keelson.exe comes before keelson.service
		echo "Keelson is that of $ARCHIVE"
	else
		[ -z "${PUBLIC_KEY:-}" ] ||
			fail "there is no archive of version $VERSION for ${RUNNER_OS:?} on ${RUNNER_ARCH:?}, and only archives are signed, but a public key is given"
		echo "There is no archive of version $VERSION for ${RUNNER_OS:?} on ${RUNNER_ARCH:?}: Keelson is built from source"
		command -v go >/dev/null || fail "version $VERSION has to be built, and there is no go on the PATH: use actions/setup-go before"
		[[ ! $VERSION =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || VERSION=v$VERSION
		CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' -tags grpcnotrace "github.com/keelson-dev/keelson/cmd/keelson@$VERSION"
		bin=$(go env GOBIN)
		keelson=("${bin:-$(go env GOPATH)/bin}/keelson")
	fi
	assets=$("${keelson[0]}" envtest install "${RUNNER_TEMP:?}/keelson-envtest" --print path)
	echo "KUBEBUILDER_ASSETS=$assets" >>"${GITHUB_ENV:?}"
	output "assets=$assets"
}

case ${1:-} in
find) find_release ;;
install) install ;;
*) fail "install.sh find, or install.sh install" ;;
esac
