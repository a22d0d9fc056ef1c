"""A Kafka that answers what a test wants: librdkafka's mock cluster, in this process, behind a real socket."""

import ctypes
import itertools

from confluent_kafka.admin import AdminClient

from lib.kafka import Kafka

PRODUCE, METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 3, 22, 24, 26

library = ctypes.CDLL("librdkafka.so.1")
for name, result, *arguments in (
        ("rd_kafka_new", ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t),
        ("rd_kafka_destroy", None, ctypes.c_void_p),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
        ("rd_kafka_mock_cluster_destroy", None, ctypes.c_void_p),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, ctypes.c_void_p),
        ("rd_kafka_mock_topic_create", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
        ("rd_kafka_mock_topic_set_error", None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int),
        ("rd_kafka_mock_clear_request_errors", None, ctypes.c_void_p, ctypes.c_int16),
        ("rd_kafka_mock_push_request_errors_array", None, ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t,
         ctypes.POINTER(ctypes.c_int))):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments


class MockKafka(Kafka):
    """One broker. It has topics, records and transactions, but no fencing, no ACLs and no settings; close() ends it."""

    def __init__(self):
        why = ctypes.create_string_buffer(500)
        self._client = library.rd_kafka_new(0, None, why, len(why))
        assert self._client, why.value
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        self.bootstrap = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.client = {"bootstrap.servers": self.bootstrap, "log_level": 0, "allow.auto.create.topics": False}
        self.admin = AdminClient(self.client)
        self._names = itertools.count(1)

    def create_topic(self, name=None, partitions=1):
        name = name or f"topic-{next(self._names)}"
        assert library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0
        return name

    def answer(self, request, *codes):
        """The next requests of this kind get these error codes, one each; 0 is a good answer."""
        library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(codes), (ctypes.c_int * len(codes))(*codes))

    def answer_well(self, request):
        library.rd_kafka_mock_clear_request_errors(self._cluster, request)

    def set_topic_error(self, name, code):
        """What every look at the topic finds, until it is 0 again."""
        library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), code)

    def close(self):
        library.rd_kafka_mock_cluster_destroy(self._cluster)
        library.rd_kafka_destroy(self._client)
