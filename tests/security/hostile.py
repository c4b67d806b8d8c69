"""What the fuzz tests share: mutations of bytes and of plain values, code that must never run, and the one rule."""

import os
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from faceanon.errors import UserError


def fuzz(examples):
    """So many examples, always the same ones; hanging counts as a failure."""
    slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=timedelta(seconds=60),
        suppress_health_check=slow,
        phases=(Phase.explicit, Phase.generate),  # shrinking under a tracer takes minutes
    )


def asked(call, *words):
    """The rule for whatever comes from outside: a result, or one line (then None). Any other exception is a fault."""
    try:
        return call(*words)
    except UserError as error:
        text = str(error)
        assert "\n" not in text, text
        assert 10 < len(text) < 1200, text
        return None


@st.composite
def mutated(draw, seeds):
    """Bytes of a seed after a few changes: bits flipped, parts cut out, doubled, overwritten, put in."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(1, 16)))
        change = draw(st.sampled_from(["flip", "put", "cut", "double", "end", "largest"]))
        if change == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "put":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif change == "cut":
            del data[at:end]
        elif change == "double":
            data[at:at] = data[at:end]
        elif change == "largest":
            data[at:end] = b"\xff" * (end - at)
        else:
            del data[at:]
    return bytes(data)


NUMBERS = st.one_of(
    st.integers(-5, 70),
    st.sampled_from([10**400, -(10**30), 2**63, 1 << 40, 0, True]),
    st.floats(),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "../../x", "/etc/passwd", "os.system", "a" * 5000, "\0", "\ud800", "line\nline"]),
)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def altered(draw, values, names=()):
    """Nested plain values in which some entries were replaced, removed or added; often those of `names`."""
    found = _copy(values)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(found))
        wanted = [place for place in places if place[1] in names]
        owner, key = draw(st.sampled_from(wanted if wanted and draw(st.booleans()) else places))
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            owner[key] = draw(PLAIN)
        elif change == "remove":
            del owner[key]
        elif isinstance(owner, dict):
            owner[draw(TEXTS)] = draw(PLAIN)
        if not list(_places(found)):
            break
    return found


def _copy(values):
    if isinstance(values, dict):
        return {key: _copy(value) for key, value in values.items()}
    return [_copy(value) for value in values] if isinstance(values, list) else values


def _places(values):
    keys = list(values) if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()
    for key in keys:
        yield values, key
        yield from _places(values[key])


class Payload:
    """Calls something when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class BuildPayload:
    """Sets attributes on something when it is unpickled."""

    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return Payload, (os.getcwd,), self.state


def payloads(canary):
    """What would leave a trace, by name; each uses other means of a pickle."""
    make = f"__import__('pathlib').Path({str(canary)!r}).touch()"
    chain = Payload(getattr, Path(canary), "touch")
    return {
        "os.system": Payload(os.system, f"touch {canary}"),
        "eval": Payload(eval, make),
        "exec": Payload(exec, make),
        "getattr": Payload(_call, chain),
        "os.mkdir": Payload(os.mkdir, str(canary)),
        "import": Payload(__import__, "antigravity_that_is_not_there"),
        "in a list": [Payload(os.system, f"touch {canary}")],
        "as a key": {Payload(os.mkdir, str(canary)): 1},
        "state": BuildPayload({"x": Payload(os.system, f"touch {canary}")}),
    }


def _call(function):
    return function()


def opcodes(canary):
    """Pickles written by hand, by instruction: every one that names something, or calls it."""
    words = f"touch {canary}".encode()
    text = b"X" + len(words).to_bytes(4, "little") + words
    reduce = text + b"\x85R."
    return {
        "GLOBAL": b"\x80\x02cos\nsystem\n" + reduce,
        "GLOBAL posix": b"\x80\x02cposix\nsystem\n" + reduce,
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93" + reduce,
        "INST": b"(" + text + b"ios\nsystem\n.",
        "OBJ": b"(cos\nsystem\n" + text + b"o.",
        "NEWOBJ": b"\x80\x02csubprocess\nPopen\n" + text + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04csubprocess\nPopen\n" + text + b"\x85}\x92.",
        "BUILD": b"\x80\x02cbuiltins\neval\n}\x8c\x01x" + text + b"sb.",
        "PERSID": b"P" + words + b"\n.",
        "BINPERSID": b"\x80\x02" + text + b"Q.",
        "EXT1": b"\x80\x02\x82\x01.",
        "EXT2": b"\x80\x02\x83\x01\x00.",
        "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
        "MEMO": b"\x80\x02cos\nsystem\nq\x00h\x00" + reduce,
        "dotted": b"\x80\x04\x8c\x05torch\x8c\x13serialization.os.system\x93" + reduce,
        "FRAME": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fcos\nsystem\n" + reduce,
    }
