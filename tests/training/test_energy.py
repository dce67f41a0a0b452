"""Energy of a training, read from counters."""

import sys
from types import SimpleNamespace

import pytest
import torch

from nmtdeep.training import energy
from nmtdeep.training.ranks import Ranks

CPU = Ranks(device=torch.device("cpu"))


def zone(folder, name, reading, most=1000):
    folder.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", reading), ("max_energy_range_uj", most)):
        (folder / file).write_text(f"{value}\n")
    return folder / "energy_uj"


def test_packages_and_memory_count_and_what_wraps_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    first = zone(tmp_path / "intel-rapl:0", "package-0", 900)
    memory = zone(tmp_path / "intel-rapl:0:1", "dram", 5)
    zone(tmp_path / "intel-rapl:0:0", "core", 1)  # a part of the package
    zone(tmp_path / "intel-rapl:1", "psys", 1)  # the whole machine, the package included
    meter = energy.Meter(CPU)
    assert meter.joules() == 0
    first.write_text("950\n")
    assert meter.joules() == pytest.approx(50e-6)
    first.write_text("30\n")  # 50 to the end of its range, and 30 more
    memory.write_text("7\n")
    assert meter.joules() == pytest.approx((50 + 50 + 30 + 2) * 1e-6)
    assert meter.of == "processor"


def test_the_gpus_of_this_machines_ranks_are_found_by_their_uuid(tmp_path, monkeypatch):
    readings = {"GPU-a": 10_000, "GPU-b": 500, "GPU-c": 1}
    nvml = SimpleNamespace(
        NVMLError=KeyError,  # which a GPU without a counter raises here
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=str,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: readings[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    names = {0: "a", 1: "b", 2: "without"}
    found = torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=names[number])
    monkeypatch.setattr(*found)
    two = Ranks(0, 4, local_size=2, device=torch.device("cuda", 0))
    one = Ranks(device=torch.device("cuda", 1))
    none = Ranks(device=torch.device("cuda", 2))
    both, single = energy.Meter(two), energy.Meter(one)
    readings |= {"GPU-a": 12_000, "GPU-b": 750, "GPU-c": 99}
    assert both.joules() == pytest.approx(2.25)
    assert single.joules() == pytest.approx(0.25)
    assert both.of == "GPU"
    assert energy.Meter(none).joules() is None


def test_nothing_is_said_where_nothing_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    zone(tmp_path / "intel-rapl:0", "package-0", "")  # as if it were for root only
    meter = energy.Meter(CPU)
    assert (meter.joules(), meter.of) == (None, "")
