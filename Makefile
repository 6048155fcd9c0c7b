# understudy. `make help` lists the targets; `make dev` and `make test` are the two that everybody needs.
# make module PATH=… names the module, where commands still need the search path: that of make's own environment.
ifeq ($(origin PATH),command line)
MODULE := $(PATH)
override PATH := $(shell { tr '\0' '\n' </proc/$$PPID/environ || printenv; } 2>/dev/null | sed -n 's/^PATH=//p')
endif

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# What is compiled does not depend on the folder: all clones share Go's cache of builds and of tests that passed.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
PORT ?= 2024
FUZZTIME ?= 1m
PYTHON ?= python3
# Shared by clones: pinned Python and JavaScript packages of the conformance suite, and linters.
export UNDERSTUDY_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/understudy

GOLANGCI := 2.15.0
GORELEASER := 2.16.0
HELM := 4.3.1
SYFT := 1.57.1

# tool(name,version,package) sets $tool to a program that is built once.
tool = tool="$$UNDERSTUDY_CACHE/bin/$(1)-$(2)"; [ -x "$$tool" ] || { echo "building $(1) $(2), once; a minute or two" >&2; \
	{ GOBIN="$$tool.d" $(GO) install $(3)@v$(2) 2>&1 | { grep -v '^go: downloading' >&2 || true; }; } && mv "$$tool.d/$(1)" "$$tool" && rmdir "$$tool.d"; }

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: free-port
free-port:
	@if (exec 3<>/dev/tcp/127.0.0.1/$(PORT)) 2>/dev/null; then echo "port $(PORT) is taken: make dev PORT=0 takes a free one" >&2; exit 1; fi

.PHONY: dev
dev: free-port build ## serve the example graphs (PORT=0: on a free port); makes .venv when there is none and a Python to make it with
	@if command -v $(PYTHON) >/dev/null; then $(MAKE) .venv/.complete; else echo "there is no $(PYTHON): graphs in Python are left out, agents are served"; fi
	@exec bin/understudy dev --port $(PORT)

# Only what graphs need; versions are those of the conformance suite.
.venv/.complete: conformance/requirements.txt
	@echo "making .venv with langgraph; ten seconds to two minutes"
	@$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint conformance/requirements.txt langgraph
	@touch $@

.PHONY: build
build: ## build bin/understudy, static
	@[ -x bin/understudy ] || echo "building bin/understudy; the first time takes a minute or two"
	@CGO_ENABLED=0 $(GO) build -buildvcs=auto -o bin/understudy ./cmd/understudy

.PHONY: ui
ui: ## build the pages of the studio from ui/ into studio/dist, which is committed; needs Node.js
	@conformance/setup ui
	@cd ui && npm run --silent build

.PHONY: check-ui
check-ui: ## the tests of ui/, the sizes of its pages, and that studio/dist is what its sources make
	@conformance/setup ui
	@cd ui && npm test --silent && node check.mjs

.PHONY: docs
docs: ## write the documentation as a web site that needs no server to bin/docs; every server has it at /docs
	@$(GO) run ./docs/build -out bin/docs

.PHONY: test
test: ## install what the tests need, then run everything that has to pass before a change lands
	@.ci/phases setup check check-ui 'tests: race conformance-javascript plain conformance-deployments conformance-python conformance-servers conformance-proxy-short conformance-cluster-short conformance-go-short conformance-deerflow killloop-short chaos-short' measured

.PHONY: test-all
test-all: ## everything, repeated: every suite on every backend, fuzzing, long kill loop and chaos; about two hours
	@UNDERSTUDY_TEST_ALL=1 .ci/phases setup check cross check-ui race plain measured growth isolation fuzz fuzz-twin conformance conformance-deerflow conformance-postgres conformance-streams conformance-oldest killloop chaos

.PHONY: setup
setup: ## install what the tests need: Debian packages, Python and JavaScript packages
	@conformance/setup system
	@conformance/setup >/dev/null

