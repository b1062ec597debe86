#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of check_workflow.py: on small workflows, each with one thing wrong."""
import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

SKIPPED = 77
try:
    import check_workflow
except ImportError as missing:
    print(f"skipped: {missing} (packages python3-yaml and python3-jsonschema)")
    sys.exit(1 if os.environ.get("TAGWIRE_TEST_REQUIRE_ALL") == "1" else SKIPPED)

CI_RUN = """\
# stage NAME COMMAND...
stage() {
    local name=$1
}
tests() {
    stage "$name" twice "$name" "$@"
}
stage build ./run build release
tests asan --preset asan
"""
HEAD = "on: push\n"
JOB = HEAD + """\
jobs:
  a:
    runs-on: ubuntu-24.04
    steps:
      - run: bash .ci/run
"""


def findings(text):
    """The findings about one workflow, as lines."""
    return [f"{place}: {problem}" for place, problem in check_workflow.check(text)[1]]


def with_step(step):
    """Findings about a workflow with this step alone."""
    body = textwrap.indent(textwrap.dedent(step), "        ").strip()
    return findings(HEAD + "jobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - " + body)


def with_job(lines):
    """Findings about a workflow whose job has these lines beside its step."""
    return findings(JOB + textwrap.indent(textwrap.dedent(lines), "    "))


def tree(files, ci_run=CI_RUN):
    """Findings about a tree {path: text}, as lines."""
    with tempfile.TemporaryDirectory() as name:
        for path, text in {".ci/run": ci_run, **files}.items():
            file = Path(name) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return [": ".join(finding) for finding in check_workflow.check_tree(Path(name))[1]]


class Case(unittest.TestCase):
    def assert_one(self, found, *words):
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])


