.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install java lint test demo bench fuzz soak peers interop dbt

SPARK ?=## another PySpark, in an environment of its own: make SPARK=4.2.0 test
ARGS ?=## more arguments for pytest: make test ARGS="tests/log -k checkpoint"
DOOR ?=## connect: run tests in a client of Spark Connect: make test DOOR=connect
VENV := .venv$(if $(SPARK),-$(SPARK))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := $(wildcard src tests examples bench)
# Every file with a slow test that neither `interop` nor `dbt` runs.
HEAVY := tests/properties tests/txn tests/bench/test_quick.py \
  $(addprefix tests/spark/, convert/test_convert_kills.py dml/test_dml_concurrency.py \
  dml/test_dml_kills.py dml/test_dml_programs.py maintenance/test_statement_kills.py \
  scan/test_fresh_reads.py session/test_other_languages.py streaming/test_stream_kills.py)

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@awk -F ' \\?=## ' '/^[A-Z]+ \?=## /{ printf "  %-14s %s\n", $$1 "=", $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## make .venv from the lock file, once
	@echo "$(VENV) is ready."

$(STAMP): pyproject.toml src/_pyspark_delta_startup.py $(wildcard requirements*.lock) scripts/install.sh
	@scripts/install.sh $(VENV) $(SPARK)
	@touch $@

java: # Spark's needs, where Spark looks
	@scripts/ensure-java.sh

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) java ## the test suite, and the code in README and docs
	@DOOR=$(strip $(DOOR)) scripts/test.sh $(BIN)/python $(ARGS)

demo: $(STAMP) java ## a small pipeline on Spark: write, evolve, replace, travel, look back, upsert, convert, stream
	@$(BIN)/python examples/demo.py

bench: $(STAMP) java ## speed and memory beside other implementations, as ratios
	$(BIN)/python -m bench $(ARGS)

fuzz: $(STAMP) java ## the heavy runs: many more random cases, races and kills; whole notebooks, a quick benchmark
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest $(HEAVY) -m "slow or not slow" $(ARGS)

soak: $(STAMP) java ## 1,000 sessions and 5,000 statements of clients on one server
	$(BIN)/python -m pytest tests/spark/server/test_soak.py -m slow -s $(ARGS)

peers: # delta-spark, in an environment of its own
	@scripts/peers.sh

interop: $(STAMP) java peers ## tables shared with delta-spark; golden tables, deltalake
	@scripts/interop.sh $(BIN)/python $(ARGS)

dbt: $(STAMP) java ## a dbt project on Delta tables, in an environment of its own
	@scripts/dbt.sh $(BIN)/python
	DBT=required $(BIN)/python -m pytest tests/dbt -m "slow or not slow" $(ARGS)
