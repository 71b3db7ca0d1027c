# SPDX-License-Identifier: Apache-2.0
# The verbs. Each installs what it needs (scripts/bootstrap) and calls CMake's presets; `make help` lists them.
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := all
.PHONY: all demo test check asan tsan fuzz soak clean help

all:  ## build build/flywheel
	@scripts/bootstrap
	@[ -f build/build.ninja ] || cmake --preset release -DFLYWHEEL_TESTS=OFF
	@cmake --build --preset release --target flywheel --parallel $(JOBS)

demo: all  ## compile the bundled model, serve it, send it real images and print what happened
	@scripts/demo

test:  ## build everything, run all tests (and some again with sanitizers) and count them
	@JOBS=$(JOBS) scripts/test

check:  ## format, room arrows, file lengths and the like; seconds. `scripts/check --tidy` adds clang-tidy
	@scripts/bootstrap --check
	@scripts/check

asan:  ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@JOBS=$(JOBS) scripts/test --preset asan

tsan:  ## all tests under ThreadSanitizer
	@JOBS=$(JOBS) scripts/test --preset tsan

fuzz:  ## every fuzz target with libFuzzer for SECONDS (60); what they find is kept in build/fuzz
	@JOBS=$(JOBS) scripts/fuzz $(or $(SECONDS),60)

soak:  ## mixed load on the server for SECONDS (600), every answer checked, and what the server holds before and after
	@scripts/bootstrap --test --peers
	@cmake --preset release -DFLYWHEEL_TESTS=ON >/dev/null
	@cmake --build --preset release --target soak soak_backend flywheel --parallel $(JOBS)
	@PATH=$(CURDIR)/.venv/bin:$$PATH build/bench/bin/soak --server build/flywheel --backend build/bench/bin/libflywheel_soak.so \
	  --network models/fashion_mnist/model.onnx --seconds $(or $(SECONDS),600)

clean:  ## delete all that was built (ccache keeps its own)
	rm -rf build demo-work

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