class Shape(Case):
    def test_the_documented_keys_pass(self):
        self.assertEqual(findings("""\
name: all
run-name: by ${{ github.actor }}
on:
  push: {branches: [main, 'release/**'], tags: ['v*'], paths-ignore: ['docs/**']}
  pull_request:
    types: [opened, synchronize]
  schedule:
    - cron: '*/5 1 * * 1-5'
  workflow_dispatch:
    inputs:
      level: {description: how much, type: choice, options: [a, b], default: a, required: true}
permissions: {contents: read, id-token: write, pull-requests: none}
env: {A: 1, B: on, C: '${{ vars.C }}'}
defaults: {run: {shell: bash, working-directory: src}}
concurrency: {group: 'a-${{ github.ref }}', cancel-in-progress: '${{ github.ref != 'x' }}'}
jobs:
  first:
    name: one
    runs-on: [self-hosted, linux]
    environment: {name: production, url: https://example.org}
    permissions: read-all
    outputs: {answer: '${{ steps.ask.outputs.answer }}'}
    timeout-minutes: 10
    continue-on-error: true
    strategy:
      fail-fast: false
      max-parallel: 2
      matrix:
        os: [a, b]
        include:
          - {os: c, extra: 1}
        exclude:
          - {os: a}
    container: {image: 'debian:12', env: {A: b}, volumes: ['/a:/b'], options: --privileged}
    services:
      db: {image: 'postgres:16', ports: [80, '5432:5432']}
    steps:
      - id: ask
        name: ${{ matrix.os }} ${{ matrix.extra }}
        if: always() && !cancelled() && contains(github.event.labels.*.name, 'it''s }}')
        run: |
          echo "${a:-${b}}"
        shell: bash
        working-directory: src
        env: {A: '${{ hashFiles('**/*.c') }}'}
        timeout-minutes: 1.5
      - uses: actions/checkout@v5
        with: {fetch-depth: 0, submodules: true}
      - uses: ./local
      - uses: docker://debian:12
  second:
    needs: [first]
    if: ${{ needs.first.result == 'success' && fromJSON('[1]')[0] == 1 }}
    uses: owner/name/.github/workflows/other.yml@0123456789012345678901234567890123456789
    with: {a: 1}
    secrets: inherit
""".replace("'${{ github.ref != 'x' }}'", '"${{ github.ref != \'x\' }}"').replace(
            "'${{ hashFiles('**/*.c') }}'", '"${{ hashFiles(\'**/*.c\') }}"')), [])

    def test_a_misspelt_key_is_found_at_each_level(self):
        self.assert_one(findings(JOB + "permission: read-all\n"), "workflow: ", "'permission'")
        self.assert_one(with_job("timeout-minute: 3"), "jobs.a: ", "'timeout-minute'")
        self.assert_one(with_step("run: a\nworking-dir: b"), "jobs.a.steps[0]: ", "'working-dir'")
        self.assert_one(with_job("strategy: {matrix: {a: [1]}, failfast: true}"), "'failfast'")
        self.assert_one(with_job("container: {image: 'a:1', option: -p}"), "'option'")
        self.assert_one(with_job("permissions: {content: read}"), "'content'")
        self.assert_one(with_job("concurrency: {group: a, cancel: true}"), "'cancel'")
        self.assert_one(with_job("defaults: {run: {shel: bash}}"), "'shel'")

    def test_a_missing_key_is_found(self):
        self.assert_one(findings("jobs: {a: {runs-on: b, steps: [{run: c}]}}"), "'on'")
        self.assert_one(findings("on: push"), "'jobs'")
        self.assert_one(findings(HEAD + "jobs: {a: {steps: [{run: c}]}}"), "runs-on and steps")
        self.assert_one(findings(HEAD + "jobs: {a: {runs-on: b}}"), "runs-on and steps")

    def test_a_wrong_type_is_found(self):
        self.assert_one(with_job("timeout-minutes: soon"), "jobs.a.timeout-minutes")
        self.assert_one(with_job("env: [A]"), "jobs.a.env")
        self.assert_one(with_job("continue-on-error: 'yes'"), "jobs.a.continue-on-error")
        self.assert_one(with_job("permissions: {contents: reed}"), "contents", "reed")
        self.assert_one(with_step("run: [a, b]"), "jobs.a.steps[0].run")
        self.assert_one(findings(JOB.replace("on: push", "on: pushed")), "on", "pushed")
        self.assert_one(findings(JOB.replace("on: push", "on: {schedule: [{cron: '1 2 3'}]}")),
                        "cron", "1 2 3")

    def test_a_step_runs_or_uses(self):
        self.assert_one(with_step("name: a"), "a step has run, or uses")
        self.assert_one(with_step("run: a\nuses: b/c@v1"), "a step has run, or uses")
        self.assert_one(with_step("run: a\nwith: {b: c}"), "a step has run, or uses")
        self.assert_one(with_step("uses: b/c@v1\nshell: bash"), "a step has run, or uses")

    def test_a_branch_is_not_both_wanted_and_ignored(self):
        self.assert_one(findings(JOB.replace(
            "on: push", "on: {push: {branches: [a], branches-ignore: [b]}}")), "on")

    def test_text_that_is_no_yaml_is_found(self):
        self.assert_one(findings("a: [\n"), "line 2")
        self.assert_one(findings(JOB + "on: pull_request\n"), "line 7", "the key on is there twice")


class Expressions(Case):
    def test_one_that_is_not_closed_or_opened_is_found(self):
        self.assert_one(with_step("run: echo ${{ github.sha }"), "not closed")
        self.assert_one(with_step("run: echo ${{ github.sha ${{ github.ref }}"), "not closed")
        self.assert_one(with_step("run: echo github.sha }}"), "not opened")

    def test_quotes_and_brackets_balance(self):
        self.assert_one(with_step("if: github.ref == 'a\nrun: b"), "a quote is not closed")
        self.assert_one(with_step("run: ${{ contains(github.ref, 'a' }}"), "do not balance")
        self.assert_one(with_job("if: github.event['a'"), "do not balance")

    def test_names_that_do_not_exist_are_found(self):
        self.assert_one(with_step("run: echo ${{ githb.sha }}"), "no context githb")
        self.assert_one(with_step("if: allways()\nrun: a"), "no function allways")
        self.assert_one(with_step("run: ${{ matrix.os }}"), "no key os")
        self.assert_one(with_job("strategy: {matrix: {os: [b]}}\nname: ${{ matrix.so }}"),
                        "no key so")

    def test_a_matrix_that_is_computed_may_have_any_key(self):
        self.assertEqual(with_job(
            'strategy: {matrix: "${{ fromJSON(vars.A) }}"}\nname: ${{ matrix.so }}'), [])
        self.assertEqual(with_job(
            'strategy: {matrix: {include: "${{ fromJSON(vars.A) }}"}}\nname: ${{ matrix.so }}'), [])

    def test_a_job_waits_for_jobs_that_exist(self):
        self.assert_one(with_job("needs: b"), "jobs.a.needs", "no job b")


