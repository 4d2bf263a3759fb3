# Every target says what it does: make help.

GO         ?= go
FUZZTIME   ?= 200000x
COSTTIME   ?= 3s
SOAKTIME   ?= 10m
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck

# The modules below this one.
MODULES = $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

# Of these, make test tests the examples, and what needs no more than the root.
TESTED = examples/jwks examples/production test

# LONG is "-tags long" in test-all. With that tag, tests with many random calls make more of them, and those are built
# that repeat, measure or wait. See internal/test/testsize.
LONG   =
# With the race detector, each program would wait for a second before it exits. Parallel tests mostly wait. make lint runs
# go vet.
GOTEST = RATELIMIT_REQUIRE_REDIS=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -vet=off -shuffle=on -parallel 4 -timeout 30m $(LONG)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: ## Run the quickstart on an embedded Redis.
	$(GO) run ./examples/quickstart

.PHONY: test
test: needs ## Run the tests, with the race detector, on real Redis servers.
	@$(MAKE) --no-print-directory -j2 test-packages test-modules

.PHONY: test-all
test-all: needs needs-conformance ## Run all tests of all modules at full length, also what repeats, measures and waits.
	@$(MAKE) --no-print-directory -j2 test-packages test-modules LONG='-tags long'
	@# By themselves, because they measure.
	@$(MAKE) --no-print-directory test-measures LONG='-tags long'
	@set -e; for module in $(filter-out $(TESTED) tools,$(MODULES)); do echo "cd $$module && go test ./..."; (cd $$module && $(GOTEST) -tags long ./...); done
	@$(MAKE) --no-print-directory race

.PHONY: test-packages test-modules test-measures
test-packages: # that of the longest tests first
	$(GOTEST) -p $(if $(LONG),2,3) ./store/redisstore $$($(GO) list ./... $(if $(LONG),| grep -v /outbound$$))
test-modules:
	@set -e; for module in $(TESTED); do echo "cd $$module && go test ./..."; (cd $$module && $(GOTEST) $$($(GO) list ./... | grep -v /outages$$)); done
test-measures:
	$(GOTEST) -p 1 ./outbound
	cd test && $(GOTEST) ./outages

.PHONY: test-noserver
test-noserver: ## Run the tests that need no Redis server, on any system.
	CI= RATELIMIT_REQUIRE_REDIS= RATELIMIT_REDIS_SERVER=none $(GO) test ./...

.PHONY: race
race: needs ## Run the tests of what runs concurrently five times over.
	$(GOTEST) -count=5 -run 'Contract|Table|MaxKeys|Handler|Stacked|Went' . ./store/...
	cd test && $(GOTEST) -count=5 ./decorators ./overrides

.PHONY: fuzz
fuzz: ## Run each fuzz target of all modules for FUZZTIME, a time or a number of inputs (default 200000x).
	@set -e; for folder in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		cd $(CURDIR)/$$folder; \
		targets=$$($(GO) test -list '^Fuzz'); \
		for target in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "$$folder $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x; \
		done; \
	done

.PHONY: bench
bench: needs ## Measure against other libraries, side by side, and write docs/benchmarks.md, its chart and its raw rows.
	cd test/bench && $(GO) run . -raw ../../docs/benchmarks.txt -markdown ../../docs/benchmarks.md -svg ../../docs/benchmarks.svg

# Each adapter has a BenchmarkCost that reports adapter-adds-ns and middleware-adds-ns. Those of metrics report other
# figures in -adds-ns.
.PHONY: cost
cost: ## Measure what each adapter adds to a request, beside the middleware of net/http, for COSTTIME (default 3s).
	@printf '%-44s %14s %14s %14s\n' 'ns a request' 'adapter adds' 'net/http adds' 'difference'
	@failed=0; for module in $(filter contrib/%,$(MODULES)); do \
		measured=$$(cd $$module && $(GO) test -run '^$$' -bench '^BenchmarkCost$$' -benchtime $(COSTTIME) .) || failed=1; \
		echo "$$measured" | awk -v module=$$module ' \
			/^BenchmarkCost/ { \
				sub(/^BenchmarkCost/, "", $$1); sub(/-[0-9]+$$/, "", $$1); \
				for (i = 3; i < NF; i += 2) ns[$$(i+1)] = $$i; \
				if (!("adapter-adds-ns" in ns)) { \
					for (unit in ns) if (unit ~ /-adds-ns$$/) printf "%-44s %14.0f\n", module " " unit, ns[unit]; \
					next; \
				} \
				ours = ns["adapter-adds-ns"]; theirs = ns["middleware-adds-ns"]; \
				printf "%-44s %14.0f %14.0f %14.0f\n", module $$1, ours, theirs, ours - theirs; \
			} \
			/^--- FAIL|build failed|^ .*\.go:/ { print module ": " $$0 }'; \
	done; exit $$failed

