"""The command line without any server: configuration, help, versions, and what a mistake is told."""

import json
import re
import subprocess

import pytest

from lib.devserver import ROOT

PASSWORDS = ["--postgres", "host=db password=geheim user=u", "--kafka", "sasl.password=geheim",
             "--kafka", "ssl.key.password=geheim", "--kafka", "sasl.username=me"]


def test_config_shows_origins_and_masks_passwords(run_denpyo, tmp_path):
    file = tmp_path / "denpyo.json"
    file.write_text('{"batch": {"rows": 70}, "kafka": {"acks": "all", "linger.ms": 1.5, "socket.keepalive.enable": true}}')
    env = {"DENPYO_CONFIG": file, "DENPYO_POLL_IDLE_MS": 50, "DENPYO_KAFKA_CLIENT_ID": "x"}
    for flags in ([], ["--json"]):
        done = run_denpyo("config", *PASSWORDS, *flags, env=env)
        assert done.returncode == 0, done.stderr
        assert "geheim" not in done.stdout
    shown = json.loads(done.stdout)
    assert shown["batch.rows"] == {"value": 70, "origin": "file"}
    assert shown["poll.idle_ms"] == {"value": 50, "origin": "environment"}
    assert shown["postgres"] == {"value": "host=db password=**** user=u", "origin": "flag"}
    assert shown["schema"] == {"value": "outbox", "origin": "default"}
    values = {name: entry["value"] for name, entry in shown["kafka"].items()}
    assert values == {"acks": "all", "linger.ms": "1.5", "socket.keepalive.enable": "true", "client.id": "x",
                      "sasl.password": "****", "ssl.key.password": "****", "sasl.username": "me"}


