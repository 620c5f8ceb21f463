#!/usr/bin/env python3
"""How long other public tools take for the same log, as ratios to ours.

    python3 benches/peers/run.py                a table for the terminal
    python3 benches/peers/run.py --markdown     the table that README shows
    python3 benches/peers/run.py --help         sizes, rounds, another binary of ours

Needs Python 3.9 or later, cargo, and a way to PyPI and crates.io. All that it makes lies below cargo's target folder. A
peer that cannot be installed, built or run is said so, and the others go on.

Ours is the whole binary as its users run it: start-up, reading, decoding, event time, windows, rows into a CSV, and the
summary. It decodes the fields that it counts, and no others.

The decoders among the peers turn every message into all of its fields, and count the position reports. They know no
cells and no windows. Those that are slow get the beginning of the log only, and their time is scaled by lines. DuckDB
does the other half of the work: it groups positions that were decoded beforehand, by cell and minute, with all
processors. A peer's clock runs from before its input is opened until the last message or row is there; what the
interpreter and the imports take is not held against it.

In every round, ours runs before and after each peer, with one thread and with all. A ratio is the peer's time by the
mean of the two runs beside it, and the table has the median over the rounds: so a load that comes and goes on the
machine falls on both sides. Bare times would be of one machine, and are not shown.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
POSITION_TYPES = {1, 2, 3, 18, 19}


# ---- Peers in Python: each reads its input, and returns seconds and how many position reports it found ---------------


def pyais_messages(path):
    from pyais import FileReaderStream

    begin = time.perf_counter()
    reports = sum(message.decode().msg_type in POSITION_TYPES for message in FileReaderStream(path))
    return time.perf_counter() - begin, reports


def libais_lines(path):
    import ais

    begin = time.perf_counter()
    with ais.open(path) as log:
        reports = sum(message.get("decoded", {}).get("id") in POSITION_TYPES for message in log)
    return time.perf_counter() - begin, reports


def libais_payloads(path):
    import ais

    begin = time.perf_counter()
    reports = 0
    with open(path, encoding="ascii") as log:
        for line in log:
            fields = line[line.index("!") :].split(",")
            if fields[1] == "1":
                reports += ais.decode(fields[5], int(fields[6][0]))["id"] in POSITION_TYPES
    return time.perf_counter() - begin, reports


def aiscat_dictionaries(path):
    import aiscat

    begin = time.perf_counter()
    reports = sum(message["type"] in POSITION_TYPES for message in aiscat.from_file(path))
    return time.perf_counter() - begin, reports


def aiscat_json(path):
    """Its messages are text, in which it does not look for their types."""
    import aiscat

    begin = time.perf_counter()
    for _ in aiscat.from_file(path, format="json"):
        pass
    return time.perf_counter() - begin, None


POSITIONS_CSV = (
    "read_csv('{}', header = true, columns = {{'epoch': 'BIGINT', 'mmsi': 'INTEGER', 'lon': 'DOUBLE', 'lat': 'DOUBLE',"
    " 'sog': 'DECIMAL(5, 1)'}})"
)
POSITIONS_PARQUET = "read_parquet('{}')"

# A geohash of length 6 is 15 bits of longitude and 15 of latitude: two whole numbers stand for the same cell.
GROUPING = """
CREATE TEMP TABLE result AS
SELECT CAST(floor((lon + 180) / 360 * 32768) AS INTEGER) AS cell_x,
    CAST(floor((lat + 90) / 180 * 32768) AS INTEGER) AS cell_y,
    epoch // 60 AS minute, count(*) AS count, sum(sog) AS sog_sum {vessels}
