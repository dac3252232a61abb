"""Ratios compare the two measurements of one round; the spread is shown."""

import os

import pytest
import workloads
from processes import cpu_s, memory_mb
from report import Sample, across, figure, markdown, ratios, spread, tables

CASE = "produce 1024 B, 16 KB batches, flush"
RELAXED = "produce 1024 B, 16 KB batches, relaxed"


def sample(system, number, value, case=CASE, metric="mb_per_s"):
    return Sample(system, case, number, {metric: value})


def test_ratios_are_taken_round_by_round():
    samples = [
        sample("kafkalite", 1, 100.0),
        sample("kafka", 1, 10.0),
        sample("kafkalite", 2, 60.0),
        sample("kafka", 2, 20.0),
    ]
    assert ratios(samples, CASE, "mb_per_s") == [10.0, 3.0]
    assert ratios([*samples, sample("kafkalite", 3, 1.0)], CASE, "mb_per_s") == [10.0, 3.0]
    assert ratios(samples, CASE, "records_per_s") == []


def test_flush_before_ack_is_also_compared_with_kafkas_default():
    samples = [sample("kafkalite", 1, 100.0), sample("kafka", 1, 50.0, RELAXED)]
    assert across(samples, CASE, RELAXED, "mb_per_s") == [2.0]
    text = markdown(samples, {"commit": "abc"})
    assert "| produce 1024 B, 16 KB batches | MB/s | x2.00 |" in text
    assert "- commit: abc" in text


def test_a_table_has_a_row_per_case_and_metric():
    samples = [
        sample("kafkalite", 1, 100.0),
        sample("kafka", 1, 8.0),
        sample("kafkalite", 2, 90.0),
        sample("kafka", 2, 10.0),
    ]
    lines = tables(samples).splitlines()
    assert lines[2:] == [f"| {CASE} | MB/s | 95.0 (90.0 to 100) | 9.00 (8.00 to 10.0) | x10.8 (9.00 to 12.5) |"]


def test_one_system_alone_has_no_ratio():
    lines = tables([sample("kafka", 1, 8.0)]).splitlines()
    assert lines[2:] == [f"| {CASE} | MB/s | - | 8.00 | - |"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.123, "0.12"), (12.34, "12.3"), (123.4, "123"), (225000, "225,000")]
)
def test_figures_have_about_three_digits(value, text):
    assert figure(value) == text
    assert spread([value]) == text


def test_percentiles_are_measured_values():
    values = [float(number) for number in range(100)]
    assert workloads.percentile(values, 0.99) == 99.0
    assert workloads.percentile([5.0], 0.99) == 5.0


def test_processes_are_measured_and_ended_ones_count_nothing():
    before = cpu_s([os.getpid()])
    while cpu_s([os.getpid()]) < before + 0.05:
        sum(range(10_000))
    assert 1 < memory_mb([os.getpid()]) < 10_000
    assert cpu_s([2**22 + 1]) == memory_mb([2**22 + 1]) == 0