.PHONY: check
check: ## formatting, go.mod, vet, golangci-lint, types on other systems, a build without the studio
	@echo "gofmt, go mod tidy, go vet"
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || { echo "run gofmt -w on:" $$unformatted >&2; exit 1; }
	@$(GO) mod tidy -diff
	@# Without cgo, as the program is built: vet, lint, its builds and plain tests share what the compiler makes.
	@CGO_ENABLED=0 $(GO) vet ./...
	@echo golangci-lint
	@$(MAKE) lint
	@echo "types for $(CROSS)"
	@$(GO) run ./internal/crosscheck $(CROSS) ./...
	@echo "a build without the studio"
	@CGO_ENABLED=0 $(GO) vet -tags nostudio ./studio ./cmd/understudy
	@CGO_ENABLED=0 $(GO) test -tags nostudio -vet=off -run 'Studio$$' ./server

# Where releases are for, and this machine is not.
comma := ,
CROSS := windows/amd64,darwin/arm64,linux/arm64

.PHONY: cross
cross: ## build everything for other systems, and the tests for one of them; check looks at their types only, which is minutes faster
	@for target in $(subst $(comma), ,$(CROSS)); do GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) build ./... || { echo "it does not build for $$target" >&2; exit 1; }; done
	@GOOS=windows CGO_ENABLED=0 $(GO) vet ./... || { echo "its tests do not build for windows" >&2; exit 1; }

.PHONY: race
race: ## Go tests of packages in which goroutines start, with the race detector; fuzz targets run their seeds
	@$(find-helm); UNDERSTUDY_TEST_HELM="$$tool" .ci/gotest raced

.PHONY: plain
plain: ## Go tests of the other packages
	@$(find-helm); UNDERSTUDY_TEST_HELM="$$tool" .ci/gotest plain

.PHONY: measured
measured: ## Go tests that measure memory and growth, and variants of storages, without the race detector
	@.ci/gotest measured

find-helm = tool=$$(command -v helm) || { $(call tool,helm,$(HELM),helm.sh/helm/v4/cmd/helm); }

.PHONY: helm
helm: ## print where helm is, for the tests of deploy/helm; built once if it is not installed
	@$(find-helm); echo "$$tool"

.PHONY: growth
growth: ## send each route requests that grow, in all their places, and check that none takes more than linear time
	@GROWTH=all $(GO) test -vet=off -count=1 -timeout 60m -v -run '^TestNoRouteIsQuadratic$$' ./internal/app

.PHONY: isolation
isolation: ## random requests of random users for ISOLATION (10m), natively and through Python handlers, and check that nobody reaches what belongs to others
	@UNDERSTUDY_ISOLATION_TIME=$(or $(ISOLATION),10m) UNDERSTUDY_TEST_PYTHON=$$(conformance/setup python) \
		$(GO) test -vet=off -count=1 -timeout 60m -parallel 4 -v -run '^TestIsolationOfAnyRequest$$' ./internal/app

.PHONY: lint
lint: ## golangci-lint, built once if it is not installed
	@tool=$$(command -v golangci-lint) || { $(call tool,golangci-lint,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint); }; \
	CGO_ENABLED=0 "$$tool" run --allow-parallel-runners ./...

# go test sometimes calls the end of -fuzztime itself a failure, with these words and no failing input (golang/go#75804; mended in Go 1.27).
CLOCK := { grep -q 'context deadline exceeded' "$$out" && ! grep -qE 'Failing input|panic' "$$out"; }

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (1m)
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	for file in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | sort); do \
		for target in $$(grep -oE '^func Fuzz[A-Za-z0-9_]+' $$file | cut -c6-); do \
			echo "fuzz $$(dirname $$file) $$target $(FUZZTIME)"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -timeout 0 ./$$(dirname $$file) >"$$out" 2>&1 || $(CLOCK) || { cat "$$out"; exit 1; }; \
			tail -n 1 "$$out"; \
		done; \
	done

.PHONY: fuzz-twin
fuzz-twin: ## compare GRAPHS (500) random graphs, from SEED (1) on, in LangGraph and in graph/pregel
	@UNDERSTUDY_TEST_PYTHON=$$(conformance/setup python) TWIN_RANDOM=$(or $(GRAPHS),500) TWIN_SEED=$(or $(SEED),1) \
		$(GO) test -count=1 -timeout 60m -v -run '^TestRandom$$' ./graph/pregel/twin