def test_variables_that_the_repositorys_scripts_read_are_let_pass(run_denpyo):
    """Whoever exports one for a script still runs denpyo in the same shell."""
    scripts = [ROOT / "deploy" / "quickstart", ROOT / "tests" / "run", ROOT / "tests" / "chaos" / "run", ROOT / ".ci" / "run",
               *(ROOT / "tests").rglob("*.py")]
    read = {name for script in scripts
            for name in re.findall(r"""(?:\$\{|environ\.get\(")(DENPYO_[A-Z_]+)""", script.read_text())}
    assert {"DENPYO_QUICKSTART_DIR", "DENPYO_BINARY"} <= read
    done = run_denpyo("config", "--json", env=dict.fromkeys(read, "x"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(run_denpyo("config", "--json").stdout)


def test_a_file_that_config_printed_means_the_same_again(run_denpyo, tmp_path):
    """What `config --json` shows can be written down as a file with dotted names and gives the same values."""
    shown = json.loads(run_denpyo("config", "--json", "--batch-rows", 9, "--kafka", "acks=all").stdout)
    kafka = {name: entry["value"] for name, entry in shown.pop("kafka").items()}
    written = {name: entry["value"] for name, entry in shown.items() if name != "config"} | {"kafka": kafka}
    file = tmp_path / "again.json"
    file.write_text(json.dumps(written))
    again = json.loads(run_denpyo("config", "--json", "--config", file).stdout)
    assert {name: entry["value"] for name, entry in again.items() if name not in ("config", "kafka")} == {
        name: entry["value"] for name, entry in shown.items() if name != "config"}
    assert again["kafka"]["acks"] == {"value": "all", "origin": "file"}


@pytest.mark.parametrize("text, message", [
    ('{\n  "batch": {\n    "row": 1\n  }\n}', r":3:5: unknown option batch\.row; did you mean batch\.rows\?"),
    ('{"brokers":\n  "x",\n}', r":3:1: not valid JSON: "),
    ('{"batch.rows": "many"}', r':1:2: "batch\.rows" must be a number without quotes'),
    ('{"prepare": 1}', r':1:2: "prepare" must be true or false'),
])
def test_a_bad_file_is_told_line_and_column(run_denpyo, tmp_path, text, message):
    file = tmp_path / "bad.json"
    file.write_text(text)
    done = run_denpyo("status", "--config", file)
    assert done.returncode == 2
    assert re.fullmatch(rf"denpyo: {re.escape(str(file))}{message}.*\n", done.stderr)


@pytest.mark.parametrize("args, env, message", [
    (["stauts"], {}, 'unknown command "stauts"; did you mean "status"?'),
    (["--brokers", "x", "run"], {}, "options come after the command"),
    (["config", "--broker", "x"], {}, "unknown option --broker; did you mean --brokers?"),
    (["config", "--batch-rows", "0"], {}, "--batch-rows must be from 1 to 30000 rows, not 0"),
    (["config"], {"DENPYO_BROKER": "x"}, "unknown option DENPYO_BROKER in the environment; did you mean DENPYO_BROKERS?"),
    (["config", "surplus"], {}, 'what is "surplus"?'),
    (["version", "surplus"], {}, '"surplus"'),
    (["show"], {}, "show takes a message id"),
    (["show", "12x"], {}, 'not "12x"'),
    (["show", "0198abcd-ef00-7fff-8009-9aa91032547"], {}, "show takes a message id"),
    (["retry"], {}, "retry takes a message id"),
    (["retry", "12x"], {}, 'retry takes a message id, like 0198abcd-ef00-7fff-8009-9aa910325476, or the number in column id, not "12x"'),
    (["skip"], {}, "skip takes a message id"),
    (["skip", "12x", "--reason", "x"], {}, 'not "12x"'),
    (["skip", "1", "--reason"], {}, "--reason needs a value"),
    (["skip", "1", "--reason", "--postgres", "host=a"], {}, "--reason needs a value"),
    (["status", "--postgres", "hst=a"], {}, 'invalid connection option "hst"'),
    (["status", "--postgres", "password=geheim hst=a"], {}, 'invalid connection option "hst"'),
    (["status", "--postgres", "postgresql://a/b?hst=c"], {}, 'invalid URI query parameter: "hst"'),
    (["status", "--postgres", "host=a password=x geheim=y"], {}, 'invalid connection option "******"'),
    (["status", "--postgres", 'host=a password=x gehe"im"geheim'], {}, 'missing "=" after "***'),
    (["status", "--postgres", "postgresql://u:x/?geheim=y@a/b"], {}, 'invalid URI query parameter: "******"'),
    (["status", "--config", "/nonexistent"], {}, "/nonexistent: No such file or directory"),
    (["status", "--postgres", "host=a pasword=geheim"], {}, "postgres"),
])
def test_a_mistake_is_one_line_and_exit_code_2(run_denpyo, args, env, message):
    done = run_denpyo(*args, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.startswith("denpyo: ") and done.stderr.count("\n") == 1
    assert "geheim" not in done.stderr


def test_no_command_is_answered_with_the_help(run_denpyo):
    done = run_denpyo()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run_denpyo("help").stdout


def test_every_command_explains_itself(run_denpyo):
    overview = run_denpyo("help").stdout
    assert overview == run_denpyo("--help").stdout
    commands = re.findall(r"^  ([a-z]+) .*", overview.partition("Commands:")[2].partition("Connections:")[0], re.M)
    assert {"init", "status", "show", "check", "config", "version", "help"} <= set(commands)
    for command in commands:
        done = run_denpyo("help", command)
        assert done.returncode == 0
        assert done.stdout.startswith(f"Usage: denpyo {command}")
        assert run_denpyo(command, "--help").stdout == done.stdout
        assert run_denpyo(command, "x", "-h").stdout == done.stdout


def test_the_version_is_the_one_that_cmake_says(run_denpyo, denpyo):
    done = run_denpyo("version")
    assert re.fullmatch(r"denpyo \d+\.\d+\.\d+\nlibpq \d+\.\d+\nlibrdkafka \S+\njansson \S+\n", done.stdout)
    assert run_denpyo("--version").stdout == done.stdout


def test_output_that_cannot_be_written_is_no_crash(denpyo):
    with open("/dev/full", "w") as full:
        done = subprocess.run([denpyo, "help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "denpyo: cannot write the output: No space left on device\n"
