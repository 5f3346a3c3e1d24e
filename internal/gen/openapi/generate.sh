#!/bin/sh
# Makes internal/api/discovery/openapi/builtin.bin and internal/object/mergeschema/builtin.bin anew.
# OPENAPI_DOCUMENTS is the directory of the documents of a server; without it, the documents stay as they are (main.go).
set -eu
cd "$(dirname "$0")"
definitions=$(mktemp)
trap 'rm -f "$definitions"' EXIT
(cd definitions && go generate && go run . >"$definitions")
cd ../../..
go run ./internal/gen/openapi -documents "${OPENAPI_DOCUMENTS:-}" -definitions "$definitions"