.PHONY: conformance
conformance: build ## the conformance suite, Python, JavaScript and a browser: one server, two on one database, the proxy in front of LangGraph Server, graphs in Go
	@# They mostly wait, so two go at a time; each is printed when it has ended.
	@$(MAKE) -j2 --output-sync=target conformance-server conformance-proxy conformance-cluster conformance-go

# What each other way of serving can break on its own.
.PHONY: conformance-proxy-short conformance-cluster-short conformance-go-short
conformance-proxy-short: build
	@conformance/run --proxy --short
conformance-cluster-short: build bin/roundrobin
	@conformance/run --cluster --short
conformance-go-short: bin/twins
	@conformance/run --go --short

.PHONY: conformance-postgres
conformance-postgres: build
	@conformance/run --postgres
	@conformance/run --postgres --deployments
	@conformance/run --postgres --deerflow

# Event streaming, A2A and MCP, where the targets above do not show them: Go graphs, declared agents and remote graphs on Postgres and on two servers, and the
# proxy in front of this server.
.PHONY: conformance-streams
conformance-streams: build bin/twins bin/roundrobin
	@conformance/run --streams --gateway
	@conformance/run --streams --go --postgres
	@conformance/run --streams --go --cluster
	@conformance/run --remote --postgres
	@conformance/run --remote --cluster

.PHONY: conformance-deerflow
conformance-deerflow: build
	@conformance/run --deerflow
	@conformance/deerflow/ui if-built

.PHONY: deerflow-ui
deerflow-ui: build bin/roundrobin ## visit DeerFlow's own web UI in Chromium, on one server and on two; builds it the first time (minutes)
	@conformance/deerflow/ui
	@python3 conformance/databases.py conformance/deerflow/ui

# One server, in the parts that run side by side before a landing.
.PHONY: conformance-server conformance-python conformance-servers conformance-javascript conformance-deployments
conformance-server: build
	@conformance/run
	@conformance/run --deployments
conformance-python: build
	@conformance/run --part python
conformance-servers: build
	@conformance/run --part servers
conformance-javascript: build
	@# One after the other: a browser keeps a core busy, and pages have deadlines.
	@conformance/run --part javascript
	@conformance/run --part studio
conformance-deployments: build
	@conformance/run --deployments

.PHONY: conformance-cluster
conformance-cluster: build bin/roundrobin
	@conformance/run --cluster
	@conformance/run --cluster --deployments
	@conformance/run --cluster --deerflow

.PHONY: bin/roundrobin
bin/roundrobin:
	@CGO_ENABLED=0 $(GO) build -o $@ ./conformance/roundrobin

.PHONY: conformance-oldest
conformance-oldest: build
	@conformance/run --oldest

.PHONY: conformance-go
conformance-go: bin/twins
	@conformance/run --go
	@conformance/run --go --deployments

# Go twins of the graphs in conformance/graphs.
.PHONY: bin/twins
bin/twins:
	@CGO_ENABLED=0 $(GO) build -o $@ ./conformance/go

.PHONY: conformance-proxy
conformance-proxy: build
	@conformance/run --proxy

.PHONY: killloop
killloop: build ## kill server and workers under load for SECONDS (600), and check that nothing is lost
	@bench/killloop --seconds $(or $(SECONDS),600)

.PHONY: chaos
chaos: build ## three servers on Postgres and Redis for CHAOS_SECONDS (600), while all of that fails, and check that nothing is lost
	@bench/chaos --seconds $(or $(CHAOS_SECONDS),600)

# For a landing twenty seconds of each.
.PHONY: killloop-short chaos-short
killloop-short: build
	@bench/killloop --seconds 20
chaos-short: build
	@bench/chaos --seconds 20

.PHONY: golden
golden: ## record conformance/wire again from the real LangGraph Server; review the diff like code
	@conformance/run --record
	@git diff --stat -- conformance/wire

.PHONY: bench
bench: build ## this server beside LangGraph Server, about seventeen minutes on an idle machine; writes docs/performance.md
	@bench/report

.PHONY: bench-cluster
bench-cluster: build ## this server on Postgres and Redis beside Aegra and LangGraph Server, about twelve minutes on an idle machine; writes docs/performance.md
	@bench/cluster

