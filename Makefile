# Shortcuts. Nothing here is needed to build or test: `go run ./cmd/keelson` and `go test ./...` are enough.

# Pinned versions of the tools that are run by the go command, also by .ci/run.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
# How long `make fuzz` runs each target.
FUZZTIME ?= 30s
# The folder that `make release` writes to.
DIST ?= dist

.PHONY: keelson cluster check test race lint vulnerabilities fuzz bench bench-compare e2e generate release browser console-test pictures

# What is built for a release: without debugging information, and without the pages of requests of
# golang.org/x/net/trace, which Keelson does not serve (docs/operations.md has what that saves).
keelson:
	go build -trimpath -ldflags '-s -w' -tags grpcnotrace -o keelson ./cmd/keelson

# A server with kube-controller-manager, kube-scheduler and kwok, until Ctrl-C: Deployments get pods, which run on nodes that
# kwok plays. The first time it builds the three from their Go modules, in about ten minutes on two cores. CLUSTER are
# flags of examples/cluster.
CLUSTER ?=
E2E_PROGRAMS := $(or $(PROGRAMS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/keelson-e2e)
cluster:
	$(MAKE) -C test/e2e kube-controller-manager kube-scheduler kwok
	go run ./examples/cluster -programs $(E2E_PROGRAMS) $(CLUSTER)

# What a small change needs, in at most five minutes: format, vet and the short tests of the packages that differ from BASE.
check:
	.ci/check

test:
	go test ./...

# The packages that have goroutines; the list is the one of .ci/run.
race:
	.ci/run race

lint:
	gofmt -l $$(git ls-files '*.go')
	go vet ./...
	go run $(STATICCHECK) ./...
	go test ./internal/lint

# Needs the database of vulnerabilities at vuln.go.dev.
vulnerabilities:
	go run $(GOVULNCHECK) ./cmd/...

# Each fuzz target for FUZZTIME, one after the other. Inputs that fail are written to testdata/fuzz beside the test; commit
# them with the fix. Some inputs that reach code which others do not are committed there, too; what is found further is in
# $(go env GOCACHE)/fuzz.
fuzz:
	@set -e; for file in $$(git grep -l '^func Fuzz' -- '*_test.go'); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file); \
		done; \
	done

bench:
	go run ./test/bench

# Measures the processor time of each operation of the working tree and of commit BASE, in turn, and fails if a row is
# more than 5 % dearer. It takes about twelve minutes; nothing else should run on the machine. ROWS selects rows.
BASE ?= origin/main
ROUNDS ?= 5
ROWS ?=
bench-compare:
	test/bench/compare.sh '$(BASE)' --rounds '$(ROUNDS)' --rows '$(ROWS)'

e2e:
	$(MAKE) -C test/e2e test

# Writes committed data anew. New OpenAPI documents need OPENAPI_DOCUMENTS, see internal/api/discovery/openapi/README.md.
generate:
	go generate ./...
	go test ./internal/lint -update

# The browser that test/console needs, from Debian. Other systems have it under the name chromium or google-chrome.
browser:
	apt-get install -y --no-install-recommends chromium

# The console in Chromium. `make pictures` also writes the screenshots of the documentation.
console-test:
	cd test/console && go test ./...
pictures:
	cd test/console && KEELSON_SCREENSHOTS=$(CURDIR)/docs/images/console go test -count 1 ./...

# From a commit with the tag of its version (docs/releasing.md); KEELSON_UNTAGGED=1 builds any state.
release:
	packaging/release.sh $(DIST)
