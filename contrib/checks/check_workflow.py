#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_workflow.py [ROOT]: the workflows for GitHub Actions are such, and forget no stage.

Prints `file: place: text` for each mistake and ends with status 1 if there is one. Keys and types
are those of workflow_schema.json. Beyond them: a key is there once, expressions are closed and name
contexts, functions and keys of the matrix that exist, whatever comes from elsewhere is pinned to a
version, and the workflows of ROOT run each stage of .ci/run and no others.
Needs the packages python3-yaml and python3-jsonschema.
"""
import itertools
import json
import re
import sys
from pathlib import Path

import jsonschema
import yaml

HERE = Path(__file__).resolve().parent
SCHEMA = json.loads((HERE / "workflow_schema.json").read_text())
WORKFLOWS = (".github/workflows/*.yml", ".github/workflows/*.yaml")
EXAMPLES = ("examples/ci/github.yml",)  # of other projects, which have no stages

CONTEXTS = {"github", "env", "vars", "job", "jobs", "steps", "runner", "secrets", "strategy",
            "matrix", "needs", "inputs"}
FUNCTIONS = {"contains", "startswith", "endswith", "format", "join", "tojson", "fromjson",
             "hashfiles", "success", "always", "cancelled", "failure", "case"}
LITERALS = {"true", "false", "null", "nan", "infinity"}
EXPRESSION = re.compile(r"\$\{\{((?:'[^']*'|(?!\}\}|\$\{\{)[^'])*)\}\}")
TEXT = re.compile(r"'[^']*'")
# A name that begins a path of names, and what tells a call from a context.
NAME = re.compile(r"(?<![\w.*-])([A-Za-z_][\w-]*)\s*([.(\[]?)\s*([\w-]*)")

PINNED_ACTION = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+)?@(v?\d+(\.\d+)*|[0-9a-f]{40})")
PINNED_IMAGE = re.compile(r"[\w./:-]+(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})")

STAGE = re.compile(r"^\s*(?:stage|tests) ([a-z]\w*)", re.MULTILINE)
CALL = re.compile(r"\.ci/run\b([^\n;&|#]*)")


class Loader(yaml.SafeLoader):
    """YAML as the workflows' readers have it: `on` is a word, and a key is there once."""

    yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in resolvers
                if tag.rpartition(":")[2] in ("null", "int", "float", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:bool",
                             re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def name_of(path):
    """jobs.stage.steps[3] of its parts."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".") or "workflow"


def shape(workflow):
    """(place, text) where the schema does not hold."""
    for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(workflow):
        if error.validator == "oneOf" and "description" in error.schema:
            yield name_of(error.absolute_path), error.schema["description"]
            continue
        best = jsonschema.exceptions.best_match([error])
        yield name_of(best.absolute_path), best.message


def strings(value, path=()):
    """(path, string) of each one below."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from strings(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from strings(below, (*path, index))
    elif isinstance(value, str):
        yield path, value


def matrix_of(job):
    """Key -> its values, or None where they are known at run time only."""
    matrix = job.get("strategy", {}).get("matrix", {})
    include = matrix.get("include", []) if isinstance(matrix, dict) else None
    if not isinstance(include, list):
        return None
    values = {key: list(below) for key, below in matrix.items()
              if key not in ("include", "exclude") and isinstance(below, list)}
    for combination in include:
        for key, value in combination.items():
            values.setdefault(key, []).append(value)
    unknown = any(isinstance(below, str) for below in matrix.values())
    return None if unknown else values


def names(expression, matrix):
    """Texts about an expression's names."""
    bare = TEXT.sub("''", expression)
    if "'" in bare.replace("''", ""):
        yield f"a quote is not closed in: {expression.strip()}"
        return
    for opening, closing in ("()", "[]"):
        if bare.count(opening) != bare.count(closing):
            yield f"{opening} and {closing} do not balance in: {expression.strip()}"
    for name, follows, member in NAME.findall(bare):
        if follows == "(":
            if name.lower() not in FUNCTIONS:
                yield f"no function {name}"
        elif name.lower() not in CONTEXTS | LITERALS:
            yield f"no context {name}"
        elif name == "matrix" and matrix is not None and follows == "." and member not in matrix:
            yield f"no key {member} in the job's matrix"


def expressions(workflow):
    for path, text in strings(workflow):
        job = workflow["jobs"].get(path[1], {}) if path[0] == "jobs" else {}
        matrix = matrix_of(job)
        found = EXPRESSION.findall(text)
        rest = EXPRESSION.sub("", text)
        if "${{" in rest:
            yield name_of(path), "an expression is not closed: ${{ without }}"
        elif path[-1] == "if" and not found:  # all of it is one
            found = [text]
        elif any("}}" in line and "${" not in line for line in rest.splitlines()):
            yield name_of(path), "an expression is not opened: }} without ${{"
        for expression in found:
            for problem in names(expression, matrix):
                yield name_of(path), problem


def pins(workflow):
    """Actions, workflows and images of others stand still."""
    for path, text in strings(workflow):
        if path[0] != "jobs" or path[2:] and path[2] in ("env", "outputs", "with"):
            continue
        image = path[-1] == "image" or path[2:] == ("container",)
        if path[-1] == "uses":
            image = text.startswith("docker://")
            if not image and not text.startswith("./") and not PINNED_ACTION.fullmatch(text):
                yield name_of(path), f"{text} names no version: @v1.2, or a commit"
        if image and "${{" not in text and not PINNED_IMAGE.fullmatch(
                text.removeprefix("docker://")):
            yield name_of(path), f"the image {text} names no version: :12, or @sha256:"


def needs(workflow):
    for name, job in workflow["jobs"].items():
        wanted = job.get("needs", [])
        for other in [wanted] if isinstance(wanted, str) else wanted:
            if other not in workflow["jobs"]:
                yield f"jobs.{name}.needs", f"no job {other}"


def expand(text, matrix):
    """The text with each value of the matrix's keys in it."""
    keys = {key for key in re.findall(r"\$\{\{\s*matrix\.([\w-]+)\s*\}\}", text)
            if key in (matrix or {})}
    for values in itertools.product(*(matrix[key] for key in sorted(keys))):
        result = text
        for key, value in zip(sorted(keys), values):
            result = re.sub(r"\$\{\{\s*matrix\." + re.escape(key) + r"\s*\}\}",
                            lambda _, value=value: str(value), result)
        yield result


def stages_of(workflow):
    """(place, stage) of each that a job runs; a call without one runs all, which is ''."""
    for name, job in workflow["jobs"].items():
        for index, step in enumerate(job.get("steps", [])):
            for arguments in CALL.findall(step.get("run", "")):
                for text in expand(arguments, matrix_of(job)):
                    place = f"jobs.{name}.steps[{index}].run"
                    yield from ((place, stage) for stage in text.split() or [""])


def check(text):
    """(workflow, findings) of a file's text; findings are pairs of place and text."""
    try:
        workflow = yaml.load(text, Loader)  # a SafeLoader, see above
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark else "workflow"
        return None, [(place, getattr(error, "problem", None) or str(error))]
    findings = list(shape(workflow))
    if findings:  # the others rely on the shape
        return None, findings
    return workflow, [*expressions(workflow), *pins(workflow), *needs(workflow)]


def missing_stages(known, workflows):
    """(file, place, text) where .ci/run and the workflows {file: workflow} do not agree."""
    covered = set()
    for file, workflow in workflows.items():
        for place, stage in stages_of(workflow):
            covered.add(stage)
            if stage and stage not in known:
                yield file, place, f".ci/run has no stage {stage}"
    if "" not in covered:
        for stage in known:
            if stage not in covered:
                yield ".ci/run", stage, "no job of a workflow runs this stage"


def check_tree(root):
    findings, workflows = [], {}
    own = sorted(path for pattern in WORKFLOWS for path in root.glob(pattern))
    for path in [*own, *(root / name for name in EXAMPLES if (root / name).exists())]:
        file = str(path.relative_to(root))
        workflow, found = check(path.read_text())
        findings += [(file, *finding) for finding in found]
        if workflow is not None and path in own:
            workflows[file] = workflow
    if len(workflows) == len(own):  # else a stage may be in one that cannot be read
        known = STAGE.findall((root / ".ci/run").read_text())
        findings += missing_stages(known, workflows)
    return len(own), findings


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1])
    count, findings = check_tree(root)
    for file, place, text in findings:
        print(f"{file}: {place}: {text}")
    print(f"check_workflow: {count} workflows, {len(findings)} errors")
    return 1 if findings or not count else 0


if __name__ == "__main__":
    sys.exit(main())
