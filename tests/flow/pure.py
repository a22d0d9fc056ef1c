"""The pure C modules as a shared library, so that a test can hold them against Java's client and a real broker."""
import ctypes
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "src" / name for name in ("partition.c", "envelope.c", "window.c", "fault.c")]


class Headers(ctypes.Structure):
    """struct envelope_headers."""

    _fields_ = [
        ("items", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("document", ctypes.c_void_p),
        ("document_capacity", ctypes.c_size_t),
    ]


class Snapshot(ctypes.Structure):
    """struct window_snapshot."""

    _fields_ = [
        ("xmin", ctypes.c_uint64),
        ("xmax", ctypes.c_uint64),
        ("xip", ctypes.POINTER(ctypes.c_uint64)),
        ("xip_count", ctypes.c_size_t),
    ]


class Pure:
    """What the relay would answer; compiled from the sources that ship."""

    def __init__(self, folder):
        path = pathlib.Path(folder) / "pure.so"
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-std=c17", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'include'}"]
        subprocess.run([*command, *SOURCES, "-o", path], check=True)
        self.library = ctypes.CDLL(str(path))
        self.library.partition_of_key.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32]
        self.library.envelope_headers_parse.restype = ctypes.c_bool
        self.library.envelope_headers_parse.argtypes = [
            ctypes.POINTER(Headers), ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p,
        ]
        self.library.envelope_headers_free.argtypes = [ctypes.POINTER(Headers)]
        self.library.envelope_size.restype = ctypes.c_int64
        self.library.envelope_size.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(Headers)]
        self.library.window_snapshot_parse.restype = ctypes.c_bool
        self.library.window_snapshot_parse.argtypes = [ctypes.POINTER(Snapshot), ctypes.c_char_p, ctypes.c_void_p]
        self.library.window_snapshot_free.argtypes = [ctypes.POINTER(Snapshot)]
        self.library.window_contains.restype = ctypes.c_bool
        self.library.window_contains.argtypes = [
            ctypes.POINTER(Snapshot), ctypes.POINTER(Snapshot), ctypes.c_uint64,
        ]

    def partition(self, key: bytes, count: int) -> int:
        return self.library.partition_of_key(key, len(key), count)

    def size(self, key, value, headers: str) -> int:
        """Bytes of the lone batch; key and value may be None, headers is the JSON text of the row's headers."""
        parsed, text = Headers(), headers.encode()
        assert self.library.envelope_headers_parse(parsed, text, len(text), None), headers
        size = self.library.envelope_size(
            -1 if key is None else len(key), -1 if value is None else len(value), parsed
        )
        self.library.envelope_headers_free(parsed)
        return size

    def window(self, start: str, end: str, xids) -> list:
        """Those of `xids` whose rows belong to the window between two snapshots."""
        first, last = Snapshot(), Snapshot()
        for snapshot, text in ((first, start), (last, end)):
            assert self.library.window_snapshot_parse(snapshot, text.encode(), None), text
        inside = [xid for xid in xids if self.library.window_contains(first, last, xid)]
        self.library.window_snapshot_free(first)
        self.library.window_snapshot_free(last)
        return inside