FROM {positions} GROUP BY ALL
"""


def duckdb_grouping(positions, vessels=""):
    def run(path):
        import duckdb

        with duckdb.connect() as connection:
            begin = time.perf_counter()
            connection.execute(GROUPING.format(positions=positions.format(path), vessels=vessels))
            seconds = time.perf_counter() - begin
            return seconds, connection.execute("SELECT CAST(sum(count) AS BIGINT) FROM result").fetchone()[0]

    return run


# Name, input, what it does, and the function that does it.
PYTHON_PEERS = {
    "aiscat": [
        ("aiscat, JSON", "log", "decodes each message into JSON text", aiscat_json),
        ("aiscat, dictionaries", "log", "decodes each message into a dictionary", aiscat_dictionaries),
    ],
    "libais": [
        ("libais, payloads", "short", "decodes payloads only: no checksums, no parts, no TAG blocks", libais_payloads),
        ("libais, lines", "short", "decodes each line and its TAG block into a dictionary", libais_lines),
    ],
    "pyais": [("pyais", "short", "decodes each message into an object", pyais_messages)],
    "duckdb": [
        (
            "DuckDB, Parquet",
            "parquet",
            "no decoding: groups positions by cell and minute, count and sum",
            duckdb_grouping(POSITIONS_PARQUET),
        ),
        (
            "DuckDB, Parquet, vessels",
            "parquet",
            "the same, and counts the vessels of each group, as ours does",
            duckdb_grouping(POSITIONS_PARQUET, ", count(DISTINCT mmsi) AS vessels"),
        ),
        (
            "DuckDB, CSV",
            "csv",
            "no decoding: reads positions as text and groups them, count and sum",
            duckdb_grouping(POSITIONS_CSV),
        ),
    ],
}

# Name of the crate and of its program in src/bin, and what it does.
RUST_PEERS = [
    ("nmea-kit", "decodes each message into a struct; TAG blocks are cut off"),
    ("nmea-parser", "decodes each message into a struct; TAG blocks are cut off"),
    ("ais", "decodes each message into a struct; TAG blocks are cut off"),
]


class Peer:
    """Somebody to compare with: a command that prints seconds and reports, and what it is given."""

    def __init__(self, name, given, does, command):
        self.name, self.given, self.does, self.command = name, given, does, command
        self.to_one_thread, self.to_all_threads = [], []


# ---- Getting ready ---------------------------------------------------------------------------------------------------


def say(message):
    print(message, file=sys.stderr, flush=True)


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


def succeeds(what, command, **options):
    """Whether a command ends well; where not, its last line is said, and the reader knows what is missing."""
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)
        return True
    except OSError as error:
        say(f"{what}: {error}")
    except subprocess.CalledProcessError as error:
        say(f"{what}: {last_line(error.stderr)}")
    return False


def target_folder():
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--manifest-path", ROOT / "Cargo.toml"]
    return Path(json.loads(subprocess.run(metadata, check=True, stdout=subprocess.PIPE).stdout)["target_directory"])


def python_of(environment):
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python_peers(folder):
    """Each package goes into the folder's own environment, in the version that requirements.txt names."""
    environment = folder / "venv"
    python = python_of(environment)
    if not python.exists():
        say("making an environment for Python packages")
        venv.create(environment, with_pip=True)
    for requirement in (HERE / "requirements.txt").read_text().split():
        package = requirement.partition("==")[0]
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        if succeeds(f"{package} is left out, as it cannot be installed", pip):
            for name, given, does, _ in PYTHON_PEERS[package]:
                yield Peer(name, given, does, [python, HERE / "run.py", "--peer", name])


def rust_peers(folder):
    for crate, does in RUST_PEERS:
        if program := rust_program(folder, crate, crate):
            yield Peer(crate, "log", does, [program])


def rust_program(folder, program, crate=None):
    """Where a program of this package is once it is built, or nothing where the crate that it needs does not build."""
    target = folder / "cargo"
    build = ["cargo", "build", "--locked", "--quiet", "--release", "--manifest-path", HERE / "Cargo.toml"]
    build += ["--target-dir", target, "--bin", program, *(["--features", crate] if crate else [])]
    built = succeeds(f"{program} is left out, as it does not build", build)
    return target / "release" / program if built else None


def logs(folder, lines, short_lines):
    """The log, and its beginning for those that are slow."""
    paths = {"log": folder / f"{lines}.nmea", "short": folder / f"{lines}-{short_lines}.nmea"}
    make_samples = rust_program(folder, "make_samples")
    if make_samples is None:
        sys.exit("without make_samples there is no log to compare on")
    with open(paths["log"], "wb") as out:
        subprocess.run([make_samples, "--stream", str(lines)], check=True, stdout=out)
    with open(paths["log"], "rb") as log, open(paths["short"], "wb") as short:
        short.writelines(itertools.islice(log, short_lines))
    return paths


def positions(folder, log, python):
    """The positions of a log as CSV and as Parquet, or nothing where the programs for that are missing."""
    program = rust_program(folder, "positions", "nmea-kit")
    if program is None:
        return {}
    paths = {"csv": log.with_suffix(".csv"), "parquet": log.with_suffix(".parquet")}
    with open(paths["csv"], "wb") as out:
        subprocess.run([program, log], check=True, stdout=out)
    convert = f"COPY (SELECT * FROM {POSITIONS_CSV.format(paths['csv'])}) TO '{paths['parquet']}' (FORMAT parquet)"
    code = "import duckdb, sys; duckdb.execute(sys.argv[1])"
    ready = succeeds("DuckDB is left out, as it cannot read the positions", [python, "-c", code, convert])
    return paths if ready else {}