class Pins(Case):
    def test_an_action_names_its_version(self):
        for action in ("actions/checkout", "actions/checkout@main", "actions/checkout@v",
                       "checkout@v1", "actions/checkout@0a1b2c3"):
            self.assert_one(with_step(f"uses: {action}"), "names no version")
        for action in ("actions/checkout@v5", "actions/checkout@v5.0.1", "a/b/c@1.2", "./a"):
            self.assertEqual(with_step(f"uses: {action}"), [])

    def test_an_image_names_its_version(self):
        for image in ("debian", "debian:latest", "ghcr.io/a/b"):
            self.assert_one(with_job(f"container: {image}"), "names no version")
            self.assert_one(with_job(f"container: {{image: '{image}'}}"), "names no version")
            self.assert_one(with_step(f"uses: docker://{image}"), "names no version")
        for image in ("debian:12", "ghcr.io/a/b:1", "a@sha256:" + 64 * "0"):
            self.assertEqual(with_job(f"container: {image}"), [])


class Stages(Case):
    def steps(self, *commands, extra=""):
        steps = "".join(f"      - run: {command}\n" for command in commands)
        return tree({".github/workflows/ci.yml":
                     HEAD + "jobs:\n  a:\n    runs-on: b\n" + extra + "    steps:\n" + steps})

    def test_all_together_or_each_alone_pass(self):
        self.assertEqual(self.steps("bash .ci/run"), [])
        self.assertEqual(self.steps("bash .ci/run build", ".ci/run asan"), [])
        self.assertEqual(self.steps("bash .ci/run asan build && echo done"), [])

    def test_one_that_no_job_runs_is_found(self):
        self.assert_one(self.steps("bash .ci/run build"), ".ci/run: asan: no job")

    def test_one_that_does_not_exist_is_found(self):
        self.assert_one(self.steps("bash .ci/run build asan fuzz"), "jobs.a.steps[0].run",
                        "no stage fuzz")

    def test_those_of_a_matrix_count(self):
        in_lists = "    strategy: {matrix: {stage: [build, asan]}}\n"
        self.assertEqual(self.steps("bash .ci/run ${{ matrix.stage }}", extra=in_lists), [])
        included = ("    strategy: {matrix: {include: [{what: build}, {what: asan tsan}]}}\n")
        self.assert_one(self.steps("bash .ci/run ${{ matrix.what }}", extra=included),
                        "no stage tsan")

    def test_several_workflows_count_together(self):
        one = JOB.replace(".ci/run", ".ci/run build")
        other = JOB.replace(".ci/run", ".ci/run asan")
        self.assertEqual(tree({".github/workflows/a.yml": one,
                               ".github/workflows/b.yaml": other}), [])

    def test_the_example_is_looked_at_without_stages(self):
        example = JOB.replace("run: bash .ci/run", "runs: make")
        found = tree({".github/workflows/a.yml": JOB, "examples/ci/github.yml": example})
        self.assertTrue(found)
        self.assertEqual({line.split(":")[0] for line in found}, {"examples/ci/github.yml"})


class Tree(Case):
    def test_this_one_is_right(self):
        count, found = check_workflow.check_tree(Path(__file__).resolve().parents[2])
        self.assertGreater(count, 0)
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