.PHONY: growth
growth: needs ## Measure decisions as keys, policies, replicas and masters grow, and write docs/growth.md.
	cd test/bench && $(GO) run . -growth -rounds 3 -time 1s -markdown ../../docs/growth.md

.PHONY: outages
outages: needs ## Show what requests see of a Redis in trouble, and write docs/outages.md.
	cd test && RATELIMIT_REQUIRE_REDIS=1 RATELIMIT_OUTAGES=$(CURDIR)/docs/outages.md $(GO) test -tags long -count=1 -skip Soak ./outages

.PHONY: lint
lint: ## Check formatting, go vet and staticcheck, also for Windows with 32 bits.
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./... && $(GO) vet -tags long ./...
	$(STATICCHECK) -tags long ./...
	@# Another system, and 32 bits.
	GOOS=windows GOARCH=386 $(GO) vet ./...
	@if grep -rnE '^//go:build .*!long|testing\.Short\(' --include='*_test.go' .; then \
		echo "make test-all would not run these tests: use internal/test/testsize, or the tag long"; exit 1; \
	fi
	@set -e; for module in $(MODULES); do \
		(cd $$module && $(GO) vet -tags long ./... && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck -tags long ./...); \
	done

.PHONY: consumer
consumer: needs ## Release a copy of the last commit, and use it as other programs do: get, build, vet and run.
	cd tools && $(GO) test -tags long -count=1 -timeout 30m -v ./...

.PHONY: api
api: ## Compare the exported API of all modules with the last release.
	@$(GO) run -C tools ./api

.PHONY: release
release: ## Make the commits and tags of release VERSION, such as v1.2.3. Pushes nothing.
	@$(GO) run -C tools ./release '$(VERSION)'

.PHONY: soak
soak: needs ## Compare the stores with exact arithmetic, and go through long outages, for SOAKTIME (default 10m).
	RATELIMIT_REQUIRE_REDIS=1 RATELIMIT_SOAK=$(SOAKTIME) $(GO) test -tags long -race -timeout 0 -run Soak -v ./store/...
	cd test && RATELIMIT_REQUIRE_REDIS=1 RATELIMIT_SOAK=$(SOAKTIME) $(GO) test -tags long -race -timeout 0 -run Soak -v ./outages

# The tests start Redis servers and a Lua interpreter themselves, and follow the README with curl; here it is only
# seen to that they are there. RATELIMIT_REDIS_SERVER names another server than redis-server.
.PHONY: needs
needs:
	@for program in $${RATELIMIT_REDIS_SERVER:-redis-server} lua5.4 curl; do \
		if command -v $$program >/dev/null; then continue; fi; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$program >/dev/null; \
		else \
			echo "The tests need $$program: install it first (Debian: sudo apt-get install redis-server lua5.4 curl; macOS: brew install redis lua@5.4 curl)." >&2; exit 1; \
		fi; \
	done

# A browser, and promtool, which is in Debian's package prometheus: that one is unpacked and not installed, because
# installing it starts a server. Tests of the module test/conformance that need a program are skipped without it, except where
# CI is true.
.PHONY: needs-conformance
needs-conformance:
	@apt() { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; }; \
	if ! command -v chromium >/dev/null && apt; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	fi; \
	if ! command -v promtool >/dev/null && apt; then \
		folder=$$(mktemp -d) && chmod 755 $$folder && cd $$folder && apt-get update -qq && apt-get -o APT::Sandbox::User=root download -qq prometheus && \
		dpkg -x prometheus_*.deb . && install usr/bin/promtool /usr/local/bin/; \
		rm -rf $$folder; \
	fi; \
	for program in chromium promtool; do \
		command -v $$program >/dev/null && continue; \
		echo "The tests of the module test/conformance need $$program (Debian: packages chromium and prometheus)." >&2; \
		[ "$$CI" != true ] || exit 1; \
	done
