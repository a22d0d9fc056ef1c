"""The rivals: how each is fetched through its ordinary client, what its table is, and how its process is started."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "denpyo"
TABLE_ROWS = 100  # rows a transaction when a rival's table is filled, as in the outbox itself


class Unavailable(Exception):
    """This rival cannot be had on this machine; the text says why."""


class Rival:
    """One rival; the folder of its files lies beside this file and is copied into a cache to be built there."""

    name = folder = None
    tools = ()
    rows = 1_000_000  # at most so many are drained: a slow one needs no more to show its rate
    rate = 1000  # a second in the latency run: one that it keeps, since a queue that grows has no latency
    table_sql = "select 1"  # makes its table
    fill_sql = ""  # fills it from outbox.message; %(from)s and %(upto)s bound the ids
    insert = ""  # one row of the latency run: $1 topic, $2 key, $3 payload, returning a number

    def build(self, folder):
        """Fetches and builds in a fresh copy of its files."""
        raise NotImplementedError

    def before_rows(self, db):
        """Between making the table and filling it."""

    def after_run(self, db):
        """When its process has ended."""

    def command(self, home, work, postgres, database, brokers, is_latency):
        """(command, environment) of its process; `work` is an empty folder of this run's own."""
        raise NotImplementedError

    def settings(self):
        """The files that hold its settings, for the page."""
        raise NotImplementedError

    def install(self):
        """The folder where it is ready to run, fetched when this version of its files is not there yet."""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if missing:
            raise Unavailable(f"{', '.join(missing)} not found")
        source = HERE / self.folder
        digest = hashlib.sha256()
        for path in sorted(source.iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
        home = CACHE / f"{self.folder}-{digest.hexdigest()[:12]}"
        if home.exists():
            return home
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            fresh = pathlib.Path(shutil.copytree(source, pathlib.Path(fresh) / "files"))
            try:
                self.build(fresh)
            except subprocess.CalledProcessError as error:
                said = (error.stderr or error.stdout or "").strip().splitlines()
                raise Unavailable(f"{error.cmd[0]} could not fetch or build it: {said[-1] if said else error}") from error
            fresh.rename(home)
        return home

    def prepare(self, db, rows):
        """Its table, filled with the first rows of the outbox, so many a transaction."""
        db.execute(self.table_sql)
        self.before_rows(db)
        first = 1
        while first <= rows:
            upto = min(rows, first + 100 * TABLE_ROWS - 1)
            db.execute(f"""do $$ begin for i in {first}..{upto} by {TABLE_ROWS} loop
                {self.fill_sql % {"from": "i", "upto": f"least({rows}, i + {TABLE_ROWS - 1})"}}; commit; end loop; end $$""")
            first = upto + 1
        db.execute("analyze")


def run(command, folder):
    """A step of an installation; its output is kept for the reason why it failed."""
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
