#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The references name everything that there is, and nothing else: every field of model_config.proto is in docs/config_reference.md, and the
flags in docs/serve_flags.md are those that `flywheel serve --help` prints.

Called by CTest with FLYWHEEL naming the program, or by hand.
"""
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLYWHEEL = os.environ.get("FLYWHEEL", os.path.join(ROOT, "build/flywheel"))


def read(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


def proto_fields():
    """Field names by message, without those of messages that a refused field is made of."""
    text = re.sub(r"//.*", "", read("src/server/config/model_config.proto"))
    refused = {"Cuda", "GraphSpec", "Shape", "LowerBound", "ExecutionAccelerators", "Accelerator", "Graph", "SecondaryDevice", "Agent", "ModelRepositoryAgents",
               "ModelOperations", "ModelMetrics", "MetricControl", "MetricIdentifier", "HistogramOptions"}
    fields, stack = {}, []
    for token in re.finditer(r"\b(message|enum|oneof)\s+(\w+)\s*\{|(\})|(?:repeated\s+)?[\w.]+(?:<[^>]*>)?\s+(\w+)\s*=\s*\d+\s*;|(\w+)\s*=\s*\d+\s*;", text):
        if token.group(1):
            stack.append((token.group(1), token.group(2)))
        elif token.group(3):
            stack.pop()
        elif token.group(4) and stack and stack[-1][0] != "enum":
            message = next(name for kind, name in reversed(stack) if kind == "message")
            if not any(name in refused for _, name in stack):
                fields.setdefault(message, set()).add(token.group(4))
    return fields


class ReferenceTest(unittest.TestCase):
    def test_every_field_of_the_configuration_is_described(self):
        described = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", read("docs/config_reference.md")))))
        fields = proto_fields()
        self.assertIn("max_batch_size", fields["ModelConfig"])
        self.assertIn("default_timeout_microseconds", fields["ModelQueuePolicy"])
        missing = {f"{message}.{field}" for message, names in fields.items() for field in names if field not in described}
        self.assertEqual(missing, set())

    def test_the_flags_are_those_of_the_program(self):
        help_text = subprocess.run([FLYWHEEL, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        flags = set(re.findall(r"--[a-z][a-z-]*", "\n".join(line[:60] for line in help_text.splitlines() if line.startswith("  -")))) - {"--help"}
        described = set(re.findall(r"`(--[a-z][a-z-]*)", read("docs/serve_flags.md")))
        self.assertGreater(len(flags), 50)
        self.assertEqual(flags - described, set(), "not in docs/serve_flags.md")
        self.assertEqual(described - flags, set(), "in docs/serve_flags.md, but not a flag")


if __name__ == "__main__":
    unittest.main()
