# make run: the dashboard, with a recommendation on its first page. make test: the tests.
# Each does all its set-up; stamp files make the second call instant.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501
REPORT ?= -q

.PHONY: run test check format lock schema bench accuracy repeatability engines platforms clean

run: $(VENV)/.installed
	$(BIN)/streamlit run app.py --server.port $(PORT)

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest $(REPORT) -n 3 --dist loadfile

check: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/lint-imports

format: $(VENV)/.dev-installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schema: $(VENV)/.installed
	$(BIN)/python -m advisor schema docs/schema

bench: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.run

repeatability: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.repeatability

engines: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.engines

platforms: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.platforms

accuracy: $(VENV)/.dev-installed
	$(BIN)/python -m benchmarks.accuracy

lock: $(VENV)/.dev-installed
	$(BIN)/python -m pip freeze --exclude-editable | grep -v '^torch' > constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev-installed: requirements-dev.txt requirements.txt constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
