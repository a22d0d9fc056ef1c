"""Grants and takes rights at a Kafka broker: two requests of its protocol that the Python client does not know."""

import socket
import struct

TOPIC, LITERAL = 2, 3
CREATE, DELETE, VERSION = 30, 31, 1
OPERATIONS = {"all": 2, "write": 4}
PERMISSIONS = {"deny": 2, "allow": 3}
ANSWER_S = 60


def _string(text):
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _rule(permission, operation, topic):
    """What both requests say alike: everybody from everywhere may, or may not, do this with a topic."""
    return (struct.pack(">ib", 1, TOPIC) + _string(topic) + struct.pack(">b", LITERAL) + _string("User:*") + _string("*")
            + struct.pack(">bb", OPERATIONS[operation], PERMISSIONS[permission]))


def _ask(bootstrap, request, body):
    host, port = bootstrap.rsplit(":", 1)
    message = struct.pack(">hhi", request, VERSION, 1) + _string("chaos") + body
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", answer.read(4))
        _correlation, _throttle, _count, code = struct.unpack_from(">iiih", answer.read(size))
    assert code == 0, f"the broker answers with error {code}"


def add(bootstrap, permission, operation, topic):
    """add("127.0.0.1:9092", "deny", "write", "events")"""
    _ask(bootstrap, CREATE, _rule(permission, operation, topic))


def remove(bootstrap, permission, operation, topic):
    """Takes back what add() did."""
    _ask(bootstrap, DELETE, _rule(permission, operation, topic))
