"""Brings the jars and runs WordCount.java, which prints the results."""
import subprocess
import sys
import tempfile

import servers


def main():
    libs = servers.maven_libs(f"streams-{servers.APACHE_VERSION}", "streams")
    with tempfile.TemporaryDirectory(prefix="kavka-compat-streams-") as work:
        return subprocess.run(servers.java_command("WordCount.java", work, libs=libs), timeout=600).returncode


if __name__ == "__main__":
    sys.exit(main())
