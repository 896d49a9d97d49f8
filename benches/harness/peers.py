"""Other brokers that speak Kafka's protocol, where they are installed: from a package registry, by their own names.

They take part in `produce` alone, with a twentieth of the bytes: what they can do differs, and a figure of one that fails is left out.
"""
import os
import shutil

# Program, and how to get it.
PEERS = {
    "rivine": ("rivine-broker", "cargo install rivine"),
    "tansu": ("tansu", "cargo install tansu --features dynostore"),
}
SHARE_OF_BYTES = 20


def program(kind):
    """$RIVINE_BIN, $TANSU_BIN, or what the shell would find; None where it is not installed."""
    name = PEERS[kind][0]
    cargo = os.path.expanduser("~/.cargo/bin")
    return os.environ.get(f"{kind.upper()}_BIN") or shutil.which(name) or shutil.which(name, path=cargo)


def installed():
    return [kind for kind in PEERS if program(kind)]


def missing_note():
    missing = [f"{kind} (`{how}`)" for kind, (_, how) in PEERS.items() if not program(kind)]
    return f"Not installed, so not measured: {', '.join(missing)}." if missing else ""


def command(kind, address, directory):
    host, port = address.split(":")
    if kind == "rivine":
        config = directory / "rivine.toml"
        config.write_text(f'host = "{host}"\nport = {port}\nbroker_id = 0\nlog_dirs = ["{directory}/data"]\n'
                          'num_partitions = 6\nsingle_node = true\n')
        return [program(kind), "--config", config]
    return [program(kind), "broker", "--cluster-id", "bench", "--listener-url", f"tcp://{address}",
            "--advertised-listener-url", f"tcp://{address}", "--storage-engine", "memory://tansu/"]