.PHONY: bench-go
bench-go: ## Go benchmarks of single parts
	@$(GO) test -run '^$$' -bench . -benchmem ./...

# GOOS and GOARCH choose the system, VERSION the version (v1.2.3), DIST the folder.
DIST ?= dist
VERSION ?= $(shell git describe --tags 2>/dev/null)

.PHONY: wheel
wheel: ## a Python wheel with the program inside, for `pip install`; GOOS and GOARCH choose another system
	@echo "building a wheel in $(DIST)/; the first time takes a minute or two"; \
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	CGO_ENABLED=0 $(GO) build -buildvcs=auto -ldflags "-s -w -X main.release=$(VERSION)" -o "$$dir/understudy" ./cmd/understudy; \
	$(PYTHON) deploy/wheel/build "$$dir/understudy" "$$($(GO) env GOOS)" "$$($(GO) env GOARCH)" "$(or $(VERSION),$(shell git rev-parse --short HEAD))" "$(DIST)" >"$$dir/wheel"; \
	wheel=$$(cat "$$dir/wheel"); echo "$$wheel"; echo "install it into the environment of your graphs: .venv/bin/python -m pip install $$wheel"

# Images need docker buildx: without it they are left out here. The owner is that of the module's path.
# In a repository without a remote GoReleaser finds no commit either, and fails after all builds, at the archive of the source.
.PHONY: release-snapshot
release-snapshot: ## what a release consists of, for all systems, in dist/: archives, packages, wheels, Homebrew cask, checksums
	@command -v syft >/dev/null || { $(call tool,syft,$(SYFT),github.com/anchore/syft/cmd/syft); \
		found=$$(mktemp -d); trap 'rm -rf "$$found"' EXIT; ln -s "$$tool" "$$found/syft"; export PATH="$$found:$$PATH"; }; \
	$(call tool,goreleaser,$(GORELEASER),github.com/goreleaser/goreleaser/v2); \
	skip=publish; docker buildx ls >/dev/null 2>&1 || skip+=,docker; echo "without $$skip"; \
	OWNER=$$($(GO) list -m | cut -d/ -f2); export OWNER; \
	git ls-remote --get-url >/dev/null 2>&1 || export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0="https://github.com/$$OWNER/understudy"; \
	"$$tool" check --quiet; "$$tool" release --snapshot --clean --skip="$$skip"

# go.mod holds the path; imports, templates, the documentation and the linter's settings repeat it.
.PHONY: module
module: ## PATH=github.com/you/understudy: give the module another path, wherever it is written
	@[ -n "$(MODULE)" ] || { echo "make module PATH=github.com/you/understudy" >&2; exit 2; }
	@export OLD=$$($(GO) list -m) NEW='$(MODULE)'; [ "$$OLD" != "$$NEW" ] || { echo "the module is $$NEW already"; exit 0; }; \
	$(GO) mod edit -module "$$NEW"; \
	changed=$$(git ls-files -zco --exclude-standard -- '*.go' '*.tmpl' '*.md' '*/go.mod' .golangci.yml | xargs -0 perl -pi -e \
		's{^(\s*(?:import )?(?:[\w.]+ )?")\Q$$ENV{OLD}\E((?:/[^"]*)?"\s*)$$}{$$1$$ENV{NEW}$$2} and $$changed = 1; s{^(module |\s+module-path: |.*prefix\(|The module is `)\Q$$ENV{OLD}\E(?=[/`)\s])}{$$1$$ENV{NEW}} and $$changed = 1; print STDOUT "$$ARGV\n" if $$changed && !$$seen{$$ARGV}++; $$changed = 0'); \
	gofmt -w $$(git ls-files -co --exclude-standard '*.go'); \
	echo "the module was $$OLD and is $$NEW: changed go.mod and $$(echo "$$changed" | grep -c '\.go$$') Go files, and"; \
	echo "$$changed" | grep -v '\.go$$' | sed 's/^/  /'; \
	echo "next: go build ./... && git diff, then commit"

.PHONY: clean
clean: ## remove what was built here (the shared cache stays)
	@rm -rf bin dist .venv .understudy conformance/js/node_modules conformance/browser/node_modules ui/node_modules
	@find . -name __pycache__ -prune -exec rm -rf {} +
