"""A TCP proxy whose connections can be cut, delayed and silenced while others use them."""

import asyncio
import threading
from contextlib import suppress

CHUNK_BYTES = 65536


class Proxy:
    """
    Listens on `port` and forwards to `target`, from a thread of its own until close(). Bytes that arrive in a silence are kept
    and flow when it ends, as they would from a network that comes back before TCP gives up.
    """

    def __init__(self, port, target, usual_delay_s=0):
        self.port, self.target = port, target
        self._delay_s = self._usual_delay_s = usual_delay_s
        self._refusing = False
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._open())

    def cut(self):
        """Ends all connections; what was on its way inside them is lost."""
        self._do(self._cut())

    def refuse(self, refusing):
        """While refusing, new connections end at once."""
        self._refusing = refusing

    def delay(self, seconds):
        """Every piece of every connection takes so much longer than usual, in both directions."""
        self._delay_s = self._usual_delay_s + seconds

    def silence(self):
        """Nothing flows any more, and nobody is told; new connections are accepted and stay silent."""
        self._do(self._let_flow(False))

    def speak(self):
        """Ends a silence."""
        self._do(self._let_flow(True))

    def close(self):
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # --- in the thread ---

    def _do(self, coroutine):
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _open(self):
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _close(self):
        self._server.close()
        await self._cut()

    async def _cut(self):
        for writer in self._writers:
            writer.transport.abort()

    async def _let_flow(self, flows):
        if flows:
            self._flows.set()
        else:
            self._flows.clear()

    async def _accept(self, reader, writer):
        self._writers.add(writer)
        try:
            await self._flows.wait()
            if not self._refusing:
                await self._join(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _join(self, reader, writer):
        """Both directions until either ends."""
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            return
        self._writers.add(far_writer)
        pumps = [asyncio.ensure_future(self._pump(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._writers.discard(far_writer)
            with suppress(OSError):
                far_writer.close()

    async def _pump(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
