"""Energy of a training, read from counters."""

import sys
from types import SimpleNamespace

import pytest
import torch

from nmtdeep.training import energy
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.state import Progress

CPU = Ranks(device=torch.device("cpu"))


@pytest.fixture
def zones(tmp_path, monkeypatch):
    """A function that writes a zone of powercap, and returns the file of its counter."""

    def write(folder, name, reading):
        (tmp_path / folder).mkdir()
        for file, value in (("name", name), ("energy_uj", reading), ("max_energy_range_uj", 1000)):
            (tmp_path / folder / file).write_text(f"{value}\n")
        return tmp_path / folder / "energy_uj"

    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    return write


@pytest.fixture
def gpus(zones, monkeypatch):
    """Millijoules that the GPUs a and b have counted; a third one has no counter."""
    readings = {"GPU-a": 10_000, "GPU-b": 500}
    nvml = SimpleNamespace(
        NVMLError=KeyError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=str,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: readings[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    properties = [SimpleNamespace(uuid=name) for name in ("a", "b", "without")]
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    return readings


def test_packages_and_memory_count_and_a_counter_that_wraps_goes_on(zones):
    package = zones("intel-rapl:0", "package-0", 900)
    memory = zones("intel-rapl:0:1", "dram", 5)
    zones("intel-rapl:0:0", "core", 1)  # a part of the package
    zones("intel-rapl:1", "psys", 1)  # the whole machine, the package included
    meter = energy.Meter(CPU)
    package.write_text("950\n")
    progress = meter.counted(Progress(joules=2.0))  # what was counted before it was resumed
    assert progress.joules == pytest.approx(2 + 50e-6)
    package.write_text("30\n")  # 50 to the end of its range, and 30 more
    memory.write_text("7\n")
    assert meter.counted(progress).joules == pytest.approx(2 + (50 + 80 + 2) * 1e-6)
    assert meter.summary(Progress(joules=1.8e6)) == "energy      0.5 kWh, processor"


def test_the_gpus_of_this_machines_ranks_are_found_by_their_uuid(gpus):
    both = energy.Meter(Ranks(0, 4, local_size=2, device=torch.device("cuda", 0)))
    second = energy.Meter(Ranks(device=torch.device("cuda", 1)))
    gpus |= {"GPU-a": 12_000, "GPU-b": 750}
    assert both.counted(Progress()).joules == pytest.approx(2.25)
    assert second.counted(Progress()).joules == pytest.approx(0.25)
    assert both.counted_by == "GPU"


@pytest.mark.parametrize(
    "ranks", [CPU, Ranks(device=torch.device("cuda", 2)), Ranks(1, 2, device=torch.device("cuda"))]
)
def test_nothing_is_counted_where_nothing_can_be_read_nor_in_other_ranks(ranks, gpus, zones):
    zones("intel-rapl:0", "package-0", "")  # as if it were for root only
    meter = energy.Meter(ranks)
    assert meter.counted(Progress()) == Progress()
    assert meter.summary(Progress()) == "energy      not readable here"
    # It was readable on the machine where the training began.
    resumed = Progress(joules=3.6e6)
    assert meter.summary(resumed) == "energy      1 kWh, not readable here"
