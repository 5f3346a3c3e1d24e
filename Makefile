# What is built for a release: without debugging information, and without the pages of
# requests of golang.org/x/net/trace, which Keelson does not serve (docs/operations.md has
# what that saves). Everything else needs the go command alone.
.PHONY: keelson
keelson:
	go build -trimpath -ldflags '-s -w' -tags grpcnotrace -o keelson ./cmd/keelson