# ---- Measuring -------------------------------------------------------------------------------------------------------


class Ours:
    """The whole binary, with the defaults of `ais-replay file` whatever the environment says."""

    def __init__(self, binary, log, folder):
        names = ("AIS_REPLAY_", "WINDOW_SECONDS", "ALLOWED_LATENESS_SECONDS", "GEOHASH_PRECISION", "AGG_TABLE")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self.summary = folder / "summary.json"
        self.command = [binary, "file", log, "--to", f"csv:{folder / 'rows.csv'}"]

    def seconds(self, *threads):
        begin = time.perf_counter()
        subprocess.run([*self.command, *threads], check=True, stderr=subprocess.DEVNULL, env=self.environment)
        return time.perf_counter() - begin

    def both(self):
        return self.seconds("--threads", "1"), self.seconds()

    def reports(self):
        self.seconds("--summary", self.summary)
        return json.loads(self.summary.read_text())["accepted"]


def measure(peers, ours, paths, line_count, rounds, reports):
    failed = set()
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        before = ours.both()
        for peer in peers:
            if peer in failed:
                continue
            ended = subprocess.run([*peer.command, paths[peer.given]], capture_output=True, text=True)
            after = ours.both()
            if ended.returncode != 0:
                failed.add(peer)
                say(f"{peer.name} is left out, as it failed: {last_line(ended.stderr)}")
                continue
            seconds, found = ended.stdout.split()
            if number == 0 and peer.given != "short" and found not in ("None", str(reports)):
                say(f"note: {peer.name} found {found} position reports, ours {reports}")
            scaled = float(seconds) * line_count["log"] / line_count.get(peer.given, line_count["log"])
            peer.to_one_thread.append(scaled * 2 / (before[0] + after[0]))
            peer.to_all_threads.append(scaled * 2 / (before[1] + after[1]))
            before = after
    return [peer for peer in peers if peer not in failed]


# ---- The table -------------------------------------------------------------------------------------------------------


def ratio(ratios):
    """The median with two digits, and in words where the peer is the faster one."""
    median = statistics.median(ratios)
    digits = f"{median:.2f}" if median < 1 else f"{median:.1f}" if median < 10 else f"{median:.0f}"
    return digits + (", faster than ours" if median < 0.995 else "")


def table(peers, markdown):
    header = ("", "what it does", "time by ours with `--threads 1`", "time by ours with all threads")
    rows = [("`ais-replay`", "decodes, finds the event time, counts per cell and window, writes rows", "1", "1")]
    for peer in sorted(peers, key=lambda peer: statistics.median(peer.to_one_thread)):
        rows.append((peer.name, peer.does, ratio(peer.to_one_thread), ratio(peer.to_all_threads)))
    if markdown:
        lines = [header, ("---", "---", "--:", "--:"), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("|  |", "| |")
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths)] for row in (header, *rows))
    return "\n".join("  ".join(row).rstrip() for row in padded)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the log (default %(default)s)")
    parser.add_argument("--short", type=int, default=50_000, help="lines for slow peers (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default %(default)s)")
    parser.add_argument("--binary", type=Path, help="ours, instead of what `cargo build --release` makes")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("input", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        functions = {name: function for peers in PYTHON_PEERS.values() for name, _, _, function in peers}
        print(*functions[options.peer](options.input))
        return

    target = target_folder()
    folder = target / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    binary = options.binary and options.binary.resolve()
    if binary is None:
        say("building ours")
        subprocess.run(["cargo", "build", "--quiet", "--release", "--no-default-features"], cwd=ROOT, check=True)
        binary = target / "release" / "ais-replay"
    peers = [*rust_peers(folder), *python_peers(folder)]
    paths = logs(folder, options.lines, options.short)
    if any(peer.given in ("csv", "parquet") for peer in peers):
        paths.update(positions(folder, paths["log"], python_of(folder / "venv")))
    peers = [peer for peer in peers if peer.given in paths]

    ours = Ours(binary, paths["log"], folder)
    line_count = {"log": options.lines, "short": min(options.short, options.lines)}
    peers = measure(peers, ours, paths, line_count, options.rounds, ours.reports())
    print(table(peers, options.markdown))


if __name__ == "__main__":
    main()
