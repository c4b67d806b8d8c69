"""The ratios of docs/results/speed.md, with margins for machines that others use too."""

import os
import re
import subprocess
import sys

import pytest

from faceanon.photo.party import photo_party


def printed(repo, *command):
    """What an example prints, on one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=repo, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.timing
def test_the_codec_reaches_half_of_the_measured_convolutions(repo):
    # .85 and .81 on a quiet machine, .60 and .62 on one whose processor has matrix units, .55 and .58 on another of
    # these beside other work. Another program on the same caches takes some of it, and nothing adds to it: it counts
    # what is reached in one of three times.
    for _ in range(3):
        told = printed(repo, "benchmarks/codec_speed.py", "--rounds", "8")
        shares = [int(share) for share in re.findall(r"(\d+)% of the peak", told)]
        assert len(shares) == 2
        if min(shares) >= 50:
            break
    assert min(shares) >= 50, told


def engines(repo, photo):
    """Seconds of the fastest round, and memory in MB, of one cold command by each engine."""
    told = printed(repo, "benchmarks/light_speed.py", str(photo), "--rounds", "3")
    found = {}
    # Medians are printed first. Other work on the machine only adds to a round, and may add to most of one engine's.
    for name, seconds, memory in re.findall(r"(\w+): [\d.]+ s \(([\d.]+) to .*?\), (\d+) MB", told):
        found[name] = (float(seconds), int(memory))
    return found


@pytest.mark.timing
def test_one_photo_without_torch_takes_half_the_time_and_half_the_memory(repo, tmp_path):
    """With one face, as docs/results/speed.md says it."""
    party = photo_party()
    person = party.crop((0, 0, party.height, party.height))
    person.save(tmp_path / "person.jpg", quality=95)
    found = engines(repo, tmp_path / "person.jpg")
    # .28 and .31 on a quiet machine, .43 on one whose processor has matrix units for torch.
    assert found["light"][0] < 0.6 * found["torch"][0], found
    assert found["light"][1] < 0.6 * found["torch"][1], found


@pytest.mark.timing
def test_three_large_faces_without_torch_take_less_time_and_half_the_memory(repo, tmp_path):
    """What torch's start takes is fixed; with matrix units it reads each face in a third of the time after that."""
    photo_party().save(tmp_path / "party.jpg", quality=95)
    found = engines(repo, tmp_path / "party.jpg")
    # .68 with matrix units.
    assert found["light"][0] < 0.9 * found["torch"][0], found
    assert found["light"][1] < 0.6 * found["torch"][1], found
    # What was promised to people with small machines.
    assert found["light"][1] < 600, found


@pytest.mark.timing
def test_prepared_batches_make_a_step_cheaper(repo):
    told = printed(repo, "benchmarks/prepared_speed.py", "configs/dbaf_s1.yaml", "--batches", "16")
    # 1.94 on a quiet machine.
    assert float(re.search(r"([\d.]+) times", told)[1]) > 1.4, told
